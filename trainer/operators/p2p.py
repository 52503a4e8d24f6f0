"""Row shards with a point-to-point exchange of exactly the rows that each rank needs (``p2p``).

Demirci, Haldar, Ferhatosmanoglu, "Scalable Graph Convolutional Network Training on Distributed-Memory Systems"
(PVLDB 16(4), 2022), Algorithms 1 (forward) and 2 (backward).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnloom.storage.artifacts.row_shards import RowShard, ShardMatrix
from gnnloom.storage.artifacts.stored_csr import StoredCSR
from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import SPMM, Kind
from gnnloom.trainer.data.adjacency_scaling import Scaling, degrees, scaling
from gnnloom.trainer.kernels.arrays import tensor_dtype
from gnnloom.trainer.kernels.dispatch import SparseProduct, Threads, Workspace, converted, sparse_product, sum_dtype
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import Piece
from gnnloom.trainer.operators.halo import Arrival, HaloExchange, split_columns
from gnnloom.trainer.operators.weight_product import timed_product

AXIS = "row"


class PointToPoint:
    """Every rank holds whole rows, those of its part; weights are the same on all ranks."""

    weight_axes: tuple[str, ...] = (AXIS,)

    def __init__(
        self,
        comm: Communicator,
        shard: RowShard,
        normalization: str,
        dtype: np.dtype[Any],
        threads: Threads,
        workspace: Workspace | None = None,
        *,
        multiplies: bool = True,
        feature_dtype: torch.dtype | None = None,
    ) -> None:
        """Read this rank's adjacency. Communicates nothing.

        Args:
            normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.
            dtype: float32 or float64, of weights of edges, factors and sums.
            workspace: where products and rows on their way are; of its own by default.
            multiplies: the model differentiates products with the adjacency. Attention does not, and needs no
                transpose; none is read for it.
            feature_dtype: of the features: ``dtype`` by default, or bfloat16 with float32 sums.

        Raises:
            InputError: a degree is negative or not finite.
        """
        self.grid = ProcessGrid(comm, {AXIS: comm.size})
        self._layout = Layout(self.grid, shard.vertex(), row_axes=(AXIS,))
        matrix = shard.operand()
        where = f"{shard.shards.artifact.path}/{shard.prefix}"
        sides = scaling(where, normalization, degrees(matrix.own, matrix.halo), dtype)
        #: This rank's rows of the adjacency, not normalized, and the exchange of the rows that their columns need.
        self.workspace = workspace or Workspace()
        self.matrix, self.exchange = matrix, HaloExchange(comm, matrix, self.workspace)
        self.threads, self.feature_dtype = threads, feature_dtype or tensor_dtype(dtype)
        self.forward_product = HaloProduct(self.exchange, matrix, sides, Kind.HALO_FORWARD, threads, self.feature_dtype)
        self.backward_product = self._adjoint(shard, sides) if multiplies else None

    def _adjoint(self, shard: RowShard, sides: Scaling) -> HaloProduct:
        """The product with the transpose, whose pattern and exchange are the same if the adjacency is symmetric."""
        same = shard.shards.symmetric
        transpose = self.matrix if same else shard.operand(transpose=True)
        # The transpose of an asymmetric pattern refers to other rows, so it needs an exchange of its own.
        exchange = self.exchange if same else HaloExchange(self.grid.comm, transpose, self.workspace)
        return HaloProduct(exchange, transpose, sides.transposed, Kind.HALO_BACKWARD, self.threads, self.feature_dtype)

    def weight_piece(self, layer: int, shape: tuple[int, int]) -> Piece | None:  # noqa: ARG002
        return None

    def layout(self, layer: int) -> Layout:  # noqa: ARG002 - the same for every layer
        return self._layout

    def product_layouts(self, layer: int) -> tuple[Layout, Layout]:  # noqa: ARG002 - the same for every layer
        return self._layout, self._layout

    def align(self, features: Tensor, source: Layout, target: Layout, dim: int) -> Tensor:  # noqa: ARG002
        return features

    def release(self, layer: int) -> None:
        """All layers multiply with the same matrix, so nothing can be freed."""

    def propagate(self, features: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        features = converted(features, self.feature_dtype, self.workspace)
        result: Tensor = _Propagate.apply(features, self)  # type: ignore[no-untyped-call]
        return result

    def transform(self, features: Tensor, weight: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        return timed_product(features, weight, self.grid.comm.traffic, self.workspace)


@dataclass(frozen=True)
class _Neighbors:
    """The product with the halo rows of some ranks.

    Attributes:
        rows: their rows of the halo.
    """

    ranks: list[int]
    rows: slice
    product: SparseProduct


def _halo_products(
    exchange: HaloExchange, matrix: CSR | StoredCSR, threads: Threads, dtype: torch.dtype
) -> list[_Neighbors]:
    """One product for each neighbor, in the order in which their rows are awaited."""
    ranks = exchange.owners()
    if isinstance(matrix, StoredCSR):
        # A matrix on disk is read in whole rows, which have columns of several neighbors.
        product = sparse_product(matrix, threads, dtype)
        return [_Neighbors(ranks, slice(0, matrix.num_columns), product)] if ranks else []
    parts = split_columns(matrix, [exchange.halo_of(rank) for rank in range(exchange.comm.size)])
    return [_Neighbors([rank], exchange.halo_of(rank), sparse_product(parts[rank], threads, dtype)) for rank in ranks]


class HaloProduct:
    """One scaled matrix, in an own and a halo block of columns, and its exchange of rows."""

    def __init__(
        self,
        exchange: HaloExchange,
        matrix: ShardMatrix[Any],
        sides: Scaling,
        kind: Kind,
        threads: Threads,
        dtype: torch.dtype,
    ) -> None:
        self._exchange = exchange
        self._kind = kind
        self._left = torch.from_numpy(sides.left)
        self._right = torch.from_numpy(sides.right) if len(sides.right) else None
        # Owners scale the rows that they send, so no rank needs the factors of its halo.
        self._sent = None if self._right is None else exchange.sent(self._right).unsqueeze(1)
        self._own = sparse_product(matrix.own, threads, dtype)
        self._halo = _halo_products(exchange, matrix.halo, threads, dtype)

    def multiply(self, features: Tensor) -> Tensor:
        """The scaled matrix times ``features``. Collective.

        Args:
            features: (num_own, dim) this rank's rows.

        Returns:
            (num_own, dim).
        """
        comm, space = self._exchange.comm, self._exchange.workspace
        own = space.contiguous(features)
        with comm.traffic.timing(self._kind):
            arrival = self._exchange.begin(own, self._kind, self._sent)
        # Several summands are added in the dtype of sums.
        product = space.empty(own.shape, sum_dtype(own.dtype) if self._halo else own.dtype)
        # The own columns need no rows of other ranks: their product hides the exchange, which advances between slices
        # of it. It overwrites every row, so the buffer need not be zeroed.
        with comm.traffic.timing(SPMM):
            self._own.multiply(own, product, self._left, column_scale=self._right, progress=self._progress(arrival))
        self._add_neighbors(arrival, product)
        # Sends are waited for last, when most have completed; until then the packed rows must stay alive.
        with comm.traffic.timing(self._kind):
            comm.wait(arrival.sends)
        return converted(product, own.dtype, space)

    def _add_neighbors(self, arrival: Arrival, product: Tensor) -> None:
        """Add what the neighbors' rows contribute, each as soon as it is there. Collective.

        Demirci et al., Algorithm 1, lines 7-9, in the order in which the messages were begun rather than in that of
        their arrival: a sum then has the same bits in every run. While one neighbor's rows are multiplied, those of the
        others go on arriving.
        """
        comm = self._exchange.comm
        # A profiled run meets before these waits, and not before `begin`, which waits for no rank.
        with comm.traffic.timing(self._kind, comm):
            pass
        for halo in self._halo:
            with comm.traffic.timing(self._kind):
                comm.wait([request for rank in halo.ranks for request in arrival.receives[rank]])
            with comm.traffic.timing(SPMM):
                halo.product.multiply(
                    arrival.rows[halo.rows], product, self._left, accumulate=True, progress=self._progress(arrival)
                )

    def _progress(self, arrival: Arrival) -> Callable[[], None] | None:
        comm, requests = self._exchange.comm, arrival.requests
        return (lambda: comm.progress(requests)) if requests else None


class _Propagate(torch.autograd.Function):
    """The product with the adjacency; its adjoint is the product with the transpose."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, operator: PointToPoint) -> Tensor:
        ctx.operator = operator
        return operator.forward_product.multiply(features.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.operator.backward_product.multiply(gradient), None
