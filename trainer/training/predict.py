"""Predicts every vertex with a trained run and writes the predictions to the run, in the order of the dataset."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

from gnnloom.storage.catalog import Catalog
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.meters import peak_memory
from gnnloom.storage.runs.checkpoint import StoredCheckpoint, read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import Alike, together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.config.continuation import predicting_checkpoint
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.stored_predictions import Found, look_up, summary
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.layout.vertex_arrays import VertexArray, write_vertex_arrays
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.place.global_generator import Draws
from gnnloom.trainer.training.alike import alike_data
from gnnloom.trainer.training.session import Session, open_session, predicted_rows, threads_per_rank, writing
from gnnloom.trainer.training.start import read_inputs
from gnnloom.trainer.training.state.checkpoint import restore_parameters


def predict(comm: Communicator, config: PredictConfig) -> dict[str, Any]:
    """Predict with a checkpoint of a run, unless the run has these predictions already. Collective.

    Returns:
        The summary, the same on every rank.

    Raises:
        CollectiveError: the run, its checkpoint or the shards do not exist, or another process writes the run.
    """
    with writing(comm, lambda: _run_of(config), config.wait_timeout):
        # Rank 0 looks for all, since ranks that disagree would wait for each other.
        found = together(comm, lambda: look_up(_run_of(config), config) if comm.rank == 0 else Found(0, False))
        epoch, embeds = comm.gather_numbers([found.epoch, found.embeds])[0].astype(int).tolist()
        if epoch:
            return summary(_run_of(config), epoch)
        computed = together(comm, lambda: _computed(config), lambda computed: _found(comm, config, computed))
        num_threads = threads_per_rank(comm, config.threads)
        session, run, checkpoint = together(comm, lambda: _open(comm, config, computed, num_threads))
        inputs = session.take_inputs()
        together(comm, lambda: restore_parameters(checkpoint, session.model))
        write_predictions(session, inputs, run, checkpoint.epoch, embeddings=bool(embeds))
    per_rank = comm.gather_numbers([session.counter.bytes, peak_memory()])
    return summary(run, checkpoint.epoch) | {
        "reused": False,
        "ranks": comm.size,
        "bytes_read": per_rank[:, 0].astype(int).tolist(),
        "peak_memory": per_rank[:, 1].astype(int).tolist(),
    }


def _run_of(config: PredictConfig) -> Run:
    return Run.open(Catalog(config.catalog).dataset(config.dataset), config.run)


def _found(comm: Communicator, config: PredictConfig, computed: TrainConfig) -> Alike:
    """What this rank finds in the catalog, which must be the same on all ranks. Communicates nothing."""
    epoch = predicting_checkpoint(_run_of(config), config.checkpoint, config.epoch)[1]
    found = {**computed.to_json(), "epoch of the checkpoint": epoch}
    return alike_data(read_inputs(comm, computed), found)


def _computed(config: PredictConfig) -> TrainConfig:
    """The configuration of what the prediction computes."""
    # Only the places to read from and the ranks change; the model is that of the training.
    where = {name: getattr(config, name) for name in ("catalog", "dataset", "ranks", "shards", "method", "grid", "run")}
    # Samples hold batches of training; predictions come from the shards.
    return replace(TrainConfig.of_run(_run_of(config)), **where, samples=None)


def _open(
    comm: Communicator, config: PredictConfig, computed: TrainConfig, num_threads: int
) -> tuple[Session, Run, StoredCheckpoint]:
    run = _run_of(config)
    session = open_session(comm, computed, num_threads)
    return session, run, _checkpoint_of(run, config, (comm.rank, comm.size), session.counter)


def _checkpoint_of(run: Run, config: PredictConfig, share: tuple[int, int], counter: ReadCounter) -> StoredCheckpoint:
    """The checkpoint that predicts, of which this rank checks its share.

    Raises:
        NotFoundError: there is no such checkpoint.
    """
    folder, epoch = predicting_checkpoint(run, config.checkpoint, config.epoch)
    if folder == run.best_checkpoint and not epoch:
        raise NotFoundError(f"{run.path}: the run has no best checkpoint; train with --keep-best, or use the last one")
    # Without any checkpoint, the error says so.
    return read_checkpoint(folder, epoch or None, share=share, counter=counter)


def write_predictions(session: Session, inputs: Inputs, run: Run, epoch: int, *, embeddings: bool) -> None:
    """Run the model without dropout and write its predictions to the run. Collective.

    Args:
        epoch: number of epochs that the model was trained.
        embeddings: write the last hidden layer's output too.
    """
    with session.drawing(Draws.EVALUATION, epoch):
        outputs = predicted_rows(session, inputs, embeddings=embeddings)
    comm, folder = session.comm, run.predictions_aside()
    if comm.rank == 0:
        # A killed prediction may have left a folder. The other ranks write after a barrier inside write_vertex_arrays.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    num_layers = session.model.num_layers
    # The embedding is the input of the last layer and has that layer's layout; all other arrays belong to its output.
    layers = {name: num_layers - (name == "embedding") for name in outputs}
    dims = {**session.objective.task.predicts, "embedding": ("vertex", "feature")}
    arrays = [
        VertexArray(name, rows, session.operator.layout(layers[name]), dims[name]) for name, rows in outputs.items()
    ]
    records = write_vertex_arrays(comm, folder, arrays, session.shards.num_vertices, Kind.PREDICTION)
    if comm.rank == 0:
        run.publish_predictions(records, {"epoch": epoch, "num_classes": session.shards.num_classes})
    # No rank returns before the predictions are published.
    comm.barrier()
