"""`gnnloom propagate`: powers of the adjacency times the features, computed once and stored."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click
from click.core import ParameterSource

from gnnloom.storage.format.artifact import WORK
from gnnloom.trainer.comm.transports.registry import LaunchedRank
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.job.launch import prepare_propagation
from gnnloom.trainer.job.ranks import ranks_of_job
from gnnloom.workflows.api.propagate import propagate_options, settled_propagation
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import add_options, current_catalog, flag_option, json_option
from gnnloom.workflows.cli.terminal.output import show
from gnnloom.workflows.cli.terminal.progress import shown_count

#: The main figures, shown unless all figures are requested.
_BRIEF = (
    "of", "steps", "normalization", "ppr", "ranks", "columns", "columns_at_a_time", "reused", "seconds",
    "command_seconds", "peak_memory", "bytes_written",
)  # fmt: skip


@click.command("propagate", cls=GroupedCommand)
@click.argument("name")
@add_options(propagate_options().values())
@flag_option("plan", "Only print the requirements: memory per rank, passes and disk space.")
@json_option
def propagate_command(name: str, plan: bool, **options: Any) -> None:
    """Compute and store A X, A^2 X, ... A^K X for dataset NAME: A is the normalized adjacency, X the features.

    Each rank reads its row shards (`gnnloom shard`) and multiplies the number of feature columns at once that fits in
    its memory. The whole matrix of features is never in memory. To continue after an interruption, run the same command
    again. If the result is already stored, the command reports it. The command starts its ranks on this machine; in an
    MPI job (mpirun -n 4 gnnloom propagate NAME), the processes of the job are the ranks.

    \b
    Example:
      gnnloom propagate web --steps 3
      gnnloom propagate web --steps 10 --ppr 0.1 --normalization symmetric --ranks 4
      gnnloom propagate web --steps 3 --memory 3G --plan
    """
    source = click.get_current_context().get_parameter_source
    given = {key: value for key, value in options.items() if source(key) is not ParameterSource.DEFAULT}
    if plan:
        # The ranks need no agreement, so one rank acts for all.
        launched = LaunchedRank.from_environment()
        if launched.rank == 0:
            dataset, given = current_catalog()[name], {"ranks": launched.size, **given}
            config = PropagateConfig.of(catalog=str(dataset.path.parent), dataset=dataset.name, **given)
            path, planned = prepare_propagation(config)
            content = {"dataset": name, "key": path.name, "steps": config.steps, "ranks": config.ranks}
            show(content | planned.described(), title=f"plan: propagated {config.matrix} of {name}")
        return
    with ranks_of_job("gnnloom propagate", exits=True, trains=True) as ranks:
        dataset = ranks.agree(lambda: current_catalog()[name])
        config = settled_propagation(ranks, dataset, given)
        # The ranks of a job log their progress.
        with nullcontext() if ranks.comm is not None else _shown_columns(config):
            result = ranks.propagate(config)
        if ranks.is_first:
            title = f"propagated {result['of']} of {name}"
            show(result, title=title, hide=("state",), brief=_BRIEF)


def _shown_columns(config: PropagateConfig) -> AbstractContextManager[None]:
    """Check a propagation before ranks are started, and show its finished columns inside the block."""
    path, planned = prepare_propagation(config)
    # Each finished block of columns leaves a record.
    records = path / WORK / "records"
    return shown_count(lambda: len(list(records.glob("[!.]*.json"))), planned.memory.num_blocks, "column block")
