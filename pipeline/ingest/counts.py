"""What an ingest will do, phase by phase, counted from the limits that it runs with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gnnloom.pipeline.external_sort.lanes import num_shared_files
from gnnloom.pipeline.ingest.compact_ids import file_edges, range_ids
from gnnloom.pipeline.ingest.names import collect
from gnnloom.pipeline.ingest.names.arrays import task_elements
from gnnloom.pipeline.ingest.names.merge import num_name_ranges
from gnnloom.pipeline.ingest.tables.buckets import VertexBuckets
from gnnloom.pipeline.ingest.tables.table_counts import table_counts
from gnnloom.pipeline.ingest.vertices import task_rows
from gnnloom.pipeline.matrix_sort.counts import SortSizes, sort_counts
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.sources.reading.keyed_rows import table_ranges
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
    if name_bytes:
        return named_counts(sizes, memory, name_bytes)
    return compact_counts(sizes, memory) if compact else sort_counts(sizes, memory)


def compact_counts(sizes: SortSizes, memory: int) -> list[PhaseCount]:
    """What an ingest will do that renumbers ids, if no id occurs twice among the edges of a file, which is the most.

    Args:
        sizes: the edges.
        memory: bytes that a worker may use.
    """
    tasks = max(1, sizes.num_ranges)
    in_range = -(-sizes.edges // tasks)
    files = tasks * -(-in_range // file_edges(memory))
    ids = 8 * 2 * sizes.edges
    ranges = max(1, 2 * sizes.edges // range_ids(files))
    shared = num_shared_files(tasks)
    # A number for every collected id, and the distinct ids.
    merged = ids + min(ids, 8 * sizes.num_vertices)
    range_bytes, largest = -(-sizes.source_bytes // tasks), -(-ids // ranges)
    scatter, *sort, vertices = sort_counts(sizes, memory)
    return [
        PhaseCount("collect", tasks, tasks, 1, 1, sizes.source_bytes, ids, range_bytes),
        PhaseCount("merge ids", ranges, ranges * shared, shared, 1, ids, merged, largest),
        _renumbering(scatter, 2 * ids),
        *sort,
        _storing_ids(vertices, ranges),
    ]


def _renumbering(scatter: PhaseCount, num_bytes: int) -> PhaseCount:
    """The scatter of a sort that also reads ids and their numbers: each task those of one lane."""
    return replace(
        scatter,
        opens=scatter.opens + scatter.tasks,
        most_opens=scatter.most_opens + 1,
        arrays=scatter.arrays + 2,
        bytes_read=scatter.bytes_read + num_bytes,
        largest_task=scatter.largest_task + -(-num_bytes // max(1, scatter.tasks)),
    )


def _storing_ids(vertices: PhaseCount, ranges: int) -> PhaseCount:
    """The last phase of a sort that also stores the original ids, from the merged ranges of ids."""
    opens, most = _opens_of_ranges(vertices.tasks, ranges)
    # An id has as many bytes as a degree.
    return replace(
        vertices,
        opens=opens,
        most_opens=most,
        bytes_read=2 * vertices.bytes_read,
        bytes_written=2 * vertices.bytes_written,
        largest_task=2 * vertices.largest_task,
    )


def _opens_of_ranges(tasks: int, ranges: int) -> tuple[int, int]:
    """Opens of all tasks, and of one at most, if each reads an equal part of merged ranges, which are in lanes."""
    most = min(num_shared_files(ranges), -(-ranges // tasks) + 1)
    return min(most * tasks, tasks + ranges - 1), most


def named_counts(sizes: SortSizes, memory: int, name_bytes: float) -> list[PhaseCount]:
    """What an ingest of names will do if no name occurs twice among the edges of a file, which is the most.

    Args:
        sizes: the edges; each has the text of two names and a separator after each of them.
        memory: bytes that a worker may use.
        name_bytes: average bytes of a name.
    """
    tasks, in_file = max(1, sizes.num_ranges), file_edges_of_names(memory, name_bytes)
    in_range = -(-sizes.edges // tasks)
    files = -(-in_range // in_file)
    shared = num_shared_files(tasks)
    source = int(2 * sizes.edges * (name_bytes + 1))
    names = 2 * sizes.edges
    # A name has its text and an offset, and in a file of its own a number; an edge has two positions.
    collected, numbers = int(names * (8 + name_bytes)), 8 * names
    ends = 8 * sizes.edges
    weights = 4 * sizes.edges if sizes.weighted else 0
    ranges = num_name_ranges(collected, tasks * files)
    table = int(sizes.num_vertices * (8 + name_bytes))
    # The numbers of a file's names, and the positions that its edges have among them.
    read = numbers + ends + weights
    scatter, *sort = sort_counts(sizes, memory)
    return [
        PhaseCount("names", tasks, tasks, 1, 1, source, collected + numbers + ends + weights, -(-source // tasks)),
        PhaseCount(
            "merge names",
            ranges,
            ranges * shared,
            shared,
            1,
            collected,
            numbers + min(collected, table),
            -(-collected // ranges),
        ),
        replace(
            scatter,
            opens=tasks,
            most_opens=1,
            arrays=2,
            bytes_read=read,
            largest_task=-(-read // tasks),
        ),
        *sort,
        *_name_array_counts(sizes.num_vertices, name_bytes, ranges),
    ]


def file_edges_of_names(memory: int, name_bytes: float) -> int:
    """Fewest edges whose names are collected in one file: a file ends with the chunk that makes it exceed the limit."""
    limit, many = collect.spill_limit(memory), 1 << 20
    # Of many edges, because the average name need not have a whole number of bytes.
    return int(limit * many // collect.spill_memory(int(2 * many * (8 + name_bytes)), 2 * many, many)) + 1


def _name_array_counts(num_vertices: int, name_bytes: float, ranges: int) -> list[PhaseCount]:
    """What storing the names of the vertices will do."""
    counts = []
    sizes = (("original_name_offset", 8, num_vertices + 1), ("original_name", 1, int(num_vertices * name_bytes)))
    for array, width, size in sizes:
        step, num_bytes = task_elements(array), width * size
        tasks = -(-size // step)
        opens, most = _opens_of_ranges(tasks, ranges)
        largest = width * min(size, step)
        counts.append(PhaseCount(f"write {array}", tasks, opens, most, 1, num_bytes, num_bytes, largest))
    return counts


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
