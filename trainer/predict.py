"""Predictions of a trained run for every vertex, written to the run in the order of the dataset's vertices."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gnnloom.storage.arrays import ArrayRecord, create_array, default_chunk_rows, write_rows
from gnnloom.storage.artifact import peak_memory
from gnnloom.storage.catalog import Catalog
from gnnloom.storage.checkpoint import Checkpoint, read_checkpoint
from gnnloom.storage.errors import InputError
from gnnloom.storage.files import read_json, write_json
from gnnloom.storage.run import Run
from gnnloom.trainer.checkpoint import restore_parameters
from gnnloom.trainer.comm import Communicator
from gnnloom.trainer.config import TrainConfig
from gnnloom.trainer.metrics import predicted_class
from gnnloom.trainer.models.base import Inputs
from gnnloom.trainer.redistribute import VertexOrder, whole_rows
from gnnloom.trainer.session import Session, open_session, threads_per_rank

_DIMS = {"label": ("vertex",), "score": ("vertex", "class"), "embedding": ("vertex", "feature")}


@dataclass(frozen=True, kw_only=True)
class PredictConfig:
    """Which run predicts, and on how many ranks (any number for which there are shards)."""

    catalog: str
    dataset: str
    run: str
    ranks: int = 1
    shards: str | None = None
    method: str | None = None
    grid: tuple[int, ...] | None = None
    embeddings: bool = False
    epoch: int | None = None
    threads: int = 0

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PredictConfig:
        """Build from JSON.

        Raises:
            InputError: a field is unknown or missing.
        """
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in content.items()}
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"configuration of a prediction: {error}") from error


def predict(comm: Communicator, config: PredictConfig) -> dict[str, Any]:
    """Predict with a checkpoint of a run. Collective.

    Returns:
        The summary, the same on every rank.

    Raises:
        CollectiveError: there is no such run, checkpoint or shards.
    """
    num_threads = threads_per_rank(comm, config.threads)
    session, run, checkpoint = comm.together(lambda: _open(comm, config, num_threads))
    inputs = session.take_inputs()
    comm.together(lambda: restore_parameters(checkpoint, session.model))
    write_predictions(session, inputs, run, checkpoint.epoch, embeddings=config.embeddings)
    per_rank = comm.gather_numbers([session.counter.bytes, peak_memory()])
    return {
        "run": run.name,
        "state": "finished",
        "epoch": checkpoint.epoch,
        "ranks": comm.size,
        "path": str(run.predictions().path),
        "bytes_read": per_rank[:, 0].astype(int).tolist(),
        "peak_memory": per_rank[:, 1].astype(int).tolist(),
    }


def _open(comm: Communicator, config: PredictConfig, num_threads: int) -> tuple[Session, Run, Checkpoint]:
    run = Run.open(Catalog(config.catalog).dataset(config.dataset), config.run)
    trained = TrainConfig.from_json(run.config())
    where = {name: getattr(config, name) for name in ("catalog", "ranks", "shards", "method", "grid", "run")}
    session = open_session(comm, replace(trained, **where), num_threads)
    return session, run, read_checkpoint(run.checkpoints, config.epoch)


def write_predictions(session: Session, inputs: Inputs, run: Run, epoch: int, *, embeddings: bool) -> None:
    """Run the model without dropout and write its predictions to the run. Collective.

    Args:
        epoch: number of epochs that the model was trained for.
        embeddings: write the last hidden layer's output too.
    """
    outputs = _forward(session, inputs, embeddings)
    comm, folder = session.comm, run.predictions_aside()
    if comm.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, rows in outputs.items():
            shape = (session.shards.num_vertices, *rows.shape[1:])
            create_array(folder, name, shape, rows.numpy().dtype, _DIMS[name])
    comm.barrier()
    num_layers, num_vertices = session.model.num_layers, session.shards.num_vertices
    layers = {"label": num_layers, "score": num_layers, "embedding": num_layers - 1}
    orders = {name: VertexOrder(session.operator.layout(layers[name]), num_vertices) for name in outputs}
    records = [_write_rows(folder, name, rows, orders[name]) for name, rows in outputs.items()]
    write_json(folder / ".work" / f"{comm.rank:05d}.json", {record.path: record.to_json() for record in records})
    comm.barrier()
    if comm.rank == 0:
        merged = _merge_records([read_json(path) for path in sorted((folder / ".work").glob("*.json"))])
        shutil.rmtree(folder / ".work")
        run.publish_predictions(merged, {"epoch": epoch, "num_classes": session.shards.num_classes})
    comm.barrier()


def _forward(session: Session, inputs: Inputs, embeddings: bool) -> dict[str, torch.Tensor]:
    """What is written of this rank's rows, by name. Collective."""
    model, num_classes = session.model.eval(), session.shards.num_classes
    with torch.no_grad(), session.comm.traffic.recording():
        hidden = model.embed(inputs)
        score = model.classify(hidden)
        layout = session.operator.layout(model.num_layers)
        label = predicted_class(layout, score, num_classes).to(torch.int32)
        outputs = {"label": label, "score": whole_rows(score, layout, num_classes)}
        if embeddings and model.num_layers > 1:
            last = model.num_layers - 1
            outputs["embedding"] = whole_rows(hidden.value, session.operator.layout(last), model.options.dims[last])
    return outputs


def _write_rows(folder: Path, name: str, rows: torch.Tensor, order: VertexOrder) -> ArrayRecord:
    """Write this rank's chunks of one array; the record has their pieces. Collective."""
    shape = (order.num_vertices, *rows.shape[1:])
    dtype = rows.numpy().dtype
    written = [
        write_rows(folder, name, start, chunk.numpy())
        for start, chunk in order.chunks(rows, default_chunk_rows(shape, dtype))
    ]
    pieces = tuple(piece for record in written for piece in record.pieces)
    return ArrayRecord(name, shape, dtype.name, _DIMS[name], pieces)


def _merge_records(contents: list[dict[str, Any]]) -> list[ArrayRecord]:
    """The arrays with the pieces of all ranks."""
    merged = []
    for name in contents[0]:
        records = [ArrayRecord.from_json(name, content[name]) for content in contents]
        pieces = sorted((piece for record in records for piece in record.pieces), key=lambda piece: piece.start)
        merged.append(replace(records[0], pieces=tuple(pieces)))
    return merged
