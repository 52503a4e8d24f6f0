"""A hypergraph on disk: the pins of its nets and the nets of its vertices, each streamed in order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.multilevel.incidence import Incidence
from gnnloom.pipeline.partition.multilevel.vectors import map_vector

#: Up to this many pins, one process clusters, places and refines.  Rounds of tasks take 1.7 times its processor time to
#: refine, and more on small graphs; with two workers they were not measured to be faster below 30 million pins.
FEW_PINS = 1 << 25


@dataclass(frozen=True)
class DiskHypergraph:
    """Vertices and nets, with both directions of their incidence on disk; small and picklable.

    Attributes:
        nets: the pins of every net; nets of one pin are allowed.
        vertices: the nets of every vertex, ascending.
        weight_path: file of ``vertex_weight``.
        net_weight_path: file of ``net_weight``; None if all are 1.
        total_weight: of all vertices.
        heaviest: weight of the heaviest vertex.
    """

    nets: Incidence
    vertices: Incidence
    weight_path: Path
    net_weight_path: Path | None
    total_weight: int
    heaviest: int

    @property
    def vertex_weight(self) -> NDArray[np.int64]:
        """Map the (num_vertices,) int64 weights, at least 1."""
        return map_vector(self.weight_path)

    @property
    def net_weight(self) -> NDArray[np.int64]:
        """Map the (num_nets,) int64 weights, at least 1; (0,) if all are 1."""
        return map_vector(self.net_weight_path) if self.net_weight_path else np.empty(0, dtype=np.int64)

    @property
    def num_vertices(self) -> int:
        return self.vertices.num_rows

    @property
    def num_nets(self) -> int:
        return self.nets.num_rows

    @property
    def num_pins(self) -> int:
        return self.nets.num_ids

    @property
    def is_for_tasks(self) -> bool:
        """Whether tasks cluster, place and refine its vertices in rounds, with other results than one process."""
        return is_for_tasks(self.num_pins, self.num_vertices)

    def load(self) -> Hypergraph:
        """Load the hypergraph into memory, without nets of one pin."""
        return load_nets(self.nets, np.array(self.vertex_weight), self.net_weight)


def is_for_tasks(num_pins: int, num_vertices: int) -> bool:
    """Whether tasks work on the vertices of a hypergraph in rounds; see ``FEW_PINS``."""
    return max(num_pins, num_vertices) > FEW_PINS


def load_nets(nets: Incidence, vertex_weight: NDArray[np.int64], net_weight: NDArray[np.int64]) -> Hypergraph:
    """Load nets into memory, without those of one pin, which no partition cuts.

    Args:
        nets: the pins of every net.
        vertex_weight: (num_vertices,) int64.
        net_weight: (num_nets,) int64, or (0,) if all are 1.
    """
    offsets, pins = [np.zeros(1, dtype=np.int64)], [np.empty(0, dtype=nets.dtype)]
    kept_nets = [np.empty(0, dtype=np.bool_)]
    for block in nets.blocks():
        size = np.diff(block.offset)
        # Native partitioners refuse nets of one pin (``check_problem``).
        kept = size > 1
        offsets.append(size[kept])
        pins.append(block.ids[np.repeat(kept, size)])
        kept_nets.append(kept)
    weight = net_weight[np.concatenate(kept_nets)] if len(net_weight) else None
    return Hypergraph(vertex_weight, np.cumsum(np.concatenate(offsets)), np.concatenate(pins), weight)
