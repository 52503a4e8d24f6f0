"""What a bucket sort will do, counted from the limits that it runs with."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.external_sort.lanes import num_shared_files
from gnnloom.pipeline.external_sort.merge_levels import count_merges, merge_levels
from gnnloom.pipeline.external_sort.spill import MAX_VERTICES, entry_bytes, unit_shift
from gnnloom.pipeline.matrix_sort import merge_runs
from gnnloom.pipeline.matrix_sort.degrees import TASK_VERTICES
from gnnloom.pipeline.matrix_sort.scatter import spill_edges
from gnnloom.pipeline.matrix_sort.sort_plan import BLOCK_ENTRIES, BLOCK_ROWS
from gnnloom.pipeline.tasks.phase_counts import PhaseCount


@dataclass(frozen=True)
class SortSizes:
    """The edges that are sorted, spread evenly over the rows and over the ranges of the source.

    Attributes:
        edges: edges of the source.
        num_ranges: tasks that read it.
    """

    num_vertices: int
    edges: int
    num_ranges: int
    undirected: bool
    weighted: bool

    @property
    def source_bytes(self) -> int:
        """Bytes that reading the source takes, if it has two int64 ids for each edge."""
        return 16 * self.edges

    @property
    def entries(self) -> int:
        """Entries of the matrix, before equal ones are merged."""
        return self.edges * (2 if self.undirected else 1)

    @property
    def spilled_bytes(self) -> int:
        """Bytes of all entries in spill files."""
        return self.entries * (entry_bytes(self.num_vertices - 1) + (4 if self.weighted else 0))

    def num_files(self, memory: int) -> int:
        """Spill files of workers that may use ``memory`` bytes each."""
        in_range = -(-self.edges // max(1, self.num_ranges))
        return self.num_ranges * -(-in_range // spill_edges(memory, self.undirected))

    def spill_copies(self, memory: int) -> int:
        """Copies of every entry on disk before the first block is sorted: one in the files of each level of merges."""
        return len(merge_levels(self.num_files(memory), merge_runs.FAN_IN))

    @property
    def num_units(self) -> int:
        return ((self.num_vertices - 1) >> unit_shift(self.num_vertices - 1)) + 1


def sort_counts(sizes: SortSizes, memory: int) -> list[PhaseCount]:
    """What the phases of a sort will do.

    Args:
        memory: bytes that a worker may use.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    files, units, spilled = sizes.num_files(memory), sizes.num_units, sizes.spilled_bytes
    # Low and high bits, offsets, and weights.
    arrays = 4 if sizes.weighted else 3
    range_bytes = -(-sizes.source_bytes // max(1, sizes.num_ranges))
    written = spilled + files * 8 * (units + 1)
    phases = [PhaseCount("scatter", sizes.num_ranges, sizes.num_ranges, 1, 1, sizes.source_bytes, written, range_bytes)]
    levels = merge_levels(files, merge_runs.FAN_IN)
    # Files with the lanes of the level before.
    shared = num_shared_files(sizes.num_ranges)
    for level in levels[1:]:
        count = count_merges(levels, level, units)
        read = spilled + count.sources * 8 * (-(-units // count.spans) + 1)
        made = spilled + count.tasks * 8 * (units + 1)
        largest, most = read * count.most_sources // count.sources, min(shared, count.most_sources)
        phases.append(PhaseCount("merge", count.tasks, most * count.tasks, most, arrays, read, made, largest))
        shared = num_shared_files(count.tasks)
    last, blocks = levels[-1], even_blocks(sizes.num_vertices, sizes.entries)
    spans = min(last.spans, units)
    # A block that does not begin where a span does has files of one span more.
    most = min(shared, last.sources * min(spans, -(-spans // blocks) + (spans > 1)))
    sources = last.sources * (blocks + spans - 1)
    opens = min(most * blocks, sources)
    read = spilled + sources * 8 * (-(-units // blocks) + 1)
    index_bytes = 4 if sizes.num_vertices <= 1 << 31 else 8
    output = sizes.entries * (index_bytes + (4 if sizes.weighted else 0)) + 8 * sizes.num_vertices
    phases.append(PhaseCount("sort", blocks, opens, most, arrays, read, output, -(-read // blocks)))
    ids = 8 * sizes.num_vertices
    tasks = -(-sizes.num_vertices // TASK_VERTICES)
    phases.append(PhaseCount("vertices", tasks, 0, 0, 1, ids, ids, min(ids, 8 * TASK_VERTICES)))
    return phases


def even_blocks(num_vertices: int, entries: int) -> int:
    """Row blocks, if the entries are spread evenly over the rows."""
    return max(1, -(-num_vertices // even_block_rows(num_vertices, entries)))


def even_block_rows(num_vertices: int, entries: int) -> int:
    """Rows of a block, if the entries are spread evenly over the rows."""
    unit = 1 << unit_shift(min(num_vertices, MAX_VERTICES) - 1)
    # Every row may get a self loop, which counts as an entry.
    even = BLOCK_ENTRIES * num_vertices // (entries + num_vertices)
    # Blocks are whole units.
    return min(num_vertices, max(unit, min(BLOCK_ROWS, even) // unit * unit))
