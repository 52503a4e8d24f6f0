"""The command line of a rank, made from the fields of the configurations."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gnnloom.storage.errors import InputError
from gnnloom.storage.format.files import read_json
from gnnloom.trainer.config.train_config import CHOICES, PredictConfig, TrainConfig

PREDICT = "predict"


@dataclass(frozen=True)
class Job:
    """What a rank is to do.

    Attributes:
        result: file that rank 0 writes the summary to, as JSON.
    """

    config: TrainConfig | PredictConfig
    result: Path | None


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would end the process, so that one rank can speak for all."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see --help")


def parse_arguments(arguments: Sequence[str]) -> Job:
    """Parse ``[predict] [CONFIG.json | DATASET] [--field value ...] [--result FILE]``; options win over the file.

    Raises:
        InputError: an option or field is unknown or has a wrong value.
        NotFoundError: there is no such file.
    """
    predicts = list(arguments[:1]) == [PREDICT]
    kind = PredictConfig if predicts else TrainConfig
    values = vars(_build_parser(kind).parse_args(arguments[1:] if predicts else arguments))
    target, result = values.pop("target"), values.pop("result")
    content: dict[str, Any] = {}
    if target is not None and target.endswith(".json"):
        content = _read_config(Path(target))
    elif target is not None:
        content = {"dataset": target}
    return Job(kind.from_json({**content, **values}), result)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except OSError as error:
        raise InputError(f"{path}: the configuration cannot be read ({error.strerror})") from error


def _build_parser(kind: type[TrainConfig | PredictConfig]) -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m mpi4py -m gnnloom.trainer", argument_default=argparse.SUPPRESS, allow_abbrev=False)
    parser.add_argument("target", nargs="?", default=None, help="a configuration (CONFIG.json) or a dataset's name")
    parser.add_argument("--result", type=Path, default=None, help="file for the summary, as JSON")
    for field in dataclasses.fields(kind):
        _add_option(parser, field)
    return parser


def _add_option(parser: argparse.ArgumentParser, field: dataclasses.Field[Any]) -> None:
    flags = [f"--{field.name.replace('_', '-')}", *(["--parts"] if field.name == "ranks" else [])]
    text = str(field.metadata.get("help", "")) or None
    if field.type == "bool":
        parser.add_argument(*flags, dest=field.name, action=argparse.BooleanOptionalAction, help=text)
    else:
        convert = _CONVERSIONS.get(str(field.type), str)
        choices = CHOICES.get(field.name)
        parser.add_argument(*flags, dest=field.name, type=convert, choices=choices, help=text)
        if former := field.metadata.get("former"):
            flag = f"--{former.replace('_', '-')}"
            parser.add_argument(flag, dest=field.name, type=convert, choices=choices, help=argparse.SUPPRESS)


def _widths(text: str) -> tuple[int, ...]:
    """``128,128`` as numbers; nothing for no hidden layer."""
    return tuple(int(width) for width in text.split(",") if width)


def _grid(text: str) -> tuple[int, ...]:
    """``2x1x2`` as numbers."""
    return tuple(int(size) for size in text.split("x"))


_CONVERSIONS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "int | None": int,
    "float": float,
    "tuple[int, ...]": _widths,
    "tuple[int, ...] | None": _grid,
}
