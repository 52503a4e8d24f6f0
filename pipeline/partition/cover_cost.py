"""The memory and time of cover refinement; importing this loads no kernels."""

from __future__ import annotations

from dataclasses import replace

from gnnloom.pipeline.partition.partitioner import MethodCost, PartitionWorkload
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.storage.matrix.csr import index_dtype

#: Processor seconds of a pass for a million entries, measured on power-law graphs.
_PASS_SECONDS = 0.65
#: Bytes for each vertex and each node, and for each change that a tried move writes down.
_VERTEX_BYTES, _NODE_BYTES, _CHANGE_BYTES = 48, 44, 24


def with_cover_passes(cost: MethodCost, workload: PartitionWorkload) -> MethodCost:
    """The cost of a method, and of the passes of cover refinement that follow."""
    if not workload.cover_passes or workload.parts in {1, workload.num_vertices}:
        return cost
    num_vertices, nnz = workload.num_vertices, workload.nnz
    memory = cover_refinement_memory(num_vertices, nnz, workload.parts, is_symmetric=workload.symmetric)
    return replace(cost, memory=max(cost.memory, memory), cpu_seconds=cost.cpu_seconds + cover_seconds(workload))


def cover_seconds(workload: PartitionWorkload) -> float:
    """Processor seconds of the passes."""
    return _PASS_SECONDS * workload.cover_passes * workload.num_entries / 1e6


def cover_refinement_memory(num_vertices: int, nnz: int, parts: int, *, is_symmetric: bool) -> int:
    """Return the bytes that cover refinement holds in one process."""
    sides = 1 if is_symmetric else 2
    entries = (2 * index_dtype(sides * num_vertices).itemsize + 4) * sides * nnz
    of_nodes = (_VERTEX_BYTES + sides * _NODE_BYTES) * num_vertices
    return BASE_MEMORY + entries + of_nodes + _CHANGE_BYTES * most_changes(min(parts, num_vertices), sides)


def most_changes(parts: int, sides: int) -> int:
    """The most changes of a move: a path in each pair of parts that it leaves or joins, with two changes a step."""
    from gnnloom.pipeline.partition.model.cover_moves import PATH_ENTRIES  # noqa: PLC0415 - options need no moves

    return 4 * sides * parts * (PATH_ENTRIES + 3)
