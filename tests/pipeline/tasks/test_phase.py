"""A plan is run or counted: nothing runs twice, lost files are made again if they are needed, and only then."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import pytest

from gnnloom.pipeline.tasks.cluster import InProcessCluster, ThreadedCluster
from gnnloom.pipeline.tasks.phase import (
    Needs,
    Phase,
    PhaseCount,
    WorkFiles,
    count,
    missing_tasks,
    records_of,
    run,
    temporary_bytes,
)
from gnnloom.storage.disk.files import read_json
from gnnloom.storage.errors import FormatError, InputError
from gnnloom.storage.format import task_record
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.meters import PROGRESS, Progress
from support.stopping import StoppedError, StoppingCluster


@dataclass(frozen=True)
class Task:
    """Writes a file, and reads those of another phase."""

    writer: ArtifactWriter
    phase: str
    number: int
    reads: str = ""
    needs: Needs = field(default_factory=Needs)

    @property
    def name(self) -> str:
        return f"{self.phase}/{self.number}"


@dataclass(frozen=True, eq=False)
class Files(WorkFiles):
    """A folder with a file for each task."""

    folder: Path

    def create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def is_intact(self, record: TaskRecord) -> bool:
        return (self.folder / Path(record.task).name).exists()

    def publish(self, records: Sequence[TaskRecord]) -> None:
        (self.folder / "list").write_text(" ".join(record.task for record in records))

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def work(task: Task) -> int:
    with task.writer.task(task.name):
        if task.reads:
            listed = (task.writer.work / task.reads / "list").read_text().split()
            assert [(task.writer.work / name).read_text() for name in listed] == listed
        if (task.writer.work / task.phase).exists():
            (task.writer.work / task.name).write_text(task.name)
    return 1


@pytest.fixture
def writer(tmp_path: Path) -> ArtifactWriter:
    writer = ArtifactWriter(tmp_path, "graph", "key")
    writer.work.mkdir()
    return writer


def chain(writer: ArtifactWriter) -> list[Phase]:
    """Three tasks route, two merge, and two make arrays."""

    def phase(name: str, tasks: int, before: Phase | None, *, makes_arrays: bool = False) -> Phase:
        reads = before.name if before else ""
        made = [Task(writer, name, number, reads, Needs(number, 10, 2, 5)) for number in range(tasks)]
        files = () if makes_arrays else (Files(writer.work / name),)
        reads_files = before.files if before else ()
        return Phase(name, work, made, "tasks", reads_files, files, makes_arrays=makes_arrays)

    route = phase("route", 3, None)
    merge = phase("merge", 2, route)
    return [route, merge, phase("make", 2, merge, makes_arrays=True)]


ALL = ["route/0", "route/1", "route/2", "merge/0", "merge/1", "make/0", "make/1"]


def ran(writer: ArtifactWriter, phases: Sequence[Phase], stop: int | None = None) -> list[str]:
    """Names of the tasks that run; of at most ``stop``."""
    cluster = StoppingCluster(stop)
    if stop is None:
        assert run(phases, cluster, writer) == [name for phase in phases if phase.makes_arrays for name in names(phase)]
    else:
        with pytest.raises(StoppedError):
            run(phases, cluster, writer)
    return [name for _, name in cluster.ran]


def names(phase: Phase) -> list[str]:
    return [task.name for task in phase.tasks]


@pytest.mark.parametrize("stop", range(7))
def test_a_stopped_plan_goes_on_where_it_was(writer: ArtifactWriter, stop: int) -> None:
    assert ran(writer, chain(writer), stop) == ALL[:stop]
    assert ran(writer, chain(writer)) == ALL[stop:]
    assert ran(writer, chain(writer)) == []


def test_files_are_removed_when_their_readers_are_done(writer: ArtifactWriter) -> None:
    ran(writer, chain(writer), 5)
    assert {path.name for path in writer.work.iterdir()} >= {"merge"}
    assert not (writer.work / "route").exists()
    ran(writer, chain(writer))
    assert not (writer.work / "merge").exists()


@pytest.mark.parametrize(
    ("stop", "lost", "again"),
    [
        (2, "route/1", ["route/1", "route/2", *ALL[3:]]),
        (4, "route/1", ["route/1", "merge/1", "make/0", "make/1"]),
        (6, "merge/1", ["route/0", "route/1", "route/2", "merge/1", "make/1"]),
    ],
)
def test_lost_files_are_made_again_if_they_are_needed(
    writer: ArtifactWriter, stop: int, lost: str, again: list[str]
) -> None:
    ran(writer, chain(writer), stop)
    (writer.work / lost).unlink()
    assert ran(writer, chain(writer)) == again


def test_each_record_is_read_once(writer: ArtifactWriter) -> None:
    ran(writer, chain(writer), 2)
    again = ArtifactWriter(writer.path, writer.kind, writer.key)
    (writer.work / "route/1").unlink()
    with patch.object(task_record, "read_json", wraps=read_json) as reading:
        phases = chain(again)
        assert ran(again, phases) == ["route/1", "route/2", *ALL[3:]]
        for phase in phases:
            assert [record.task for record in records_of(phase, again)] == names(phase)
    # The one that ran again twice: its old record and the new one.
    read = sorted(Path(call.args[0]).name for call in reading.call_args_list)
    assert read == sorted(f"{name.replace('/', '-')}.json" for name in [*ALL, "route/1"])


def test_the_record_of_lost_files_is_dropped_before_they_are_made_again(writer: ArtifactWriter) -> None:
    ran(writer, chain(writer), 2)
    (writer.work / "route/1").unlink()
    ran(writer, chain(writer), 0)
    assert list(writer.recorded()) == ["route/0"]


def test_lost_files_that_nobody_needs_are_not_made_again(writer: ArtifactWriter) -> None:
    ran(writer, chain(writer))
    shutil.rmtree(writer.work / "route", ignore_errors=True)
    shutil.rmtree(writer.work / "merge", ignore_errors=True)
    assert ran(writer, chain(writer)) == []


def test_files_that_no_phase_reads_are_for_the_caller(writer: ArtifactWriter) -> None:
    phases = chain(writer)[:2]
    assert ran(writer, phases) == ALL[:5]
    assert (writer.work / "merge" / "list").read_text() == "merge/0 merge/1"
    assert ran(writer, chain(writer)[:2]) == []
    (writer.work / "merge/0").unlink()
    assert ran(writer, chain(writer)[:2]) == ["route/0", "route/1", "route/2", "merge/0"]


def test_files_that_a_phase_reads_are_kept_for_a_caller_who_asks_for_them(writer: ArtifactWriter) -> None:
    phases = chain(writer)
    run(phases, InProcessCluster(), writer, phases[0].files)
    assert (writer.work / "route" / "list").read_text() == "route/0 route/1 route/2"
    assert not (writer.work / "merge").exists()
    (writer.work / "route/1").unlink()
    phases, cluster = chain(writer), StoppingCluster()
    run(phases, cluster, writer, phases[0].files)
    assert [name for _, name in cluster.ran] == ["route/1"]


def test_a_plan_is_counted_without_running(writer: ArtifactWriter) -> None:
    phases = chain(writer)
    assert count(phases)[0] == PhaseCount("route", 3, 6, 2, 1, 3, 30, 2, 5)
    assert [(phase.phase, phase.tasks) for phase in count(phases)] == [("route", 3), ("merge", 2), ("make", 2)]
    # What was routed stays until it is merged; the arrays are not temporary.
    assert temporary_bytes(phases) == 30 + 20
    assert not writer.recorded()


def test_records_come_in_the_order_of_the_tasks(writer: ArtifactWriter) -> None:
    route = chain(writer)[0]
    backward = Phase("route", work, route.tasks[::-1], "tasks", files=(WorkFiles(),))
    for cluster in (InProcessCluster(), ThreadedCluster(3, 1 << 30)):
        run([backward], cluster, writer)
        assert [record.task for record in records_of(backward, writer)] == ["route/2", "route/1", "route/0"]


def test_records_alone_are_made_once(writer: ArtifactWriter) -> None:
    with writer.task("other/00000"):
        pass
    counted = Phase("count", work, [Task(writer, "count", number) for number in range(4)], files=(WorkFiles(),))
    work(counted.tasks[1])  # type: ignore[arg-type]
    assert ran(writer, [counted]) == ["count/0", "count/2", "count/3"]
    assert ran(writer, [counted]) == []
    assert "other/00000" in writer.recorded()


@pytest.mark.parametrize("facts", [{}, {"another": 1}])
def test_a_record_with_other_facts_is_one_error(writer: ArtifactWriter, facts: dict[str, int]) -> None:
    with writer.task("count/0") as output:
        output.facts = facts
    counted = Phase("count", work, [Task(writer, "count", 0)], files=(WorkFiles(),))
    run([counted], InProcessCluster(), writer)
    with pytest.raises(FormatError, match=r"count/0 "):
        sum(record.facts["number"] for record in records_of(counted, writer))


def test_tasks_that_finished_before_a_failure_are_kept(writer: ArtifactWriter) -> None:
    def fail_at_two(task: Task) -> int:
        if task.number == 2:
            raise InputError("two")
        return work(task)

    counted = Phase("count", work, [Task(writer, "count", number) for number in range(4)], files=(WorkFiles(),))
    with pytest.raises(InputError, match="two"):
        run([replace(counted, function=fail_at_two)], InProcessCluster(), writer)
    assert [task.name for task in missing_tasks(counted, writer)] == ["count/2", "count/3"]
    assert ran(writer, [counted]) == ["count/2", "count/3"]


def test_a_task_that_leaves_no_record_is_an_error(writer: ArtifactWriter) -> None:
    silent = Phase("count", lambda _: 1, [Task(writer, "count", 0)], files=(WorkFiles(),))
    with pytest.raises(KeyError, match="count/0"):
        run([silent], InProcessCluster(), writer)


def test_progress_counts_the_missing_tasks_and_their_units(
    writer: ArtifactWriter, caplog: pytest.LogCaptureFixture
) -> None:
    counted = Phase("count", work, [Task(writer, "count", number) for number in range(4)], files=(WorkFiles(),))
    work(counted.tasks[0])  # type: ignore[arg-type]
    caplog.set_level("DEBUG", logger="gnnloom")
    run([replace(counted, unit="numbers")], InProcessCluster(), writer)
    records = [record for record in caplog.records if record.name == PROGRESS.name]
    found = [record.args[0] for record in records if isinstance(record.args, tuple) and record.args]
    states = [state for state in found if isinstance(state, Progress)]
    assert [(state.phase, state.done, state.tasks, state.count, state.unit) for state in states] == [
        ("count", done, 3, done, "numbers") for done in range(4)
    ]
