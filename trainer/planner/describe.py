"""The workload of a training: what its configuration and the sizes of a graph say about an epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.vertices import NO_LABEL, SPLIT, Vertices
from gnnloom.storage.errors import InputError
from gnnloom.trainer.algorithms.steps import Step
from gnnloom.trainer.algorithms.workload import Exchange, Workload
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.networks.model import ModelOptions
from gnnloom.trainer.training.build import model_options

#: The models whose layers the planner knows.
MODELS = ("gcn", "sage", "gin", "gat")
#: Vertices whose split and labels are read at a time.
_CHUNK_ROWS = 1 << 22


@dataclass(frozen=True, kw_only=True)
class GraphFacts:
    """A graph and its vertex data, as far as an epoch depends on them.

    Attributes:
        nnz: nonzeros of the adjacency, self loops included.
        num_outputs: classes, or numbers that a regression predicts.
        num_training: labeled vertices of the training split.
        one_class: every vertex has one class, so the loss is a softmax.
    """

    num_vertices: int
    nnz: int
    num_features: int
    num_outputs: int
    num_training: int
    symmetric: bool = True
    weighted: bool = False
    one_class: bool = True


def count_training(vertices: Vertices) -> int:
    """Number of vertices that are in the training split and have a label; reads the split and the labels."""
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
    """What the parts exchange for a product, and for one with the transpose, as the partition stores it.

    Raises:
        InputError: the partition was not measured.
    """
    if "volume_total" not in partition.quality:
        raise InputError(f"{partition.artifact.path}: the partition has no measured volume")
    forward = _exchange(partition, "")
    is_directed = "volume_backward_total" in partition.quality
    return forward, _exchange(partition, "backward_") if is_directed else forward


def _exchange(partition: Partition, direction: str) -> Exchange:
    quality = partition.quality
    return Exchange(
        rows=quality[f"volume_{direction}total"],
        messages=quality[f"messages_{direction}total"],
        busiest_rows=max(quality[f"volume_{direction}max"], quality[f"receive_volume_{direction}max"]),
        busiest_messages=quality[f"messages_{direction}max"],
    )


def workload(
    config: TrainConfig,
    graph: GraphFacts,
    exchanges: tuple[Exchange, Exchange] | None = None,
    heaviest: float = 1.0,
) -> Workload:
    """The workload of a training.

    Args:
        exchanges: of the product and of that with the transpose, if the vertices are partitioned.
        heaviest: nonzeros of the busiest rank over the average.

    Raises:
        InputError: the model is not one of gnnloom's own, or the mode samples.
    """
    if config.mode != "full":
        raise InputError(f"mode {config.mode}: the planner knows only mode full")
    if config.model not in MODELS:
        raise InputError(f"model {config.model}: the planner knows only {', '.join(MODELS)}")
    options = model_options(config, graph.num_features, graph.num_outputs)
    inner = _inner(config, options)
    size = np.dtype(config.dtype).itemsize
    matrices, vectors = _parameters(config, options, inner)
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
        weights=2 if config.model in {"sage", "gin"} else 1,
        adds_own=config.model == "sage",
        attends=config.model == "gat",
        vectors=vectors,
        matrices=matrices,
        norm=config.norm,
        residual=config.residual,
        unit_embedding=config.unit_embedding,
        clips=bool(config.clip_norm),
        splits_classes=graph.one_class and config.loss == "auto",
        double_order=config.permutation in {None, "double"},
        feature_size=2 if config.precision == "bf16" else size,
        parameter_size=size,
        score_size=size,
        value_size=size if graph.weighted else 0,
        heaviest=heaviest,
        exchange=forward,
        exchange_back=back,
    )


def _inner(config: TrainConfig, options: ModelOptions) -> tuple[int, ...]:
    """Width of H W in every layer."""
    outer = options.dims[1:]
    if config.model == "gin":
        return (*outer[:-1], outer[-2] if len(outer) > 1 else outer[-1])
    # The heads of hidden layers share the width; each head of the last layer has all of it.
    return (*outer[:-1], outer[-1] * config.heads) if config.model == "gat" else outer


def _parameters(config: TrainConfig, options: ModelOptions, inner: tuple[int, ...]) -> tuple[int, int]:
    """Numbers in the weight matrices, and in the vectors that all ranks hold."""
    before, outer = options.dims[:-1], options.dims[1:]
    matrices = sum(width * to for width, to in zip(before, inner, strict=True))
    vectors = sum(outer) if options.bias else 0
    if config.model == "sage":
        matrices *= 2
    if config.model == "gin":
        matrices += sum(width * to for width, to in zip(inner, outer, strict=True))
        # The factor of the vertex itself, and the inner biases.
        vectors += len(outer) + (sum(inner) if options.bias else 0)
    if config.model == "gat":
        vectors += 2 * sum(inner)
    return matrices, vectors + (2 * sum(outer[:-1]) if config.norm != "none" else 0)


def epoch_steps(config: TrainConfig, work: Workload) -> list[Step]:
    """The steps of an epoch of the configured algorithm.

    Raises:
        InputError: the algorithm does not state its steps.
    """
    algorithm = config.chosen_algorithm
    if algorithm.steps is None:
        raise InputError(f"algorithm {algorithm.name}: its traffic is not known, as it states no steps")
    return algorithm.steps(work, algorithm.settled_grid(config.grid, config.ranks), config.own_options())
