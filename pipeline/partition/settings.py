"""The settings of a partition, with the checks that do not depend on the method."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnnloom.storage.errors import InputError
from gnnloom.storage.sampling.kinds import BATCHES

WEIGHTS = ("nonzeros", "unit")
DIRECTIONS = ("forward", "both")
#: The method that chooses among the others; its presets are the levels of ``quality``.
QUALITY_METHOD = "auto"
#: The default method for models and presets that ``QUALITY_METHOD`` lacks.
NATIVE_METHOD = "mtkahypar"
#: Share of the vertices in a mini-batch, unless another one is given.
BATCH_RATE = 0.06


@dataclass(frozen=True)
class PartitionSettings:
    """How to partition; see :class:`gnnloom.pipeline.partition.options.PartitionOptions` for what users give.

    Attributes:
        parts: P, from 1 to the number of vertices.
        method: name of a partitioner; empty for the one that chooses by the graph.
        imbalance: by how much a part may exceed the average weight, as a share of it.
        seed: 0 to 2^31 - 1.
        model: one of the method's models; empty for its first.
        time_limit: seconds that a native partitioner may take, and, for model ``stochastic``, also the work before
            it and the work after it, each; None for no limit.
        threads: threads of a parallel partitioner; None for one per core.  Does not change the result of a
            deterministic preset.
        preset: one of the method's presets; empty for its first.
        weights: what a vertex counts for the balance: its row's ``nonzeros``, or ``unit``.
        directions: ``forward``, or ``both`` to also weigh what the backward pass of a directed graph sends.
        memory_limit: bytes that a native partitioner may allocate, and that ``multilevel`` may hold; None for what
            the machine has.
        batches: for model ``stochastic``: how mini-batches are drawn, one of ``BATCHES``.
        batch_rate: for model ``stochastic``: vertices drawn for a batch, repeats included, as a share of all.
        quality: how good a partition the method that chooses makes, and how long it may take; empty for other methods.
    """

    parts: int
    method: str = ""
    imbalance: float = 0.01
    seed: int = 0
    model: str = ""
    time_limit: float | None = None
    threads: int | None = None
    preset: str = ""
    weights: str = "nonzeros"
    directions: str = "forward"
    memory_limit: int | None = None
    batches: str = "vertex"
    batch_rate: float = BATCH_RATE
    quality: str = ""

    def __post_init__(self) -> None:
        check_choice("weights", self.weights, WEIGHTS)
        check_choice("directions", self.directions, DIRECTIONS)
        check_choice("batches", self.batches, BATCHES)
        if self.parts < 1:
            raise InputError(f"parts={self.parts}: expected 1 or more")
        if not (math.isfinite(self.imbalance) and self.imbalance >= 0):
            raise InputError(f"imbalance={self.imbalance}: expected a number of 0 or more, such as 0.01")
        if not 0 <= self.seed < 1 << 31:
            raise InputError(f"seed={self.seed}: expected 0 to {(1 << 31) - 1}")
        if not 0 < self.batch_rate <= 1:
            raise InputError(f"batch_rate={self.batch_rate}: expected a share above 0 and up to 1")
        for name, unit in (("time_limit", "seconds"), ("memory_limit", "bytes")):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise InputError(f"{name}={limit}: expected a number of {unit} above 0")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads={self.threads}: expected 1 or more")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise InputError unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise InputError(f"{name} {value!r}: expected one of {', '.join(choices)}")


def check_parts(parts: int, num_vertices: int) -> None:
    """Raise InputError unless ``num_vertices`` vertices can be split into ``parts`` parts, none of them empty."""
    if parts < 1:
        raise InputError(f"parts={parts}: expected 1 or more")
    if parts > num_vertices:
        raise InputError(f"parts={parts}: the graph has {num_vertices:,} vertices; ask for no more parts than that")
