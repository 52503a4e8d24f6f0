"""Products with the sampled rows of one batch, which differ from layer to layer.

Hamilton, Ying, Leskovec (GraphSAGE, NeurIPS 2017), algorithm 2: the output of a layer has fewer rows than its input.
"""

from __future__ import annotations

from collections.abc import Callable
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
from gnnloom.trainer.kernels.dispatch import SparseProduct, column_scale, sparse_product
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.operators.attention import NeighborRows
from gnnloom.trainer.operators.whole_rows import AXIS, RowProduct, WholeRows
from gnnloom.trainer.place.place import Place


class LayeredOperator(WholeRows):
    """Every rank multiplies by the blocks of its own batch.

    The rows of a layer's input are the leading vertices of the batch; its output has fewer. A sum over
    sampled neighbors is scaled by the nonzeros of the whole row over the drawn ones, so its average is the full sum,
    and it equals the full sum if all neighbors are drawn.

    Attributes:
        normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.
        batch: the current batch.
    """

    batch: LayeredBatch

    def __init__(self, comm: Communicator, num_layers: int, normalization: str, place: Place) -> None:
        """Begin without vertices; :meth:`load` gives the operator a batch.

        Args:
            normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.
        """
        super().__init__(ProcessGrid(comm, {AXIS: comm.size}, place), np.empty(0, np.int64))
        self.normalization = normalization
        self.load(empty_batch(num_layers))

    def load(self, batch: LayeredBatch) -> None:
        """Multiply by the blocks of this batch from now on.

        Raises:
            InputError: a degree is negative or not finite.
        """
        where = "the vertices of a batch"
        self.batch = batch
        sides = scaling(where, self.normalization, batch.degree, self.place)
        self._layouts = [Layout(self.grid, batch.vertices[:size], row_axes=(AXIS,)) for size in batch.layer_sizes]
        self._blocks = [self._scaled(block, batch.row_nnz, sides) for block in batch.blocks]
        self._neighbors = [NeighborRows(without_halo(block), None, self.grid) for block in batch.blocks]

    def _scaled(self, block: CSR, row_nnz: NDArray[np.int64], sides: Scaling) -> tuple[_ScaledBlock, _ScaledBlock]:
        """One block and its transpose, with the factors of their rows and columns.

        Args:
            row_nnz: (num_vertices,) nonzeros of the vertices' rows in the graph.
            sides: factors of all vertices of the batch.
        """
        # A row without nonzeros has no entry to draw; its factor does not matter.
        share = row_nnz[: block.num_rows] / np.maximum(np.diff(block.indptr), 1)
        left = self.place.from_numpy(share).to(self.place.sum_dtype)
        left = left * sides.left[: block.num_rows] if len(sides.left) else left
        right = sides.right[: block.num_columns]
        return (
            _ScaledBlock(lambda: block, left, right, block.num_rows, self.grid),
            _ScaledBlock(lambda: transposed(block), right, left, block.num_columns, self.grid),
        )

    def rest(self, vertex: NDArray[np.int64]) -> None:
        """Have these rows in every layer, and no matrix, until a batch is loaded.

        Args:
            vertex: (num_own,) int64 this rank's vertices.
        """
        self._layouts = [Layout(self.grid, vertex, row_axes=(AXIS,))] * (len(self._layouts))
        self._blocks, self._neighbors = [], []

    def layout(self, layer: int) -> Layout:
        return self._layouts[layer]

    def align(self, features: Tensor, source: Layout, target: Layout, dim: int) -> Tensor:  # noqa: ARG002
        if target.num_rows == len(features):
            return features
        result: Tensor = _Leading.apply(features, target.num_rows, self.place)  # type: ignore[no-untyped-call]
        return result

    def neighbors(self, layer: int) -> NeighborRows:
        """The sampled rows of a layer; attention weights are relative to the drawn neighbors."""
        return self._neighbors[layer]

    def products(self, layer: int) -> tuple[RowProduct, RowProduct]:
        return self._blocks[layer]


class _ScaledBlock:
    """diag(left) B diag(right) of one block B, which is prepared when it is first multiplied with."""

    def __init__(self, find: Callable[[], CSR], left: Tensor, right: Tensor, num_rows: int, grid: ProcessGrid) -> None:
        self._find, self._left, self._num_rows, self._grid = find, left, num_rows, grid
        self._right = column_scale(right, grid.place)

    @cached_property
    def _product(self) -> SparseProduct:
        return sparse_product(self._find(), self._grid.place)

    def multiply(self, features: Tensor, *, as_sums: bool = False) -> Tensor:
        """(num_rows, dim) the product with (num_columns, dim) features, of their dtype or their sums' dtype."""
        place = self._grid.place
        with self._grid.comm.traffic.timing(SPMM):
            dtype = place.sum_dtype if as_sums else features.dtype
            product = place.empty((self._num_rows, features.shape[1]), dtype)
            self._product.multiply(place.contiguous(features), product, self._left, column_scale=self._right)
        return product


class _Leading(torch.autograd.Function):
    """The leading rows of a matrix."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, num_rows: int, place: Place) -> Tensor:
        ctx.shape, ctx.place = features.shape, place
        # A copy, because models write to their arguments: a view would let them change the layer's input.
        taken = place.empty((num_rows, features.shape[1]), features.dtype)
        return taken.copy_(features.detach()[:num_rows])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        whole = ctx.place.empty(ctx.shape, gradient.dtype)
        whole[: len(gradient)] = gradient
        whole[len(gradient) :] = 0
        return whole, None, None
