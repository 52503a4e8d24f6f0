"""The partition stage: which part owns which vertex, and what the parts exchange because of it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.partition.measure.measurement import record_quality
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.part_storage import store_part_vector
from gnnloom.pipeline.partition.partitioner import Partitioner
from gnnloom.pipeline.partition.partitioners import METHODS
from gnnloom.pipeline.partition.problem import PartitionProblem
from gnnloom.pipeline.partition.settings import check_parts
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.progress import one_step
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.format.memory_map import copy_part_vector, create_part_vector

__all__ = ["METHODS", "PartitionOptions", "partition_graph", "partition_key"]

#: The two tasks of the stage; both run in the client, and start tasks of their own on the cluster.
_PART, _QUALITY = "part/0", "quality/0"


def partition_graph(dataset: Dataset, graph: Graph, options: PartitionOptions, cluster: Cluster) -> Partition:
    """Partition the rows of a graph and measure the result; returns the stored one if it exists.

    Raises:
        InputError: there are more parts than vertices, or both directions of an undirected graph are asked for.
        BudgetError: the partitioner would need more memory than there is.
        PartitionerError: the partitioner failed, took too long, or left parts out of range.
    """
    check_parts(options.parts, graph.num_vertices)
    options.check_graph(graph)
    parameters, inputs = options.parameters(cluster.memory), {"graph": graph.artifact.key}
    with ArtifactWriter.begin(dataset.path, "partition", parameters, inputs, cluster.scratch) as writer:
        if writer.is_complete:
            return Partition(Artifact(writer.path))
        cluster = for_few(cluster, graph.nnz)
        transpose = transpose_graph(dataset, graph, cluster)
        problem = PartitionProblem(graph, transpose, options, writer.work, writer.work / "part.npy", cluster)
        _make_part(writer, problem, options.partitioner)
        _measure(writer, problem)
        recorded = writer.recorded_of([_PART, _QUALITY])
        # Facts come from the records, so a resumed run publishes what the earlier run measured.
        quality = {**recorded[_QUALITY].facts, **recorded[_PART].facts}
        # The installed version is a measurement: facts have to be the same for the same inputs.
        measured = {"partitioner": _versioned_name(options.partitioner, quality)}
        sizes = {"vertex": graph.num_vertices}
        return Partition(writer.commit([_PART, _QUALITY], sizes, {"quality": quality}, measured))


def partition_key(graph_key: str, options: PartitionOptions, memory: int) -> str:
    """The key of the artifact that :func:`partition_graph` makes or finds.

    Args:
        memory: bytes that a worker may use; part of the key only if the method's parts depend on it.
    """
    return artifact_key("partition", options.parameters(memory), {"graph": graph_key})


def _make_part(writer: ArtifactWriter, problem: PartitionProblem, partitioner: Partitioner) -> None:
    """Fill the part vector's file and store it; from the store if an earlier run got that far."""
    recorded = writer.recorded_of([_PART])
    if _PART in recorded:
        # A killed run may have left the mapped file incomplete; the recorded array in the store is complete.
        (record,) = recorded[_PART].arrays
        copy_part_vector(ArrayReader(writer.path, record), problem.part_path)
        return
    with one_step(f"partition by {partitioner.name}"), writer.task(_PART) as output:
        part = create_part_vector(problem.part_path, problem.graph.num_vertices)
        output.facts = partitioner.fill(problem, part)
        # The tasks map this file, and on a shared file system see it only once it is written back.
        part.flush()
        parts, source = problem.options.parts, f"method {partitioner.name}"
        output.add(store_part_vector(writer.path, problem.part_path, len(part), parts, source, problem.cluster))


def _measure(writer: ArtifactWriter, problem: PartitionProblem) -> None:
    """Record the partition's quality; directed graphs exchange different rows in the backward pass."""
    if writer.recorded_of([_QUALITY]):
        return
    options = problem.options
    with one_step("measure the partition"), writer.task(_QUALITY) as output:
        record_quality(
            output,
            problem.graph,
            problem.transpose,
            problem.part_path,
            options.parts,
            problem.cluster,
            method=options.method,
            imbalance=options.imbalance,
            weights=options.weights,
        )


def _versioned_name(partitioner: Partitioner, quality: Mapping[str, Any]) -> str:
    # The description of a choice begins with the name of a method, or with that of a start that is none.
    chosen = str(quality.get("chosen", "")).partition(" ")[0]
    package = METHODS.get(chosen, partitioner).package
    return f"{package} {version(package)}" if package else partitioner.name
