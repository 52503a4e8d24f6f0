"""Divides the edges of a table among relations: by a word in each row, and by the types of both ends.

The edges go through a shuffle whose positions are the relations, so that a table of any number of relations is read
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

#: Edges of a relation that one task reads.
RANGE_EDGES: Final = 1 << 23
#: Bytes of an edge while a chunk is divided: its ends as they are numbered, sorted and copied, and its place.
_DIVIDE_MEMORY: Final = 80


@dataclass(frozen=True)
class Division:
    """What the edges of a table are divided by.

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
        edges: the table, with numbered ends, or with numbered ends and rows.
        lane: where the edges go, relative to the work folder.
    """

    edges: NumberedEdges | RowEdges
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
    """

    work: Path
    division: Division
    shuffle: Shuffle
    counts: dict[int, int]
    left_out: dict[int, int]
    value_bytes: int

    def edges(self, position: int) -> DividedEdges:
        """The edges of one relation."""
        return DividedEdges(self.work, self.shuffle, position, self.counts[position], self.value_bytes)

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
    """

    work: Path
    shuffle: Shuffle
    position: int
    num_edges: int
    value_bytes: int

    def identity(self) -> dict[str, Any]:
        return {"format": "divided"}

    def num_vertices(self) -> int | None:
        return None

    def ranges(self) -> Sequence[SourceRange]:
        return even_ranges(0, self.num_edges, RANGE_EDGES)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        """Read edges ``start`` to ``stop`` of the relation."""
        with OpenFiles(self.work) as files:
            first = 0
            for section in self.shuffle.rows(self.work, files).sections(self.position, self.position + 1):
                # Of this section, and as rows of its run.
                start, stop = max(span.start - first, 0), min(span.stop - first, section.num_rows)
                begin, first = section.rows[0], first + section.num_rows
                for at in range(start, stop, CHUNK_EDGES):
                    rows = begin + at, begin + min(at + CHUNK_EDGES, stop)
                    source, target, *values = (section.run.read(each.name, rows) for each in self.shuffle.columns)
                    value = values[0] if values else None
                    yield EdgeChunk.valued(source, target, value, times=self.value_bytes == TIME_BYTES)


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
        name: what the names of the tasks begin with.
        edges: the table, with numbered ends, or with numbered ends and rows.
        value_bytes: bytes of the weight, time or row of an edge; 0 if there are none.
    """
    values = [Column("value", value_dtype(value_bytes).name)] if value_bytes else []
    columns = (Column("source", "int64"), Column("target", "int64"), *values)
    # Other keys have other numbers, and then other edges.
    digest = "-".join(end.ranges_path.stem for end in edges.ends)
    shuffle = Shuffle(f"divide/{name}/{digest}", division.num_positions, columns, division.num_positions)
    ranges = edges.ranges()
    num_bytes = sum(span.stop for span in ranges) * row_bytes(columns)
    plan = ShufflePlan(writer, shuffle, len(ranges), num_bytes, len(ranges) * division.num_positions)
    tasks = []
    for number, span in enumerate(ranges):
        size, memory = span.stop * row_bytes(columns), _DIVIDE_MEMORY * min(span.stop, CHUNK_EDGES)
        needs = Needs(size, size, memory=memory)
        at = f"divide/{name}/{range_name(number, span)}-{digest}"
        tasks.append(DivideTask(writer, at, needs, edges, span, division, shuffle, plan.lane(number)))
    divide = Phase("divide", divide_range, tasks, files=(plan.files,))
    run([divide, *plan.merges("merge divided")], cluster, writer)
    counts: dict[int, int] = {}
    left_out: dict[int, int] = {}
    for record in records_of(divide, writer):
        for found, total in ((record.facts["counts"], counts), (record.facts["left_out"], left_out)):
            for position, count in found:
                total[position] = total.get(position, 0) + count
    return Divided(writer.work, division, shuffle, dict(sorted(counts.items())), left_out, value_bytes)


def divide_range(task: DivideTask) -> int:
    """Route the edges of one range to their relations; returns how many were read."""
    division, edges = task.division, 0
    counts = np.zeros(division.num_positions, np.int64)
    left_out = np.zeros(division.num_kinds, np.int64)
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as runs:
        for chunk, kinds in task.edges.read_kinds(task.range):
            edges += len(kinds)
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
    return edges


def _split(number: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(count,) int64 types of vertices, and (count,) int64 numbers within their types."""
    return number >> KIND_BITS, number & ((1 << KIND_BITS) - 1)
