"""Negatives follow their pairs in one list, and batches leave out the edges of their pairs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnloom.trainer.feed.pair_seeds import PairSeeds, PairSet
from support.covering import few_of

PAIRS = PairSet(np.arange(3), np.array([4, 5, 6]), np.array([7, 4, 9]))


class Fixed(PairSeeds):
    """One batch of the same pairs."""

    def pairs_of(self, epoch: int) -> Callable[[int], PairSet]:
        return lambda number: PAIRS.take(slice(2 * number, 2 * number + 2))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, []),
        ({"negative": [[1, 2], [3, 1], [2, 2]]}, [(4, 1), (4, 2), (5, 3), (5, 1), (6, 2), (6, 2)]),
        ({"negative": [[1], [2], [3]], "drawn_source": [[8], [8], [0]]}, [(8, 1), (8, 2), (0, 3)]),
        # A row that all pairs share.
        ({"negative": [[1, 2]], "drawn_source": [[8, 0]]}, [(8, 1), (0, 2)]),
        # Other targets, and then other sources.
        (
            {"negative": [[1], [2], [3]], "negative_source": [[8], [8], [0]]},
            [(4, 1), (8, 7), (5, 2), (8, 4), (6, 3), (0, 9)],
        ),
    ],
)
def test_negatives_follow_the_pairs_in_their_order(more: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    arrays = {name: np.array(value) for name, value in more.items()}
    pairs = PairSet(PAIRS.number, PAIRS.source, PAIRS.target, **arrays)
    if pairs.negative_source is not None:
        pairs = pairs.with_both_ends()
    found = pairs.listed()
    assert [tuple(pair) for pair in found.T.tolist()] == [(4, 7), (5, 4), (6, 9), *expected]
    np.testing.assert_array_equal(pairs.vertices, np.unique(found))


@pytest.mark.parametrize(
    ("excludes", "symmetric", "excludes_reverse"),
    few_of(
        [True, False], [pytest.param(False, False), pytest.param(True, False), pytest.param(False, True)], together=1
    ),
)
def test_a_batch_leaves_out_the_edges_of_its_pairs(symmetric: bool, excludes_reverse: bool, excludes: bool) -> None:
    links: Any = SimpleNamespace(relation=None, symmetric=symmetric, excludes_reverse=excludes_reverse)
    seeds = Fixed(links, 3, 2, excludes=excludes)
    assert seeds.num_batches == 2
    found = seeds.begin(0)(0)
    assert found.vertices.tolist() == [4, 5, 7]
    assert found.pairs.number.tolist() == [0, 1]
    if not excludes:
        assert found.without is None
        return
    # Row i of the matrix has the edges that lead to vertex i.
    edges = {(7, 4), (4, 5)} | ({(4, 7), (5, 4)} if symmetric or excludes_reverse else set())
    row, column = found.without
    assert set(zip(row.tolist(), column.tolist(), strict=True)) == edges
