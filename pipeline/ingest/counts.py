"""What an ingest will do, phase by phase, counted from the limits that it runs with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gnnloom.pipeline.ingest.compact_ids import file_edges, range_ids
from gnnloom.pipeline.ingest.tables.plan import TablePlan
from gnnloom.pipeline.ingest.tables.row_file import RowType
from gnnloom.pipeline.ingest.vertices import task_rows
from gnnloom.pipeline.matrix_sort.counts import SortSizes, sort_counts
from gnnloom.pipeline.sources.reading.keyed_rows import table_ranges
from gnnloom.pipeline.tasks.phase_counts import PhaseCount

#: Bytes of an id in a table, as a number.
_ID_BYTES = 8


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


def vertex_counts(
    num_vertices: int, types: Mapping[str, tuple[str, tuple[int, ...]]], memory: int, *, by_id: bool
) -> list[PhaseCount]:
    """What storing vertex data will do, if tasks can share every array.

    Args:
        num_vertices: vertices of the graph.
        types: dtype and trailing shape of each array.
        memory: bytes that a worker may use.
        by_id: whether the arrays come from tables that name the vertex of each row, as binary numbers.
    """
    phases = []
    for array, (dtype, trailing) in types.items():
        rows, step = RowType(dtype, trailing).num_bytes, task_rows(array, (num_vertices, *trailing))
        if by_id:
            table = num_vertices * (_ID_BYTES + rows)
            plan, ranges = TablePlan(num_vertices, step, rows, _ID_BYTES), len(table_ranges(num_vertices, table))
            found = plan.counts(num_vertices, table, ranges, memory)
        else:
            total, largest = num_vertices * rows, min(num_vertices, step) * rows
            found = [PhaseCount("write rows", -(-num_vertices // step), 0, 0, 1, total, total, largest)]
        phases += [replace(phase, phase=f"{phase.phase}: {array}") for phase in found]
    return phases
