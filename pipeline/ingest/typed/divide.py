"""Divides the edges of a table among relations: by a word in each row, and by the types of both ends.

The edges go through a shuffle whose positions are the relations, so that a table of any number of relations is read
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.external_sort.spill import value_dtype
from gnnloom.pipeline.ingest.keys.numbered import KIND_BITS, NumberedEdges
from gnnloom.pipeline.ingest.typed.edge_columns import RowEdges
from gnnloom.pipeline.matrix_sort.scatter import range_name
from gnnloom.pipeline.shuffle.columns import Column, row_bytes
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.sources.source import CHUNK_EDGES, EdgeChunk, SourceRange, even_ranges
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, records_of, run
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.csr import TIME_BYTES

#: Chunks of the edges of a relation that one task reads.
_RANGE_CHUNKS: Final = 4
#: The writer of plans that are counted and not run.
_NOWHERE: Final = ArtifactWriter(Path(), "", "")
#: Bytes of an edge while a chunk is divided: its ends as they are numbered, sorted and copied, and its place.
_DIVIDE_MEMORY: Final = 80


@dataclass(frozen=True)
class Division:
    """The keys by which the edges of a table are divided.

    A relation has the position ``(kind * num_sources + source) * num_targets + target``.

    Attributes:
        num_kinds: different words in the column with the names of relations; 1 if there is no such column.
        num_sources, num_targets: types of the sources and of the targets.
    """

    num_kinds: int
    num_sources: int
    num_targets: int

    @property
    def num_positions(self) -> int:
        return self.num_kinds * self.num_sources * self.num_targets

    def parts(self, position: int) -> tuple[int, int, int]:
        """Kind, type of the sources and type of the targets of the relation at a position."""
        rest, target = divmod(position, self.num_targets)
        return *divmod(rest, self.num_sources), target


@dataclass(frozen=True)
class DivideTask(Task):
    """Divides the edges of one range of a table.

    Attributes:
        edges: the table, with numbered ends, or with numbered ends and rows; None if the task is only counted.
        lane: where the edges go, relative to the work folder.
    """

    edges: NumberedEdges | RowEdges | None
    range: SourceRange
    division: Division
    shuffle: Shuffle
    lane: Lane


@dataclass(frozen=True)
class Divided:
    """The edges of a table, by relation.

    Attributes:
        counts: number of edges of each relation that has some, by position.
        left_out: number of edges of each kind with an end that no table of vertices lists.
        chunk_edges: edges that are read at a time.
    """

    work: Path
    division: Division
    shuffle: Shuffle
    counts: dict[int, int]
    left_out: dict[int, int]
    value_bytes: int
    chunk_edges: int

    def edges(self, position: int) -> DividedEdges:
        """The edges of one relation."""
        return DividedEdges(
            self.work, self.shuffle, position, self.counts[position], self.value_bytes, self.chunk_edges
        )

    @property
    def spill_bytes(self) -> int:
        """Bytes of the temporary files."""
        return sum(self.counts.values()) * row_bytes(self.shuffle.columns)


@dataclass(frozen=True)
class DividedEdges:
    """The edges of one relation of a table, in the order of the table.

    Implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Attributes:
        position: of the relation in the shuffle.
        num_edges: number of its edges.
        value_bytes: bytes of the weight or time of an edge; 0 if there are none.
        chunk_edges: edges that are read at a time.
    """

    work: Path
    shuffle: Shuffle
    position: int
    num_edges: int
    value_bytes: int
    chunk_edges: int

    def identity(self) -> dict[str, Any]:
        return {"format": "divided"}

    def num_vertices(self) -> int | None:
        return None

    def ranges(self) -> Sequence[SourceRange]:
        return even_ranges(0, self.num_edges, _RANGE_CHUNKS * self.chunk_edges)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        """Read edges ``start`` to ``stop`` of the relation."""
        with OpenFiles(self.work) as files:
            first = 0
            for section in self.shuffle.rows(self.work, files).sections(self.position, self.position + 1):
                # Of this section, and as rows of its run.
                start, stop = max(span.start - first, 0), min(span.stop - first, section.num_rows)
                begin, first = section.rows[0], first + section.num_rows
                for at in range(start, stop, self.chunk_edges):
                    rows = begin + at, begin + min(at + self.chunk_edges, stop)
                    source, target, *values = (section.run.read(each.name, rows) for each in self.shuffle.columns)
                    value = values[0] if values else None
                    yield EdgeChunk.valued(source, target, value, times=self.value_bytes == TIME_BYTES)


@dataclass(frozen=True, eq=False)
class DividePlan:
    """The phases that divide the edges of a table: to be run, or counted for stated numbers of edges.

    Attributes:
        name: beginning of the names of the tasks.
        ranges: ranges of the edges, which begin at 0 each.
        value_bytes: bytes of the weight, time or row of an edge; 0 if there are none.
        edges: the table, with numbered ends, or with numbered ends and rows; None for plans that are counted.
    """

    name: str
    ranges: Sequence[SourceRange]
    division: Division
    value_bytes: int
    writer: ArtifactWriter = _NOWHERE
    edges: NumberedEdges | RowEdges | None = None

    @classmethod
    def stated(cls, edges: int, ranges: int, division: Division, value_bytes: int) -> DividePlan:
        """The plan for a number of edges in a number of ranges."""
        bounds = [edges * number // max(1, ranges) for number in range(max(1, ranges) + 1)]
        spans = [SourceRange(number, 0, stop - start) for number, (start, stop) in enumerate(pairwise(bounds))]
        return cls("stated", spans, division, value_bytes)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns of an edge."""
        values = [Column("value", value_dtype(self.value_bytes).name)] if self.value_bytes else []
        return (Column("source", "int64"), Column("target", "int64"), *values)

    @cached_property
    def shuffle(self) -> Shuffle:
        return Shuffle(
            f"divide/{self.name}/{self._digest}", self.division.num_positions, self.columns, self.division.num_positions
        )

    @property
    def _digest(self) -> str:
        # Other keys have other numbers, and then other edges.
        return "-".join(end.ranges_path.stem for end in self.edges.ends) if self.edges is not None else ""

    @cached_property
    def divide(self) -> Phase:
        """Routes the edges of each range to their relations."""
        tasks, size = [], row_bytes(self.columns)
        for number, span in enumerate(self.ranges):
            # A chunk of edges, and counts of all relations.
            memory = _DIVIDE_MEMORY * min(span.stop, CHUNK_EDGES) + 16 * self.division.num_positions
            needs = Needs(span.stop * size, span.stop * size, memory=memory)
            at = f"divide/{self.name}/{range_name(number, span)}-{self._digest}"
            how = self.edges, span, self.division, self.shuffle, self._plan.lane(number)
            tasks.append(DivideTask(self.writer, at, needs, *how))
        return Phase("divide", divide_range, tasks, files=(self._plan.files,))

    @property
    def phases(self) -> list[Phase]:
        """All phases."""
        return [self.divide, *self._plan.merges("merge divided")]

    @cached_property
    def _plan(self) -> ShufflePlan:
        count, edges = len(self.ranges), sum(span.stop for span in self.ranges)
        keys = min(edges, count * self.division.num_positions)
        return ShufflePlan(self.writer, self.shuffle, count, edges * row_bytes(self.columns), keys)


def divide_edges(
    writer: ArtifactWriter,
    name: str,
    edges: NumberedEdges | RowEdges,
    division: Division,
    value_bytes: int,
    cluster: Cluster,
) -> Divided:
    """Divide the edges of a table, except for what an earlier run has done.

    Args:
        name: beginning of the names of the tasks.
        edges: the table, with numbered ends, or with numbered ends and rows.
        value_bytes: bytes of the weight, time or row of an edge; 0 if there are none.
    """
    plan = DividePlan(name, edges.ranges(), division, value_bytes, writer, edges)
    run(plan.phases, cluster, writer)
    counts: dict[int, int] = {}
    left_out: dict[int, int] = {}
    for record in records_of(plan.divide, writer):
        for found, total in ((record.facts["counts"], counts), (record.facts["left_out"], left_out)):
            for position, count in found:
                total[position] = total.get(position, 0) + count
    counts = dict(sorted(counts.items()))
    return Divided(writer.work, division, plan.shuffle, counts, left_out, value_bytes, writer.scratch.read_edges)


def divide_range(task: DivideTask) -> int:
    """Route the edges of one range to their relations; returns how many were read."""
    division, edges, num_edges = task.division, task.edges, 0
    if edges is None:
        raise ValueError("a plan that is only counted")
    counts = np.zeros(division.num_positions, np.int64)
    left_out = np.zeros(division.num_kinds, np.int64)
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as runs:
        for chunk, kinds in edges.read_kinds(task.range):
            num_edges += len(kinds)
            is_known = (chunk.source >= 0) & (chunk.target >= 0)
            left_out += np.bincount(kinds[~is_known], minlength=division.num_kinds)
            source_type, source = _split(chunk.source[is_known])
            target_type, target = _split(chunk.target[is_known])
            position = (kinds[is_known] * division.num_sources + source_type) * division.num_targets + target_type
            order = np.argsort(position, kind="stable")
            counts += np.bincount(position, minlength=division.num_positions)
            columns: dict[str, NDArray[Any]] = {"source": source[order], "target": target[order]}
            if chunk.values is not None:
                columns["value"] = chunk.values[is_known][order]
            if len(order):
                runs.add(Index.of_positions(position[order]), columns)
        found = np.flatnonzero(counts)
        output.facts["counts"] = list(zip(found.tolist(), counts[found].tolist(), strict=True))
        lost = np.flatnonzero(left_out)
        output.facts["left_out"] = list(zip(lost.tolist(), left_out[lost].tolist(), strict=True))
    return num_edges


def _split(number: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(count,) int64 types of vertices, and (count,) int64 numbers within their types."""
    return number >> KIND_BITS, number & ((1 << KIND_BITS) - 1)
