"""Grid shards: the permuted adjacency as p x q blocks, and the vertex data in the permuted orders.

The same external sort as ingest: every row block of the graph is read once and its entries are
scattered by grid cell into spill files; then every cell is sorted and written by one task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.shards.grid_cells import ScatterTask, WriteCellTask, scatter_block, write_cell
from gnnloom.pipeline.shards.grid_vertices import OrderTask, RouteTask, order_name, route_rows, route_table, write_order
from gnnloom.pipeline.shards.part_order import Order, PartOrder
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.progress import wait_for
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.grid_shards import GridShards, cell_path, stored_variants
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.matrix.permutation import KeyedPermutation, mix

PERMUTATIONS = ("none", "single", "double", "partition")

#: Most ranges that rows or columns are cut into.
MAX_GRID = 999


@dataclass(frozen=True)
class GridOptions:
    """How to permute and cut.

    Attributes:
        grid: p and q: ranges that rows and columns are cut into; shards serve any grid of ranks.
        permutation: one of ``PERMUTATIONS``; ``single`` moves rows and columns alike, ``double`` by two keys
            (Plexus, SC 2025, section 5), which spreads the diagonal too; ``partition`` sorts both by part.
        seed: of the keys, 0 to 2^63 - 1.
    """

    grid: tuple[int, int] = (16, 16)
    permutation: str = "double"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.permutation not in PERMUTATIONS:
            raise InputError(f"permutation {self.permutation!r}: expected one of {', '.join(PERMUTATIONS)}")
        if not all(1 <= cells <= MAX_GRID for cells in self.grid):
            raise InputError(f"grid {self.grid[0]}x{self.grid[1]}: expected 1 to {MAX_GRID} ranges each way")
        if not 0 <= self.seed < 1 << 63:
            raise InputError(f"seed={self.seed}: expected 0 to 2^63 - 1")

    def keyed_orders(self, num_vertices: int) -> dict[str, Order | None]:
        """The row order Pr and the column order Pc; None for the order of the ids, and that of a partition."""
        if self.permutation in {"none", "partition"}:
            return {"rows": None, "columns": None}
        keys = [int(mix(np.uint64((2 * self.seed + number) % 2**64))) for number in (1, 2)]
        rows = KeyedPermutation(num_vertices, keys[0])
        return {
            "rows": rows,
            "columns": rows if self.permutation == "single" else KeyedPermutation(num_vertices, keys[1]),
        }

    def parameters(self, parts: int | None = None, method: str | None = None) -> dict[str, Any]:
        """What decides the shards' bytes, besides their inputs.

        Args:
            parts, method: of the partition, for permutation ``partition``.
        """
        chosen = {"layout": "grid", "grid": list(self.grid), "permutation": self.permutation, "seed": self.seed}
        return chosen | ({"parts": parts, "method": method} if parts is not None else {})


def grid_shards_key(
    options: GridOptions, inputs: Mapping[str, str], parts: int | None = None, method: str | None = None
) -> str:
    """The key of the artifact that :func:`shard_grid` makes or finds.

    Args:
        inputs: kind to key of the graph and, if there are any, the vertices and the partition.
        parts, method: of the partition, for permutation ``partition``.
    """
    return artifact_key("shards", options.parameters(parts, method), inputs)


@dataclass(frozen=True)
class _Stage:
    """What the steps of one run share."""

    writer: ArtifactWriter
    graph: Graph
    transpose: Graph
    vertices: Artifact | None
    options: GridOptions
    orders: dict[str, Order | None]
    cluster: Cluster

    @property
    def variants(self) -> dict[str, Graph]:
        """The variants to store and the matrix that each is made of."""
        stored = stored_variants(symmetric=self.graph.symmetric, double=self.options.permutation == "double")
        names = sorted(set(stored.values()))
        return {name: self.transpose if name.endswith("transposed") else self.graph for name in names}

    @property
    def stored_orders(self) -> list[str]:
        return ["rows", "columns"] if self.options.permutation == "double" else ["rows"]

    def sides(self, variant: str) -> tuple[Order | None, Order | None]:
        """Orders of the variant's rows and columns."""
        rows_first = variant in {"even", "odd_transposed"}
        first, second = ("rows", "columns") if rows_first else ("columns", "rows")
        return self.orders[first], self.orders[second]

    def run(self, phase: str, function: Any, tasks: list[Any]) -> None:
        """Run the tasks whose parts are not there yet."""
        recorded = self.writer.recorded()
        missing = [task for task in tasks if task.name not in recorded]
        wait_for(phase, self.cluster.map(function, missing), len(missing))


def shard_grid(
    dataset: Dataset,
    graph: Graph,
    options: GridOptions,
    cluster: Cluster,
    vertices: Artifact | None = None,
    partition: Partition | None = None,
) -> GridShards:
    """Cut the permuted adjacency of a graph into grid shards; finds what an earlier run left.

    Args:
        vertices: the artifact to write in the permuted orders too; by default that of the dataset, if it has any.
        partition: whose parts the vertices are sorted by, for permutation ``partition``.

    Raises:
        InputError: there are several vertices artifacts, or they are of another graph; or so is the partition.
        BudgetError: a worker's memory is too small for any buffer.
    """
    vertices = _checked(dataset, graph, vertices)
    _check_partition(options, graph, partition)
    inputs = {"graph": graph.artifact.key} | ({"vertices": vertices.key} if vertices else {})
    if partition is not None:
        inputs["partition"] = partition.artifact.key
    parameters = options.parameters(*((partition.num_parts, partition.method) if partition else ()))
    with ArtifactWriter.begin(dataset.path, "shards", parameters, inputs) as writer:
        if writer.is_complete:
            return GridShards(Artifact(writer.path))
        transpose = transpose_graph(dataset, graph, cluster)
        orders = options.keyed_orders(graph.num_vertices)
        if partition is not None:
            orders = dict.fromkeys(orders, PartOrder.of(partition, writer.work / "places.npy"))
        stage = _Stage(writer, graph, transpose, vertices, options, orders, cluster)
        parts = _write_cells(stage) + _write_orders(stage)
        return GridShards(writer.commit(parts, _sizes(stage), _facts(stage)))


def _check_partition(options: GridOptions, graph: Graph, partition: Partition | None) -> None:
    if (options.permutation == "partition") != (partition is not None):
        found = "none was given" if partition is None else "one was given"
        raise InputError(f"permutation {options.permutation!r}: 'partition', and no other, takes a partition; {found}")
    if partition is not None and partition.artifact.inputs["graph"] != graph.artifact.key:
        raise InputError(f"{partition.artifact.path}: is a partition of another graph than {graph.artifact.path}")


def _checked(dataset: Dataset, graph: Graph, vertices: Artifact | None) -> Artifact | None:
    if vertices is None:
        try:
            vertices = dataset.find("vertices")
        except NotFoundError:
            return None
    if vertices.sizes["vertex"] != graph.num_vertices:
        raise InputError(
            f"{vertices.path}: {vertices.sizes['vertex']:,} vertices, the graph has {graph.num_vertices:,}; remove"
            f" one with `gnnloom catalog rm {dataset.name} --artifact vertices/{vertices.key}`"
        )
    return vertices


def _write_cells(stage: _Stage) -> list[str]:
    """Scatter every block of every variant, then sort and write every cell; returns the cells' parts."""
    grid, memory = stage.options.grid, stage.cluster.memory
    scatter = [
        ScatterTask(stage.writer, matrix.artifact.path, variant, block, *stage.sides(variant), grid, memory)
        for variant, matrix in stage.variants.items()
        for block in range(matrix.num_blocks)
    ]
    stage.run("scatter blocks", scatter_block, scatter)
    cells = [
        WriteCellTask(
            stage.writer, variant, (row, column), grid, matrix.num_vertices, matrix.num_blocks, matrix.weighted, memory
        )
        for variant, matrix in stage.variants.items()
        for row in range(grid[0])
        for column in range(grid[1])
    ]
    stage.run("write blocks", write_cell, cells)
    return [task.name for task in cells]


def _write_orders(stage: _Stage) -> list[str]:
    """Route the vertex data to the places of every order, then write each order; returns the orders' parts."""
    table = route_table(stage.graph, stage.vertices, with_ids=stage.options.permutation == "partition")
    route = [
        RouteTask(stage.writer, order, stage.orders[order], table, number)
        for order in stage.stored_orders
        for number in range(table.num_ranges)
    ]
    stage.run("route vertices", route_rows, route)
    orders = [
        OrderTask(stage.writer, order, row, stage.options.grid[0], table)
        for order in stage.stored_orders
        for row in range(stage.options.grid[0])
    ]
    stage.run("write vertices", write_order, orders)
    return [order_name(order, row) for order in stage.stored_orders for row in range(stage.options.grid[0])]


def _sizes(stage: _Stage) -> dict[str, int]:
    sizes = {"vertex": stage.graph.num_vertices}
    for name in ("feature", "class"):
        if stage.vertices is not None and name in stage.vertices.sizes:
            sizes[name] = stage.vertices.sizes[name]
    return sizes


def _facts(stage: _Stage) -> dict[str, Any]:
    orders = {name: order.to_json() if order else None for name, order in stage.orders.items()}
    recorded = stage.writer.recorded("cell/")
    rows, columns = stage.options.grid
    nonzeros = {
        variant: [
            [recorded[f"cell/{cell_path(variant, row, column)}"].facts["nnz"] for column in range(columns)]
            for row in range(rows)
        ]
        for variant in stage.variants
    }
    return {
        "symmetric": stage.graph.symmetric,
        "weighted": stage.graph.weighted,
        "nnz": stage.graph.nnz,
        "num_classes": stage.vertices.facts.get("num_classes", 0) if stage.vertices else 0,
        "row_order": orders["rows"],
        "column_order": orders["columns"],
        "cell_nnz": nonzeros,
        "balance": {variant: _balance(counts) for variant, counts in nonzeros.items()},
    }


def _balance(counts: list[list[int]]) -> float:
    """Nonzeros of the heaviest cell over the average."""
    array = np.array(counts, dtype=np.int64)
    return float(array.max() / array.mean()) if array.sum() else 1.0
