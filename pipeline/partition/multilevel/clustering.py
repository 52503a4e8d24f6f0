"""Cluster vertices that share nets, by label propagation over streams, with a limit on the weight of a cluster.

The state is O(n); pins stay on disk.  Each net keeps a *profile*: the first few clusters that it met, with the number
of its pins in each.  A vertex joins the cluster that the profiles of its nets rate highest, and updates them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.incidence import IncidenceBlock
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import index_dtype

#: Nets with more pins are ignored: they say little about which vertices belong together.
_LARGEST_NET = 1000
#: Clusters in the profile of a net.  All later ones are ignored, which bounds memory and the time of a visit.
SLOTS: Final = 4


def cluster_vertices(hypergraph: DiskHypergraph, limit: int, rounds: int) -> NDArray[Any]:
    """Cluster the vertices.

    Args:
        hypergraph: to cluster.
        limit: the most that a cluster of several vertices may weigh.
        rounds: passes over the nets and the vertices.

    Returns:
        (num_vertices,) int32 or int64 cluster of each vertex, numbered from 0 in the order of first members.

    Size-constrained label propagation: Meyerhenke, Sanders, Schulz (SEA 2014).  A net of s pins adds 1/(s-1) to the
    rating of a pair of its pins, and heavy clusters are rated lower: Karypis, Kumar (VLSI Design 11(3), 2000).
    """
    n = hypergraph.num_vertices
    label = np.arange(n, dtype=index_dtype(n))
    rating = _net_ratings(hypergraph)
    # Every vertex starts as a cluster of its own.
    load = hypergraph.vertex_weight.copy()
    # Scores only rank clusters, so float32 is precise enough for an array of n.
    score = np.zeros(n, dtype=np.float32)
    # The largest state of this step; int16 suffices because nets of more than ``_LARGEST_NET`` pins have none.
    profile = np.empty((hypergraph.num_nets, SLOTS), dtype=label.dtype)
    count = np.empty((hypergraph.num_nets, SLOTS), dtype=np.int16)
    # Moves keep up to date only clusters that have a slot, so each round refills the profiles.
    for _ in range(rounds):
        for block in hypergraph.nets.blocks():
            fill_profiles(block, rating, label, profile, count)
        for block in hypergraph.vertices.blocks():
            _join_clusters(block, hypergraph.vertex_weight, rating, profile, count, label, load, score, limit)
    _renumber(label)
    return label


def _net_ratings(hypergraph: DiskHypergraph) -> NDArray[np.float32]:
    """(num_nets,) float32 rating of each net; see :func:`block_ratings`."""
    rating = np.zeros(hypergraph.num_nets, dtype=np.float32)
    for block in hypergraph.nets.blocks():
        rating[block.first_row : block.first_row + len(block.offset) - 1] = block_ratings(block, hypergraph.net_weight)
    return rating


def block_ratings(block: IncidenceBlock, net_weight: NDArray[np.int64]) -> NDArray[np.float32]:
    """(num_rows,) float32 weight / (pins - 1) of a block of nets; 0 for nets with one pin or with too many.

    Args:
        net_weight: (num_nets,) int64, or (0,) if all are 1.
    """
    pins = np.diff(block.offset)
    weight = net_weight[block.first_row : block.first_row + len(pins)] if len(net_weight) else 1
    # The maximum below only avoids a division by zero where the rating is 0 anyway.
    useful = (pins > 1) & (pins <= _LARGEST_NET)
    return np.where(useful, weight / np.maximum(pins - 1, 1), 0).astype(np.float32)


@kernel
def fill_profiles(
    block: IncidenceBlock,
    rating: NDArray[np.float32],
    label: NDArray[Any],
    profile: NDArray[Any],
    count: NDArray[np.int16],
) -> None:
    """Fill the profiles of a block of nets from the labels of their pins.

    Args:
        profile: (num_nets, SLOTS) cluster in each slot, or -1.
        count: (num_nets, SLOTS) int16 pins in that cluster; at most ``_LARGEST_NET``.
    """
    for row in range(len(block.offset) - 1):
        net = block.first_row + row
        profile[net] = -1
        count[net] = 0
        if rating[net] > 0:
            for position in range(block.offset[row], block.offset[row + 1]):
                add_pin(profile[net], count[net], label[block.ids[position]])


@kernel(inline="always")
def add_pin(profile: NDArray[Any], count: NDArray[np.int16], cluster: int) -> None:
    """Count a pin in a cluster that has a slot or gets a free one; else ignore it."""
    free = -1
    for slot in range(SLOTS):
        if profile[slot] == cluster:
            count[slot] += 1
            return
        # The scan continues past a free slot, because the cluster may have a slot further on.
        if count[slot] == 0 and free < 0:
            free = slot
    if free >= 0:
        profile[free] = cluster
        count[free] = 1


@kernel(inline="always")
def remove_pin(profile: NDArray[Any], count: NDArray[np.int16], cluster: int) -> None:
    """Take a pin out of a cluster, if that has a slot."""
    for slot in range(SLOTS):
        if profile[slot] == cluster and count[slot] > 0:
            # Pins without a slot were not counted, so a slot may become free while its cluster still has pins.
            count[slot] -= 1
            if count[slot] == 0:
                profile[slot] = -1


@kernel
def _join_clusters(
    block: IncidenceBlock,
    weight: NDArray[np.int64],
    rating: NDArray[np.float32],
    profile: NDArray[Any],
    count: NDArray[np.int16],
    label: NDArray[Any],
    load: NDArray[np.int64],
    score: NDArray[np.float32],
    limit: int,
) -> None:
    """Visit a block of vertices; each joins the cluster with room that has the highest score for its weight.

    Args:
        weight: (num_vertices,) int64 weight of each vertex.
        rating: (num_nets,) float32.
        label: (num_vertices,) cluster of each vertex; changed.
        load: (num_vertices,) int64 weight of each cluster; changed.
        score: (num_vertices,) float32, zero before and after.
        limit: the most that a cluster may weigh to be joined.
    """
    for row in range(len(block.offset) - 1):
        # One vertex after the other, so loads are exact at each move: no cluster exceeds the limit by a race, and the
        # result does not depend on the number of processors.
        vertex = block.first_row + row
        nets = block.ids[block.offset[row] : block.offset[row + 1]]
        old = label[vertex]
        _add_scores(nets, rating, profile, count, old, score)
        best = old
        for net in nets:
            for slot in range(SLOTS):
                candidate = profile[net, slot]
                if candidate < 0 or load[candidate] + weight[vertex] > limit:
                    continue
                # Compare score / sqrt(weight of the cluster without this vertex), so that clusters grow evenly;
                # squared and multiplied out, to avoid roots and divisions.
                others = max(1, load[best] - weight[vertex]) if best == old else load[best]
                if score[candidate] ** 2 * others > score[best] ** 2 * load[candidate]:
                    best = candidate
        # Clear only what this vertex touched: clearing all scores would make a round quadratic.
        for net in nets:
            for slot in range(SLOTS):
                if profile[net, slot] >= 0:
                    score[profile[net, slot]] = 0
        if best != old:
            load[old] -= weight[vertex]
            load[best] += weight[vertex]
            label[vertex] = best
            for net in nets:
                if rating[net] > 0:
                    remove_pin(profile[net], count[net], old)
                    add_pin(profile[net], count[net], best)


@kernel(inline="always")
def _add_scores(
    nets: NDArray[Any],
    rating: NDArray[np.float32],
    profile: NDArray[Any],
    count: NDArray[np.int16],
    own: int,
    score: NDArray[np.float32],
) -> None:
    """Add up the ratings of each cluster by the nets of a vertex, without the vertex itself, which is in ``own``."""
    for net in nets:
        for slot in range(SLOTS):
            cluster = profile[net, slot]
            if cluster >= 0:
                score[cluster] += rating[net] * (count[net, slot] - (cluster == own))


@kernel
def _renumber(label: NDArray[Any]) -> None:
    """Renumber the labels from 0, in the order in which they first occur."""
    number = np.full(len(label), -1, label.dtype)
    count = 0
    for vertex in range(len(label)):
        # Only labels behind the scan are overwritten, so those ahead are still the old ones.
        if number[label[vertex]] < 0:
            number[label[vertex]] = count
            count += 1
        label[vertex] = number[label[vertex]]
