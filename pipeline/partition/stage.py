"""The partition stage: assigns vertices to parts, and counts the rows that the parts exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.matrix_sort.union import union_graph
from gnnloom.pipeline.partition.cover_refinement import check_cover_memory, refine_cover
from gnnloom.pipeline.partition.measure.quality import MeasurePlan, record_quality
from gnnloom.pipeline.partition.native.guard import check_part
from gnnloom.pipeline.partition.options import METHODS, PartitionOptions, partition_key
from gnnloom.pipeline.partition.partitioner import LEVEL_STEPS, LevelSteps, Partitioner, PartitionProblem
from gnnloom.pipeline.partition.replication import Replication, choose_replicated
from gnnloom.pipeline.partition.settings import AUTO, EXCHANGES, check_parts
from gnnloom.pipeline.shuffle.mapped_vectors import copy_vector
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.phase import Needs, Phase, repairing, run
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.artifacts.typed.union import BOTH, FORWARD, UnionSpec, least_entries
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.arrays import ArrayReader, create_array, default_chunk_rows, write_rows
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.memory_map import create_part_vector, map_part_vector
from gnnloom.storage.meters import one_step

__all__ = ["METHODS", "PartitionOptions", "partition_graph", "partition_key"]

#: The two tasks of the stage; both run in the client, and start tasks of their own on the cluster.
_PART, _QUALITY = "part/0", "parts/quality"


@repairing
def partition_graph(
    dataset: Dataset,
    graph: Graph | TypedGraph,
    options: PartitionOptions,
    cluster: Cluster,
    *,
    steps: LevelSteps = LEVEL_STEPS,
) -> Partition:
    """Partition the rows of a graph and measure the result; returns the stored one if it exists.

    A graph with types is partitioned as the union of its relations, over the numbering of all vertices.

    Args:
        steps: sizes of the steps of the out-of-core method.

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
        matrix, replication = partitioned_matrix(dataset, graph, options, cluster)
        if isinstance(graph, TypedGraph) and not matrix.symmetric:
            spec = UnionSpec.of_parameters(matrix.artifact.parameters)
            transpose = union_graph(dataset, graph, spec.transposed, cluster)
        else:
            transpose = transpose_graph(dataset, matrix, cluster)
        where = writer.work, writer.work / "part.npy"
        problem = PartitionProblem(matrix, transpose, options, *where, cluster, writer, steps)
        _make_part(problem, options.partitioner)
        _measure(problem)
        recorded = writer.recorded_of([_PART, _QUALITY])
        # Facts come from the records, so a resumed run publishes what the earlier run measured.
        quality = {**recorded[_QUALITY].facts, **recorded[_PART].facts}
        quality |= replication.facts(graph) if isinstance(graph, TypedGraph) else {}
        # The installed version is a measurement: facts have to be the same for the same inputs.
        measured = {"partitioner": _versioned_name(options.partitioner, quality)}
        sizes = {"vertex": graph.num_vertices}
        return Partition(writer.commit([_PART, _QUALITY], sizes, {"quality": quality}, measured))


def partitioned_matrix(
    dataset: Dataset, graph: Graph | TypedGraph, options: PartitionOptions, cluster: Cluster, *, plans: bool = False
) -> tuple[Graph, Replication]:
    """The adjacency whose rows are partitioned, and the types whose rows every rank holds.

    For a graph with types, the adjacency is the union, which is stored if it is not yet, without the columns of
    replicated types: no rank waits for their rows.

    Args:
        plans: the method of the options need not fit in memory.

    Raises:
        BudgetError: the partitioner would need more memory than there is, whatever edges the relations share.
    """
    if isinstance(graph, Graph):
        return graph, Replication()
    direction = BOTH if options.reverse else FORWARD
    reverses = reverse_relations(dataset, graph, cluster) if options.replicate == (AUTO,) else None
    replication = choose_replicated(graph, options.replicate, options.parts, direction, reverses)
    spec = UnionSpec(direction, replication.types)
    check = None if plans or not 1 < options.parts < graph.num_vertices else options.partitioner.check
    if check is not None:
        # Before the union is made, which may take longer than the partition.
        check(options, graph.num_vertices, least_entries(graph, spec), is_symmetric=spec.is_symmetric)
    return union_graph(dataset, graph, spec, cluster), replication


def _make_part(problem: PartitionProblem, partitioner: Partitioner) -> None:
    """Find the parts and store them, unless an earlier run got that far."""
    writer = problem.writer
    if writer.recorded_of([_PART]):
        return
    # Parts that are computed again may differ, so facts about the former ones are dropped.
    for task in writer.recorded("parts/"):
        writer.forget(task)
    # One part sends nothing, and a part of one vertex cannot lose it.
    passes = problem.options.cover_passes if 1 < problem.options.parts < problem.graph.num_vertices else 0
    if passes:
        check_cover_memory(problem.graph, problem.options)
    with one_step(f"partition by {partitioner.name}"), writer.task(_PART) as output:
        part = create_part_vector(problem.part_path, problem.graph.num_vertices)
        output.facts = partitioner.fill(problem, part)
        if passes:
            refine_cover(problem, part, passes)
        # The tasks map this file, and on a shared file system see it only once it is written back.
        part.flush()
        output.add(create_array(writer.path, "part", part.shape, part.dtype, ("vertex",)))
        phase = store_phase(len(part), problem.options.parts, f"method {partitioner.name}", writer, problem.part_path)
        for record in writer.recorded_of(run([phase], problem.cluster, writer)).values():
            output.arrays += record.arrays
    del part
    problem.part_path.unlink()


def _measure(problem: PartitionProblem) -> None:
    """Record the partition's quality; directed graphs exchange different rows in the backward pass."""
    options, writer = problem.options, problem.writer
    if writer.recorded_of([_QUALITY]):
        return
    with one_step("measure the partition"), writer.task(_QUALITY) as output:
        where = options.parts, problem.cluster.memory, options.weighing, writer, writer.work / "parts"
        covers = options.exchange == EXCHANGES[1]
        plan = MeasurePlan.of(problem.graph, problem.transpose, *where, covers=covers)
        if plan.phases():
            (record,) = writer.recorded_of([_PART])[_PART].arrays
            # Tasks look up parts in no order: in a plain file, made of the parts that are stored.
            copy_vector(ArrayReader(writer.path, record), plan.part_path)
        record_quality(output, plan, problem.cluster, options.method, options.imbalance)


@dataclass(frozen=True)
class _StoreTask:
    """Checks and writes a range of the parts."""

    writer: ArtifactWriter
    part_path: Path
    parts: int
    source: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"parts/store/{self.start:012d}"

    @property
    def needs(self) -> Needs:
        num_bytes = 4 * (self.stop - self.start)
        return Needs(num_bytes, num_bytes, opens=1, memory=2 * num_bytes)


def store_phase(num_vertices: int, parts: int, source: str, writer: ArtifactWriter, part_path: Path) -> Phase:
    """The phase that stores parts as rows of the array ``part``, which exists.

    Its tasks raise PartitionerError if a part is not in 0..P-1.

    Args:
        parts: number of parts P.
        source: the maker of the parts, for errors.
        part_path: file of the (num_vertices,) int32 parts, which the tasks map.
    """
    # One chunk for each task: no chunk has two writers.
    rows = default_chunk_rows((num_vertices,), np.dtype(np.int32))
    where = writer, part_path, parts, source
    tasks = [_StoreTask(*where, start, min(start + rows, num_vertices)) for start in range(0, num_vertices, rows)]
    return Phase("store parts", _store_rows, tasks, "vertices", makes_arrays=True)


def _store_rows(task: _StoreTask) -> int:
    piece = np.array(map_part_vector(task.part_path)[task.start : task.stop])
    # The counters are compiled without bounds checks: a part out of range would make them write anywhere.
    check_part(piece, len(piece), task.parts, task.source)
    with task.writer.task(task.name) as output:
        output.add(write_rows(task.writer.path, "part", task.start, piece))
    return len(piece)


def _versioned_name(partitioner: Partitioner, quality: Mapping[str, Any]) -> str:
    # The description of a choice begins with the name of a method, or with the name of a start that is not a method.
    chosen = str(quality.get("chosen", "")).partition(" ")[0]
    package = METHODS.get(chosen, partitioner).package
    return f"{package} {version(package)}" if package else partitioner.name
