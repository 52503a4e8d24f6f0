"""Phases whose tasks each have a range of vertices, nets or other rows; no result depends on how these are divided.

Their tasks leave no records: a level takes seconds or minutes, and many phases. Numbers of vertices and nets are in
files: every task maps what it reads, so no process holds them in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import BLOCK_BYTES, num_shared_files
from gnnloom.pipeline.external_sort.merge_levels import most_sources
from gnnloom.pipeline.partition.partitioner import LEVEL_STEPS, LevelSteps
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, results
from gnnloom.storage.disk.files import written_aside
from gnnloom.storage.disk.numpy_files import create_array_file
from gnnloom.storage.disk.work_folder import BESIDE, Scratch

#: Tasks of a round for each worker: two, so that no worker waits long for the last.
_TASKS_PER_WORKER = 2
#: Fewest tasks that read all nets once: a few for each core of a usual machine, so that none waits long for the last.
NET_TASKS = 16
#: Fewest pins of such a task: fewer take no longer than starting it does.
_LEAST_PINS = 1 << 16
#: Bytes that a task of a round writes for a vertex that chooses a cluster or a part, at most.
_CHOICE_BYTES = 24

#: Bytes of a weight, an offset, a load or the number of a net; of a part.
NUMBER_BYTES, PART_BYTES = 8, 4

Work = TypeVar("Work")


@dataclass(frozen=True)
class Setting:
    """Settings that decide the number of tasks, besides a hypergraph's size.

    Attributes:
        parts: number of parts P.
        workers: tasks at a time.
        memory: bytes that a worker may use.
    """

    parts: int
    workers: int
    memory: int


@dataclass(frozen=True)
class RangeTask(Generic[Work]):
    """A task; small and picklable.

    Attributes:
        phase: name of the phase.
        work: what all tasks of the phase have in common.
        number: of the task.
        rows: its range.
        first: number of its first result, among the results of all tasks.
    """

    phase: str
    work: Work
    number: int
    rows: range
    needs: Needs
    first: int = 0

    @property
    def name(self) -> str:
        return f"{self.phase.replace(' ', '-')}/{self.number:05d}"

    @property
    def span(self) -> slice:
        """The range, to index arrays."""
        return slice(self.rows.start, self.rows.stop)


def phase_over(
    ranges: Sequence[range],
    name: str,
    function: Callable[[RangeTask[Work]], object],
    work: Work,
    *,
    reads: int = 0,
    writes: int = 0,
    files: int = 0,
    lanes: Sequence[int] = (),
    firsts: Iterable[int] | None = None,
    row_bytes: int = 0,
    buffers: int = 0,
    at_most: bool = False,
    scratch: Scratch = BESIDE,
) -> Phase:
    """A phase with a task for each range.

    Args:
        ranges: consecutive.
        reads, writes: bytes of all tasks, in proportion to their rows.
        files: arrays that each task reads from files of their own.
        lanes: for each further array that it reads, the number of tasks that wrote it, each to a lane.
        firsts: number of the first result of each task.
        row_bytes, buffers: bytes that a task holds for each of its rows, and whatever their number. Pages of mapped
            files are not counted, because the system takes them back when it needs them.
        at_most: whether the other numbers depend on the data, and are the most that they can be.
        scratch: number of files that lanes share.
    """
    num_rows, opens = max(1, sum(map(len, ranges))), files + sum(num_shared_files(count, scratch) for count in lanes)
    # The blocks at both ends of what is read of a lane.
    held = 2 * BLOCK_BYTES * sum(lanes) + buffers
    # Of thousands of ranges, most have the same length.
    needs = {
        count: Needs(-(-reads * count // num_rows), -(-writes * count // num_rows), opens, held + row_bytes * count)
        for count in set(map(len, ranges))
    }
    tasks = [
        RangeTask(name, work, number, rows, needs[len(rows)], first)
        for number, (rows, first) in enumerate(zip(ranges, firsts or [0] * len(ranges), strict=False))
    ]
    return Phase(name, function, tasks, arrays=max(1, files + len(lanes)), at_most=at_most)


def run_pieces(phase: Phase, cluster: Cluster) -> None:
    """Run all tasks of a phase that return nothing."""
    for _ in results(phase, cluster):
        pass


def in_order(found: Iterable[tuple[int, Any]]) -> list[Any]:
    """Results of tasks that return a number with each result, in the order of the numbers."""
    return [result for _, result in sorted(found, key=lambda each: each[0])]


def vertex_pieces(num_vertices: int, steps: LevelSteps) -> list[range]:
    """Split all vertices into consecutive pieces of a fixed size; the last piece may be smaller."""
    size = steps.task_vertices
    return [range(start, min(start + size, num_vertices)) for start in range(0, num_vertices, size)]


def range_pieces(rows: range, count: int) -> list[range]:
    """Split a range into at most ``count`` consecutive ones of about the same length."""
    edges = sorted({rows.start + len(rows) * number // count for number in range(count)} | {rows.stop})
    return [range(a, b) for a, b in pairwise(edges)]


def consecutive(sizes: Iterable[int]) -> list[range]:
    """Consecutive ranges of these sizes; the first range begins at 0."""
    return [range(start, stop) for start, stop in pairwise(accumulate(sizes, initial=0))]


def net_tasks(num_pins: int, steps: LevelSteps) -> int:
    """Return the number of tasks that together read all nets once."""
    return max(1, min(NET_TASKS, -(-num_pins // _LEAST_PINS)), -(-num_pins // steps.task_pins))


def round_tasks(num_vertices: int, workers: int, scratch: Scratch = BESIDE, steps: LevelSteps = LEVEL_STEPS) -> int:
    """Return the number of tasks that visit the vertices of a round.

    One task per worker, or more if the choices of a task would not fit in memory. With more than 16 tasks, each has at
    least 64 KiB of choices, so that the tasks of the next phase do not read many short lanes.
    """
    fewest = -(-num_vertices // steps.task_vertices)
    most = max(fewest, most_sources(_CHOICE_BYTES * num_vertices, 1, scratch))
    return min(max(_TASKS_PER_WORKER * workers, fewest), most)


def reading_tasks(
    wanted: int, num_bytes: int, num_lanes: int, scratch: Scratch = BESIDE, steps: LevelSteps = LEVEL_STEPS
) -> int:
    """Return the number of tasks that each read a range of every lane: fewer than wanted if ranges would be too short.

    Lanes are in few files, but from a disk or over a network, a few bytes take about as long to read as 64 KiB. None
    holds the choices of more vertices than memory has room for.

    Args:
        num_bytes: of all lanes.
    """
    if num_lanes <= scratch.sources:
        return wanted
    fewest = -(-num_bytes // (_CHOICE_BYTES * steps.task_vertices))
    return max(1, min(wanted, max(fewest, num_bytes // num_lanes // scratch.source_bytes)))


def writing_tasks(wanted: int, num_bytes: int, readers: int, scratch: Scratch = BESIDE) -> int:
    """Number of tasks that write lanes, when each reader reads a range of every lane: 16, or more if ranges are long.

    Args:
        num_bytes: of all lanes.
    """
    return max(1, min(wanted, most_sources(num_bytes, readers, scratch)))


def shared_lanes(lanes: int, tasks: int) -> int:
    """Maximum number of lanes that a task reads, if tasks share the rows of all lanes evenly."""
    return min(lanes, -(-lanes // tasks) + 1)


def store_vector(path: Path, values: NDArray[Any]) -> Path:
    """Write an array to a file, and return its path.

    A process that has mapped an earlier file of this path keeps that file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside, aside.open("wb") as file:
        np.save(file, values, allow_pickle=False)
    return path


def create_vector(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Create a file of zeros; tasks write ranges of the file. Takes no memory in this process."""
    create_array_file(path, dtype, shape)
