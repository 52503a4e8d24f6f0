"""The workload of an epoch, from a configuration and the sizes of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import NO_LABEL, SPLIT
from gnnloom.storage.wording import shell_command
from gnnloom.trainer.algorithms.steps import Communication, ElementWork, Operation, Step
from gnnloom.trainer.algorithms.workload import Exchange, Workload
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.config.algorithm_config import AlgorithmConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.models.kind import ModelWork, Widths
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.modes.registry import MODES
from gnnloom.trainer.planner.pair_steps import PairFacts

#: Number of vertices per read of splits and labels.
_CHUNK_ROWS = 1 << 22
#: Whether each normalization scales features before a forward product and gradients before a backward one: by its right
#: factors and by its left ones, where these are not all 1.
SCALED_SIDES = {"symmetric": (True, True), "mean": (False, True), "none": (False, False)}
#: Sums over ranks, and the sums that are features afterwards; gradients of weights are not.
_SUMS = (Operation.ALL_REDUCE, Operation.REDUCE_SCATTER)
_FEATURE_SUMS = (
    Kind.PROPAGATE_FORWARD,
    Kind.PROPAGATE_BACKWARD,
    Kind.TRANSFORM_FORWARD,
    Kind.TRANSFORM_BACKWARD,
)


@dataclass(frozen=True, kw_only=True)
class GraphFacts:
    """Facts about a graph and its vertex data on which an epoch depends.

    Attributes:
        nnz: nonzeros of the adjacency, self loops included.
        num_outputs: width of the model's output.
        num_training: labeled vertices of the training split.
        one_class: the task couples the columns of scores, as a softmax does.
        pairs: facts about the training pairs, for tasks on pairs.
    """

    num_vertices: int
    nnz: int
    num_features: int
    num_outputs: int
    num_training: int
    symmetric: bool = True
    weighted: bool = False
    one_class: bool = True
    pairs: PairFacts | None = None


def count_training(vertices: Vertices) -> int:
    """Number of labeled vertices in the training split; reads the split and the labels."""
    if not vertices.has_split:
        return 0
    total = 0
    for start in range(0, vertices.num_vertices, _CHUNK_ROWS):
        stop = min(start + _CHUNK_ROWS, vertices.num_vertices)
        chosen = vertices.split(start, stop) == SPLIT["train"]
        if vertices.has_label:
            chosen &= vertices.label(start, stop) != NO_LABEL
        total += int(np.count_nonzero(chosen))
    return total


def exchanges_of(partition: Partition) -> tuple[Exchange, Exchange]:
    """Rows that the parts exchange for a product, and for a product with the transpose, as stored with the partition.

    Raises:
        InputError: the partition was not measured, or its manifest is damaged.
    """
    if "volume_total" not in partition.quality:
        raise InputError(f"{partition.artifact.path}: the partition has no measured volume")
    return _exchanges(partition, "")


def covers_of(partition: Partition) -> tuple[Exchange, Exchange] | None:
    """Rows and sums that the parts exchange if sums may replace rows; None if the partition does not count them.

    Raises:
        InputError: its manifest is damaged.
    """
    return _exchanges(partition, "cover_") if "volume_cover_total" in partition.quality else None


def _exchanges(partition: Partition, kind: str) -> tuple[Exchange, Exchange]:
    is_directed = f"volume_{kind}backward_total" in partition.quality
    try:
        forward = _exchange(partition, kind)
        return forward, _exchange(partition, f"{kind}backward_") if is_directed else forward
    except KeyError as error:
        raise InputError(f"{partition.artifact.path}: the partition lacks {error}; make it again") from None


def _exchange(partition: Partition, direction: str) -> Exchange:
    quality = partition.quality
    return Exchange(
        rows=quality[f"volume_{direction}total"],
        messages=quality[f"messages_{direction}total"],
        busiest_rows=max(quality[f"volume_{direction}max"], quality[f"receive_volume_{direction}max"]),
        busiest_messages=quality[f"messages_{direction}max"],
    )


def work_of(config: TrainConfig) -> ModelWork:
    """Work of the configured model's layers.

    Raises:
        InputError: the mode samples, or the model comes from another package and states no work.
    """
    if config.mode.kind.is_sampled:
        planned = ", ".join(name for name, kind in MODES.items() if not kind.is_sampled)
        raise InputError(
            f"mode {config.mode.name}: its epochs depend on the batches that are drawn, and the planner knows only mode"
            f" {planned}; `gnnloom train --mode {config.mode.name} --plan` projects memory and disk space"
        )
    if config.model.kind.is_rowwise:
        raise InputError(
            f"model {config.model.name} does not multiply by the adjacency, so its epochs take the same time on every"
            f" algorithm and partition; `{shell_command('gnnloom', 'train', '--model', config.model.name, '--plan')}`"
            " projects memory and disk space"
        )
    work = config.model.work
    if work is None:
        known = ", ".join(name for name, kind in MODELS.items() if kind.work is not None)
        raise InputError(f"model {config.model.name}: the planner knows only {known}")
    return work


def workload(
    config: TrainConfig,
    graph: GraphFacts,
    exchanges: tuple[Exchange, Exchange] | None = None,
    heaviest: float = 1.0,
) -> Workload:
    """The workload of a training run.

    Args:
        exchanges: exchanges for the product and for the product with the transpose, if the vertices are partitioned.
        heaviest: nonzeros of the busiest rank over the average.

    Raises:
        InputError: the model does not state the work of its layers, or the mode samples.
    """
    known = work_of(config)
    options = config.options_of_model(graph.num_features, graph.num_outputs)
    before, after = options.dims[:-1], options.dims[1:]
    inner = tuple(known.inner(after, options.own))
    size = np.dtype(config.model.dtype).itemsize
    matrices, vectors = known.parameters(Widths(before, inner, after, options.bias, options.own))
    forward, back = exchanges or (None, None)
    return Workload(
        num_vertices=graph.num_vertices,
        nnz=graph.nnz,
        num_training=graph.num_training,
        dims=options.dims,
        inner=inner,
        propagates_first=tuple(options.propagates_first(layer, width) for layer, width in enumerate(inner)),
        input_is_kept=options.input_is_kept,
        input_needs_gradient=options.input_needs_gradient,
        weights=known.weights,
        adds_own=known.adds_own,
        attends=known.attends,
        vectors=vectors + (2 * sum(after[:-1]) if config.model.norm != "none" else 0),
        matrices=matrices,
        norm=config.model.norm,
        residual=config.model.residual,
        unit_embedding=config.model.unit_embedding,
        clips=bool(config.optimization.clip_norm),
        splits_classes=graph.one_class and not config.task.is_own_loss,
        double_order=config.data.permutation in {None, "double"},
        feature_size=config.model.feature_bytes,
        parameter_size=size,
        score_size=size,
        value_size=size if graph.weighted else 0,
        scaled_sides=SCALED_SIDES[config.model.normalization],
        heaviest=heaviest,
        exchange=forward,
        exchange_back=back,
    )


def epoch_steps(config: AlgorithmConfig, work: Workload) -> list[Step]:
    """The steps of an epoch of the configured algorithm.

    Raises:
        InputError: the algorithm does not state its steps.
    """
    algorithm = config.kind
    if algorithm.steps is None:
        raise InputError(f"algorithm {algorithm.name}: its traffic is unknown, because it states no steps")
    found = algorithm.steps(work, config.axes, config.own_options())
    if work.feature_size == work.parameter_size:
        return found
    return [each for step in found for each in (step, *_conversions(step))]


def _conversions(step: Step) -> Iterator[Step]:
    """The passes that widen features before they are summed over ranks, and that narrow these sums.

    Summed sparse products are written in the dtype of sums; dense products are not.
    """
    if isinstance(step, Communication) and step.operation in _SUMS and step.kind in _FEATURE_SUMS:
        held = step.elements / step.groups
        narrowed = held / step.group if step.operation is Operation.REDUCE_SCATTER else held
        widened = held if step.kind in {Kind.TRANSFORM_FORWARD, Kind.TRANSFORM_BACKWARD} else 0.0
        yield ElementWork(numbers=2 * (widened + narrowed), calls=1 + bool(widened))
