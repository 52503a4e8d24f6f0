"""Products with the rows and columns of one batch: a subgraph of a rank's own, or a batch that is spread over ranks.

In a batch of all ranks they exchange rows as in ``p2p``, restricted to the batch (Demirci, Haldar, Ferhatosmanoglu,
PVLDB 16(4), 2022, section 4.3). A subgraph has no halo, so the same operator communicates nothing.
"""

from __future__ import annotations

import torch

from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.batch_data import BatchRows
from gnnloom.trainer.kernels.arrays import tensor_dtype
from gnnloom.trainer.kernels.dispatch import Threads, Workspace
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
        threads: Threads,
        workspace: Workspace,
        *,
        multiplies: bool = True,
        feature_dtype: torch.dtype | None = None,
    ) -> None:
        """Prepare the products. Communicates nothing.

        Args:
            grid: the ranks that share the batch, along the axis ``row``.
            workspace: where products and rows on their way are.
            multiplies: the model differentiates products with the adjacency. Attention does not, and no product is
                prepared for it.
            feature_dtype: of the features: that of the factors by default, or bfloat16 with float32 sums.
        """
        super().__init__(grid, batch.vertex, workspace, feature_dtype or tensor_dtype(batch.sides.left.dtype))
        exchange = HaloExchange(grid.comm, batch.matrix, workspace)
        self._neighbors = NeighborRows(batch.matrix, exchange, threads, grid.comm.traffic, workspace)
        if not multiplies:
            return
        products = LocalProducts.of(exchange, batch.matrix, threads, self.feature_dtype)
        self.forward_product = HaloProduct(exchange, products, batch.sides, Kind.HALO_FORWARD)
        if batch.transpose is not batch.matrix:
            exchange = HaloExchange(grid.comm, batch.transpose, workspace)
            products = LocalProducts.of(exchange, batch.transpose, threads, self.feature_dtype)
        self.backward_product = HaloProduct(exchange, products, batch.sides.transposed, Kind.HALO_BACKWARD)

    def neighbors(self, layer: int) -> NeighborRows:  # noqa: ARG002 - the same for every layer
        return self._neighbors
