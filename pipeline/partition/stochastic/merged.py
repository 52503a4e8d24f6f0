"""The hypergraph of drawn batches: the nets of all of them over the same vertices, equal ones merged.

Demirci, Haldar, Ferhatosmanoglu (PVLDB 16(4), 2022), Algorithm 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.hypergraph import Hypergraph
from gnnloom.pipeline.partition.stochastic.deadline import NO_DEADLINE, Deadline
from gnnloom.storage.matrix.permutation import mix

#: Hoeffding's bound is stated for an error of this share of the largest cost, missed this often.
_ERROR, _MISSED = 0.1, 0.05
#: Batches suffice when they have met this share of the pins.
_COVERED = 0.9
#: Batches whose pins are this many times those of the full hypergraph have to do: partitioning takes as much longer.
MOST_PINS = 4
#: Most batches that are merged.
MOST_BATCHES = 2000


@dataclass(frozen=True)
class MergedBatches:
    """The nets of some batches.

    Attributes:
        hypergraph: their nets; those with the same pins are one, with the weight of all.
        count: batches drawn.
        covered: the share of the full hypergraph's pins that lie in one or more.
        stopped_by: ``coverage``: they have met most pins; ``pins``: they have too many; ``most``: there are
            ``MOST_BATCHES``; ``time``: the deadline.
    """

    hypergraph: Hypergraph
    count: int
    covered: float
    stopped_by: str

    def facts(self) -> dict[str, Any]:
        """What was merged, and how many batches the theory asks for, ``batches_hoeffding``."""
        return {
            "batches_hoeffding": hoeffding_batches(),
            "batches_merged": self.count,
            "batches_covered": self.covered,
            "batches_nets": self.hypergraph.num_nets,
            "batches_stopped_by": self.stopped_by,
        }


def hoeffding_batches() -> int:
    """ln(2/d) / (2 t^2) batches for an error of t times the largest cost that is missed with probability d.

    The bound holds for a partition fixed beforehand; one that is fitted to the batches follows their accidents where
    they are few, and needs as many as meet most pins: in the order of (n/B)^2 for B of n uniform vertices.
    """
    return math.ceil(math.log(2 / _MISSED) / (2 * _ERROR**2))


def merge_batches(
    full: Hypergraph,
    owner: NDArray[np.int64],
    draw: Callable[[int], NDArray[np.bool_]],
    deadline: Deadline = NO_DEADLINE,
) -> MergedBatches:
    """Draw batches, one at least, until they have met most pins, and merge their nets.

    A batch has the nets whose owner it drew, without the pins that it did not; nets with one pin are dropped.

    Args:
        full: the column-net hypergraph.
        owner: (num_nets,) the pin of each net that sends.
        draw: the (num_vertices,) vertices of the batch with a number.
    """
    sizes: list[NDArray[np.int64]] = []
    pins: list[NDArray[Any]] = []
    hashes: list[NDArray[np.uint64]] = []
    met = np.zeros(full.num_pins, dtype=np.bool_)
    num_pins, covered, stopped_by = 0, 0.0, ""
    while not stopped_by:
        size, pin, hashed = _restricted(full.net_offset, full.pin, owner, draw(len(sizes)), met)
        sizes.append(size)
        pins.append(pin)
        hashes.append(hashed)
        num_pins += len(pin)
        covered = np.count_nonzero(met) / full.num_pins if full.num_pins else 1.0
        stopped_by = _stopping_rule(covered, num_pins / max(1, full.num_pins), len(sizes), deadline)
    return MergedBatches(_merge_equal(full, sizes, pins, hashes), len(sizes), covered, stopped_by)


def _stopping_rule(covered: float, times_pins: float, count: int, deadline: Deadline) -> str:
    """What ends the drawing, one of ``MergedBatches.stopped_by``; empty if nothing does."""
    rules = {
        "coverage": covered >= _COVERED,
        "pins": times_pins > MOST_PINS,
        "most": count >= MOST_BATCHES,
        "time": deadline.is_over,
    }
    return next((name for name, applies in rules.items() if applies), "")


def _merge_equal(
    full: Hypergraph, sizes: list[NDArray[np.int64]], pins: list[NDArray[Any]], hashes: list[NDArray[np.uint64]]
) -> Hypergraph:
    """Nets with the same hash become the first of them, weighted by their number."""
    size, pin = np.concatenate(sizes), np.concatenate(pins)
    _, first, weight = np.unique(np.concatenate(hashes), return_index=True, return_counts=True)
    kept = np.zeros(len(size), dtype=np.bool_)
    kept[first] = True
    net_weight = np.zeros(len(size), dtype=np.int64)
    net_weight[first] = weight
    offset = np.concatenate([[0], np.cumsum(size[kept])]).astype(np.int64)
    return Hypergraph(full.vertex_weight, offset, pin[np.repeat(kept, size)], net_weight[kept])


@njit(cache=True, nogil=True)
def _restricted(
    offset: NDArray[np.int64],
    pin: NDArray[Any],
    owner: NDArray[np.int64],
    batch: NDArray[np.bool_],
    met: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.uint64]]:
    """Sizes, pins and hashes of the nets that a batch has, each with two pins or more; marks the pins met."""
    size = np.empty(len(offset) - 1, np.int64)
    hashed = np.empty(len(offset) - 1, np.uint64)
    kept_pin = np.empty(len(pin), pin.dtype)
    nets, end = 0, 0
    for net in range(len(offset) - 1):
        if not batch[owner[net]]:
            continue
        start, total = end, np.uint64(0)
        for position in range(offset[net], offset[net + 1]):
            if batch[pin[position]]:
                met[position] = True
                kept_pin[end] = pin[position]
                total += mix(mix(np.uint64(pin[position]) + np.uint64(0x9E3779B97F4A7C15)))
                end += 1
        if end - start < 2:
            end = start
            continue
        size[nets], hashed[nets] = end - start, total
        nets += 1
    return size[:nets].copy(), kept_pin[:end].copy(), hashed[:nets].copy()
