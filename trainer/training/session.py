"""Everything that one rank needs for a run: its shards, operator and model."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from gnnloom.storage.artifacts.row_shards import RowShard, RowShards
from gnnloom.storage.artifacts.samples import Samples
from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.meters import peak_memory
from gnnloom.storage.runs.run import Run, sole_writer
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.comm.watchdog import WAITING, Watch, clear_reports
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_samples import open_samples
from gnnloom.trainer.data.open_shards import OpenedShards, OwnRowShard, VertexRows
from gnnloom.trainer.data.vertex_data import Labels, normalize_feature, read_feature, settled_feature_norm
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.redistribute import split_rows, whole_rows
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.modes.epochs.mode import ModeContext
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.place.global_generator import Draws, derived_seed, seeded
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss
from gnnloom.trainer.tasks.objectives.objective import Objective
from gnnloom.trainer.training.build import build_model, build_objective, build_operator
from gnnloom.trainer.training.requested import check_graph, model_options

if TYPE_CHECKING:
    # It imports numba, which a job on row shards need not load.
    from gnnloom.storage.artifacts.grid_shards import GridShards


@dataclass(frozen=True)
class Loaded:
    """The cost of reading the shards.

    Attributes:
        seconds: wall-clock time.
        peak_memory: peak memory of the process while it read, minus its memory before, in bytes.
    """

    seconds: float
    peak_memory: int


@dataclass
class Session:
    """One rank's part of a run.

    Attributes:
        label_rows: the rows of the last layer's output, whose labels this rank has.
        objective: the task; a training adds the weights of classes and the user's loss.
        feature: (num_rows, num_features) the input features that this rank read; None after :meth:`take_inputs`.
        feature_norm: how the features are scaled; ``auto`` until :meth:`take_inputs` has settled it.
        samples: the samples that batches are read from, if any. Then no features and no adjacency are in memory.
        counter: counts the bytes that this rank read.
    """

    comm: Communicator
    config: TrainConfig
    dataset: Dataset
    shards: RowShards | GridShards
    label_rows: VertexRows
    objective: Objective
    operator: Operator
    model: Model
    feature: torch.Tensor | None
    counter: ReadCounter
    loaded: Loaded
    feature_norm: str = "auto"
    samples: Samples | None = None

    @property
    def place(self) -> Place:
        """Where this rank's tensors are."""
        return self.operator.grid.place

    def drawing(self, draws: Draws, epoch: int) -> AbstractContextManager[torch.Generator]:
        """Seed torch's global generator inside a block, for the draws of this rank's rows in an epoch."""
        return seeded(derived_seed(self.config.seed, draws, epoch, self.comm.rank))

    def take_inputs(self) -> Inputs:
        """The model's input: the features, or the constant part of the first layer. Collective.

        The session drops the features, so they are freed as soon as nothing else needs them.
        """
        if self.samples is not None:
            norm, by_row = self.config.feature_norm, not self.samples.has_negative_feature
            self.feature_norm = norm if norm != "auto" else "row" if by_row else "none"
            return Inputs(self.place.lasting((0, self.samples.num_features), self.model.dtype))
        if self.feature is None:
            raise ValueError("the inputs of a session can be taken only once")
        layout = self.operator.layout(0)
        # Normalized first, while rows are whole: the sum over a row needs all of its columns.
        self.feature_norm = settled_feature_norm(self.feature, self.config.feature_norm, self.comm)
        feature = normalize_feature(self.feature, self.feature_norm)
        self.feature = None
        if self.config.train_features:
            return Inputs(self.model.train_features(split_rows(feature, layout), self.shards.num_vertices))
        feature = split_rows(self.model.as_features(feature), layout)
        if not self.config.skip_input_gradient:
            return Inputs(feature.requires_grad_())
        if not self.config.input_is_cached:
            return Inputs(feature)
        with torch.no_grad():
            return self.model.keep(feature)

    def mode_context(self, inputs: Inputs, labels: Labels, loss: MaskedLoss, first_epoch: int) -> ModeContext:
        """What the mode may use; for arguments and attributes see :class:`ModeContext`."""
        config = self.config
        return ModeContext(
            options=config.own_mode_options(),
            seed=config.seed,
            epochs=range(first_epoch, config.epochs),
            normalization=config.normalization,
            model_name=config.model,
            dataset=self.dataset,
            shards=self.shards,
            label_rows=self.label_rows,
            objective=self.objective,
            operator=self.operator,
            model=self.model,
            inputs=inputs,
            feature_norm=self.feature_norm,
            labels=labels,
            loss=loss,
            samples=self.samples,
            counter=self.counter,
        )


def threads_per_rank(comm: Communicator, wanted: int) -> int:
    """Threads of each rank: as wanted, or (0) its share of the cores that this machine's ranks may use. Collective."""
    if wanted:
        return wanted
    # Containers and launchers restrict the cores. All ranks of a machine may share the same ones, or a launcher such as
    # `srun --cpus-per-task` may bind every rank to cores of its own; counting distinct cores is right for both.
    share = comm.cores_on_this_machine() // comm.ranks_on_this_machine()
    # A rank that is bound to fewer cores than others cannot use more threads than these.
    return max(1, min(share, len(os.sched_getaffinity(0))))


@contextmanager
def writing(comm: Communicator, find: Callable[[], Run], wait_timeout: float = 0.0) -> Iterator[None]:
    """Keep other processes from writing a run inside the block: the first rank holds its lock. Collective.

    Args:
        wait_timeout: seconds that a rank may wait for others, here and inside the block; 0 for no limit.

    Raises:
        CollectiveError: another process writes the run, or ``find`` failed.
    """
    watch = Watch(wait_timeout, None, comm.rank, comm.size)
    with ExitStack() as held:
        held.callback(setattr, comm.traffic, "watch", comm.traffic.watch)
        comm.traffic.watch = watch
        # One rank takes the lock for all, and if it cannot, no rank goes on. The system drops the lock of a killed
        # process.
        together(comm, lambda: held.enter_context(sole_writer(find())) if comm.rank == 0 else None)
        folder = find().path / WAITING
        if comm.rank == 0:
            clear_reports(folder)
        comm.barrier()
        # Only now, so that the reports of an earlier job are gone before a rank writes one.
        watch.folder = folder
        yield


def open_session(comm: Communicator, config: TrainConfig, num_threads: int) -> Session:
    """Read this rank's shards and build its operator and model. Communicates nothing.

    Raises:
        InputError: the shards are made for another number of ranks, or lack features.
        NotFoundError: the dataset or the shards do not exist.
    """
    started = time.perf_counter()
    # Before the first look at the memory, so that compiled code does not count as memory of the shards.
    config.chosen_algorithm.reads.load_kernels()
    before = peak_memory()
    # By default torch uses all cores in every rank.
    torch.set_num_threads(num_threads)
    place = Place(getattr(torch, config.feature_dtype), num_threads)
    counter = ReadCounter()
    dataset = Catalog(config.catalog).dataset(config.dataset)
    opened = config.chosen_algorithm.reads.open(dataset, config, comm.rank, comm.size, counter)
    shards = opened.shards
    check_graph(config.model, shards)
    objective = build_objective(opened, config)
    if config.samples is not None and isinstance(opened, OwnRowShard):
        return open_samples_session(comm, config, dataset, opened.shard, objective, place, counter)
    options = model_options(config, shards.num_features, objective.num_outputs)
    operator, feature_rows, label_rows = build_share(comm, config, opened, options, place, counter)
    feature = read_feature(feature_rows, place)
    loaded = Loaded(time.perf_counter() - started, peak_memory() - before)
    # After the measurement of what was loaded: the model's own parameters are not part of the shards.
    model = build_model(operator, config, options)
    return Session(comm, config, dataset, shards, label_rows, objective, operator, model, feature, counter, loaded)


def build_share(
    comm: Communicator,
    config: TrainConfig,
    opened: OpenedShards,
    options: ModelOptions,
    place: Place,
    counter: ReadCounter,
) -> tuple[Operator, VertexRows, VertexRows]:
    """This rank's operator, and its rows of the features and the labels, not yet read. Communicates nothing."""
    # The plan of the model comes before the operator, which reads only what the plan multiplies with.
    plan = options.layer_plan()
    operator = build_operator(comm, opened, config, plan, place, counter)
    first, last = operator.layout(0), operator.layout(plan.num_layers)
    # Features are stored in whole rows. Ranks that hold other columns of the same rows read some of these rows each,
    # and exchange columns in `take_inputs`.
    feature_rows = _vertex_rows(opened, first, first.row_axes + first.column_axes)
    return operator, feature_rows, _vertex_rows(opened, last, last.row_axes)


def open_samples_session(
    comm: Communicator,
    config: TrainConfig,
    dataset: Dataset,
    shard: RowShard,
    objective: Objective,
    place: Place,
    counter: ReadCounter,
) -> Session:
    """A session that reads batches from disk: only the ids, labels and split of the rank's vertices are in memory.

    Raises:
        InputError: the samples do not fit the run.
    """
    # It transposes blocks with numba, which only training on samples should load.
    from gnnloom.trainer.operators.layered import Layered  # noqa: PLC0415

    started, before = time.perf_counter(), peak_memory()
    samples = open_samples(dataset, config, shard.shards.artifact, comm.size, counter)
    options = model_options(config, samples.num_features, objective.num_outputs)
    operator = Layered(comm, len(options.pairs), config.normalization, place)
    operator.rest(shard.vertex())
    loaded = Loaded(time.perf_counter() - started, peak_memory() - before)
    model = build_model(operator, config, options)
    shards = shard.shards
    return Session(
        comm, config, dataset, shards, shard, objective, operator, model, None, counter, loaded, samples=samples
    )


def _vertex_rows(opened: OpenedShards, layout: Layout, axes: tuple[str, ...]) -> VertexRows:
    """This rank's rows if the vertices are split along ``axes``, in the order of ``layout``."""
    return opened.vertex_rows(layout.order, layout.grid.span(opened.shards.num_vertices, axes))


def predicted_rows(session: Session, inputs: Inputs, *, embeddings: bool) -> dict[str, torch.Tensor]:
    """The arrays to write for this rank's rows, by name. Collective."""
    model = session.model.eval()
    with torch.no_grad(), session.comm.traffic.recording():
        hidden = model.embed(inputs)
        layout = session.operator.layout(model.num_layers)
        outputs = session.objective.predict(layout, model.classify(hidden))
        if embeddings and model.num_layers > 1:
            last = model.num_layers - 1
            before, width = session.operator.layout(last), model.options.dims[last]
            outputs["embedding"] = whole_rows(model.as_sums(hidden.value), before, width, Kind.PREDICTION)
    return outputs
