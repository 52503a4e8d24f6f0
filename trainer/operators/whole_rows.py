"""What the operators share whose ranks hold whole rows in every layer."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import GEMM
from gnnloom.trainer.kernels.dispatch import converted, matmul, weight_gradient
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import ParameterPiece
from gnnloom.trainer.place.place import Place

AXIS = "row"


class RowProduct(Protocol):
    """A scaled matrix, or some rows of it, ready to be multiplied."""

    def multiply(self, features: Tensor, *, as_sums: bool = False) -> Tensor:
        """The product with this rank's rows, of their dtype or that of their sums. Collective among the ranks."""
        ...


class WholeRows:
    """Every rank holds whole rows; weights are the same on all ranks.

    A subclass sets ``forward_product``, and ``backward_product`` unless no gradient goes through :meth:`propagate`.
    """

    weight_axes: tuple[str, ...] = (AXIS,)
    forward_product: RowProduct
    backward_product: RowProduct | None = None

    def __init__(self, grid: ProcessGrid, vertex: NDArray[np.int64]) -> None:
        """Communicates nothing.

        Args:
            vertex: (num_rows,) int64 global ids of this rank's rows.
        """
        self.grid, self.place = grid, grid.place
        self._layout = Layout(grid, vertex, row_axes=(AXIS,))

    def weight_piece(self, layer: int, shape: tuple[int, int]) -> ParameterPiece | None:  # noqa: ARG002
        return None

    def layout(self, layer: int) -> Layout:  # noqa: ARG002 - the same for every layer
        return self._layout

    def product_layouts(self, layer: int) -> tuple[Layout, Layout]:
        return self.layout(layer), self.layout(layer + 1)

    def align(self, features: Tensor, source: Layout, target: Layout, dim: int) -> Tensor:  # noqa: ARG002
        return features

    def release(self, layer: int) -> None:
        """All layers multiply with the same matrix, or the next batch replaces it: nothing is freed."""

    def products(self, layer: int) -> tuple[RowProduct, RowProduct | None]:  # noqa: ARG002 - the same for every layer
        """The matrix of a layer, and its transpose if gradients go through :meth:`propagate`."""
        return self.forward_product, self.backward_product

    def propagate(self, features: Tensor, layer: int, *, as_sums: bool = False) -> Tensor:
        features = converted(features, self.place.feature_dtype, self.place)
        result: Tensor = _Propagate.apply(features, *self.products(layer), self.place, as_sums)  # type: ignore[no-untyped-call]
        return result

    def transform(self, features: Tensor, weight: Tensor, layer: int, *, spends: bool = False) -> Tensor:  # noqa: ARG002
        return timed_product(features, weight, self.grid, spends=spends)


class _Propagate(torch.autograd.Function):
    """The product with a matrix; its adjoint is the product with the transpose."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, product: RowProduct, transposed: RowProduct | None, place: Place, as_sums: bool
    ) -> Tensor:
        # The product, not the operator: an operator of batches may have loaded the next one before the backward pass.
        ctx.transposed, ctx.given = transposed, (features.dtype, place)
        return product.multiply(features.detach(), as_sums=as_sums)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.transposed.multiply(converted(gradient, *ctx.given)), None, None, None, None


def timed_product(features: Tensor, weight: Tensor, grid: ProcessGrid, *, spends: bool = False) -> Tensor:
    """``features`` times ``weight``, timed forward and backward; differentiable. Communicates nothing.

    Args:
        features: (num_rows, input dim).
        weight: (input dim, output dim).
        spends: nothing else needs the features; backward, their gradient takes their memory.

    Returns:
        (num_rows, output dim).
    """
    result: Tensor = _Product.apply(features, weight, grid, spends)  # type: ignore[no-untyped-call]
    return result


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, grid: ProcessGrid, spends: bool) -> Tensor:
        ctx.save_for_backward(features, weight)
        ctx.grid, ctx.spends = grid, spends
        with grid.comm.traffic.timing(GEMM):
            return matmul(features.detach(), weight.detach(), grid.place)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight = ctx.saved_tensors
        # Fixed input features need no gradient, which saves one of the two products in the first layer.
        of_features, of_weight, *_ = ctx.needs_input_grad
        back: Tensor | None = None
        with ctx.grid.comm.traffic.timing(GEMM):
            # First, as the other product may overwrite the features.
            found = weight_gradient(features, gradient, ctx.grid.place) if of_weight else None
            if of_features:
                back = matmul(gradient, weight.T, ctx.grid.place, features.detach() if ctx.spends else None)
        return back, found, None, None
