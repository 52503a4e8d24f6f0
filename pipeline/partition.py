"""The partition stage: which rank owns which vertex, and what that makes the ranks exchange."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.cluster import Cluster, available_cores
from gnnloom.pipeline.hypergraph import column_net_hypergraph, row_nonzeros
from gnnloom.pipeline.part_vector import copy_part_vector, create_part_vector, map_part_vector
from gnnloom.pipeline.partitioners.child import METHODS as NATIVE_METHODS
from gnnloom.pipeline.partitioners.guard import check_parts, fill_empty_parts
from gnnloom.pipeline.partitioners.native import check_native_memory, native_partition
from gnnloom.pipeline.partitioners.request import PartitionRequest
from gnnloom.pipeline.partitioners.streaming import block_partition, random_partition
from gnnloom.pipeline.quality import describe_quality, measure_load
from gnnloom.pipeline.transpose import transpose_graph
from gnnloom.pipeline.volume import count_exchange
from gnnloom.storage.arrays import ArrayAppender, ArrayReader
from gnnloom.storage.artifact import Artifact, ArtifactWriter
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.graph import Graph
from gnnloom.storage.partition import Partition

METHODS = (*NATIVE_METHODS, "random", "block")
MODELS = ("hypergraph",)
_CHUNK_VERTICES = 1 << 20


@dataclass(frozen=True)
class PartitionOptions:
    """How to partition.

    Attributes:
        parts: P, from 1 to the number of vertices.
        method: one of ``METHODS``.
        imbalance: how much heavier than the average a part may be; a weight is a row's nonzeros.
        seed: 0 to 2^31 - 1.
        model: one of ``MODELS``.
        time_limit: seconds that a native partitioner may take; None for no limit.
        threads: of a parallel partitioner; None for one per core.  Never changes the result.
    """

    parts: int
    method: str = "mtkahypar"
    imbalance: float = 0.01
    seed: int = 0
    model: str = "hypergraph"
    time_limit: float | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"method {self.method!r}: expected one of {', '.join(METHODS)}")
        if self.model not in MODELS:
            raise InputError(f"model {self.model!r}: expected one of {', '.join(MODELS)}")
        if self.parts < 1:
            raise InputError(f"parts={self.parts}: expected 1 or more")
        if not (math.isfinite(self.imbalance) and self.imbalance >= 0):
            raise InputError(f"imbalance={self.imbalance}: expected a number from 0 on, such as 0.01")
        if not 0 <= self.seed < 1 << 31:
            raise InputError(f"seed={self.seed}: expected 0 to {(1 << 31) - 1}")
        if self.time_limit is not None and not self.time_limit > 0:
            raise InputError(f"time_limit={self.time_limit}: expected seconds above 0")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads={self.threads}: expected 1 or more")

    def parameters(self) -> dict[str, Any]:
        """What decides the partition's bytes."""
        names = ("parts", "method", "imbalance", "seed", "model")
        return {name: getattr(self, name) for name in names}

    def request(self) -> PartitionRequest:
        """What a native partitioner is asked for."""
        return PartitionRequest(self.parts, self.imbalance, self.seed, self.threads or available_cores())


def partition_graph(dataset: Dataset, graph: Graph, options: PartitionOptions, cluster: Cluster) -> Partition:
    """Partition the rows of a graph and measure the result; finds what an earlier run left.

    Raises:
        InputError: there are more parts than vertices.
        BudgetError: the partitioner would need more memory than there is.
        PartitionerError: a native partitioner failed or took too long.
    """
    check_parts(options.parts, graph.num_vertices)
    inputs = {"graph": graph.artifact.key}
    with ArtifactWriter.begin(dataset.path, "partition", options.parameters(), inputs) as writer:
        if writer.is_complete:
            return Partition(Artifact(writer.path))
        transpose = transpose_graph(dataset, graph, cluster)
        part_path = writer.work / "part.npy"
        recorded = writer.recorded()
        if "part/0" in recorded:
            (record,) = recorded["part/0"].arrays
            copy_part_vector(ArrayReader(writer.path, record), part_path)
        else:
            _make_part(writer, graph, transpose, options, part_path)
        if "quality/0" not in recorded:
            _measure(writer, graph, transpose, options, part_path, cluster)
        quality = writer.recorded()["quality/0"].facts
        measured = {"partitioner": _partitioner_name(options.method)}
        return Partition(
            writer.commit(["part/0", "quality/0"], {"vertex": graph.num_vertices}, {"quality": quality}, measured)
        )


def _make_part(
    writer: ArtifactWriter, graph: Graph, transpose: Graph, options: PartitionOptions, part_path: Path
) -> None:
    with writer.part("part/0") as builder:
        part = create_part_vector(part_path, graph.num_vertices)
        _fill_part(part, graph, transpose, options, writer.work)
        array = ArrayAppender(writer.path, "part", part.shape, part.dtype, ("vertex",))
        for start in range(0, len(part), _CHUNK_VERTICES):
            array.append(part[start : start + _CHUNK_VERTICES])
        builder.add(array.close())
        part.flush()


def _fill_part(
    part: NDArray[np.int32], graph: Graph, transpose: Graph, options: PartitionOptions, scratch: Path
) -> None:
    if options.method == "block":
        block_partition(part, graph, options.parts)
    elif options.method == "random":
        random_partition(part, options.parts, options.seed)
        _fill_empty(part, graph, options.parts)
    else:
        check_native_memory(graph.nnz + graph.num_vertices, graph.num_vertices, options.parts)
        hypergraph = column_net_hypergraph(graph, transpose)
        part[:] = native_partition(hypergraph, options.method, options.request(), scratch, options.time_limit)


def _fill_empty(part: NDArray[np.int32], graph: Graph, parts: int) -> None:
    """Fill empty parts; the weights are read only when there are some, which happens to small graphs."""
    if np.bincount(part, minlength=parts).all():
        return
    fill_empty_parts(part, np.concatenate([nonzeros for _, nonzeros in row_nonzeros(graph)]), parts)


def _measure(
    writer: ArtifactWriter,
    graph: Graph,
    transpose: Graph,
    options: PartitionOptions,
    part_path: Path,
    cluster: Cluster,
) -> None:
    """Record the partition's quality; directed graphs exchange other rows in the backward pass."""
    with writer.part("quality/0") as builder:
        work = writer.work / "volume"
        forward = count_exchange(transpose, part_path, options.parts, work / "forward", cluster)
        backward = None
        if not graph.symmetric:
            backward = count_exchange(graph, part_path, options.parts, work / "backward", cluster)
        load = measure_load(graph, map_part_vector(part_path), options.parts)
        builder.facts = describe_quality(options.method, options.imbalance, load, forward, backward)


def _partitioner_name(method: str) -> str:
    return f"{method} {version(method)}" if method in NATIVE_METHODS else method
