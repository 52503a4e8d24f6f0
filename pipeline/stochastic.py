"""The stochastic model: parts for training on mini-batches, which exchange other rows than the whole graph does.

A batch exchanges the rows that its own subgraph needs.  For batches of uniform vertices at rate q, the rows sent
for net j to a part that holds c of its other pins number 1 - (1-q)^c on average, whenever j is drawn: between the
connectivity cut (q = 1) and, small q, c times q: the edge cut.  A chord of that curve is a full net and one 2-pin
net for each of its pins, so this hypergraph needs no sampling.  For other batches the nets of many drawn ones are
merged (Demirci, Haldar, Ferhatosmanoglu, PVLDB 16(4), 2022, Algorithm 3): about as many as draw each edge once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.hypergraph import Hypergraph, column_net_hypergraph, net_matrices
from gnnloom.pipeline.partition_problem import PartitionProblem
from gnnloom.storage.graph import Graph
from gnnloom.storage.permutation import mix
from gnnloom.storage.sampling.batches import draw_batch

LOGGER = logging.getLogger("gnnloom.pipeline")

#: The finest share of a net's weight that whole numbers express.
_SCALE = 64
#: Where the chord ends, in pins of a part on average.
_FAR = 3
#: Batches, none of which the model has seen, on which partitions are compared.
_FRESH_BATCHES = 20
#: Most batches whose nets are merged.
_MOST_BATCHES = 1000
#: Hoeffding's bound is stated for an error of this share of the largest cost, missed this often.
_ERROR, _MISSED = 0.1, 0.05


def partition_for_batches(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    """Fill ``part`` with the better of two partitions: of the stochastic and of the full-batch hypergraph.

    Both are judged on fresh batches.

    Returns:
        ``batch_volume``: rows sent per batch and product, on average, with these parts; ``batch_volume_full``: with
        the parts of the full-batch hypergraph; ``batch_gain``: by how much the first is less, as a share;
        ``batch_model``: which one was kept; and what the nets were made of.
    """
    options = problem.options
    problem.check_memory(problem.graph.nnz + problem.graph.num_vertices)
    full = column_net_hypergraph(problem.graph, problem.transpose, options.weights, options.directions)
    hypergraph, facts = _make_hypergraph(problem, full)
    problem.check_memory(hypergraph.num_pins)
    found = {"stochastic": problem.native(hypergraph), "hypergraph": problem.native(full)}
    volume = {name: _fresh_volume(problem, candidate) for name, candidate in found.items()}
    best = min(volume, key=lambda name: volume[name])
    part[:] = found[best]
    gain = 1 - volume[best] / volume["hypergraph"] if volume["hypergraph"] else 0.0
    LOGGER.info("stochastic model: %.1f %% fewer rows per batch than the full-batch partition", 100 * gain)
    facts |= {"batch_volume": volume[best], "batch_volume_full": volume["hypergraph"], "batch_gain": gain}
    return facts | {"batch_model": best}


def mixed_hypergraph(full: Hypergraph, owner: NDArray[np.int64], rate: float, parts: int) -> Hypergraph:
    """Full nets and 2-pin nets, weighted for batches of uniform vertices.

    For a net of s pins, 1 - (1-rate)^c is replaced by its chord through c = 1 and c = 3 s / P, a few times what a
    part holds on average: what does not depend on c weighs the full net, what grows with c its 2-pin nets.  Equal
    2-pin nets are merged.

    Args:
        full: the column-net hypergraph, with nets of unit weight.
        owner: (num_nets,) the pin of each net that sends.
        rate: the share of the vertices that is drawn, above 0.
    """
    size = np.diff(full.net_offset)
    far = np.maximum(2.0, _FAR * size / parts)
    slope = ((1 - rate) - (1 - rate) ** far) / (far - 1)
    pair_weight = np.rint(_SCALE * slope / rate).astype(np.int64)
    net_weight = _SCALE - pair_weight
    net_weight[size == 2] = 0
    pair_weight[size == 2] = _SCALE
    pair, weight = _merged_pairs(full, owner, pair_weight)
    kept = net_weight > 0
    offset = np.cumsum(np.concatenate([[0], size[kept], np.full(len(pair), 2)])).astype(np.int64)
    pins = np.concatenate([full.pin[np.repeat(kept, size)], pair.reshape(-1).astype(full.pin.dtype)])
    return Hypergraph(full.vertex_weight, offset, pins, np.concatenate([net_weight[kept], weight]))


def _merged_pairs(
    full: Hypergraph, owner: NDArray[np.int64], pair_weight: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(num_pairs, 2) each net's owner with each other pin, ascending and distinct; and their summed weights."""
    size = np.diff(full.net_offset)
    sender, weight = np.repeat(owner, size), np.repeat(pair_weight, size)
    useful = (sender != full.pin) & (weight > 0)
    sender, pin, weight = sender[useful], full.pin[useful].astype(np.int64), weight[useful]
    key = np.minimum(sender, pin) * full.num_vertices + np.maximum(sender, pin)
    distinct, place = np.unique(key, return_inverse=True)
    total = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, place, weight)
    return np.stack(np.divmod(distinct, full.num_vertices), axis=1), total


def net_owners(matrices: Sequence[Graph]) -> NDArray[np.int64]:
    """The vertex of each net of the hypergraph whose nets are the rows of these matrices."""
    owners = [np.empty(0, dtype=np.int64)]
    for matrix in matrices:
        owners += [_rows_with_others(block.row_offset, block.indptr, block.indices) for block in matrix.blocks()]
    return np.concatenate(owners)


@njit(cache=True, nogil=True)
def _rows_with_others(first_row: int, indptr: NDArray[np.int64], indices: NDArray[Any]) -> NDArray[np.int64]:
    """The rows with a column beside their own number."""
    rows = np.empty(len(indptr) - 1, np.int64)
    count = 0
    for row in range(len(indptr) - 1):
        length = indptr[row + 1] - indptr[row]
        if length > 1 or (length == 1 and indices[indptr[row]] != first_row + row):
            rows[count] = first_row + row
            count += 1
    return rows[:count]


def sampled_hypergraph(full: Hypergraph, batches: Iterable[NDArray[np.bool_]]) -> Hypergraph:
    """The nets of batches over all vertices: those with the same pins merged, those with one pin dropped.

    Args:
        full: the column-net hypergraph; a batch's nets are its nets without the pins that were not drawn.
        batches: (num_vertices,) each, the vertices drawn.
    """
    offsets, pins, hashes = [np.zeros(1, dtype=np.int64)], [], []
    for batch in batches:
        size, pin, hashed = _restricted(full.net_offset, full.pin, batch)
        offsets.append(size)
        pins.append(pin)
        hashes.append(hashed)
    size, pin = np.concatenate(offsets[1:]), np.concatenate(pins)
    _, first, weight = np.unique(np.concatenate(hashes), return_index=True, return_counts=True)
    kept = np.zeros(len(size), dtype=np.bool_)
    kept[first] = True
    net_weight = np.zeros(len(size), dtype=np.int64)
    net_weight[first] = weight
    offset = np.concatenate([[0], np.cumsum(size[kept])]).astype(np.int64)
    return Hypergraph(full.vertex_weight, offset, pin[np.repeat(kept, size)], net_weight[kept])


@njit(cache=True, nogil=True)
def _restricted(
    offset: NDArray[np.int64], pin: NDArray[Any], batch: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.uint64]]:
    """Sizes, pins and hashes of the nets that keep two pins or more in a batch."""
    size = np.empty(len(offset) - 1, np.int64)
    hashed = np.empty(len(offset) - 1, np.uint64)
    kept_pin = np.empty(len(pin), pin.dtype)
    nets, end = 0, 0
    for net in range(len(offset) - 1):
        start, total = end, np.uint64(0)
        for position in range(offset[net], offset[net + 1]):
            if batch[pin[position]]:
                kept_pin[end] = pin[position]
                total += mix(mix(np.uint64(pin[position]) + np.uint64(0x9E3779B97F4A7C15)))
                end += 1
        if end - start < 2:
            end = start
            continue
        size[nets], hashed[nets] = end - start, total
        nets += 1
    return size[:nets].copy(), kept_pin[:end].copy(), hashed[:nets].copy()


def batch_counts(share: float) -> dict[str, int]:
    """How many batches to merge: by Hoeffding's bound, and as many as suffice to meet every pin about once.

    The bound, ln(2/d) / (2 t^2) for an error of t times the largest cost that is missed with probability d, holds for a
    partition fixed beforehand.  A partition fitted to the batches follows their accidents where they are few; the
    second count grows with the graph over a batch, (n/B)^2 for B uniform vertices.

    Args:
        share: of all pins that one batch meets.
    """
    hoeffding = math.ceil(math.log(2 / _MISSED) / (2 * _ERROR**2))
    return {"batches_hoeffding": hoeffding, "batches_sufficient": math.ceil(1 / max(share, 1e-9))}


def batch_volume(matrix: Graph, part: NDArray[np.int32], parts: int, batch: NDArray[np.bool_]) -> int:
    """Rows sent for the product with the transpose of ``matrix``, of the subgraph that a batch induces."""
    last_row = np.full(parts, -1, dtype=np.int64)
    sent = 0
    for block in matrix.blocks():
        sent += _count_batch(block.row_offset, block.indptr, block.indices, part, batch, last_row)
    return sent


@njit(cache=True, nogil=True)
def _count_batch(
    first_row: int,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    part: NDArray[np.int32],
    batch: NDArray[np.bool_],
    last_row: NDArray[np.int64],
) -> int:
    """Count the parts, other than its own, with a drawn vertex that needs each drawn row."""
    sent = 0
    for row in range(len(indptr) - 1):
        vertex = first_row + row
        if not batch[vertex]:
            continue
        last_row[part[vertex]] = vertex
        for position in range(indptr[row], indptr[row + 1]):
            column = indices[position]
            if batch[column] and last_row[part[column]] != vertex:
                last_row[part[column]] = vertex
                sent += 1
    return sent


def _make_hypergraph(problem: PartitionProblem, full: Hypergraph) -> tuple[Hypergraph, dict[str, Any]]:
    options = problem.options
    matrices = net_matrices(problem.graph, problem.transpose, options.directions)
    if options.batches == "vertex":
        return mixed_hypergraph(full, net_owners(matrices), options.batch_rate, options.parts), {}
    first = sampled_hypergraph(full, [_draw(problem, 0)])
    counts = batch_counts(first.num_pins / max(1, full.num_pins))
    merged = min(_MOST_BATCHES, counts["batches_sufficient"])
    return sampled_hypergraph(full, (_draw(problem, number) for number in range(merged))), {
        **counts,
        "batches_merged": merged,
    }


def _draw(problem: PartitionProblem, number: int) -> NDArray[np.bool_]:
    options = problem.options
    return draw_batch(options.batches, problem.graph, options.batch_rate, options.seed, number)


def _fresh_volume(problem: PartitionProblem, part: NDArray[np.int32]) -> float:
    """Rows sent per batch on average, over batches that no model has seen."""
    options = problem.options
    sent = 0
    for number in range(_FRESH_BATCHES):
        batch = _draw(problem, _MOST_BATCHES + number)
        for matrix in net_matrices(problem.graph, problem.transpose, options.directions):
            sent += batch_volume(matrix, part, options.parts, batch)
    return sent / _FRESH_BATCHES
