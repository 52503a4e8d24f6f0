"""Everything that one rank needs for a run: its shard, operator and model."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from gnnloom.storage.artifacts.grid_shards import GridShards
from gnnloom.storage.artifacts.grid_window import load_kernels
from gnnloom.storage.artifacts.row_shards import RowShard, RowShards
from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.meters import peak_memory
from gnnloom.storage.runs.run import Run, sole_writer
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.grid_rows import GridRows
from gnnloom.trainer.data.open_shards import open_source
from gnnloom.trainer.data.vertex_data import VertexRows, normalize_feature, read_feature
from gnnloom.trainer.kernels.threads import Threads
from gnnloom.trainer.layout.redistribute import split_rows
from gnnloom.trainer.models.model import Inputs, Model
from gnnloom.trainer.models.registry import build_model, check_graph, model_options
from gnnloom.trainer.operators.build import build_operator
from gnnloom.trainer.operators.grid_adjacency import vertex_order
from gnnloom.trainer.operators.operator import Operator


@dataclass(frozen=True)
class Loaded:
    """What reading took.

    Attributes:
        peak_memory: highest memory of the process while it read, above what it had before, in bytes.
    """

    seconds: float
    peak_memory: int


@dataclass
class Session:
    """One rank's part of a run.

    Attributes:
        label_rows: whose labels this rank has: the rows behind the last layer.
        feature: (own rows, num_features) what this rank read of the input features, until :meth:`take_inputs`.
        counter: bytes that this rank read.
    """

    comm: Communicator
    config: TrainConfig
    dataset: Dataset
    shards: RowShards | GridShards
    label_rows: VertexRows
    operator: Operator
    model: Model
    feature: torch.Tensor | None
    counter: ReadCounter
    loaded: Loaded

    def take_inputs(self) -> Inputs:
        """What the model takes: the features, or what never changes of the first layer. Collective.

        The session forgets the features, so that they are in memory only where they are needed.
        """
        if self.feature is None:
            raise ValueError("the inputs of a session can be taken once")
        layout = self.operator.layout(0)
        feature = split_rows(normalize_feature(self.feature, self.config.feature_norm, self.comm), layout)
        self.feature = None
        if self.config.train_features:
            return Inputs(self.model.train_features(feature, self.shards.num_vertices))
        if not self.config.skip_input_gradient:
            return Inputs(feature.requires_grad_())
        if not self.config.input_is_cached:
            return Inputs(feature)
        with torch.no_grad():
            return self.model.keep(feature)


def threads_per_rank(comm: Communicator, wanted: int) -> int:
    """Threads that each rank uses: as wanted, or this machine's cores shared by its ranks. Collective."""
    return wanted or max(1, len(os.sched_getaffinity(0)) // comm.ranks_on_this_machine())


@contextmanager
def writing(comm: Communicator, find: Callable[[], Run]) -> Iterator[None]:
    """Keep other processes from writing a run meanwhile: the first rank holds its lock. Collective.

    Raises:
        CollectiveError: another process writes the run, or what ``find`` raises.
    """
    with ExitStack() as held:
        together(comm, lambda: held.enter_context(sole_writer(find())) if comm.rank == 0 else None)
        yield


def open_session(comm: Communicator, config: TrainConfig, num_threads: int) -> Session:
    """Read this rank's shard and build its operator and model. Communicates nothing.

    Raises:
        InputError: the shards are made for another number of ranks, or lack features.
        NotFoundError: there is no such dataset, or no such shards.
    """
    started = time.perf_counter()
    load_kernels()
    before = peak_memory()
    torch.set_num_threads(num_threads)
    threads = Threads(num_threads)
    counter = ReadCounter()
    dataset = Catalog(config.catalog).dataset(config.dataset)
    source = open_source(dataset, config, comm.rank, comm.size, counter)
    shards = source.shards if isinstance(source, RowShard) else source
    check_graph(config.model, shards)
    options = model_options(config, shards.num_features, shards.num_classes)
    plan = options.layer_plan()
    operator = build_operator(comm, source, config, plan, threads, counter)
    last = operator.layout(plan.num_layers)
    label_rows = _vertex_rows(source, operator, plan.num_layers, last.row_axes, counter)
    first = operator.layout(0)
    # Whole rows are what is stored: ranks that hold other columns of the same rows read a part of them each.
    feature_rows = _vertex_rows(source, operator, 0, first.row_axes + first.column_axes, counter)
    feature = read_feature(feature_rows, getattr(torch, config.dtype))
    loaded = Loaded(time.perf_counter() - started, peak_memory() - before)
    model = build_model(operator, config, options, threads)
    return Session(comm, config, dataset, shards, label_rows, operator, model, feature, counter, loaded)


def _vertex_rows(
    source: RowShard | GridShards, operator: Operator, layer: int, axes: tuple[str, ...], counter: ReadCounter
) -> VertexRows:
    """The rows of a layer's input that this rank has when they are cut along ``axes``."""
    if isinstance(source, RowShard):
        return source
    return GridRows(source, vertex_order(layer), operator.grid.span(source.num_vertices, axes), counter)
