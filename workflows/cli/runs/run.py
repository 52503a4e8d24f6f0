"""`gnnloom run`: a recipe, from raw data to predictions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, Option, options_of
from gnnloom.trainer.comm.transports.registry import LaunchedRank
from gnnloom.workflows.cli.terminal.help import GroupedCommand
from gnnloom.workflows.cli.terminal.options import FOLDER, click_option, current_catalog, flag_option, json_option
from gnnloom.workflows.cli.terminal.output import show as show_object
from gnnloom.workflows.cli.terminal.output import show_json, show_rows
from gnnloom.workflows.cli.terminal.screen import say
from gnnloom.workflows.recipe.bundled import bundled_recipes, find_bundled, summary_of
from gnnloom.workflows.recipe.stages import STAGE_NAMES

if TYPE_CHECKING:
    from gnnloom.workflows.recipe.request import RecipeRequest
    from gnnloom.workflows.recipe.stages.all_stages import RecipeStages
    from gnnloom.workflows.recipe.stages.stage import Stage


@click.command("run", cls=GroupedCommand)
@click.argument("recipe", type=click.Path(path_type=Path), required=False)
@click_option(
    Option(
        "set",
        str,
        "Override a value from the recipe. Repeatable.",
        group=Group.INPUT,
        is_common=True,
        metavar="SECTION.KEY=VALUE",
    ),
    "settings",
    multiple=True,
)
@click_option(Option("until", str, "Stop after this stage.", group=Group.STAGES, choices=STAGE_NAMES))
@click_option(
    Option(
        "from", str, "Begin at this stage; the stages before it must be done.", group=Group.STAGES, choices=STAGE_NAMES
    ),
    "first",
)
@flag_option("restart", "Start the training over instead of continuing it; earlier stages are kept.", Group.STAGES)
@flag_option("dry_run", "Show which stages are done and which would run, and exit.", Group.STAGES)
@flag_option("plan", "Show the needs of unfinished stages, and exit.", Group.STAGES)
@click_option(Option("list", bool, "List the recipes that come with gnnloom, and exit.", group=Group.INPUT), "listed")
@click_option(
    Option("show", str, "Print a recipe that comes with gnnloom, and exit.", group=Group.INPUT, metavar="NAME")
)
@click_option(
    Option(
        "new",
        Path,
        "Write a new recipe with every key and its default, and exit.",
        group=Group.INPUT,
        metavar="FILE.toml",
    )
)
@click_option(
    Option(
        "cluster",
        str,
        "Where to run the stages before training: local processes, the ranks of this MPI job, or a Dask scheduler.",
        "local",
        group=Group.EXECUTION,
        metavar="local|mpi|ADDRESS|FILE",
    )
)
@click_option(options_of(ClusterOptions)["performance_report"])
@click_option(
    Option("emit", str, "Write batch scripts for the recipe, and exit.", group=Group.OUTPUT, choices=("slurm",))
)
@click_option(
    Option("out", Path, "Folder of the scripts that --emit writes.", Path(), group=Group.OUTPUT, metavar=FOLDER)
)
@json_option
def run_command(
    recipe: Path | None,
    settings: tuple[str, ...],
    until: str | None,
    first: str | None,
    restart: bool,
    dry_run: bool,
    plan: bool,
    listed: bool,
    show: str | None,
    new: Path | None,
    cluster: str,
    performance_report: Path | None,
    emit: str | None,
    out: Path,
) -> None:
    """Run RECIPE from raw data to predictions.

    RECIPE is a file, or the name of a recipe that comes with gnnloom. Stages that are done already are skipped. The
    command can be stopped at any time; run it again to continue.

    \b
    Example:
      gnnloom run quick-start
      gnnloom run my.toml --set train.epochs=200 --dry-run
      gnnloom run my.toml --until shards
      gnnloom run my.toml --set train.lr=0.1 --restart
      gnnloom run --new my.toml
      mpirun -n 4 gnnloom run quick-start --cluster mpi
      gnnloom run my.toml --emit slurm --out jobs
    """
    launched = LaunchedRank.from_environment()
    if listed or show is not None or new is not None:
        if sum((recipe is not None, listed, show is not None, new is not None)) > 1:
            raise click.UsageError("give only one of RECIPE, --list, --show and --new")
        _show_files(show, new)
        return
    if recipe is None:
        raise click.UsageError("missing argument RECIPE: a file, or a name that `gnnloom run --list` shows")
    if emit and (dry_run or plan or until or first or restart):
        raise click.UsageError("--emit runs no stage: remove --dry-run, --plan, --from, --until and --restart")
    # Without MPI these ranks cannot agree on anything, so only one rank acts.
    if launched.rank > 0 and (emit or dry_run or plan or cluster != "mpi"):
        return  # rank 0 prints for all
    if launched.size > 1 and cluster != "mpi":
        raise InputError(f"this is one of {launched.size} ranks of an MPI job: add --cluster mpi")
    from gnnloom.workflows.recipe.request import RecipeRequest

    # The beginning and the end of stages, and the training's lines, even without --verbose.
    for module in ("workflows", "trainer"):
        logging.getLogger(f"gnnloom.{module}").setLevel(logging.INFO)
    request = RecipeRequest(
        recipe, current_catalog().root, settings, cluster, first, until, performance_report, restart
    )
    if emit:
        _emit(request, out)
    elif plan:
        # Imported here, because it loads the planning code of every stage.
        from gnnloom.workflows.cli.runs.recipe_plan import show_recipe_plan

        show_recipe_plan(request.check())
    elif dry_run:
        _show_stages(request.check().stages)
    else:
        from gnnloom.trainer.job.ranks import ranks_of_job
        from gnnloom.workflows.cli.terminal.progress import shown_epochs, shown_progress
        from gnnloom.workflows.recipe.stages.stage import Display
        from gnnloom.workflows.run.run_recipe import run_recipe

        with ranks_of_job("gnnloom run", exits=True, trains=True, is_rank=cluster == "mpi") as ranks:
            requested = run_recipe(request, ranks, Display(shown_progress, shown_epochs))
            if ranks.is_first:
                _show_result(requested)


def _show_files(name: str | None, new: Path | None) -> None:
    """List the recipes that come with gnnloom, print one, or write a new one; in an MPI job, one rank does so."""
    if LaunchedRank.from_environment().rank > 0:
        return
    if new is not None:
        from gnnloom.workflows.recipe.reference import write_new_recipe

        write_new_recipe(new)
        show_object({"recipe": str(new)}, title="new recipe")
    elif name is not None:
        text = find_bundled(name).read_text(encoding="utf-8")
        if not show_json({"recipe": name, "text": text}):
            say(text.rstrip("\n"))
    else:
        rows = [(path.stem, summary_of(path)) for path in bundled_recipes()]
        if not show_json({"recipes": [{"recipe": stem, "summary": line} for stem, line in rows]}):
            show_rows(("recipe", "summary"), rows)


def _emit(request: RecipeRequest, out: Path) -> None:
    from gnnloom.workflows.run.slurm import write_jobs

    jobs = write_jobs(request, out)
    paths = [str(path) for path in jobs.scripts]
    if not show_json({"scripts": paths, "recipe": str(jobs.recipe)}):
        show_rows(("script",), [(path,) for path in paths])


def _show_result(requested: RecipeStages) -> None:
    """Print the result of the recipe, for a recipe that trains as the table of `gnnloom train`."""
    from gnnloom.trainer.tasks.registry import TASKS
    from gnnloom.workflows.cli.runs.training_result import show_training
    from gnnloom.workflows.run.run_recipe import summary

    recipe, result = requested.found.recipe, summary(requested)
    title = f"{Path(recipe.source_name).name} on {recipe.dataset.name}"
    if "run" in result:
        show_training(result, TASKS.get(requested.found.config.task.name), title=title)
    else:
        show_object(result, title=title)


def _show_stages(stages: Sequence[Stage]) -> None:
    if not show_json({"stages": [{"stage": each.name, "key": each.key, "done": each.is_done} for each in stages]}):
        table = [(each.name, "done" if each.is_done else "would run", each.key) for each in stages]
        show_rows(("stage", "state", "key"), table)
