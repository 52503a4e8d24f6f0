"""Invented batches, in the files that tasks read, and a merge of their nets by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.stochastic.batch_drawer import BatchDrawer
from gnnloom.pipeline.partition.stochastic.drawn_batches import MergedBatches, merge_batches
from gnnloom.pipeline.partition.stochastic.restricted_nets import DrawnProblem, net_pieces
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage import Graph
from gnnloom.storage.format.artifact import ArtifactWriter

Batches = Callable[[int], NDArray[np.bool_]]


@dataclass(frozen=True)
class MadeUpBatches(BatchDrawer):
    """Draws batches that a test makes up.

    Attributes:
        batches: from the number of a batch to (num_vertices,) whether each vertex is drawn.
    """

    batches: Batches

    def vertices(self) -> Callable[[int], NDArray[np.int64]]:
        return lambda number: np.flatnonzero(self.batches(number))


def made_up_problem(matrices: list[Graph], batches: Batches, folder: Path) -> DrawnProblem:
    """The problem of some made-up batches.

    Args:
        batches: from the number of a batch to (num_vertices,) whether each vertex is drawn.
        folder: for the work folder.
    """
    num_vertices = matrices[0].num_vertices
    drawer = MadeUpBatches("walk", Path(), num_vertices, num_vertices, 0, batches)
    pieces = net_pieces([(matrix.artifact.path, GraphSizes.of(matrix)) for matrix in matrices])
    return DrawnProblem(ArtifactWriter(folder, "partition", "0" * 16), pieces, drawer)


def merge(matrices: list[Graph], batches: Batches, folder: Path, deadline: float = math.inf) -> MergedBatches:
    """Merge the nets of made-up batches; see :func:`made_up_problem`."""
    return merge_batches(made_up_problem(matrices, batches, folder), InProcessCluster(), deadline)


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
