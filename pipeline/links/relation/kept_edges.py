"""The graph without the held-out edges of a relation: the row blocks of this relation without them.

All other relations stay where they are, as do the columns of the edges, which have their positions in the whole
relation. The positions of held-out edges ascend in each split, so a block finds its own there, and reads them in step
with its edges.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.matrix_sort.blocks import CHUNK_VERTICES, block_aside
from gnnloom.pipeline.matrix_sort.sort_plan import degree_phase
from gnnloom.pipeline.tasks.memory import WRITING_BYTES
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.block_matrix import BlockWriter, block_path
from gnnloom.storage.artifacts.typed.typed_graph import POSITION, TypedGraph, relation_folder
from gnnloom.storage.format.array_metadata import DEFAULT_CODEC
from gnnloom.storage.format.arrays import ArrayReader, ArrayRecord, create_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter

#: Bytes of a row: its pointer, its pointer without held-out edges, and its held-out edges.
_ROW_BYTES = 24
#: Bytes of an edge that is read: column, value, position, whether it is kept, copies, and positions of held-out edges.
_EDGE_BYTES = 112


@dataclass(frozen=True)
class KeptBlockTask(Task):
    """Writes a row block of a relation without the held-out edges.

    Attributes:
        graph: folder of the graph artifact.
        relation: name of the relation.
        links: folder of the links artifact, which need not be published.
        held_out: its arrays of positions of held-out edges.
    """

    graph: Path
    relation: str
    number: int
    links: Path
    held_out: tuple[ArrayRecord, ...]


def write_kept_block(task: KeptBlockTask) -> int:
    """Write one block; returns the number of edges that were read."""
    graph = TypedGraph(Artifact(task.graph))
    relation, path = graph.relation(task.relation), f"{relation_folder(task.relation)}{block_path(task.number)}"
    pointers, columns = relation.pointers(task.number), relation.columns(task.number)
    values = relation.times(task.number) if relation.has_times else relation.weights(task.number)
    before, nnz = sum(relation.block_nnz[: task.number]), relation.block_nnz[task.number]
    removed_of_row, repeats = np.zeros(len(pointers), np.int64), _Repeats(pointers)
    with task.writer.task(task.name) as output, block_aside(task.writer, path) as aside:
        block = BlockWriter(
            aside,
            task.number,
            relation.num_columns,
            None if values is None else values.dtype,
            codec_of(graph),
            has_times=relation.has_times,
            num_rows=relation.num_rows,
            prefix=relation.prefix,
            positions=POSITION,
        )
        held_out = _HeldOut([ArrayReader(task.links, record) for record in task.held_out], before)
        for start, stop in columns.ranges(max(1, task.writer.scratch.step_entries // 2), 0, nnz):
            removed, kept = held_out.until(before + stop) - before, np.ones(stop - start, np.bool_)
            kept[removed - start] = False
            np.add.at(removed_of_row, np.searchsorted(pointers, removed, "right"), 1)
            position, column = start + np.flatnonzero(kept), columns.read(start, stop)[kept]
            value = None if values is None else values.read(start, stop)[kept]
            block.append(column, value, position + before)
            if relation.parallel:
                repeats.add(position, column)
        pointers -= np.cumsum(removed_of_row)
        output.arrays = block.close(relation.block_rows[task.number], pointers)
        output.facts = {"nnz": int(pointers[-1]), "parallel": repeats.count}
    return nnz


class _HeldOut:
    """Positions of held-out edges of all splits, read from front to back."""

    def __init__(self, stored: Sequence[ArrayReader], start: int) -> None:
        self._stored, self._next = stored, [_lower_bound(each, start) for each in stored]

    def until(self, stop: int) -> NDArray[np.int64]:
        """(num_held_out,) int64 positions below ``stop`` that were not read before."""
        found = [np.empty(0, np.int64)]
        for number, stored in enumerate(self._stored):
            begin, end = self._next[number], _lower_bound(stored, stop, self._next[number])
            found.append(stored.read(begin, end))
            self._next[number] = end
        return np.concatenate(found)


def _lower_bound(stored: ArrayReader, value: int, start: int = 0) -> int:
    """Number of elements of an ascending array that are below a value, if those before ``start`` are."""
    rows, first = stored.chunk_rows, start // stored.chunk_rows
    chunks = range(first, -(-len(stored) // rows))
    place = first + bisect_left(chunks, value, key=lambda chunk: int(stored.read(chunk * rows, chunk * rows + 1)[0]))
    # The last chunk that begins below the value has the place.
    begin = max(place - 1, 0) * rows
    within = np.searchsorted(stored.read(begin, min(begin + rows, len(stored))), value)
    return max(start, begin + int(within))


class _Repeats:
    """Counts entries in the row and column of the entry before."""

    def __init__(self, pointers: NDArray[np.int64]) -> None:
        self._pointers, self._last, self.count = pointers, (-1, -1), 0

    def add(self, position: NDArray[np.int64], column: NDArray[Any]) -> None:
        """Add the next entries: (num_entries,) positions in the block, ascending, and columns."""
        if not len(position):
            return
        position = np.append(self._last[0], position)
        column = np.append(self._last[1], column)
        same = np.flatnonzero(column[1:] == column[:-1])
        rows = (np.searchsorted(self._pointers, position[same + each], "right") for each in (0, 1))
        self.count += int(np.sum(next(rows) == next(rows)))
        self._last = int(position[-1]), int(column[-1])


def codec_of(graph: TypedGraph) -> str:
    """The compression of a graph, which one without held-out edges gets, too."""
    return str(graph.artifact.parameters.get("codec", DEFAULT_CODEC))


@dataclass(frozen=True, eq=False)
class KeptPlan:
    """The phases that make a graph without held-out edges of a relation.

    Attributes:
        writer: of the new graph.
        graph: folder of the graph artifact.
        relation: name of the relation.
        sizes: of the relation.
        links: folder of the links artifact.
        held_out: its arrays of positions of held-out edges.
    """

    writer: ArtifactWriter
    graph: Path
    relation: str
    sizes: GraphSizes
    links: Path
    held_out: Sequence[ArrayRecord]

    def phases(self) -> list[Phase]:
        """All phases."""
        return [self.blocks, degree_phase(self.writer, self._block_rows, relation_folder(self.relation))]

    @property
    def _block_rows(self) -> list[int]:
        return [0, *np.cumsum(self.sizes.block_rows).tolist()]

    @property
    def blocks(self) -> Phase:
        """The phase that writes the blocks."""
        tasks, entry, of_step = [], self.sizes.entry_bytes, _EDGE_BYTES * self.writer.scratch.step_entries // 2
        for number, (rows, nnz) in enumerate(zip(self.sizes.block_rows, self.sizes.block_nnz, strict=True)):
            read = entry * nnz + 8 * rows
            needs = Needs(read, read + 8 * nnz, memory=_ROW_BYTES * rows + of_step + WRITING_BYTES)
            where = self.graph, self.relation, number, self.links, tuple(self.held_out)
            name = f"{relation_folder(self.relation)}{block_path(number)}"
            tasks.append(KeptBlockTask(self.writer, name, needs, *where))
        return Phase("message graph", write_kept_block, tasks, makes_arrays=True, arrays=3)

    def create_arrays(self, codec: str) -> None:
        """Create the array that several tasks write."""
        path, rows = f"{relation_folder(self.relation)}degree", (self.sizes.num_vertices,)
        create_array(self.writer.path, path, rows, "int64", ("row",), CHUNK_VERTICES, codec)
