"""Multiplies a rank's rows of the matrix by the rows of all ranks, while rows of other ranks are on their way.

Demirci, Haldar, Ferhatosmanoglu, "Scalable Graph Convolutional Network Training on Distributed-Memory Systems"
(PVLDB 16(4), 2022), Algorithms 1 (forward) and 2 (backward).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnnloom.storage.artifacts.stored_csr import StoredCSR
from gnnloom.storage.shards.row_cover import CoveredMatrix
from gnnloom.storage.shards.shard_matrix import ShardMatrix
from gnnloom.trainer.comm.traffic import SPMM, Kind
from gnnloom.trainer.data.adjacency_scaling import Scaling
from gnnloom.trainer.data.target_edges import ExcludedEntries
from gnnloom.trainer.kernels.dispatch import (
    RowSink,
    SparseProduct,
    column_scale,
    converted,
    products_by_columns,
    scaled_rows,
    sparse_product,
)
from gnnloom.trainer.operators.exclusion import ExcludedBlock
from gnnloom.trainer.operators.halo import HaloExchange
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True)
class LocalProducts:
    """A rank's products with its own rows, and with the rows of its neighbors in the order in which they are awaited.

    They share the memory of the matrix, and add only the positions of each neighbor's columns.

    Attributes:
        halo: ranks, and the product with the halo columns that they own; it takes the whole halo, and reads only their
            rows.
    """

    own: SparseProduct
    halo: list[tuple[list[int], SparseProduct]]

    @classmethod
    def of(cls, exchange: HaloExchange, matrix: ShardMatrix[Any] | CoveredMatrix) -> LocalProducts:
        """Prepare the products with the matrix of an exchange. Communicates nothing."""
        place, ranks, halo = exchange.place, exchange.owners(), matrix.halo
        own = sparse_product(matrix.own, place)
        # A matrix on disk is read in whole rows, which have columns of several neighbors.
        if len(ranks) <= 1 or isinstance(halo, StoredCSR):
            return cls(own, [(ranks, sparse_product(halo, place))] if ranks else [])
        owners = sorted(ranks)
        products = products_by_columns(halo, [exchange.halo_of(rank) for rank in owners], place)
        found = dict(zip(owners, products, strict=True))
        return cls(own, [([rank], found[rank]) for rank in ranks])


@dataclass(frozen=True)
class ExcludedColumns:
    """The entries that a step excludes from a rank's rows, in its own columns and in the columns of the halo.

    Attributes:
        send: entries that the step excludes from the sums that the rank sends; None if it sends only rows.
    """

    own: ExcludedBlock
    halo: ExcludedBlock
    send: ExcludedBlock | None = None

    @classmethod
    def of(cls, blocks: Sequence[ExcludedEntries], place: Place) -> ExcludedColumns:
        """Build from the entries in the own columns, in the halo's columns and, if sums are sent, in the sums."""
        return cls(*(ExcludedBlock(entries, place) for entries in blocks))

    @property
    def is_weighted(self) -> bool:
        return self.own.entries.weight is not None


class HaloProduct:
    """One scaled matrix, in an own and a halo block of columns, and its exchange of rows."""

    def __init__(self, exchange: HaloExchange, products: LocalProducts, sides: Scaling, kind: Kind) -> None:
        self._exchange = exchange
        self._kind = kind
        self._own, self._halo = products.own, products.halo
        self.exclude(None, sides)

    def exclude(self, excluded: ExcludedColumns | None, sides: Scaling) -> None:
        """Multiply without some entries from now on, and with other factors. Communicates nothing.

        Args:
            excluded: None for no entry.
            sides: factors of the remaining entries.
        """
        self._excluded = excluded
        self._left, self._right = sides.left, column_scale(sides.right, self._exchange.place)
        # Owners scale the rows that they send, so no rank needs the factors of its halo.
        self._pack = self._exchange.packing(self._right, None if excluded is None else excluded.send)

    def multiply(self, features: Tensor, *, as_sums: bool = False) -> Tensor:
        """The scaled matrix times ``features``. Collective.

        Args:
            features: (num_own, dim) this rank's rows.
            as_sums: leave the result in the dtype of sums.

        Returns:
            (num_own, dim), in the workspace.
        """
        place = self._exchange.place
        product = place.empty(tuple(features.shape), self._dtype(features, as_sums=as_sums))
        self._multiply(features, product)
        return converted(product, place.sum_dtype if as_sums else features.dtype, place)

    def multiply_into(self, features: Tensor, out: Tensor | RowSink, *, as_sums: bool = False) -> None:
        """Like :meth:`multiply`, into memory or, if the matrix is on disk, to rows that are not in memory. Collective.

        Args:
            out: (num_own, dim) of the dtype of the result; is overwritten.
        """
        place, dtype = self._exchange.place, self._dtype(features, as_sums=as_sums)
        if out.dtype == dtype:
            self._multiply(features, out)
            return
        product = place.empty(tuple(features.shape), dtype)
        self._multiply(features, product)
        if isinstance(out, Tensor):
            out.copy_(product)
            return
        for rows in torch.split(product, out.range_rows):
            start = rows.storage_offset() // max(1, product.shape[1])
            out.write(start, rows.to(out.dtype))

    def _dtype(self, features: Tensor, *, as_sums: bool) -> torch.dtype:
        """Several summands are added in the dtype of sums."""
        several = self._halo or self._excluded or as_sums
        return self._exchange.place.sum_dtype if several else features.dtype

    def _multiply(self, features: Tensor, product: Tensor | RowSink) -> None:
        """Multiply by the own rows, then by each neighbor's rows as soon as they have arrived. Collective.

        Demirci et al., Algorithm 1, lines 7-9, in the order in which the messages were started, not in the order of
        arrival: sums then have the same bits in every run. While one neighbor's rows are multiplied, rows of other
        neighbors arrive.
        """
        comm, place, excluded = self._exchange.comm, self._exchange.place, self._excluded
        own = place.contiguous(features)
        with comm.traffic.timing(self._kind):
            arrival = self._exchange.begin(own, self._kind, self._pack)
        # The own columns need no rows of other ranks: their product hides the exchange, which advances between slices
        # of it. It overwrites every row, so the buffer need not be zeroed.
        requests = arrival.requests
        progress = (lambda: comm.progress(requests)) if requests else None
        with comm.traffic.timing(SPMM):
            scaled, factors = own, self._right
            if excluded and excluded.is_weighted and factors is not None:
                # No kernel has both weights and factors of columns: the rows are scaled once, not in each product.
                scaled, factors = scaled_rows(own, factors.factors, place), None
            self._own.multiply(scaled, product, self._left, column_scale=factors, progress=progress)
            if excluded and isinstance(product, Tensor):
                excluded.own.subtract(scaled, product, self._left, factors, progress)
        # In a profiled run, ranks meet before these waits, and not before `begin`, which waits for no rank.
        with comm.traffic.timing(self._kind, comm):
            pass
        for ranks, halo in self._halo:
            with comm.traffic.timing(self._kind):
                comm.wait([request for rank in ranks for request in arrival.receives[rank]])
            with comm.traffic.timing(SPMM):
                halo.multiply(arrival.rows, product, self._left, accumulate=True, progress=progress)
        if excluded and self._halo and isinstance(product, Tensor):
            with comm.traffic.timing(SPMM):
                excluded.halo.subtract(arrival.rows, product, self._left, progress=progress)
        # Sends are waited for last, when most have completed; until then the packed rows must stay alive.
        with comm.traffic.timing(self._kind):
            comm.wait(arrival.sends)
