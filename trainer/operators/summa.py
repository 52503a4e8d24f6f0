"""SUMMA on a p x q grid (``summa``, 2D), and on c such layers that divide the work (``split3d``, 3D).

Tripathy, Yelick, Buluc, "Reducing Communication in Graph Neural Network Training" (SC 2020), sections IV-C and IV-D;
the latter follows Split-3D-SpMM (Azad et al., SIAM J. Sci. Comput. 38(6), 2016).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.ranges import Span, split_range
from gnnloom.trainer.comm.communicator import Communicator, Request
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.kernels.dispatch import PackedRows, SparseProduct, SparseRows, converted, listed_rows
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.operators.grid import GridOperator, InFlight
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency
from gnnloom.trainer.operators.operator import LayerPlan

_ROW, _COLUMN, _LAYER = ("row",), ("column",), ("layer",)


@dataclass(frozen=True)
class SummaStage:
    """A range of the vertices that a product sums over in one step.

    Attributes:
        span: positions of the vertices.
        row: process row that holds these rows of the features, from its local row ``offset`` on.
        column: process column that holds these columns of the adjacency.
    """

    span: Span
    row: int
    offset: int
    column: int

    @property
    def width(self) -> int:
        return self.span[1] - self.span[0]


@dataclass(frozen=True)
class _Operands:
    """Operands of a stage, which may still be on their way.

    Attributes:
        block: the adjacency's block: this rank's own, or an arriving one.
        rows: (stage's width, columns held) rows of the features.
        entries, features: transfers of both operands.
    """

    block: SparseRows | PackedRows
    rows: Tensor
    entries: InFlight
    features: InFlight

    @property
    def moving(self) -> InFlight:
        """A transfer that may not have ended: any call to MPI advances all transfers."""
        return self.features if self.features.requests else self.entries

    def finish(self) -> None:
        """Wait until both operands have arrived. Collective."""
        self.entries.finish()
        self.features.finish()


#: Stands for the stage after the last one.
_NO_BLOCK = listed_rows(CSR(0, np.zeros(1, np.int64), np.empty(0, np.int32), None, 0))


class Summa(GridOperator):
    """Rank (i, j, k) holds rows i of the adjacency and columns j of the features; layer k sums over its vertices.

    The rows of the features are split along i, and further along k. In each layer, ranges of the rows are broadcast
    down the process columns, and the matching columns of the adjacency along the process rows. Then the layers sum
    their products, and each keeps its rows. No input is replicated; weights are the same on all ranks.
    """

    def __init__(
        self,
        grid: ProcessGrid,
        adjacency: GridAdjacency,
        plan: LayerPlan,
        width: int = 0,
        *,
        lists_entries: bool = False,
    ) -> None:
        """Read this rank's blocks. Communicates nothing.

        Args:
            grid: axes ``row`` and ``column``, and ``layer`` for split3d.
            width: maximum number of vertices in a stage; 0 for the number of vertices of one rank.
            lists_entries: send blocks with the row of every entry, not with the number of entries of every row.

        Raises:
            InputError: a degree is negative or not finite.
        """
        # No two ranks hold the same rows and columns, so the gradient of a weight is the sum over all ranks.
        super().__init__(grid, adjacency, plan, weight_axes=tuple(grid.axes))
        self._layer_axes = tuple(axis for axis in _LAYER if axis in grid.axes)
        self._feature_rows = _ROW + self._layer_axes
        self._stages, self._lists_entries = self._cut_stages(width), lists_entries
        self._blocks = {(layer, backward): self._read(layer, backward=backward) for layer, backward in plan.products}
        self._products: dict[int, SparseProduct] = {}
        self._packed: dict[int, PackedRows] = {}
        self._nnz: dict[tuple[int, bool], list[int]] = {}

    def _cut_stages(self, width: int) -> list[SummaStage]:
        """Cut the vertices of this layer wherever the owner of the features or of the adjacency changes."""
        num_rows, num_columns = self.grid.axes["row"], self.grid.axes["column"]
        layers, layer = self.grid.size(self._layer_axes), self.grid.index(self._layer_axes)
        n = self.adjacency.num_vertices
        spans = [split_range(n, num_rows * layers, row * layers + layer) for row in range(num_rows)]
        # The layer's vertices are numbered consecutively over its process rows.
        starts = np.cumsum([0] + [stop - start for start, stop in spans])
        total = int(starts[-1])
        owners = [split_range(total, num_columns, column)[1] for column in range(num_columns)]
        # A range cannot have step 0, which a layer without vertices would give.
        steps = range(0, total, width or max(total, 1))
        # Between two cuts nothing changes, so every stage has one owner of its features and one of its adjacency.
        cuts = sorted({*starts.tolist(), *owners, *steps, total})
        stages = []
        for first, last in pairwise(cuts):
            # Of process rows with equal starts all but the last are empty; the search from the right finds the one that
            # holds the vertex. The same holds for the columns' ends below.
            row = int(np.searchsorted(starts, first, side="right")) - 1
            offset = first - int(starts[row])
            span = (spans[row][0] + offset, spans[row][0] + offset + last - first)
            stages.append(SummaStage(span, row, offset, int(np.searchsorted(owners, first, side="right"))))
        return stages

    def _read(self, layer: int, *, backward: bool) -> dict[int, SparseRows]:
        """The blocks that this rank holds, by the number of their stage."""
        self.read_scaling(layer, self._feature_rows, _ROW, backward=backward)
        column = self.grid.coordinate["column"]
        mine = [number for number, stage in enumerate(self._stages) if stage.column == column]
        spans = [self._stages[number].span for number in mine]
        return dict(zip(mine, self.adjacency.listed(layer, self.rows(_ROW), spans, transposed=backward), strict=True))

    def window(self, layer: int, *, backward: bool) -> tuple[Span, list[Span], int]:  # noqa: ARG002 - always the same
        # Blocks of the adjacency arrive, so every rank of a process row needs their excluded entries.
        return self.rows(_ROW), [stage.span for stage in self._stages], 1

    def release(self, layer: int) -> None:
        super().release(layer)
        del self._blocks[layer, False]
        kept = {id(block) for blocks in self._blocks.values() for block in blocks.values()}
        self._products = {number: product for number, product in self._products.items() if number in kept}
        self._packed = {number: packed for number, packed in self._packed.items() if number in kept}

    def layout(self, layer: int) -> Layout:
        return self.grid_layout(layer, self._feature_rows, _COLUMN)

    def multiply(self, features: Tensor, layer: int, dtype: torch.dtype, *, backward: bool) -> Tensor:
        kind = Kind.PROPAGATE_BACKWARD if backward else Kind.PROPAGATE_FORWARD
        own = self.scaled(features, layer, self._feature_rows, backward=backward)
        first, last = self.rows(_ROW)
        row_scale = self.row_scale(layer, _ROW, backward=backward)
        fiber = self.grid.group(self._layer_axes)
        # Several summands are added in the dtype of sums.
        is_one = len(self._stages) == 1 and fiber.size == 1 and not self.excludes
        result = self.place.empty((last - first, own.shape[1]), dtype if is_one else self.place.sum_dtype)
        if not self._stages:
            result.zero_()
        # Both operands of a stage are broadcast; then every rank multiplies them locally, while the operands of the
        # next stage arrive.
        arriving = self._begin_stage(0, own, kind, layer, backward=backward)
        for number in range(len(self._stages)):
            stage, arriving = arriving, self._begin_stage(number + 1, own, kind, layer, backward=backward)
            stage.finish()
            self.multiply_locally(
                self._product(stage.block),
                stage.rows,
                result,
                row_scale,
                arriving.moving,
                accumulate=number > 0,
                excluded=self.excluded(layer, number, backward=backward),
            )
        sizes = self.grid.sizes_along_last(self.adjacency.num_vertices, self._feature_rows)
        return converted(self.reduce_scatter(fiber, result, sizes, kind), dtype, self.place)

    def _begin_stage(self, number: int, own: Tensor, kind: Kind, layer: int, *, backward: bool) -> _Operands:
        """Begin to broadcast both operands of a stage; nothing after the last one. Collective."""
        down, along = self.grid.group(_ROW), self.grid.group(_COLUMN)
        if number == len(self._stages):
            return _Operands(_NO_BLOCK, own, InFlight(along, [], Kind.ADJACENCY), InFlight(down, [], kind))
        block, arriving = self._begin_block(number, layer, backward=backward)
        stage = self._stages[number]
        rows = own[stage.offset : stage.offset + stage.width]
        if stage.row != down.rank:
            rows = self.place.empty((stage.width, own.shape[1]), own.dtype)
        return _Operands(
            block,
            rows,
            InFlight(along, arriving, Kind.ADJACENCY),
            InFlight(down, down.begin_broadcast(rows, stage.row, kind), kind),
        )

    def _product(self, block: SparseRows | PackedRows) -> SparseProduct:
        """A block, prepared for products: once, if this rank holds it; layers and directions may share it."""
        if isinstance(block, PackedRows):
            return self.adjacency.product(block.unpacked())
        if id(block) not in self._products:
            self._products[id(block)] = self.adjacency.product(block)
        return self._products[id(block)]

    def _begin_block(self, number: int, layer: int, *, backward: bool) -> tuple[SparseRows | PackedRows, list[Request]]:
        """Begin to broadcast the adjacency's block of a stage along the process row. Collective.

        Returns:
            The block of this rank, or buffers for it; and the transfers.
        """
        along, root = self.grid.group(_COLUMN), self._stages[number].column
        if along.size == 1:
            return self._blocks[layer, backward][number], []
        # Receivers know the shapes and dtypes of all arrays in advance, so only their contents travel.
        nnz = self._count_entries(along, layer, backward=backward)[number]
        own = self._blocks[layer, backward].get(number)
        packed = self._empty_block(nnz, self._stages[number].width) if own is None else self._pack(own)
        requests: list[Request] = []
        for tensor in packed.tensors:
            requests += along.begin_broadcast(tensor, root, Kind.ADJACENCY)
        return own or packed, requests

    def _pack(self, block: SparseRows) -> PackedRows:
        """A block that this rank holds, packed once for sending in every epoch."""
        if id(block) not in self._packed:
            self._packed[id(block)] = PackedRows.of(block, self.place, lists_entries=self._lists_entries)
        return self._packed[id(block)]

    def _empty_block(self, nnz: int, width: int) -> PackedRows:
        """Buffers for a block to receive, with the dtypes of a packed block."""
        first, last = self.rows(_ROW)
        weighted, lists = self.adjacency.shards.weighted, self._lists_entries
        return PackedRows.empty(nnz, last - first, width, self.place, weighted=weighted, lists_entries=lists)

    def _count_entries(self, along: Communicator, layer: int, *, backward: bool) -> list[int]:
        """Nonzeros of the blocks of all stages on this process row. Collective at the first call for a product."""
        # The adjacency never changes, so its counts are exchanged once instead of in every epoch.
        if (layer, backward) not in self._nnz:
            blocks = self._blocks[layer, backward]
            # Each block has one owner, so the sum over the ranks is its count.
            mine = [blocks[number].nnz if number in blocks else 0 for number in range(len(self._stages))]
            self._nnz[layer, backward] = along.gather_numbers(mine).sum(0).astype(np.int64).tolist()
        return self._nnz[layer, backward]

    def multiply_weight(self, features: Tensor, weight: Tensor, layer: int) -> Tensor:
        """Multiply the features' blocks of columns, broadcast along the process row, with their rows of the weight."""
        if self.grid.axes["column"] == 1:
            return super().multiply_weight(features, weight, layer)
        layout, (dim, dim_out) = self.layout(layer), weight.shape
        columns = layout.columns(dim_out)
        # Several products are added in the dtype of sums.
        sums = self.place.sum_dtype
        result = self.place.zeros((len(features), columns.stop - columns.start), sums)
        for block, inner in self._column_blocks(features, dim, Kind.TRANSFORM_FORWARD):
            self.add_gemm(result, block, weight[inner, columns])
        return converted(result, features.dtype, self.place)

    def weight_adjoints(
        self, gradient: Tensor, features: Tensor, weight: Tensor, layer: int, *, of_features: bool
    ) -> tuple[Tensor | None, Tensor]:
        if self.grid.axes["column"] == 1:
            return super().weight_adjoints(gradient, features, weight, layer, of_features=of_features)
        dim, dim_out = weight.shape
        inner = self.layout(layer).columns(dim)
        back = self.place.zeros(features.shape, self.place.sum_dtype) if of_features else None
        # This rank's rows and columns contribute to the rows ``inner`` of the gradient; the sum over all ranks is the
        # whole gradient.
        of_weight = self.place.zeros(weight.shape, weight.dtype)
        for block, columns in self._column_blocks(gradient, dim_out, Kind.TRANSFORM_BACKWARD):
            if back is not None:
                self.add_gemm(back, block, weight[inner, columns].T)
            of_weight[inner, columns] = self.weight_gradient(features, block)
        return None if back is None else converted(back, features.dtype, self.place), of_weight

    def _column_blocks(self, piece: Tensor, dim: int, kind: Kind) -> Iterator[tuple[Tensor, slice]]:
        """Broadcast the blocks of columns of a (n, dim) matrix along the process row, one at a time. Collective.

        Args:
            piece: (num_rows, columns held) this rank's block.

        Yields:
            A block, and its columns.
        """
        along = self.grid.group(_COLUMN)
        own = self.place.contiguous(piece)
        arriving = []
        # The next block arrives during the current product. The last iteration begins no transfer.
        for source in range(along.size + 1):
            if source < along.size:
                columns = slice(*split_range(dim, along.size, source))
                shape = len(own), columns.stop - columns.start
                block = own if source == along.rank else self.place.empty(shape, own.dtype)
                arriving.append((block, columns, along.begin_broadcast(block, source, kind)))
            if source > 0:
                block, columns, requests = arriving.pop(0)
                along.finish(requests, kind)
                yield block, columns
