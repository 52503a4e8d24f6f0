"""Projects the tasks, memory per worker, disk and, if known, time of making shards, before it runs.

Counts of vertices, nonzeros, halos and tasks are exact if the graph and the partition exist, because these are in their
manifests. Otherwise :func:`row_needs` and :func:`grid_needs` take estimated sizes.
Bytes on disk assume that the shards compress like the graph and the vertex data that they are made from.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from gnnloom.pipeline.shards.grid.grid_plan import GridPlaces, GridPlan
from gnnloom.pipeline.shards.grid.typed_grid_plan import TypedGridPlaces, TypedGridPlan
from gnnloom.pipeline.shards.grid.typed_grid_stage import typed_grid_plan
from gnnloom.pipeline.shards.rows.row_plan import row_phases
from gnnloom.pipeline.shards.rows.row_shuffles import RowPlaces
from gnnloom.pipeline.shards.rows.typed_stage import replicating_spec, typed_source
from gnnloom.pipeline.shards.shard_keys import (
    grid_shards_key,
    row_shards_key,
    typed_grid_inputs,
    typed_grid_shards_key,
    typed_inputs,
    typed_row_shards_key,
)
from gnnloom.pipeline.shards.shard_options import GridOptions
from gnnloom.pipeline.shards.shard_source import ShardSource, find_transpose, find_vertices
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.pipeline.tasks.phase import Phase, count, temporary_bytes, total_tasks
from gnnloom.pipeline.tasks.sizes import PartSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.typed.reverses import reverses_of
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.artifacts.typed.union import union_of
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class ShardProjection:
    """Expected needs of making shards.

    Attributes:
        key: key of the shards.
        is_done: the shards exist, so nothing will run.
        tasks: independent tasks, including tasks of the transpose of a directed graph if it does not exist.
        workers: tasks at a time.
        peak_memory: bytes of the largest worker process, at most.
        read_bytes: stored graph and vertex data.
        spill_bytes: temporary files, at their peak.
        output_bytes: the shards on disk, an estimate.
        disk_free_bytes: bytes free on the disk.
        seconds: wall time, from shards of the same layout and graph that were made before; None if there are none.
        seconds_from: key of those shards.
    """

    dataset: str
    layout: str
    key: str
    is_done: bool
    tasks: int
    workers: int
    peak_memory: int
    read_bytes: int
    spill_bytes: int
    output_bytes: int
    disk_free_bytes: int
    seconds: float | None
    seconds_from: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ShardNeeds:
    """Needs of making shards, whether or not the inputs exist yet; see :class:`ShardProjection`."""

    tasks: int
    peak_memory: int
    spill_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class _Inputs:
    """The artifacts that shards are made from."""

    dataset: Dataset
    graph: Graph
    vertices: Vertices | None

    @property
    def keys(self) -> dict[str, str]:
        return {"graph": self.graph.artifact.key} | ({"vertices": self.vertices.artifact.key} if self.vertices else {})

    @cached_property
    def sizes(self) -> ShardSource:
        return ShardSource.of(self.graph, self.vertices, find_transpose(self.dataset, self.graph))


def project_row_shards(
    dataset: Dataset, partition: Partition, workers: int, vertices: Vertices | None = None, reorder: str = "none"
) -> ShardProjection:
    """Project the row shards of a partition.

    Args:
        reorder: order of a rank's rows.

    Raises:
        InputError: the dataset has several vertices artifacts to choose from.
    """
    inputs = _find_inputs(dataset, dataset.graph(partition.artifact.inputs["graph"]), vertices)
    keys = {**inputs.keys, "partition": partition.artifact.key}
    key = row_shards_key(partition.num_parts, partition.method, keys, reorder)
    needs = row_needs(inputs.sizes, PartSizes.of(partition), reorder)
    return _projection(inputs, "row", key, needs, workers)


def project_typed_row_shards(dataset: Dataset, partition: Partition, workers: int) -> ShardProjection:
    """Project the row shards of a partition of a graph with types, with the data of all types.

    Raises:
        InputError: a type has several vertex data to choose from.
    """
    graph = dataset.typed_graph(partition.artifact.inputs["graph"])
    data = dataset.vertices_of_types(graph.artifact.key)
    parameters, spec = partition.artifact.parameters, replicating_spec(partition)
    # The partition was made from the union, and from the reverses if it counts them.
    union = Graph(dataset.find("transpose", made_from={"graph": graph.artifact.key}, **spec.asked))
    stored = union_of(union.artifact).reverses
    reverses = None if stored is None else reverses_of(Artifact(stored))
    source = typed_source(graph, reverses, spec, union, data)
    keys = typed_inputs(
        graph.artifact.key, partition.artifact.key, {name: each.artifact.key for name, each in data.items()}
    )
    key = typed_row_shards_key(
        partition.num_parts,
        partition.method,
        keys,
        reverse=bool(parameters.get("reverse")),
        replicate=tuple(parameters.get("replicate", ())),
    )
    needs = row_needs(source, replace(PartSizes.of(partition), sent_back=()))
    size = graph.artifact.stored_bytes() + sum(each.artifact.stored_bytes() for each in data.values())
    return _stated(dataset, "row", key, needs, workers, size, graph.artifact.key)


def row_needs(source: ShardSource, parts: PartSizes, reorder: str = "none") -> ShardNeeds:
    """Memory, disk space and tasks of making the row shards.

    Args:
        reorder: order of a rank's rows.
    """
    # The numbers of the vertices are in files that all tasks map.
    num_bytes = source.graph.num_vertices * index_dtype(source.graph.num_vertices).itemsize
    numbers = num_bytes * (1 if reorder == "none" else 2)
    phases = row_phases(source, parts, RowPlaces(), reorder)
    return _needs(source, phases, source.vertex_bytes, numbers)


def project_grid_shards(
    dataset: Dataset,
    graph: Graph,
    options: GridOptions,
    partition: Partition | None,
    workers: int,
    memory: int,
    vertices: Vertices | None = None,
) -> ShardProjection:
    """Project the grid shards of a graph.

    Args:
        partition: for permutation ``partition``.
        memory: bytes per worker, which limit the buffers.

    Raises:
        InputError: the dataset has several vertices artifacts to choose from.
        BudgetError: a worker's memory is too small for any buffer.
    """
    inputs = _find_inputs(dataset, graph, vertices)
    parts = (partition.num_parts, partition.method) if partition else ()
    keys = inputs.keys | ({"partition": partition.artifact.key} if partition else {})
    needs = grid_needs(inputs.sizes, options, memory)
    return _projection(inputs, "grid", grid_shards_key(options, keys, *parts), needs, workers)


def grid_needs(source: ShardSource, options: GridOptions, memory: int) -> ShardNeeds:
    """Needs of making grid shards.

    Args:
        memory: bytes per worker, which limit the buffers.

    Raises:
        BudgetError: a worker's memory is too small for any buffer.
    """
    plan = GridPlan(source, options, memory, GridPlaces())
    return _needs(source, plan.phases(), len(plan.stored_orders) * source.vertex_bytes)


def project_typed_grid_shards(
    dataset: Dataset, graph: TypedGraph, options: GridOptions, workers: int, memory: int
) -> ShardProjection:
    """Project the grid shards of a graph with types, once the reverses of its relations exist.

    Args:
        memory: bytes per worker, which limit the buffers.

    Raises:
        BudgetError: a worker's memory is too small for any buffer.
    """
    data = dataset.vertices_of_types(graph.artifact.key)
    needs = typed_grid_needs(typed_grid_plan(graph, None, data, options, memory, TypedGridPlaces()))
    inputs = typed_grid_inputs(graph.artifact.key, {name: each.artifact.key for name, each in data.items()})
    key = typed_grid_shards_key(options, inputs)
    stored = graph.artifact.stored_bytes() + sum(each.artifact.stored_bytes() for each in data.values())
    return _stated(dataset, "grid", key, needs, workers, stored, graph.artifact.key)


def typed_grid_needs(plan: TypedGridPlan) -> ShardNeeds:
    """Needs of making the grid shards of a graph with types; bytes on disk are before compression.

    Raises:
        BudgetError: a worker's memory is too small for any buffer.
    """
    phases = plan.phases()
    counted = count(phases)
    return ShardNeeds(
        tasks=total_tasks(counted),
        peak_memory=BASE_MEMORY + max(phase.most_memory for phase in counted),
        spill_bytes=temporary_bytes(phases),
        output_bytes=sum(task.needs.writes for phase in phases if phase.makes_arrays for task in phase.tasks),
    )


def _needs(source: ShardSource, phases: Sequence[Phase], vertex_bytes: int, mapped: int = 0) -> ShardNeeds:
    """Needs of the phases that make shards.

    Args:
        vertex_bytes: of the vertex data that are written.
        mapped: bytes of files that all tasks map, and the phases do not count. Their pages count as a worker's memory,
            although the system takes them back when it needs them.
    """
    counted = count(phases)
    written = sum(task.needs.writes for phase in phases if phase.makes_arrays for task in phase.tasks)
    return ShardNeeds(
        tasks=total_tasks(counted) + source.transpose_tasks,
        peak_memory=BASE_MEMORY + mapped + max(phase.most_memory for phase in counted),
        spill_bytes=temporary_bytes(phases) + mapped,
        output_bytes=source.compressed(written - vertex_bytes, vertex_bytes),
    )


def _find_inputs(dataset: Dataset, graph: Graph, vertices: Vertices | None) -> _Inputs:
    return _Inputs(dataset, graph, vertices or find_vertices(dataset, graph.artifact.key))


def _projection(inputs: _Inputs, layout: str, key: str, needs: ShardNeeds, workers: int) -> ShardProjection:
    sizes = inputs.sizes
    stored = sizes.graph.stored_bytes + (sizes.vertices.stored_bytes if sizes.vertices else 0)
    return _stated(inputs.dataset, layout, key, needs, workers, stored, inputs.graph.artifact.key)


def _stated(
    dataset: Dataset, layout: str, key: str, needs: ShardNeeds, workers: int, stored: int, graph: str
) -> ShardProjection:
    """State the needs of shards.

    Args:
        stored: bytes of the graph and the vertex data on disk.
        graph: key of the graph.
    """
    is_done = (dataset.path / "shards" / key / MANIFEST).exists()
    work, known = known_work(dataset, layout, graph)
    seconds = None if work is None else round(work / max(1, workers), 2)
    return ShardProjection(
        dataset=dataset.name,
        layout=layout,
        key=key,
        is_done=is_done,
        tasks=0 if is_done else needs.tasks,
        workers=workers,
        peak_memory=needs.peak_memory,
        read_bytes=stored,
        spill_bytes=0 if is_done else needs.spill_bytes,
        output_bytes=0 if is_done else needs.output_bytes,
        disk_free_bytes=shutil.disk_usage(dataset.path).free,
        seconds=0.0 if is_done else seconds,
        seconds_from=known,
    )


def known_work(dataset: Dataset, layout: str, graph: str) -> tuple[float | None, str | None]:
    """The processor seconds of shards that were made before, and their key; None if there are none.

    Args:
        layout: ``row`` or ``grid``.
        graph: key of the graph.
    """
    for info in dataset.artifacts("shards"):
        if info.state == "complete" and info.parameters.get("layout") == layout:
            made = Artifact(info.path)
            if made.inputs.get("graph") == graph:
                return sum(made.measured["task_seconds"].values()), made.key
    return None, None
