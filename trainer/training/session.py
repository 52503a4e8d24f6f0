"""Everything that one rank needs for a run: what it reads, its operator and its model."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import torch

from gnnloom.storage.artifacts.samples import Samples
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.meters import peak_memory
from gnnloom.storage.runs.predictions import SMOOTHED, Predictions
from gnnloom.storage.runs.run import Run, sole_writer
from gnnloom.storage.shards.row_shards import RowShard
from gnnloom.trainer.algorithms.algorithm import OperatorContext
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.comm.watchdog import WAITING, Watch, clear_reports
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.model_config import ModelConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import OpenedShards, OwnRowShard, VertexRows, open_samples
from gnnloom.trainer.data.stored_rows import StoredRows
from gnnloom.trainer.data.vertex_data import (
    Labels,
    check_stored,
    normalize_feature,
    read_feature,
    settled_feature_norm,
)
from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.redistribute import split_rows, whole_rows
from gnnloom.trainer.layout.vertex_arrays import read_vertex_rows
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.models.networks.norm import share_batch_norms
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.modes.epochs.mode import ModeContext
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.operators.p2p import PointToPoint
from gnnloom.trainer.operators.rows_only import RowsOnly
from gnnloom.trainer.operators.whole_rows import AXIS
from gnnloom.trainer.place.arrays import tensor_dtype
from gnnloom.trainer.place.global_generator import Draws, derived_seed, seeded
from gnnloom.trainer.place.mapped_rows import MappedRows, UnbackedRows
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.streaming.evaluation import Report, Source, streamed_outputs
from gnnloom.trainer.streaming.range_operator import RangeOperator
from gnnloom.trainer.streaming.shard_features import ShardFeatures
from gnnloom.trainer.tasks.objectives.objective import Objective, StepLoss, TaskContext


@dataclass
class Session:
    """One rank's part of a run.

    Attributes:
        objective: the task; a training adds the weights of classes and the user's loss.
        label_rows: the rows of the last layer's output, whose labels this rank has.
        feature: (num_rows, num_features) the input features that this rank read; None after :meth:`take_inputs`, and if
            they are learned instead or nothing needs them.
        samples: the samples that batches are read from, if any. Then no features and no adjacency are in memory.
        rows: the rows that a mode of rows reads. Then there is no adjacency, and features stay on disk.
        feature_norm: how the features are scaled; ``auto`` until :meth:`take_inputs` has settled it.
        load_seconds: wall-clock time of reading the shards.
        load_memory: peak memory of the process while it read them, minus its memory before, in bytes.
    """

    comm: Communicator
    opened: OpenedRun
    objective: Objective
    options: ModelOptions
    operator: Operator
    label_rows: VertexRows
    feature: torch.Tensor | None
    samples: Samples | None = None
    rows: StoredRows | None = None
    feature_norm: str = "auto"
    model: Model = field(init=False)
    load_seconds: float = field(init=False)
    load_memory: int = field(init=False)

    @property
    def config(self) -> TrainConfig:
        return self.opened.config

    @property
    def place(self) -> Place:
        """Place of this rank's tensors."""
        return self.operator.grid.place

    def drawing(self, draws: Draws, epoch: int) -> AbstractContextManager[torch.Generator]:
        """Seed torch's global generator inside a block, for the draws of this rank's rows in an epoch."""
        return seeded(derived_seed(self.config.seed, draws, epoch, self.comm.rank))

    def take_inputs(self) -> Inputs:
        """The model's input: the features, those to learn, or the constant part of the first layer. Collective.

        The session drops the features, so they are freed as soon as nothing else needs them.
        """
        if self.config.reads_batches:
            if self.samples is None:
                self._shard_features()
            else:
                norm, by_row = self.config.feature_norm, not self.samples.has_negative_feature
                self.feature_norm = norm if norm != "auto" else "row" if by_row else "none"
            return Inputs(self.place.lasting((0, self.options.dims[0]), self.model.dtype))
        if self.rows is not None:
            self.feature_norm = self.rows.settled_norm(self.config.feature_norm, self.comm, self.place)
            return Inputs(self.place.lasting((0, self.rows.width), self.model.dtype))
        if self.config.embed:
            return Inputs(self._learned())
        if self.config.maps_inputs:
            return self._mapped_inputs()
        if self.feature is None:
            raise ValueError("the inputs of a session can be taken only once")
        layout = self.operator.layout(0)
        # Normalized first, while rows are whole: the sum over a row needs all of its columns.
        self.feature_norm = settled_feature_norm(self.feature, self.config.feature_norm, self.comm)
        feature = normalize_feature(self.feature, self.feature_norm, self.place)
        self.feature = None
        if self.config.train_features:
            return Inputs(
                self.model.train_features(split_rows(feature, layout), self.opened.shards.shards.num_vertices)
            )
        feature = split_rows(self.model.as_features(feature), layout)
        if not self.config.skip_input_gradient:
            return Inputs(feature.requires_grad_())
        if not self.config.input_is_cached:
            return Inputs(feature)
        with torch.no_grad():
            return self.model.keep(feature)

    def _mapped_inputs(self) -> Inputs:
        """The features in a file, or their product with the adjacency that is kept. Collective."""
        rows = self._shard_features()
        feature = self._mapped("features", self.operator.layout(0).num_rows, self.options.dims[0])
        if rows is not None:
            together(self.comm, lambda: rows.copy_to(feature))
        if not self.config.input_is_cached:
            return Inputs(feature.tensor)
        with torch.no_grad():
            kept = self.model.keep(feature.tensor)
        # Some models keep the features as they are.
        if kept.value is feature.tensor:
            return kept
        # The product was made from them.
        together(self.comm, feature.check)
        product = self._mapped("the adjacency times the features", *kept.value.shape)
        product.write(slice(None), kept.value)
        return replace(kept, value=product.tensor)

    def _mapped(self, what: str, num_rows: int, dim: int) -> MappedRows | UnbackedRows:
        """(num_rows, dim) zeros of the dtype of features, in a file that is checked while it is used. Collective."""
        shape, dtype, folder = (num_rows, dim), self.place.feature_dtype, self.opened.dataset.path
        made = together(self.comm, lambda: self.place.mapped(folder, what, shape, dtype))
        if isinstance(made, MappedRows):
            self.place.files.while_used(made.recorded)
        return made

    def _shard_features(self) -> ShardFeatures | None:
        """Open the features of this rank's vertices on disk, and settle how they are scaled. Collective.

        Returns:
            None if they are not in a row shard.
        """
        self.feature_norm = norm = self.config.feature_norm
        if not isinstance(self.label_rows, RowShard):
            self.feature_norm = "none" if norm == "auto" else norm
            return None
        rows = ShardFeatures(self.label_rows, self.place)
        rows.settle(norm, self.comm)
        self.feature_norm = rows.norm
        return rows

    def _learned(self) -> torch.nn.Parameter:
        """Input features to learn, as they start. Communicates nothing."""
        # It imports numba, which a job on row shards need not load.
        from gnnloom.trainer.data.learned_features import first_features  # noqa: PLC0415

        self.feature_norm = "none"
        layout, width = self.operator.layout(0), self.config.embed
        feature = first_features(layout.vertex, layout.columns(width), width, self.config.seed, self.place)
        return self.model.train_features(feature, self.opened.shards.shards.num_vertices)

    def mode_context(
        self, inputs: Inputs, labels: Labels, loss: StepLoss, first_epoch: int, measured: torch.Tensor | None = None
    ) -> ModeContext:
        """Context for the mode; for arguments and attributes see :class:`ModeContext`."""
        config = self.config
        return ModeContext(
            options=config.own_mode_options(),
            seed=config.seed,
            epochs=range(first_epoch, config.epochs),
            normalization=config.normalization,
            model_name=config.model,
            dataset=self.opened.dataset,
            shards=self.opened.shards.shards,
            label_rows=self.label_rows,
            objective=self.objective,
            operator=self.operator,
            model=self.model,
            inputs=inputs,
            feature_norm=self.feature_norm,
            labels=labels,
            loss=loss,
            samples=self.samples,
            rows=self.rows,
            counter=self.opened.counter,
            source=self.streamed_source(self.feature_norm, config.evaluation_memory),
            measured=measured,
        )

    def streamed_source(self, feature_norm: str, memory: int) -> Source:
        """Source of an evaluation from disk.

        Args:
            feature_norm: how the features are scaled, or ``auto``.
            memory: bytes of this rank; 0 for its share of what the machine has left.
        """
        opened = self.opened
        return Source(
            comm=self.comm,
            shards=opened.shards.shards,
            folder=opened.dataset.path,
            counter=opened.counter,
            normalization=self.config.normalization,
            feature_norm=feature_norm,
            num_threads=self.place.threads.num_threads,
            memory=memory,
        )


def threads_per_rank(comm: Communicator, wanted: int) -> int:
    """Threads of each rank: as wanted, or (0) its share of the cores that this machine's ranks may use. Collective."""
    if wanted:
        return wanted
    # Containers and launchers restrict the cores. All ranks of a machine may share the same ones, or a launcher such as
    # `srun --cpus-per-task` may bind every rank to cores of its own; counting distinct cores is right for both.
    machine = comm.this_machine()
    # A rank that is bound to fewer cores than others cannot use more threads than these.
    return max(1, min(machine.cores // machine.ranks, len(os.sched_getaffinity(0))))


@contextmanager
def writing(
    comm: Communicator, find: Callable[[], tuple[Dataset, Run]], wait_timeout: float = 0.0
) -> Iterator[tuple[Dataset, Run]]:
    """Keep other processes from writing a run inside the block: the first rank holds its lock. Collective.

    Args:
        find: opens the run's dataset and the run, on every rank.
        wait_timeout: seconds that a rank may wait for others, here and inside the block; 0 for no limit.

    Yields:
        What ``find`` returned.

    Raises:
        CollectiveError: another process writes the run, or ``find`` failed.
    """
    watch = Watch(wait_timeout, None, comm.rank, comm.size)
    with ExitStack() as held:
        held.callback(setattr, comm.traffic, "watch", comm.traffic.watch)
        comm.traffic.watch = watch

        def lock() -> tuple[Dataset, Run]:
            dataset, run = find()
            # One rank takes the lock for all, and if it cannot, no rank goes on. The system drops the lock of a killed
            # process.
            if comm.rank == 0:
                held.enter_context(sole_writer(run))
                clear_reports(run.path / WAITING)
            return dataset, run

        found = together(comm, lock)
        # Only now, so that the reports of an earlier job are gone before a rank writes one.
        watch.folder = found[1].path / WAITING
        yield found


def open_session(
    comm: Communicator, opened: OpenedRun, num_threads: int, *, streams: bool = False, reads_features: bool = True
) -> Session:
    """Read this rank's shards and build its operator and model. Communicates nothing.

    Args:
        streams: leave the features and the adjacency on disk, for an evaluation from there.
        reads_features: read the input features; without them the session has no inputs.

    Raises:
        InputError: the shards lack features.
    """
    started, config = time.perf_counter(), opened.config
    # Before the first look at the memory, so that compiled code does not count as memory of the shards.
    config.chosen_algorithm.reads.load_kernels()
    before = peak_memory()
    # By default torch uses all cores in every rank.
    torch.set_num_threads(num_threads)
    place = Place(getattr(torch, config.feature_dtype), num_threads)
    session = read_share(comm, opened, place, streams=streams, reads_features=reads_features)
    session.load_seconds, session.load_memory = time.perf_counter() - started, peak_memory() - before
    # After the measurement of what was loaded: the model's own parameters are not part of the shards.
    session.model = build_model(session.operator, config, config.seed, session.options)
    if config.model_kind.on_edges:
        _attach_inference(session)
    session.objective = session.objective.attached(session.model, session.operator)
    return session


def agree_on_shards(session: Session) -> None:
    """Check that the shards that the ranks have read belong together, before rows are exchanged. Collective.

    Raises:
        CollectiveError: a rank would send other rows than those that another one needs.
    """
    if isinstance(session.operator, PointToPoint):
        session.operator.exchanged.agree()


def build_model(operator: Operator, config: ModelConfig, seed: int, options: ModelOptions) -> Model:
    """The configured model, with weights from a seed, the same on every rank. Communicates nothing.

    Modules of torch, such as ``nn.Linear``, are created in the dtype of the run.
    """
    place = operator.grid.place
    dropout = Dropout(config.dropout, seed, place)
    # What a class draws outside `create_parameters`, in an `__init__` of its own.
    with place.creating_modules(), seeded(derived_seed(seed, Draws.CREATION)):
        model: Model = config.model_kind.load()(operator, options, dropout, seed)
    share_batch_norms(model, lambda: model.operator)
    return model


def read_share(
    comm: Communicator, opened: OpenedRun, place: Place, *, streams: bool = False, reads_features: bool = True
) -> Session:
    """Read what a rank has of the graph and the features; its session still lacks the model. Communicates nothing.

    Args:
        streams, reads_features: see :func:`open_session`.

    Raises:
        InputError: the shards lack features or what the task predicts, the weights of the classes do not fit them, the
            samples do not fit the run, or the model is not defined for the graph.
    """
    config, shards = opened.config, opened.shards
    config.check_graph(shards.shards)
    task = opened.task()
    objective: Objective = task.load().of(
        task,
        TaskContext(
            rank=comm.rank,
            num_ranks=comm.size,
            dataset=opened.dataset,
            shards=shards.shards,
            width=config.output_width(task, opened.label_sizes),
            links=opened.links(),
            options=config.own_task_options(task),
            loss=config.loss,
            seed=config.seed,
            steps_on_graph=not config.mode_kind.is_sampled,
            counter=opened.counter,
        ),
    )
    if config.reads_batches and isinstance(shards, OwnRowShard):
        return _on_batches(comm, opened, shards, objective, place)
    if config.mode_kind.reads_rows and isinstance(shards, OwnRowShard):
        return _on_rows(comm, opened, shards, objective, place)
    if streams and isinstance(shards, OwnRowShard):
        return _on_disk(comm, opened, shards, objective, place)
    options = config.options_of_model(shards.shards.num_features, objective.num_outputs)
    operator = _operator(comm, opened, options, place)
    first, last = operator.layout(0), operator.layout(len(options.pairs))
    # Features are stored in whole rows. Ranks that hold other columns of the same rows read some of these rows each,
    # and exchange columns in `take_inputs`.
    axes = first.row_axes + first.column_axes
    reads = reads_features and not config.embed and not config.maps_inputs
    feature = read_feature(vertex_rows(shards, first, axes), place) if reads else None
    return Session(comm, opened, objective, options, operator, vertex_rows(shards, last, last.row_axes), feature)


def _operator(comm: Communicator, opened: OpenedRun, options: ModelOptions, place: Place) -> Operator:
    """The products of a model. Communicates nothing."""
    config, shards = opened.config, opened.shards
    if config.model_kind.is_rowwise and isinstance(shards, OwnRowShard):
        return RowsOnly(ProcessGrid(comm, {AXIS: comm.size}, place), shards.shard.vertex())
    algorithm = config.chosen_algorithm
    return algorithm.build(
        OperatorContext(
            comm=comm,
            axes=algorithm.settled_grid(config.grid, comm.size),
            shards=shards,
            normalization=config.normalization,
            place=place,
            # It comes before the operator, which reads only what the plan multiplies with.
            plan=options.layer_plan(),
            differentiates=config.differentiates_products,
            counter=opened.counter,
            options=config.own_options(),
        )
    )


def _on_batches(
    comm: Communicator, opened: OpenedRun, shards: OwnRowShard, objective: Objective, place: Place
) -> Session:
    """A session whose batches come with their features: only ids, labels and split of the rank's vertices are read.

    Raises:
        InputError: the samples do not fit the run, or the shards lack features.
    """
    # It transposes blocks with numba, which only training on batches should load.
    from gnnloom.trainer.operators.layered import Layered  # noqa: PLC0415

    config = opened.config
    given, num_layers = config.own_mode_options(), len(config.hidden) + 1
    samples, num_features = None, shards.shards.num_features
    if config.samples is not None:
        samples = open_samples(
            opened.dataset,
            given,
            num_layers,
            shards.shards.artifact,
            comm.size,
            opened.counter,
            on_edges=config.model_kind.on_edges,
        )
        num_features = samples.num_features
    else:
        check_stored(shards.shard, "feature")
    options = config.options_of_model(num_features, objective.num_outputs)
    operator = Layered(comm, len(options.pairs), config.normalization, place)
    operator.rest(shards.shard.vertex())
    return Session(comm, opened, objective, options, operator, shards.shard, None, samples)


def _on_disk(comm: Communicator, opened: OpenedRun, shards: OwnRowShard, objective: Objective, place: Place) -> Session:
    """A session that evaluates from disk: only the ids of the rank's vertices are in memory."""
    options = opened.config.options_of_model(shards.shards.num_features, objective.num_outputs)
    operator = RangeOperator(ProcessGrid(comm, {AXIS: comm.size}, place))
    operator.load(shards.shard.vertex(), ())
    return Session(comm, opened, objective, options, operator, shards.shard, None)


def _attach_inference(session: Session) -> None:
    """Give a model that takes edges what forms its scores on the whole graph. Communicates nothing."""
    # They import numba, which only such models, and modes that sample, load.
    from gnnloom.trainer.models.networks.edge_model import EdgeModel  # noqa: PLC0415
    from gnnloom.trainer.modes.epochs.edge_inference import WholeInference  # noqa: PLC0415

    config, model = session.config, session.model
    if not isinstance(model, EdgeModel):
        return
    model.inference = WholeInference(
        dataset=session.opened.dataset,
        inputs=session.opened.shards.shards.artifact.inputs,
        operator=session.operator,
        model=model,
        normalization=config.normalization,
        # Known when the features are.
        feature_norm=lambda: session.feature_norm,
        reads_features=config.reads_batches,
    )


def _on_rows(comm: Communicator, opened: OpenedRun, shards: OwnRowShard, objective: Objective, place: Place) -> Session:
    """A session without an adjacency, whose features and propagated steps stay on disk."""
    config, steps = opened.config, opened.config.own_mode_options()["steps"]
    rows = StoredRows(opened.dataset, opened.inputs, steps, shards.shard.vertex(), opened.counter)
    options = config.options_of_model(rows.num_features, objective.num_outputs, rows.num_inputs)
    operator = _operator(comm, opened, options, place)
    return Session(comm, opened, objective, options, operator, shards.shard, None, rows=rows)


def vertex_rows(opened: OpenedShards, layout: Layout, axes: tuple[str, ...]) -> VertexRows:
    """This rank's rows if the vertices are split along ``axes``, in the order of ``layout``."""
    return opened.vertex_rows(layout.order, layout.grid.span(opened.shards.num_vertices, axes))


def streamed_rows(
    session: Session, feature_norm: str, memory: int, *, embeddings: bool
) -> tuple[dict[str, torch.Tensor], Report]:
    """The arrays to write for this rank's rows, by name, from disk, and how they were computed. Collective.

    Args:
        feature_norm: how the features were scaled in training, or ``auto``.
        memory: bytes of this rank; 0 for its share of what the machine has left.
    """
    model, source = session.model.eval(), session.streamed_source(feature_norm, memory)
    with torch.no_grad(), session.comm.traffic.recording():
        found, report = streamed_outputs(model, source, embeds=embeddings)
        rows = session.objective.predict(session.operator.layout(model.num_layers), found.scores)
    return (rows if found.embedding is None else {**rows, "embedding": found.embedding}), report


def stored_rows(session: Session, predictions: Predictions) -> dict[str, torch.Tensor]:
    """The arrays of stored predictions that are not smoothed, for this rank's rows, by name. Communicates nothing."""
    found, place, last = {}, session.place, session.model.num_layers
    for record in predictions.records:
        name = record.path
        if not name.startswith(SMOOTHED):
            array = predictions.array(name, session.opened.counter)
            vertex = place.from_numpy(session.operator.layout(last - (name == "embedding")).vertex)
            found[name] = place.lasting((len(vertex), *array.shape[1:]), tensor_dtype(array.dtype))
            read_vertex_rows(array, vertex, found[name], place)
    return found


def predicted_rows(session: Session, inputs: Inputs, *, embeddings: bool) -> dict[str, torch.Tensor]:
    """The arrays to write for this rank's rows, by name. Collective."""
    model = session.model.eval()
    with torch.no_grad(), session.comm.traffic.recording():
        if model.takes_edges:
            layout = session.operator.layout(model.num_layers)
            return session.objective.predict(layout, model.whole_scores(inputs))
        if session.rows is not None:
            return _rowwise_outputs(session, session.rows, embeddings=embeddings)
        hidden = model.embed(inputs)
        layout = session.operator.layout(model.num_layers)
        outputs = session.objective.predict(layout, model.classify(hidden))
        if embeddings and model.num_layers > 1:
            last = model.num_layers - 1
            before, width = session.operator.layout(last), model.options.dims[last]
            outputs["embedding"] = whole_rows(model.as_sums(hidden.value), before, width, Kind.PREDICTION)
    return outputs


def _rowwise_outputs(session: Session, rows: StoredRows, *, embeddings: bool) -> dict[str, torch.Tensor]:
    """The arrays of a model that treats rows one by one, whose input stays on disk. Collective."""
    # It imports numba, which other sessions need not load.
    from gnnloom.trainer.modes.epochs.rows import all_outputs  # noqa: PLC0415

    model = session.model
    scores, hidden = together(
        session.comm, lambda: all_outputs(model, rows, session.feature_norm, embeddings=embeddings)
    )
    outputs = session.objective.predict(session.operator.layout(model.num_layers), scores)
    return outputs if hidden is None else {**outputs, "embedding": hidden}
