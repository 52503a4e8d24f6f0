"""Entries of training pairs before they are read: how much memory they take, and what a step takes to exclude some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.trainer.data.target_edges import Chosen, ExcludedEntries, PairsOfStep, StateTargets, Targets, step_dtype
from gnnloom.trainer.kernels.dispatch import SparseRows
from gnnloom.trainer.place.arrays import tensor_dtype
from gnnloom.trainer.place.place import Place

#: Pairs that a choice is asked about to find out its share of all.
_ASKED = 1 << 12


@dataclass(frozen=True)
class UnreadEntries(ExcludedEntries):
    """Excluded entries whose arrays have no values."""

    place: Place

    def row_sums(self) -> NDArray[np.float64]:
        return np.zeros(self.num_rows)

    def listed(self) -> SparseRows:
        # Most rows have few of the entries.
        count = min(len(self.row), self.num_rows)
        begin, end, target = (_array(self.place, count, np.dtype(np.int64)) for _ in range(3))
        return SparseRows(begin, end, target, self.column, self.weight, self.num_rows, self.num_columns)

    def removed_from(self, block: CSR) -> CSR:
        indices = _array(self.place, block.nnz, block.indices.dtype)
        return replace(block, indptr=block.indptr.copy(), indices=indices, data=None)


class StatedPairs:
    """Pairs whose number alone is known; see :class:`gnnloom.trainer.data.target_edges.PairSource`."""

    num_pairs: int
    num_entries: int

    def targets(self, read: object, state: Callable[[StateTargets], Sequence[Targets]]) -> Sequence[Targets]:  # noqa: ARG002
        return state(partial(UnreadTargets, self.num_pairs, self.num_entries))


class UnreadTargets:
    """Stands for :class:`gnnloom.trainer.data.target_edges.TargetEntries` where nothing is read.

    Arrays have no values, and large ones are never written.
    """

    def __init__(
        self,
        num_pairs: int,
        num_entries: int,
        shares: Sequence[float],
        shapes: Sequence[tuple[int, int]],
        place: Place,
        *,
        weighted: bool,
    ) -> None:
        """Take the memory of the entries, and for the moment what sorting them takes.

        Args:
            num_pairs: of all ranks.
            num_entries: of the adjacency that the pairs are about.
            shares: of all entries of the pairs, the share in each block.
            shapes: rows and columns of every block.
        """
        self._place, self._shapes, self._weighted = place, shapes, weighted
        self._counts = [round(share * num_entries) for share in shares]
        self._num_pairs, count = num_pairs, sum(self._counts)
        self._steps = self._ids(0)
        widths = [max((shape[side] for shape in shapes), default=0) for side in (0, 1)]
        # They are joined, and sorted by block, by an order; their pairs are numbered.
        momentary = [
            *(self._ids(count, each) for each in (max(widths), max(widths), num_pairs, count)),
            *(self._ids(count) for _ in range(1 + weighted)),
            self._ids(count // 8),
            self._ids(min(count, num_pairs), num_pairs),
        ]
        self._kept = [
            *(self._ids(count, width) for width in widths),
            self._ids(count, count),
            self._ids(min(count, num_pairs)),
            self._ids(count if weighted else 0),
        ]
        del momentary

    def __len__(self) -> int:
        return sum(self._counts)

    def chosen(self, choose: Chosen) -> list[ExcludedEntries]:
        """Entries of every block, in proportion to the choice's share of all pairs."""
        asked = np.linspace(0, max(0, self._num_pairs - 1), min(self._num_pairs, _ASKED)).astype(np.int64)
        share = float(np.mean(choose(asked))) if len(asked) else 0.0
        # Whether each pair is chosen, whether each entry is, and the positions of chosen entries.
        count = len(self)
        if isinstance(choose, PairsOfStep):
            # The step of each entry is kept.
            self._steps = self._ids(count * step_dtype(choose.num_steps).itemsize // 8)
        momentary = [self._ids(count // 8), self._ids(count // 8), self._ids(round(share * count))]
        found: list[ExcludedEntries] = [
            UnreadEntries(
                self._ids(round(share * each), shape[0]),
                self._ids(round(share * each), shape[1]),
                self._ids(round(share * each)).view(np.float64) if self._weighted else None,
                *shape,
                self._place,
            )
            for each, shape in zip(self._counts, self._shapes, strict=True)
        ]
        del momentary
        return found

    def _ids(self, count: int, width: int | None = None) -> NDArray[np.int64]:
        """(count,) ids below a width, of int64 by default."""
        dtype = np.dtype(np.int64) if width is None else index_dtype(width)
        ids: NDArray[np.int64] = _array(self._place, count, dtype)
        return ids


def _array(place: Place, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """(count,) an array without values, whose memory counts as a tensor's."""
    return place.to_numpy(place.lasting((count,), tensor_dtype(dtype)))
