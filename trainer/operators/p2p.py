"""Row shards with point-to-point exchange of exactly the rows needed.

Demirci, Haldar, Ferhatosmanoglu, "Scalable Graph Convolutional Network Training on Distributed-Memory
Systems" (PVLDB 16(4), 2022), Algorithms 1 (forward) and 2 (backward).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnloom.storage.row_shards import RowShard, ShardMatrix
from gnnloom.trainer.comm import Communicator, Kind, Request
from gnnloom.trainer.kernels.spmm import SparseProduct
from gnnloom.trainer.kernels.threads import Threads
from gnnloom.trainer.layout import Layout
from gnnloom.trainer.normalisation import Scaling, degrees, scaling
from gnnloom.trainer.process_grid import ProcessGrid

AXIS = "row"


class PointToPoint:
    """Every rank holds the rows of its part, whole; weights are the same on all ranks."""

    def __init__(
        self, comm: Communicator, shard: RowShard, normalisation: str, dtype: np.dtype[Any], threads: Threads
    ) -> None:
        """Read this rank's adjacency. Communicates nothing.

        Args:
            normalisation: see :func:`gnnloom.trainer.normalisation.scaling`.
            dtype: of the features, float32 or float64.
        """
        self.grid = ProcessGrid(comm, {AXIS: comm.size})
        self._layout = Layout(self.grid, shard.vertex(), row_axes=(AXIS,))
        matrix = shard.matrix()
        where = f"{shard.shards.artifact.path}/{shard.prefix}"
        sides = scaling(normalisation, degrees(where, matrix.own, matrix.halo), dtype)
        self.forward_product = HaloProduct(comm, matrix, sides, Kind.HALO_FORWARD, threads, dtype)
        transpose = matrix if shard.shards.symmetric else shard.matrix(transpose=True)
        self.backward_product = HaloProduct(comm, transpose, sides.transposed, Kind.HALO_BACKWARD, threads, dtype)

    @property
    def weight_group(self) -> Communicator:
        return self.grid.comm

    def layout(self, layer: int) -> Layout:  # noqa: ARG002 - the same for every layer
        return self._layout

    def propagate(self, features: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        result: Tensor = _Propagate.apply(features, self)  # type: ignore[no-untyped-call]
        return result

    def transform(self, features: Tensor, weight: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        return features @ weight


class HaloProduct:
    """One scaled matrix, own part and halo part, and its exchange of rows."""

    def __init__(
        self,
        comm: Communicator,
        matrix: ShardMatrix,
        sides: Scaling,
        kind: Kind,
        threads: Threads,
        dtype: np.dtype[Any],
    ) -> None:
        self._comm = comm
        self._kind = kind
        self._left = sides.left
        # Columns are scaled by their owners before they are sent, so nobody needs the factors of its halo.
        self._right = torch.from_numpy(sides.right).unsqueeze(1) if len(sides.right) else None
        self._own = SparseProduct(matrix.own, threads, dtype)
        self._halo = SparseProduct(matrix.halo, threads, dtype)
        self._halo_offset = matrix.halo_offset.tolist()
        self._send_offset = matrix.send_offset.tolist()
        self._send_row = torch.from_numpy(matrix.send_row)

    def multiply(self, features: Tensor) -> Tensor:
        """The scaled matrix times ``features``. Collective.

        Args:
            features: (num_own, dim) this rank's rows.

        Returns:
            (num_own, dim).
        """
        halo = features.new_empty(self._halo_offset[-1], features.shape[1])
        receives = self._exchange(halo, self._halo_offset, send=False)
        scaled = features.contiguous() if self._right is None else features * self._right
        packed = scaled.index_select(0, self._send_row)
        sends = self._exchange(packed, self._send_offset, send=True)
        product = torch.empty_like(scaled)
        self._own.multiply(scaled.numpy(), product.numpy(), self._left)
        self._comm.wait(receives)
        self._halo.multiply(halo.numpy(), product.numpy(), self._left, accumulate=True)
        self._comm.wait(sends)
        return product

    def _exchange(self, rows: Tensor, offset: list[int], *, send: bool) -> list[Request]:
        """Begin to send or receive each other rank's slice of ``rows``."""
        requests: list[Request] = []
        for step in range(1, self._comm.size):
            # Starting behind oneself spreads the load: not every rank sends to rank 0 first.
            other = (self._comm.rank + (step if send else -step)) % self._comm.size
            part = rows[offset[other] : offset[other + 1]]
            requests += self._comm.send(part, other, self._kind) if send else self._comm.receive(part, other)
        return requests


class _Propagate(torch.autograd.Function):
    """The product with the adjacency; its adjoint is the product with the transpose."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, operator: PointToPoint) -> Tensor:
        ctx.operator = operator
        return operator.forward_product.multiply(features.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.operator.backward_product.multiply(gradient), None
