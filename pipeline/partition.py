"""The partition stage: which rank owns which vertex, and what that makes the ranks exchange."""

from __future__ import annotations

from importlib.metadata import version

from gnnloom.pipeline.cluster import Cluster
from gnnloom.pipeline.part_vector import copy_part_vector, create_part_vector, map_part_vector
from gnnloom.pipeline.partition_methods import fill_part
from gnnloom.pipeline.partition_options import PartitionOptions
from gnnloom.pipeline.partition_problem import PartitionProblem
from gnnloom.pipeline.partitioners.guard import check_parts
from gnnloom.pipeline.partitioners.presets import METHODS
from gnnloom.pipeline.progress import one_step
from gnnloom.pipeline.quality import describe_quality, measure_load
from gnnloom.pipeline.transpose import transpose_graph
from gnnloom.pipeline.volume import count_exchange
from gnnloom.storage.arrays import ArrayAppender, ArrayReader
from gnnloom.storage.artifact import Artifact, ArtifactWriter
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.graph import Graph
from gnnloom.storage.partition import Partition

__all__ = ["METHODS", "PartitionOptions", "partition_graph"]

_CHUNK_VERTICES = 1 << 20


def partition_graph(dataset: Dataset, graph: Graph, options: PartitionOptions, cluster: Cluster) -> Partition:
    """Partition the rows of a graph and measure the result; finds what an earlier run left.

    Raises:
        InputError: there are more parts than vertices.
        BudgetError: the partitioner would need more memory than there is.
        PartitionerError: a native partitioner failed or took too long.
    """
    check_parts(options.parts, graph.num_vertices)
    inputs = {"graph": graph.artifact.key}
    parameters = options.parameters(cluster.memory)
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


def _make_part(writer: ArtifactWriter, problem: PartitionProblem) -> None:
    with writer.part("part/0") as builder:
        part = create_part_vector(problem.part_path, problem.graph.num_vertices)
        builder.facts = fill_part(problem, part)
        array = ArrayAppender(writer.path, "part", part.shape, part.dtype, ("vertex",))
        for start in range(0, len(part), _CHUNK_VERTICES):
            array.append(part[start : start + _CHUNK_VERTICES])
        builder.add(array.close())
        part.flush()


def _measure(writer: ArtifactWriter, problem: PartitionProblem) -> None:
    """Record the partition's quality; directed graphs exchange other rows in the backward pass."""
    graph, options, part_path = problem.graph, problem.options, problem.part_path
    with writer.part("quality/0") as builder:
        work = writer.work / "volume"
        forward = count_exchange(problem.transpose, part_path, options.parts, work / "forward", problem.cluster)
        backward = None
        if not graph.symmetric:
            backward = count_exchange(graph, part_path, options.parts, work / "backward", problem.cluster)
        load = measure_load(graph, map_part_vector(part_path), options.parts)
        builder.facts = describe_quality(options.method, options.imbalance, load, forward, backward)


def _partitioner_name(method: str) -> str:
    package = METHODS[method].package
    return f"{package} {version(package)}" if package else method
