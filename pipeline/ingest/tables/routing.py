"""The plan that brings the rows of a table to the tasks that write its array: buckets are cut, and rows shuffled.

Tasks exchange files only, in the artifact's work folder. Each leaves a record, so a stage that was killed continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, pairwise, starmap
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.ingest.tables.lookup import BucketBounds, VertexBuckets, first_ids
from gnnloom.pipeline.ingest.tables.routed_table import RoutedTable
from gnnloom.pipeline.matrix_sort.scatter import range_name
from gnnloom.pipeline.shuffle.columns import row_bytes
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import RunsWriter, Shuffle
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.source import KeyedSource, SourceRange
from gnnloom.pipeline.tasks.memory import gathered_memory
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, WorkFiles
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord

#: Buckets whose first ids one task looks up: a chunk of the stored ids is decompressed for each.
BOUNDS_PER_TASK = 256
#: Bytes of a row while it is gathered and sorted by bucket, in addition to its values and the text of its id: its
#: bucket, its place in the table, the length of its id, the offset of its id in both orders and in Arrow's, and the
#: order and its inverse.
GATHERED_ROW_BYTES: Final = 64


@dataclass(frozen=True)
class CutIdsTask(Task):
    """Finds the ids at which buckets ``start`` to ``stop`` begin."""

    ids: Path
    buckets: VertexBuckets
    start: int
    stop: int


@dataclass(frozen=True)
class RouteTableTask(Task):
    """Routes the rows of a range of a table to their buckets.

    Attributes:
        bounds: file with the ids at which buckets begin.
        memory: bytes that the worker may use.
        lane: where the runs go, relative to the work folder.
    """

    source: KeyedSource
    bounds: Path
    shuffle: Shuffle
    range: SourceRange
    memory: int
    lane: Lane


@dataclass(frozen=True, eq=False)
class BoundsFile(WorkFiles):
    """The file with the ids at which buckets begin, which the tasks record."""

    path: Path

    def publish(self, records: Sequence[TaskRecord]) -> None:
        BucketBounds.save(self.path, [bound for record in records for bound in record.facts["bounds"]])

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class TablePlan:
    """The phases that bring the rows of a table into buckets of vertices.

    Attributes:
        array: the array that the table is for.
        buckets: of the vertices.
        ranges: of the table, one for each task that reads it.
        num_rows: approximate number of rows of the table.
        num_bytes: approximate bytes of the table.
        memory: bytes that a worker may use.
        writer: the artifact that gets the array.
        ids: folder of the ids of the vertices, as :meth:`SourceIds.at` opens them.
        source: the table, a :class:`~gnnloom.pipeline.sources.source.KeyedSource`; None for plans that are counted.
    """

    array: str
    buckets: VertexBuckets
    ranges: Sequence[SourceRange]
    num_rows: int
    num_bytes: int
    memory: int
    writer: ArtifactWriter = field(default_factory=lambda: ArtifactWriter(Path(), "vertices", ""))
    ids: Path = Path()
    source: Any = None

    def phases(self) -> list[Phase]:
        """Cut the buckets, route rows, and merge the routed rows."""
        buckets, step = self.buckets, BOUNDS_PER_TASK
        cuts = [
            CutIdsTask(self.writer, f"cut/{self.array}/{start:08d}", Needs(), self.ids, buckets, start, stop)
            for start, stop in pairwise([*range(0, buckets.num_buckets, step), buckets.num_buckets])
        ]
        bounds = BoundsFile(self.writer.work / "bounds" / f"{self.array}.json")
        route = Phase("route rows", route_rows, self._routes(bounds.path), "rows", (bounds,), (self.shuffled.files,))
        cut = Phase("cut ids", cut_ids, cuts, "buckets", files=(bounds,))
        return [cut, route, *self.shuffled.merges("merge rows")]

    @cached_property
    def shuffled(self) -> ShufflePlan:
        count, buckets = len(self.ranges), self.buckets
        # At most one row of each vertex.
        return ShufflePlan(self.writer, buckets.shuffle(self.array), count, buckets.num_bytes, self._num_keys)

    def _routes(self, bounds: Path) -> list[RouteTableTask]:
        tasks = max(1, len(self.ranges))
        written = -(-(self.row_bytes * self.num_rows + 8 * self._num_keys) // tasks)
        # Rows are in the order of the table and by bucket.
        needs = Needs(
            -(-self.num_bytes // tasks),
            written,
            0,
            2 * min(run_bytes(self.memory, self.writer.scratch), self._gathered),
        )
        what, names = (self.source, bounds, self.shuffled.shuffle), starmap(range_name, enumerate(self.ranges))
        return [
            RouteTableTask(self.writer, f"route/{self.array}/{name}", needs, *what, span, self.memory, lane)
            for name, span, lane in zip(names, self.ranges, map(self.shuffled.lane, count()), strict=False)
        ]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on its way."""
        return row_bytes(self.buckets.shuffle(self.array).columns) + self.buckets.id_bytes

    @property
    def _gathered(self) -> int:
        """Bytes of the rows of a range while they are gathered."""
        gathered = self.buckets.values.num_bytes + self.buckets.id_bytes + GATHERED_ROW_BYTES
        return -(-self.num_rows * gathered // max(1, len(self.ranges)))

    @property
    def _num_keys(self) -> int:
        """Buckets that each run has rows of, all runs together."""
        runs = len(self.ranges) * -(-self._gathered // run_bytes(self.memory, self.writer.scratch))
        return min(self.num_rows, runs * self.buckets.num_buckets)

    def opens(self, start: int, stop: int) -> int:
        """Files that the task opens that writes rows ``start`` to ``stop``."""
        own = self.buckets.buckets_of(start, stop)
        return self.shuffled.opens((own.start, own.stop))

    @property
    def routed(self) -> RoutedTable:
        """The rows after all merges."""
        return RoutedTable(self.source, self.ids, self.buckets, self.shuffled.shuffle, self.writer.work)

    def num_unknown(self) -> int:
        """Rows whose ids do not belong to any vertex and that were not put into a bucket, once they are routed."""
        names = (task.name for task in self._routes(Path()))
        return sum(record.facts["unknown"] for record in self.writer.recorded_of(names).values())


def cut_ids(task: CutIdsTask) -> int:
    """Record the ids at which some buckets begin; returns the number of buckets."""
    with task.writer.task(task.name) as output:
        ids = SourceIds.at(task.ids)
        output.facts["bounds"] = first_ids(ids, task.buckets, range(task.start, task.stop))
    return task.stop - task.start


def route_rows(task: RouteTableTask) -> int:
    """Route the rows of a range of the table, in pieces that fit in memory; returns the number of rows read."""
    bounds, limit = BucketBounds.load(task.bounds), run_bytes(task.memory, task.writer.scratch)
    rows = unknown = 0
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        gathered = GatheredRows(task.shuffle)
        for block in task.source.read_table(task.range):
            names = Names(block.id_offset, block.id_text)
            row, reason = bounds.fault(names)
            if row >= 0:
                raise task.source.row_error(int(block.at[row]), reason)
            buckets = bounds.find(names)
            gathered.add(buckets, block.at, block.values, names)
            rows, unknown = rows + len(buckets), unknown + int((buckets < 0).sum())
            if gathered.num_bytes >= limit:
                gathered.route(out)
        if gathered.num_bytes:
            gathered.route(out)
        output.facts["unknown"] = unknown
    return rows


def run_bytes(memory: int, scratch: Scratch) -> int:
    """Bytes of the rows that a task gathers, in the order of the table, before it routes them.

    Both orders are in memory at once.
    """
    return min(scratch.routed_bytes, gathered_memory(memory))


class GatheredRows:
    """Rows in the order of the table.

    Attributes:
        num_bytes: bytes of the added rows; sorting takes the same number of bytes again.
    """

    def __init__(self, shuffle: Shuffle) -> None:
        self._shuffle = shuffle
        self._blocks: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any], Names]] = []
        self.num_bytes = 0

    def add(self, buckets: NDArray[np.int64], at: NDArray[np.int64], values: NDArray[Any], names: Names) -> None:
        """Add rows.

        Args:
            buckets: (num_rows,) int64; rows with -1 are left out.
            at: (num_rows,) int64 places in the table.
            values: (num_rows, ...) values.
            names: their ids.
        """
        kept = buckets >= 0
        if not kept.all():
            buckets, at, values, names = buckets[kept], at[kept], values[kept], _taken(names, np.flatnonzero(kept))
        # A copy of the text, which may be the beginning of a longer buffer.
        names = Names(names.offset, names.text[: names.offset[-1]].copy())
        self._blocks.append((buckets, at, values, names))
        self.num_bytes += values.nbytes + len(names.text) + GATHERED_ROW_BYTES * len(values)

    def route(self, out: RunsWriter) -> None:
        """Write the rows as a run, and forget them; some must have been added."""
        buckets, at, values, names = (list(column) for column in zip(*self._blocks, strict=True))
        self._blocks.clear()
        self.num_bytes = 0
        # Numbers of 16 bits are sorted much faster, and there are seldom more buckets.
        joined = np.concatenate(buckets).astype(np.min_scalar_type(self._shuffle.num_positions))
        # Stable: rows of a bucket keep their order.
        order = np.argsort(joined, kind="stable")
        ends = np.cumsum(np.bincount(joined, minlength=self._shuffle.num_positions))
        rows = {"at": np.concatenate(at)[order], "value": _sorted_values(values, order)}
        ids = _taken(_joined(names), order)
        out.add(Index.of_offsets(np.append(0, ends)), {**rows, "length": np.diff(ids.offset), "id": ids.text})


def _sorted_values(blocks: list[NDArray[Any]], order: NDArray[np.int64]) -> NDArray[Any]:
    """(num_rows, ...) values of consecutive rows in another order; ``blocks`` is emptied."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    values, first = np.empty((len(order), *blocks[0].shape[1:]), blocks[0].dtype), 0
    for block in blocks:
        values[place[first : first + len(block)]] = block
        first += len(block)
    blocks.clear()
    return values


def _joined(blocks: list[Names]) -> Names:
    """The names of consecutive rows; ``blocks`` is emptied, so that at most two copies of the text are in memory."""
    ends = np.cumsum(np.concatenate([np.diff(names.offset) for names in blocks]))
    text = np.concatenate([names.text for names in blocks])
    blocks.clear()
    return Names(np.append(0, ends), text)


def _taken(names: Names, order: NDArray[np.int64]) -> Names:
    """The names with these numbers, in this order."""
    return Names.from_arrow(names.to_arrow().take(order))
