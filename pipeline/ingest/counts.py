"""What an ingest will do, phase by phase, counted from the limits that it runs with."""

from __future__ import annotations

from gnnloom.pipeline.ingest.compact_ids import file_edges, range_ids
from gnnloom.pipeline.matrix_sort.counts import SortSizes, sort_counts
from gnnloom.pipeline.tasks.phase_counts import PhaseCount


def ingest_counts(sizes: SortSizes, memory: int, *, compact: bool = False) -> list[PhaseCount]:
    """What the phases of an ingest will do.

    Args:
        sizes: the edges.
        memory: bytes that a worker may use.
        compact: whether ids are renumbered.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    ids = id_counts(sizes, memory) if compact else []
    return [*ids, *sort_counts(sizes, memory)]


def id_counts(sizes: SortSizes, memory: int) -> list[PhaseCount]:
    """What renumbering will do if no id occurs twice among the edges of a file, which is the most.

    Args:
        sizes: the edges.
        memory: bytes that a worker may use.
    """
    tasks = max(1, sizes.num_ranges)
    in_range = -(-sizes.edges // tasks)
    files = tasks * -(-in_range // file_edges(memory))
    # Every id is on disk with its number.
    collected = 8 * 2 * sizes.edges
    ranges = max(1, 2 * sizes.edges // range_ids(files))
    written = collected + min(collected, 8 * sizes.num_vertices)
    range_bytes, largest = -(-sizes.source_bytes // tasks), -(-collected // ranges)
    return [
        PhaseCount("collect", tasks, tasks, 1, 1, sizes.source_bytes, collected, range_bytes),
        PhaseCount("merge ids", ranges, ranges * files, files, 1, collected, written, largest),
    ]
