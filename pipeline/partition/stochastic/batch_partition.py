"""The stochastic model: parts for training on mini-batches, which exchange different rows than the whole graph does.

A batch exchanges the rows that its induced subgraph needs.  For batches of uniform vertices at rate q, a drawn vertex
j sends 1 - (1-q)^c rows on average to a part that holds c of the other pins of net j: one row for q = 1, which makes
the connectivity cut, and about c times q for small q, which makes the edge cut.  A chord of that curve is a full net
and one 2-pin net for each of its pins, so this hypergraph needs no sampling; its partition is then improved on the
curve itself.  For other batches, the nets of many drawn batches are merged.

Tasks draw the batches, restrict and merge their nets, and measure the parts; a process of its own fits the parts to the
nets.  The client holds a few numbers of each task and batch.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import net_matrices
from gnnloom.pipeline.partition.native.problem import NativeProblem
from gnnloom.pipeline.partition.stochastic.batch_drawer import BatchDrawer
from gnnloom.pipeline.partition.stochastic.batch_volume import fresh_volumes
from gnnloom.pipeline.partition.stochastic.deadline import Deadline
from gnnloom.pipeline.partition.stochastic.drawn_batches import DrawnProblem, merge_batches
from gnnloom.pipeline.partition.stochastic.fit_request import FULL, STOCHASTIC, fit_apart
from gnnloom.pipeline.partition.stochastic.merged_nets import MergedNets
from gnnloom.pipeline.partition.stochastic.restricted_nets import net_pieces
from gnnloom.storage.format.memory_map import map_part_vector

LOGGER = logging.getLogger("gnnloom.pipeline")


def partition_for_batches(problem: NativeProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    """Fill ``part`` with the better of two partitions: of the stochastic and of the full-batch hypergraph.

    Both are compared on batches that the model has not seen, and reported on yet other batches.

    Args:
        problem: the graph, the options, and where to work.
        part: (num_vertices,) int32.

    Returns:
        ``batch_volume``: rows sent per batch and product, on average, with these parts; ``batch_volume_full``: with
        the parts of the full-batch hypergraph; ``batch_gain``: by what share the first is smaller; ``batch_model``:
        which one was kept, the full-batch one if they are equal.

        For uniform batches also ``batch_volume_expected`` and ``batch_volume_full_expected``: the volume of the
        stochastic and of the full-batch parts by the closed form; and ``annealing_stopped_by``: ``passes`` or
        ``time``.  For other batches also
        :meth:`~gnnloom.pipeline.partition.stochastic.drawn_batches.MergedBatches.facts`.

    Raises:
        BudgetError: the partitioner or the annealing would need more memory than there is.
    """
    options, folder = problem.options, problem.writer.work / "fit"
    # A native partitioner takes more per pin than the 80 bytes that weighing the nets of batches takes.
    problem.check_memory(problem.num_pins)
    drawer = BatchDrawer.of(options.batches, problem.graph, options.batch_rate, options.seed)
    nets: MergedNets | None = None
    facts: dict[str, Any] = {}
    if options.batches != "vertex":
        pieces = net_pieces(net_matrices(problem.graph, problem.transpose, options.directions))
        drawn = DrawnProblem(problem.writer, drawer.num_vertices, pieces, drawer.draw)
        merged = merge_batches(drawn, problem.cluster, Deadline.after(options.time_limit))
        nets, facts = merged.nets, merged.facts()
    facts |= fit_apart(problem, nets, folder)
    found = {"hypergraph": folder / FULL, "stochastic": folder / STOCHASTIC}
    # The batches that choose the better parts would flatter them, so the report uses others.
    deciding, volume = fresh_volumes(problem, drawer, found)
    # A tie goes to the full-batch parts, which come first.
    best = min(deciding, key=lambda name: deciding[name])
    part[:] = map_part_vector(found[best])
    gain = 1 - volume[best] / volume["hypergraph"] if volume["hypergraph"] else 0.0
    LOGGER.info("stochastic model: %.1f %% fewer rows per batch than the full-batch partition", 100 * gain)
    facts |= {"batch_volume": volume[best], "batch_volume_full": volume["hypergraph"], "batch_gain": gain}
    return facts | {"batch_model": best}
