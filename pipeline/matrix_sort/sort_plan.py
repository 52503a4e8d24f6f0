"""The plan of a bucket sort, from the results of pass 1, or from stated sizes of edges that were not read.

Pass 1 reads every range of the source once and scatters its entries by row into spill files
(:mod:`gnnloom.pipeline.matrix_sort.scatter`). If these are many, they are merged
(:mod:`gnnloom.pipeline.matrix_sort.spilled`). Pass 2 sorts, merges and stores row blocks of about equal size
(:mod:`gnnloom.pipeline.matrix_sort.blocks`), and then the degrees of the vertices.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise, starmap
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import grouped
from gnnloom.pipeline.external_sort.radix import KEEP
from gnnloom.pipeline.external_sort.spill import KeyForm
from gnnloom.pipeline.matrix_sort.blocks import (
    ROW_MEMORY,
    TASK_VERTICES,
    BlockTask,
    DegreeTask,
    MatrixForm,
    block_capacity,
    make_block,
    write_degrees,
)
from gnnloom.pipeline.matrix_sort.scatter import (
    ScatterRangeTask,
    range_name,
    scatter_memory,
    scatter_range,
    spill_edges,
)
from gnnloom.pipeline.matrix_sort.spilled import SpillPlan
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.sources.source import SourceRange
from gnnloom.pipeline.tasks.phase import Needs, Phase
from gnnloom.storage.artifacts.block_matrix import block_path
from gnnloom.storage.disk.files import parsing, read_json, reading_work, write_json
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.format.array_metadata import DEFAULT_CODEC
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.ranges import Span


@dataclass(frozen=True)
class SortOptions:
    """Options that decide how the edges become a matrix.

    Attributes:
        undirected: store every edge in both directions.
        self_loops: ``add`` one to every row, ``keep`` the source's self-loops, or ``remove`` them.
        merge: how the weights or times of equal edges are merged: ``sum``, ``min``, ``max`` or ``first``. With None,
            they are summed, and the two directions of an undirected edge must have equal sums: they are one edge. With
            ``keep``, equal edges stay apart, which requires directed edges and no added loops.
        codec: compression of the arrays; see :data:`gnnloom.storage.format.chunks.CODECS`.
        has_ticks: times are whole numbers; see :mod:`gnnloom.storage.matrix.ticks`.
        compares_directions: determine whether each directed edge has its reverse with the same value.
        values: name of the array of values; empty for ``data``, or ``time``.
    """

    undirected: bool = False
    self_loops: str = "add"
    merge: str | None = "sum"
    codec: str = DEFAULT_CODEC
    has_ticks: bool = False
    compares_directions: bool = False
    values: str = ""

    def marks(self, value_bytes: int) -> bool:
        """Whether entries are marked with their direction, if edges have values of some bytes."""
        return self.undirected and self.merge is None and value_bytes > 0


@dataclass(frozen=True)
class SortSizes:
    """The edges that are sorted, and the row blocks that they become.

    Attributes:
        num_vertices: rows of the matrix, and columns unless it has other ones.
        edges: edges of the source.
        num_ranges: tasks that read it.
        undirected: whether every edge is stored in both directions.
        value_bytes: bytes of the value of an edge: 4 of a weight, 8 of a time; 0 if it has none.
        num_files: spill files of pass 1.
        block_units: (num_blocks + 1) first unit of each block, and the number of units; a unit has 2^shift rows.
        block_entries: (num_blocks) entries of each block in the spill files.
        spill_bytes: bytes of the spill files.
        self_loops: edges of the source from a vertex to itself.
        min_id: lowest id of the source.
        other_columns: number of columns; None for a square matrix.
    """

    num_vertices: int
    edges: int
    num_ranges: int
    undirected: bool
    value_bytes: int
    num_files: int = 0
    block_units: Sequence[int] = field(default=(0, 1), repr=False)
    block_entries: Sequence[int] = field(default=(0,), repr=False)
    spill_bytes: int = 0
    self_loops: int = 0
    min_id: int = 0
    other_columns: int | None = None

    @classmethod
    def even(
        cls,
        num_vertices: int,
        edges: int,
        num_ranges: int,
        memory: int,
        *,
        undirected: bool,
        value_bytes: int = 0,
        marked: bool = False,
        other_columns: int | None = None,
        scratch: Scratch = BESIDE,
    ) -> Self:
        """The sizes of edges that are spread evenly over the rows and over the ranges of the source.

        Args:
            memory: bytes that a worker may use.
            marked: whether entries are marked with their direction.
            other_columns: number of columns; None for a square matrix.
            scratch: sizes of the row blocks and of spill files.

        Raises:
            BudgetError: the memory leaves no room for buffers.
        """
        form = KeyForm(num_vertices, marked, other_columns)
        shift, entries = form.shift, edges * (2 if undirected else 1)
        num_units = ((num_vertices - 1) >> shift) + 1
        ends = [entries * min(unit << shift, num_vertices) // num_vertices for unit in range(num_units + 1)]
        unit_entries = np.array([stop - start for start, stop in pairwise(ends)], np.int64)
        units, block_entries = cut_blocks(unit_entries, shift, scratch, add_loops=True)
        in_range = -(-edges // max(1, num_ranges))
        num_files = num_ranges * -(-in_range // spill_edges(memory, undirected, value_bytes, scratch))
        width = form.entry_bytes + value_bytes
        spill_bytes = entries * width + num_files * 8 * (num_units + 1)
        of_source = (num_vertices, edges, num_ranges, undirected, value_bytes)
        return cls(*of_source, num_files, units, block_entries, spill_bytes, other_columns=other_columns)

    @property
    def shift(self) -> int:
        """log2 of the rows of a unit."""
        return KeyForm(self.num_vertices, other_columns=self.other_columns).shift

    @property
    def num_units(self) -> int:
        return ((self.num_vertices - 1) >> self.shift) + 1

    @property
    def num_blocks(self) -> int:
        return len(self.block_entries)

    @property
    def block_rows(self) -> list[int]:
        """(num_blocks + 1) first row of each block, and the number of vertices."""
        return [min(unit << self.shift, self.num_vertices) for unit in self.block_units]

    def units(self, block: int) -> Span:
        """First and last (exclusive) unit of a block."""
        return self.block_units[block], self.block_units[block + 1]

    @property
    def entries(self) -> int:
        """Entries of the matrix, before equal ones are merged."""
        return sum(self.block_entries)

    def save(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what :meth:`save` wrote.

        Raises:
            DamagedWorkError: the file is damaged; without it, the sort makes it again.
        """
        with reading_work(path), parsing(path, "the sizes of a sort"):
            return cls(**read_json(path))


def cut_blocks(
    unit_entries: NDArray[np.int64], shift: int, scratch: Scratch, *, add_loops: bool
) -> tuple[list[int], list[int]]:
    """Cut the rows into blocks of about ``block_entries`` entries and at most ``block_rows`` rows.

    By the entries alone, never by ranges, workers or memory, so that the same edges give the same blocks.

    Args:
        unit_entries: (num_units,) entries of each unit.
        shift: log2 of the rows of a unit.
        scratch: sizes of the blocks.

    Returns:
        (num_blocks + 1) first unit of each block, and the number of units; (num_blocks) entries of each block.
    """
    load = unit_entries + (1 << shift if add_loops else 0)
    units = [0]
    for first, last in grouped(load, scratch.block_entries):
        step = max(1, scratch.block_rows >> shift)
        # A range with few entries may have any number of rows, so it is cut once more by rows alone.
        units.extend(range(first + step, last, step))
        units.append(last)
    return units, np.add.reduceat(unit_entries, units[:-1]).tolist()


@dataclass(frozen=True, eq=False)
class SortPlan:
    """The phases of a sort.

    Attributes:
        sizes: results of pass 1, or stated sizes. Before pass 1, only :attr:`scatter` may be used.
        memory: bytes that a worker may use.
        reading: needs of reading each range of the source; by default, two int64 ids for each edge.
        writer: the artifact to write.
        source: an :class:`~gnnloom.pipeline.sources.source.EdgeSource`; None for plans that are counted and not run.
        folder: beginning of the paths of the matrix's arrays, and of the names of its tasks and temporary files.
    """

    sizes: SortSizes
    options: SortOptions
    memory: int
    reading: Sequence[Needs] = ()
    writer: ArtifactWriter = field(default_factory=lambda: ArtifactWriter(Path(), "graph", ""))
    source: Any = None
    folder: str = ""

    def phases(self) -> list[Phase]:
        """All phases."""
        return [self.scatter, *self.spilled.merges("merge"), self._sort, self._vertices]

    @cached_property
    def ranges(self) -> Sequence[SourceRange]:
        """Range that each task of pass 1 reads."""
        if self.source is None:
            return [SourceRange(0, 0, 0)] * self.sizes.num_ranges
        found: Sequence[SourceRange] = self.source.ranges()
        return found

    @cached_property
    def spilled(self) -> SpillPlan:
        """Plan that brings the entries from pass 1 to pass 2."""
        sizes = self.sizes
        # Another division into ranges must not find the merged files of this one.
        digest = xxhash.xxh3_64_hexdigest(" ".join(starmap(range_name, enumerate(self.ranges))).encode())
        shuffle = Shuffle(f"{self.folder}spill/{digest}", sizes.num_units, (), sizes.num_blocks)
        num_tasks = len(self.ranges)
        return SpillPlan(self.writer, shuffle, num_tasks, sizes.spill_bytes, 0, sizes.num_files, self.keys)

    @cached_property
    def keys(self) -> KeyForm:
        """The form of the keys of the matrix."""
        sizes = self.sizes
        return KeyForm(sizes.num_vertices, self.options.marks(sizes.value_bytes), sizes.other_columns)

    @cached_property
    def scatter(self) -> Phase:
        """Pass 1."""
        sizes, count = self.sizes, max(1, len(self.ranges))
        reading = self.reading or [Needs(16 * sizes.edges // count)] * count
        memory = scatter_memory(
            -(-sizes.edges // count), self.memory, self.options.undirected, sizes.value_bytes, self.writer.scratch
        )
        written = -(-sizes.spill_bytes // count)
        options, spill = self.options, self.spilled.shuffle.name
        how = (options.undirected, options.self_loops == "remove", options.undirected and options.merge is None)
        tasks = []
        for number, (source_range, each) in enumerate(zip(self.ranges, reading, strict=False)):
            # With the digest of all ranges: a record of another range is not about this task.
            name = f"{self.folder}scatter/{number:05d}-{Path(spill).name}"
            needs = replace(each, writes=written, memory=each.memory + memory)
            what = (self.source, source_range, *how, self.memory, spill, self.spilled.lane(number))
            tasks.append(ScatterRangeTask(self.writer, name, needs, *what, sizes.other_columns is None))
        # Keys with their edges, numbers, and their index.
        arrays = 3 if self.reading else 1
        return Phase("scatter", scatter_range, tasks, files=(self.spilled.files,), arrays=arrays)

    @cached_property
    def _form(self) -> MatrixForm:
        sizes, options = self.sizes, self.options
        keeps = options.merge == KEEP
        merge = ("first" if keeps else options.merge or "sum") if sizes.value_bytes else None
        add_loops = options.self_loops == "add"
        how = options.codec, sizes.value_bytes, options.has_ticks, options.compares_directions
        return MatrixForm(self.keys, merge, add_loops, *how, keeps, options.values)

    @cached_property
    def _sort(self) -> Phase:
        # Large blocks first: a large one that starts last would delay the end.
        entries = self.sizes.block_entries
        order = sorted(range(self.sizes.num_blocks), key=lambda number: (-entries[number], number))
        arrays = 4 if self.sizes.value_bytes else 3
        tasks, reads = [self._block(number) for number in order], (self.spilled.read_files,)
        return Phase("sort", make_block, tasks, "entries", reads, makes_arrays=True, arrays=arrays)

    def _block(self, number: int) -> BlockTask:
        sizes, form, units = self.sizes, self._form, self.sizes.units(number)
        entries, rows = sizes.block_entries[number], form.rows_of(units)
        num_rows = rows[1] - rows[0]
        # Spill files also say where their buckets begin.
        read = sizes.spill_bytes * entries // max(1, sizes.entries) if entries else 0
        capacity = block_capacity(num_rows, self.memory, form, self.writer.scratch)
        needs = Needs(
            reads=read,
            writes=entries * form.entry_bytes + 8 * num_rows,
            opens=self.spilled.opens(units),
            memory=min(entries, capacity) * form.sort_bytes + ROW_MEMORY * num_rows,
        )
        name, spilled = f"{self.folder}{block_path(number)}", self.spilled.shuffle
        return BlockTask(self.writer, name, needs, number, spilled, form, units, entries, self.memory, self.folder)

    @cached_property
    def _vertices(self) -> Phase:
        return degree_phase(self.writer, self.sizes.block_rows, self.folder)


def degree_phase(writer: ArtifactWriter, block_rows: Sequence[int], folder: str = "") -> Phase:
    """The phase that writes the array ``degree``, which exists, from the row pointers of the stored blocks.

    Args:
        block_rows: (num_blocks + 1) first row of each block, and the number of vertices.
        folder: beginning of the paths of the matrix's arrays.
    """
    n, tasks = block_rows[-1], []
    for number, start in enumerate(range(0, n, TASK_VERTICES)):
        stop = min(start + TASK_VERTICES, n)
        blocks = range(bisect_right(block_rows, start) - 1, bisect_left(block_rows, stop))
        own = tuple((block, block_rows[block], block_rows[block + 1]) for block in blocks)
        needs = Needs(8 * (stop - start), 8 * (stop - start), memory=24 * (stop - start))
        tasks.append(DegreeTask(writer, f"{folder}vertex/{number:05d}", needs, (start, stop), own, folder))
    return Phase("vertices", write_degrees, tasks, "vertices", makes_arrays=True)
