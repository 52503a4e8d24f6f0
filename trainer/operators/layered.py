"""Products with the sampled rows of one batch, which differ from layer to layer.

Hamilton, Ying, Leskovec (GraphSAGE, NeurIPS 2017), algorithm 2: the output of a layer has fewer rows than its input.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.layered import LayeredBatch, empty_batch
from gnnloom.storage.matrix.transpose import transposed
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import SPMM
from gnnloom.trainer.data.adjacency_scaling import Scaling, scaling
from gnnloom.trainer.data.batch_data import without_halo
from gnnloom.trainer.kernels.dispatch import converted, sparse_product
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import Piece
from gnnloom.trainer.operators.attention import NeighborRows
from gnnloom.trainer.operators.weight_product import timed_product
from gnnloom.trainer.place.place import Place

AXIS = "row"


class Layered:
    """Every rank multiplies with the blocks of a batch of its own; weights are the same on all ranks.

    The rows of a layer's input are the leading vertices of the batch, those of its output are fewer of them. A sum over
    sampled neighbors is scaled by the nonzeros of the whole row over the drawn ones, so it is the full sum on average,
    and exactly the full sum if all are drawn.
    """

    weight_axes: tuple[str, ...] = (AXIS,)

    def __init__(
        self,
        comm: Communicator,
        num_layers: int,
        normalization: str,
        place: Place,
    ) -> None:
        """Begin without vertices; :meth:`load` gives the operator a batch.

        Args:
            normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.
        """
        self.grid, self.place = ProcessGrid(comm, {AXIS: comm.size}, place), place
        self._normalization = normalization
        self.load(empty_batch(num_layers))

    def load(self, batch: LayeredBatch) -> None:
        """Multiply with the blocks of this batch from now on.

        Raises:
            InputError: a degree is negative or not finite.
        """
        where = "the vertices of a batch"
        sides = scaling(where, self._normalization, batch.degree, self.place)
        self._layouts = [Layout(self.grid, batch.vertices[:size], row_axes=(AXIS,)) for size in batch.layer_sizes]
        self._blocks = [ScaledBlock(block, batch.row_nnz, sides, self.place) for block in batch.blocks]
        self._neighbors = [NeighborRows(without_halo(block), None, self.grid) for block in batch.blocks]

    def rest(self, vertex: NDArray[np.int64]) -> None:
        """Have these rows in every layer, and multiply with nothing, until a batch is loaded.

        Args:
            vertex: (num_own,) int64 this rank's vertices.
        """
        self._layouts = [Layout(self.grid, vertex, row_axes=(AXIS,))] * (len(self._layouts))
        self._blocks, self._neighbors = [], []

    def weight_piece(self, layer: int, shape: tuple[int, int]) -> Piece | None:  # noqa: ARG002
        return None

    def layout(self, layer: int) -> Layout:
        return self._layouts[layer]

    def product_layouts(self, layer: int) -> tuple[Layout, Layout]:
        return self._layouts[layer], self._layouts[layer + 1]

    def align(self, features: Tensor, source: Layout, target: Layout, dim: int) -> Tensor:  # noqa: ARG002
        if target.num_rows == len(features):
            return features
        result: Tensor = _Leading.apply(features, target.num_rows, self.place)  # type: ignore[no-untyped-call]
        return result

    def release(self, layer: int) -> None:
        """The next batch replaces all blocks, so nothing is freed."""

    def neighbors(self, layer: int) -> NeighborRows:
        """The sampled rows of a layer; weights of attention are those among the drawn neighbors."""
        return self._neighbors[layer]

    def propagate(self, features: Tensor, layer: int, *, as_sums: bool = False) -> Tensor:
        features = converted(features, self.place.feature_dtype, self.place)
        result: Tensor = _Propagate.apply(features, self._blocks[layer], self, as_sums)  # type: ignore[no-untyped-call]
        return result

    def transform(self, features: Tensor, weight: Tensor, layer: int, *, spends: bool = False) -> Tensor:  # noqa: ARG002
        return timed_product(features, weight, self.grid, spends=spends)


class ScaledBlock:
    """diag(left) B diag(right) of one block B, and its transpose once that is needed."""

    def __init__(self, block: CSR, row_nnz: NDArray[np.int64], sides: Scaling, place: Place) -> None:
        """Prepare the product.

        Args:
            row_nnz: (num_vertices,) nonzeros of the vertices' rows in the graph.
            sides: of all vertices of the batch.
        """
        self._block, self._place = block, place
        drawn = np.diff(block.indptr)
        # A row without nonzeros has none to draw; its factor does not matter.
        share = place.from_numpy(row_nnz[: block.num_rows] / np.maximum(drawn, 1)).to(place.sum_dtype)
        self._left = share * sides.left[: block.num_rows] if len(sides.left) else share
        self._right = sides.right[: block.num_columns]

    @cached_property
    def _forward(self) -> Any:
        return sparse_product(self._block, self._place)

    @cached_property
    def _backward(self) -> Any:
        return sparse_product(transposed(self._block), self._place)

    def multiply(self, features: Tensor, *, as_sums: bool = False) -> Tensor:
        """(num_rows, dim) the product with (num_columns, dim) features, of their dtype or that of their sums."""
        dtype = self._place.sum_dtype if as_sums else features.dtype
        product = self._place.empty((self._block.num_rows, features.shape[1]), dtype)
        self._forward.multiply(self._place.contiguous(features), product, self._left, column_scale=self._right)
        return product

    def multiply_transposed(self, gradient: Tensor) -> Tensor:
        """(num_columns, dim) the product of the transpose with (num_rows, dim) gradients."""
        product = self._place.empty((self._block.num_columns, gradient.shape[1]), gradient.dtype)
        self._backward.multiply(self._place.contiguous(gradient), product, self._right, column_scale=self._left)
        return product


class _Propagate(torch.autograd.Function):
    """The product with a block; its adjoint is the product with the transpose."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, block: ScaledBlock, operator: Layered, as_sums: bool) -> Tensor:
        # The block, not the layer: the operator may have loaded the next batch before the backward pass.
        ctx.block, ctx.operator, ctx.dtype = block, operator, features.dtype
        with operator.grid.comm.traffic.timing(SPMM):
            return block.multiply(features.detach(), as_sums=as_sums)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradient = converted(gradient, ctx.dtype, ctx.operator.place)
        with ctx.operator.grid.comm.traffic.timing(SPMM):
            return ctx.block.multiply_transposed(gradient), None, None, None


class _Leading(torch.autograd.Function):
    """The leading rows of a matrix."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, num_rows: int, place: Place) -> Tensor:
        ctx.shape, ctx.place = features.shape, place
        # A copy, as models write to what they get: a view would let them change the layer's input.
        taken = place.empty((num_rows, features.shape[1]), features.dtype)
        return taken.copy_(features.detach()[:num_rows])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        whole = ctx.place.empty(ctx.shape, gradient.dtype)
        whole[: len(gradient)] = gradient
        whole[len(gradient) :] = 0
        return whole, None, None
