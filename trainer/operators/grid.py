"""What the algorithms over grid shards share: their two products as differentiable functions.

An algorithm gives the plain products, forward and backward; see :class:`GridOperator`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import GEMM, SPMM
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.kernels.numba_spmm import SparseProduct
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import Place
from gnnloom.trainer.layout.realignment import Realigner
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency


class GridOperator(ABC):
    """An algorithm on a process grid.

    Weights are the same on all ranks unless ``weight_place`` says otherwise.
    """

    def __init__(self, grid: ProcessGrid, adjacency: GridAdjacency, weight_axes: tuple[str, ...]) -> None:
        self.grid = grid
        self.adjacency = adjacency
        self.weight_axes = weight_axes
        self._layouts: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Layout] = {}
        self._realigner = Realigner(adjacency)

    @abstractmethod
    def layout(self, layer: int) -> Layout:
        """Layout of the input of a layer."""

    @abstractmethod
    def multiply(self, features: Tensor, layer: int, *, backward: bool) -> Tensor:
        """The layer's normalized adjacency, or its transpose (``backward``), times this rank's share. Collective."""

    @abstractmethod
    def release(self, layer: int) -> None:
        """Forget the layer's adjacency, which will not be multiplied with again; other layers' may be the same."""

    def product_layouts(self, layer: int) -> tuple[Layout, Layout]:
        return self.layout(layer), self.layout(layer + 1)

    def align(self, features: Tensor, source: Layout, target: Layout, dim: int) -> Tensor:
        return self._realigner.align(features, source, target, dim)

    def weight_place(self, layer: int, shape: tuple[int, int]) -> Place | None:  # noqa: ARG002
        return None

    def gather_weight(self, weight: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        """What this rank multiplies with, from its part of the weight. Collective."""
        return weight

    def scatter_gradient(self, gradient: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        """The adjoint of :meth:`gather_weight`: the gradient of this rank's part. Collective."""
        return gradient

    def gather_features(self, features: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        """What this rank multiplies its weight with, from its share of the features. Collective."""
        return features

    def multiply_weight(self, features: Tensor, weight: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        """This rank's share of the product of what was gathered. Collective."""
        return self.gemm(features, weight)

    def weight_adjoints(
        self,
        gradient: Tensor,
        features: Tensor,
        weight: Tensor,
        layer: int,  # noqa: ARG002
        *,
        of_features: bool,
    ) -> tuple[Tensor | None, Tensor]:
        """Gradients of this rank's share of the features, if wanted, and of the gathered weight. Collective."""
        return self.gemm(gradient, weight.T) if of_features else None, self.gemm(features.T, gradient)

    def propagate(self, features: Tensor, layer: int) -> Tensor:
        result: Tensor = _Propagate.apply(features, self, layer)  # type: ignore[no-untyped-call]
        return result

    def transform(self, features: Tensor, weight: Tensor, layer: int) -> Tensor:
        result: Tensor = _Transform.apply(features, weight, self, layer)  # type: ignore[no-untyped-call]
        return result

    def grid_layout(self, layer: int, row_axes: tuple[str, ...], column_axes: tuple[str, ...]) -> Layout:
        """The layout of a layer's input whose rows are cut along some axes and its columns along others."""
        # Along an axis of one rank nothing is cut: layouts that are the same everywhere are one.
        rows, columns = (tuple(axis for axis in axes if self.grid.axes[axis] > 1) for axes in (row_axes, column_axes))
        key = self.adjacency.order(layer), rows, columns
        if key not in self._layouts:
            vertex = self.adjacency.vertex_ids(key[0], self.rows(rows))
            self._layouts[key] = Layout(self.grid, vertex, rows, columns, key[0])
        return self._layouts[key]

    def rows(self, axes: tuple[str, ...]) -> tuple[int, int]:
        """This rank's range of the vertices cut along ``axes``."""
        return self.grid.span(self.adjacency.num_vertices, axes)

    def read_scaling(
        self, layer: int, source_axes: tuple[str, ...], target_axes: tuple[str, ...], *, backward: bool
    ) -> None:
        """Read the normalization's factors that a product needs, as a part of loading.

        Args:
            source_axes, target_axes: along which the rows are cut that enter and leave the product.

        Raises:
            InputError: a degree is negative or not finite.
        """
        self.adjacency.scaling(self.adjacency.order(layer + backward), self.rows(source_axes))
        self.adjacency.scaling(self.adjacency.order(layer + (not backward)), self.rows(target_axes))

    def gemm(self, left: Tensor, right: Tensor) -> Tensor:
        with self.grid.comm.traffic.timing(GEMM):
            return left @ right

    def add_product(self, product: SparseProduct, features: Tensor, out: Tensor, row_scale: Any) -> None:
        """Add diag(row_scale) A features to ``out``."""
        with self.grid.comm.traffic.timing(SPMM):
            product.multiply(features.numpy(), out.numpy(), row_scale, accumulate=True)

    def scaled(self, features: Tensor, layer: int, row_axes: tuple[str, ...], *, backward: bool) -> Tensor:
        """Features times the normalization's factors on the right side of a layer's matrix, contiguous.

        Args:
            features: rows cut along ``row_axes``: of the layer's input, or (``backward``) of its output.
        """
        sides = self.adjacency.scaling(self.adjacency.order(layer + backward), self.rows(row_axes))
        factor = sides.left if backward else sides.right
        if len(factor) < len(features):
            return features.contiguous()
        return features.contiguous() * torch.from_numpy(factor).unsqueeze(1)

    def row_scale(self, layer: int, row_axes: tuple[str, ...], *, backward: bool) -> Any:
        """The normalization's factors on the left side, for the kernel: (num_rows,), or (0,) for ones."""
        sides = self.adjacency.scaling(self.adjacency.order(layer + (not backward)), self.rows(row_axes))
        return sides.right if backward else sides.left


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, operator: GridOperator, layer: int) -> Tensor:
        ctx.operator, ctx.layer = operator, layer
        return operator.multiply(features.detach(), layer, backward=False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.operator.multiply(gradient, ctx.layer, backward=True), None, None


class _Transform(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, operator: GridOperator, layer: int) -> Tensor:
        whole = operator.gather_weight(weight.detach(), layer)
        rows = operator.gather_features(features.detach(), layer)
        ctx.save_for_backward(rows, whole)
        ctx.operator, ctx.layer = operator, layer
        return operator.multiply_weight(rows, whole, layer)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        rows, weight = ctx.saved_tensors
        operator, layer = ctx.operator, ctx.layer
        of_features, partial = operator.weight_adjoints(
            gradient.contiguous(), rows, weight, layer, of_features=ctx.needs_input_grad[0]
        )
        return of_features, operator.scatter_gradient(partial, layer), None, None
