"""A hypergraph on disk: the pins of its nets and the nets of its vertices, each streamed in order; and its clusters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.multilevel.incidence import Incidence, StatedLists
from gnnloom.pipeline.partition.multilevel.pieces import store_vector
from gnnloom.pipeline.partition.partitioner import LEVEL_STEPS, LevelSteps
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.kernels import read_only
from gnnloom.storage.matrix.csr import index_dtype


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
        scratch: sizes of temporary files of its tasks.
        steps: sizes of their steps.
    """

    nets: Incidence
    vertices: Incidence
    weight_path: Path
    net_weight_path: Path | None
    total_weight: int
    heaviest: int
    scratch: Scratch = BESIDE
    steps: LevelSteps = LEVEL_STEPS

    @classmethod
    def stated(
        cls,
        num_vertices: int,
        num_nets: int,
        num_pins: int,
        *,
        is_weighted: bool = False,
        steps: LevelSteps = LEVEL_STEPS,
    ) -> DiskHypergraph:
        """A hypergraph with a size and no contents, for plans.

        Args:
            is_weighted: whether its nets have weights; nets of the finest level have no weights.
        """
        nets = StatedLists.of(num_nets, num_pins, num_vertices)
        vertices = StatedLists.of(num_vertices, num_pins, num_nets)
        return cls(nets, vertices, Path(), Path() if is_weighted else None, 0, 0, steps=steps)

    @property
    def vertex_weight(self) -> NDArray[np.int64]:
        """Map the (num_vertices,) int64 weights, at least 1."""
        return map_array(self.weight_path)

    @property
    def net_weight(self) -> NDArray[np.int64]:
        """Map the (num_nets,) int64 weights, at least 1; (0,) if all are 1."""
        return read_only(map_array(self.net_weight_path) if self.net_weight_path else np.empty(0, np.int64))

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
    def label_bytes(self) -> int:
        """Bytes of a pin, and of the cluster of a vertex."""
        return int(index_dtype(self.num_vertices).itemsize)

    @property
    def is_weighted(self) -> bool:
        """Whether there is a file with weights of nets."""
        return self.net_weight_path is not None

    @property
    def net_weight_bytes(self) -> int:
        """Bytes of all weights of nets."""
        return 8 * self.num_nets * self.is_weighted

    def pins_of(self, vertices: range) -> int:
        """Pins of some vertices, as if all vertices were alike, and at least one."""
        return self.num_pins * len(vertices) // self.num_vertices + 1

    @property
    def is_for_tasks(self) -> bool:
        """Whether tasks cluster, place and refine its vertices in rounds, with other results than one process."""
        return max(self.num_pins, self.num_vertices) > self.steps.few_pins

    def load(self) -> Hypergraph:
        """Load the hypergraph into memory, without nets of one pin."""
        return load_nets(self.nets, np.array(self.vertex_weight), self.net_weight)


def load_nets(nets: Incidence, vertex_weight: NDArray[np.int64], net_weight: NDArray[np.int64]) -> Hypergraph:
    """Load nets into memory, without nets of one pin, which no partition cuts.

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


@dataclass(frozen=True)
class Clusters:
    """The cluster of every vertex; small and picklable.

    Attributes:
        label_path: file of the (num_vertices,) int32 or int64 clusters, numbered from 0 without gaps.
        weight_path: file of the (num_clusters,) int64 weight of each cluster.
        num_clusters: at least 1.
        total_weight: of all clusters.
        heaviest: weight of the heaviest cluster.
    """

    label_path: Path
    weight_path: Path
    num_clusters: int
    total_weight: int
    heaviest: int

    @property
    def label_bytes(self) -> int:
        """Bytes of the cluster of a vertex."""
        return int(index_dtype(self.num_clusters).itemsize)

    @property
    def label(self) -> NDArray[Any]:
        """Map the (num_vertices,) clusters."""
        return map_array(self.label_path)


def store_clusters(hypergraph: DiskHypergraph, label: NDArray[Any], folder: Path) -> Clusters:
    """Store labels that are in memory, and the weights of their clusters.

    Args:
        label: (num_vertices,) int32 or int64 cluster of each vertex, numbered from 0 without gaps.
        folder: for the files.
    """
    weight = np.zeros(int(label.max()) + 1, dtype=np.int64)
    np.add.at(weight, label, hypergraph.vertex_weight)
    return Clusters(
        store_vector(folder / "label.npy", label),
        store_vector(folder / "weight.npy", weight),
        len(weight),
        hypergraph.total_weight,
        int(weight.max()),
    )
