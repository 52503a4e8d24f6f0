"""Row shards with point-to-point exchange of exactly the rows needed.

Demirci, Haldar, Ferhatosmanoglu, "Scalable Graph Convolutional Network Training on Distributed-Memory
Systems" (PVLDB 16(4), 2022), Algorithms 1 (forward) and 2 (backward).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnloom.storage.artifacts.row_shards import RowShard, ShardMatrix
from gnnloom.trainer.comm.communicator import SPMM, Communicator, Kind
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.data.adjacency_scaling import Scaling, degrees, scaling
from gnnloom.trainer.kernels.gemm import timed_product
from gnnloom.trainer.kernels.numba_spmm import SparseProduct
from gnnloom.trainer.kernels.threads import Threads
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import Place
from gnnloom.trainer.operators.halo import HaloExchange

AXIS = "row"


class PointToPoint:
    """Every rank holds the rows of its part, whole; weights are the same on all ranks."""

    weight_axes: tuple[str, ...] = (AXIS,)

    def __init__(
        self,
        comm: Communicator,
        shard: RowShard,
        normalization: str,
        dtype: np.dtype[Any],
        threads: Threads,
        *,
        multiplies: bool = True,
    ) -> None:
        """Read this rank's adjacency. Communicates nothing.

        Args:
            normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.
            dtype: of the features, float32 or float64.
            multiplies: products will be differentiated; attention needs no transpose, so none is read for it.
        """
        self.grid = ProcessGrid(comm, {AXIS: comm.size})
        self._layout = Layout(self.grid, shard.vertex(), row_axes=(AXIS,))
        matrix = shard.matrix()
        where = f"{shard.shards.artifact.path}/{shard.prefix}"
        sides = scaling(where, normalization, degrees(matrix.own, matrix.halo), dtype)
        #: The adjacency's rows of this rank, without the normalization, and the exchange of what their columns need.
        self.matrix, self.exchange = matrix, HaloExchange(comm, matrix)
        self.threads = threads
        self.forward_product = HaloProduct(self.exchange, matrix, sides, Kind.HALO_FORWARD, threads)
        self.backward_product = self._adjoint(shard, sides) if multiplies else None

    def _adjoint(self, shard: RowShard, sides: Scaling) -> HaloProduct:
        same = shard.shards.symmetric
        transpose = self.matrix if same else shard.matrix(transpose=True)
        exchange = self.exchange if same else HaloExchange(self.grid.comm, transpose)
        return HaloProduct(exchange, transpose, sides.transposed, Kind.HALO_BACKWARD, self.threads)

    def weight_place(self, layer: int, shape: tuple[int, int]) -> Place | None:  # noqa: ARG002
        return None

    def layout(self, layer: int) -> Layout:  # noqa: ARG002 - the same for every layer
        return self._layout

    def product_layouts(self, layer: int) -> tuple[Layout, Layout]:  # noqa: ARG002 - the same for every layer
        return self._layout, self._layout

    def align(self, features: Tensor, source: Layout, target: Layout, dim: int) -> Tensor:  # noqa: ARG002
        return features

    def release(self, layer: int) -> None:
        """All layers multiply with the same matrix, so nothing can go."""

    def propagate(self, features: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        result: Tensor = _Propagate.apply(features, self)  # type: ignore[no-untyped-call]
        return result

    def transform(self, features: Tensor, weight: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        return timed_product(features, weight, self.grid.comm.traffic)


class HaloProduct:
    """One scaled matrix, own part and halo part, and its exchange of rows."""

    def __init__(
        self, exchange: HaloExchange, matrix: ShardMatrix, sides: Scaling, kind: Kind, threads: Threads
    ) -> None:
        self._exchange = exchange
        self._kind = kind
        self._left = sides.left
        # Columns are scaled by their owners before they are sent, so nobody needs the factors of its halo.
        self._right = torch.from_numpy(sides.right).unsqueeze(1) if len(sides.right) else None
        dtype = sides.left.dtype
        self._own = SparseProduct(matrix.own, threads, dtype)
        self._halo = SparseProduct(matrix.halo, threads, dtype)

    def multiply(self, features: Tensor) -> Tensor:
        """The scaled matrix times ``features``. Collective.

        Args:
            features: (num_own, dim) this rank's rows.

        Returns:
            (num_own, dim).
        """
        scaled = features.contiguous() if self._right is None else features * self._right
        comm = self._exchange.comm
        with comm.traffic.timing(self._kind):
            arrival = self._exchange.begin(scaled, self._kind)
        product = torch.empty_like(scaled)
        with comm.traffic.timing(SPMM):
            self._own.multiply(scaled.numpy(), product.numpy(), self._left)
        with comm.traffic.timing(self._kind, comm):
            comm.wait(arrival.receives)
        with comm.traffic.timing(SPMM):
            self._halo.multiply(arrival.rows.numpy(), product.numpy(), self._left, accumulate=True)
        with comm.traffic.timing(self._kind):
            comm.wait(arrival.sends)
        return product


class _Propagate(torch.autograd.Function):
    """The product with the adjacency; its adjoint is the product with the transpose."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, operator: PointToPoint) -> Tensor:
        ctx.operator = operator
        return operator.forward_product.multiply(features.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.operator.backward_product.multiply(gradient), None
