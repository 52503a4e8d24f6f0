"""`gnnloom run`: a recipe, from raw data to predictions."""

from __future__ import annotations

import logging
import signal
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click

from gnnloom.pipeline.tasks.cluster import open_cluster
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.job.exit_codes import EXIT_STOPPED
from gnnloom.workflows.cli.options import current_catalog, json_option, performance_report_option
from gnnloom.workflows.cli.output import show, show_rows
from gnnloom.workflows.cli.progress import shown_epochs, shown_progress
from gnnloom.workflows.recipe.stages import STAGES, Job, Plan, Request
from gnnloom.workflows.run.local import prepare, summary, train_here
from gnnloom.workflows.run.mpi_launcher import Launched


@click.command("run")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--set", "settings", metavar="SECTION.KEY=VALUE", multiple=True, help="Win over the recipe; repeatable.")
@click.option("--until", type=click.Choice(STAGES), help="Stop after this stage.")
@click.option("--from", "first", type=click.Choice(STAGES), help="Begin at this stage; those before must be done.")
@click.option("--dry-run", is_flag=True, help="Only show which stages are done and which would run.")
@click.option(
    "--cluster",
    default="local",
    show_default=True,
    metavar="local|mpi|ADDRESS|FILE",
    help="Where the stages before training run: processes here, the ranks of this MPI job, or a Dask scheduler.",
)
@performance_report_option
@click.option("--emit", type=click.Choice(("slurm",)), help="Write batch scripts for the recipe, and run nothing.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path(), help="Folder for --emit.  [default: .]"
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
    """Run RECIPE, a file or the name of one that comes with gnnloom, from raw data to predictions.

    Stages that are done are found by what made them and skipped; stop it at any time and run it again to go on.

    \b
    Example:
      gnnloom run quick-start
      gnnloom run my.toml --set train.epochs=200 --dry-run
      gnnloom run my.toml --until shards
      mpirun -n 4 gnnloom run quick-start --cluster mpi
      gnnloom run my.toml --emit slurm --out jobs
    """
    if emit and (dry_run or until or first):
        raise click.UsageError("--emit runs nothing: leave --dry-run, --from and --until out")
    launched = Launched.here()
    launched.check_cluster(cluster)
    _log_stages()
    request = Request(recipe, current_catalog().root, settings, cluster, first, until, performance_report)
    if launched.rank > 0 and (emit or dry_run):
        return  # the first rank speaks for all
    if emit:
        _emit(request, out, as_json=as_json)
    elif dry_run:
        _show_plan(request.open().plan, as_json=as_json)
    elif cluster == "mpi":
        _run_in_mpi(request, as_json=as_json)
    else:
        _run_here(request, as_json=as_json)


def _run_here(request: Request, *, as_json: bool) -> None:
    """Run with this process as the client of the cluster, and new ranks that train."""
    job = request.open()
    if job.plan.prepares:
        with open_cluster(job.cluster) as opened, shown_progress():
            prepare(job.recipe, job.plan, opened)
    with _shown_training(job):
        train_here(job.recipe, job.plan)
    _show_result(job, as_json=as_json)


def _shown_training(job: Job) -> AbstractContextManager[None]:
    """Progress of the training, if there is one to come."""
    config = job.plan.config
    trains = any(step.stage == "train" and not step.is_done for step in job.plan.steps)
    path = Path(config.catalog) / config.dataset / "runs" / config.run_name
    return shown_epochs(Run(path), config.epochs) if trains else nullcontext()


def _log_stages() -> None:
    """Say when stages begin and end, and what the training says, even if nothing else is to be logged."""
    for module in ("workflows", "trainer"):
        logging.getLogger(f"gnnloom.{module}").setLevel(logging.INFO)


def _emit(request: Request, out: Path, *, as_json: bool) -> None:
    from gnnloom.workflows.run.slurm import write_scripts

    paths = [str(path) for path in write_scripts(request, out)]
    if as_json:
        show({"scripts": paths}, as_json=True, title="")
    else:
        show_rows(("script",), [(path,) for path in paths])


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    rows = [{"stage": step.stage, "key": step.key, "done": step.is_done} for step in plan.steps]
    if as_json:
        show({"stages": rows}, as_json=True, title="")
    else:
        table = [(step.stage, "done" if step.is_done else "would run", step.key) for step in plan.steps]
        show_rows(("stage", "state", "key"), table)


def _show_result(job: Job, *, as_json: bool) -> None:
    title = f"{Path(job.recipe.source_name).name} on {job.recipe.dataset.name}"
    show(summary(job.recipe, job.plan), as_json=as_json, title=title, hide=("bytes_between",))


def _run_in_mpi(request: Request, *, as_json: bool) -> None:
    """Run as one rank of an MPI job; the first shows the result."""
    from gnnloom.workflows.run.mpi import end_job_on_error, leave, run_on_ranks

    # The launcher ends all ranks; one that closed what it has open would wait for others that are gone.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with end_job_on_error():
        done = run_on_ranks(request, shown_progress)
        if done.shows and done.is_finished:
            _show_result(done.job, as_json=as_json)
    if not done.is_finished:
        leave(EXIT_STOPPED)
