"""Products with the rows and columns of one batch: a subgraph of a rank's own, or a batch that is spread over ranks.

In a batch of all ranks they exchange rows as in ``p2p``, restricted to the batch (Demirci, Haldar, Ferhatosmanoglu,
PVLDB 16(4), 2022, section 4.3). A subgraph has no halo, so the same operator communicates nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.batch_data import BatchRows
from gnnloom.trainer.kernels.arrays import tensor_dtype
from gnnloom.trainer.kernels.dispatch import Threads, Workspace, converted
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import Piece
from gnnloom.trainer.operators.halo import HaloExchange
from gnnloom.trainer.operators.p2p import AXIS, HaloProduct
from gnnloom.trainer.operators.weight_product import timed_product


class SampledRows:
    """Every rank holds whole rows, its share of a batch; weights are the same on all ranks.

    A batch has an operator of its own, which several threads may prepare while others are in use.
    """

    weight_axes: tuple[str, ...] = (AXIS,)

    def __init__(
        self,
        grid: ProcessGrid,
        batch: BatchRows,
        threads: Threads,
        workspace: Workspace,
        *,
        multiplies: bool = True,
        feature_dtype: torch.dtype | None = None,
    ) -> None:
        """Prepare the products. Communicates nothing.

        Args:
            grid: the ranks that share the batch, along the axis ``row``.
            workspace: where products and rows on their way are.
            multiplies: the model differentiates products with the adjacency. Attention does not, and needs neither.
            feature_dtype: of the features: that of the factors by default, or bfloat16 with float32 sums.
        """
        self.grid, self.workspace, self.threads = grid, workspace, threads
        self.feature_dtype = feature_dtype or tensor_dtype(batch.sides.left.dtype)
        self._layout = Layout(grid, batch.vertex, row_axes=(AXIS,))
        self.matrix = batch.matrix
        self.exchange = HaloExchange(grid.comm, batch.matrix, workspace)
        if multiplies:
            same = batch.transpose is batch.matrix
            backward = self.exchange if same else HaloExchange(grid.comm, batch.transpose, workspace)
            dtype = self.feature_dtype
            self._forward = HaloProduct(self.exchange, batch.matrix, batch.sides, Kind.HALO_FORWARD, threads, dtype)
            sides = batch.sides.transposed
            self._backward = HaloProduct(backward, batch.transpose, sides, Kind.HALO_BACKWARD, threads, dtype)

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
        result: Tensor = _Propagate.apply(features, self._forward, self._backward)  # type: ignore[no-untyped-call]
        return result

    def transform(self, features: Tensor, weight: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        return timed_product(features, weight, self.grid.comm.traffic, self.workspace)


class _Propagate(torch.autograd.Function):
    """The product with the batch's matrix; its adjoint is the product with the transpose."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, product: HaloProduct, transposed: HaloProduct) -> Tensor:
        ctx.transposed = transposed
        return product.multiply(features.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transposed.multiply(gradient), None, None
