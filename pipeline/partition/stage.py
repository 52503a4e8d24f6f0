"""The partition stage: which rank owns which vertex, and what that makes the ranks exchange."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.partition.methods import fill_part
from gnnloom.pipeline.partition.native.guard import check_parts
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.presets import METHODS
from gnnloom.pipeline.partition.problem import PartitionProblem
from gnnloom.pipeline.partition.quality import MATRIX_PARTS, describe_quality, measure_load
from gnnloom.pipeline.partition.volume import Exchange, count_exchange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.progress import one_step
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.arrays import ArrayAppender, ArrayReader, write_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, TaskOutput, artifact_key
from gnnloom.storage.format.groups import write_group
from gnnloom.storage.format.memory_map import copy_part_vector, create_part_vector, map_part_vector

__all__ = ["METHODS", "PartitionOptions", "partition_graph", "partition_key"]

_CHUNK_VERTICES = 1 << 20


def partition_graph(dataset: Dataset, graph: Graph, options: PartitionOptions, cluster: Cluster) -> Partition:
    """Partition the rows of a graph and measure the result; finds what an earlier run left.

    Raises:
        InputError: there are more parts than vertices, or both directions are asked for and are the same.
        BudgetError: the partitioner would need more memory than there is.
        PartitionerError: a native partitioner failed or took too long.
    """
    check_parts(options.parts, graph.num_vertices)
    options.check_graph(graph)
    parameters, inputs = options.parameters(cluster.memory), {"graph": graph.artifact.key}
    with ArtifactWriter.begin(dataset.path, "partition", parameters, inputs) as writer:
        if writer.is_complete:
            return Partition(Artifact(writer.path))
        transpose = transpose_graph(dataset, graph, cluster)
        part_path = writer.work / "part.npy"
        problem = PartitionProblem(graph, transpose, options, writer.work, part_path, cluster)
        recorded = writer.recorded()
        if "part/0" in recorded:
            (record,) = recorded["part/0"].arrays
            copy_part_vector(ArrayReader(writer.path, record), part_path)
        else:
            with one_step(f"partition by {options.method}"):
                _make_part(writer, problem)
        if "quality/0" not in recorded:
            with one_step("measure the partition"):
                _measure(writer, problem)
        recorded = writer.recorded()
        quality = {**recorded["quality/0"].facts, **recorded["part/0"].facts}
        measured = {"partitioner": _partitioner_name(options.method)}
        return Partition(
            writer.commit(["part/0", "quality/0"], {"vertex": graph.num_vertices}, {"quality": quality}, measured)
        )


def partition_key(graph_key: str, options: PartitionOptions, memory: int) -> str:
    """The key of the artifact that :func:`partition_graph` makes or finds.

    Args:
        memory: of a worker, in bytes; decides how deep ``multilevel`` coarsens.
    """
    return artifact_key("partition", options.parameters(memory), {"graph": graph_key})


def _make_part(writer: ArtifactWriter, problem: PartitionProblem) -> None:
    with writer.task("part/0") as output:
        part = create_part_vector(problem.part_path, problem.graph.num_vertices)
        output.facts = fill_part(problem, part)
        array = ArrayAppender(writer.path, "part", part.shape, part.dtype, ("vertex",))
        for start in range(0, len(part), _CHUNK_VERTICES):
            array.append(part[start : start + _CHUNK_VERTICES])
        output.add(array.close())
        part.flush()


def _measure(writer: ArtifactWriter, problem: PartitionProblem) -> None:
    """Record the partition's quality; directed graphs exchange other rows in the backward pass."""
    graph, options, part_path = problem.graph, problem.options, problem.part_path
    with writer.task("quality/0") as output:
        work = writer.work / "volume"
        forward = count_exchange(problem.transpose, part_path, options.parts, work / "forward", problem.cluster)
        backward = None
        if not graph.symmetric:
            backward = count_exchange(graph, part_path, options.parts, work / "backward", problem.cluster)
        load = measure_load(graph, map_part_vector(part_path), options.parts, options.weights)
        output.facts = describe_quality(options.method, options.imbalance, load, forward, backward)
        if options.parts > MATRIX_PARTS:
            for direction, exchange in (("forward", forward), ("backward", backward)):
                if exchange is not None:
                    _store_exchange(output, direction, exchange)


def _store_exchange(output: TaskOutput, direction: str, exchange: Exchange) -> None:
    path = output.writer.path
    write_group(path / "exchange", {})
    write_group(path / "exchange" / direction, {})
    sender, receiver = np.divmod(exchange.pair, exchange.num_parts)
    columns: dict[str, NDArray[Any]] = {"sender": sender.astype(np.int32), "receiver": receiver.astype(np.int32)}
    for name, column in (columns | {"rows": exchange.rows}).items():
        output.add(write_array(path, f"exchange/{direction}/{name}", column, ("pair",)))


def _partitioner_name(method: str) -> str:
    package = METHODS[method].package
    return f"{package} {version(package)}" if package else method
