"""Outputs of models that treat rows one by one: their input stays on disk, and some rows of it are read at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.data.stored_rows import StoredRows
from gnnloom.trainer.feed.feature_view import FeatureView, PropagatedFeatures
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.operators.whole_rows import RowsOnly
from gnnloom.trainer.passes.passes import Out, run_pass
from gnnloom.trainer.passes.ranges import rows_alone
from gnnloom.trainer.place.mapped_rows import MappedRows
from gnnloom.trainer.place.place import Place


def measured_scores(model: Model, rows: StoredRows, features: FeatureView, measured: NDArray[np.int64]) -> Tensor:
    """Scores of some of this rank's vertices; zeros for the others. Communicates nothing.

    Called as :func:`all_outputs` is.

    Args:
        features: features of the vertices.
        measured: (num_measured,) int64 rows of this rank.

    Returns:
        (num_own, num_outputs) of the dtype of sums; the memory of a temporary file.
    """
    found = _new_rows(model, rows, "scores", model.options.dims[-1])
    _write_outputs(model, rows, features, measured, [None, found])
    model.place.files.once(found.check)
    return found.tensor


def all_outputs(model: Model, rows: StoredRows, norm: str, *, embeddings: bool) -> tuple[Tensor, Tensor | None]:
    """Scores, and the last layer's input if wanted, of all vertices of this rank; some at a time.

    Called without gradients, with the model in evaluation mode. Communicates nothing. The next check of the files of
    the model's place compares the files of the results with their checksums.

    Args:
        norm: ``row`` or ``none``; see :func:`gnnloom.trainer.data.vertex_data.normalize_feature`.

    Returns:
        (num_own, num_outputs) and (num_own, width) of the dtype of sums; the memory of temporary files.

    Raises:
        InputError: a feature is not a finite number.
    """
    dims = model.options.dims
    embeds = embeddings and model.num_layers > 1
    made = _new_rows(model, rows, "scores", dims[-1])
    before = _new_rows(model, rows, "embeddings", dims[-2]) if embeds else None
    for part in rows.ranges():
        packed = rows.packed(part)
        _write_outputs(model, rows, packed_view(rows, packed.values, part, norm, model.place), part, [before, made])
        packed.check()
    for each in (made, before):
        if each is not None:
            model.place.files.once(each.check)
    return made.tensor, None if before is None else before.tensor


def packed_view(
    rows: StoredRows, packed: NDArray[np.float32], of: NDArray[np.int64], norm: str, place: Place
) -> PropagatedFeatures:
    """Packed rows as the model's input.

    Args:
        of: (num_packed,) int64 which of the rank's rows they are.
    """
    return PropagatedFeatures(packed, rows.vertex[of], rows.num_features, norm, place)


def _write_outputs(
    model: Model,
    rows: StoredRows,
    features: FeatureView,
    some: NDArray[np.int64],
    files: Sequence[MappedRows | None],
) -> None:
    """Write the last layer's input and the scores of some rows to the files that are there."""

    def out(file: MappedRows) -> Out:
        return lambda start, found: file.write(some[start : start + len(found)], found)

    outs = [None if file is None else out(file) for file in files]
    run_pass(OwnRows(model, features, rows.vertex[some]), len(some), outs, model.place)


class OwnRows:
    """See :class:`gnnloom.trainer.passes.passes.Pass`: the last layer's input and the scores, of the dtype of sums."""

    def __init__(self, model: Model, features: FeatureView, vertices: NDArray[np.int64]) -> None:
        self._model, self._features, self._vertices = model, features, vertices
        self._size = rows_alone(model.options.dims)

    def next(self, start: int) -> tuple[int, NDArray[np.int64]]:
        stop = min(start + self._size, len(self._vertices))
        return stop, self._vertices[start:stop]

    def read(self, given: NDArray[np.int64]) -> Tensor:
        return self._features.rows(given)

    def outputs(self, given: NDArray[np.int64], rows: Tensor) -> Sequence[Tensor]:
        model = self._model
        with model.multiplying_by(RowsOnly(model.operator.grid, given)):
            hidden = model.embed(Inputs(rows))
            # Reading scores may empty what they are made of.
            before = model.as_sums(hidden.value)
            return before, model.classify(hidden)


def _new_rows(model: Model, rows: StoredRows, what: str, width: int) -> MappedRows:
    """(num_own, width) zeros of the dtype of sums in a temporary file."""
    return model.place.mapped(rows.folder, what, (len(rows.vertex), width), model.dtype)
