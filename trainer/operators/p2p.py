"""Row shards with a point-to-point exchange of exactly the rows that each rank needs (``p2p``).

Demirci, Haldar, Ferhatosmanoglu, "Scalable Graph Convolutional Network Training on Distributed-Memory Systems"
(PVLDB 16(4), 2022), Algorithms 1 (forward) and 2 (backward).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gnnloom.storage.artifacts.row_shards import RowShard
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.adjacency_scaling import Scaling, degrees, scaling
from gnnloom.trainer.kernels.arrays import tensor_dtype
from gnnloom.trainer.kernels.dispatch import Threads, Workspace
from gnnloom.trainer.operators.attention import NeighborRows
from gnnloom.trainer.operators.halo import HaloExchange
from gnnloom.trainer.operators.halo_product import HaloProduct, LocalProducts
from gnnloom.trainer.operators.whole_rows import AXIS, WholeRows


class PointToPoint(WholeRows):
    """Every rank holds the rows of its part."""

    def __init__(
        self,
        comm: Communicator,
        shard: RowShard,
        normalization: str,
        dtype: np.dtype[Any],
        threads: Threads,
        workspace: Workspace | None = None,
        *,
        multiplies: bool = True,
        feature_dtype: torch.dtype | None = None,
    ) -> None:
        """Read this rank's adjacency. Communicates nothing.

        Args:
            normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.
            dtype: float32 or float64, of weights of edges, factors and sums.
            workspace: where products and rows on their way are; of its own by default.
            multiplies: the model differentiates products with the adjacency. Attention does not, and needs no
                transpose; none is read for it.
            feature_dtype: of the features: ``dtype`` by default, or bfloat16 with float32 sums.

        Raises:
            InputError: a degree is negative or not finite.
        """
        grid = ProcessGrid(comm, {AXIS: comm.size})
        super().__init__(grid, shard.vertex(), workspace or Workspace(), feature_dtype or tensor_dtype(dtype))
        matrix = shard.operand()
        where = f"{shard.shards.artifact.path}/{shard.prefix}"
        # Degrees of weighted rows take a pass over the matrix, which may be on disk.
        degree = np.empty(0) if normalization == "none" else degrees(matrix.own, matrix.halo)
        sides = scaling(where, normalization, degree, dtype)
        #: This rank's rows of the adjacency, not normalized, and the exchange of the rows that their columns need.
        self.matrix, self.exchange, self.threads = matrix, HaloExchange(comm, matrix, self.workspace), threads
        self._neighbors = NeighborRows(matrix, self.exchange, threads, comm.traffic, self.workspace)
        products = LocalProducts.of(self.exchange, matrix, threads, self.feature_dtype)
        self.forward_product = HaloProduct(self.exchange, products, sides, Kind.HALO_FORWARD)
        self.backward_product = self._adjoint(shard, products, sides) if multiplies else None

    def neighbors(self, layer: int) -> NeighborRows:  # noqa: ARG002 - the same for every layer
        return self._neighbors

    def _adjoint(self, shard: RowShard, products: LocalProducts, sides: Scaling) -> HaloProduct:
        """The product with the transpose, whose pattern and exchange are the same if the adjacency is symmetric."""
        exchange = self.exchange
        if not shard.shards.symmetric:
            # The transpose of an asymmetric pattern refers to other rows, so it needs an exchange of its own.
            transpose = shard.operand(transpose=True)
            exchange = HaloExchange(self.grid.comm, transpose, self.workspace)
            products = LocalProducts.of(exchange, transpose, self.threads, self.feature_dtype)
        return HaloProduct(exchange, products, sides.transposed, Kind.HALO_BACKWARD)
