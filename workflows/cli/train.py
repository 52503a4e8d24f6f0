"""`gnnloom train` and `gnnloom predict`: start the MPI ranks on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gnnloom.storage.runs.run import Run
from gnnloom.trainer.algorithms.option import Option
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.config.algorithm_config import gather_fields, other_options
from gnnloom.trainer.config.fields import former_names, option_of
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch, launch_prediction
from gnnloom.workflows.cli.options import Names, Sizes, Widths, current_catalog, json_option
from gnnloom.workflows.cli.output import show
from gnnloom.workflows.cli.progress import shown_epochs
from gnnloom.workflows.interop.export import write_predictions
from gnnloom.workflows.interop.tables import check_file

Decorator = Callable[[Callable[..., None]], Callable[..., None]]

#: Fields that are not options: the catalog is global, the dataset is an argument, and the options of other packages'
#: algorithms have names of their own.
_NOT_OPTIONS = frozenset({"catalog", "dataset", "algorithm_options"})


#: Entries of the result that are too large for a terminal.
_LARGE = ("bytes_between", "confusion", "per_class")


class _Choice(click.Choice[str]):
    """One of the choices, the name that one of them had in an earlier version, or something of the user's to import."""

    def __init__(self, option: Option) -> None:
        super().__init__(option.choices)
        self._option = option

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        value = self._option.current(value)
        return str(value) if self._option.allows(value) else super().convert(value, param, ctx)


def config_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for every field of the training configuration, with its default and its help.

    The options of other packages' algorithms follow; they have no default, so only those that are given are passed on.
    """
    decorators = [_field_option(field) for field in dataclasses.fields(TrainConfig) if field.name not in _NOT_OPTIONS]
    decorators += [_other_option(name, option) for name, option in other_options().items()]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def _field_option(field: dataclasses.Field[Any]) -> Decorator:
    name, option = field.name.replace("_", "-"), option_of(field)
    default = option.default
    if isinstance(default, bool):
        flags = f"--{name}" if not default else f"--{name}/--no-{name}"
        return click.option(flags, is_flag=True, default=default, show_default=default, help=option.help)
    kind = _type(field, option)
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    return click.option(
        f"--{name}", type=kind, default=default, show_default=default not in {None, ""}, help=option.help
    )


def _other_option(name: str, option: Option) -> Decorator:
    flag = name.replace("_", "-")
    kind = _Choice(option) if option.choices else type(option.default)
    return click.option(f"--{flag}", name, type=kind, default=None, help=f"{option.help}  [default: {option.default}]")


def _type(field: dataclasses.Field[Any], option: Option) -> Any:
    if option.choices:
        return _Choice(option)
    if isinstance(option.default, tuple):
        return Names() if field.type == "tuple[str, ...]" else Widths()
    if field.name == "grid":
        num_axes = [len(algorithm.axes) for algorithm in ALGORITHMS.values()]
        return Sizes(min(num_axes), max(num_axes))
    return str if option.default is None else type(option.default)


def _name_today(option: str) -> str:
    """Return an option's present name; options keep working under the names that they had in earlier versions."""
    former = {old.replace("_", "-"): new.replace("_", "-") for old, new in former_names(TrainConfig).items()}
    return former.get(option, option)


def _algorithm_lines() -> str:
    """Return the algorithms and what they do, for the end of the help."""
    return "\b\nAlgorithms:\n" + "\n".join(
        f"  {algorithm.name:12}{algorithm.help}" for algorithm in ALGORITHMS.values()
    )


@click.command("train", context_settings={"token_normalize_func": _name_today}, epilog=_algorithm_lines())
@click.argument("name")
@config_options
@json_option
def train_command(name: str, as_json: bool, **options: Any) -> None:
    """Train on the whole graph of dataset NAME; every rank reads only its own shards.

    The ranks are started with the mpiexec next to this Python, or with the one on the PATH. To start them by hand or in
    a batch job: mpirun -n 4 python -m mpi4py -m gnnloom.trainer --catalog DIR --dataset NAME --ranks 4 (same options)

    \b
    Example:
      gnnloom train web --ranks 4 --hidden 128,128 --epochs 100 --lr 0.01 --dropout 0.5
      gnnloom train web --ranks 4 --algorithm tensor3d --grid 2x1x2
      gnnloom train cora --ranks 2 --hidden 16 --epochs 200 --dropout 0.5 --weight-decay 5e-4
    """
    catalog = current_catalog()
    config = TrainConfig(catalog=str(catalog.root), dataset=catalog[name].name, **gather_fields(options))
    with shown_epochs(Run(catalog[name].run_path(config.run_name)), config.epochs):
        result = launch(config)
    show(result, as_json=as_json, title=f"run {result['run']} of {name}", hide=_LARGE)


@click.command("predict")
@click.argument("name")
@click.option("--run", required=True, help="Run to predict with.")
@click.option(
    "--checkpoint",
    type=click.Choice(["auto", "best", "last"]),
    default="auto",
    show_default=True,
    help="Checkpoint to predict with; auto: the best one if the run keeps one.",
)
@click.option("--ranks", type=click.IntRange(min=1), default=None, help="MPI ranks.  [default: those of the run]")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="File for the classes: .npy in the order of the vertices, or .npz, .parquet, .csv with their ids.",
)
@click.option("--embeddings", is_flag=True, help="Keep the output of the last hidden layer too.")
@json_option
def predict_command(
    name: str, run: str, checkpoint: str, ranks: int | None, out: Path | None, embeddings: bool, as_json: bool
) -> None:
    """Predict the class of every vertex of dataset NAME, in the order of the vertices.

    \b
    Example:
      gnnloom predict web --run demo --out predictions.npy
    """
    dataset = current_catalog()[name]
    check_file(out)
    result = launch_prediction(dataset, run, ranks, embeddings=embeddings, checkpoint=checkpoint)
    if out is not None:
        write_predictions(dataset, Run.open(dataset, run), out)
        result["out"] = str(out)
    show(result, as_json=as_json, title=f"predictions of run {run}")
