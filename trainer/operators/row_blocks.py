"""Row blocks, each on one or several ranks: ``broadcast`` (1D) and ``replicated`` (1.5D).

Tripathy, Yelick, Buluc, "Reducing Communication in Graph Neural Network Training" (SC 2020), sections IV-A and IV-B.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnloom.storage.matrix.ranges import Span, split_range
from gnnloom.trainer.comm.communicator import Request
from gnnloom.trainer.comm.exchange import exchange
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.kernels.dispatch import SparseProduct, converted
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.operators.grid import GridOperator, InFlight
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency
from gnnloom.trainer.operators.operator import LayerPlan

_ROW, _REPLICA = ("row",), ("replica",)


class RowBlocks(GridOperator):
    """Ranks (i, 0), (i, 1), ... share block i of the rows of all matrices; j numbers the copies, as in the paper.

    Each holds an even range of the block's rows. In a product, the block is whole on two occasions: copy j broadcasts
    its subset of the blocks of the features, one after the other, after it has collected their rows, and multiplies its
    own block of the adjacency's rows with each; then the copies sum their results, and each keeps its rows. So
    operations on rows between two products run once, on 1 / P of the rows. (In the paper, all copies hold whole blocks:
    every copy gets the sum, and multiplies it by the weight.) Weights are the same on all ranks.
    """

    def __init__(self, grid: ProcessGrid, adjacency: GridAdjacency, plan: LayerPlan, together: int = 1) -> None:
        """Read this rank's windows. Communicates nothing.

        Args:
            grid: axes ``row``, and ``replica`` if there are copies.
            together: number of blocks of the features that are multiplied by one call; see
                :func:`gnnloom.trainer.algorithms.broadcast.blocks_together`.

        Raises:
            InputError: a degree is negative or not finite.
        """
        # No two ranks hold the same rows, so the gradient of a weight is the sum over all ranks.
        super().__init__(grid, adjacency, plan, weight_axes=tuple(grid.axes))
        self._replica_axes = tuple(axis for axis in _REPLICA if axis in grid.axes)
        self._feature_rows = _ROW + self._replica_axes
        blocks, copies = grid.axes["row"], grid.size(self._replica_axes)
        # Copies divide the source blocks, so every block is broadcast within one copy only.
        shares = [range(*split_range(blocks, copies, copy)) for copy in range(copies)]
        sources = shares[grid.index(self._replica_axes)]
        self._sources = [sources[start : start + together] for start in range(0, len(sources), together)]
        #: The copy that broadcasts the block of this rank.
        self._collector = next(copy for copy, share in enumerate(shares) if grid.coordinate["row"] in share)
        self._bounds = [split_range(adjacency.num_vertices, blocks, block) for block in range(blocks)]
        self._products = {(layer, backward): self._read(layer, backward=backward) for layer, backward in plan.products}

    def _read(self, layer: int, *, backward: bool) -> list[SparseProduct]:
        """The rank's rows, as one product for each group of column blocks that its copy multiplies at once."""
        self.read_scaling(layer, self._feature_rows, _ROW, backward=backward)
        rows, columns, _ = self.window(layer, backward=backward)
        return self.adjacency.products(layer, rows, columns, transposed=backward)

    def window(self, layer: int, *, backward: bool) -> tuple[Span, list[Span], int]:  # noqa: ARG002 - always the same
        columns = [(self._bounds[sources[0]][0], self._bounds[sources[-1]][1]) for sources in self._sources]
        return self.rows(_ROW), columns, 1

    def release(self, layer: int) -> None:
        super().release(layer)
        del self._products[layer, False]

    def layout(self, layer: int) -> Layout:
        return self.grid_layout(layer, self._feature_rows, ())

    def multiply(self, features: Tensor, layer: int, dtype: torch.dtype, *, backward: bool) -> Tensor:
        kind = Kind.PROPAGATE_BACKWARD if backward else Kind.PROPAGATE_FORWARD
        own = self.scaled(features, layer, self._feature_rows, backward=backward)
        block = self._collect(own, kind)
        copies, products = self.grid.group(self._replica_axes), self._products[layer, backward]
        first, last = self.rows(_ROW)
        # Several summands are added in the dtype of sums.
        is_one = len(products) == 1 and copies.size == 1 and not self.excludes
        result = self.place.empty((last - first, own.shape[1]), dtype if is_one else self.place.sum_dtype)
        if not products:
            result.zero_()
        row_scale = self.row_scale(layer, _ROW, backward=backward)
        # The owner of a block of the features broadcasts it, and all ranks of the copy multiply. They have the same
        # sources, and so call the broadcasts in the same order. The next blocks arrive during a product, so the blocks
        # of two products are in memory at a time.
        arriving = self._begin_blocks(0, block, kind)
        for number, product in enumerate(products):
            source, arrival = arriving
            arriving = self._begin_blocks(number + 1, block, kind)
            arrival.finish()
            excluded = self.excluded(layer, number, backward=backward)
            self.multiply_locally(
                product, source, result, row_scale, arriving[1], accumulate=number > 0, excluded=excluded
            )
        sizes = self.grid.sizes_along_last(self.adjacency.num_vertices, self._feature_rows)
        return converted(self.reduce_scatter(copies, result, sizes, kind), dtype, self.place)

    def _collect(self, own: Tensor, kind: Kind) -> Tensor:
        """The whole block of the features on the copy that broadcasts it, from all copies' rows. Collective.

        Args:
            own: (num_rows, dim) this rank's rows.

        Returns:
            (block's rows, dim); on the other copies, ``own``.
        """
        copies = self.grid.group(self._replica_axes)
        if copies.size == 1:
            return own
        sizes = self.grid.sizes_along_last(self.adjacency.num_vertices, self._feature_rows)
        with self.grid.comm.traffic.timing(kind, copies):
            sends, receives, block = [own[:0]] * copies.size, [own[:0]] * copies.size, own
            sends[self._collector] = own
            if copies.rank == self._collector:
                block = self.place.empty((sum(sizes), own.shape[1]), own.dtype)
                receives = [*torch.split(block, sizes)]
            exchange(copies, sends, receives, kind)
        return block

    def _begin_blocks(self, number: int, own: Tensor, kind: Kind) -> tuple[Tensor, InFlight]:
        """Begin the broadcasts of a product's consecutive blocks; after the last product, begin nothing. Collective.

        Args:
            own: this rank's block, if its copy broadcasts it.

        Returns:
            (blocks' rows, dim) buffer for the arriving rows, and the transfers.
        """
        group = self.grid.group(_ROW)
        if number == len(self._sources):
            return own, InFlight(group, [], kind)
        sources = self._sources[number]
        sizes = [stop - start for start, stop in (self._bounds[source] for source in sources)]
        # A rank's own block is multiplied in place, unless it is sent together with others.
        is_own = list(sources) == [group.rank]
        rows = own if is_own else self.place.empty((sum(sizes), own.shape[1]), own.dtype)
        requests: list[Request] = []
        for source, block in zip(sources, torch.split(rows, sizes), strict=True):
            if source == group.rank and not is_own:
                block.copy_(own)
            requests += group.begin_broadcast(block, source, kind)
        return rows, InFlight(group, requests, kind)
