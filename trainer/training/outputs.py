"""The arrays that a session predicts for the rows of its rank: computed in memory or from disk, or read."""

from __future__ import annotations

import torch

from gnnloom.storage.runs.predictions import SMOOTHED, Predictions
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.redistribute import whole_rows
from gnnloom.trainer.layout.vertex_arrays import read_vertex_rows
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.modes.epochs.model_inputs import StepInputs
from gnnloom.trainer.passes.evaluation import Report, streamed_outputs
from gnnloom.trainer.passes.rows_only import all_outputs
from gnnloom.trainer.place.arrays import tensor_dtype
from gnnloom.trainer.training.session import Session


def streamed_rows(
    session: Session, feature_norm: str, memory: int, *, embeddings: bool
) -> tuple[dict[str, torch.Tensor], Report]:
    """The arrays to write for this rank's rows, by name, from disk, and how they were computed. Collective.

    Args:
        feature_norm: how the features were scaled in training, or ``auto``.
        memory: bytes for this rank; 0 for its share of the machine's free memory.
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
            vertex = session.operator.layout(last - (name == "embedding")).ids
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
        if isinstance(given := session.share.inputs, StepInputs):
            return _rowwise_outputs(session, given, embeddings=embeddings)
        hidden = model.embed(inputs)
        layout = session.operator.layout(model.num_layers)
        outputs = session.objective.predict(layout, model.classify(hidden))
        if embeddings and model.num_layers > 1:
            last = model.num_layers - 1
            before, width = session.operator.layout(last), model.options.dims[last]
            outputs["embedding"] = whole_rows(model.as_sums(hidden.value), before, width, Kind.PREDICTION)
    return outputs


def _rowwise_outputs(session: Session, given: StepInputs, *, embeddings: bool) -> dict[str, torch.Tensor]:
    """The arrays of a model that treats rows one by one, whose input stays on disk. Collective."""
    model = session.model
    scores, hidden = together(session.comm, lambda: all_outputs(model, given.rows, given.norm, embeddings=embeddings))
    outputs = session.objective.predict(session.operator.layout(model.num_layers), scores)
    return outputs if hidden is None else {**outputs, "embedding": hidden}
