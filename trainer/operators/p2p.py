"""Row shards with a point-to-point exchange of exactly the rows that each rank needs (``p2p``), and their batches.

Demirci, Haldar, Ferhatosmanoglu, "Scalable Graph Convolutional Network Training on Distributed-Memory Systems"
(PVLDB 16(4), 2022), Algorithms 1 (forward) and 2 (backward).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError
from gnnloom.storage.shards.row_cover import CoveredMatrix
from gnnloom.storage.shards.row_shards import RowShard
from gnnloom.storage.shards.shard_matrix import ShardMatrix
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.adjacency_scaling import Scaling, degrees, scaling
from gnnloom.trainer.data.row_targets import row_targets
from gnnloom.trainer.data.target_edges import (
    Chosen,
    ExcludedEntries,
    PairSource,
    StateTargets,
    Targets,
    check_directions,
    covered_entries,
    remaining_degree,
)
from gnnloom.trainer.operators.attention import NeighborRows
from gnnloom.trainer.operators.exclusion import check_excludes
from gnnloom.trainer.operators.halo import CoverExchange, ExchangedRows, HaloExchange
from gnnloom.trainer.operators.halo_product import ExcludedColumns, HaloProduct, LocalProducts
from gnnloom.trainer.operators.whole_rows import AXIS, WholeRows
from gnnloom.trainer.place.place import Place

if TYPE_CHECKING:
    # Training on whole graphs need not load it.
    from gnnloom.trainer.data.batch_data import BatchRows


class PointToPoint(WholeRows):
    """Every rank holds the rows of its part."""

    def __init__(
        self,
        comm: Communicator,
        shard: RowShard,
        normalization: str,
        place: Place,
        *,
        multiplies: bool = True,
        covers: bool = False,
    ) -> None:
        """Read this rank's adjacency. Communicates nothing.

        Args:
            normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.
            multiplies: the model differentiates products with the adjacency. Attention does not, so no transpose is
                read for it.
            covers: ranks send sums in place of some rows, if that is less. The adjacency must be in memory, and
                there is no attention.

        Raises:
            InputError: a degree is negative or not finite.
        """
        super().__init__(ProcessGrid(comm, {AXIS: comm.size}, place), shard.vertex())
        matrix = shard.operand()
        self._shard, self._normalization, self._covers = shard, normalization, covers
        self._targets: Sequence[Targets] = ()
        self._keeps_product = False
        degree = self._degrees(matrix)
        self._sides = sides = self._scaling(degree)
        # With a cover, the matrix does not stay in memory as a whole.
        self._degree = degree if covers else np.empty(0)
        self._exchanged = ExchangedRows(self._where, self.layout(0).vertex, comm, place)
        self._exchanged.add(matrix)
        is_symmetric = shard.shards.symmetric
        transpose = shard.operand(transpose=True) if covers and not is_symmetric else matrix
        self._forward = self._backward = forward = self._side(matrix, transpose)
        #: This rank's rows of the adjacency, not normalized, and the exchange of the rows that their columns need. With
        #: a cover, the halo has a column for each row and sum that arrives.
        self.matrix, self.exchange = forward.matrix, forward.exchange
        #: Attention reads the rows themselves, which a cover does not bring.
        self._neighbors = None if covers else NeighborRows(matrix, self.exchange, self.grid)
        self.forward_product: HaloProduct = forward.product(sides, Kind.HALO_FORWARD)
        self.backward_product: HaloProduct | None = None
        if multiplies and not is_symmetric:
            # The transpose of an asymmetric pattern refers to other rows, so it needs a separate exchange.
            transpose = transpose if covers else shard.operand(transpose=True)
            self._exchanged.add(transpose)
            self._backward = self._side(transpose, matrix)
        if multiplies:
            self.backward_product = self._backward.product(sides.transposed, Kind.HALO_BACKWARD)

    def agree(self) -> None:
        self._exchanged.agree()

    def neighbors(self, layer: int) -> NeighborRows:  # noqa: ARG002 - the same for every layer
        """See :class:`~gnnloom.trainer.operators.attention.NeighborRows`.

        Raises:
            InputError: ranks exchange a cover.
        """
        if self._neighbors is None:
            raise InputError("exchange cover: sums in place of rows arrive from other ranks; use --exchange rows")
        return self._neighbors

    def release(self, layer: int) -> None:
        super().release(layer)
        self._keeps_product = True

    def _degrees(self, matrix: ShardMatrix[Any] | CoveredMatrix) -> NDArray[np.float64]:
        # Degrees of weighted rows take a pass over the matrix, which may be on disk.
        return np.empty(0) if self._normalization == "none" else degrees(matrix.own, matrix.halo)

    def _scaling(self, degree: NDArray[np.float64]) -> Scaling:
        return scaling(self._where, self._normalization, degree, self.place)

    @property
    def _where(self) -> str:
        return f"{self._shard.shards.artifact.path}/{self._shard.prefix}"

    def prepare_targets(self, source: PairSource) -> None:
        check_directions(source, symmetric=self._shard.shards.symmetric)
        self._targets = source.targets(lambda: self._read_targets(source), self._stated_targets)
        if not self._covers:
            self._degree = self._degrees(self.matrix)

    def _read_targets(self, source: PairSource) -> Sequence[Targets]:
        """The entries of this rank's rows. Collective."""
        # With a cover, the matrix has only some of the halo.
        halo = self._shard.read("halo_vertex") if self._covers else self.matrix.halo_vertex
        shards, halos = self._shard.shards, [halo]
        if self._has_own_transpose:
            halos.append(self._shard.read("transpose/halo_vertex"))
        comm, vertex = self.grid.comm, self.layout(0).vertex
        return row_targets(comm, source, shards.num_vertices, vertex, halos, self.place, weighted=shards.weighted)

    def _stated_targets(self, state: StateTargets) -> Sequence[Targets]:
        """Stated targets, one per entry of this rank's share of the nonzeros."""
        shards, matrix = self._shard.shards, self.matrix
        # The partition was measured on the whole graph.
        total = self.grid.comm.size * shards.quality.get("load_avg", matrix.own.nnz + matrix.halo.nnz)
        shares = [block.nnz / max(1, total) for block in (matrix.own, matrix.halo)]
        shapes = [(block.num_rows, block.num_columns) for block in (matrix.own, matrix.halo)]
        matrices = 2 if self._has_own_transpose else 1
        return [state(shares, shapes, self.place, weighted=shards.weighted) for _ in range(matrices)]

    @property
    def _has_own_transpose(self) -> bool:
        return (self._covers or self.backward_product is not None) and not self._shard.shards.symmetric

    def exclude(self, chosen: Chosen | None) -> None:
        if chosen is None:
            self._multiply_without(None, None, self._sides)
            return
        check_excludes(self._targets, keeps_product=self._keeps_product)
        # The transpose of a symmetric adjacency lacks the same entries.
        forward, *others = (targets.chosen(chosen) for targets in self._targets)
        transpose, sides = others[0] if others else forward, self._sides
        if self._normalization != "none":
            own, halo = (entries.row_sums() for entries in forward)
            sides = self._scaling(remaining_degree(self._degree, own + halo))
        excluded = self._forward.without(forward, transpose)
        back = excluded if self._backward is self._forward else self._backward.without(transpose, forward)
        self._multiply_without(excluded, back, sides)

    def _multiply_without(
        self, forward: ExcludedColumns | None, backward: ExcludedColumns | None, sides: Scaling
    ) -> None:
        if self._neighbors is not None:
            self._neighbors.exclude(None if forward is None else (forward.own.entries, forward.halo.entries))
        self.forward_product.exclude(forward, sides)
        if self.backward_product is not None:
            self.backward_product.exclude(backward, sides.transposed)

    def _side(self, matrix: ShardMatrix[Any], transpose: ShardMatrix[Any]) -> _Side:
        """Prepare the products with a matrix.

        Args:
            transpose: the rank's rows of its transpose; not used without a cover.
        """
        if not self._covers:
            exchange = HaloExchange(self.grid.comm, matrix, self.place)
            return _Side(matrix, exchange, LocalProducts.of(exchange, matrix))
        found = self._shard.covered(matrix, transpose)
        self._exchanged.add(found)
        covering = CoverExchange(self.grid.comm, found, self.place)
        return _Side(found, covering, LocalProducts.of(covering, found))


@dataclass(frozen=True)
class _Side:
    """The adjacency or its transpose, ready for products: the rows of this rank, and their exchange."""

    matrix: ShardMatrix[Any] | CoveredMatrix
    exchange: HaloExchange
    products: LocalProducts

    def product(self, sides: Scaling, kind: Kind) -> HaloProduct:
        """The product with the matrix, scaled."""
        return HaloProduct(self.exchange, self.products, sides, kind)

    def without(self, blocks: Sequence[ExcludedEntries], transpose: Sequence[ExcludedEntries]) -> ExcludedColumns:
        """Find the entries that a product leaves out.

        Args:
            blocks: excluded entries in the rank's rows: in its own columns, and in the whole halo.
            transpose: excluded entries in its rows of the transpose, likewise.
        """
        if not isinstance(self.matrix, ShardMatrix):
            blocks = [blocks[0], *covered_entries(self.matrix, blocks[1], transpose[1])]
        return ExcludedColumns.of(blocks, self.exchange.place)


class SampledRows(WholeRows):
    """Every rank holds its share of a batch.

    Every batch has its own operator; several threads may prepare operators while others are in use.

    Attributes:
        batch: the rank's rows of the batch.
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
            multiplies: the model differentiates products with the adjacency. Attention does not, so no product is
                prepared for it.
        """
        super().__init__(grid, batch.vertex)
        self.batch = batch
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
