"""The row-shard stage: the rows of each rank, renumbered, its vertex data, and the rows it exchanges with others.

Three passes, each a set of independent tasks: route rows and vertex data to the parts that own them; renumber each
rank's matrices and find its halo; look up each rank's send lists in the halos of the others. If routed ranges are
many, they are merged before the second pass. The work grows with the nonzeros, not with nonzeros times ranks.

The shards serve the point-to-point exchange of Demirci, Haldar, Ferhatosmanoglu (PVLDB 16(4), 2022), Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.shards.find_vertices import find_vertices
from gnnloom.pipeline.shards.rows.row_halo import halo_shuffle
from gnnloom.pipeline.shards.rows.row_options import REORDERS
from gnnloom.pipeline.shards.rows.row_rank import ShardRankTask, shard_rank
from gnnloom.pipeline.shards.rows.row_routed import RoutedMatrix, RoutedVertices
from gnnloom.pipeline.shards.rows.row_routing import (
    RouteBlockTask,
    RouteVerticesTask,
    route_block,
    route_vertices,
    row_shuffle,
    vertex_shuffle,
)
from gnnloom.pipeline.shards.rows.row_send_lists import SendListTask, write_send_lists
from gnnloom.pipeline.shards.vertex_arrays import VERTEX_ARRAYS
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.repairs import repairing
from gnnloom.pipeline.tasks.run_missing import Task, missing_tasks, run_missing
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.row_shards import RowShards
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, TaskRecord, artifact_key
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
        if self.vertices and self.vertices.has_feature:
            sizes["feature"] = self.vertices.num_features
        if self.vertices and self.vertices.has_multilabel:
            sizes["class"] = self.vertices.num_classes
        if self.vertices and self.vertices.has_target:
            sizes["target"] = self.vertices.num_targets
        return sizes

    @property
    def num_entries(self) -> int:
        """Numbers to write: nonzeros and features."""
        sizes = self.sizes
        return self.graph.nnz + sizes["vertex"] * (sizes.get("feature", 0) + sizes.get("class", 0))

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


@repairing
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
        graphs = {"forward": inputs.graph}
        if not inputs.graph.symmetric:
            # The backward pass multiplies with the transpose.
            graphs["backward"] = transpose_graph(dataset, inputs.graph, cluster)
        return _Stage(writer, inputs, part_path, graphs, cluster).run()


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


def routed_bytes(num_vertices: int, nnz: int, entry_bytes: int) -> int:
    """Bytes of the routed rows of a matrix: their entries, and the id and the number of nonzeros of each."""
    return nnz * entry_bytes + 16 * num_vertices


def vertex_ranges(num_vertices: int, chunk_rows: Sequence[int]) -> list[int]:
    """Bounds of the ranges that tasks route: whole chunks of the widest array, the same in every run.

    Args:
        chunk_rows: rows of a chunk of each array.
    """
    step = _CHUNKS_PER_TASK * min(chunk_rows, default=num_vertices or 1)
    return [*range(0, num_vertices, step), num_vertices]


@dataclass(frozen=True)
class _Stage:
    """What the passes of one run share.

    Attributes:
        part_path: ``.npy`` file of the (num_vertices,) int32 parts.
        graphs: the adjacency (``forward``) and, if directed, its transpose (``backward``).
    """

    writer: ArtifactWriter
    inputs: _Inputs
    part_path: Path
    graphs: Mapping[str, Graph]
    cluster: Cluster

    def run(self) -> RowShards:
        """Run the passes, and publish the artifact."""
        shards, halos_left = self._shard_tasks()
        if missing_tasks(self.writer, shards, is_usable=halos_left):
            self._route()
        write_group(self.writer.path / "row", {})
        records = run_missing("shard", self.cluster, self.writer, shard_rank, shards, "vertices", is_usable=halos_left)
        # Between the passes, because a send list needs the halos of all ranks.
        for matrix in self._matrices:
            matrix.halo.merge("merge halos", self.writer, self.cluster, records)
        sends = [SendListTask(*self._routed(rank)) for rank in range(self._num_parts)]
        run_missing("send lists", self.cluster, self.writer, write_send_lists, sends, "vertices")
        # Both passes write arrays of a rank's folder, so the manifest requires the records of both.
        names = [task.name for task in (*shards, *sends)]
        return RowShards(self.writer.commit(names, self.inputs.sizes, self.inputs.facts))

    @property
    def _num_parts(self) -> int:
        return self.inputs.partition.num_parts

    @cached_property
    def _matrices(self) -> tuple[RoutedMatrix, ...]:
        return tuple(
            RoutedMatrix(
                "" if kind == "forward" else "transpose/",
                row_shuffle(kind, self._num_parts, graph.num_vertices, weighted=graph.weighted),
                halo_shuffle(kind, self._num_parts),
            )
            for kind, graph in self.graphs.items()
        )

    @cached_property
    def _vertices(self) -> RoutedVertices | None:
        if self.inputs.vertices is None:
            return None
        artifact = self.inputs.vertices.artifact
        records = {name: artifact.record(name) for name in VERTEX_ARRAYS if name in artifact}
        types = {name: (record.dtype, record.shape[1:]) for name, record in records.items()}
        dims = {name: ("row", *record.dims[1:]) for name, record in records.items()}
        return RoutedVertices(vertex_shuffle(types, self._num_parts), dims)

    def _routed(self, rank: int) -> tuple[Any, ...]:
        """What the tasks of the later passes of a rank have in common: no data, so that they are small to send."""
        return (
            self.writer, self.part_path, self._num_parts, rank, self._matrices, self._vertices, self.inputs.reorder,
        )  # fmt: skip

    def _shard_tasks(self) -> tuple[list[ShardRankTask], Callable[[object, TaskRecord], bool]]:
        """The tasks of the second pass, and whether what an earlier command left of one is still there."""
        ranks, halos = range(self._num_parts), [matrix.halo for matrix in self._matrices]
        lanes = [halo.create_lanes(self.writer.work, len(ranks)) for halo in halos]
        tasks = [ShardRankTask(*self._routed(rank), tuple(each.lane(rank) for each in lanes)) for rank in ranks]
        usable = [halo.is_usable(self.writer, [task.name for task in tasks]) for halo in halos]
        return tasks, lambda task, record: all(is_usable(task, record) for is_usable in usable)

    def _route(self) -> None:
        """Run the first pass: route the rows of the matrices, and the vertex data."""
        for matrix, graph in zip(self._matrices, self.graphs.values(), strict=True):
            lanes = matrix.rows.create_lanes(self.writer.work, graph.num_blocks)
            blocks = [
                RouteBlockTask(self.writer, graph.artifact.path, self.part_path, matrix.rows, block, lanes.lane(block))
                for block in range(graph.num_blocks)
            ]
            self._run(matrix.rows, "rows", route_block, blocks, "edges")
        if self._vertices is not None and self.inputs.vertices is not None:
            artifact, rows = self.inputs.vertices.artifact, self._vertices.rows
            chunk_rows = [artifact.array(name).chunk_rows for name in self._vertices.dims]
            bounds = vertex_ranges(self.inputs.graph.num_vertices, chunk_rows)
            lanes = rows.create_lanes(self.writer.work, len(bounds) - 1)
            ranges = [
                RouteVerticesTask(self.writer, artifact.path, self.part_path, rows, number, *span, lanes.lane(number))
                for number, span in enumerate(pairwise(bounds))
            ]
            self._run(rows, "vertices", route_vertices, ranges, "vertices")

    def _run(
        self, shuffle: Shuffle, what: str, function: Callable[[Task], int], tasks: Sequence[Task], unit: str
    ) -> None:
        """Route rows and merge them, except for what an earlier command has left."""
        usable = shuffle.is_usable(self.writer, [task.name for task in tasks])
        records = run_missing(f"route {what}", self.cluster, self.writer, function, tasks, unit, is_usable=usable)
        shuffle.merge(f"merge {what}", self.writer, self.cluster, records)
