"""The kernels of clustering in rounds: propose joins, accept joins that fit, and update profiles.

A join is a row (vertex, cluster that it leaves, cluster that it joins).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.clustering import SLOTS, add_pin, remove_pin
from gnnloom.pipeline.partition.multilevel.incidence import IncidenceBlock
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import mix

#: Vertices in more nets than this join no cluster, though others may join theirs.  A hub says as little about which
#: vertices belong together as a large net does, and a table of all clusters around it would take gigabytes.
_MOST_NETS: Final = 1 << 16
#: Bytes of the largest table of the clusters around a vertex: clusters, scores, and the half of the places in use.
TABLE_BYTES: Final = (8 + 4 + 8 // 2) * 4 * SLOTS * _MOST_NETS


@kernel
def propose_joins(
    block: IncidenceBlock,
    weight: NDArray[np.int64],
    rating: NDArray[np.float32],
    profile: NDArray[Any],
    label: NDArray[Any],
    load: NDArray[np.int64],
    limit: int,
    start: int,
    stop: int,
    key: np.uint64,
    joins: NDArray[np.int64],
) -> int:
    """Choose the cluster that each vertex of a block joins, as if no other vertex moved; returns how many join one.

    Args:
        weight: (num_vertices,) int64 weight of each vertex.
        rating: (num_nets,) float32.
        profile: (num_nets, 2, SLOTS) the clusters of each net, and the pins in them.
        label: (num_vertices,) cluster of each vertex.
        load: (num_vertices,) int64 weight of each cluster.
        limit: the most that a cluster may weigh to be joined.
        start, stop: the vertices of this round.  Of two that would join each other, only one may.
        key: of the random order that decides which.
        joins: (at least num_rows, 3) int64, filled from the front.
    """
    # A table of the clusters around one vertex instead of a score for every cluster of the hypergraph.
    size = _table_size(block, weight, limit)
    slot_cluster, slot_score = np.full(size, -1, np.int64), np.zeros(size, np.float32)
    # At most half of the table is ever used.
    used = np.empty(size // 2, np.int64)
    found = 0
    for row in range(len(block.offset) - 1):
        vertex, nets = block.first_row + row, block.ids[block.offset[row] : block.offset[row + 1]]
        if not _may_join(weight[vertex], limit, len(nets)):
            continue
        old = int(label[vertex])
        count = _add_scores(nets, rating, profile, old, slot_cluster, slot_score, used)
        best = _best_cluster(old, weight[vertex], load, limit, slot_cluster, slot_score, used[:count])
        # Two vertices that join each other would only trade places.
        is_mutual = (
            start <= best < stop
            and load[best] == weight[best]
            and load[old] == weight[vertex]
            and mix(key ^ np.uint64(best)) < mix(key ^ np.uint64(old))
        )
        if best != old and not is_mutual:
            joins[found, 0], joins[found, 1], joins[found, 2] = vertex, old, best
            found += 1
        for k in range(count):
            slot_cluster[used[k]] = -1
            slot_score[used[k]] = 0
    return found


@kernel(inline="always")
def _may_join(weight: int, limit: int, num_nets: int) -> bool:
    """Whether a vertex is neither too heavy for any cluster nor a hub."""
    return weight < limit and num_nets <= _MOST_NETS


@kernel
def _table_size(block: IncidenceBlock, weight: NDArray[np.int64], limit: int) -> int:
    """A power of two of at least twice the clusters around any vertex of a block that may join one."""
    most = 1
    for row in range(len(block.offset) - 1):
        num_nets = block.offset[row + 1] - block.offset[row]
        if _may_join(weight[block.first_row + row], limit, num_nets):
            most = max(most, num_nets)
    size = 4
    # One more than the slots: the vertex's own cluster is always there.
    while size < 2 * (SLOTS * most + 1):
        size *= 2
    return size


@kernel(inline="always")
def _slot(cluster: int, slot_cluster: NDArray[np.int64]) -> np.int64:
    """The place of a cluster in the table, or the free one where it belongs."""
    last = len(slot_cluster) - 1
    slot = np.int64(mix(np.uint64(cluster)) & np.uint64(last))
    while slot_cluster[slot] >= 0 and slot_cluster[slot] != cluster:
        slot = (slot + 1) & last
    return slot


@kernel
def _add_scores(
    nets: NDArray[Any],
    rating: NDArray[np.float32],
    profile: NDArray[Any],
    own: int,
    slot_cluster: NDArray[np.int64],
    slot_score: NDArray[np.float32],
    used: NDArray[np.int64],
) -> int:
    """Add up the ratings of each cluster by the nets of a vertex, without the vertex itself, which is in ``own``.

    Returns:
        The number of clusters; ``used`` has their slots in the table, the slot of ``own`` first.
    """
    slot = _slot(own, slot_cluster)
    slot_cluster[slot] = own
    used[0] = slot
    count = 1
    for net in nets:
        for number in range(SLOTS):
            cluster = int(profile[net, 0, number])
            if cluster < 0:
                continue
            slot = _slot(cluster, slot_cluster)
            if slot_cluster[slot] < 0:
                slot_cluster[slot] = cluster
                used[count] = slot
                count += 1
            slot_score[slot] += rating[net] * np.float32(profile[net, 1, number] - (cluster == own))
    return count


@kernel
def _best_cluster(
    own: int,
    weight: int,
    load: NDArray[np.int64],
    limit: int,
    slot_cluster: NDArray[np.int64],
    slot_score: NDArray[np.float32],
    used: NDArray[np.int64],
) -> int:
    """The cluster with room that has the highest score for its weight; ``own`` if no other is better."""
    best, best_score, best_load = own, slot_score[used[0]], max(1, load[own] - weight)
    for slot in used[1:]:
        cluster = slot_cluster[slot]
        # As in ``clustering``: compares score / sqrt(weight), squared and multiplied out.
        if load[cluster] + weight <= limit and slot_score[slot] ** 2 * best_load > best_score**2 * load[cluster]:
            best, best_score, best_load = cluster, slot_score[slot], load[cluster]
    return best


@kernel
def fitting_joins(
    joins: NDArray[np.int64], weight: NDArray[np.int64], load: NDArray[np.int64], limit: int
) -> NDArray[np.bool_]:
    """Choose the joins that keep every cluster within the limit, in the order given.

    Args:
        joins: (num_joins, 3) int64; joins to one cluster are consecutive.
        load: (num_vertices,) int64 weight of each cluster before the joins.
    """
    fits = np.zeros(len(joins), np.bool_)
    cluster, total = -1, 0
    for k in range(len(joins)):
        if joins[k, 2] != cluster:
            cluster = joins[k, 2]
            total = load[cluster]
        # Departures are not subtracted, because a departure may itself be refused.
        if total + weight[joins[k, 0]] <= limit:
            total += weight[joins[k, 0]]
            fits[k] = True
    return fits


@kernel
def leave_profiles(updates: NDArray[np.int64], rating: NDArray[np.float32], profile: NDArray[Any]) -> None:
    """Take pins out of the clusters that they leave, in the profiles of their nets.

    Args:
        updates: (num_updates, 3) int64 net, cluster that a pin leaves, cluster that it joins.
        profile: (num_nets, 2, SLOTS); changed.
    """
    for k in range(len(updates)):
        net = updates[k, 0]
        if rating[net] > 0:
            remove_pin(profile[net, 0], profile[net, 1], updates[k, 1])


@kernel
def join_profiles(updates: NDArray[np.int64], rating: NDArray[np.float32], profile: NDArray[Any]) -> None:
    """Add pins to the clusters that they join, in the profiles of their nets; see :func:`leave_profiles`."""
    for k in range(len(updates)):
        net = updates[k, 0]
        if rating[net] > 0:
            add_pin(profile[net, 0], profile[net, 1], updates[k, 2])
