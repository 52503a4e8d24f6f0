"""The graph without the held-out edges: every row block once more, without the entries of the held-out pairs.

The pairs are routed by row to the blocks, in both directions for a symmetric graph. A block is read and written from
front to back, so that memory holds some of its entries and some of the held-out ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.matrix_sort.blocks import CHUNK_VERTICES, block_aside
from gnnloom.pipeline.matrix_sort.sort_plan import degree_phase
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.section_rows import SectionRows
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import MIB, WRITING_BYTES, working_memory
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.block_matrix import BlockWriter, block_path
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.format.array_metadata import DEFAULT_CODEC
from gnnloom.storage.format.arrays import CHUNK_BYTES, ArrayReader, ArrayRecord, create_array, write_rows
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.kernels import count_at_most, count_below, kernel
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.shards.block_ranges import RANGE_BYTES, row_ranges

#: Held-out entries that are in memory at a time, unless one row has more; bytes of each in a file, row and column; and
#: bytes of memory: both as read, by row and by column, and the order.
HELD_ENTRIES: Final = 3 << 16
_FILED_BYTES: Final = 16
_HELD_BYTES: Final = 64
#: Chunks of pairs that are routed as one run.
_ROUTED_CHUNKS: Final = 2
#: Bytes of a row: its pointer.
_ROW_BYTES: Final = 8
#: Arrays of a graph that are about its vertices, and stay as they are.
_VERTEX_ARRAYS: Final = ("original_id", "original_name_offset", "original_name")
#: Chunks of such an array that a task copies.
_COPIED_CHUNKS: Final = 16


@dataclass(frozen=True)
class HeldOutTask(Task):
    """Routes some held-out pairs to the rows that have their entries.

    Attributes:
        links: folder of the links artifact.
        pairs: the array with the pairs, and the piece of it that the task reads.
        both: a pair holds both directions out.
    """

    links: Path
    pairs: ArrayRecord
    both: bool
    entries: Shuffle
    lane: Lane


def route_held_out(task: HeldOutTask) -> int:
    """Route a piece of an array of pairs; returns the number of pairs."""
    (piece,) = task.pairs.pieces
    reader = ArrayReader(task.links, task.pairs)
    with task.writer.task(task.name) as output, task.entries.routed(output, task.lane) as out:
        # Few runs, because readers look their rows up in every run.
        step = _ROUTED_CHUNKS * reader.chunk_rows
        for start in range(piece.start, piece.stop, step):
            pairs = reader.read(start, min(start + step, piece.stop))
            row, column = pairs[:, 1], pairs[:, 0]
            if task.both:
                row, column = np.concatenate([row, column]), np.concatenate([column, row])
            order = np.argsort(row, kind="stable")
            out.add(Index.of_positions(row[order]), {"column": column[order]})
    return piece.stop - piece.start


@dataclass(frozen=True)
class MessageBlockTask(Task):
    """Writes a row block without the held-out entries.

    Attributes:
        graph: folder of the graph artifact.
        entries: the held-out entries, by row.
        memory: bytes that the worker may use.
    """

    graph: Path
    number: int
    entries: Shuffle
    memory: int


def write_message_block(task: MessageBlockTask) -> int:
    """Write one block; returns the number of entries that were read.

    Raises:
        BudgetError: a row has more held-out entries than fit in memory.
    """
    graph, path = Graph(Artifact(task.graph)), block_path(task.number)
    first, stop = graph.block_rows[task.number : task.number + 2]
    weights = graph.weights(task.number)
    pointers = np.zeros(stop - first + 1, np.int64)
    with task.writer.task(task.name) as output, block_aside(task.writer, path) as aside:
        dtype = None if weights is None else weights.dtype
        block = BlockWriter(aside, task.number, graph.num_vertices, dtype, codec_of(graph))
        with OpenFiles(task.writer.work) as files:
            for kept in _kept(task, graph, files):
                block.append(kept.columns, kept.weights)
                pointers[kept.first_row - first + 1 : kept.first_row - first + 1 + len(kept.counts)] += kept.counts
        np.cumsum(pointers, out=pointers)
        output.arrays = block.close(first, pointers)
        output.facts = {"nnz": int(pointers[-1]), "held_out": graph.block_nnz[task.number] - int(pointers[-1])}
    return graph.block_nnz[task.number]


@dataclass(frozen=True)
class _Kept:
    """Consecutive entries that stay, and the number of such entries in each of some consecutive rows."""

    columns: NDArray[Any]
    weights: NDArray[Any] | None
    first_row: int
    counts: NDArray[np.int64]


def _kept(task: MessageBlockTask, graph: Graph, files: OpenFiles) -> Iterator[_Kept]:
    """The entries of the block that are not held out, some at a time."""
    held_out = task.entries.rows(task.writer.work, files)
    columns, weights = graph.columns(task.number), graph.weights(task.number)
    step = more_rows(HELD_ENTRIES, task.memory, task.needs.memory, _HELD_BYTES)
    for span in row_ranges(graph, task.number, task.writer.scratch.range_rows):
        last = span.first + len(span.pointers) - 1
        for held in held_out.steps(_FILED_BYTES * step, span.first, last) if last > span.first else ():
            _check_memory(task, held)
            offsets, column = _by_row(held, graph.num_vertices)
            first, stop = held.positions
            pointers = span.pointers[first - span.first : stop - span.first + 1]
            for begin, end in columns.ranges(task.writer.scratch.step_entries, int(pointers[0]), int(pointers[-1])):
                found, place = columns.read(begin, end), np.full(len(column), -1, np.int64)
                find_columns(pointers, begin, found, offsets, column, place)
                removed = distinct(place[place >= 0])
                keep = np.ones(len(found), np.bool_)
                keep[removed] = False
                here = np.clip(pointers, begin, end)
                counts = here[1:] - here[:-1]
                counts -= np.bincount(np.searchsorted(pointers, begin + removed, "right") - 1, minlength=len(counts))
                weight = None if weights is None else weights.read(begin, end)[keep]
                yield _Kept(found[keep], weight, first, counts)


def _check_memory(task: MessageBlockTask, held: SectionRows) -> None:
    most = HELD_ENTRIES + (working_memory(task.memory) - task.needs.memory) // _HELD_BYTES
    if held.num_rows > most:
        raise BudgetError(
            f"{task.graph}: {held.num_rows:,} edges of vertex {held.positions[0]} are held out, too many for"
            f" {task.memory // MIB:,} MiB per worker; increase --memory"
        )


def more_rows(rows: int, memory: int, planned: int, row_bytes: int) -> int:
    """Rows that a task processes together: as planned, or up to eight times the planned number if the memory allows.

    In fewer steps, rows are looked up in the runs of all tasks less often.

    Args:
        rows: planned number of rows.
        memory: bytes that the worker may use.
        planned: bytes that the task holds with these rows.
        row_bytes: bytes of a row.
    """
    return min(8 * rows, rows + max(0, working_memory(memory) - planned) // row_bytes)


def block_memory(num_rows: int, entry_bytes: int, scratch: Scratch) -> int:
    """Bytes that a task holds to write a block of ``num_rows`` rows with few held-out entries each."""
    # Entries as read and as kept, and whether they are.
    entries = (2 * entry_bytes + 1) * scratch.step_entries
    return _ROW_BYTES * num_rows + RANGE_BYTES + entries + _HELD_BYTES * HELD_ENTRIES + WRITING_BYTES


def _by_row(held: SectionRows, num_vertices: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(num_rows + 1,) int64 where the held-out columns of each row of a range begin, and the columns, ascending."""
    first, stop = held.positions
    if not held.num_rows:
        return np.zeros(stop - first + 1, np.int64), np.empty(0, np.int64)
    row = held.position - first
    offsets = np.zeros(stop - first + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=stop - first), out=offsets[1:])
    # Numbers are sorted several times as fast as pairs. They fit, as the rows belong to a range of a block.
    keys = np.sort(row * num_vertices + held.column("column"))
    return offsets, keys % num_vertices


@kernel
def find_columns(
    pointers: NDArray[np.int64],
    start: int,
    columns: NDArray[Any],
    offsets: NDArray[np.int64],
    asked: NDArray[np.int64],
    place: NDArray[np.int64],
) -> None:
    """Find columns among consecutive entries of a block.

    Args:
        pointers: (num_rows + 1,) int64 positions of rows.
        start: position of the first entry, which may lie within a row.
        columns: (num_entries,) columns of the entries, ascending within a row.
        offsets: (num_rows + 1,) int64 where the columns that are asked for in each row begin.
        asked: these columns, ascending within a row, possibly repeated.
        place: (num_asked,) int64, receives the positions of the found columns among these entries.
    """
    row = count_at_most(pointers, start) - 1
    position, stop = start, start + len(columns)
    while position < stop:
        while pointers[row + 1] <= position:
            row += 1
        end = min(pointers[row + 1], stop)
        at, last = offsets[row], offsets[row + 1]
        at += count_below(asked[at:last], int(columns[position - start]))
        k = position - start
        while at < last and k < end - start:
            column = np.int64(columns[k])
            if asked[at] < column:
                at += 1
            elif asked[at] == column:
                place[at] = k
                at += 1
            else:
                k += 1
        position = end


@dataclass(frozen=True)
class CopyTask(Task):
    """Copies rows ``start`` to ``stop`` of an array about the vertices."""

    graph: Path
    array: str
    start: int
    stop: int


def copy_rows(task: CopyTask) -> int:
    """Copy some rows of an array; returns their number."""
    reader = Artifact(task.graph).array(task.array)
    with task.writer.task(task.name) as output:
        for start in range(task.start, task.stop, reader.chunk_rows):
            rows = reader.read(start, min(start + reader.chunk_rows, task.stop))
            output.add(write_rows(task.writer.path, task.array, start, rows))
    return task.stop - task.start


def codec_of(graph: Graph) -> str:
    """The compression of a graph, which one without held-out edges gets, too."""
    return str(graph.artifact.parameters.get("codec", DEFAULT_CODEC))


@dataclass(frozen=True, eq=False)
class MessagePlan:
    """The phases that make a graph without held-out edges.

    Attributes:
        writer: of the new graph.
        links: folder of the links artifact.
        pairs: its arrays of pairs that are held out.
        graph: folder of the graph artifact.
        sizes: of the graph.
        copied: rows, rows of a chunk and bytes of a row of its arrays about vertices.
        memory: bytes that a worker may use.
        both: a pair holds both directions out, as it does in a symmetric graph.
    """

    writer: ArtifactWriter
    links: Path
    pairs: Sequence[ArrayRecord]
    graph: Path
    sizes: GraphSizes
    copied: Mapping[str, tuple[int, int, int]]
    memory: int
    both: bool

    def phases(self) -> list[Phase]:
        """All phases; the last ones make the arrays."""
        pieces = [record_of_piece(record, number) for record in self.pairs for number in range(len(record.pieces))]
        entries = sum(record.shape[0] for record in self.pairs) * (2 if self.both else 1)
        shuffle = Shuffle("held-out", self.sizes.num_vertices, (Column("column", "int64"),), self.sizes.num_blocks)
        plan = ShufflePlan(self.writer, shuffle, len(pieces), 8 * entries, entries)
        return [
            self._route(plan, pieces),
            *plan.merges("merge held-out edges"),
            self._blocks(plan, entries),
            degree_phase(self.writer, self.block_rows),
            self._copies(),
        ]

    @property
    def block_rows(self) -> list[int]:
        """(num_blocks + 1) first row of each block, and the number of vertices."""
        return [0, *np.cumsum(self.sizes.block_rows).tolist()]

    def _route(self, plan: ShufflePlan, pieces: Sequence[ArrayRecord]) -> Phase:
        tasks = []
        for number, record in enumerate(pieces):
            (piece,) = record.pieces
            pairs, both = piece.stop - piece.start, 2 if self.both else 1
            # Some chunks of pairs at a time, whose entries are sorted by row.
            memory = WRITING_BYTES + 48 * both * min(pairs, _ROUTED_CHUNKS * CHUNK_BYTES // 16)
            needs = Needs(16 * pairs, 16 * both * pairs, memory=memory)
            where = self.links, record, self.both, plan.shuffle, plan.lane(number)
            tasks.append(HeldOutTask(self.writer, f"held/{number:05d}", needs, *where))
        return Phase("held-out edges", route_held_out, tasks, "pairs", files=(plan.files,))

    def _blocks(self, plan: ShufflePlan, entries: int) -> Phase:
        rows, tasks, entry_bytes = self.block_rows, [], self.sizes.entry_bytes
        for number, nnz in enumerate(self.sizes.block_nnz):
            first, stop = rows[number], rows[number + 1]
            own = entries * nnz // max(1, self.sizes.nnz)
            pointers = 8 * (stop - first + 1)
            read, written = entry_bytes * nnz + pointers, entry_bytes * (nnz - own) + pointers
            opens = plan.opens((first, stop))
            memory = block_memory(stop - first, entry_bytes, self.writer.scratch)
            needs = Needs(read + 16 * own, written, opens, memory)
            how = self.graph, number, plan.shuffle, self.memory
            tasks.append(MessageBlockTask(self.writer, block_path(number), needs, *how))
        reads = (plan.read_files,)
        return Phase("message graph", write_message_block, tasks, reads=reads, makes_arrays=True, arrays=2)

    def _copies(self) -> Phase:
        tasks = []
        for array, (total, chunk_rows, row_bytes) in self.copied.items():
            step = _COPIED_CHUNKS * chunk_rows
            for number, start in enumerate(range(0, total, step)):
                stop = min(start + step, total)
                needs = Needs(row_bytes * (stop - start), row_bytes * (stop - start), memory=WRITING_BYTES)
                name = f"copy/{array}/{number:05d}"
                tasks.append(CopyTask(self.writer, name, needs, self.graph, array, start, stop))
        return Phase("names of vertices", copy_rows, tasks, "rows", makes_arrays=True)

    def create_arrays(self, graph: Graph) -> None:
        """Create the arrays that several tasks write."""
        path, codec, shape = self.writer.path, codec_of(graph), (graph.num_vertices,)
        create_array(path, "degree", shape, "int64", ("vertex",), CHUNK_VERTICES, codec)
        for name, (_, chunk_rows, _) in self.copied.items():
            record = graph.artifact.record(name)
            create_array(path, name, record.shape, record.dtype, record.dims, chunk_rows, codec)


def copied_arrays(graph: Graph) -> dict[str, tuple[int, int, int]]:
    """Rows, rows of a chunk and bytes of a row of the arrays of a graph about its vertices."""
    arrays = [graph.artifact.array(name) for name in _VERTEX_ARRAYS if name in graph.artifact]
    return {each.record.path: (len(each), each.chunk_rows, each.dtype.itemsize) for each in arrays}


def record_of_piece(record: ArrayRecord, number: int) -> ArrayRecord:
    """The record of an array with one of its pieces."""
    return ArrayRecord(record.path, record.shape, record.dtype, record.dims, (record.pieces[number],))
