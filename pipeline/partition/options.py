"""What can be asked of the partition stage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gnnloom.pipeline.partition.native.request import PartitionRequest
from gnnloom.pipeline.partition.presets import METHODS, MODELS, NATIVE_METHODS
from gnnloom.pipeline.tasks.cluster import available_cores
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.errors import InputError
from gnnloom.storage.sampling.batches import BATCHES

WEIGHTS = ("nonzeros", "unit")
DIRECTIONS = ("forward", "both")
_BATCH_RATE = 0.06


@dataclass(frozen=True)
class PartitionOptions:
    """How to partition.

    Attributes:
        parts: P, from 1 to the number of vertices.
        method: one of ``METHODS``.
        imbalance: how much heavier than the average a part may be.
        seed: 0 to 2^31 - 1.
        model: one of those of the method; its first by default.
        time_limit: seconds that a native partitioner may take, and, model ``stochastic``, the work before and after
            it each; None for no limit.
        threads: of a parallel partitioner; None for one per core.  Changes no result of a deterministic preset.
        preset: one of those of the method; its first by default.
        weights: what a vertex counts for the balance: its row's ``nonzeros``, or ``unit``.
        directions: ``forward``, or ``both`` to weigh what the backward pass of a directed graph sends as much.
        memory_limit: bytes that a native partitioner may allocate, and that ``multilevel`` may hold; None for what
            the machine has.
        batches: model ``stochastic``: how the mini-batches are drawn, one of ``BATCHES``.
        batch_rate: model ``stochastic``: the share of the vertices (``edge``: of the edges) that is drawn for a batch.
    """

    parts: int
    method: str = "mtkahypar"
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
    batch_rate: float = _BATCH_RATE

    def __post_init__(self) -> None:
        _check_choice("method", self.method, tuple(METHODS))
        method = METHODS[self.method]
        if not self.model:
            object.__setattr__(self, "model", method.models[0])
        if not self.preset:
            object.__setattr__(self, "preset", method.presets[0])
        _check_choice("model", self.model, MODELS)
        if self.model not in method.models:
            raise InputError(f"model {self.model!r}: method {self.method} knows {', '.join(method.models)}")
        if self.preset not in method.presets:
            known = f"knows {', '.join(method.presets)}" if method.presets[0] else "has none"
            raise InputError(f"preset {self.preset!r}: method {self.method} {known}")
        _check_choice("weights", self.weights, WEIGHTS)
        _check_choice("directions", self.directions, DIRECTIONS)
        _check_choice("batches", self.batches, BATCHES)
        self._check_numbers()
        self._check_meaning()

    def _check_numbers(self) -> None:
        if self.parts < 1:
            raise InputError(f"parts={self.parts}: expected 1 or more")
        if not (math.isfinite(self.imbalance) and self.imbalance >= 0):
            raise InputError(f"imbalance={self.imbalance}: expected a number from 0 on, such as 0.01")
        if not 0 <= self.seed < 1 << 31:
            raise InputError(f"seed={self.seed}: expected 0 to {(1 << 31) - 1}")
        if not 0 < self.batch_rate <= 1:
            raise InputError(f"batch_rate={self.batch_rate}: expected a share above 0 and up to 1")
        for name, unit in (("time_limit", "seconds"), ("memory_limit", "bytes")):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise InputError(f"{name}={limit}: expected {unit} above 0")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads={self.threads}: expected 1 or more")

    def _check_meaning(self) -> None:
        """Refuse what would change nothing: it would only name a second artifact with the same content."""
        if self.directions == "both" and (self.model == "graph" or self.method in {"random", "block"}):
            raise InputError(
                f"directions both: method {self.method} with model {self.model} knows no directions; leave it out"
            )
        if self.model != "stochastic" and (self.batches, self.batch_rate) != (BATCHES[0], _BATCH_RATE):
            raise InputError(
                f"batches {self.batches}, batch_rate={self.batch_rate}: model {self.model} knows no batches; choose"
                " model stochastic, or leave them out"
            )

    def check_graph(self, graph: Graph) -> None:
        """Raise InputError where these options mean nothing for a graph."""
        if self.directions == "both" and graph.symmetric:
            raise InputError("directions both: the graph is undirected, both directions are the same; leave it out")

    def for_method(self, method: str) -> PartitionOptions:
        """The same of another method, as far as every method knows it."""
        return PartitionOptions(
            self.parts,
            method,
            self.imbalance,
            self.seed,
            time_limit=self.time_limit,
            threads=self.threads,
            weights=self.weights,
            memory_limit=self.memory_limit,
        )

    @property
    def is_native(self) -> bool:
        """Whether a program that is not ours does the work."""
        return self.method in NATIVE_METHODS

    def parameters(self, memory: int) -> dict[str, Any]:
        """What decides the partition's bytes; what is left at its default has no entry beside the basic five.

        Args:
            memory: of a worker; decides how deep ``multilevel`` coarsens.
        """
        basic = ("parts", "method", "imbalance", "seed", "model")
        parameters: dict[str, Any] = {name: getattr(self, name) for name in basic}
        defaults = {"preset": METHODS[self.method].presets[0], "weights": WEIGHTS[0], "directions": DIRECTIONS[0]}
        parameters |= {
            name: getattr(self, name) for name, default in defaults.items() if getattr(self, name) != default
        }
        if self.model == "stochastic":
            parameters |= {"batches": self.batches, "batch_rate": self.batch_rate}
        if self.method == "multilevel":
            parameters["memory"] = memory
        return parameters

    def request(self) -> PartitionRequest:
        """What a native partitioner is asked for."""
        threads = self.threads or available_cores()
        return PartitionRequest(
            self.parts, self.imbalance, self.seed, threads, self.preset, memory_limit=self.memory_limit
        )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} {value!r}: expected one of {', '.join(choices)}")
