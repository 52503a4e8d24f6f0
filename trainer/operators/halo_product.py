"""The product of a rank's rows with the rows of all ranks, while those of others are on their way.

Demirci, Haldar, Ferhatosmanoglu, "Scalable Graph Convolutional Network Training on Distributed-Memory Systems"
(PVLDB 16(4), 2022), Algorithms 1 (forward) and 2 (backward).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gnnloom.storage.artifacts.row_shards import ShardMatrix
from gnnloom.storage.artifacts.stored_csr import StoredCSR
from gnnloom.trainer.comm.traffic import SPMM, Kind
from gnnloom.trainer.data.adjacency_scaling import Scaling
from gnnloom.trainer.kernels.dispatch import (
    Progress,
    SparseProduct,
    converted,
    products_by_columns,
    sparse_product,
)
from gnnloom.trainer.operators.halo import Arrival, HaloExchange


@dataclass(frozen=True)
class LocalProducts:
    """A rank's products with its own rows, and with those of its neighbors in the order in which they are awaited.

    They share the memory of the matrix, and hold for each neighbor only where its columns are.

    Attributes:
        halo: ranks, and the product with the halo columns that these own; it takes the whole halo, and reads their
            rows only.
    """

    own: SparseProduct
    halo: list[tuple[list[int], SparseProduct]]

    @classmethod
    def of(cls, exchange: HaloExchange, matrix: ShardMatrix[Any]) -> LocalProducts:
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


class HaloProduct:
    """One scaled matrix, in an own and a halo block of columns, and its exchange of rows."""

    def __init__(self, exchange: HaloExchange, products: LocalProducts, sides: Scaling, kind: Kind) -> None:
        self._exchange = exchange
        self._kind = kind
        self._left, self._right = sides.left, sides.right if len(sides.right) else None
        # Owners scale the rows that they send, so no rank needs the factors of its halo.
        self._sent = None if self._right is None else exchange.sent(self._right)
        self._own, self._halo = products.own, products.halo

    def multiply(self, features: Tensor, *, as_sums: bool = False) -> Tensor:
        """The scaled matrix times ``features``. Collective.

        Args:
            features: (num_own, dim) this rank's rows.
            as_sums: leave the result in the dtype of sums.

        Returns:
            (num_own, dim).
        """
        comm, place = self._exchange.comm, self._exchange.place
        own = place.contiguous(features)
        with comm.traffic.timing(self._kind):
            arrival = self._exchange.begin(own, self._kind, self._sent)
        # Several summands are added in the dtype of sums.
        product = place.empty(own.shape, place.sum_dtype if self._halo or as_sums else own.dtype)
        # The own columns need no rows of other ranks: their product hides the exchange, which advances between slices
        # of it. It overwrites every row, so the buffer need not be zeroed.
        requests = arrival.requests
        progress = (lambda: comm.progress(requests)) if requests else None
        with comm.traffic.timing(SPMM):
            self._own.multiply(own, product, self._left, column_scale=self._right, progress=progress)
        self._add_neighbors(arrival, product, progress)
        # Sends are waited for last, when most have completed; until then the packed rows must stay alive.
        with comm.traffic.timing(self._kind):
            comm.wait(arrival.sends)
        return converted(product, place.sum_dtype if as_sums else own.dtype, place)

    def _add_neighbors(self, arrival: Arrival, product: Tensor, progress: Progress) -> None:
        """Add what the neighbors' rows contribute, each as soon as it is there. Collective.

        Demirci et al., Algorithm 1, lines 7-9, in the order in which the messages were begun rather than in that of
        their arrival: a sum then has the same bits in every run. While one neighbor's rows are multiplied, those of the
        others go on arriving.
        """
        comm = self._exchange.comm
        # A profiled run meets before these waits, and not before `begin`, which waits for no rank.
        with comm.traffic.timing(self._kind, comm):
            pass
        for ranks, halo in self._halo:
            with comm.traffic.timing(self._kind):
                comm.wait([request for rank in ranks for request in arrival.receives[rank]])
            with comm.traffic.timing(SPMM):
                halo.multiply(arrival.rows, product, self._left, accumulate=True, progress=progress)
