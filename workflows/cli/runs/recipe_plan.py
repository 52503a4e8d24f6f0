"""`gnnloom run --plan`: what the stages of a recipe will need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from gnnloom.pipeline.tasks.phase_counts import PhaseCount, client_bytes
from gnnloom.workflows.cli.terminal.output import readable, show, show_groups, show_rows
from gnnloom.workflows.recipe.plan.projection import Projection, project_recipe
from gnnloom.workflows.recipe.plan.rank_counts import RankCount
from gnnloom.workflows.recipe.request import Assignment
from gnnloom.workflows.recipe.second_graph import other_graphs


def show_recipe_plan(assignment: Assignment, *, as_json: bool) -> None:
    """Print what each stage will need, and what its tasks and ranks will do.

    Raises:
        InputError: the source cannot be read.
        BudgetError: the ingest does not fit the memory or the disk.
    """
    projections = project_recipe(assignment)
    others = other_graphs(assignment.recipe, assignment.workload.all_keys["graph"])
    if as_json:
        stages = [projection.to_json() for projection in projections]
        show({"stages": stages, "warnings": others}, as_json=True, title="")
        return
    columns = ("stage", "state", "memory", "disk", "scratch", "processor time")
    show_rows(columns, [_needs(each) for each in projections])
    for each in projections:
        if each.note or each.phases:
            click.echo(f"{each.stage}: {'; '.join(_notes(each))}")
    groups = {each.stage: [_work(phase) for phase in each.phases] for each in projections if each.phases}
    if groups:
        click.echo()
        show_groups(
            ("phase", "tasks", "opened", "most", "read", "most", "written"),
            groups,
            "files opened, bytes read and written in each phase, and the most by one task",
        )
    for each in projections:
        if each.rank is not None:
            _show_rank(each.rank)
    for sentence in others:
        click.echo(f"note: {sentence}", err=True)


def _needs(stage: Projection) -> Sequence[str]:
    return (
        stage.stage,
        "done" if stage.is_done else "would run",
        readable("memory_bytes", stage.memory),
        readable("disk_bytes", stage.disk),
        readable("scratch_bytes", stage.scratch),
        readable("seconds", stage.seconds),
    )


def _notes(stage: Projection) -> Iterator[str]:
    """What the figures assume, and the memory outside the workers."""
    if stage.note:
        yield stage.note
    if stage.phases:
        yield f"the client holds {readable('bytes', client_bytes(stage.phases))} for the tasks"


def _work(phase: PhaseCount) -> Sequence[str]:
    return (
        phase.phase if phase.repeats == 1 else f"{phase.phase}, {phase.repeats:,} times",
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
