"""Ranges of vertices carry what fits, and a batch that would carry more is not drawn."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.sampling.layers.expansion import OversizedBatchError
from gnnloom.storage.sampling.layers.graph_view import Draw, MatrixView, Rows
from gnnloom.storage.sampling.layers.typed import RelationView, TypedNeighborSampler
from gnnloom.trainer.passes.ranges import CARRIED, end_of_range


def test_ranges_are_as_long_as_fits_and_a_hub_is_alone() -> None:
    most, width = 1000, CARRIED // 1000
    length = np.random.default_rng(0).integers(0, 20, 500)
    length[200] = most
    start, found = 0, list[tuple[int, int]]()
    while start < len(length):
        stop = end_of_range(lambda first, last: length[first:last], start, len(length), width)
        found.append((start, stop))
        start = stop
    carried = np.append(0, np.cumsum(1 + 2 * length))
    for start, stop in found:
        assert carried[stop] - carried[start] <= most or stop == start + 1
        assert stop == len(length) or carried[stop + 1] - carried[start] > most
    assert (200, 201) in found


class Counted(MatrixView):
    """Notes how many entries are drawn."""

    drawn: list[int]

    def rows(self, vertices: NDArray[np.int64], draw: Draw) -> Rows:
        found = super().rows(vertices, draw)
        self.drawn.append(len(found.column))
        return found


def test_a_batch_with_too_many_entries_is_refused_before_the_hop_is_drawn() -> None:
    # Vertex 0 reads vertex 1, a hub that reads all others.
    hub = np.arange(2, 100, dtype=np.int32)
    indptr = np.concatenate([[0, 1], np.full(99, 99, np.int64)])
    view = Counted(CSR(0, indptr, np.concatenate([np.array([1], np.int32), hub]), None, 100))
    object.__setattr__(view, "drawn", [])
    views = [RelationView("r", "t", "t", view)]
    sampler = TypedNeighborSampler(["t"], views, 0, {"r": (ALL, ALL)})
    with pytest.raises(OversizedBatchError):
        sampler.sample_of({"t": np.array([0])}, 0, 0, most=98)
    assert view.drawn == [1]
    assert sampler.sample_of({"t": np.array([0])}, 0, 0, most=99).num_entries["r"] == [1, 98]
