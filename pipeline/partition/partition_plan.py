"""Projects a partition before anything runs: the tasks of the stage, and the resources of every method."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnloom.pipeline.partition.choice import MOST_PINS
from gnnloom.pipeline.partition.cover_cost import with_cover_passes
from gnnloom.pipeline.partition.measure.quality import MeasurePlan
from gnnloom.pipeline.partition.multilevel.pieces import Setting
from gnnloom.pipeline.partition.multilevel.plan import boundary_phases, method_phases
from gnnloom.pipeline.partition.multilevel.ways import measure_structure
from gnnloom.pipeline.partition.options import METHODS, PartitionOptions
from gnnloom.pipeline.partition.partitioner import PartitionWorkload, Structure
from gnnloom.pipeline.partition.settings import EXCHANGES, check_parts
from gnnloom.pipeline.partition.stage import store_phase
from gnnloom.pipeline.partition.stochastic.batch_partition import expected_phases
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY
from gnnloom.pipeline.tasks.phase import PhaseCount, count
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.machine_memory import available_memory


def partition_counts(
    graph: GraphSizes, transpose: GraphSizes, options: PartitionOptions | None, workers: int, memory: int
) -> list[PhaseCount]:
    """Count what the tasks do that make, store and measure a partition, without running them.

    Args:
        transpose: sizes of the transpose; the graph's sizes if it is undirected.
        options: of the partition; None for a single part, which no task makes.
        workers: tasks at a time.
        memory: bytes that a worker may use.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    parts = options.parts if options else 1
    store = store_phase(graph.num_vertices, parts, "", ArtifactWriter(Path(), "partition", ""), Path())
    covers = options is not None and options.exchange == EXCHANGES[1]
    measured = count([store, *MeasurePlan(graph, transpose, parts, memory, covers=covers).phases()])
    # One part, or a part for each vertex, leaves no choice.
    if options is None or parts in {1, graph.num_vertices}:
        return measured
    if options.model == "stochastic":
        return [*count(expected_phases(graph, transpose, options)), *measured]
    directions = 2 if options.directions == "both" and not graph.symmetric else 1
    how = graph, Setting(parts, workers, memory), options.method, options.preset, directions
    return [*count([*method_phases(*how), *boundary_phases(*how)]), *measured]


@dataclass(frozen=True)
class MethodProjection:
    """The resources that one preset of a method would take.

    Attributes:
        preset: name of the preset; empty if the method has none.
        model: the model that is partitioned: the requested one, or the method's first if it does not offer it.
        memory: bytes at the peak, in one process.
        disk: bytes of scratch files.
        cpu_seconds: processor seconds of all threads.
        fits: whether there is enough memory.
        chosen: the choice of a method that chooses among others, with the reason; empty for all others.
    """

    method: str
    preset: str
    model: str
    memory: int
    disk: int
    cpu_seconds: float
    fits: bool
    chosen: str = ""


def project_methods(
    graph: Graph,
    parts: int,
    memory: int | None = None,
    worker_memory: int = DEFAULT_MEMORY,
    model: str = "",
    directions: str = "forward",
    batches: str = "vertex",
    exchange: str = EXCHANGES[0],
    cover_passes: int = 0,
) -> list[MethodProjection]:
    """Project the cost of every preset of every method for a graph.

    Args:
        memory: bytes that may be used; None for what this machine has.
        worker_memory: bytes of a worker, to which ``multilevel`` coarsens.
        model: for the methods that offer it.
        directions: for the models that distinguish them.
        batches: for model ``stochastic``.
        exchange: for the levels of ``--quality``.
        cover_passes: passes of cover refinement after every method.

    Raises:
        InputError: there are more parts than vertices.
    """
    check_parts(parts, graph.num_vertices)
    allowed = available_memory() if memory is None else memory
    num_directions = 2 if directions == "both" and not graph.symmetric else 1
    structure = _measure(graph, num_directions)
    projections = []
    for name, method in METHODS.items():
        # Every method is listed, for comparison, even methods that do not offer the requested model.
        chosen = model if model in method.models else method.models[0]
        workload = PartitionWorkload(
            graph.num_vertices,
            graph.nnz,
            graph.symmetric,
            parts,
            chosen,
            num_directions,
            batches,
            worker_memory,
            structure,
            exchange,
            cover_passes,
        )
        for preset in method.presets:
            cost = with_cover_passes(method.cost(workload, preset), workload)
            fits = cost.memory <= allowed
            projections.append(
                MethodProjection(name, preset.name, chosen, cost.memory, cost.disk, cost.cpu_seconds, fits, cost.chosen)
            )
    return projections


def _measure(graph: Graph, num_directions: int) -> Structure | None:
    """Measure the graph as the stage would; None for graphs so large that nothing depends on it."""
    if num_directions * (graph.nnz + graph.num_vertices) > MOST_PINS:
        return None
    with own_folder("gnnloom-plan-") as folder:
        return measure_structure(graph, folder)
