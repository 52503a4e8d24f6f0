"""The plan of grid shards, for stored artifacts or for stated sizes.

The entries of each row block are scattered by grid cell, and one task sorts and writes each cell. Ranges of vertex data
are routed to their positions in the permuted orders, and one task writes each bucket of positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gnnloom.pipeline.shards.grid.grid_cells import SORT_BYTES, WriteCellTask, cell_name, write_cell
from gnnloom.pipeline.shards.grid.grid_scatter import (
    SCATTER_BYTES,
    ScatterToCellsTask,
    cell_shuffle,
    run_entries,
    scatter_to_cells,
)
from gnnloom.pipeline.shards.grid.grid_vertex_plan import Bucket, VertexPlan
from gnnloom.pipeline.shards.grid.grid_vertex_routing import (
    RouteRangeTask,
    StoredVertexRows,
    WriteBucketTask,
    bucket_prefix,
    route_range,
    vertex_types,
    write_bucket,
)
from gnnloom.pipeline.shards.grid.part_order import Order
from gnnloom.pipeline.shards.shard_options import GridOptions
from gnnloom.pipeline.shards.shard_source import ShardSource
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.tasks.memory import rows_that_fit
from gnnloom.pipeline.tasks.phase import Needs, Phase
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.shards.grid_variants import stored_variants


@dataclass(frozen=True)
class GridPlaces:
    """Files that tasks read and write; the defaults are for plans that are counted and not run.

    Attributes:
        graph, transpose: artifacts of the matrices.
        vertices: artifact of the vertex data; None if there are none.
        orders: order of the ``rows`` (Pr) and the ``columns`` (Pc); None for the order of the ids.
    """

    writer: ArtifactWriter = field(default_factory=lambda: ArtifactWriter(Path(), "shards", ""))
    graph: Path = Path()
    transpose: Path = Path()
    vertices: Path | None = None
    orders: Mapping[str, Order | None] = field(default_factory=lambda: {"rows": None, "columns": None})

    def sides(self, variant: str) -> tuple[Order | None, Order | None]:
        """The orders of the variant's rows and columns."""
        # Transposing swaps the sides: ``odd_transposed`` is Pr A^T Pc^T, and ``even_transposed`` Pc A^T Pr^T.
        rows_first = variant in {"even", "odd_transposed"}
        first, second = ("rows", "columns") if rows_first else ("columns", "rows")
        return self.orders[first], self.orders[second]


@dataclass(frozen=True, eq=False)
class GridPlan:
    """The phases that make grid shards, once the transpose of a directed graph exists.

    Attributes:
        source: sizes of the graph and the vertex data.
        memory: bytes that a worker may use.
    """

    source: ShardSource
    options: GridOptions
    memory: int
    places: GridPlaces

    def phases(self) -> list[Phase]:
        """All phases.

        Raises:
            BudgetError: a worker's memory is too small for any buffer.
        """
        return [*self._cell_phases(), *self._vertex_phases()]

    @property
    def stored_variants(self) -> list[str]:
        """The variants of the matrix to store."""
        is_double = self.options.permutation == "double"
        return sorted(set(stored_variants(symmetric=self.source.graph.symmetric, double=is_double).values()))

    @property
    def stored_orders(self) -> list[str]:
        """The orders in which vertex data are stored; one is enough if rows and columns share it."""
        return ["rows", "columns"] if self.options.permutation == "double" else ["rows"]

    # Cells

    def _cell_phases(self) -> list[Phase]:
        plans, weighted = self._cell_plans, self.source.graph.weighted
        scatter = Phase(
            "scatter blocks",
            scatter_to_cells,
            [task for variant, plan in plans.items() for task in self._scatter_tasks(variant, plan)],
            files=tuple(plan.files for plan in plans.values()),
        )
        merges = [plan.merges("merge cells") for plan in plans.values()]
        write = Phase(
            "write cells",
            write_cell,
            [task for variant, plan in plans.items() for task in self._cell_tasks(variant, plan)],
            reads=tuple(plan.read_files for plan in plans.values()),
            makes_arrays=True,
            arrays=3 if weighted else 2,
        )
        return [scatter, *(phase for phases in merges for phase in phases), write]

    @property
    def _num_cells(self) -> int:
        return self.options.grid[0] * self.options.grid[1]

    @property
    def _key_bytes(self) -> int:
        """Bytes of an entry on its way to its cell: its key and, if there is one, its weight."""
        return 12 if self.source.graph.weighted else 8

    def _matrix(self, variant: str) -> GraphSizes:
        backward = self.source.backward
        return backward if variant.endswith("transposed") and backward is not None else self.source.graph

    @cached_property
    def _cell_plans(self) -> dict[str, ShufflePlan]:
        plans = {}
        for variant in self.stored_variants:
            matrix = self._matrix(variant)
            shuffle = cell_shuffle(variant, self.options.grid, weighted=matrix.weighted)
            keys = self._num_cells * sum(map(self._runs, matrix.block_nnz))
            size = matrix.nnz * self._key_bytes
            plans[variant] = ShufflePlan(self.places.writer, shuffle, matrix.num_blocks, size, keys)
        return plans

    def _runs(self, nnz: int) -> int:
        """Number of runs in which a block of ``nnz`` entries is routed."""
        return max(1, -(-nnz // run_entries(self.memory)))

    def _scatter_tasks(self, variant: str, plan: ShufflePlan) -> list[ScatterToCellsTask]:
        matrix, places, grid = self._matrix(variant), self.places, self.options.grid
        path, sides = places.transpose if variant.endswith("transposed") else places.graph, places.sides(variant)
        tasks = []
        for block, (rows, nnz) in enumerate(zip(matrix.block_rows, matrix.block_nnz, strict=True)):
            needs = Needs(
                reads=nnz * matrix.entry_bytes,
                writes=nnz * self._key_bytes + 8 * (self._num_cells + 1) * self._runs(nnz),
                memory=min(nnz, run_entries(self.memory)) * SCATTER_BYTES + 8 * rows + self._order_bytes,
            )
            name, what = f"scatter/{plan.shuffle.name}/{block:05d}", (path, plan.shuffle, block, *sides, grid)
            tasks.append(ScatterToCellsTask(places.writer, name, needs, *what, self.memory, plan.lane(block)))
        return tasks

    @property
    def _order_bytes(self) -> int:
        """Bytes of an order that is not computed: pages of the mapped file count as the worker's own."""
        return 8 * self.source.graph.num_vertices if self.options.permutation == "partition" else 0

    def _cell_tasks(self, variant: str, plan: ShufflePlan) -> list[WriteCellTask]:
        graph, (rows, columns) = self.source.graph, self.options.grid
        n, entries = graph.num_vertices, -(-graph.nnz // self._num_cells)
        index = 4 if n // columns < 1 << 31 else 8
        tasks = []
        for number in range(self._num_cells):
            needs = Needs(
                # Every run lists where each cell begins; the task reads two of these numbers.
                reads=entries * self._key_bytes + 16 * plan.levels[-1].sources,
                writes=entries * (index + self._key_bytes - 8) + 8 * (n // rows),
                opens=plan.opens((number, number + 1)),
                memory=min(entries, rows_that_fit(self.memory, SORT_BYTES)) * SORT_BYTES + 16 * (n // rows),
            )
            cell = divmod(number, columns)
            name, what = cell_name(variant, *cell), (variant, cell, (rows, columns), n, plan.shuffle, self.memory)
            tasks.append(WriteCellTask(self.places.writer, name, needs, *what))
        return tasks

    # Vertex data

    def _vertex_phases(self) -> list[Phase]:
        plans = self._order_plans
        route = Phase(
            "route vertices",
            route_range,
            [task for order, plan in plans.items() for task in self._route_tasks(order, plan)],
            "vertices",
            files=tuple(plan.files for plan in plans.values()),
        )
        merges = [plan.merges("merge vertices") for plan in plans.values()]
        write = Phase(
            "write vertices",
            write_bucket,
            self._bucket_tasks(),
            "vertices",
            reads=tuple(plan.read_files for plan in plans.values()),
            makes_arrays=True,
            arrays=len(self.vertex_plan.types) + 1,
        )
        return [route, *(phase for phases in merges for phase in phases), write]

    @cached_property
    def vertex_plan(self) -> VertexPlan:
        """Ranges and buckets, the same for every order."""
        given = self.source.vertices.types if self.source.vertices else {}
        graph, permutation = self.source.graph, self.options.permutation
        types = vertex_types(given, weighted=graph.weighted, with_ids=permutation == "partition")
        is_identity = permutation == "none"
        return VertexPlan.of(graph.num_vertices, self.options.grid[0], types, self.memory, is_identity=is_identity)

    @cached_property
    def _buckets(self) -> list[Bucket]:
        return list(self.vertex_plan.buckets())

    @cached_property
    def _order_plans(self) -> dict[str, ShufflePlan]:
        """Empty if the order is the order of the ids, so that nothing is routed."""
        plan, writer = self.vertex_plan, self.places.writer
        if plan.is_identity:
            return {}
        shuffles = {order: plan.shuffle(order, len(self._buckets)) for order in self.stored_orders}
        sizes = (plan.num_ranges, plan.column_bytes, plan.num_vertices)
        return {order: ShufflePlan(writer, shuffle, *sizes) for order, shuffle in shuffles.items()}

    @property
    def _table(self) -> StoredVertexRows:
        return StoredVertexRows(self.places.graph, self.places.vertices, self.vertex_plan.types)

    def _route_tasks(self, order: str, shuffled: ShufflePlan) -> list[RouteRangeTask]:
        plan, table, tasks = self.vertex_plan, self._table, []
        for number in range(plan.num_ranges):
            start, stop = plan.vertices_of(number)
            size = (stop - start) * plan.routed_row_bytes
            memory = plan.range_memory(stop - start) + self._order_bytes
            # A resumed run may have another memory, and then other ranges.
            name = f"route/{shuffled.shuffle.name}/{plan.range_rows}/{number:05d}"
            what = (shuffled.shuffle, self.places.orders[order], table, plan, number, shuffled.lane(number))
            tasks.append(RouteRangeTask(self.places.writer, name, Needs(size, size, 0, memory), *what))
        return tasks

    def _bucket_tasks(self) -> list[WriteBucketTask]:
        # The same for every order, whose shuffles differ in their names only.
        needs = [self._bucket_needs(bucket) for bucket in self._buckets]
        plan, table, tasks = self.vertex_plan, self._table, []
        for order in self.stored_orders:
            shuffled, prefix = self._order_plans.get(order), bucket_prefix(order)
            what = order, table, plan, shuffled.shuffle if shuffled is not None else None
            for bucket, needed in zip(self._buckets, needs, strict=True):
                name = f"{prefix}{bucket.row:03d}/{bucket.number:05d}"
                tasks.append(WriteBucketTask(self.places.writer, name, needed, *what, bucket))
        return tasks

    def _bucket_needs(self, bucket: Bucket) -> Needs:
        plan, shuffled = self.vertex_plan, self._order_plans.get("rows")
        read, written, last = plan.bucket_bytes(bucket)
        opens = shuffled.opens((bucket.start, last)) if shuffled is not None else 0
        return Needs(read, written, opens, plan.bucket_memory(bucket))
