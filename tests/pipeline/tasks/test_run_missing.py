"""A stage that is started again runs the tasks that left no usable record, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from gnnloom.pipeline.tasks.cluster import Cluster, InProcessCluster, ThreadedCluster
from gnnloom.pipeline.tasks.progress import PROGRESS, Done, Progress
from gnnloom.pipeline.tasks.run_missing import missing_tasks, run_all, run_missing
from gnnloom.storage.errors import FormatError, InputError
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class CountTask:
    """Records its number."""

    writer: ArtifactWriter
    number: int

    @property
    def name(self) -> str:
        return f"count/{self.number:05d}"


def count(task: CountTask) -> Done:
    with task.writer.task(task.name) as output:
        output.facts = {"number": task.number}
    return Done(task.number)


class NotingCluster(InProcessCluster):
    """Notes the items that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[object] = []

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        self.items += items
        return super().map(function, items)


@pytest.fixture
def writer(tmp_path: Path) -> ArtifactWriter:
    return ArtifactWriter(tmp_path / "artifact", "graph", "0123")


@pytest.fixture
def tasks(writer: ArtifactWriter) -> list[CountTask]:
    return [CountTask(writer, number) for number in range(5)]


def numbers(records: Sequence[TaskRecord]) -> list[int]:
    return [record.facts["number"] for record in records]


@pytest.mark.parametrize("cluster", [InProcessCluster(), ThreadedCluster(3, 1 << 30)])
def test_records_come_in_the_order_of_the_tasks(
    writer: ArtifactWriter, tasks: list[CountTask], cluster: Cluster
) -> None:
    assert numbers(run_missing("count", cluster, writer, count, tasks[::-1])) == [4, 3, 2, 1, 0]


def test_recorded_tasks_do_not_run_again(writer: ArtifactWriter, tasks: list[CountTask]) -> None:
    count(tasks[1])
    count(tasks[3])
    cluster = NotingCluster()
    records = run_missing("count", cluster, writer, count, tasks)
    assert cluster.items == [tasks[0], tasks[2], tasks[4]]
    assert numbers(records) == [0, 1, 2, 3, 4]
    again = NotingCluster()
    assert numbers(run_missing("count", again, writer, count, tasks)) == [0, 1, 2, 3, 4]
    assert again.items == []


def test_a_record_that_no_longer_holds_is_made_again(writer: ArtifactWriter, tasks: list[CountTask]) -> None:
    for task in tasks:
        count(task)
    cluster = NotingCluster()

    def is_usable(task: CountTask, record: TaskRecord) -> bool:
        assert record.task == task.name
        return task.number != 2

    run_missing("count", cluster, writer, count, tasks, is_usable=is_usable)
    assert cluster.items == [tasks[2]]
    assert missing_tasks(writer, tasks, is_usable=is_usable) == [tasks[2]]
    assert missing_tasks(writer, tasks) == []


@pytest.mark.parametrize("facts", [{}, {"another": 1}])
def test_a_record_with_other_facts_is_one_error(
    writer: ArtifactWriter, tasks: list[CountTask], facts: dict[str, int]
) -> None:
    with writer.task(tasks[0].name) as output:
        output.facts = facts
    records = run_missing("count", InProcessCluster(), writer, count, tasks)
    with pytest.raises(FormatError, match=r"count/00000 has no number: .* run the command again"):
        sum(record.facts["number"] for record in records)


def test_every_missing_task_is_prepared_before_the_first_one_runs(
    writer: ArtifactWriter, tasks: list[CountTask]
) -> None:
    count(tasks[0])
    events: list[str] = []

    def run(task: CountTask) -> Done:
        events.append(f"run {task.number}")
        return count(task)

    run_missing(
        "count",
        InProcessCluster(),
        writer,
        run,
        tasks[:3],
        prepare=lambda task: events.append(f"prepare {task.number}"),
    )
    assert events == ["prepare 1", "prepare 2", "run 1", "run 2"]


def test_tasks_that_finished_before_a_failure_are_kept(writer: ArtifactWriter, tasks: list[CountTask]) -> None:
    def fail_at_two(task: CountTask) -> Done:
        if task.number == 2:
            raise InputError("two")
        return count(task)

    with pytest.raises(InputError, match="two"):
        run_missing("count", InProcessCluster(), writer, fail_at_two, tasks)
    assert missing_tasks(writer, tasks) == tasks[2:]
    assert numbers(run_missing("count", InProcessCluster(), writer, count, tasks)) == [0, 1, 2, 3, 4]


def test_a_task_that_leaves_no_record_is_an_error(writer: ArtifactWriter, tasks: list[CountTask]) -> None:
    with pytest.raises(KeyError, match="count/00000"):
        run_missing("count", InProcessCluster(), writer, lambda task: Done(task.number), tasks)


def test_records_of_other_phases_are_left_alone(writer: ArtifactWriter, tasks: list[CountTask]) -> None:
    with writer.task("other/00000") as output:
        output.facts = {"number": 9}
    assert numbers(run_missing("count", InProcessCluster(), writer, count, tasks)) == [0, 1, 2, 3, 4]
    assert "other/00000" in writer.recorded()


def test_progress_counts_the_missing_tasks_and_their_units(
    writer: ArtifactWriter, tasks: list[CountTask], caplog: pytest.LogCaptureFixture
) -> None:
    count(tasks[0])
    caplog.set_level("DEBUG", logger="gnnloom")
    run_missing("count", InProcessCluster(), writer, count, tasks, "numbers")
    records = [record for record in caplog.records if record.name == PROGRESS.name]
    found = [record.args[0] for record in records if isinstance(record.args, tuple) and record.args]
    states = [state for state in found if isinstance(state, Progress)]
    assert [(state.phase, state.done, state.tasks, state.count, state.unit) for state in states] == [
        ("count", done, 4, total, "numbers") for done, total in enumerate((0, 1, 3, 6, 10))
    ]


def test_tasks_without_records_all_run(writer: ArtifactWriter, tasks: list[CountTask]) -> None:
    for task in tasks:
        count(task)
    cluster = NotingCluster()
    run_all("count", cluster, count, tasks)
    assert cluster.items == tasks
