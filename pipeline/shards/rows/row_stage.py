"""The row-shard stage: the rows of each rank, renumbered, its vertex data, and the rows it exchanges with others.

The shards serve the point-to-point exchange of Demirci, Haldar, Ferhatosmanoglu (PVLDB 16(4), 2022), Algorithm 1.
"""

from __future__ import annotations

from dataclasses import replace

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.shards.rows.row_numbers import VertexNumbers
from gnnloom.pipeline.shards.rows.row_plan import row_phases
from gnnloom.pipeline.shards.rows.row_routed import ROW_STEPS, RowSteps
from gnnloom.pipeline.shards.rows.row_shuffles import RowPlaces, range_sizes
from gnnloom.pipeline.shards.shard_keys import row_parameters
from gnnloom.pipeline.shards.shard_options import REORDERS
from gnnloom.pipeline.shards.shard_source import ShardSource, find_vertices
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.phase import repairing, run
from gnnloom.pipeline.tasks.sizes import PartSizes
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.groups import write_group
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.meters import one_step
from gnnloom.storage.shards.row_shards import RowShards
from gnnloom.storage.wording import counted


@repairing
def shard_rows(
    dataset: Dataset,
    partition: Partition,
    cluster: Cluster,
    vertices: Vertices | None = None,
    reorder: str = "none",
    steps: RowSteps = ROW_STEPS,
) -> RowShards:
    """Write the row shards of a partition, or find them; resumes what an earlier run left.

    Args:
        vertices: features, labels and split to include; by default the dataset's, if it has any.
        reorder: order of a rank's rows: ``none`` (by vertex id) or ``degree`` (largest first).
        steps: sizes of the steps of tasks.

    Raises:
        InputError: the vertex data have a different number of vertices, the dataset has several to choose from, or
            the order is unknown.
    """
    if reorder not in REORDERS:
        raise InputError(f"reorder {reorder!r}: expected one of {', '.join(REORDERS)}")
    graph = dataset.graph(partition.artifact.inputs["graph"])
    if vertices is None:
        vertices = find_vertices(dataset, graph.artifact.key)
    if vertices is not None and vertices.num_vertices != graph.num_vertices:
        raise InputError(
            f"{vertices.artifact.path}: holds data for {counted(vertices.num_vertices, 'vertex')}, but the graph"
            f" {graph.artifact.path} has {graph.num_vertices:,}; ingest vertex data for this graph"
        )
    keys = {"graph": graph.artifact.key, "partition": partition.artifact.key}
    keys |= {"vertices": vertices.artifact.key} if vertices else {}
    parameters = row_parameters(partition.num_parts, partition.method, reorder)
    with ArtifactWriter.begin(dataset.path, "shards", parameters, keys, cluster.scratch) as writer:
        if writer.is_complete:
            return RowShards(Artifact(writer.path))
        widths = vertices.widths if vertices else {}
        cluster = for_few(cluster, graph.nnz + graph.num_vertices * sum(widths.values()))
        # The backward pass multiplies with the transpose.
        transpose = None if graph.symmetric else transpose_graph(dataset, graph, cluster)
        places = RowPlaces(
            writer,
            writer.work / "numbers",
            tuple(each.artifact.path for each in (graph, transpose) if each),
            steps=steps,
        )
        if vertices is not None:
            stored = vertices.artifact
            dims = {name: ("row", *stored.record(name).dims[1:]) for name in vertices.names}
            places = replace(places, vertices=stored.path, dims=dims)
        source = ShardSource.of(graph, vertices, transpose)
        sizes = PartSizes.of(partition)
        # Numbers are looked up by column id, in no order: tasks map plain files instead of reading chunks.
        numbers = VertexNumbers(places.numbers, graph.num_vertices, reorder != "none")
        with one_step("number the vertices"):
            numbers.write(partition, graph.artifact.array("degree"), range_sizes(source, sizes, cluster.scratch))
        phases = row_phases(source, sizes, places, reorder)
        write_group(writer.path / "row", {})
        dimensions = {"vertex": graph.num_vertices, "part": partition.num_parts} | widths
        targets = vertices.num_targets if vertices else 0
        facts = {
            **({"num_targets": targets} if targets else {}),
            "symmetric": graph.symmetric,
            "weighted": graph.weighted,
            "num_classes": vertices.num_classes if vertices else 0,
            "quality": partition.quality,
        }
        return RowShards(writer.commit(run(phases, cluster, writer), dimensions, facts))
