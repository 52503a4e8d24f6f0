"""The row-shard stage for graphs with types: a matrix per relation, one halo, and data of each type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.matrix_sort.union import ENTRIES, union_graph
from gnnloom.pipeline.shards.relation_entries import edge_columns
from gnnloom.pipeline.shards.rows.replicated_rows import create_replicated
from gnnloom.pipeline.shards.rows.row_numbers import VertexNumbers
from gnnloom.pipeline.shards.rows.row_plan import row_phases
from gnnloom.pipeline.shards.rows.row_routed import ROW_STEPS, RowSteps
from gnnloom.pipeline.shards.rows.row_shuffles import RowPlaces, range_sizes
from gnnloom.pipeline.shards.shard_keys import typed_inputs, typed_row_parameters
from gnnloom.pipeline.shards.shard_source import ShardSource, type_dims, type_facts
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.phase import repairing, run
from gnnloom.pipeline.tasks.sizes import GraphSizes, PartSizes, TypedSizes, VertexSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.artifacts.typed.union import BOTH, FORWARD, PlacedMatrix, TypedMatrices, UnionSpec
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.groups import write_group
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.meters import one_step
from gnnloom.storage.shards.typed_row_shards import REPLICATED, TypedRowShards
from gnnloom.storage.wording import counted


@repairing
def shard_typed_rows(
    dataset: Dataset,
    partition: Partition,
    cluster: Cluster,
    vertices: Mapping[str, Vertices] | None = None,
    steps: RowSteps = ROW_STEPS,
) -> TypedRowShards:
    """Write the row shards of a partition of a graph with types, or find them; resumes what an earlier run left.

    The shards have the reverses of the relations if the partition counts them.

    Args:
        vertices: features, labels and split to include, by type; by default all that the dataset has.
        steps: sizes of the steps of tasks.

    Raises:
        InputError: the vertex data of a type have another number of vertices, or a type has several to choose from.
        BudgetError: the cluster's memory per worker is too small.
    """
    graph = dataset.typed_graph(partition.artifact.inputs["graph"])
    data = dataset.vertices_of_types(graph.artifact.key) if vertices is None else dict(vertices)
    for name, each in data.items():
        if each.num_vertices != graph.type(name).count:
            raise InputError(
                f"{each.artifact.path}: holds data for {counted(each.num_vertices, 'vertex')}, type {name} has"
                f" {graph.type(name).count:,}; store vertex data for this graph"
            )
    keys = {name: each.artifact.key for name, each in data.items()}
    inputs = typed_inputs(graph.artifact.key, partition.artifact.key, keys)
    is_symmetric = bool(partition.artifact.parameters.get("reverse", False))
    asked = tuple(partition.artifact.parameters.get("replicate", ()))
    parameters = typed_row_parameters(partition.num_parts, partition.method, reverse=is_symmetric, replicate=asked)
    with ArtifactWriter.begin(dataset.path, "shards", parameters, inputs, cluster.scratch, TYPED_VERSION) as writer:
        if writer.is_complete:
            return TypedRowShards(Artifact(writer.path))
        cluster = for_few(
            cluster, graph.nnz + sum(each.num_vertices * sum(each.widths.values()) for each in data.values())
        )
        spec = replicating_spec(partition)
        reverses: Reverses | None = reverse_relations(dataset, graph, cluster) if is_symmetric else None
        union = union_graph(dataset, graph, spec, cluster)
        matrices = TypedMatrices.of(graph, reverses, spec)
        placed = matrices.opened()
        source = typed_source(graph, reverses, spec, union, data)
        # One exchange serves all relations.
        sizes = replace(PartSizes.of(partition), sent_back=())
        of_types = {name: (each.artifact.path, type_dims(each)) for name, each in data.items()}
        places = RowPlaces(
            writer,
            writer.work / "numbers",
            (),
            relations=matrices,
            of_types=of_types,
            partition=partition.artifact.path,
            steps=steps,
        )
        with one_step("number the vertices"):
            numbers = VertexNumbers(places.numbers, graph.num_vertices, is_reordered=False)
            numbers.write(partition, union.artifact.array(ENTRIES), range_sizes(source, sizes, cluster.scratch))
        write_group(writer.path / "row", {})
        create_replicated(source, places)
        names = run(row_phases(source, sizes, places), cluster, writer)
        facts = {
            "symmetric": is_symmetric,
            "types": [type_facts(each, data.get(each.name)) for each in graph.types],
            "relations": [_relation_facts(each) for each in placed],
            "quality": partition.quality,
            **({REPLICATED: list(spec.without_sources)} if spec.without_sources else {}),
        }
        dimensions = {"vertex": graph.num_vertices, "part": partition.num_parts}
        return TypedRowShards(writer.commit(names, dimensions, facts))


def replicating_spec(partition: Partition) -> UnionSpec:
    """The union that a partition exchanges rows for: without the columns of the types whose rows every rank holds."""
    direction = BOTH if partition.artifact.parameters.get("reverse") else FORWARD
    return UnionSpec(direction, tuple(partition.quality.get("replicated_types", ())))


def typed_source(
    graph: TypedGraph, reverses: Reverses | None, spec: UnionSpec, union: Graph, vertices: Mapping[str, Vertices]
) -> ShardSource:
    """The sizes of what typed shards are made from.

    Args:
        reverses: reverses of the relations, if the union has them.
        spec: choice of the matrices of the union.
        union: the union.
        vertices: vertex data by type.
    """
    columns = {each.name: edge_columns(each) for each in graph.relations}
    data = {name: VertexSizes.of(each) for name, each in vertices.items()}
    return ShardSource.of_types(TypedSizes.of(graph, reverses), spec, GraphSizes.of(union), columns, data)


def _relation_facts(placed: PlacedMatrix) -> dict[str, Any]:
    relation = placed.relation
    found = {
        "name": placed.name,
        "source": placed.source,
        "target": placed.target,
        "of": relation.name,
        "nnz": placed.matrix.nnz,
        "columns": [column.name for column in edge_columns(relation)],
    }
    return found | ({"time_unit": relation.time_unit} if relation.time_unit else {})
