"""Compares two partitions on batches that no model has seen, and reports them on yet other batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gnnloom.pipeline.partition.model.hypergraph import net_matrices
from gnnloom.pipeline.partition.problem import PartitionProblem
from gnnloom.pipeline.partition.stochastic.batch_bits import DrawnBatches
from gnnloom.pipeline.partition.stochastic.batch_drawer import BatchDrawer
from gnnloom.pipeline.partition.stochastic.batch_volume import batch_volumes
from gnnloom.pipeline.partition.stochastic.drawn_batches import MOST_BATCHES

#: Number of batches that decide between two partitions, and of other batches on which the volume is then reported:
#: the least, the most, and the nonzeros to read, which decide in between.
_FEWEST_FRESH, _MOST_FRESH, _FRESH_NONZEROS = 20, 200, 1 << 28
#: Partitions that are compared.
PARTS_COMPARED = 2


def num_fresh(nnz: int) -> int:
    """Return the number of batches that decide, which is also that of the batches that are reported."""
    return min(_MOST_FRESH, max(_FEWEST_FRESH, _FRESH_NONZEROS // max(1, nnz)))


def fresh_volumes(
    problem: PartitionProblem, drawer: BatchDrawer, found: Mapping[str, Path], folder: Path
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the rows that each partition sends per batch on average: for batches that decide, and for those reported.

    Args:
        found: name to file of parts.
        folder: for files of this step.
    """
    options, count = problem.options, num_fresh(problem.graph.nnz)
    matrices = net_matrices(problem.graph, problem.transpose, options.directions)
    drawn = DrawnBatches(folder / "fresh", 2 * count, problem.graph.num_vertices)
    # Batches below MOST_BATCHES may have been drawn to make the hypergraph.
    drawer.draw(range(MOST_BATCHES, MOST_BATCHES + 2 * count), drawn, problem.cluster)
    paths, work = list(found.values()), folder / "volumes"
    sent = batch_volumes(matrices, paths, options.parts, drawn, work, problem.cluster)
    deciding, reported = (
        {name: int(rows) / count for name, rows in zip(found, series.sum(axis=0), strict=True)}
        for series in (sent[:count], sent[count:])
    )
    return deciding, reported
