"""`gnnloom train` and `gnnloom predict`: start the MPI ranks on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import CHOICES, TrainConfig, former_names
from gnnloom.trainer.job.launch import launch, launch_prediction
from gnnloom.workflows.cli.options import Sizes, Widths, current_catalog, json_option
from gnnloom.workflows.cli.output import show
from gnnloom.workflows.cli.progress import shown_epochs
from gnnloom.workflows.interop.export import write_predictions
from gnnloom.workflows.interop.tables import check_file

#: Fields that are not options: the catalog is global, the dataset an argument.
_NOT_OPTIONS = frozenset({"catalog", "dataset"})


def config_options(command: Callable[..., None]) -> Callable[..., None]:
    """One option for every field of the training configuration, with its default and its help."""
    for field in reversed(dataclasses.fields(TrainConfig)):
        if field.name not in _NOT_OPTIONS:
            command = _option(field)(command)
    return command


def _option(field: dataclasses.Field[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    name = field.name.replace("_", "-")
    text = str(field.metadata["help"])
    default: Any = field.default
    if isinstance(default, bool):
        flags = f"--{name}" if not default else f"--{name}/--no-{name}"
        return click.option(flags, is_flag=True, default=default, show_default=default, help=text)
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    return click.option(f"--{name}", type=_type(field), default=default, show_default=default is not None, help=text)


def _type(field: dataclasses.Field[Any]) -> Any:
    if field.name in CHOICES:
        return click.Choice(CHOICES[field.name])
    if isinstance(field.default, tuple):
        return Widths()
    if field.name == "grid":
        return Sizes(1, 3)
    return str if field.default is None else type(field.default)


def _name_today(option: str) -> str:
    """Options keep working under the names that they had in earlier versions."""
    former = {old.replace("_", "-"): new.replace("_", "-") for old, new in former_names(TrainConfig).items()}
    return former.get(option, option)


@click.command("train", context_settings={"token_normalize_func": _name_today})
@click.argument("name")
@config_options
@json_option
def train_command(name: str, as_json: bool, **options: Any) -> None:
    """Train on the whole graph of dataset NAME, every rank with its own shard.

    Ranks are started with the mpiexec beside this Python, or the one on the PATH. By hand, or in a batch job:
    mpirun -n 4 python -m mpi4py -m gnnloom.trainer --catalog DIR --dataset NAME --ranks 4 (the same options)

    \b
    Example:
      gnnloom train web --ranks 4 --hidden 128,128 --epochs 100 --lr 0.01 --dropout 0.5
      gnnloom train web --ranks 4 --algorithm tensor3d --grid 2x1x2
      gnnloom train cora --ranks 2 --hidden 16 --epochs 200 --dropout 0.5 --weight-decay 5e-4
    """
    catalog = current_catalog()
    config = TrainConfig(catalog=str(catalog.root), dataset=catalog[name].name, **options)
    with shown_epochs(Run(catalog[name].run_path(config.run_name)), config.epochs):
        result = launch(config)
    show(result, as_json=as_json, title=f"run {result['run']} of {name}", hide=("bytes_between",))


@click.command("predict")
@click.argument("name")
@click.option("--run", required=True, help="Run whose last checkpoint predicts.")
@click.option("--ranks", type=click.IntRange(min=1), default=None, help="MPI ranks.  [default: as the run]")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Also write the classes here: .npy in the order of the vertices, or .npz, .parquet, .csv with their ids.",
)
@click.option("--embeddings", is_flag=True, help="Keep the last hidden layer too.")
@json_option
def predict_command(name: str, run: str, ranks: int | None, out: Path | None, embeddings: bool, as_json: bool) -> None:
    """Predict the class of every vertex of dataset NAME, in the order of the vertices.

    \b
    Example:
      gnnloom predict web --run demo --out predictions.npy
    """
    dataset = current_catalog()[name]
    check_file(out)
    result = launch_prediction(dataset, run, ranks, embeddings=embeddings)
    if out is not None:
        write_predictions(dataset, Run.open(dataset, run), out)
        result["out"] = str(out)
    show(result, as_json=as_json, title=f"predictions of run {run}")
