"""What each method would take: predicted memory, disk and time, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.memory import BASE_MEMORY
from gnnloom.pipeline.partitioners.native import available_memory, native_memory
from gnnloom.pipeline.partitioners.presets import METHODS
from gnnloom.storage.graph import Graph

#: Processor seconds for a million pins and 8 parts, and the power of the parts that they grow with; measured on
#: power-law graphs, the hardest (lattices take a tenth).
_SECONDS = {
    ("mtkahypar", "deterministic"): (60.0, 0.5),
    ("mtkahypar", "deterministic-quality"): (150.0, 0.5),
    ("mtkahypar", "default"): (25.0, 0.4),
    ("mtkahypar", "quality"): (100.0, 0.5),
    ("mtkahypar", "highest-quality"): (300.0, 0.5),
    ("mtkahypar", "large-k"): (15.0, 0.2),
    ("kahypar", "recursive"): (150.0, 0.3),
    ("kahypar", "direct"): (600.0, 0.5),
    ("metis", ""): (1.0, 0.3),
    ("multilevel", "auto"): (4.0, 0.3),
    ("multilevel", "streaming"): (4.0, 0.3),
    ("multilevel", "flat"): (2.0, 0.3),
    ("random", ""): (0.01, 0.0),
    ("block", ""): (0.01, 0.0),
}
#: Bytes of the out-of-core method for each vertex: weights, labels, cluster loads and the profiles of nets while it
#: coarsens; parts and the masks of 64 parts while it refines.  More parts take more masks only where there is room.
_VERTEX_STATE = 100


@dataclass(frozen=True)
class MethodPlan:
    """What one preset of a method would take.

    Attributes:
        memory: bytes at the peak, in one process.
        disk: bytes of scratch files.
        cpu_seconds: of all threads.
        fits: the memory is there.
    """

    method: str
    preset: str
    memory: int
    disk: int
    cpu_seconds: float
    fits: bool


def plan_partition(graph: Graph, parts: int, memory: int | None = None) -> list[MethodPlan]:
    """Plan every preset of every method for a graph.

    Args:
        memory: bytes that may be used; None for what this machine has.
    """
    allowed = available_memory() if memory is None else memory
    return [
        _plan(graph, parts, method, preset, allowed) for method, offer in METHODS.items() for preset in offer.presets
    ]


def _plan(graph: Graph, parts: int, method: str, preset: str, allowed: int) -> MethodPlan:
    n, pins = graph.num_vertices, graph.nnz + graph.num_vertices
    seconds, power = _SECONDS[method, preset]
    cpu_seconds = seconds * pins / 1e6 * (parts / 8) ** power
    if METHODS[method].package:
        entries = 2 * graph.nnz if method == "metis" and not graph.symmetric else pins
        # The parent holds the arrays while the child works.
        needed = BASE_MEMORY + native_memory(method, preset, entries, n, parts) + 4 * pins + 16 * n
        disk = 7 * pins
    elif method == "multilevel":
        needed, disk = BASE_MEMORY + _VERTEX_STATE * n, 24 * pins
    else:
        needed, disk = BASE_MEMORY + 4 * n, 4 * n
    return MethodPlan(method, preset, needed, disk, cpu_seconds, needed <= allowed)
