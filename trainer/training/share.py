"""Reads a rank's share of a run: its objective, its operator, its rows with labels, and the input of its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnnloom.trainer.algorithms.algorithm import OperatorContext
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.data.open_shards import OpenedShards, OwnRowShard, VertexRows, open_samples, open_typed_samples
from gnnloom.trainer.data.stored_rows import StoredRows
from gnnloom.trainer.data.typed_vertices import OpenedTypes
from gnnloom.trainer.data.vertex_data import check_stored, read_feature
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.modes.epochs.model_inputs import (
    BatchInputs,
    FeaturesInMemory,
    InputUse,
    LearnedInputs,
    MappedInputs,
    ModelInputs,
    NoInputs,
    StepInputs,
    TypedInputs,
)
from gnnloom.trainer.operators.operator import LayerPlan, Operator
from gnnloom.trainer.operators.whole_rows import AXIS, RowsOnly
from gnnloom.trainer.passes.range_operator import RangeOperator
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.objective import Objective, TaskContext


@dataclass(frozen=True)
class Share:
    """A rank's part of the graph and the vertex data of a run, before there is a model.

    Attributes:
        options: options of the model.
        label_rows: rows of the last layer's output; this rank has their labels.
        inputs: the input of the model.
    """

    options: ModelOptions
    operator: Operator
    label_rows: VertexRows
    inputs: ModelInputs


def read_objective(comm: Communicator, opened: OpenedRun) -> Objective[Any]:
    """The objective of a run's task, before there is a model. Communicates nothing.

    Raises:
        InputError: the shards lack what the task predicts, or the weights of the classes do not fit them.
    """
    config, shards, task = opened.config, opened.shards.shards, opened.task()
    objective: Objective[Any] = task.load().of(
        task,
        TaskContext(
            rank=comm.rank,
            num_ranks=comm.size,
            dataset=opened.dataset,
            shards=shards,
            width=config.task.output_width(task, opened.label_sizes),
            links=opened.links(),
            options=config.own_task_options(task),
            loss=config.task.loss,
            seed=config.run.seed,
            steps_on_graph=not config.mode.kind.is_sampled,
            counter=opened.counter,
        ),
    )
    return objective


def read_share(
    comm: Communicator,
    opened: OpenedRun,
    num_outputs: int,
    place: Place,
    *,
    streams: bool = False,
    reads_features: bool = True,
) -> Share:
    """Read a rank's part of the graph and the features. Communicates nothing.

    Args:
        num_outputs: number of outputs of the model.
        streams: leave the features and the adjacency on disk, for an evaluation from there.
        reads_features: read the input features; without them the share has no inputs.

    Raises:
        InputError: the shards lack features, the samples do not fit the run, or the model is not defined for the graph.
    """
    config, shards = opened.config, opened.shards
    config.model.check_graph(shards.shards)
    if isinstance(shards, OpenedTypes):
        return _on_types(comm, opened, shards, num_outputs, place)
    if isinstance(shards, OwnRowShard):
        if config.mode.reads_batches:
            return _on_batches(comm, opened, shards, num_outputs, place)
        if config.mode.kind.reads_rows:
            return _on_rows(comm, opened, shards, num_outputs, place)
        if streams:
            return _on_disk(comm, opened, shards, num_outputs, place)
    return _on_graph(comm, opened, num_outputs, place, reads_features=reads_features)


def _on_graph(comm: Communicator, opened: OpenedRun, num_outputs: int, place: Place, *, reads_features: bool) -> Share:
    """A share of the whole graph, as the algorithm distributes it."""
    config, shards = opened.config, opened.shards
    options = config.options_of_model(shards.shards.num_features, num_outputs)
    operator = _operator(comm, opened, options, place)
    first, last = operator.layout(0), operator.layout(len(options.pairs))
    label_rows, norm, total = (
        vertex_rows(shards, last, last.row_axes),
        config.data.feature_norm,
        shards.shards.num_vertices,
    )
    inputs: ModelInputs = NoInputs(norm)
    if config.model.embed:
        inputs = LearnedInputs(config.model.embed, config.run.seed, total)
    elif config.mode.maps_inputs:
        inputs = MappedInputs(label_rows, norm, opened.dataset.path, is_cached=config.input_is_cached)
    elif reads_features:
        # Features are stored in whole rows. Ranks that hold other columns of the same rows each read some of the rows,
        # and exchange columns when the model takes them.
        feature = read_feature(vertex_rows(shards, first, first.row_axes + first.column_axes), place)
        use = InputUse(config.model.train_features, not config.model.skip_input_gradient, config.input_is_cached)
        inputs = FeaturesInMemory(feature, norm, use, total)
    return Share(options, operator, label_rows, inputs)


def _operator(comm: Communicator, opened: OpenedRun, options: ModelOptions, place: Place) -> Operator:
    """The products of a model. Communicates nothing."""
    config, shards = opened.config, opened.shards
    if config.model.kind.is_rowwise and isinstance(shards, OwnRowShard):
        return RowsOnly(ProcessGrid(comm, {AXIS: comm.size}, place), shards.shard.vertex())
    # The plan comes before the operator, which reads only matrices that the plan uses.
    plan, differentiates = options.layer_plan(), config.differentiates_products
    return build_operator(comm, opened, shards, config.model.normalization, place, plan, differentiates=differentiates)


def build_operator(
    comm: Communicator,
    opened: OpenedRun,
    shards: OpenedShards,
    normalization: str,
    place: Place,
    plan: LayerPlan,
    *,
    differentiates: bool,
) -> Operator:
    """The products with the adjacency, as the run's algorithm distributes them. Communicates nothing.

    Args:
        shards: the run's shards, or another view of the same shards.
        normalization, place, plan, differentiates: see :class:`~gnnloom.trainer.algorithms.algorithm.OperatorContext`.

    Raises:
        InputError: a degree is negative or not finite.
    """
    config = opened.config.algorithm
    return config.kind.build(
        OperatorContext(
            comm=comm,
            axes=config.kind.settled_grid(config.grid, comm.size),
            shards=shards,
            normalization=normalization,
            place=place,
            plan=plan,
            differentiates=differentiates,
            counter=opened.counter,
            options=config.own_options(),
        )
    )


def _on_batches(comm: Communicator, opened: OpenedRun, shards: OwnRowShard, num_outputs: int, place: Place) -> Share:
    """A share whose batches come with their features: only ids, labels and split of the rank's vertices are read.

    Raises:
        InputError: the samples do not fit the run, or the shards lack features.
    """
    # Only training on batches loads it.
    from gnnloom.trainer.operators.layered import LayeredOperator  # noqa: PLC0415

    config = opened.config
    samples, num_features = None, shards.shards.num_features
    if config.mode.samples is not None:
        samples = open_samples(
            opened.dataset,
            config.mode.own_options(),
            len(config.model.hidden) + 1,
            shards.shards.artifact,
            comm.size,
            opened.counter,
            on_edges=config.model.kind.on_edges,
        )
        num_features = samples.num_features
    else:
        check_stored(shards.shard, "feature")
    options = config.options_of_model(num_features, num_outputs)
    operator = LayeredOperator(comm, len(options.pairs), config.model.normalization, place)
    operator.rest(shards.shard.vertex())
    return Share(options, operator, shards.shard, BatchInputs(shards.shard, config.data.feature_norm, samples))


def _on_types(comm: Communicator, opened: OpenedRun, types: OpenedTypes, num_outputs: int, place: Place) -> Share:
    """A range of vertices of each predicted type; for a type with labels, labels and split are read.

    Raises:
        InputError: the samples do not fit the run.
    """
    # A job on row shards need not load it.
    from gnnloom.trainer.loader.typed import TypedViews  # noqa: PLC0415

    data, grid = types.shards, ProcessGrid(comm, {AXIS: comm.size}, place)
    rows = data.own_rows(comm.size, comm.rank)
    config, schema = opened.config, data.schema.learning(opened.config.model.embed)
    options = config.options_of_model(data.num_features, num_outputs, schema=schema)
    samples = None
    if config.mode.samples is not None:
        own, num_layers = config.mode.own_options(), len(config.model.hidden) + 1
        samples = open_typed_samples(opened.dataset, own, num_layers, data.inputs, comm.size, opened.counter)
    inputs = TypedInputs(data, config.data.feature_norm, config.run.seed, TypedViews(), samples)
    return Share(options, RowsOnly(grid, rows.vertex()), rows, inputs)


def _on_rows(comm: Communicator, opened: OpenedRun, shards: OwnRowShard, num_outputs: int, place: Place) -> Share:
    """A share without an adjacency, whose features and propagated steps stay on disk."""
    config, steps = opened.config, opened.config.mode.own_options()["steps"]
    rows = StoredRows(opened.dataset, opened.inputs, steps, shards.shard.vertex(), opened.counter)
    options = config.options_of_model(rows.num_features, num_outputs, rows.num_inputs)
    operator = _operator(comm, opened, options, place)
    return Share(options, operator, shards.shard, StepInputs(rows, config.data.feature_norm))


def _on_disk(comm: Communicator, opened: OpenedRun, shards: OwnRowShard, num_outputs: int, place: Place) -> Share:
    """A share for an evaluation from disk: only the ids of the rank's vertices are in memory."""
    options = opened.config.options_of_model(shards.shards.num_features, num_outputs)
    operator = RangeOperator(ProcessGrid(comm, {AXIS: comm.size}, place))
    operator.load(shards.shard.vertex(), ())
    return Share(options, operator, shards.shard, NoInputs(opened.config.data.feature_norm))


def vertex_rows(opened: OpenedShards, layout: Layout, axes: tuple[str, ...]) -> VertexRows:
    """This rank's rows if the vertices are split along ``axes``, in the order of ``layout``."""
    return opened.vertex_rows(layout.order, layout.grid.span(opened.shards.num_vertices, axes))
