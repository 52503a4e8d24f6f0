"""The row-shard stage: the rows of each rank, renumbered, its vertex data, and the rows it exchanges with others.

Three passes, each a set of independent tasks: route rows and vertex data to the parts that own them; renumber each
rank's matrices and find its halo; look up each rank's send lists in the halos of the others. If routed ranges are
many, they are merged before the second pass. The work grows with the nonzeros, not with nonzeros times ranks.

The shards serve the point-to-point exchange of Demirci, Haldar, Ferhatosmanoglu (PVLDB 16(4), 2022), Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.shards.find_vertices import find_vertices
from gnnloom.pipeline.shards.rows.halo_regrouping import regroup_halos
from gnnloom.pipeline.shards.rows.row_merge import VERTEX_DATA, RoutedFiles, merge_routed
from gnnloom.pipeline.shards.rows.row_options import REORDERS
from gnnloom.pipeline.shards.rows.row_rank import ShardRankTask, shard_rank
from gnnloom.pipeline.shards.rows.row_routed import RoutedMatrix, RoutedVertexArray, rank_folder
from gnnloom.pipeline.shards.rows.row_routing import route_blocks, route_vertices
from gnnloom.pipeline.shards.rows.row_send_lists import SendListTask, write_send_lists
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.artifacts.graph import Graph, block_path
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.row_shards import RowShards
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.format.groups import write_group
from gnnloom.storage.format.memory_map import copy_part_vector

#: Chunks of vertex data that one task routes: about 64 MiB.
_CHUNKS_PER_TASK = 16


@dataclass(frozen=True)
class _Inputs:
    """The artifacts that are sharded, and what the shards' manifest says about them."""

    graph: Graph
    partition: Partition
    vertices: Vertices | None
    reorder: str

    @property
    def parameters(self) -> dict[str, Any]:
        return _parameters(self.partition.num_parts, self.partition.method, self.reorder)

    @property
    def keys(self) -> dict[str, str]:
        keys = {"graph": self.graph.artifact.key, "partition": self.partition.artifact.key}
        return keys | ({"vertices": self.vertices.artifact.key} if self.vertices else {})

    @property
    def sizes(self) -> dict[str, int]:
        sizes = {"vertex": self.graph.num_vertices, "part": self.partition.num_parts}
        return sizes | (self.vertices.widths if self.vertices else {})

    @property
    def num_entries(self) -> int:
        """Numbers to write: nonzeros, and columns of the vertex data."""
        columns = sum(self.vertices.widths.values()) if self.vertices else 0
        return self.graph.nnz + self.graph.num_vertices * columns

    @property
    def facts(self) -> dict[str, Any]:
        targets = self.vertices.num_targets if self.vertices else 0
        return {
            **({"num_targets": targets} if targets else {}),
            "symmetric": self.graph.symmetric,
            "weighted": self.graph.weighted,
            "num_classes": self.vertices.num_classes if self.vertices else 0,
            "quality": self.partition.quality,
        }


def shard_rows(
    dataset: Dataset,
    partition: Partition,
    cluster: Cluster,
    vertices: Vertices | None = None,
    reorder: str = "none",
) -> RowShards:
    """Write the row shards of a partition, or find them; resumes what an earlier run left.

    Args:
        vertices: features, labels and split to include; by default those of the dataset, if it has any.
        reorder: order of a rank's rows: ``none`` (by vertex id) or ``degree`` (largest first).

    Raises:
        InputError: the vertex data have a different number of vertices, the dataset has several to choose from, or
            the order is unknown.
    """
    if reorder not in REORDERS:
        raise InputError(f"reorder {reorder!r}: expected one of {', '.join(REORDERS)}")
    inputs = _find_inputs(dataset, partition, vertices, reorder)
    with ArtifactWriter.begin(dataset.path, "shards", inputs.parameters, inputs.keys, cluster.scratch) as writer:
        if writer.is_complete:
            return RowShards(Artifact(writer.path))
        cluster = for_few(cluster, inputs.num_entries)
        # Parts are looked up by column id, in no order: tasks map a plain file instead of reading chunks.
        part_path = writer.work / "part.npy"
        copy_part_vector(partition.stored_part(), part_path)
        is_routing = not _is_routed(writer, inputs)
        matrices = _route_matrices(dataset, writer, inputs, part_path, cluster, is_routing=is_routing)
        vertex_arrays = _route_vertices(writer, inputs, part_path, cluster, is_routing=is_routing)
        return _shard(writer, inputs, part_path, matrices, vertex_arrays, cluster)


def row_shards_key(parts: int, method: str, inputs: Mapping[str, str], reorder: str = "none") -> str:
    """Compute the key of the artifact that :func:`shard_rows` makes or finds.

    Args:
        parts: number of parts of the partition.
        method: method of the partition.
        inputs: kind to key of the graph, the partition and, if there are any, the vertices.
        reorder: order of a rank's rows.
    """
    return artifact_key("shards", _parameters(parts, method, reorder), inputs)


def _parameters(parts: int, method: str, reorder: str) -> dict[str, Any]:
    # Shards of earlier versions have no order in their keys.
    ordered = {} if reorder == "none" else {"reorder": reorder}
    return {"layout": "row", "parts": parts, "method": method, **ordered}


def _find_inputs(dataset: Dataset, partition: Partition, vertices: Vertices | None, reorder: str) -> _Inputs:
    if vertices is None:
        vertices = find_vertices(dataset, partition.artifact.inputs["graph"])
    graph = dataset.graph(partition.artifact.inputs["graph"])
    if vertices is not None and vertices.num_vertices != graph.num_vertices:
        raise InputError(
            f"{vertices.artifact.path}: holds data for {vertices.num_vertices:,} vertices, but the graph"
            f" {graph.artifact.path} has {graph.num_vertices:,}; ingest vertex data for this graph"
        )
    return _Inputs(graph, partition, vertices, reorder)


def _is_routed(writer: ArtifactWriter, inputs: _Inputs) -> bool:
    """Whether every rank has its rows, so that what was routed is not needed any more."""
    ranks = [rank_folder(rank) for rank in range(inputs.partition.num_parts)]
    return len(writer.recorded_of(ranks)) == len(ranks)


def _route_matrices(
    dataset: Dataset, writer: ArtifactWriter, inputs: _Inputs, part_path: Path, cluster: Cluster, *, is_routing: bool
) -> tuple[RoutedMatrix, ...]:
    """Route the adjacency and, if directed, its transpose, which the backward pass multiplies with; describe both.

    Args:
        is_routing: false only describes them.
    """
    matrices = [("forward", "", inputs.graph)]
    if not inputs.graph.symmetric:
        matrices.append(("backward", "transpose/", transpose_graph(dataset, inputs.graph, cluster)))
    routed = []
    for kind, prefix, matrix in matrices:
        routed.append(_routed_matrix(kind, prefix, matrix, inputs.partition.num_parts))
        files = routed[-1].files
        if is_routing:
            merge_routed(writer, files, partial(route_blocks, writer, files, matrix, part_path, cluster), cluster)
    return tuple(routed)


def _routed_matrix(kind: str, prefix: str, matrix: Graph, num_parts: int) -> RoutedMatrix:
    artifact, data = matrix.artifact, f"{block_path(0)}/data"
    dtype = artifact.record(data).dtype if data in artifact else None
    index = artifact.record(f"{block_path(0)}/indices").dtype
    entry_bytes = sum(np.dtype(name).itemsize for name in (index, dtype) if name is not None)
    num_bytes = routed_bytes(matrix.num_vertices, matrix.nnz, entry_bytes)
    return RoutedMatrix(kind, prefix, RoutedFiles(kind, matrix.num_blocks, num_parts, num_bytes), index, dtype)


def routed_bytes(num_vertices: int, nnz: int, entry_bytes: int) -> int:
    """Bytes of the routed rows of a matrix: their entries, and the id and the number of nonzeros of each."""
    return nnz * entry_bytes + 16 * num_vertices


def _route_vertices(
    writer: ArtifactWriter, inputs: _Inputs, part_path: Path, cluster: Cluster, *, is_routing: bool
) -> tuple[RoutedVertexArray, ...]:
    """Route the vertex data, if there are any, and describe each array; see :func:`_route_matrices`."""
    if inputs.vertices is None:
        return ()
    readers = {name: inputs.vertices.artifact.array(name) for name in inputs.vertices.names}
    bounds = vertex_ranges(inputs.graph.num_vertices, [reader.chunk_rows for reader in readers.values()])
    num_bytes = sum(math.prod(reader.shape) * reader.dtype.itemsize for reader in readers.values())
    files = RoutedFiles(VERTEX_DATA, len(bounds) - 1, inputs.partition.num_parts, num_bytes)
    if is_routing:
        route = partial(route_vertices, writer, files, inputs.vertices, part_path, bounds, cluster)
        merge_routed(writer, files, route, cluster)
    return tuple(
        RoutedVertexArray(name, reader.shape[1:], reader.record.dtype, ("row", *reader.record.dims[1:]), files, column)
        for column, (name, reader) in enumerate(readers.items())
    )


def vertex_ranges(num_vertices: int, chunk_rows: Sequence[int]) -> list[int]:
    """Bounds of the ranges that tasks route: whole chunks of the widest array, the same in every run.

    Args:
        chunk_rows: rows of a chunk of each array.
    """
    step = _CHUNKS_PER_TASK * min(chunk_rows, default=num_vertices or 1)
    return [*range(0, num_vertices, step), num_vertices]


def _shard(
    writer: ArtifactWriter,
    inputs: _Inputs,
    part_path: Path,
    matrices: tuple[RoutedMatrix, ...],
    vertex_arrays: tuple[RoutedVertexArray, ...],
    cluster: Cluster,
) -> RowShards:
    """Run the second and the third pass, and publish the artifact."""
    num_parts = inputs.partition.num_parts
    routed = (matrices, vertex_arrays, inputs.reorder)
    # Tasks describe what was routed, not its data, so they stay small for the scheduler.
    shards = [ShardRankTask(writer, part_path, num_parts, rank, *routed) for rank in range(num_parts)]
    sends = [SendListTask(writer, part_path, num_parts, rank, *routed) for rank in range(num_parts)]
    write_group(writer.path / "row", {})
    run_missing("shard", cluster, writer, shard_rank, shards, "vertices")
    # Between the passes, because a send list needs the halos of all ranks.
    for matrix in matrices:
        regroup_halos(writer, matrix.kind, num_parts, cluster)
    run_missing("send lists", cluster, writer, write_send_lists, sends, "vertices")
    # Both passes write arrays of a rank's folder, so the manifest requires the records of both.
    names = [task.name for task in shards] + [task.name for task in sends]
    return RowShards(writer.commit(names, inputs.sizes, inputs.facts))
