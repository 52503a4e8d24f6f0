"""The command line of a rank, derived from the fields of the configurations."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

from gnnloom.storage.disk.files import read_json
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option, options_of
from gnnloom.storage.system_errors import OF_PERMISSION, check_is_of_content
from gnnloom.trainer.config.continuation import configure
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.config.train_config import TrainConfig, gather_fields, other_options

PREDICT, PROPAGATE = "predict", "propagate"
#: Actions instead of training, as the first argument of a rank.
_KINDS: Final[Mapping[str, type[PredictConfig | PropagateConfig]]] = MappingProxyType(
    {PREDICT: PredictConfig, PROPAGATE: PropagateConfig}
)


@dataclass(frozen=True)
class Job:
    """Job of a rank.

    Attributes:
        result: file to which rank 0 writes the summary, as JSON.
        restart: start the run over instead of continuing it.
    """

    config: TrainConfig | PredictConfig | PropagateConfig
    result: Path | None
    restart: bool = False

    @property
    def command(self) -> str:
        """Name of the job, which ranks compare before anything else."""
        return next((name for name, kind in _KINDS.items() if isinstance(self.config, kind)), "train")


class _Parser(argparse.ArgumentParser):
    """Raises an error instead of ending the process, so that one rank can report it for all."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see --help")


def parse_arguments(arguments: Sequence[str]) -> Job:
    """Parse ``[ACTION] [CONFIG.json | DATASET | DATASET/RUN] [--field value ...] [--restart] [--result FILE]``.

    ACTION is ``predict`` or ``propagate``.

    Options override the file. Fields of a training run that neither has come from the existing run, if there is one.

    Raises:
        InputError: an option or field is unknown or has a wrong value, or the file cannot be read.
        ExistsError: the run was made with other values of fields that must not change.
    """
    chosen = _KINDS.get(arguments[0]) if arguments else None
    kind = chosen or TrainConfig
    values = vars(_build_parser(kind).parse_args(arguments[1:] if chosen else arguments))
    target, result = values.pop("target"), values.pop("result")
    restart = values.pop("restart", False)
    content: dict[str, Any] = {}
    if target is not None and target.endswith(".json"):
        file = Path(target)
        try:
            content = read_json(file, sealed=False)
        except OSError as error:
            check_is_of_content(error, file, OF_PERMISSION)
            raise InputError(f"{file}: the configuration cannot be read ({error.strerror})") from error
    elif target is not None:
        dataset, slash, run = target.partition("/")
        content = {"dataset": dataset} | ({"run": run} if slash else {})
    fields = gather_fields({**content, **values})
    if chosen:
        return Job(chosen.of(**fields), result)
    return Job(configure(fields, restart=restart), result, restart)


def _build_parser(kind: type[TrainConfig | PredictConfig | PropagateConfig]) -> argparse.ArgumentParser:
    # Options that are not given leave no default behind, which would override the file. Abbreviations are refused,
    # because a new option could make them ambiguous.
    name = "python -P -m mpi4py -m gnnloom.trainer"
    parser = _Parser(prog=name, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    parser.add_argument(
        "target", nargs="?", default=None, help="Configuration (CONFIG.json), or DATASET or DATASET/RUN"
    )
    parser.add_argument("--result", type=Path, default=None, help="File for the summary, as JSON")
    for name, option in options_of(kind).items():
        # The stages before training call the same number --parts.
        _add_option(parser, [name, *(["parts"] if name == "ranks" else [])], option)
    if kind is TrainConfig:
        parser.add_argument("--restart", action="store_true", help="Start the run over instead of continuing it")
        for name, option in other_options().items():
            _add_option(parser, [name], option)
    return parser


def _add_option(parser: argparse.ArgumentParser, names: list[str], option: Option) -> None:
    flags = [f"--{name.replace('_', '-')}" for name in names]
    if option.kind is bool:
        parser.add_argument(*flags, dest=option.name, action=argparse.BooleanOptionalAction, help=option.help)
        return

    def read(text: str) -> Any:
        return option.read(text)

    # argparse names the conversion in its message about a value of another type.
    read.__name__ = getattr(option.kind, "__name__", "value")
    # The configuration checks which code the user may import.
    choices = None if option.importable else option.choices or None
    parser.add_argument(*flags, dest=option.name, type=read, choices=choices, help=option.help)
