"""Multiplies the normalized adjacency of all ranks by a few columns at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.stored_csr import StoredCSR
from gnnloom.storage.shards.row_shards import RowShard
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.adjacency_scaling import degrees, scaling
from gnnloom.trainer.kernels.dispatch import RowSink, sparse_product
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.operators.halo import ExchangedRows, HaloExchange
from gnnloom.trainer.operators.halo_product import HaloProduct, LocalProducts
from gnnloom.trainer.operators.whole_rows import AXIS
from gnnloom.trainer.place.place import Place


class AdjacencyProduct:
    """This rank's rows of the adjacency, in memory or on disk.

    The bits of a product do not depend on the number of columns per product, on the number of threads, or on the place
    of the adjacency.

    Attributes:
        layout: this rank's rows.
        matrix: this rank's rows, not normalized.
        num_nonzeros: nonzeros of the rows.
    """

    def __init__(self, comm: Communicator, shard: RowShard, normalization: str, place: Place) -> None:
        """Read data that stay in memory. Communicates nothing.

        Args:
            shard: the rank's shard, with the adjacency in memory, or ``on_disk``.
            normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.

        Raises:
            InputError: a degree is negative or not finite.
        """
        where = f"{shard.shards.artifact.path}/{shard.prefix}"
        sides = scaling(where, normalization, _degrees(shard, normalization), place)
        matrix = shard.operand()
        self.layout = Layout(ProcessGrid(comm, {AXIS: comm.size}, place), shard.vertex(), (AXIS,))
        self.place, self.num_nonzeros = place, matrix.own.nnz + matrix.halo.nnz
        self.matrix = matrix
        #: Called by all ranks before rows are exchanged, to check that they agree. Collective.
        self.exchanged = ExchangedRows(where, self.layout.vertex, comm, place)
        self.exchanged.add(matrix)
        exchange = HaloExchange(comm, matrix, place)
        # One product with the whole halo: a matrix on disk has no other, and the sums must be the same in memory.
        neighbors = [(exchange.owners(), sparse_product(matrix.halo, place))] if exchange.owners() else []
        products = LocalProducts(sparse_product(matrix.own, place), neighbors)
        self._product = HaloProduct(exchange, products, sides, Kind.HALO_FORWARD)

    @property
    def row_bounds(self) -> NDArray[np.int64]:
        """Rows at which the blocks of the matrices on disk begin, and the number of rows."""
        blocks = [block.bounds for block in (self.matrix.own, self.matrix.halo) if isinstance(block, StoredCSR)]
        return np.unique(np.concatenate([[0, self.matrix.own.num_rows], *blocks]))

    def multiply(self, dense: Tensor) -> Tensor:
        """The adjacency times this rank's (num_rows, columns) rows, in the workspace. Collective."""
        return self._product.multiply(dense)

    def multiply_into(self, dense: Tensor, out: Tensor | RowSink, *, as_sums: bool = False) -> None:
        """Like :meth:`multiply`, to memory or, if the adjacency is on disk, to rows that are not in memory. Collective.

        Args:
            out: (num_rows, columns) to overwrite.
            as_sums: the result is of the dtype of sums.
        """
        self._product.multiply_into(dense, out, as_sums=as_sums)

    def powers(self, dense: Tensor, steps: int, teleport: float | None = None) -> Iterator[tuple[int, Tensor]]:
        """The steps 1, 2, ... of a propagation, each (num_rows, columns). Collective, including the iteration.

        A step is A times the previous step; with a teleport probability, it is (1 - teleport) A times the previous step
        plus teleport times ``dense`` (Gasteiger, Bojchevski, Guennemann, "Predict then Propagate", ICLR 2019, equation
        4).

        Args:
            dense: (num_rows, columns) step 0, which is overwritten if there is a teleport probability. The caller
                keeps no reference to it, nor to a step, so that two matrices are in memory, or three with a teleport
                probability.
        """
        value, start = [dense], dense if teleport is not None else None
        del dense
        for step in range(1, steps + 1):
            # Out of the list while it is multiplied, so that its memory is free for the step after the next.
            value.append(self.multiply(value[0]))
            del value[0]
            if start is not None and teleport is not None:
                if step == 1:
                    start.mul_(teleport)
                # Two roundings of every element, at any position: a fused operation might round only some elements
                # once.
                value[0].mul_(1 - teleport).add_(start)
            yield step, value[0]


def _degrees(shard: RowShard, normalization: str) -> NDArray[np.float64]:
    if normalization == "none":
        return np.empty(0)
    # Sums of weights take several times their memory, unless they are read in blocks.
    matrix = (shard.streamed() if shard.shards.weighted else shard).operand()
    return degrees(matrix.own, matrix.halo)
