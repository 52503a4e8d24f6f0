"""Forecasts the training run of a recipe, before anything runs."""

from __future__ import annotations

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
from gnnloom.trainer.training.rehearsal.projection import TrainProjection, UnknownMemoryError, project_training
from gnnloom.workflows.recipe.plan.stage_inputs import StageInputs
from gnnloom.workflows.recipe.stages.stage import RankCount, StageNeeds


def project_config(inputs: StageInputs) -> TrainProjection:
    """Forecast of a recipe's training run; from estimated sizes if its inputs do not exist yet."""
    config = inputs.config
    if inputs.has_inputs_of_training:
        return project_training(config)
    return project_new_training(config, inputs.shards, inputs.num_inputs, _pairs(inputs))


def typed_needs(inputs: StageInputs, *, predicts: bool = False) -> StageNeeds:
    """Needs of the training run of a recipe with relations, once all its inputs are stored.

    Args:
        predicts: return the needs of the prediction, which takes at most the memory of a run that ends with an
            evaluation.
    """
    found, ranks = inputs.found, counted(inputs.config.algorithm.ranks, "rank")
    read = {kind: found.keys[kind] for kind in ("graph", "links", "samples") if kind in found.keys}
    stored = [found.has(kind, key) for kind, key in [*read.items(), ("graph", found.read_graph)]]
    if not all(stored):
        return StageNeeds(scratch=0, note=f"{ranks}; memory: the same command, once the stages before have run")
    try:
        plan = project_training(inputs.config.with_options(final_eval=True) if predicts else inputs.config)
    except UnknownMemoryError as error:
        return StageNeeds(scratch=0, note=f"{ranks}; {error}")
    memory, scratch = max(plan.peak_memory), plan.temporary_bytes
    return StageNeeds(memory=memory, disk=None if predicts else plan.written_bytes, scratch=scratch, note=ranks)


def _pairs(inputs: StageInputs) -> PairFacts | None:
    """The training pairs of a recipe; None for a task on vertices."""
    count = inputs.num_training_pairs
    return None if count is None else PairFacts.of(inputs.config, count)


def count_rank(inputs: StageInputs, plan: TrainProjection) -> RankCount:
    """Count for the training of a recipe.

    Args:
        plan: the projected training run.
    """
    config = inputs.config
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
        # The choice of training vertices changes no message.
        num_training=graph.num_vertices,
        symmetric=graph.symmetric,
        weighted=graph.weighted,
        one_class=pairs is None,
        pairs=pairs,
    )
    try:
        once, each, count = steps_of(config, workload(config, facts, _exchanges(inputs, config.algorithm.ranks)), pairs)
        volume = Volume.of(once).and_times(Volume.of(each), count)
    except InputError:
        return None, None
    return sum(volume.messages.values()) / config.algorithm.ranks, sum(volume.bytes.values()) / config.algorithm.ranks


def _exchanges(inputs: StageInputs, ranks: int) -> tuple[Exchange, Exchange] | None:
    """Rows that the parts exchange: measured, or expected for random parts."""
    if inputs.recipe.grid is not None:
        return None
    if inputs.stored_partition is not None:
        return exchanges_of(inputs.stored_partition)
    expected = ExchangeLaw.fitted(inputs.graph.num_vertices, inputs.graph.nnz, []).at(ranks)
    return None if expected is None else (expected, expected)


def _metadata(inputs: StageInputs, plan: TrainProjection) -> int:
    """Maximum number of bytes of manifests that a rank parses."""
    grid, ranks = inputs.recipe.grid, plan.ranks
    if grid is None:
        return planned_metadata(ranks, _arrays_of("row"), plan.read_bytes)
    rows, columns = grid.grid
    stored = stored_variants(symmetric=inputs.graph.symmetric, double=grid.permutation == "double")
    variants = len(set(stored.values()))
    # A window of 1/P of all blocks overlaps 1/P of the cells, and the cells that its borders cut.
    cells = min(rows * columns, rows * columns // ranks + rows + columns + 1)
    arrays = variants * cells * _arrays_of("grid") + (rows + columns) * _arrays_of("order")
    return planned_metadata(variants * rows * columns + 2 * (rows + columns), arrays, plan.read_bytes)


def _arrays_of(place: str) -> int:
    """Maximum number of arrays of one shard, one cell, or one range of an order, of a graph without types."""
    names = (name for name in SCHEMAS["shards"] if "/relation/" not in name and "/type/" not in name)
    return sum(name.startswith(f"{place}/") for name in names)
