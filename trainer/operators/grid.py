"""Base of the algorithms over grid shards: their two products as differentiable functions.

An algorithm provides the plain products, forward and backward; see :class:`GridOperator`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnnloom.storage.matrix.ranges import Span
from gnnloom.trainer.comm.communicator import Communicator, Request
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import GEMM, SPMM, Kind
from gnnloom.trainer.data.target_edges import Chosen, PairSource, Targets, check_directions
from gnnloom.trainer.kernels.dispatch import (
    SparseProduct,
    add_widened,
    converted,
    matmul,
    scaled_rows,
    weight_gradient,
)
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import ParameterPiece
from gnnloom.trainer.layout.realignment import Realigner
from gnnloom.trainer.operators.exclusion import ExcludedBlock, check_excludes
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency
from gnnloom.trainer.operators.grid_targets import Window, grid_targets
from gnnloom.trainer.operators.operator import LayerPlan


@dataclass(frozen=True)
class InFlight:
    """Transfers of a group that have begun."""

    group: Communicator
    requests: Sequence[Request]
    kind: Kind

    def progress(self) -> None:
        """Let the transfers advance; returns at once."""
        self.group.progress(self.requests)

    def finish(self) -> None:
        """Wait for the transfers. Collective."""
        self.group.finish(self.requests, self.kind)


class GridOperator(ABC):
    """An algorithm on a process grid; see :class:`gnnloom.trainer.operators.operator.Operator`.

    Weights are the same on all ranks unless ``weight_piece`` returns a piece.
    """

    def __init__(
        self, grid: ProcessGrid, adjacency: GridAdjacency, plan: LayerPlan, weight_axes: tuple[str, ...]
    ) -> None:
        self.grid, self.place = grid, grid.place
        self.adjacency = adjacency
        self._plan = plan
        #: The orders and axes of rows whose degrees this rank needs, and their spans.
        self._scaled_rows: dict[tuple[str, tuple[str, ...]], Span] = {}
        self._targets: dict[tuple[int, bool], Targets] = {}
        self._degree_targets: dict[tuple[str, Span], Targets] = {}
        self._excluded: dict[tuple[int, bool], list[ExcludedBlock]] = {}
        self._keeps_product = False
        self.weight_axes = weight_axes
        self._layouts: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Layout] = {}
        self._realigner = Realigner(adjacency)

    @abstractmethod
    def layout(self, layer: int) -> Layout:
        """Layout of the input of a layer."""

    @abstractmethod
    def multiply(self, features: Tensor, layer: int, dtype: torch.dtype, *, backward: bool) -> Tensor:
        """The layer's normalized adjacency, or its transpose (``backward``), times the features. Collective.

        Args:
            features: (num_rows, columns held) this rank's piece, in the layout at the start of the product: the first
                of :meth:`product_layouts`, or backward the second.
            dtype: dtype of the result: the dtype of the features or of their sums.

        Returns:
            (num_rows, columns held) in the other of the two layouts.
        """

    @abstractmethod
    def window(self, layer: int, *, backward: bool) -> tuple[Span, Sequence[Span], int]:
        """Part of the matrix that :meth:`multiply` uses here: rows, ranges of columns, and number of row blocks.

        Either columns or rows are in one piece. Each piece has one call of :meth:`multiply_locally`, in this order.
        """

    @abstractmethod
    def release(self, layer: int) -> None:
        """Free the layer's adjacency, which no product needs again, unless another layer shares it."""
        self._keeps_product = True

    def agree(self) -> None:  # noqa: B027 - for subclasses
        """Check nothing: the shards do not say what other ranks send."""

    def product_layouts(self, layer: int) -> tuple[Layout, Layout]:
        return self.layout(layer), self.layout(layer + 1)

    def align(self, features: Tensor, source: Layout, target: Layout, dim: int) -> Tensor:
        return self._realigner.align(features, source, target, dim)

    def weight_piece(self, layer: int, shape: tuple[int, int]) -> ParameterPiece | None:  # noqa: ARG002
        return None

    def gather_weight(self, weight: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        """The block of the weight by which this rank multiplies, from the piece that it holds. Collective."""
        return weight

    def scatter_gradient(self, gradient: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        """The adjoint of :meth:`gather_weight`: the gradient of this rank's piece. Collective."""
        return gradient

    def gather_features(self, features: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        """The rows that this rank multiplies by its weight, from the piece that it holds. Collective."""
        return features

    def multiply_weight(self, features: Tensor, weight: Tensor, layer: int) -> Tensor:  # noqa: ARG002
        """This rank's piece of the product of the gathered features and weight. Collective."""
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
        """Gradients of this rank's piece of the features, if wanted, and of the gathered weight. Collective."""
        return self.gemm(gradient, weight.T) if of_features else None, self.weight_gradient(features, gradient)

    def propagate(self, features: Tensor, layer: int, *, as_sums: bool = False) -> Tensor:
        features = converted(features, self.place.feature_dtype, self.place)
        result: Tensor = _Propagate.apply(features, self, layer, as_sums)  # type: ignore[no-untyped-call]
        return result

    def transform(self, features: Tensor, weight: Tensor, layer: int, *, spends: bool = False) -> Tensor:  # noqa: ARG002
        result: Tensor = _Transform.apply(features, weight, self, layer)  # type: ignore[no-untyped-call]
        return result

    def grid_layout(self, layer: int, row_axes: tuple[str, ...], column_axes: tuple[str, ...]) -> Layout:
        """The layout of a layer's input with rows split along some axes and columns along others."""
        # An axis of one rank splits nothing; dropping it makes layouts that agree everywhere equal.
        rows, columns = (tuple(axis for axis in axes if self.grid.axes[axis] > 1) for axes in (row_axes, column_axes))
        key = self.adjacency.order(layer), rows, columns
        # Vertex ids are read from the shards; layers with the same order and axes share them.
        if key not in self._layouts:
            vertex = self.adjacency.vertex_ids(key[0], self.rows(rows))
            self._layouts[key] = Layout(self.grid, vertex, rows, columns, key[0])
        return self._layouts[key]

    def rows(self, axes: tuple[str, ...]) -> tuple[int, int]:
        """This rank's range of the vertices when they are split along ``axes``."""
        return self.grid.span(self.adjacency.num_vertices, axes)

    def read_scaling(
        self, layer: int, source_axes: tuple[str, ...], target_axes: tuple[str, ...], *, backward: bool
    ) -> None:
        """Read the normalization's factors for a product, so that bad degrees are found while loading.

        Args:
            source_axes, target_axes: axes that split the rows of the product's input and of its output.

        Raises:
            InputError: a degree is negative or not finite.
        """
        for side, axes in ((backward, source_axes), (not backward, target_axes)):
            order, span = self.adjacency.order(layer + side), self.rows(axes)
            self._scaled_rows[order, axes] = span
            self.adjacency.scaling(order, span)

    def prepare_targets(self, source: PairSource) -> None:
        adjacency, symmetric = self.adjacency, self.adjacency.shards.symmetric
        check_directions(source, symmetric=symmetric)
        windows = [self._window(layer, backward=backward) for layer, backward in self._plan.products]
        scaled = self._scaled_rows if adjacency.normalizes else {}
        everything = ((0, adjacency.num_vertices),)
        # A window has only some columns of its rows, and so does not show the loss of their degrees.
        windows += [Window(span, everything, (order, order)) for (order, _), span in scaled.items()]
        found = iter(grid_targets(self.grid.comm, source, adjacency, windows, self.place))
        self._targets = {product: next(found) for product in self._plan.products}
        self._degree_targets = {(order, span): next(found) for (order, _), span in scaled.items()}
        for order, span in self._degree_targets:
            adjacency.degree(order, span)

    def _window(self, layer: int, *, backward: bool) -> Window:
        rows, columns, row_blocks = self.window(layer, backward=backward)
        orders = self.adjacency.order(layer + (not backward)), self.adjacency.order(layer + backward)
        transposed = backward and not self.adjacency.shards.symmetric
        return Window(rows, tuple(columns), orders, transposed, row_blocks)

    def exclude(self, chosen: Chosen | None) -> None:
        if chosen is None:
            self._excluded = {}
            self.adjacency.reduce_degrees({})
            return
        check_excludes(self._targets, keeps_product=self._keeps_product)
        # Layers and directions may share a window, and the products that are prepared for it.
        blocks = {
            id(targets): [ExcludedBlock(entries, self.place) for entries in targets.chosen(chosen)]
            for targets in {id(each): each for each in self._targets.values()}.values()
        }
        self._excluded = {product: blocks[id(targets)] for product, targets in self._targets.items()}
        self.adjacency.reduce_degrees(
            {where: targets.chosen(chosen)[0].row_sums() for where, targets in self._degree_targets.items()}
        )

    def excluded(self, layer: int, number: int, *, backward: bool) -> ExcludedBlock | None:
        """Entries that a step excludes from piece ``number`` of a layer's :meth:`window`; None if none are excluded."""
        blocks = self._excluded.get((layer, backward))
        return None if blocks is None else blocks[number]

    @property
    def excludes(self) -> bool:
        """Whether the current step excludes edges, so that a product has one more summand."""
        return bool(self._excluded)

    def gemm(self, left: Tensor, right: Tensor) -> Tensor:
        """A dense product, timed. Communicates nothing."""
        with self.grid.comm.traffic.timing(GEMM):
            return matmul(left, right, self.place)

    def add_gemm(self, total: Tensor, left: Tensor, right: Tensor) -> None:
        """Add a dense product to a sum, which is float32 for bfloat16. Communicates nothing."""
        add_widened(total, self.gemm(left, right), self.place)

    def weight_gradient(self, features: Tensor, gradient: Tensor, *, transposed: bool = False) -> Tensor:
        """H^T dQ, or the transpose of dQ^T H (``transposed``), in the dtype of sums; timed. Communicates nothing."""
        with self.grid.comm.traffic.timing(GEMM):
            return weight_gradient(features, gradient, self.place, transposed=transposed)

    def summed(self, group: Communicator, matrix: Tensor, kind: Kind) -> Tensor:
        """The sum of a matrix over a group, in its dtype; bfloat16 is summed in float32. Overwrites it. Collective."""
        if group.size == 1:
            return matrix
        total = converted(matrix, self.place.sum_dtype, self.place)
        group.all_reduce(total, kind)
        return converted(total, matrix.dtype, self.place)

    def all_gather(self, group: Communicator, block: Tensor, sizes: Sequence[int], kind: Kind) -> Tensor:
        """See :meth:`Communicator.all_gather`; the result is in the workspace. Collective."""
        if group.size == 1:
            return block
        out = self.place.empty((sum(sizes), *block.shape[1:]), block.dtype)
        return group.all_gather(block, sizes, kind, out)

    def reduce_scatter(self, group: Communicator, whole: Tensor, sizes: Sequence[int], kind: Kind) -> Tensor:
        """See :meth:`Communicator.reduce_scatter`; bfloat16 is summed in float32. In the workspace. Collective."""
        if group.size == 1:
            return whole
        wide = converted(whole, self.place.sum_dtype, self.place)
        out = self.place.empty((sizes[group.rank], *whole.shape[1:]), wide.dtype)
        return converted(group.reduce_scatter(wide, sizes, kind, out), whole.dtype, self.place)

    def multiply_locally(
        self,
        product: SparseProduct,
        features: Tensor,
        out: Tensor,
        row_scale: Tensor,
        in_flight: InFlight | None = None,
        *,
        accumulate: bool,
        excluded: ExcludedBlock | None = None,
    ) -> None:
        """Write diag(row_scale) A features to ``out``, or add it, timed; meanwhile, transfers advance.

        Args:
            features: (num_columns, dim).
            out: (num_rows, dim) of the same dtype, or of its sums.
            row_scale: (num_rows,), or (0,) for ones.
            excluded: the entries of A that count as zeros.
        """
        progress = in_flight.progress if in_flight is not None and in_flight.requests else None
        with self.grid.comm.traffic.timing(SPMM):
            product.multiply(features, out, row_scale, accumulate=accumulate, progress=progress)
            if excluded is not None:
                excluded.subtract(features, out, row_scale, progress=progress)

    def scaled(self, features: Tensor, layer: int, row_axes: tuple[str, ...], *, backward: bool) -> Tensor:
        """Features times the normalization's factors on the right side of a layer's matrix, contiguous.

        Args:
            features: (num_rows, columns held) with rows split along ``row_axes``: rows of the layer's input, or
                (``backward``) of its output.

        Returns:
            (num_rows, columns held), contiguous; ``features`` itself if all factors are 1 and it is contiguous.
        """
        # The right factors scale the features before they are sent, so the sparse kernel multiplies by the stored
        # matrix, and no rank needs the factors of rows that it receives.
        sides = self.adjacency.scaling(self.adjacency.order(layer + backward), self.rows(row_axes))
        factor = sides.left if backward else sides.right
        if len(factor) < len(features):  # (0,) stands for ones
            return self.place.contiguous(features)
        return scaled_rows(features, factor, self.place)

    def row_scale(self, layer: int, row_axes: tuple[str, ...], *, backward: bool) -> Tensor:
        """The normalization's factors on the left side, for the kernel: (num_rows,), or (0,) for ones."""
        sides = self.adjacency.scaling(self.adjacency.order(layer + (not backward)), self.rows(row_axes))
        return sides.right if backward else sides.left


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, operator: GridOperator, layer: int, as_sums: bool) -> Tensor:
        # The product is linear in the features, so the backward pass needs no features.
        ctx.operator, ctx.layer, ctx.dtype = operator, layer, features.dtype
        dtype = operator.place.sum_dtype if as_sums else features.dtype
        return operator.multiply(features.detach(), layer, dtype, backward=False)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradient = converted(gradient, ctx.dtype, ctx.operator.place)
        return ctx.operator.multiply(gradient, ctx.layer, ctx.dtype, backward=True), None, None, None


class _Transform(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, operator: GridOperator, layer: int) -> Tensor:
        whole = operator.gather_weight(weight.detach(), layer)
        rows = operator.gather_features(features.detach(), layer)
        # The gathered features are saved: gathering again in the backward pass would save memory and repeat the
        # messages.
        ctx.save_for_backward(rows, whole)
        ctx.operator, ctx.layer = operator, layer
        return operator.multiply_weight(rows, whole, layer)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        rows, weight = ctx.saved_tensors
        operator, layer = ctx.operator, ctx.layer
        # Autograd may pass a gradient that is not contiguous, which a transport cannot send.
        of_features, of_weight = operator.weight_adjoints(
            operator.place.contiguous(gradient), rows, weight, layer, of_features=ctx.needs_input_grad[0]
        )
        return of_features, operator.scatter_gradient(of_weight, layer), None, None
