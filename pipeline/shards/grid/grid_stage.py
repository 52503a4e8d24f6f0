"""Grid shards: the permuted adjacency as p x q blocks, and the vertex data in the permuted orders.

:mod:`gnnloom.pipeline.shards.grid.grid_plan` has the phases.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.shards.grid.grid_cells import cell_name
from gnnloom.pipeline.shards.grid.grid_plan import GridPlaces, GridPlan
from gnnloom.pipeline.shards.grid.grid_vertex_routing import bucket_prefix, create_order
from gnnloom.pipeline.shards.grid.part_order import PartOrder
from gnnloom.pipeline.shards.shard_keys import grid_shards_key
from gnnloom.pipeline.shards.shard_options import PERMUTATIONS, GridOptions
from gnnloom.pipeline.shards.shard_source import ShardSource, find_vertices
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.phase import repairing, run
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.shards.grid_shards import GridShards
from gnnloom.storage.wording import counted

__all__ = ["PERMUTATIONS", "GridOptions", "grid_shards_key", "shard_grid"]


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
        vertices: the artifact to write in the permuted orders; by default the dataset's, if it has one.
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
            orders = dict.fromkeys(orders, PartOrder.of(partition, writer.work / "places"))
        places = GridPlaces(
            writer, graph.artifact.path, transpose.artifact.path, vertices.path if vertices else None, orders
        )
        known = Vertices(vertices) if vertices else None
        source = ShardSource.of(graph, known, None if graph.symmetric else transpose)
        plan = GridPlan(source, options, cluster.memory, places)
        recorded = writer.recorded("bucket/")
        for order in plan.stored_orders:
            # Unless tasks have written chunks, which this would delete.
            if not any(name.startswith(bucket_prefix(order)) for name in recorded):
                create_order(writer.path, order, plan.vertex_plan)
        names = run(plan.phases(), cluster, writer)
        sizes = {"vertex": graph.num_vertices} | (dict(vertices.sizes) if vertices else {})
        return GridShards(writer.commit(names, sizes, _facts(plan, graph, vertices)))


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
            f"{vertices.path}: {counted(vertices.sizes['vertex'], 'vertex')}, the graph has {graph.num_vertices:,};"
            " choose vertex data of this graph with `--vertices KEY`"
        )
    return vertices


def _facts(plan: GridPlan, graph: Graph, vertices: Artifact | None) -> dict[str, Any]:
    orders = {name: order.to_json() if order else None for name, order in plan.places.orders.items()}
    recorded = plan.places.writer.recorded("cell/")
    rows, columns = plan.options.grid
    nonzeros = {
        variant: [
            [recorded[cell_name(variant, row, column)].facts["nnz"] for column in range(columns)] for row in range(rows)
        ]
        for variant in plan.stored_variants
    }
    targets = vertices.facts.get("num_targets", 0) if vertices else 0
    return {
        **({"num_targets": targets} if targets else {}),
        "symmetric": graph.symmetric,
        "weighted": graph.weighted,
        "nnz": graph.nnz,
        "num_classes": vertices.facts.get("num_classes", 0) if vertices else 0,
        "row_order": orders["rows"],
        "column_order": orders["columns"],
        "cell_nnz": nonzeros,
        # Nonzeros of the heaviest cell over the average; 1 for a matrix without nonzeros.
        "balance": {
            variant: float(np.max(counts) / np.mean(counts)) if np.any(counts) else 1.0
            for variant, counts in nonzeros.items()
        },
    }
