"""`gnnloom train`: start the MPI ranks on this machine, or train on the ranks of this MPI job."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource

from gnnloom.storage.option import Group, Option
from gnnloom.storage.wording import counted
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.comm.transports.registry import LaunchedRank
from gnnloom.trainer.config.continuation import Start, configure, run_of
from gnnloom.trainer.config.train_config import TrainConfig, gather_fields, other_options
from gnnloom.trainer.job.launch import prepare_launch
from gnnloom.trainer.job.ranks import ranks_of_job, settled, with_choices
from gnnloom.trainer.modes.registry import MODES
from gnnloom.trainer.tasks.registry import TASKS
from gnnloom.workflows.api.options.train_options import train_options
from gnnloom.workflows.cli.runs.training_result import show_training
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import add_options, current_catalog, flag_option, json_option, split_run
from gnnloom.workflows.cli.terminal.output import show, wants_json
from gnnloom.workflows.cli.terminal.progress import shown_epochs
from gnnloom.workflows.cli.terminal.screen import say


def _options() -> list[Option]:
    """The options of the command; options of other packages' algorithms are passed on only if given."""
    others = {
        name: replace(option, default=None, default_text=option.shown(option.default))
        for name, option in other_options().items()
    }
    return list((train_options() | others).values())


def _epilog() -> str:
    """Return the algorithms, the modes and the tasks, and what they do, for the end of the help."""
    algorithms = [f"  {kind.name:12}{kind.help}" for kind in ALGORITHMS.values()]
    modes = [f"  {kind.name:12}{kind.help}" for kind in MODES.values()]
    tasks = [f"  {kind.name:12}{kind.help}" for kind in TASKS.values()]
    return "\n".join(["\b", "Algorithms:", *algorithms, "", "\b", "Modes:", *modes, "", "\b", "Tasks:", *tasks])


@click.command("train", cls=GroupedCommand, epilog=_epilog())
@click.argument("name", metavar="NAME[/RUN]")
# The configuration refuses values out of range, because the ranks' own command line has the same options.
@add_options(_options(), checks=False)
@flag_option("restart", "Start the run over instead of continuing it.", Group.CHECKPOINTS)
@flag_option("plan", "Only print the requirements: memory per rank, disk, traffic and time.")
@json_option
def train_command(name: str, restart: bool, plan: bool, **options: Any) -> None:
    """Train on the whole graph of dataset NAME, or on samples of it.

    The same command again continues a run from its last checkpoint, or reports the result of one that has finished.
    If the run exists, options that are not given keep its values: NAME/RUN alone continues any run.

    The ranks are new processes of this machine, or the ranks of the MPI job: mpirun -n 4 gnnloom train NAME.

    \b
    Example:
      gnnloom train web --ranks 4 --hidden 128,128 --epochs 100 --dropout 0.5
      gnnloom train web --ranks 4 --algorithm tensor3d --grid 2x1x2
      gnnloom train cora/kipf --hidden 16 --dropout 0.5 --weight-decay 5e-4
      gnnloom train cora/kipf --epochs 300
    """
    dataset, run = split_run(name, options["run"])
    # Options that are not given may come from the run.
    source = click.get_current_context().get_parameter_source
    given = {name: value for name, value in options.items() if source(name) is not ParameterSource.DEFAULT}
    given = gather_fields(given) | {"catalog": str(current_catalog().root), "dataset": dataset}
    if run is not None:
        given["run"] = run
    if plan:
        # The ranks need no agreement, so one rank acts for all.
        launched = LaunchedRank.from_environment()
        if launched.rank == 0:
            given = with_choices(given, launched.size, restart=restart)
            show_train_plan(configure(given, restart=restart), restart=restart)
        return
    with ranks_of_job("gnnloom train", exits=True, trains=True) as ranks:
        config = settled(ranks, given, restart=restart)
        if config.mode.reverse:
            # This imports the pipeline, which other training runs need not load.
            from gnnloom.workflows.api.train import store_reverses

            store_reverses(ranks, config)
        is_finished = ranks.comm is None and _say_start(config, restart=restart).is_finished
        is_shown = ranks.is_first and not is_finished
        with shown_epochs(run_of(config), config.optimization.epochs) if is_shown else nullcontext():
            result = ranks.train(config, restart=restart)
        if ranks.is_first:
            show_training(result, TASKS.get(config.task.name), title=f"run {result['run']} of {dataset}")


def _say_start(config: TrainConfig, *, restart: bool) -> Start:
    """Check a training run before ranks are started; returns the state of the existing run."""
    _, start = prepare_launch(config, restart=restart)
    run, epochs = config.run_name, config.optimization.epochs
    if start.is_finished:
        say(f"run {run} has finished {counted(epochs, 'epoch')} already; this is its result", on_stderr=True)
    elif start.first_epoch:
        say(f"run {run}: continuing at epoch {start.first_epoch + 1} of {epochs}", on_stderr=True)
    return start


def show_train_plan(config: TrainConfig, *, restart: bool) -> None:
    """Print the projected needs of a training run.

    Raises:
        NotFoundError: the dataset or its shards do not exist.
        ExistsError, InputError: the training run would be refused.
    """
    from gnnloom.trainer.planner.forecast import with_planned_seconds
    from gnnloom.trainer.training.rehearsal.projection import project_training

    projection, note = with_planned_seconds(project_training(config, restart=restart), config)
    title = f"plan: run {projection.run} of {projection.dataset}"
    show(projection.to_json(), title=title)
    if note and not wants_json():
        say(note)
