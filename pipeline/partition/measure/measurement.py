"""What is measured of every partition, whoever made it: a plan, which runs or is counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.quality import MATRIX_PARTS, describe_quality, load_phase, read_load
from gnnloom.pipeline.partition.measure.volume import CountBuffers, PartExchange, exchange_phase, read_exchange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import ArtifactWriter, TaskOutput
from gnnloom.storage.format.groups import write_group


@dataclass(frozen=True)
class MeasurePlan:
    """How parts are measured; the defaults are for plans that are counted and not run.

    Attributes:
        graph: sizes of the graph.
        transpose: sizes of its transpose; those of the graph if it is undirected.
        num_parts: number of parts P.
        memory: bytes that a worker may use.
        weights: what the load of a part counts.
        writer: of the artifact that the figures describe; finished tasks leave their records there.
        part_path: mapped vector of the (num_vertices,) int32 parts.
        graph_path, transpose_path: artifacts of the graph and its transpose.
    """

    graph: GraphSizes
    transpose: GraphSizes
    num_parts: int
    memory: int
    weights: str = "nonzeros"
    writer: ArtifactWriter = field(default_factory=lambda: ArtifactWriter(Path(), "partition", ""))
    part_path: Path = Path()
    graph_path: Path = Path()
    transpose_path: Path = Path()

    @classmethod
    def of(
        cls, graph: Graph, transpose: Graph, parts: int, memory: int, weights: str, writer: ArtifactWriter, path: Path
    ) -> MeasurePlan:
        """The plan for a stored graph and a mapped vector of parts."""
        paths = writer, path, graph.artifact.path, transpose.artifact.path
        return cls(GraphSizes.of(graph), GraphSizes.of(transpose), parts, memory, weights, *paths)

    def phases(self) -> list[Phase]:
        """The phases that measure the parts."""
        # Row j of the transpose lists the vertices that gather from j, whose parts need the row of j in a forward pass.
        phases = [self._exchange("forward", self.transpose_path, self.transpose)]
        if not self.graph.symmetric:
            phases.append(self._exchange("backward", self.graph_path, self.graph))
        paths = self.graph_path, self.part_path
        return [*phases, load_phase(self.writer, *paths, self.graph, self.num_parts, self.weights)]

    def _exchange(self, direction: str, matrix_path: Path, sizes: GraphSizes) -> Phase:
        buffers = CountBuffers(self.num_parts, self.memory)
        return exchange_phase(self.writer, matrix_path, self.part_path, sizes, buffers, direction)


def record_quality(output: TaskOutput, plan: MeasurePlan, cluster: Cluster, method: str, imbalance: float) -> None:
    """Count what the parts exchange on the real matrix, and record it as facts and, for many parts, arrays.

    Args:
        method: that made the partition.
        imbalance: that was allowed.
    """
    writer, parts = output.writer, plan.num_parts
    run(plan.phases(), cluster, writer)
    forward = read_exchange(writer, "forward", parts)
    backward = None if plan.graph.symmetric else read_exchange(writer, "backward", parts)
    load = read_load(writer, plan.graph.num_blocks, parts)
    output.facts = describe_quality(method, imbalance, load, forward, backward)
    if parts > MATRIX_PARTS:
        for direction, exchange in (("forward", forward), ("backward", backward)):
            if exchange is not None:
                _store_exchange(output, direction, exchange)


def _store_exchange(output: TaskOutput, direction: str, exchange: PartExchange) -> None:
    """Store the rows that each pair of parts exchanges as arrays, because they would make the manifest too large."""
    path = output.writer.path
    write_group(path / "exchange", {})
    write_group(path / "exchange" / direction, {})
    sender, receiver = np.divmod(exchange.pair, exchange.num_parts)
    columns: dict[str, NDArray[Any]] = {"sender": sender.astype(np.int32), "receiver": receiver.astype(np.int32)}
    for name, column in (columns | {"rows": exchange.rows}).items():
        output.add(write_array(path, f"exchange/{direction}/{name}", column, ("pair",)))
