"""Forecasts the memory of a training run: rehearses some epochs on arrays without values, one rank at a time.

A rehearsed epoch runs the code of a real one: mode, operator, model, loss, optimizer, metrics and the copy of a
checkpoint take and give back their memory in the same order. It reads no entry of the shards, draws no batch, computes
no product, sends no message and touches no large array, so it takes a fraction of a second, once torch is imported, and
some bytes per vertex of a rank.
"""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.arrays import CHUNK_BYTES, ReadCounter
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.comm.unconnected import UnconnectedRank
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.stored_rows import PACKED
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.kernels.dispatch import Unperformed, Unwritten, place_without_values
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.redistribute import whole_rows
from gnnloom.trainer.modes.epochs.mode import Mode, ModeContext
from gnnloom.trainer.modes.epochs.model_inputs import StepInputs, TypedInputs
from gnnloom.trainer.passes.evaluation import StatedBytes
from gnnloom.trainer.place.global_generator import seeded
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss
from gnnloom.trainer.tasks.objectives.objective import Objective
from gnnloom.trainer.tasks.objectives.own_functions import OwnFunction
from gnnloom.trainer.training.outputs import predicted_rows
from gnnloom.trainer.training.rehearsal.rank_rows import most_measured, rank_rows
from gnnloom.trainer.training.rehearsal.unread import unread
from gnnloom.trainer.training.rehearsal.unread_rows import UnreadStoredRows
from gnnloom.trainer.training.session import Session, attach_inference
from gnnloom.trainer.training.share import Share, read_objective, read_share
from gnnloom.trainer.training.state.checkpoint import stored_state
from gnnloom.trainer.training.state.optimizer import build_optimizer, clip_gradients, sum_gradients, trained_parameters

if TYPE_CHECKING:
    # A job on the whole graph need not load it.
    from gnnloom.trainer.training.rehearsal.batches import StatedBatches
    from gnnloom.trainer.training.rehearsal.unread_types import StatedViews

logger = logging.getLogger(__name__)

Found = TypeVar("Found")

#: From the second epoch on, the workspace does not grow.
_EPOCHS = 2
#: Bytes that are not counted: Python objects, which take some hundred kilobytes for any graph, and rounding.
_OBJECTS = 1 << 20
#: Chunks of an array with a row per vertex that a rank sends, receives, puts in order and compresses at a time.
_MOVING_CHUNKS = 4


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank beyond the process itself, at the worst moment.

    Attributes:
        workspace: tensors of layers, and rows on their way between ranks.
        adjacency: the matrices that it multiplies with.
        batches: batches that are prepared ahead of their use.
        others: vertex data, parameters, and whatever is short-lived.
        checkpoint: of the arrays that the rank's part of a checkpoint has.
        mapped: of files that it maps, at a time.
        temporary: of its temporary files, for the model's input on disk and for an evaluation from disk.
        read_shares: what it reads of grid shards: of the entries of one variant, and of the rows of features.
    """

    workspace: int
    adjacency: int
    batches: int
    others: int
    checkpoint: int
    mapped: int
    temporary: int
    read_shares: tuple[float, float]

    @property
    def total(self) -> int:
        return self.workspace + self.adjacency + self.batches + self.others


def rehearse(opened: OpenedRun, rank: int) -> RankMemory | None:
    """The memory of a rank; None if the training cannot be rehearsed, see :func:`why_unknown`. Communicates nothing.

    Assumes that all vertices are in the training split, or for batches of training vertices, that the rank owns the
    largest possible number; and that the entries of a grid's cells are spread evenly. Reads manifests, of row shards
    how many rows the ranks exchange, and for modes that sample, some degrees.

    Args:
        opened: by any rank, with the options that samples or a partition decide.
    """
    config = opened.config
    if why_unknown(config) is not None:
        return None
    return _rehearsed(config, lambda memory: _Rehearsal(opened, rank, memory).run())


def rehearse_prediction(opened: OpenedRun, rank: int) -> int | None:
    """Bytes of one rank beyond the process itself if it predicts with everything in memory; None if that is not known.

    Communicates nothing. Reads what :func:`rehearse` does.
    """

    def run(memory: Unwritten) -> int:
        comm, unread_run = UnconnectedRank(rank, opened.config.algorithm.ranks), _unread_run(opened, rank, memory)
        objective = read_objective(comm, unread_run)
        share = _unread_share(comm, unread_run, objective.num_outputs, memory)
        session = Session.of(comm, unread_run, share, objective)
        written = _written(session, memory, embeddings=False)
        found = predicted_rows(session, session.take_inputs(), embeddings=False)
        memory.observe()
        del found, written
        return memory.peak + _OBJECTS

    return None if why_unknown(opened.config) is not None else _rehearsed(opened.config, run)


def _rehearsed(config: TrainConfig, run: Callable[[Unwritten], Found]) -> Found | None:
    """The result of a rehearsal; None if it needs values."""
    try:
        # Small tensors are computed, from meaningless values, and draws of models are discarded.
        with (
            np.errstate(all="ignore"),
            seeded(config.run.seed),
            _one_thread(),
            _without_collections(),
            Unwritten(place_without_values(getattr(torch, config.model.feature_dtype))) as memory,
            Unperformed(memory),
        ):
            return run(memory)
    except GnnloomError:
        raise
    # What others wrote may need the values of its tensors, and then raises anything.
    except Exception as error:  # noqa: BLE001
        logger.info("run %s: its memory is unknown: %s: %s", config.run_name, type(error).__name__, error)
        return None


def why_unknown(config: TrainConfig) -> str | None:
    """Why a training cannot be rehearsed, as far as its configuration says so; None if it does not."""
    kind = config.mode.kind
    if kind.is_sampled and kind.batch is None:
        return f"mode {config.mode.name} states no sizes of its batches"
    return None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Have torch use one thread inside the block: on tensors of some rows, it would mostly wait for the others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage inside the block: the memory that is counted would depend on when it is collected."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _unread_run(opened: OpenedRun, rank: int, memory: Unwritten) -> OpenedRun:
    """The run of a rank whose shards are not read."""
    return replace(opened, shards=unread(opened.shards, rank, memory), counter=ReadCounter())


def _unread_share(comm: Communicator, unread_run: OpenedRun, num_outputs: int, memory: Unwritten) -> Share:
    """The share of a rank whose shards, rows on disk and graph with types are not read."""
    share = read_share(comm, unread_run, num_outputs, memory.place)
    if isinstance(share.inputs, StepInputs):
        share.inputs.rows = UnreadStoredRows(share.inputs.rows)
    if isinstance(share.inputs, TypedInputs):
        # A job on row shards need not load it.
        from gnnloom.trainer.training.rehearsal.unread_types import StatedViews  # noqa: PLC0415

        share.inputs.views = StatedViews(memory)
    return share


def _written(session: Session, memory: Unwritten, *, embeddings: bool) -> Tensor | None:
    """Predictions of a rank with rows on disk: they are in temporary files, whose pages count as memory."""
    model, given = session.model, session.share.inputs
    if not isinstance(given, StepInputs):
        return None
    width = sum(model.options.dims[-2 if embeddings and model.num_layers > 1 else -1 :])
    return memory.tensor((len(given.rows.vertex), width), model.dtype)


def _stored_feature(dataset: Dataset, key: str | None) -> np.dtype[Any]:
    """The dtype in which the features of vertex data are stored; the dtype of sources if they are not there."""
    name = "feature"
    try:
        vertices = dataset.vertices(key)
    except GnnloomError:
        # Shards go on without the vertex data that they were made from.
        return VERTEX_ARRAYS[name].dtype
    return np.dtype(vertices.artifact.record(name).dtype) if vertices.has_feature else VERTEX_ARRAYS[name].dtype


class _Rehearsal:
    """One rank's part of :class:`gnnloom.trainer.training.loop.Training`, as far as memory goes."""

    def __init__(self, opened: OpenedRun, rank: int, memory: Unwritten) -> None:
        self.batches = 0
        #: The batches of a mode on a graph without types; None for other graphs, and without batches.
        self.feed: StatedBatches | None = None
        self.config, self.memory = opened.config, memory
        self.comm = comm = UnconnectedRank(rank, opened.config.algorithm.ranks)
        unread_run = _unread_run(opened, rank, memory)
        self.shards = unread_run.shards
        objective = read_objective(comm, unread_run)
        share = _unread_share(comm, unread_run, objective.num_outputs, memory)
        #: The stated views of a session on a graph with types; None for other graphs.
        self.types = cast("StatedViews", share.inputs.views) if isinstance(share.inputs, TypedInputs) else None
        self.adjacency = memory.held - share.inputs.nbytes
        self.session = session = Session.of(comm, unread_run, share, self._weighted(objective))
        if self.config.model.kind.on_edges:
            self._rehearse_inference()
        labels = session.objective.read(share.label_rows, memory.place)
        inputs = session.take_inputs()
        self.optimizer = build_optimizer(session.model, self.config.model.name, self.config.optimization)
        self.layout = session.operator.layout(session.model.num_layers)
        self.labels = self.measured = session.objective.placed(labels, session.operator)
        loss = session.objective.loss(self.layout, self.labels)
        if isinstance(loss, MaskedLoss):
            # Modes divide by it, and labels without values may have no vertex to train on.
            loss.num_terms = max(1.0, loss.num_terms)
        # Labels have no meaning here, so any rows can represent the measured rows.
        measured = self._measured()
        if measured is not None:
            count = len(measured)
            self.measured = Labels(self.labels.label[:count], self.labels.split[:count])
        self.metrics = session.objective.metrics(self.layout, self.measured)
        self.mode = self._mode(session.mode_context(inputs, self.labels, loss, 0, measured))

    def _rehearse_inference(self) -> None:
        """Let a model that takes edges have what stands for its evaluation."""
        # Other models need not load them.
        from gnnloom.trainer.models.networks.edge_model import EdgeModel  # noqa: PLC0415
        from gnnloom.trainer.training.rehearsal.edge_inference import RehearsedInference  # noqa: PLC0415
        from gnnloom.trainer.training.rehearsal.unread_types import SteadySeeds  # noqa: PLC0415

        model, shards = self.session.model, self.shards.shards
        if self.types is not None:
            attach_inference(model, self.session.opened, self.session.share, SteadySeeds())
        if isinstance(model, EdgeModel):
            num_own = self.session.operator.layout(0).num_rows
            own = rank_rows(self.config, self.session.opened.dataset, shards, self.comm.rank, num_own)
            model.inference = RehearsedInference(model, own, is_weighted=shards.weighted, is_symmetric=shards.symmetric)

    def _measured(self) -> Tensor | None:
        """Tensor with the rows that metrics may read; see :func:`gnnloom.trainer.training.evaluation.measured_rows`."""
        if not self.config.mode.reads_batches or self.config.task.on_pairs:
            return None
        own = len(self.labels.split)
        count = most_measured(self.session.opened.dataset, self.shards.shards, own)
        return self.memory.place.lasting((count,), torch.int64) if 2 * count < own else None

    def _mode(self, context: ModeContext) -> Mode:
        """The mode of the run; its batches have stated sizes."""
        config, stated = self.config, self.config.mode.kind.batch
        if stated is not None and self.types is None:
            # A job on the whole graph need not load it.
            from gnnloom.trainer.training.rehearsal.batches import StatedBatches  # noqa: PLC0415

            rows = rank_rows(config, context.dataset, context.shards, self.comm.rank, self.layout.num_rows)
            before = self.memory.held
            self.feed = StatedBatches(context, stated, rows, self.memory)
            self.batches = self.memory.held - before
            context = replace(context, feed=self.feed)
        mode: Mode = config.mode.kind.load()(context)
        return mode

    def _weighted(self, objective: Objective[Any]) -> Objective[Any]:
        if objective.task.on_pairs:
            # A task on vertices need not load it.
            from gnnloom.trainer.training.rehearsal.unread_links import unread_pairs  # noqa: PLC0415

            return unread_pairs(objective)
        # The memory of a user's function is unknown.
        own: OwnFunction | None = (lambda scores, _: scores.sum(1)) if self.config.task.is_own_loss else None
        # The values of weights do not matter, but they take memory.
        ones = self.memory.place.lasting((objective.num_outputs,), torch.float64).fill_(1)
        weights = None if self.config.task.class_weights == "none" else ones
        return replace(objective, class_weights=weights, own_loss=own)

    def run(self) -> RankMemory:
        model = self.session.model
        for epoch in range(_EPOCHS):
            model.train()
            self.mode.train_epoch(epoch, self.update)
            # A last epoch is evaluated before its checkpoint is taken. What an earlier evaluation leaves behind, such
            # as buffers, is there in the epochs after it.
            is_last = epoch == _EPOCHS - 1
            if is_last and self.feed is not None:
                # After the last epoch, no batches are prepared.
                self.feed.ahead.clear()
            if (
                self.config.run.evaluates
                if is_last
                else 0 < self.config.run.eval_every < self.config.optimization.epochs
            ):
                self.evaluate()
            checkpoint = self._checkpoint()
        if self.types is not None:
            self.batches = self.types.ahead.nbytes
        model.eval()
        if self.config.run.save_embeddings:
            written = _written(self.session, self.memory, embeddings=True)
            predicted = predicted_rows(self.session, self.mode.context.inputs, embeddings=True)
            # Of one array after the other, some chunks that are sent to the ranks that write them, and that arrive.
            for rows in predicted.values():
                moving = self._bytes(min(rows.nbytes, _MOVING_CHUNKS * CHUNK_BYTES))
                del moving
            del written
        self.memory.observe()
        memory = self.memory
        others = memory.peak - memory.workspace_at_peak - self.adjacency - self.batches + _OBJECTS
        return RankMemory(
            memory.workspace_at_peak,
            self.adjacency,
            self.batches,
            others,
            checkpoint,
            self._mapped() + self._streamed.mapped,
            self._input_files() + self._streamed.temporary,
            getattr(self.shards.shards, "read_shares", (0.0, 0.0)),
        )

    def evaluate(self) -> None:
        """Take the memory of the scores of the whole graph and of their metrics for the moment."""
        self.session.model.eval()
        with torch.no_grad():
            scores = self.mode.scores()
            self.session.objective.details(self.layout, self.measured, scores)
            self.metrics(scores)

    def _input_files(self) -> int:
        """Bytes of the temporary files of the model's input: packed rows, or what the model keeps of features."""
        given = self.session.share.inputs
        if isinstance(given, StepInputs):
            return len(given.rows.vertex) * given.rows.width * PACKED.itemsize
        if self.types is None and self.config.mode.maps_inputs and not self.config.mode.kind.is_sampled:
            inputs = self.mode.context.inputs
            # The features stay where the model reads them beside the product.
            return inputs.value.nbytes + (0 if inputs.own is None else inputs.own.nbytes)
        return 0

    def _mapped(self) -> int:
        """Bytes of the uncompressed copies of the graph and of the vertex data, or of the model's input."""
        shards, files = self.shards.shards, self._input_files()
        n = shards.num_vertices
        if self.types is not None:
            return self.types.mapped
        if files:
            return files
        if self.feed is None or not self.feed.sizes.maps_graph:
            return 0
        entry = index_dtype(n).itemsize + (np.dtype(self.config.model.dtype).itemsize if shards.weighted else 0)
        # Row pointers, and whether a row has a loop; labels and splits.
        item = _stored_feature(self.session.opened.dataset, shards.artifact.inputs.get("vertices")).itemsize
        features = n * (item * shards.num_features + 5) if self.feed.sizes.maps_features else 0
        return 9 * n + entry * self.feed.rows.nnz + features

    @property
    def _streamed(self) -> StatedBytes:
        """Bytes of an evaluation from disk, or by the layers of a model on a graph with types."""
        if self.types is not None:
            # Scores of a run that is not evaluated are in no file.
            nbytes = int(getattr(getattr(self.session.model, "inference", None), "file_bytes", 0))
            return StatedBytes(0, temporary=nbytes, mapped=nbytes)
        found = self.feed.streamed if self.feed is not None and self.config.run.evaluates else None
        return found or StatedBytes(0)

    def _checkpoint(self) -> int:
        """Take the memory of a copy of the training's state for the moment; returns the bytes of all ranks' copies."""
        found, copies = 0, list[Tensor]()
        for tensor, piece in stored_state(self.session.model, self.optimizer).values():
            whole = tensor.shape if piece is None else piece.shape
            found += math.prod(whole) * tensor.element_size()
            # One rank gathers the weights, but no rank the arrays with a row per vertex.
            if piece is None or piece.layout is None:
                copies.append(self.memory.place.lasting(whole, tensor.dtype))
            else:
                copies.append(self._own_chunks(tensor, piece.layout, piece.shape))
        return found

    def _own_chunks(self, tensor: Tensor, layout: Layout, shape: tuple[int, int]) -> Tensor:
        """Take the memory of an exchange of rows for the moment; returns the rows that a rank then writes."""
        rows = whole_rows(tensor, layout, shape[1], Kind.CHECKPOINT)
        written = self.memory.place.lasting((-(-shape[0] // self.comm.size), shape[1]), tensor.dtype)
        moving = self._bytes(min(written.nbytes, _MOVING_CHUNKS * CHUNK_BYTES))
        del rows, moving
        return written

    def _bytes(self, count: int) -> NDArray[np.uint8]:
        return self.memory.array((count,), np.dtype(np.uint8))

    def update(self) -> None:
        """Sum the gradients over the ranks, clip them, and change the parameters."""
        operator, parameters = self.session.operator, trained_parameters(self.session.model)
        sum_gradients(parameters, operator)
        if self.config.optimization.clip_norm:
            clip_gradients(parameters, self.config.optimization.clip_norm, operator.grid)
        self.optimizer.step()
