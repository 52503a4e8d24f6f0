"""Row blocks, each on one rank or several: ``broadcast`` (1D) and ``replicated`` (1.5D).

Tripathy, Yelick, Buluc, "Reducing Communication in Graph Neural Network Training" (SC 2020), sections IV-A and IV-B.
"""

from __future__ import annotations

from torch import Tensor

from gnnloom.storage.matrix.ranges import split_range
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.kernels.dispatch import SparseProduct, converted, sum_dtype
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.operators.grid import GridOperator, InFlight
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency
from gnnloom.trainer.operators.layer_plan import LayerPlan

_ROW, _REPLICA = ("row",), ("replica",)


class RowBlocks(GridOperator):
    """Rank (i, j) holds block i of the rows of all matrices; j numbers the copies, which divide each product's work.

    Copy j receives its subset of the blocks of the features, one after the other, and multiplies with each; then the
    copies sum their results. Weights are the same on all ranks.
    """

    def __init__(self, grid: ProcessGrid, adjacency: GridAdjacency, plan: LayerPlan) -> None:
        """Read this rank's windows. Communicates nothing.

        Args:
            grid: axes ``row``, and ``replica`` if there are copies.

        Raises:
            InputError: a degree is negative or not finite.
        """
        # Copies compute the same gradient from the same rows, so gradients are summed along the row axis only.
        super().__init__(grid, adjacency, weight_axes=_ROW)
        self._replica_axes = tuple(axis for axis in _REPLICA if axis in grid.axes)
        blocks = grid.axes["row"]
        # Copies divide the source blocks, so every block is broadcast within one copy only.
        self._sources = range(*split_range(blocks, grid.size(self._replica_axes), grid.index(self._replica_axes)))
        self._bounds = [split_range(adjacency.num_vertices, blocks, block) for block in range(blocks)]
        self._products = {(layer, backward): self._read(layer, backward=backward) for layer, backward in plan.products}

    def _read(self, layer: int, *, backward: bool) -> list[SparseProduct]:
        """The rank's rows in one product for each block of columns that its copy multiplies with."""
        self.read_scaling(layer, _ROW, _ROW, backward=backward)
        columns = [self._bounds[source] for source in self._sources]
        return self.adjacency.products(layer, self.rows(_ROW), columns, transposed=backward)

    def release(self, layer: int) -> None:
        del self._products[layer, False]

    def layout(self, layer: int) -> Layout:
        return self.grid_layout(layer, _ROW, ())

    def multiply(self, features: Tensor, layer: int, *, backward: bool) -> Tensor:
        kind = Kind.PROPAGATE_BACKWARD if backward else Kind.PROPAGATE_FORWARD
        own = self.scaled(features, layer, _ROW, backward=backward)
        copies = self.grid.group(self._replica_axes)
        products = self._products[layer, backward]
        # Several summands are added in the dtype of sums.
        is_one = len(products) == 1 and copies.size == 1
        result = self.workspace.empty(own.shape, own.dtype if is_one else sum_dtype(own.dtype))
        if not products:
            result.zero_()
        row_scale = self.row_scale(layer, _ROW, backward=backward)
        # The owner of a block of the features broadcasts it, and all ranks of the copy multiply. They have the same
        # sources, and so call the broadcasts in the same order. The next block arrives during a product, so there are
        # two blocks in memory at a time.
        arriving = self._begin_block(0, own, products, kind)
        for number, product in enumerate(products):
            block, arrival = arriving
            arriving = self._begin_block(number + 1, own, products, kind)
            arrival.finish()
            self.multiply_locally(product, block, result, row_scale, arriving[1], accumulate=number > 0)
        # Without copies the group has one rank, and nothing is sent.
        copies.all_reduce(result, kind)
        return converted(result, own.dtype, self.workspace)

    def _begin_block(
        self, number: int, own: Tensor, products: list[SparseProduct], kind: Kind
    ) -> tuple[Tensor, InFlight]:
        """Begin the broadcast of a block that this copy multiplies with; of nothing after the last one. Collective."""
        group = self.grid.group(_ROW)
        if number == len(products):
            return own, InFlight(group, [], kind)
        source, shape = self._sources[number], (products[number].num_columns, own.shape[1])
        block = own if source == group.rank else self.workspace.empty(shape, own.dtype)
        return block, InFlight(group, group.begin_broadcast(block, source, kind), kind)
