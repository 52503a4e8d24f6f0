"""What each method would take: predicted memory, disk and time, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.cluster import DEFAULT_MEMORY
from gnnloom.pipeline.memory import BASE_MEMORY, working_memory
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
#: Of interpreters and libraries.
_START_SECONDS = 2.0
#: Partitions what ``multilevel`` has coarsened.
_COARSEST = ("mtkahypar", "deterministic")
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


def plan_partition(
    graph: Graph, parts: int, memory: int | None = None, worker_memory: int = DEFAULT_MEMORY
) -> list[MethodPlan]:
    """Plan every preset of every method for a graph.

    Args:
        memory: bytes that may be used; None for what this machine has.
        worker_memory: bytes of a worker, to which ``multilevel`` coarsens.
    """
    allowed = available_memory() if memory is None else memory
    planner = _Planner(graph, parts, worker_memory)
    plans = []
    for method, offer in METHODS.items():
        for preset in offer.presets:
            needed, disk = planner.memory(method, preset), planner.disk(method)
            plans.append(
                MethodPlan(method, preset, needed, disk, planner.cpu_seconds(method, preset), needed <= allowed)
            )
    return plans


@dataclass(frozen=True)
class _Planner:
    graph: Graph
    parts: int
    worker_memory: int

    @property
    def _pins(self) -> int:
        return self.graph.nnz + self.graph.num_vertices

    def memory(self, method: str, preset: str) -> int:
        n = self.graph.num_vertices
        if METHODS[method].package:
            entries = 2 * self.graph.nnz if method == "metis" and not self.graph.symmetric else self._pins
            # The parent holds the arrays while the child works.
            return BASE_MEMORY + native_memory(method, preset, entries, n, self.parts) + 4 * self._pins + 16 * n
        if method != "multilevel":
            return BASE_MEMORY + 4 * n
        return BASE_MEMORY + _VERTEX_STATE * n + (self._coarsest() if preset == "auto" else 0)

    def _coarsest(self) -> int:
        """Bytes of the native partitioner for what fits a worker."""
        whole = native_memory(*_COARSEST, self._pins, self.graph.num_vertices, self.parts)
        return min(whole, working_memory(self.worker_memory))

    def disk(self, method: str) -> int:
        if METHODS[method].package:
            return 7 * self._pins
        return 24 * self._pins if method == "multilevel" else 4 * self.graph.num_vertices

    def cpu_seconds(self, method: str, preset: str) -> float:
        own = _START_SECONDS + _cpu_seconds(method, preset, self._pins, self.parts)
        if (method, preset) != ("multilevel", "auto"):
            return own
        whole = native_memory(*_COARSEST, self._pins, self.graph.num_vertices, self.parts)
        return own + _cpu_seconds(*_COARSEST, self._pins * self._coarsest() // whole, self.parts)


def _cpu_seconds(method: str, preset: str, pins: int, parts: int) -> float:
    seconds, power = _SECONDS[method, preset]
    return float(seconds * pins / 1e6 * (parts / 8) ** power)
