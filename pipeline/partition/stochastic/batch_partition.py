"""The stochastic model: parts for training on mini-batches, which exchange different rows than the whole graph does.

A batch exchanges the rows that its induced subgraph needs.  For batches of uniform vertices at rate q, a drawn vertex
j sends 1 - (1-q)^c rows on average to a part that holds c of the other pins of net j: one row for q = 1, which makes
the connectivity cut, and about c times q for small q, which makes the edge cut.  A chord of that curve is a full net
and one 2-pin net for each of its pins, so this hypergraph needs no sampling; its partition is then improved on the
curve itself.  For other batches, the nets of many drawn batches are merged.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.balance import fill_empty_parts
from gnnloom.pipeline.partition.hypergraph import Hypergraph, column_net_hypergraph, net_matrices
from gnnloom.pipeline.partition.native.budget import check_memory
from gnnloom.pipeline.partition.native.problem import NativeProblem
from gnnloom.pipeline.partition.stochastic.annealing import IMPROVING, POLISHING, anneal, annealing_memory
from gnnloom.pipeline.partition.stochastic.batch_drawer import BatchDrawer
from gnnloom.pipeline.partition.stochastic.batch_volume import batch_volume
from gnnloom.pipeline.partition.stochastic.deadline import Deadline
from gnnloom.pipeline.partition.stochastic.drawn_batches import MOST_BATCHES, merge_batches
from gnnloom.pipeline.partition.stochastic.pin_counts import BatchNets
from gnnloom.pipeline.partition.stochastic.uniform_batches import net_owners, uniform_hypergraph

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Number of batches that decide between two partitions, and of other batches on which the volume is then reported:
#: the least, the most, and the nonzeros to read, which decide in between.
_FEWEST_FRESH, _MOST_FRESH, _FRESH_NONZEROS = 20, 200, 1 << 28


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
    options = problem.options
    # A native partitioner takes more per pin than the 80 bytes that weighing or drawing the nets of batches takes.
    problem.check_memory(problem.num_pins)
    matrices = net_matrices(problem.graph, problem.transpose, options.directions)
    full = column_net_hypergraph(problem.graph, problem.transpose, options.weights, options.directions)
    nets = BatchNets(full, net_owners(matrices), options.batch_rate)
    drawer = BatchDrawer(options.batches, problem.graph, options.batch_rate, options.seed)
    if options.batches == "vertex":
        stochastic, facts = _partition_uniform(problem, nets)
    else:
        stochastic, facts = _partition_drawn(problem, nets, drawer)
    found = {"hypergraph": problem.native(full), "stochastic": stochastic}
    if options.batches == "vertex":
        facts["batch_volume_full_expected"] = nets.expected_volume(found["hypergraph"], options.parts)
    judging = _fresh_volumes(problem, drawer, found, 0)
    # A tie goes to the full-batch parts, which come first.
    best = min(judging, key=lambda name: judging[name])
    part[:] = found[best]
    # The batches that chose the better parts would flatter them, so the report uses others.
    volume = _fresh_volumes(problem, drawer, found, 1)
    gain = 1 - volume[best] / volume["hypergraph"] if volume["hypergraph"] else 0.0
    LOGGER.info("stochastic model: %.1f %% fewer rows per batch than the full-batch partition", 100 * gain)
    facts |= {"batch_volume": volume[best], "batch_volume_full": volume["hypergraph"], "batch_gain": gain}
    return facts | {"batch_model": best}


def _partition_uniform(problem: NativeProblem, nets: BatchNets) -> tuple[NDArray[np.int32], dict[str, Any]]:
    """Return parts for batches of uniform vertices, and facts: the closed form of their volume."""
    options, full = problem.options, nets.full
    check_memory(
        f"model stochastic: counting the pins of {full.num_nets:,} nets in {options.parts:,} parts",
        annealing_memory(full.num_vertices, full.num_nets, full.num_pins, options.parts),
        options.memory_limit,
        "use fewer parts or model hypergraph",
    )
    chords = uniform_hypergraph(full, nets.owner, nets.rate, options.parts)
    first = _native(problem, chords)
    # Two starts: parts that are improved once more, to polish, and the first ones, which annealing may leave.
    again = problem.native(chords, first)
    schedules = {POLISHING: again, IMPROVING: first}
    deadline = Deadline.after(options.time_limit)
    part, finished = anneal(nets, schedules, options.parts, options.imbalance, options.seed, deadline)
    fill_empty_parts(part, full.vertex_weight, options.parts)
    facts = {"batch_volume_expected": nets.expected_volume(part, options.parts)}
    return part, facts | {"annealing_stopped_by": "passes" if finished else "time"}


def _partition_drawn(
    problem: NativeProblem, nets: BatchNets, drawer: BatchDrawer
) -> tuple[NDArray[np.int32], dict[str, Any]]:
    """Return parts for batches of any kind, and facts: what was drawn."""
    merged = merge_batches(nets.full, nets.owner, drawer.draw, Deadline.after(problem.options.time_limit))
    return _native(problem, merged.hypergraph), merged.facts()


def _native(problem: NativeProblem, hypergraph: Hypergraph) -> NDArray[np.int32]:
    if not hypergraph.num_nets:
        LOGGER.warning("model stochastic: batches exchange no rows; the parts are balanced and nothing else")
    problem.check_memory(hypergraph.num_pins)
    return problem.native(hypergraph)


def _fresh_volumes(
    problem: NativeProblem, drawer: BatchDrawer, found: dict[str, NDArray[np.int32]], series: int
) -> dict[str, float]:
    """Return the rows that each partition sends per batch on average, over batches that no model has seen.

    Args:
        found: name to (num_vertices,) int32 parts.
        series: number of the series of batches; batches of different series are different.
    """
    options = problem.options
    matrices = net_matrices(problem.graph, problem.transpose, options.directions)
    count = min(_MOST_FRESH, max(_FEWEST_FRESH, _FRESH_NONZEROS // max(1, problem.graph.nnz)))
    # Batches below MOST_BATCHES may have been drawn to make the hypergraph.
    first = MOST_BATCHES + series * count
    sent = dict.fromkeys(found, 0)
    for number in range(first, first + count):
        batch = drawer.draw(number)
        for name, part in found.items():
            sent[name] += sum(batch_volume(matrix, part, options.parts, batch) for matrix in matrices)
    return {name: rows / count for name, rows in sent.items()}
