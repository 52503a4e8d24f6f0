"""What an ingest will do, phase by phase, counted from the limits that it runs with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gnnloom.pipeline.external_sort.lanes import num_shared_files
from gnnloom.pipeline.ingest.keys.arrays import KEY_ARRAYS, KeyArray
from gnnloom.pipeline.ingest.keys.collect import EDGE_MEMORY, file_memory
from gnnloom.pipeline.ingest.keys.key_types import KEY_TYPES, sort_memory
from gnnloom.pipeline.ingest.keys.merge import num_key_ranges, number_shuffle
from gnnloom.pipeline.ingest.tables.buckets import VertexBuckets
from gnnloom.pipeline.ingest.tables.table_counts import table_counts
from gnnloom.pipeline.ingest.vertices import task_rows
from gnnloom.pipeline.matrix_sort.counts import SortSizes, sort_counts
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.sources.vertex_data.keyed_rows import table_ranges
from gnnloom.pipeline.tasks.phase import count as phases_counted
from gnnloom.pipeline.tasks.phase_counts import PhaseCount

#: Bytes of an id in a table, as a number.
_ID_BYTES = 8


def ingest_counts(sizes: SortSizes, memory: int, *, compact: bool = False, name_bytes: float = 0.0) -> list[PhaseCount]:
    """What the phases of an ingest will do.

    Args:
        sizes: the edges.
        memory: bytes that a worker may use.
        compact: whether ids are renumbered.
        name_bytes: average bytes of a name, if ids are names; 0 if they are numbers.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    if not compact:
        return sort_counts(sizes, memory)
    return numbered_counts(sizes, memory, name_bytes)


def file_edges(memory: int, ids: str, name_bytes: float = 0.0) -> int:
    """Edges whose keys are collected in one file at least, unless it is the last of a range, by such a worker."""
    many = 1 << 20
    # Of many edges, because the average name need not have a whole number of bytes.
    counts = (2 * many, int(2 * many * name_bytes))[: len(KEY_TYPES[ids].widths)]
    return max(1, file_memory(memory) * many // (sort_memory(KEY_TYPES[ids], counts) + EDGE_MEMORY * many))


def numbered_counts(sizes: SortSizes, memory: int, name_bytes: float) -> list[PhaseCount]:
    """What an ingest will do that numbers ids or names, if no key occurs twice among the edges of a file: the most.

    Args:
        sizes: the edges; if ids are names, each has the text of two names and a separator after each of them.
        memory: bytes that a worker may use.
        name_bytes: average bytes of a name; 0 if ids are numbers.
    """
    ids = "names" if name_bytes else "compact"
    tasks, in_file = max(1, sizes.num_ranges), file_edges(memory, ids, name_bytes)
    files = tasks * -(-sizes.edges // (tasks * in_file))
    source = int(2 * sizes.edges * (name_bytes + 1)) if name_bytes else sizes.source_bytes
    keys, key_bytes = 2 * sizes.edges, 8 + name_bytes
    # A key and its number; an edge has two positions.
    collected, numbers, table = int(keys * key_bytes), 8 * keys, int(sizes.num_vertices * key_bytes)
    ends = (12 if sizes.weighted else 8) * sizes.edges
    ranges, shared = num_key_ranges(collected, files), num_shared_files(tasks)
    merged, largest = numbers + min(collected, table), -(-collected // ranges)
    shuffled = ShufflePlan.stated(number_shuffle(files, tasks), ranges, numbers, ranges * files)
    scatter, *sort = sort_counts(sizes, memory)
    opens = 1 + shuffled.opens((0, 1))
    return [
        PhaseCount("collect", tasks, tasks, 1, 1, source, collected + ends, -(-source // tasks)),
        PhaseCount("merge keys", ranges, ranges * shared, shared, 1, collected, merged, largest),
        *phases_counted(shuffled.merges("merge numbers")),
        replace(
            scatter,
            opens=opens * tasks,
            most_opens=opens,
            arrays=3,
            bytes_read=numbers + ends,
            largest_task=-(-(numbers + ends) // tasks),
        ),
        *sort,
        *(_array_count(array, sizes.num_vertices, name_bytes, ranges) for array in KEY_ARRAYS[ids]),
    ]


def _array_count(array: KeyArray, num_vertices: int, name_bytes: float, ranges: int) -> PhaseCount:
    """What storing an array of the keys of the vertices will do, from merged ranges of keys, which are in lanes."""
    size = num_vertices + array.before if array.stored == 0 else int(num_vertices * name_bytes)
    width, step = np.dtype(array.dtype).itemsize, array.task_elements
    tasks = -(-size // step)
    most = min(num_shared_files(ranges), -(-ranges // tasks) + 1)
    opens = min(most * tasks, tasks + ranges - 1)
    return PhaseCount(f"write {array.name}", tasks, opens, most, 1, width * size, width * size, width * min(size, step))


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
        values, step = Column("value", dtype, trailing), task_rows(array, (num_vertices, *trailing))
        if by_id:
            table = num_vertices * (_ID_BYTES + values.num_bytes)
            buckets, ranges = VertexBuckets(num_vertices, step, values, _ID_BYTES), table_ranges(num_vertices, table)
            found = table_counts(buckets, num_vertices, table, len(ranges), memory)
        else:
            total, largest = num_vertices * values.num_bytes, min(num_vertices, step) * values.num_bytes
            found = [PhaseCount("write rows", -(-num_vertices // step), 0, 0, 1, total, total, largest)]
        phases += [replace(phase, phase=f"{phase.phase}: {array}") for phase in found]
    return phases
