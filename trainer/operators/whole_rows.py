"""Common base of operators whose ranks hold whole rows in every layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import GEMM
from gnnloom.trainer.kernels.dispatch import backward_from, converted, matmul, rectify, weight_gradient
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import ParameterPiece
from gnnloom.trainer.place.contract import Mask
from gnnloom.trainer.place.place import Place

AXIS = "row"
#: Bytes of hidden rows that are formed at a time, if they are recomputed: small enough for the caches.
_FORMED_BYTES: Final = 2 << 20


class RowProduct(Protocol):
    """A scaled matrix, or some rows of it, ready to be multiplied."""

    def multiply(self, features: Tensor, *, as_sums: bool = False) -> Tensor:
        """The product with this rank's rows, of their dtype or their sums' dtype. Collective among the ranks."""
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

    def agree(self) -> None:
        """Check nothing: only some algorithms read which rows others send."""

    def weight_piece(self, layer: int, shape: tuple[int, int]) -> ParameterPiece | None:  # noqa: ARG002
        return None

    def layout(self, layer: int) -> Layout:  # noqa: ARG002 - the same for every layer
        return self._layout

    def product_layouts(self, layer: int) -> tuple[Layout, Layout]:
        return self.layout(layer), self.layout(layer + 1)

    def align(self, features: Tensor, source: Layout, target: Layout, dim: int) -> Tensor:  # noqa: ARG002
        return features

    def release(self, layer: int) -> None:
        """All layers multiply by the same matrix, or the next batch replaces it: nothing is freed."""

    def products(self, layer: int) -> tuple[RowProduct, RowProduct | None]:  # noqa: ARG002 - the same for every layer
        """The matrix of a layer, and its transpose if gradients go through :meth:`propagate`."""
        return self.forward_product, self.backward_product

    def propagate(self, features: Tensor, layer: int, *, as_sums: bool = False) -> Tensor:
        features = converted(features, self.place.feature_dtype, self.place)
        result: Tensor = _Propagate.apply(features, *self.products(layer), self.place, as_sums)  # type: ignore[no-untyped-call]
        return result

    def transform(self, features: Tensor, weight: Tensor, layer: int, *, spends: bool = False) -> Tensor:  # noqa: ARG002
        return timed_product(features, weight, self.grid, spends=spends)


class RowsOnly(WholeRows):
    """Every rank holds some whole rows, the same ones in every layer, and no adjacency.

    For models whose layers multiply only by weights; nothing else is read.
    """

    def propagate(self, features: Tensor, layer: int, *, as_sums: bool = False) -> Tensor:  # noqa: ARG002
        raise InputError(
            f"layer {layer}: the model says that it treats rows one by one (is_rowwise), but multiplies by the"
            " adjacency"
        )


class _Propagate(torch.autograd.Function):
    """The product with a matrix; its adjoint is the product with the transpose."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, product: RowProduct, transposed: RowProduct | None, place: Place, as_sums: bool
    ) -> Tensor:
        # The product, not the operator: an operator of batches may have loaded the next batch before the backward pass.
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


@dataclass(frozen=True)
class RecomputedOutput:
    """A hidden layer's output relu(Q W + b), with optional dropout, that is formed from Q whenever it is needed.

    Attributes:
        rows: (num_rows, input dim) Q, the product with the adjacency.
        weight: (input dim, width) W.
        bias: (width,) b; None if there is none.
        mask: features to drop; None for no dropout.
        spends: nothing else needs Q; backward, its gradient takes its memory.
    """

    rows: Tensor
    weight: Tensor
    bias: Tensor | None
    mask: Mask | None
    spends: bool


def recomputed_product(hidden: RecomputedOutput, weight: Tensor, grid: ProcessGrid) -> Tensor:
    """A hidden layer's output times a weight; differentiable. Communicates nothing.

    The output itself is never whole in memory: it is formed some rows at a time, in both passes (Chen, Xu,
    Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016).

    Args:
        weight: (width, output dim).

    Returns:
        (num_rows, output dim).
    """
    result: Tensor = _Recomputed.apply(hidden.rows, hidden.weight, hidden.bias, weight, hidden, grid)  # type: ignore[no-untyped-call]
    return result


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        first: Tensor,
        bias: Tensor | None,
        second: Tensor,
        hidden: RecomputedOutput,
        grid: ProcessGrid,
    ) -> Tensor:
        ctx.save_for_backward(rows, first, bias, second)
        ctx.given = hidden.mask, hidden.spends, grid
        result = grid.place.empty((len(rows), second.shape[1]), rows.dtype)
        for part in grid.place.steps(_parts(rows, first.shape[1])):
            formed = _formed(rows[part].detach(), first, bias, _of_rows(hidden.mask, part), grid)
            with grid.comm.traffic.timing(GEMM):
                matmul(formed, second, grid.place, result[part])
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, *weights = ctx.saved_tensors
        mask, spends, grid = ctx.given
        goes_back = ctx.needs_input_grad[0]
        back = None
        if goes_back:
            back = rows.detach() if spends else grid.place.like(rows)
        # The existing weights; a layer may have no bias.
        held = {number: each for number, each in enumerate(weights) if each is not None}
        totals = {number: grid.place.zeros(each.shape, each.dtype) for number, each in held.items()}
        for part in grid.place.steps(_parts(rows, weights[0].shape[1])):
            with torch.enable_grad():
                given = rows[part].detach().requires_grad_(goes_back)
                leaves = {number: each.detach().requires_grad_() for number, each in held.items()}
                formed = _formed(given, leaves[0], leaves.get(1), _of_rows(mask, part), grid)
                product = timed_product(formed, leaves[2], grid, spends=True)
                begun = backward_from(product, gradient[part], grid.place)
            wanted = [*leaves.values(), *([given] if goes_back else [])]
            found = torch.autograd.grad(begun, wanted)
            if back is not None:
                back[part] = found[-1]
            for number, summand in zip(leaves, found, strict=False):
                totals[number] += summand
        return back, totals[0], totals.get(1), totals[2], None, None


def _parts(rows: Tensor, width: int) -> Iterator[slice]:
    """Ranges of rows, short enough that their temporary results are small."""
    most = max(1, _FORMED_BYTES // max(1, width * rows.element_size()))
    for start in range(0, len(rows), most):
        yield slice(start, min(start + most, len(rows)))


def _of_rows(mask: Mask | None, part: slice) -> Mask | None:
    return None if mask is None else mask._replace(vertex=mask.vertex[part])


def _formed(rows: Tensor, weight: Tensor, bias: Tensor | None, mask: Mask | None, grid: ProcessGrid) -> Tensor:
    """Some rows of a hidden layer's output; differentiable."""
    product = timed_product(rows, weight, grid)
    return rectify(product, bias, mask, grid.place, in_place=True, spends_gradient=True)
