"""Batches that a test makes up, in the files that tasks read, and the merging of their nets by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.stochastic.batch_bits import DrawnBatches
from gnnloom.pipeline.partition.stochastic.deadline import NO_DEADLINE, Deadline
from gnnloom.pipeline.partition.stochastic.drawn_batches import DrawnProblem, MergedBatches, merge_batches
from gnnloom.pipeline.partition.stochastic.restricted_nets import net_pieces
from gnnloom.pipeline.tasks.cluster import Cluster, InProcessCluster
from gnnloom.storage import Graph
from gnnloom.storage.format.artifact import ArtifactWriter

Batches = Callable[[int], NDArray[np.bool_]]


def store_batches(path: Path, batches: NDArray[np.bool_]) -> DrawnBatches:
    """Write (num_batches, num_vertices) batches to a file."""
    drawn = DrawnBatches(path, *batches.shape)
    drawn.create()
    for row, batch in enumerate(batches):
        drawn.write(row, np.flatnonzero(batch))
    return drawn


def merge(matrices: list[Graph], batches: Batches, folder: Path, deadline: Deadline = NO_DEADLINE) -> MergedBatches:
    """Merge the nets of made-up batches.

    Args:
        batches: from the number of a batch to (num_vertices,) whether each vertex is drawn.
        folder: for the work folder.
    """

    def draw(numbers: range, drawn: DrawnBatches, _: Cluster) -> None:
        store_batches(drawn.path, np.stack([batches(number) for number in numbers]))

    writer = ArtifactWriter(folder, "partition", "0" * 16)
    problem = DrawnProblem(writer, matrices[0].num_vertices, net_pieces(matrices), draw)
    return merge_batches(problem, InProcessCluster(), deadline)


def merged_by_hand(
    nets: list[tuple[int, list[int]]], batches: Batches, count: int
) -> tuple[list[frozenset[int]], list[int]]:
    """The pins of the distinct nets of the first batches, in the order in which they occur, and their numbers.

    Args:
        nets: owner and pins of every net of the full hypergraph.
    """
    found: dict[frozenset[int], int] = {}
    for number in range(count):
        batch = batches(number)
        for owner, pins in nets:
            drawn = frozenset(pin for pin in pins if batch[pin])
            if batch[owner] and len(drawn) > 1:
                found[drawn] = found.get(drawn, 0) + 1
    return list(found), list(found.values())
