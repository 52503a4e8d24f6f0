"""What the stages of a recipe will need, and what the ranks of its training will do, before anything runs.

Every figure comes from the stage's own projection, as in ``gnnloom ingest --plan``, ``partition --plan``, ``shard
--plan`` and ``train --plan``, or is counted from the plans with which stages run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.pipeline.tasks.phase import PhaseCount
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.schema import SCHEMAS
from gnnloom.storage.format.sections import planned_metadata
from gnnloom.storage.shards.grid_variants import stored_variants
from gnnloom.storage.wording import counted
from gnnloom.trainer.algorithms.steps import Volume
from gnnloom.trainer.algorithms.workload import Exchange
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.candidates import steps_of
from gnnloom.trainer.planner.describe import GraphFacts, exchanges_of, workload
from gnnloom.trainer.planner.law import ExchangeLaw
from gnnloom.trainer.planner.memory import project_new_training
from gnnloom.trainer.planner.pair_steps import PairFacts
from gnnloom.trainer.training.rehearsal.projection import TrainProjection, prediction_bytes, project_training
from gnnloom.workflows.formatting import readable_estimate
from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs
from gnnloom.workflows.recipe.request import Assignment
from gnnloom.workflows.recipe.stages import Stage

_PLACES = MappingProxyType({"disk": "on disk", "memory": "in memory"})
#: What a projection assumes of a partition that does not exist yet.
_RANDOM_PARTS = "exchange as for random parts, an upper bound"


@dataclass(frozen=True)
class Projection:
    """What one stage will need; None where it is not known before an earlier stage is done.

    Attributes:
        memory: bytes of the largest process.
        disk: bytes of the artifact or run.
        scratch: bytes of temporary files.
        seconds: processor seconds of all processes.
        note: what the figures assume.
        phases: what the tasks of each phase will do, as far as the stage counts that.
        rank: what a rank will do, if the stage trains.
    """

    stage: str
    key: str
    is_done: bool
    memory: int | None = None
    disk: int | None = None
    scratch: int | None = None
    seconds: float | None = None
    note: str = ""
    phases: tuple[PhaseCount, ...] = ()
    rank: RankCount | None = None

    def to_json(self) -> dict[str, Any]:
        content = asdict(self)
        return {"done" if name == "is_done" else name: value for name, value in content.items()}


def project_recipe(assignment: Assignment) -> list[Projection]:
    """Project the stages that were asked for.

    Raises:
        InputError: the source cannot be read.
        BudgetError: the ingest does not fit the memory or the disk.
    """
    inputs = StageInputs(assignment)
    return [
        Projection(stage.name, stage.key, is_done=True) if stage.is_done else _PROJECTIONS[stage.name](stage, inputs)
        for stage in assignment.workload.stages
    ]


def _graph(stage: Stage, inputs: StageInputs) -> Projection:
    found, graph = inputs.ingest, inputs.ingested
    note = f"{readable_estimate(graph.num_vertices)} vertices and {readable_estimate(graph.nnz)} entries"
    return Projection(
        stage.name,
        stage.key,
        False,
        found.peak_memory,
        found.output_bytes,
        found.spill_bytes,
        found.work,
        note,
        tuple(inputs.graph_phases),
    )


def _vertices(stage: Stage, inputs: StageInputs) -> Projection:
    vertices, memory = inputs.vertices, inputs.assignment.cluster.memory
    note = counted(vertices.num_features, "feature") if vertices.num_features else "features not read yet"
    note = f"{note}; disk space before compression"
    phases = tuple(inputs.vertex_phases)
    return Projection(stage.name, stage.key, False, memory, vertices.stored_bytes, 0, None, note, phases)


def _links(stage: Stage, inputs: StageInputs) -> Projection:
    phases = tuple(inputs.link_phases)
    memory = BASE_MEMORY + max(phase.most_memory for phase in phases)
    disk, scratch = inputs.link_bytes
    held_out = inputs.ingested.nnz - inputs.graph.nnz
    note = f"{readable_estimate(held_out)} entries held out; disk space before compression"
    return Projection(stage.name, stage.key, False, memory, disk, scratch, None, note, phases)


def _partition(stage: Stage, inputs: StageInputs) -> Projection:
    cost = inputs.partitioning
    note = f"{cost.method} {cost.preset}".strip()
    disk = 4 * inputs.graph.num_vertices
    phases = tuple(inputs.partition_phases)
    return Projection(stage.name, stage.key, False, cost.memory, disk, cost.disk, cost.cpu_seconds, note, phases)


def _shards(stage: Stage, inputs: StageInputs) -> Projection:
    needs, note = inputs.shard_needs, _RANDOM_PARTS if inputs.expects_random_parts else ""
    return Projection(
        stage.name,
        stage.key,
        False,
        needs.peak_memory,
        needs.output_bytes,
        needs.spill_bytes,
        inputs.shard_seconds,
        note,
        tuple(inputs.shard_phases),
    )


def _samples(stage: Stage, inputs: StageInputs) -> Projection:
    memory, note = inputs.assignment.cluster.memory, "disk and memory: `gnnloom sample --plan`, once the graph exists"
    return Projection(stage.name, stage.key, False, memory, note=note)


def _propagated(stage: Stage, inputs: StageInputs) -> Projection:
    plan = inputs.propagation
    if plan is None:
        return Projection(stage.name, stage.key, False, note="features not read yet")
    found = plan.described()
    at_a_time, passes, place = (found[name] for name in ("columns_at_a_time", "passes", "adjacency"))
    note = f"{counted(at_a_time, 'column')} at a time in {counted(passes, 'pass')}, adjacency {_PLACES[place]}"
    note += f"; {_RANDOM_PARTS}" if inputs.expects_random_parts else ""
    return Projection(
        stage.name, stage.key, False, found["peak_memory"], found["bytes_written"], found["temporary_bytes"], None, note
    )


def _train(stage: Stage, inputs: StageInputs) -> Projection:
    plan = _training(inputs)
    note = counted(plan.ranks, "rank") + (f"; {_RANDOM_PARTS}" if inputs.expects_random_parts else "")
    seconds = None if plan.seconds is None else plan.seconds * plan.ranks
    memory, rank = max(plan.peak_memory), count_rank(inputs, plan)
    return Projection(stage.name, stage.key, False, memory, plan.written_bytes, 0, seconds, note, rank=rank)


def _predict(stage: Stage, inputs: StageInputs) -> Projection:
    config, section = inputs.assignment.workload.config, inputs.recipe.predict
    embeds, smooths = (False, False) if section is None else (section.embeddings, section.smooths)
    disk = prediction_bytes(inputs.shards, config, embeddings=embeds, smooths=smooths)
    memory = max(_training(inputs).peak_memory)
    return Projection(stage.name, stage.key, False, memory, disk, 0, None, "disk space before compression")


def _training(inputs: StageInputs) -> TrainProjection:
    config = inputs.assignment.workload.config
    if inputs.has_inputs_of_training:
        return project_training(config)
    return project_new_training(config, inputs.shards, inputs.num_inputs, _pairs(inputs))


def _pairs(inputs: StageInputs) -> PairFacts | None:
    """The training pairs of a recipe; None for a task on vertices."""
    count = inputs.num_training_pairs
    return None if count is None else PairFacts.of(inputs.assignment.workload.config, count)


_PROJECTIONS: Mapping[str, Callable[[Stage, StageInputs], Projection]] = MappingProxyType(
    {
        "graph": _graph,
        "vertices": _vertices,
        "links": _links,
        "partition": _partition,
        "shards": _shards,
        "samples": _samples,
        "propagated": _propagated,
        "train": _train,
        "predict": _predict,
    }
)


@dataclass(frozen=True)
class RankCount:
    """The rank with most bytes; for messages, the average rank.

    Attributes:
        bytes_read: of shards, before the first epoch.
        bytes_held: at the peak.
        metadata: bytes of manifests that it parses.
        messages, bytes_sent: in an epoch; None for what the planner does not know, as for modes that sample.
    """

    ranks: int
    bytes_read: int
    bytes_held: int
    metadata: int
    messages: float | None
    bytes_sent: float | None


def count_rank(inputs: StageInputs, plan: TrainProjection) -> RankCount:
    """Count for the training of a recipe.

    Args:
        plan: the projected training.
    """
    config = inputs.assignment.workload.config
    messages, sent = _traffic(inputs, config)
    return RankCount(plan.ranks, plan.read_bytes, max(plan.peak_memory), _metadata(inputs, plan), messages, sent)


def _traffic(inputs: StageInputs, config: TrainConfig) -> tuple[float | None, float | None]:
    """Messages and bytes that a rank sends in an epoch, on average."""
    graph, shards = inputs.graph, inputs.shards
    pairs = _pairs(inputs)
    facts = GraphFacts(
        num_vertices=graph.num_vertices,
        nnz=graph.nnz,
        num_features=shards.num_features,
        num_outputs=shards.num_outputs,
        # Which vertices are trained on changes no message.
        num_training=graph.num_vertices,
        symmetric=graph.symmetric,
        weighted=graph.weighted,
        one_class=pairs is None,
        pairs=pairs,
    )
    try:
        once, each, count = steps_of(config, workload(config, facts, _exchanges(inputs, config.ranks)), pairs)
        volume = Volume.of(once).and_times(Volume.of(each), count)
    except InputError:
        return None, None
    return sum(volume.messages.values()) / config.ranks, sum(volume.bytes.values()) / config.ranks


def _exchanges(inputs: StageInputs, ranks: int) -> tuple[Exchange, Exchange] | None:
    """What the parts exchange: measured, or expected of random parts."""
    if inputs.recipe.grid is not None:
        return None
    if inputs.stored_partition is not None:
        return exchanges_of(inputs.stored_partition)
    expected = ExchangeLaw.fitted(inputs.graph.num_vertices, inputs.graph.nnz, []).at(ranks)
    return None if expected is None else (expected, expected)


def _metadata(inputs: StageInputs, plan: TrainProjection) -> int:
    """Bytes of manifests that a rank parses, at most."""
    grid, ranks = inputs.recipe.grid, plan.ranks
    if grid is None:
        return planned_metadata(ranks, _arrays_of("row"), plan.read_bytes)
    rows, columns = grid.grid
    stored = stored_variants(symmetric=inputs.graph.symmetric, double=grid.permutation == "double")
    variants = len(set(stored.values()))
    # A window of 1/P of all blocks overlaps as many cells, and those that it cuts at its borders.
    cells = min(rows * columns, rows * columns // ranks + rows + columns + 1)
    arrays = variants * cells * _arrays_of("grid") + (rows + columns) * _arrays_of("order")
    return planned_metadata(variants * rows * columns + 2 * (rows + columns), arrays, plan.read_bytes)


def _arrays_of(place: str) -> int:
    """Arrays, at most, of one shard, one cell, or one range of an order."""
    return sum(name.startswith(f"{place}/") for name in SCHEMAS["shards"])
