"""Products with the rows and columns of one batch: a subgraph of a rank's own, or a batch that is spread over ranks.

In a batch of all ranks they exchange rows as in ``p2p``, restricted to the batch (Demirci, Haldar, Ferhatosmanoglu,
PVLDB 16(4), 2022, section 4.3). A subgraph has no halo, so the same operator communicates nothing.
"""

from __future__ import annotations

from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.batch_data import BatchRows
from gnnloom.trainer.operators.attention import NeighborRows
from gnnloom.trainer.operators.halo import HaloExchange
from gnnloom.trainer.operators.halo_product import HaloProduct, LocalProducts
from gnnloom.trainer.operators.whole_rows import WholeRows


class SampledRows(WholeRows):
    """Every rank holds its share of a batch.

    A batch has an operator of its own, which several threads may prepare while others are in use.
    """

    def __init__(
        self,
        grid: ProcessGrid,
        batch: BatchRows,
        *,
        multiplies: bool = True,
    ) -> None:
        """Prepare the products. Communicates nothing.

        Args:
            grid: the ranks that share the batch, along the axis ``row``.
            multiplies: the model differentiates products with the adjacency. Attention does not, and no product is
                prepared for it.
        """
        super().__init__(grid, batch.vertex)
        exchange = HaloExchange(grid.comm, batch.matrix, grid.place)
        self._neighbors = NeighborRows(batch.matrix, exchange, grid)
        if not multiplies:
            return
        products = LocalProducts.of(exchange, batch.matrix)
        self.forward_product = HaloProduct(exchange, products, batch.sides, Kind.HALO_FORWARD)
        if batch.transpose is not batch.matrix:
            exchange = HaloExchange(grid.comm, batch.transpose, grid.place)
            products = LocalProducts.of(exchange, batch.transpose)
        self.backward_product = HaloProduct(exchange, products, batch.sides.transposed, Kind.HALO_BACKWARD)

    def neighbors(self, layer: int) -> NeighborRows:  # noqa: ARG002 - the same for every layer
        return self._neighbors
