"""Partitions and their communication, computed naively with loops and sets, without numba or streaming."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.storage import Dataset, Graph, Partition
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter


def random_parts(num_vertices: int, parts: int, seed: int) -> np.ndarray:
    """(num_vertices,) int32 uniformly random parts; some may be empty."""
    return np.random.default_rng(seed).integers(0, parts, num_vertices).astype(np.int32)


def connectivity_minus_one(hypergraph: Hypergraph, part: np.ndarray) -> int:
    """The sum over all nets of the number of parts that they touch, minus 1."""
    nets = pairwise(hypergraph.net_offset)
    return sum(len({int(part[pin]) for pin in hypergraph.pin[a:b]}) - 1 for a, b in nets)


def rows_sent(adjacency: np.ndarray, part: np.ndarray, parts: int) -> np.ndarray:
    """(parts, parts) int64 rows that part p sends to part q for the product with a dense matrix."""
    matrix = np.zeros((parts, parts), dtype=np.int64)
    for column in range(adjacency.shape[1]):
        receivers = {int(part[row]) for row in np.flatnonzero(adjacency[:, column])} - {int(part[column])}
        for receiver in receivers:
            matrix[part[column], receiver] += 1
    return matrix


def transpose_of(dataset: Dataset, graph: Graph) -> Graph:
    """The stored transpose, or the graph itself if it is symmetric."""
    if graph.symmetric:
        return graph
    artifacts = [Artifact(info.path) for info in dataset.artifacts("transpose")]
    return Graph(next(artifact for artifact in artifacts if artifact.inputs["graph"] == graph.artifact.key))


def store_partition(dataset: Dataset, graph: Graph, part: np.ndarray, parts: int, label: str = "given") -> Partition:
    """Write a partition artifact with these parts, without checking them; its quality stays empty."""
    parameters = {"parts": parts, "method": label}
    with ArtifactWriter.begin(dataset.path, "partition", parameters, {"graph": graph.artifact.key}) as writer:
        with writer.task("part/0") as output:
            output.add(write_array(writer.path, "part", part.astype(np.int32), ("vertex",)))
        return Partition(writer.commit(["part/0"], {"vertex": graph.num_vertices}, {"quality": {}}))
