"""Training pairs in memory, and a graph without the edges of some of the pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ListedPairs:
    """Pairs (source, target) with the weights of their edges, 0 for none, and perhaps those of their reverses."""

    pair: NDArray[np.int64]
    weight: NDArray[Any]
    symmetric: bool

    @property
    def num_pairs(self) -> int:
        return len(self.pair)

    @property
    def num_entries(self) -> int:
        return int(np.count_nonzero(self.weight)) * (1 + self.symmetric)

    def targets(self, read: Any, state: object) -> Any:
        return read()

    def read(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        return self.pair[start:stop], self.weight[start:stop]

    @classmethod
    def of(cls, adjacency: Any, seed: int, *, symmetric: bool, weighted: bool) -> ListedPairs:
        """Three quarters of the edges, with loops, some of them twice, and some pairs that are no edges."""
        rng, n = np.random.default_rng(seed), adjacency.shape[0]
        target, source = adjacency.nonzero()
        if symmetric:
            target, source = target[source <= target], source[source <= target]
        chosen = rng.choice(len(source), 3 * len(source) // 4, replace=False)
        again = rng.choice(chosen, len(chosen) // 5)
        pair = np.stack([source, target], 1)[np.concatenate([chosen, again])]
        if symmetric:
            # An undirected edge has no first end.
            pair[::2] = pair[::2, ::-1]
        pair = rng.permutation(np.concatenate([pair, rng.integers(0, n, (5, 2))]))
        weight = np.asarray(adjacency[pair[:, 1], pair[:, 0]])
        return cls(pair.astype(np.int64), weight if weighted else weight.astype(np.uint8), symmetric)

    def with_reverse(self, adjacency: Any) -> ListedPairs:
        """The same pairs, whose reverses are left out, too; loops have none."""
        source, target = self.pair.T
        reverse = np.where(source == target, 0, np.asarray(adjacency[source, target])).astype(self.weight.dtype)
        return replace(self, weight=np.stack([self.weight, reverse], 1))

    def without(self, adjacency: Any, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """The (n, n) dense adjacency without the edges of some pairs."""
        dense: NDArray[np.float64] = adjacency.toarray().astype(np.float64)
        for source, target in self.pair[numbers]:
            dense[target, source] = 0
            if self.symmetric or self.weight.ndim > 1:
                dense[source, target] = 0
        return dense


class Numbers:
    """Chooses the pairs with some numbers."""

    def __init__(self, numbers: NDArray[np.int64]) -> None:
        self.numbers = numbers

    def __call__(self, asked: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.isin(asked, self.numbers)
