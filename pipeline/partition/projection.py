"""What each method would take: predicted memory, disk and time, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.partition.multilevel.out_of_core import out_of_core_memory
from gnnloom.pipeline.partition.native.budget import available_memory, native_memory
from gnnloom.pipeline.partition.native.guard import check_parts
from gnnloom.pipeline.partition.presets import METHODS
from gnnloom.pipeline.partition.stochastic.annealing import annealing_memory
from gnnloom.pipeline.partition.stochastic.drawn_batches import MOST_PINS
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, working_memory
from gnnloom.storage.artifacts.graph import Graph

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
#: The same for annealing parts for uniform batches.
_ANNEALING_SECONDS = (100.0, 0.3)


@dataclass(frozen=True)
class MethodPlan:
    """What one preset of a method would take.

    Attributes:
        model: what it partitions: what was asked for, or its first where it does not know that.
        memory: bytes at the peak, in one process.
        disk: bytes of scratch files.
        cpu_seconds: of all threads.
        fits: the memory is there.
    """

    method: str
    preset: str
    model: str
    memory: int
    disk: int
    cpu_seconds: float
    fits: bool


def plan_partition(
    graph: Graph,
    parts: int,
    memory: int | None = None,
    worker_memory: int = DEFAULT_MEMORY,
    model: str = "",
    directions: str = "forward",
    batches: str = "vertex",
) -> list[MethodPlan]:
    """Plan every preset of every method for a graph.

    Args:
        memory: bytes that may be used; None for what this machine has.
        worker_memory: bytes of a worker, to which ``multilevel`` coarsens.
        model: for the methods that know it.
        directions: for the models that know them.
        batches: for model ``stochastic``.

    Raises:
        InputError: there are more parts than vertices.
    """
    check_parts(parts, graph.num_vertices)
    allowed = available_memory() if memory is None else memory
    num_directions = 2 if directions == "both" and not graph.symmetric else 1
    plans = []
    for method, offer in METHODS.items():
        chosen = model if model in offer.models else offer.models[0]
        planner = _Planner(graph, parts, worker_memory, method, chosen, num_directions, batches)
        for preset in offer.presets:
            needed = planner.memory(preset)
            seconds = planner.cpu_seconds(preset)
            plans.append(MethodPlan(method, preset, chosen, needed, planner.disk(), seconds, needed <= allowed))
    return plans


@dataclass(frozen=True)
class _Planner:
    graph: Graph
    parts: int
    worker_memory: int
    method: str
    model: str
    num_directions: int
    batches: str

    @property
    def _pins(self) -> int:
        return self.num_directions * (self.graph.nnz + self.graph.num_vertices)

    @property
    def _size(self) -> int:
        """Pins or entries of the largest problem that a native partitioner gets; batches may have fewer."""
        if self.model == "graph":
            return self.graph.nnz if self.graph.symmetric else 2 * self.graph.nnz
        if self.model != "stochastic":
            return self._pins
        if self.batches != "vertex":
            return MOST_PINS * self._pins
        # A 2-pin net for every pair of vertices that a net joins with its owner.
        return self._pins + (self.graph.nnz if self.graph.symmetric else 2 * self.graph.nnz)

    def memory(self, preset: str) -> int:
        n = self.graph.num_vertices
        if not METHODS[self.method].package:
            if self.method != "multilevel":
                return BASE_MEMORY + 4 * n
            return out_of_core_memory(n, self.num_directions) + (self._coarsest() if preset == "auto" else 0)
        # The parent holds the arrays while the child works.
        peak = native_memory(self.method, preset, self._size, n, self.parts)
        if self.model == "stochastic":
            nets = self.num_directions * n
            # Nets of two pins have an offset and a weight for them.
            peak = max(peak + 12 * self._size, annealing_memory(n, nets, self._pins, self.parts))
        return BASE_MEMORY + peak + 4 * self._pins + 16 * n

    def _coarsest(self) -> int:
        """Bytes of the native partitioner for what fits a worker."""
        return min(self._whole(), working_memory(self.worker_memory))

    def _whole(self) -> int:
        return native_memory(*_COARSEST, self._pins, self.graph.num_vertices, self.parts)

    def disk(self) -> int:
        if METHODS[self.method].package:
            return 7 * self._size
        return 24 * self._pins if self.method == "multilevel" else 4 * self.graph.num_vertices

    def cpu_seconds(self, preset: str) -> float:
        own = _START_SECONDS + self._scaled(_SECONDS[self.method, preset], self._size)
        if (self.method, preset) == ("multilevel", "auto"):
            own += self._scaled(_SECONDS[_COARSEST], self._pins * self._coarsest() // self._whole())
        if self.model == "stochastic":
            # The full-batch hypergraph is partitioned too, for comparison.
            own += self._scaled(_SECONDS[self.method, preset], self._pins)
            own += self._scaled(_ANNEALING_SECONDS, self._pins) if self.batches == "vertex" else 0.0
        return own

    def _scaled(self, seconds: tuple[float, float], pins: int) -> float:
        for_eight, power = seconds
        return float(for_eight * pins / 1e6 * (self.parts / 8) ** power)
