"""Partitions and their communication, computed naively with loops and sets, without numba or streaming."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import maximum_bipartite_matching

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


def cover_sent(adjacency: Any, part: np.ndarray, parts: int) -> np.ndarray:
    """(parts, parts) rows and sums that part [q] sends to part [p] for the product with a SciPy matrix."""
    found = np.zeros((parts, parts), int)
    for receiver in range(parts):
        for sender in set(range(parts)) - {receiver}:
            block = scipy.sparse.csr_matrix(adjacency[part == receiver][:, part == sender])
            found[sender, receiver] = (maximum_bipartite_matching(block) >= 0).sum()
    return found


def transpose_of(dataset: Dataset, graph: Graph) -> Graph:
    """The stored transpose, or the graph itself if it is symmetric."""
    if graph.symmetric:
        return graph
    artifacts = [Artifact(info.path) for info in dataset.artifacts("transpose")]
    return Graph(next(artifact for artifact in artifacts if artifact.inputs["graph"] == graph.artifact.key))


def store_partition(dataset: Dataset, graph: Graph, part: np.ndarray, parts: int, label: str = "given") -> Partition:
    """Write a partition artifact with these parts, without checking them, and the sizes of the parts."""
    parameters = {"parts": parts, "method": label}
    with ArtifactWriter.begin(dataset.path, "partition", parameters, {"graph": graph.artifact.key}) as writer:
        with writer.task("part/0") as output:
            output.add(write_array(writer.path, "part", part.astype(np.int32), ("vertex",)))
        facts = {"quality": _part_sizes(graph, part, parts)}
        return Partition(writer.commit(["part/0"], {"vertex": graph.num_vertices}, facts))


def _part_sizes(graph: Graph, part: np.ndarray, parts: int) -> dict[str, list[int]]:
    """Vertices and nonzeros of each part, and the rows that it sends and receives."""
    blocks = [graph.block(number) for number in range(graph.num_blocks)]
    row = np.concatenate(
        [np.repeat(np.arange(each.num_rows) + each.row_offset, np.diff(each.indptr)) for each in blocks]
    )
    column = np.concatenate([each.indices for each in blocks]).astype(np.int64)
    load = np.bincount(part[row], minlength=parts)
    # In a forward pass the row of a column goes to the owners of its rows; in a backward pass the other way round.
    sent, received = _moved(column, part[row], part, parts)
    sizes = {"vertices_per_part": np.bincount(part, minlength=parts), "load_per_part": load}
    sizes |= {"volume_per_part": sent, "receive_volume_per_part": received}
    if not graph.symmetric:
        sizes["volume_backward_per_part"] = next(_moved(row, part[column], part, parts))
    return {name: counts.tolist() for name, counts in sizes.items()}


def _moved(vertex: np.ndarray, needed_by: np.ndarray, part: np.ndarray, parts: int) -> Iterator[np.ndarray]:
    """Rows that each part sends and receives, if the rows of these vertices are needed by these parts."""
    needed, receiver = np.divmod(np.unique(vertex * parts + needed_by), parts)
    is_moved = part[needed] != receiver
    return (np.bincount(each[is_moved], minlength=parts) for each in (part[needed], receiver))
