"""Entries of training pairs before they are read: how much memory they take, and what a step takes to exclude some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.trainer.data.target_edges import Chosen, ExcludedEntries, PairsOfStep, PairSource, step_dtype
from gnnloom.trainer.place.arrays import as_array, tensor_dtype
from gnnloom.trainer.place.place import Place

#: Pairs that a choice is asked about to find out its share of all.
_ASKED = 1 << 12


class UnreadTargets:
    """Stands for :class:`gnnloom.trainer.data.target_edges.TargetEntries` where nothing is read.

    Arrays are without values, and nobody writes to large ones.
    """

    def __init__(
        self,
        source: PairSource,
        shares: Sequence[float],
        shapes: Sequence[tuple[int, int]],
        place: Place,
        *,
        weighted: bool,
    ) -> None:
        """Take the memory of the entries, and for the moment what sorting them takes.

        Args:
            shares: of all entries of the pairs, the share in each block.
            shapes: rows and columns of every block.
        """
        self._place, self._shapes, self._weighted = place, shapes, weighted
        self._counts = [round(share * source.num_entries) for share in shares]
        self._num_pairs, count = source.num_pairs, sum(self._counts)
        self._steps = self._ids(0)
        widths = [max((shape[side] for shape in shapes), default=0) for side in (0, 1)]
        # They are joined, and sorted by block, by an order; their pairs are numbered.
        momentary = [
            *(self._ids(count, each) for each in (max(widths), max(widths), source.num_pairs, count)),
            *(self._ids(count) for _ in range(1 + weighted)),
            self._ids(count // 8),
            self._ids(min(count, source.num_pairs), source.num_pairs),
        ]
        self._kept = [
            *(self._ids(count, width) for width in widths),
            self._ids(count, count),
            self._ids(min(count, source.num_pairs)),
            self._ids(count if weighted else 0),
        ]
        del momentary

    def __len__(self) -> int:
        return sum(self._counts)

    def chosen(self, choose: Chosen) -> list[ExcludedEntries]:
        """As many entries of every block as are in the choice's share of all pairs."""
        asked = np.linspace(0, max(0, self._num_pairs - 1), min(self._num_pairs, _ASKED)).astype(np.int64)
        share = float(np.mean(choose(asked))) if len(asked) else 0.0
        # Whether each pair is chosen, whether each entry is, and the positions of these.
        count = len(self)
        if isinstance(choose, PairsOfStep):
            # The step of each entry is kept.
            self._steps = self._ids(count * step_dtype(choose.num_steps).itemsize // 8)
        momentary = [self._ids(count // 8), self._ids(count // 8), self._ids(round(share * count))]
        found = [
            ExcludedEntries(
                self._ids(round(share * each), shape[0]),
                self._ids(round(share * each), shape[1]),
                self._ids(round(share * each)).view(np.float64) if self._weighted else None,
                *shape,
                is_read=False,
            )
            for each, shape in zip(self._counts, self._shapes, strict=True)
        ]
        del momentary
        return found

    def _ids(self, count: int, width: int | None = None) -> NDArray[np.int64]:
        """(count,) ids below a width, of int64 by default."""
        dtype = np.dtype(np.int64) if width is None else index_dtype(width)
        ids: NDArray[np.int64] = as_array(self._place.lasting((count,), tensor_dtype(dtype)))
        return ids
