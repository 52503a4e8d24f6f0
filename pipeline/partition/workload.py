"""The size of a partitioning problem, and the resources that it takes: what a partitioner's cost is computed from."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.pipeline.partition.model.structure import Structure
from gnnloom.pipeline.partition.preset import Preset
from gnnloom.pipeline.tasks.memory import BASE_MEMORY

#: Processor seconds to start interpreters and load libraries.
START_SECONDS = 2.0


@dataclass(frozen=True)
class Workload:
    """The size of a problem, known before anything is read.

    Attributes:
        symmetric: whether the matrix is its own transpose.
        model: what is partitioned, one of the partitioner's models.
        num_directions: products whose exchange is weighed, 1 or 2.
        batches: kind of mini-batches, for model ``stochastic``.
        worker_memory: bytes that a worker may use.
        structure: what a choice of method depends on; None if the graph was not measured.
    """

    num_vertices: int
    nnz: int
    symmetric: bool
    parts: int
    model: str
    num_directions: int
    batches: str
    worker_memory: int
    structure: Structure | None = None

    @property
    def num_pins(self) -> int:
        """Pins of the full-batch hypergraph; an upper bound, because rows may already hold their own vertex."""
        return self.num_directions * (self.nnz + self.num_vertices)

    @property
    def num_entries(self) -> int:
        """Entries of the graph model: each edge at both its ends."""
        return self.nnz if self.symmetric else 2 * self.nnz


@dataclass(frozen=True)
class Cost:
    """Resources that a partitioner takes.

    Attributes:
        memory: bytes at the peak, in one process.
        disk: bytes of scratch files.
        cpu_seconds: processor seconds of all threads.
        chosen: what a method that chooses among others would do, and why; empty for all others.
    """

    memory: int
    disk: int
    cpu_seconds: float
    chosen: str = ""


def cost_of_one_pass(workload: Workload, preset: Preset) -> Cost:
    """The cost of a method that reads the rows once and holds only the part vector."""
    part_vector = 4 * workload.num_vertices
    seconds = START_SECONDS + preset.cpu_seconds(workload.num_pins, workload.parts)
    return Cost(BASE_MEMORY + part_vector, part_vector, seconds)
