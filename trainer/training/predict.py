"""Predicts every vertex with a trained run and writes the predictions to the run, in the order of the dataset."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.meters import peak_memory
from gnnloom.storage.runs.checkpoint import StoredCheckpoint, read_checkpoint
from gnnloom.storage.runs.predictions import SMOOTHED
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.algorithms.algorithm import STREAMS
from gnnloom.trainer.comm.agreement import Alike, broadcast_bytes, together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.config.continuation import OpenedRun, predicting_checkpoint
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.smoothing_config import SmoothingConfig
from gnnloom.trainer.config.stored_predictions import SMOOTHING, StoredPredictions, look_up, summary
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import FEATURES, OwnRowShard
from gnnloom.trainer.layout.vertex_arrays import VertexArrayPiece, write_vertex_arrays
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.passes.evaluation import Report, can_stream
from gnnloom.trainer.passes.memory import fits_whole, whole_bytes
from gnnloom.trainer.place.global_generator import Draws
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.propagation.memory import RankSizes
from gnnloom.trainer.training.alike import alike_data
from gnnloom.trainer.training.outputs import predicted_rows, stored_rows, streamed_rows
from gnnloom.trainer.training.rehearsal.rank_memory import rehearse_prediction
from gnnloom.trainer.training.run_lock import writing
from gnnloom.trainer.training.session import Session, open_session
from gnnloom.trainer.training.smoothing import objective_of, smooth
from gnnloom.trainer.training.state.checkpoint import restore


def predict(comm: Communicator, config: PredictConfig) -> dict[str, Any]:
    """Predict with a checkpoint of a run, unless the run has these predictions already. Collective.

    For a run on pairs, also finds the best targets of vertices if the configuration asks for them.

    Returns:
        The summary, the same on every rank.

    Raises:
        CollectiveError: the run, its checkpoint or the shards do not exist, another process writes the run, or its
            predictions cannot be smoothed.
    """

    def find() -> tuple[Dataset, Run]:
        dataset = Catalog(config.catalog).dataset(config.dataset)
        return dataset, Run.open(dataset, config.run)

    with writing(comm, find, config.wait_timeout) as (dataset, run):
        found = find_predictions(comm, run, config)
        result = summary(run, found.epoch) if found.epoch else _predicted(comm, dataset, run, config, found)
        if config.targets is not None:
            # Other predictions need not load it.
            from gnnloom.trainer.training.best_targets import find_targets  # noqa: PLC0415

            threads = config.threads or comm.this_machine().threads
            find_targets(comm, dataset, run, Path(config.targets), config.top, threads, config.decoder)
        return result


def _predicted(
    comm: Communicator, dataset: Dataset, run: Run, config: PredictConfig, found: StoredPredictions
) -> dict[str, Any]:
    """Compute the missing predictions of a run; returns the summary. Collective."""

    def alike(opened: OpenedRun) -> Alike:
        epoch = predicting_checkpoint(run, config.checkpoint, config.epoch)[1]
        return alike_data(opened.inputs, {**opened.config.to_json(), "epoch of the checkpoint": epoch})

    def opened_to_write() -> OpenedRun:
        # A finished run in a catalog that cannot be written can be shown without a lock, see `sole_writer`.
        if comm.rank == 0 and not os.access(run.path, os.W_OK):
            raise InputError(
                f"{run.path}: these predictions are not stored yet, and the folder of the run cannot be written; make"
                " it writable, or predict in a copy of the dataset (`gnnloom catalog export`)"
            )
        return OpenedRun.open(_computed(run, config), dataset, run, comm.rank, comm.size, predicts=True)

    opened = together(comm, opened_to_write, alike)
    num_threads, computes = config.threads or comm.this_machine().threads, not found.lacks_smoothing
    streams = _streams(comm, opened, config.evaluation_memory, computes=computes)
    session = together(comm, lambda: open_session(comm, opened, num_threads, streams=streams, reads_features=computes))
    session.operator.agree()
    if found.smoothing.smooths:
        together(comm, lambda: _check_smoothing(session))
    report = None
    if computes:
        checkpoint = together(comm, lambda: _checkpoint_of(comm, opened, config))
        inputs, epoch = None if streams else session.take_inputs(), checkpoint.epoch
        together(comm, lambda: restore(checkpoint, session.model))
        if inputs is not None:
            write_predictions(session, inputs, epoch, found)
        else:
            report = _write_from_disk(session, config, epoch, found)
    else:
        epoch = predicting_checkpoint(run, config.checkpoint, config.epoch)[1]
        rows = together(comm, lambda: stored_rows(session, run.predictions()))
        write_rows(session, rows, epoch, found.smoothing)
    per_rank = comm.gather_numbers([opened.counter.bytes, peak_memory()])
    return summary(run, epoch) | {
        "reused": False,
        "ranks": comm.size,
        "bytes_read": per_rank[:, 0].astype(int).tolist(),
        "peak_memory": per_rank[:, 1].astype(int).tolist(),
        **({} if report is None else {"evaluation": report.to_json()}),
    }


def _check_smoothing(session: Session) -> None:
    """Check that predictions can be smoothed, which reads labels.

    Raises:
        InputError: the run does not predict one class per vertex; or it was trained on another graph, and the labels of
            this graph number the classes differently.
    """
    objective_of(session)
    opened = session.opened
    if opened.transfer is None or "vertices" not in opened.inputs:
        return
    vertices = opened.dataset.vertices(opened.inputs["vertices"])
    if vertices.class_names != opened.transfer.class_names[: len(vertices.class_names)]:
        raise InputError(
            f"smooth: {vertices.artifact.path} numbers the classes differently than the labels that run"
            f" {opened.transfer.dataset}/{opened.transfer.run} was trained on; predict without smoothing"
        )


def find_predictions(comm: Communicator, run: Run, config: PredictConfig) -> StoredPredictions:
    """Find the requested predictions that a run already has, the same on every rank. Collective.

    Raises:
        CollectiveError: the run's configuration is not valid.
    """
    # Rank 0 looks on behalf of all ranks, because ranks that disagree would wait for each other.
    found = together(
        comm, lambda: look_up(run, config) if comm.rank == 0 else StoredPredictions(0, False, config.smoothing)
    )
    content = json.dumps(dataclasses.asdict(found)).encode()
    length = int(comm.gather_numbers([len(content)])[0, 0])
    first = json.loads(broadcast_bytes(comm, content, length, 0))
    smoothing = SmoothingConfig.of_facts(first["smoothing"])
    return StoredPredictions(first["epoch"], first["embeds"], smoothing, first["lacks_smoothing"])


def _streams(comm: Communicator, opened: OpenedRun, memory: int, *, computes: bool) -> bool:
    """Whether to predict from disk: the graph, the features and the layers do not fit memory. Collective.

    Args:
        memory: bytes for each rank; 0 for its share of the machine's free memory.
        computes: run the model, rather than only smooth stored predictions.
    """
    config, shards = opened.config, opened.shards
    is_stored = not (config.model.embed or config.model.train_features or config.task.on_pairs)
    streams = STREAMS in config.algorithm.kind.capabilities and can_stream(config.model.kind.load())
    if not isinstance(shards, OwnRowShard) or not is_stored or not streams or "feature" not in shards.shard:
        return False
    sizes, place = RankSizes.of(shards.shard), Place(getattr(torch, config.model.feature_dtype))
    # Classes are few, so the widths of the hidden layers and of the features decide.
    outputs = max(opened.label_sizes.num_classes, opened.label_sizes.num_targets, 1)
    dims = (shards.shards.num_features, *config.model.hidden, outputs) if computes else (outputs, outputs)

    def needed(most: int) -> int:
        about = whole_bytes(sizes, dims, place)
        if not computes or _AMPLE * about + _FIXED < most:
            return about
        return rehearse_prediction(opened, comm.rank) or about

    return not fits_whole(comm, needed, memory)


#: A prediction is not rehearsed if this multiple of its approximate memory, plus the memory that does not depend on the
#: graph, fits.
_AMPLE: Final = 8
_FIXED: Final = 128 << 20


def _write_from_disk(session: Session, config: PredictConfig, epoch: int, wanted: StoredPredictions) -> Report:
    """Predict from disk, and write the predictions to the run. Collective."""
    run, norm = session.opened.run, session.config.data.feature_norm
    if norm == "auto" and run.is_finished:
        norm = run.result().get("feature_norm", norm)
    with session.drawing(Draws.EVALUATION, epoch):
        rows, report = streamed_rows(session, norm, config.evaluation_memory, embeddings=wanted.embeds)
    write_rows(session, rows, epoch, wanted.smoothing)
    return report


def _computed(run: Run, config: PredictConfig) -> TrainConfig:
    """The configuration with which the prediction computes.

    Raises:
        InputError: embeddings are requested, but the model has none.
    """
    trained = config.trained(run)
    if config.embeddings and trained.model.kind.on_edges:
        raise InputError(
            f"embeddings: model {trained.model.name} is a module of torch, whose hidden layers are its own"
        )
    # Only the places to read from and the ranks change; the model is the trained model.
    where = {name: getattr(config, name) for name in ("catalog", "dataset", "ranks", "shards", "method", "grid", "run")}
    # Samples hold training batches; predictions come from the shards. There may be more links and other artifacts by
    # now.
    kept: dict[str, Any] = {kind: run.inputs().get(kind) for kind in ("links", "propagated")}
    if trained.mode.kind.reads_rows and kept["propagated"] is None:
        kept["steps"] = (FEATURES,)
    # Modes that sample have only batches on disk, with which no whole product can be formed.
    inputs = "memory" if trained.mode.kind.is_sampled else trained.mode.inputs
    return trained.with_options(**where, samples=None, inputs=inputs, **kept)


def _checkpoint_of(comm: Communicator, opened: OpenedRun, config: PredictConfig) -> StoredCheckpoint:
    """The checkpoint for the prediction; this rank checks its share.

    Raises:
        NotFoundError: there is no such checkpoint.
    """
    run = opened.run
    folder, epoch = predicting_checkpoint(run, config.checkpoint, config.epoch)
    if folder == run.best_checkpoint and not epoch:
        raise NotFoundError(f"{run.path}: the run has no best checkpoint; train with --keep-best, or use the last one")
    # Without any checkpoint, the error says so.
    return read_checkpoint(folder, epoch or None, share=(comm.rank, comm.size), counter=opened.counter)


def write_predictions(session: Session, inputs: Inputs, epoch: int, wanted: StoredPredictions) -> None:
    """Run the model without dropout and write its predictions to the run. Collective.

    Args:
        epoch: number of epochs that the model was trained.
        wanted: whether to write the last hidden layer's output too, and how to smooth the predictions.

    Raises:
        CollectiveError: the predictions are to be smoothed, but the shards have no labels.
    """
    with session.drawing(Draws.EVALUATION, epoch):
        outputs = predicted_rows(session, inputs, embeddings=wanted.embeds)
    write_rows(session, outputs, epoch, wanted.smoothing)


def write_rows(session: Session, outputs: Mapping[str, Tensor], epoch: int, smoothing: SmoothingConfig) -> None:
    """Smooth predictions if requested, and write them to the run. Collective.

    Args:
        outputs: this rank's rows of the arrays, by name.
        epoch: number of epochs that the model was trained.

    Raises:
        CollectiveError: the predictions are to be smoothed, but the shards have no labels; or a temporary file that
            they come from has changed.
    """
    comm, run, shards = session.comm, session.opened.run, session.opened.shards.shards
    num_layers = session.model.num_layers
    dims = {**session.objective.task.predicts, "embedding": ("vertex", "feature")}
    # The embedding is the input of the last layer and has that layer's layout; all other arrays belong to its output.
    layers = {name: num_layers - (name == "embedding") for name in outputs}
    arrays = [
        VertexArrayPiece(name, rows, session.operator.layout(layers[name]), dims[name])
        for name, rows in outputs.items()
    ]
    facts: dict[str, Any] = {"epoch": epoch, "num_classes": session.opened.label_sizes.num_classes}
    if smoothing.smooths:
        smoothed = smooth(session, outputs["score"], smoothing)
        facts[SMOOTHING] = smoothing.to_json() | smoothed.figures
        arrays += [
            VertexArrayPiece(name, rows, smoothed.layout, dims[name.removeprefix(SMOOTHED)])
            for name, rows in smoothed.arrays.items()
        ]
    folder = run.predictions_aside()
    if comm.rank == 0:
        # A killed prediction may have left a folder. Other ranks write only after a barrier inside write_vertex_arrays.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    records = write_vertex_arrays(comm, folder, arrays, shards.num_vertices, Kind.PREDICTION)
    # After they are written and before they are published.
    together(comm, session.place.files.check)
    if comm.rank == 0:
        run.publish_predictions(records, facts)
    # No rank returns before the predictions are published.
    comm.barrier()
