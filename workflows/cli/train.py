"""`gnnloom train`: start the MPI ranks on this machine, or train on those of the MPI job that this is part of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource

from gnnloom.trainer.algorithms.option import Option
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.config.algorithm_config import AUTO, gather_fields, other_options
from gnnloom.trainer.config.continuation import configure, run_of
from gnnloom.trainer.config.fields import option_of
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.exit_codes import EXIT_STOPPED
from gnnloom.trainer.job.launch import launch, prepare_launch
from gnnloom.trainer.modes.registry import MODES
from gnnloom.workflows.cli.options import (
    Fanouts,
    MemorySize,
    Names,
    Sizes,
    Widths,
    Worded,
    current_catalog,
    json_option,
    split_run,
)
from gnnloom.workflows.cli.output import readable, show
from gnnloom.workflows.cli.progress import shown_epochs
from gnnloom.workflows.cli.train_plan import show_train_plan
from gnnloom.workflows.run.auto_algorithm import with_algorithm
from gnnloom.workflows.run.mpi_launcher import LaunchedRank

Decorator = Callable[[Callable[..., None]], Callable[..., None]]

#: Fields that are not options: the catalog is global, the dataset is an argument, and the options of other packages'
#: algorithms have names of their own.
_NOT_OPTIONS = frozenset({"catalog", "dataset", "algorithm_options"})


#: Entries of the result that are too large for a terminal.
_LARGE = ("bytes_between", "confusion", "per_class")


class _Choice(click.Choice[str]):
    """One of the choices, or something of the user's to import."""

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


def field_options(*names: str) -> Decorator:
    """Add the options of some fields of the training configuration only."""
    fields = [TrainConfig.__dataclass_fields__[name] for name in reversed(names)]

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for field in fields:
            command = _field_option(field)(command)
        return command

    return add


def _field_option(field: dataclasses.Field[Any]) -> Decorator:
    name, option = field.name.replace("_", "-"), option_of(field)
    if field.name == "algorithm":
        # Not a value of the configuration: the planner replaces it by an algorithm before there is one.
        option = replace(option, choices=(*option.choices, AUTO), help=f"{option.help}; auto: the fastest planned one")
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
    if field.name == "fanout":
        return Fanouts()
    if option.words:
        return Worded(option.words)
    if field.name.endswith("_memory"):
        return MemorySize()
    if isinstance(option.default, tuple):
        return Names() if field.type == "tuple[str, ...]" else Widths()
    if field.name == "grid":
        num_axes = [len(algorithm.axes) for algorithm in ALGORITHMS.values()]
        return Sizes(min(num_axes), max(num_axes))
    return str if option.default is None else type(option.default)


def _epilog() -> str:
    """Return the algorithms and the modes, and what they do, for the end of the help."""
    algorithms = [f"  {kind.name:12}{kind.help}" for kind in ALGORITHMS.values()]
    modes = [f"  {kind.name:12}{kind.help}" for kind in MODES.values()]
    return "\n".join(["\b", "Algorithms:", *algorithms, "", "\b", "Modes:", *modes])


@click.command("train", epilog=_epilog())
@click.argument("name", metavar="NAME[/RUN]")
@config_options
@click.option("--restart", is_flag=True, help="Start the run over instead of continuing it.")
@click.option("--plan", is_flag=True, help="Only print what it would need: memory per rank, disk, traffic and time.")
@json_option
def train_command(name: str, restart: bool, plan: bool, as_json: bool, **options: Any) -> None:
    """Train on the whole graph of dataset NAME, or on samples of it.

    The same command again continues a run from its last checkpoint, or reports the result of one that has finished.
    Options that are not given are those of the run, if it exists: NAME/RUN alone continues any run.

    The ranks are started with the mpiexec next to this Python, or with the one on the PATH. In an MPI job, training
    runs on the ranks of the job: mpirun -n 4 gnnloom train NAME (same options), or, without this command line:
    mpirun -n 4 python -m mpi4py -m gnnloom.trainer --catalog DIR --dataset NAME --ranks 4 (same options)

    \b
    Example:
      gnnloom train web --ranks 4 --hidden 128,128 --epochs 100 --lr 0.01 --dropout 0.5
      gnnloom train web --ranks 4 --algorithm tensor3d --grid 2x1x2
      gnnloom train cora/kipf --ranks 2 --hidden 16 --epochs 200 --dropout 0.5 --weight-decay 5e-4
      gnnloom train cora/kipf --epochs 300
    """
    dataset, run = split_run(name, options["run"])
    given = _given(options) | {"catalog": str(current_catalog().root), "dataset": dataset}
    if run is not None:
        given["run"] = run
    launched = LaunchedRank.from_environment()
    if plan:
        # Nothing is agreed on, so one rank acts for all.
        if launched.rank == 0:
            given = with_algorithm(given, launched.size)
            show_train_plan(configure(given, restart=restart), restart=restart, as_json=as_json)
    elif launched.size > 1:
        _train_in_place(launched, given, restart=restart, as_json=as_json)
    else:
        current_catalog().dataset(dataset)  # a missing dataset is reported before anything else
        _train_here(configure(with_algorithm(given), restart=restart), restart=restart, as_json=as_json)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the user gave, as fields of the configuration; the others may come from the run."""
    source = click.get_current_context().get_parameter_source
    return gather_fields(
        {name: value for name, value in options.items() if source(name) is not ParameterSource.DEFAULT}
    )


def _train_here(config: TrainConfig, *, restart: bool, as_json: bool) -> None:
    """Train on new ranks of this machine."""
    config, start = prepare_launch(config, restart=restart)
    run = run_of(config)
    if start.is_finished:
        click.echo(f"run {run.name} has finished {config.epochs} epochs already; this is its result", err=True)
    elif start.first_epoch:
        click.echo(f"run {run.name}: continuing at epoch {start.first_epoch + 1} of {config.epochs}", err=True)
    with nullcontext() if start.is_finished else shown_epochs(run, config.epochs):
        result = launch(config, restart=restart)
    _show_result(config.dataset, result, as_json=as_json)


def _train_in_place(launched: LaunchedRank, given: Mapping[str, Any], *, restart: bool, as_json: bool) -> None:
    """Train on the ranks of this MPI job; rank 0 shows the result."""
    # This import starts MPI, which only the ranks of a job may do.
    from gnnloom.workflows.run.mpi import end_job_on_error, leave
    from gnnloom.workflows.run.mpi_training import train_in_place

    with end_job_on_error():
        result = train_in_place(launched, given, shown_epochs, restart=restart)
        if launched.rank == 0 and result["state"] == "finished":
            _show_result(str(given["dataset"]), result, as_json=as_json)
    if result["state"] == "stopped":
        leave(EXIT_STOPPED)


def _show_result(dataset: str, result: Mapping[str, Any], *, as_json: bool) -> None:
    losses = result["loss"]
    if losses and not as_json:
        # A list with one loss per epoch: its range would hide whether the loss fell or rose.
        result = {**result, "loss": f"{readable('loss', losses[0])} at first, {readable('loss', losses[-1])} at last"}
    show(result, as_json=as_json, title=f"run {result['run']} of {dataset}", hide=_LARGE)
