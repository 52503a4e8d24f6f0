"""The exchange of partial sums for products whose ranks send sums in place of some rows (``--exchange cover``).

See :mod:`gnnloom.storage.shards.row_cover` for which sums are sent. A product sends the rows first, then forms its sums
for others, which wait for them, and multiplies its own columns while both are on their way. What arrives is added in
a fixed order, first the rows and then the sums, so that a product has the same bits in every run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import SPMM, Kind
from gnnloom.trainer.data.target_edges import ExcludedEntries
from gnnloom.trainer.kernels.dispatch import ColumnScale, Progress, SparseProduct, SparseRows, sparse_product
from gnnloom.trainer.operators.exclusion import ExcludedBlock
from gnnloom.trainer.operators.halo import Arrival, others_with_rows, receive_parts, send_parts
from gnnloom.trainer.place.place import Place

if TYPE_CHECKING:
    # It imports numba, which an exchange of rows need not load.
    from gnnloom.storage.shards.row_cover import PartialSums


class SumExchange:
    """The sums that a rank forms for others, and the sums that it adds to its own rows. Methods are collective."""

    def __init__(self, comm: Communicator, sums: PartialSums, num_own: int, place: Place) -> None:
        """Prepare the products. Communicates nothing."""
        self._comm, self._place = comm, place
        self._sent_offset, self._target_offset = sums.sent_offset.tolist(), sums.target_offset.tolist()
        self._formed = sparse_product(sums.matrix, place)
        self._ones = place.lasting((0,), place.sum_dtype)
        senders = others_with_rows(comm, self._target_offset)
        #: Ranks in the order in which their sums are added, and the matrix that adds all sums to the rows of one rank.
        self._added = [(rank, self._addition(sums, rank, num_own)) for rank in senders]

    def _addition(self, sums: PartialSums, rank: int, num_own: int) -> SparseProduct:
        start, stop = self._target_offset[rank : rank + 2]
        target = sums.target[start:stop]
        # Rows of a product ascend; the targets of a shard that is reordered do not.
        order = np.argsort(target)
        begin = np.arange(stop - start)
        rows = SparseRows(begin, begin + 1, target[order], start + order, None, num_own, self._target_offset[-1])
        return sparse_product(rows, self._place, self._place.sum_dtype)

    @property
    def receives(self) -> bool:
        """Whether any sum arrives."""
        return bool(self._added)

    def begin(
        self,
        own: Tensor,
        kind: Kind,
        factors: ColumnScale | None,
        excluded: ExcludedBlock | None,
        progress: Progress = None,
    ) -> Arrival:
        """Form the sums for other ranks and begin to exchange them.

        Args:
            own: (num_own, dim) this rank's rows.
            factors: factors of the rows; None for ones.
            excluded: entries of the sums' matrix to leave out.
            progress: called now and then.

        Returns:
            The (num_received, dim) sums on their way.
        """
        comm, place = self._comm, self._place
        arriving = place.empty((self._target_offset[-1], own.shape[1]), place.sum_dtype)
        receives = receive_parts(comm, arriving, self._target_offset)
        formed = place.empty((self._sent_offset[-1], own.shape[1]), place.sum_dtype)
        with comm.traffic.timing(SPMM):
            self._formed.multiply(own, formed, self._ones, column_scale=factors, progress=progress)
            if excluded is not None:
                excluded.subtract(own, formed, self._ones, factors, progress)
        with comm.traffic.timing(kind):
            return Arrival(arriving, receives, send_parts(comm, formed, self._sent_offset, kind), formed)

    def add(self, arrival: Arrival, out: Tensor, left: Tensor, kind: Kind, progress: Progress = None) -> None:
        """Add the sums of every rank, times the factors of their rows, once they are there.

        Args:
            out: (num_own, dim) of the dtype of sums.
            left: (num_own,) factors, or (0,) for ones.
        """
        comm = self._comm
        for rank, addition in self._added:
            with comm.traffic.timing(kind):
                comm.wait(arrival.receives[rank])
            with comm.traffic.timing(SPMM):
                addition.multiply(arrival.rows, out, left, accumulate=True, progress=progress)


def excluded_from_sums(
    sums: PartialSums, halo: ExcludedEntries, transpose: ExcludedEntries
) -> tuple[ExcludedEntries, ExcludedEntries]:
    """Excluded entries of a product that exchanges sums: in the halo of the rows, and in the sums for other ranks.

    Args:
        halo: in the whole halo of the matrix.
        transpose: in the whole halo of its transpose.
    """
    # It imports numba, which an exchange of rows need not load.
    from gnnloom.storage.matrix.removal import entry_positions  # noqa: PLC0415

    kept = np.flatnonzero(sums.is_fetched[halo.column])
    number = np.cumsum(sums.is_fetched) - 1
    fetched = _taken(halo, kept, halo.row[kept], number[halo.column[kept]])
    # Sums have the entries of their targets, except entries that a row serves instead.
    kept = np.flatnonzero(sums.is_summed[transpose.column])
    number = np.cumsum(sums.is_summed) - 1
    target, column = number[transpose.column[kept]], transpose.row[kept]
    is_there = entry_positions(sums.matrix, target, column) >= 0
    kept, target, column = kept[is_there], target[is_there], column[is_there]
    order = np.lexsort((column, target))
    formed = _taken(transpose, kept[order], target[order], column[order])
    return (
        replace(fetched, num_columns=int(np.count_nonzero(sums.is_fetched))),
        replace(formed, num_rows=sums.matrix.num_rows, num_columns=sums.matrix.num_columns),
    )


def _taken(
    entries: ExcludedEntries, which: NDArray[np.int64], row: NDArray[Any], column: NDArray[Any]
) -> ExcludedEntries:
    """Some of the entries, with other rows and columns."""
    weight = None if entries.weight is None else entries.weight[which]
    return replace(entries, row=row, column=column, weight=weight)
