"""`gnnloom run`: a recipe, from raw data to predictions."""

from __future__ import annotations

import logging
import signal
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click

from gnnloom.storage.runs.run import Run
from gnnloom.trainer.job.exit_codes import EXIT_STOPPED
from gnnloom.workflows.cli.options import current_catalog, json_option, performance_report_option
from gnnloom.workflows.cli.output import show, show_rows
from gnnloom.workflows.cli.progress import shown_epochs, shown_progress
from gnnloom.workflows.recipe.request import Assignment, Request
from gnnloom.workflows.recipe.stages import STAGES, Workload
from gnnloom.workflows.run.local import prepare_here, train_here
from gnnloom.workflows.run.mpi_launcher import LaunchedRank
from gnnloom.workflows.run.stages import summary


@click.command("run")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option(
    "--set",
    "settings",
    metavar="SECTION.KEY=VALUE",
    multiple=True,
    help="Override a value from the recipe. Repeatable.",
)
@click.option("--until", type=click.Choice(STAGES), help="Stop after this stage.")
@click.option(
    "--from", "first", type=click.Choice(STAGES), help="Begin at this stage; the stages before it must be done."
)
@click.option("--dry-run", is_flag=True, help="Show which stages are done and which would run, and exit.")
@click.option(
    "--cluster",
    default="local",
    show_default=True,
    metavar="local|mpi|ADDRESS|FILE",
    help="Where to run the stages before training: local processes, the ranks of this MPI job, or a Dask scheduler.",
)
@performance_report_option
@click.option("--emit", type=click.Choice(("slurm",)), help="Write batch scripts for the recipe, and exit.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Folder of the scripts that --emit writes.  [default: .]",
)
@json_option
def run_command(
    recipe: Path,
    settings: tuple[str, ...],
    until: str | None,
    first: str | None,
    dry_run: bool,
    cluster: str,
    performance_report: Path | None,
    emit: str | None,
    out: Path,
    as_json: bool,
) -> None:
    """Run RECIPE from raw data to predictions.

    RECIPE is a file, or the name of a recipe that comes with gnnloom. Stages that are done already are skipped. The
    command can be stopped at any time; run it again to continue.

    \b
    Example:
      gnnloom run quick-start
      gnnloom run my.toml --set train.epochs=200 --dry-run
      gnnloom run my.toml --until shards
      mpirun -n 4 gnnloom run quick-start --cluster mpi
      gnnloom run my.toml --emit slurm --out jobs
    """
    if emit and (dry_run or until or first):
        raise click.UsageError("--emit runs no stage: remove --dry-run, --from and --until")
    launched = LaunchedRank.from_environment()
    launched.check_cluster(cluster)
    _log_stages()
    request = Request(recipe, current_catalog().root, settings, cluster, first, until, performance_report)
    # Without MPI these ranks cannot agree on anything, so only one of them acts.
    if launched.rank > 0 and (emit or dry_run):
        return  # rank 0 prints for all
    if emit:
        _emit(request, out, as_json=as_json)
    elif dry_run:
        _show_workload(request.check().workload, as_json=as_json)
    elif cluster == "mpi":
        _run_in_mpi(request, as_json=as_json)
    else:
        _run_here(request, as_json=as_json)


def _run_here(request: Request, *, as_json: bool) -> None:
    """Run with this process as the client of the cluster, and train on new ranks."""
    assignment = request.check()
    with shown_progress():
        prepare_here(assignment)
    with _shown_training(assignment.workload):
        train_here(assignment)
    _show_result(assignment, as_json=as_json)


def _shown_training(workload: Workload) -> AbstractContextManager[None]:
    """Show the progress of the training, if it is still to run."""
    config = workload.config
    trains = any(stage.name == "train" and not stage.is_done for stage in workload.stages)
    path = Path(config.catalog) / config.dataset / "runs" / config.run_name
    return shown_epochs(Run(path), config.epochs) if trains else nullcontext()


def _log_stages() -> None:
    """Log the beginning and end of stages, and the training's lines, even without --verbose."""
    for module in ("workflows", "trainer"):
        logging.getLogger(f"gnnloom.{module}").setLevel(logging.INFO)


def _emit(request: Request, out: Path, *, as_json: bool) -> None:
    from gnnloom.workflows.run.slurm import write_scripts

    paths = [str(path) for path in write_scripts(request, out)]
    if as_json:
        show({"scripts": paths}, as_json=True, title="")
    else:
        show_rows(("script",), [(path,) for path in paths])


def _show_workload(workload: Workload, *, as_json: bool) -> None:
    rows = [{"stage": stage.name, "key": stage.key, "done": stage.is_done} for stage in workload.stages]
    if as_json:
        show({"stages": rows}, as_json=True, title="")
    else:
        table = [(stage.name, "done" if stage.is_done else "would run", stage.key) for stage in workload.stages]
        show_rows(("stage", "state", "key"), table)


def _show_result(assignment: Assignment, *, as_json: bool) -> None:
    recipe = assignment.recipe
    title = f"{Path(recipe.source_name).name} on {recipe.dataset.name}"
    show(summary(assignment), as_json=as_json, title=title, hide=("bytes_between",))


def _run_in_mpi(request: Request, *, as_json: bool) -> None:
    """Run as one rank of an MPI job; rank 0 shows the result."""
    # This import starts MPI, which only the ranks of a job may do.
    from gnnloom.workflows.run.mpi import end_job_on_error, leave, run_on_ranks

    # The launcher ends all ranks at once: closing connections would mean waiting for ranks that are gone.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with end_job_on_error():
        outcome = run_on_ranks(request, shown_progress)
        if outcome.is_leader and outcome.is_finished:
            _show_result(outcome.assignment, as_json=as_json)
    if not outcome.is_finished:
        leave(EXIT_STOPPED)
