"""`gnnloom run --plan`: the needs of the stages of a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnnloom.pipeline.tasks.phase import PhaseCount, client_bytes
from gnnloom.storage.catalog import Catalog
from gnnloom.storage.differences import differences
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.wording import counted
from gnnloom.workflows.cli.terminal.output import show_groups, show_json, show_rows
from gnnloom.workflows.cli.terminal.screen import say
from gnnloom.workflows.formatting import readable
from gnnloom.workflows.recipe.plan.projections import project_stages
from gnnloom.workflows.recipe.recipe import Recipe
from gnnloom.workflows.recipe.stages.all_stages import RecipeStages
from gnnloom.workflows.recipe.stages.stage import Projection, RankCount, StageNeeds


def show_recipe_plan(requested: RecipeStages) -> None:
    """Print the needs of each stage, and the work of its tasks and ranks.

    Raises:
        InputError: the source cannot be read.
        BudgetError: the ingest does not fit in memory or on the disk.
    """
    projections = project_stages(requested)
    others = other_graphs(requested.found.recipe, requested.found.keys["graph"])
    if show_json({"stages": [projection.to_json() for projection in projections], "warnings": others}):
        return
    columns = ("stage", "state", "memory", "disk", "scratch", "processor time")
    show_rows(columns, [_row(each) for each in projections])
    for each in projections:
        if notes := list(_notes(each.needs)):
            say(f"{each.stage.name}: {'; '.join(notes)}")
    planned = [each for each in projections if each.needs.phases]
    groups = {each.stage.name: [_work(phase) for phase in each.needs.phases] for each in planned}
    if groups:
        say()
        show_groups(
            ("phase", "tasks", "opened", "most", "read", "most", "written"),
            groups,
            "files opened, bytes read and written in each phase, and the most by one task",
        )
    for each in projections:
        if each.needs.rank is not None:
            _show_rank(each.needs.rank)
    for sentence in others:
        say(f"note: {sentence}", on_stderr=True)


def _row(projection: Projection) -> Sequence[str]:
    stage, needs = projection.stage, projection.needs
    return (
        stage.name,
        "done" if stage.is_done else "would run",
        readable("memory_bytes", needs.memory),
        readable("disk_bytes", needs.disk),
        readable("scratch_bytes", needs.scratch),
        readable("seconds", needs.seconds),
    )


def _notes(needs: StageNeeds) -> Iterator[str]:
    """Notes on the assumptions of the figures, and on memory outside the workers."""
    if needs.note:
        yield needs.note
    if needs.phases:
        yield f"the client holds {readable('bytes', client_bytes(needs.phases))} for the tasks"


def _work(phase: PhaseCount) -> Sequence[str]:
    return (
        phase.phase if phase.repeats == 1 else f"{phase.phase}, {counted(phase.repeats, 'time')}",
        f"{phase.tasks:,}",
        f"{phase.opens:,}",
        f"{phase.most_opens:,}",
        readable("bytes", phase.bytes_read),
        readable("bytes", phase.largest_task),
        readable("bytes", phase.bytes_written),
    )


def _show_rank(rank: RankCount) -> None:
    if rank.messages is None:
        traffic = ("unknown", "unknown")
    else:
        traffic = (f"{rank.messages:,.0f}", readable("bytes", rank.bytes_sent))
    show_rows(
        ("ranks", "read", "in memory", "manifests", "messages", "sent"),
        [
            (
                f"{rank.ranks:,}",
                readable("bytes", rank.bytes_read),
                readable("bytes", rank.bytes_held),
                readable("bytes", rank.metadata),
                *traffic,
            )
        ],
        "what each rank of the training reads and sends (messages and bytes of an epoch)",
    )


def other_graphs(recipe: Recipe, key: str) -> list[str]:
    """Return a sentence about every other graph of the recipe's dataset: how it differs, and how to choose one.

    Args:
        key: key of the graph that the recipe makes or finds.
    """
    try:
        dataset = Catalog(recipe.catalog)[recipe.dataset.name]
    except NotFoundError:
        return []
    section = recipe.dataset
    if recipe.relations:
        wanted = recipe.tables().parameters(section.options(), section.typed_options())
    else:
        wanted = section.options().parameters(recipe.source.open(undirected=section.undirected))
    found = []
    for info in dataset.ingested_graphs():
        if info.key == key or info.state != "complete":
            continue
        then, today = differences([Artifact(dataset.path / "graph" / info.key).parameters, wanted])
        differs = ", ".join(f"{name}={value} (now {today[name]})" for name, value in then.items())
        found.append(
            f"dataset {dataset.name} has another graph, {info.key}, made with {differs}; this recipe uses graph {key},"
            " and both are kept; choose one with `--graph KEY`"
        )
    return found
