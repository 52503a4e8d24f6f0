"""Grid shards: the permuted adjacency as p x q blocks, and the vertex data in the permuted orders.

Each row block of the graph is read once, and its entries are scattered by grid cell; then one task sorts and writes
each cell. Vertex data take the same way, by position in the permuted order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.shards.find_vertices import find_vertices
from gnnloom.pipeline.shards.grid.grid_cells import WriteCellTask, cell_name, write_cell
from gnnloom.pipeline.shards.grid.grid_options import PERMUTATIONS, GridOptions
from gnnloom.pipeline.shards.grid.grid_scatter import ScatterToCellsTask, cell_shuffle, scatter_to_cells
from gnnloom.pipeline.shards.grid.grid_vertex_order import WriteBucketTask, bucket_prefix, create_order, write_bucket
from gnnloom.pipeline.shards.grid.grid_vertex_plan import VertexPlan
from gnnloom.pipeline.shards.grid.grid_vertex_routing import RouteRowsTask, VertexTable, route_rows, vertex_table
from gnnloom.pipeline.shards.grid.part_order import Order, PartOrder
from gnnloom.pipeline.shuffle.routing import route_and_merge
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.repairs import repairing
from gnnloom.pipeline.tasks.run_missing import missing_tasks, run_missing
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.grid_shards import GridShards
from gnnloom.storage.artifacts.grid_variants import stored_variants
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key

__all__ = ["PERMUTATIONS", "GridOptions", "grid_shards_key", "shard_grid"]


def grid_shards_key(
    options: GridOptions, inputs: Mapping[str, str], parts: int | None = None, method: str | None = None
) -> str:
    """Compute the key of the artifact that :func:`shard_grid` makes or finds.

    Args:
        options: grid, permutation and seed.
        inputs: kind to key of the graph and, if there are any, the vertices and the partition.
        parts: number of parts of the partition, for permutation ``partition``.
        method: method of the partition, likewise.
    """
    return artifact_key("shards", options.parameters(parts, method), inputs)


@dataclass(frozen=True)
class _Stage:
    """What the steps of one run share.

    Attributes:
        orders: order of the ``rows`` (Pr) and the ``columns`` (Pc); None for the order of the ids.
    """

    writer: ArtifactWriter
    graph: Graph
    transpose: Graph
    vertices: Artifact | None
    options: GridOptions
    orders: dict[str, Order | None]
    cluster: Cluster

    @property
    def variants(self) -> dict[str, Graph]:
        """The variants to store, each with the matrix that it is a permutation of."""
        stored = stored_variants(symmetric=self.graph.symmetric, double=self.options.permutation == "double")
        names = sorted(set(stored.values()))
        return {name: self.transpose if name.endswith("transposed") else self.graph for name in names}

    @property
    def stored_orders(self) -> list[str]:
        """The orders in which vertex data are stored; one is enough if rows and columns share it."""
        return ["rows", "columns"] if self.options.permutation == "double" else ["rows"]

    def sides(self, variant: str) -> tuple[Order | None, Order | None]:
        """Return the orders of the variant's rows and columns."""
        # Transposing swaps the sides: ``odd_transposed`` is Pr A^T Pc^T, and ``even_transposed`` Pc A^T Pr^T.
        rows_first = variant in {"even", "odd_transposed"}
        first, second = ("rows", "columns") if rows_first else ("columns", "rows")
        return self.orders[first], self.orders[second]


@repairing
def shard_grid(
    dataset: Dataset,
    graph: Graph,
    options: GridOptions,
    cluster: Cluster,
    vertices: Artifact | None = None,
    partition: Partition | None = None,
) -> GridShards:
    """Cut the permuted adjacency of a graph into grid shards, or find them; resumes what an earlier run left.

    Args:
        vertices: the artifact to write in the permuted orders; by default that of the dataset, if it has any.
        partition: sorts the vertices by part; required for permutation ``partition``, refused for any other.

    Raises:
        InputError: the vertices or the partition belong to another graph, the dataset has several vertices
            artifacts to choose from, or ``partition`` does not match the permutation.
        BudgetError: a worker's memory is too small for any buffer.
    """
    vertices = _find_vertices(dataset, graph, vertices)
    _check_partition(options, graph, partition)
    inputs = {"graph": graph.artifact.key} | ({"vertices": vertices.key} if vertices else {})
    if partition is not None:
        inputs["partition"] = partition.artifact.key
    parameters = options.parameters(*((partition.num_parts, partition.method) if partition else ()))
    with ArtifactWriter.begin(dataset.path, "shards", parameters, inputs, cluster.scratch) as writer:
        if writer.is_complete:
            return GridShards(Artifact(writer.path))
        width = sum(size for dim, size in vertices.sizes.items() if dim != "vertex") if vertices else 0
        cluster = for_few(cluster, graph.nnz + graph.num_vertices * width)
        transpose = transpose_graph(dataset, graph, cluster)
        orders = options.keyed_orders(graph.num_vertices)
        if partition is not None:
            # The file is complete before the first task starts, because all tasks map it.
            orders = dict.fromkeys(orders, PartOrder.of(partition, writer.work / "places.npy"))
        stage = _Stage(writer, graph, transpose, vertices, options, orders, cluster)
        names = _write_cells(stage) + _write_orders(stage)
        return GridShards(writer.commit(names, _sizes(stage), _facts(stage)))


def _check_partition(options: GridOptions, graph: Graph, partition: Partition | None) -> None:
    if (options.permutation == "partition") != (partition is not None):
        found = "none was given" if partition is None else "one was given"
        raise InputError(
            f"permutation {options.permutation!r}: only permutation 'partition' takes a partition, and requires it;"
            f" {found}"
        )
    if partition is not None and partition.artifact.inputs["graph"] != graph.artifact.key:
        raise InputError(
            f"{partition.artifact.path}: not a partition of the graph {graph.artifact.path}; partition that graph"
        )


def _find_vertices(dataset: Dataset, graph: Graph, vertices: Artifact | None) -> Artifact | None:
    if vertices is None:
        found = find_vertices(dataset, graph.artifact.key)
        if found is None:
            return None
        vertices = found.artifact
    if vertices.sizes["vertex"] != graph.num_vertices:
        raise InputError(
            f"{vertices.path}: {vertices.sizes['vertex']:,} vertices, the graph has {graph.num_vertices:,};"
            " choose vertex data of this graph with `--vertices KEY`"
        )
    return vertices


def _write_cells(stage: _Stage) -> list[str]:
    """Scatter every block of every variant, then sort and write every cell; returns the names of the cells' tasks."""
    grid, memory = stage.options.grid, stage.cluster.memory
    shuffles = {
        variant: cell_shuffle(variant, grid, weighted=matrix.weighted) for variant, matrix in stage.variants.items()
    }
    cells = [
        WriteCellTask(stage.writer, variant, (row, column), grid, stage.graph.num_vertices, shuffle, memory)
        for variant, shuffle in shuffles.items()
        for row in range(grid[0])
        for column in range(grid[1])
    ]
    # If all cells are there, their entries are not needed any more.
    if missing_tasks(stage.writer, cells):
        scatter = {shuffle: _scatter_tasks(stage, variant, shuffle) for variant, shuffle in shuffles.items()}
        phases = "scatter blocks", "merge cells"
        route_and_merge(phases, stage.writer, stage.cluster, scatter_to_cells, scatter, "edges")
    # A cell needs its entries from every block, so no cell starts before the scatter has ended.
    run_missing("write cells", stage.cluster, stage.writer, write_cell, cells)
    return [task.name for task in cells]


def _scatter_tasks(stage: _Stage, variant: str, shuffle: Shuffle) -> list[ScatterToCellsTask]:
    matrix, grid, memory = stage.variants[variant], stage.options.grid, stage.cluster.memory
    lanes, sides = shuffle.create_lanes(stage.writer.work, matrix.num_blocks), stage.sides(variant)
    return [
        ScatterToCellsTask(stage.writer, matrix.artifact.path, shuffle, block, *sides, grid, memory, lanes.lane(block))
        for block in range(matrix.num_blocks)
    ]


def _write_orders(stage: _Stage) -> list[str]:
    """Route the vertex data to the positions of every order, then write its buckets; returns the writers' names."""
    table = vertex_table(stage.graph, stage.vertices, with_ids=stage.options.permutation == "partition")
    n, grid_rows, memory = stage.graph.num_vertices, stage.options.grid[0], stage.cluster.memory
    buckets: list[WriteBucketTask] = []
    recorded = stage.writer.recorded("bucket/")
    for order in stage.stored_orders:
        permutation = stage.orders[order]
        plan = VertexPlan.of(n, grid_rows, table.types, memory, is_identity=permutation is None)
        # Creating an array deletes its chunks, which is right only if no task has recorded any.
        if not any(name.startswith(bucket_prefix(order)) for name in recorded):
            create_order(stage.writer.path, order, plan)
        shuffle = plan.shuffle(order) if permutation is not None else None
        own = [WriteBucketTask(stage.writer, order, table, plan, shuffle, bucket) for bucket in plan.buckets()]
        # If all buckets are there, what was routed is not needed any more.
        if shuffle is not None and permutation is not None and missing_tasks(stage.writer, own):
            _route_vertices(stage, shuffle, permutation, table, plan)
        buckets += own
    run_missing("write vertices", stage.cluster, stage.writer, write_bucket, buckets, "vertices")
    return [task.name for task in buckets]


def _route_vertices(stage: _Stage, shuffle: Shuffle, permutation: Order, table: VertexTable, plan: VertexPlan) -> None:
    lanes = shuffle.create_lanes(stage.writer.work, plan.num_ranges)
    ranges = [
        RouteRowsTask(stage.writer, shuffle, permutation, table, plan, number, lanes.lane(number))
        for number in range(plan.num_ranges)
    ]
    phases = "route vertices", "merge vertices"
    route_and_merge(phases, stage.writer, stage.cluster, route_rows, {shuffle: ranges}, "vertices")


def _sizes(stage: _Stage) -> dict[str, int]:
    return {"vertex": stage.graph.num_vertices} | (dict(stage.vertices.sizes) if stage.vertices else {})


def _facts(stage: _Stage) -> dict[str, Any]:
    orders = {name: order.to_json() if order else None for name, order in stage.orders.items()}
    recorded = stage.writer.recorded("cell/")
    rows, columns = stage.options.grid
    nonzeros = {
        variant: [
            [recorded[cell_name(variant, row, column)].facts["nnz"] for column in range(columns)] for row in range(rows)
        ]
        for variant in stage.variants
    }
    targets = stage.vertices.facts.get("num_targets", 0) if stage.vertices else 0
    return {
        **({"num_targets": targets} if targets else {}),
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
    """Nonzeros of the heaviest cell over the average; 1 for a matrix without nonzeros."""
    array = np.array(counts, dtype=np.int64)
    return float(array.max() / array.mean()) if array.sum() else 1.0
