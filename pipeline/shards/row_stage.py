"""The row-shard stage: for each rank its rows, renumbered, its vertex data, and whom it exchanges rows with.

Three passes, each a set of independent tasks: rows and vertex data are routed to the parts that own
them; every rank's matrices are renumbered and its halo found; every rank's send lists are looked up
in the halos of the others.  The work grows with the nonzeros, not with nonzeros times ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.shards.row_rank import RankTask, shard_rank
from gnnloom.pipeline.shards.row_routing import (
    VERTEX_ARRAYS,
    RoutedMatrix,
    RoutedVertexArray,
    route_blocks,
    route_vertices,
)
from gnnloom.pipeline.shards.row_send_lists import send_part, turn_halos, write_send_lists
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.progress import logged
from gnnloom.storage.artifacts.graph import Graph, block_path
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.row_shards import RowShards
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.format.groups import write_group
from gnnloom.storage.format.memory_map import copy_part_vector

#: Chunks of vertex data that one task routes: about 64 MiB.
_CHUNKS_PER_TASK = 16


@dataclass(frozen=True)
class _Plan:
    """What is sharded, and into what."""

    graph: Graph
    partition: Partition
    vertices: Vertices | None

    @property
    def parameters(self) -> dict[str, Any]:
        return _parameters(self.partition.num_parts, self.partition.method)

    @property
    def inputs(self) -> dict[str, str]:
        inputs = {"graph": self.graph.artifact.key, "partition": self.partition.artifact.key}
        return inputs | ({"vertices": self.vertices.artifact.key} if self.vertices else {})

    @property
    def sizes(self) -> dict[str, int]:
        sizes = {"vertex": self.graph.num_vertices, "part": self.partition.num_parts}
        if self.vertices and self.vertices.has_feature:
            sizes["feature"] = self.vertices.num_features
        if self.vertices and self.vertices.has_multilabel:
            sizes["class"] = self.vertices.num_classes
        return sizes

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "symmetric": self.graph.symmetric,
            "weighted": self.graph.weighted,
            "num_classes": self.vertices.num_classes if self.vertices else 0,
            "quality": self.partition.quality,
        }


def shard_rows(dataset: Dataset, partition: Partition, cluster: Cluster, vertices: Vertices | None = None) -> RowShards:
    """Write the row shards of a partition; finds what an earlier run left.

    Args:
        vertices: features, labels and split to shard along; by default those of the dataset, if it has any.

    Raises:
        InputError: the vertex data are for another number of vertices, or the dataset has several to choose from.
    """
    plan = _make_plan(dataset, partition, vertices)
    with ArtifactWriter.begin(dataset.path, "shards", plan.parameters, plan.inputs) as writer:
        if writer.is_complete:
            return RowShards(Artifact(writer.path))
        part_path = writer.work / "part.npy"
        copy_part_vector(partition.artifact.array("part"), part_path)
        matrices = [("forward", "", plan.graph)]
        if not plan.graph.symmetric:
            matrices.append(("backward", "transpose/", transpose_graph(dataset, plan.graph, cluster)))
        for kind, _, matrix in matrices:
            route_blocks(writer, kind, matrix, part_path, partition.num_parts, cluster)
        routed = tuple(_routed_matrix(kind, prefix, matrix) for kind, prefix, matrix in matrices)
        vertex_arrays = _route_vertices(writer, plan, part_path, cluster)
        tasks = [
            RankTask(writer, part_path, partition.num_parts, rank, routed, vertex_arrays)
            for rank in range(partition.num_parts)
        ]
        return _shard(writer, plan, tasks, cluster)


def row_shards_key(parts: int, method: str, inputs: Mapping[str, str]) -> str:
    """The key of the artifact that :func:`shard_rows` makes or finds.

    Args:
        method: of the partition.
        inputs: kind to key of the graph, the partition and, if there are any, the vertices.
    """
    return artifact_key("shards", _parameters(parts, method), inputs)


def _parameters(parts: int, method: str) -> dict[str, Any]:
    return {"layout": "row", "parts": parts, "method": method}


def _make_plan(dataset: Dataset, partition: Partition, vertices: Vertices | None) -> _Plan:
    if vertices is None and any(info.state == "complete" for info in dataset.artifacts("vertices")):
        vertices = dataset.vertices()
    graph = dataset.graph(partition.artifact.inputs["graph"])
    if vertices is not None and vertices.num_vertices != graph.num_vertices:
        raise InputError(
            f"{vertices.artifact.path}: data of {vertices.num_vertices:,} vertices, the graph {graph.artifact.path}"
            f" has {graph.num_vertices:,}"
        )
    return _Plan(graph, partition, vertices)


def _shard(writer: ArtifactWriter, plan: _Plan, tasks: list[RankTask], cluster: Cluster) -> RowShards:
    write_group(writer.path / "row", {})
    recorded = writer.recorded()
    _run("shard", shard_rank, [task for task in tasks if task.folder not in recorded], cluster)
    for matrix in tasks[0].matrices:
        turn_halos(writer.work, matrix.kind, len(tasks))
    _run("send lists", write_send_lists, [task for task in tasks if send_part(task.rank) not in recorded], cluster)
    parts = [task.folder for task in tasks] + [send_part(task.rank) for task in tasks]
    return RowShards(writer.commit(parts, plan.sizes, plan.facts))


def _run(phase: str, function: Callable[[RankTask], int], tasks: Sequence[RankTask], cluster: Cluster) -> None:
    for _ in logged(phase, cluster.map(function, tasks), len(tasks), "vertices"):
        pass


def _routed_matrix(kind: str, prefix: str, matrix: Graph) -> RoutedMatrix:
    indices = matrix.artifact.records[f"{block_path(0)}/indices"]
    data = matrix.artifact.records.get(f"{block_path(0)}/data")
    return RoutedMatrix(kind, prefix, matrix.num_blocks, indices.dtype, data.dtype if data else None)


def _route_vertices(
    writer: ArtifactWriter, plan: _Plan, part_path: Path, cluster: Cluster
) -> tuple[RoutedVertexArray, ...]:
    """Route the vertex data, if there are any; says how each array is stored."""
    if plan.vertices is None:
        return ()
    artifact = plan.vertices.artifact
    readers = {name: artifact.array(name) for name in VERTEX_ARRAYS if name in artifact}
    rows = _vertex_ranges(plan.graph.num_vertices, readers)
    route_vertices(writer, plan.vertices, part_path, plan.partition.num_parts, rows, cluster)
    return tuple(
        RoutedVertexArray(name, reader.shape[1:], reader.record.dtype, ("row", *reader.record.dims[1:]), len(rows) - 1)
        for name, reader in readers.items()
    )


def _vertex_ranges(num_vertices: int, readers: dict[str, ArrayReader]) -> list[int]:
    """Bounds of the ranges that tasks route: whole chunks of the widest array, the same in every run."""
    step = _CHUNKS_PER_TASK * min((reader.chunk_rows for reader in readers.values()), default=num_vertices or 1)
    return [*range(0, num_vertices, step), num_vertices]
