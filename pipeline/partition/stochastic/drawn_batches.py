"""The hypergraph of drawn batches: the nets of all batches over the same vertices, with equal nets merged.

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
from gnnloom.pipeline.partition.net_lists import pin_hash, select_nets
from gnnloom.pipeline.partition.stochastic.deadline import NO_DEADLINE, Deadline

#: Hoeffding's bound is stated for an error of this share of the largest cost, exceeded with this probability.
_ERROR, _MISSED = 0.1, 0.05
#: Batches suffice once they contain this share of the pins.
_COVERED = 0.9
#: No more batches once their pins are this many times those of the full hypergraph: partitioning them takes that much
#: longer than partitioning it.
MOST_PINS = 4
#: Most batches that are merged.
MOST_BATCHES = 2000


@dataclass(frozen=True)
class MergedBatches:
    """The nets of some batches.

    Attributes:
        hypergraph: their nets; nets with the same pins are one net, with the weight of all of them.
        count: batches drawn.
        covered: the share of the full hypergraph's pins that lie in at least one batch.
        stopped_by: ``coverage``: the batches contain most pins; ``pins``: they have too many; ``most``: there are
            ``MOST_BATCHES``; ``time``: the deadline came.
    """

    hypergraph: Hypergraph
    count: int
    covered: float
    stopped_by: str

    def facts(self) -> dict[str, Any]:
        """Describe what was merged; ``batches_hoeffding`` is the number of batches that the theory asks for."""
        return {
            "batches_hoeffding": hoeffding_batches(),
            "batches_merged": self.count,
            "batches_covered": self.covered,
            "batches_nets": self.hypergraph.num_nets,
            "batches_stopped_by": self.stopped_by,
        }


def hoeffding_batches() -> int:
    """Return ln(2/d) / (2 t^2): batches for an error of t times the largest cost, exceeded with probability d.

    The bound (Hoeffding, JASA 58(301), 1963) holds for a partition fixed beforehand.  One that is fitted to few
    batches overfits them; it needs as many as contain most pins, on the order of (n/B)^2 for B of n uniform vertices.
    """
    return math.ceil(math.log(2 / _MISSED) / (2 * _ERROR**2))


def merge_batches(
    full: Hypergraph,
    owner: NDArray[np.int64],
    draw: Callable[[int], NDArray[np.bool_]],
    deadline: Deadline = NO_DEADLINE,
) -> MergedBatches:
    """Draw batches, at least one, until they contain most pins, and merge their nets.

    A batch has a net if it drew the net's owner, with those of its pins that it drew; nets with one pin are dropped.

    Args:
        full: the column-net hypergraph.
        owner: (num_nets,) int64 the pin of each net that sends.
        draw: from the number of a batch to (num_vertices,) bool, whether each vertex is drawn.
        deadline: when to stop drawing.
    """
    sizes: list[NDArray[np.int64]] = []
    pins: list[NDArray[Any]] = []
    hashes: list[NDArray[np.uint64]] = []
    met = np.zeros(full.num_pins, dtype=np.bool_)
    # The first batch is drawn whatever the deadline, so that there is a hypergraph to partition.
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
    """Return what ends the drawing, one of ``MergedBatches.stopped_by``; empty to draw more.

    Args:
        times_pins: pins drawn so far over those of the full hypergraph.
        count: batches drawn so far.
    """
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
    """Keep the first of the nets with the same hash, weighted by their number."""
    size, pin = np.concatenate(sizes), np.concatenate(pins)
    # ``return_index`` gives the first of equal hashes.
    _, first, weight = np.unique(np.concatenate(hashes), return_index=True, return_counts=True)
    kept = np.zeros(len(size), dtype=np.bool_)
    kept[first] = True
    net_weight = np.zeros(len(size), dtype=np.int64)
    net_weight[first] = weight
    return Hypergraph(full.vertex_weight, *select_nets(size, pin, kept), net_weight[kept])


@njit(cache=True, nogil=True)
def _restricted(
    offset: NDArray[np.int64],
    pin: NDArray[Any],
    owner: NDArray[np.int64],
    batch: NDArray[np.bool_],
    met: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.uint64]]:
    """Return sizes, pins and hashes of the nets that a batch has, each with two or more pins.

    Args:
        met: (num_pins,) whether any batch so far contains each pin; changed.
    """
    size = np.empty(len(offset) - 1, np.int64)
    hashed = np.empty(len(offset) - 1, np.uint64)
    kept_pin = np.empty(len(pin), pin.dtype)
    nets, end = 0, 0
    # Pins are appended as they are found and taken back if the net turns out to have only one.
    for net in range(len(offset) - 1):
        if not batch[owner[net]]:
            continue
        start, total = end, np.uint64(0)
        for position in range(offset[net], offset[net + 1]):
            if batch[pin[position]]:
                # A pin counts even if its net is dropped below: this batch has shown that the net sends nothing.
                met[position] = True
                kept_pin[end] = pin[position]
                total += pin_hash(pin[position])
                end += 1
        # No other part can need the row within this batch.
        if end - start < 2:
            end = start
            continue
        size[nets], hashed[nets] = end - start, total
        nets += 1
    # Copies, so that the buffers for all nets and pins are released.
    return size[:nets].copy(), kept_pin[:end].copy(), hashed[:nets].copy()
