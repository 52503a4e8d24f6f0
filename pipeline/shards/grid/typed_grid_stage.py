"""The grid-shard stage for graphs with types: the blocks of every relation, on one permutation of all vertices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.shards.grid.grid_plan import GridPlaces
from gnnloom.pipeline.shards.grid.typed_grid_plan import TypedGridPlaces, TypedGridPlan, relation_cell_name
from gnnloom.pipeline.shards.relation_entries import edge_columns
from gnnloom.pipeline.shards.shard_keys import typed_grid_inputs
from gnnloom.pipeline.shards.shard_options import GridOptions, check_typed_grid
from gnnloom.pipeline.shards.shard_source import type_dims, type_facts
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.phase import repairing, run
from gnnloom.pipeline.tasks.sizes import TypedSizes, VertexSizes
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph
from gnnloom.storage.artifacts.typed.union import BACKWARD, TypedMatrices, UnionSpec
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.shards.typed_grid_shards import TypedGridShards


@repairing
def shard_typed_grid(
    dataset: Dataset,
    graph: TypedGraph,
    options: GridOptions,
    cluster: Cluster,
    vertices: Mapping[str, Vertices] | None = None,
) -> TypedGridShards:
    """Cut the permuted matrices of all relations into grid shards, or find them; resumes what an earlier run left.

    Args:
        vertices: features, labels and split to include, by type; by default all that the dataset has.

    Raises:
        InputError: the permutation follows a partition, or a type has several data to choose from.
        BudgetError: a worker's memory is too small for any buffer.
    """
    check_typed_grid(options)
    data = dataset.vertices_of_types(graph.artifact.key) if vertices is None else dict(vertices)
    inputs = typed_grid_inputs(graph.artifact.key, {name: each.artifact.key for name, each in data.items()})
    parameters = options.parameters()
    with ArtifactWriter.begin(dataset.path, "shards", parameters, inputs, cluster.scratch, TYPED_VERSION) as writer:
        if writer.is_complete:
            return TypedGridShards(Artifact(writer.path))
        cluster = for_few(cluster, graph.nnz)
        reverses = reverse_relations(dataset, graph, cluster)
        orders = options.keyed_orders(graph.num_vertices)
        places = TypedGridPlaces(
            GridPlaces(writer, orders=orders),
            TypedMatrices.of(graph, None, UnionSpec()),
            TypedMatrices.of(graph, reverses, UnionSpec(BACKWARD)),
            {name: (each.artifact.path, type_dims(each)) for name, each in data.items()},
        )
        plan = typed_grid_plan(graph, reverses, data, options, cluster.memory, places)
        names = run(plan.phases(), cluster, writer)
        return TypedGridShards(writer.commit(names, {"vertex": graph.num_vertices}, _facts(plan, graph, data)))


def typed_grid_plan(
    graph: TypedGraph,
    reverses: Reverses | None,
    vertices: Mapping[str, Vertices],
    options: GridOptions,
    memory: int,
    places: TypedGridPlaces,
) -> TypedGridPlan:
    """The plan for a stored graph; the sizes of reverses that are not stored are estimated."""
    columns = {each.name: edge_columns(each) for each in graph.relations}
    data = {name: VertexSizes.of(each) for name, each in sorted(vertices.items())}
    return TypedGridPlan(TypedSizes.of(graph, reverses), columns, data, options, memory, places)


def _facts(plan: TypedGridPlan, graph: TypedGraph, data: Mapping[str, Vertices]) -> dict[str, Any]:
    recorded = plan.places.grid.writer.recorded("cell/")
    rows, columns = plan.options.grid
    cells = [(row, column) for row in range(rows) for column in range(columns)]
    balance = {}
    for variant in plan.stored_variants:
        counts = [recorded[relation_cell_name(variant, *cell)].facts["nnz"] for cell in cells]
        # Entries of the heaviest cell over the average; 1 without entries.
        balance[variant] = float(np.max(counts) / np.mean(counts)) if np.any(counts) else 1.0
    orders = {name: order.to_json() if order else None for name, order in plan.places.grid.orders.items()}
    return {
        "types": [type_facts(each, data.get(each.name)) for each in graph.types],
        "relations": [_relation_facts(each) for each in graph.relations],
        "nnz": graph.nnz,
        "row_order": orders["rows"],
        "column_order": orders["columns"],
        "balance": balance,
    }


def _relation_facts(relation: Relation) -> dict[str, Any]:
    found = {
        "name": relation.name,
        "source": relation.source.name,
        "target": relation.target.name,
        "of": relation.name,
        "nnz": relation.nnz,
        "columns": [column.name for column in edge_columns(relation)],
    }
    return found | ({"time_unit": relation.time_unit} if relation.time_unit else {})
