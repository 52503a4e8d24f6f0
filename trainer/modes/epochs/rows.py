"""``rows``: batches of training vertices, of which only rows are read; every rank trains on those that it owns.

Frasca et al., "SIGN: Scalable Inception Graph Neural Networks" (GRL+ workshop at ICML 2020), section 3: what needs the
edges was done before. The rows of all vertices with a label are copied to a temporary file, in which batches are random
accesses and evaluations one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.sampling.vertex import batch_of
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.batch_share import Division
from gnnloom.trainer.data.stored_rows import StoredRows
from gnnloom.trainer.data.vertex_numbers import number_vertices
from gnnloom.trainer.feed.feature_view import FeatureView, PropagatedFeatures
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.modes.epochs.mode import ModeContext, multiplying_by
from gnnloom.trainer.modes.epochs.model_inputs import StepInputs
from gnnloom.trainer.modes.epochs.prepared import Prepared, PreparedMode, once_per_epoch
from gnnloom.trainer.operators.whole_rows import AXIS, RowsOnly
from gnnloom.trainer.place.arrays import as_array
from gnnloom.trainer.place.mapped_rows import MappedRows, UnbackedRows
from gnnloom.trainer.place.place import Place

#: Numbers of the widest layer that an evaluation has at a time.
_NUMBERS: Final = 1 << 22


class RowsMode(PreparedMode):
    """Each epoch divides the training vertices of all ranks at random into batches.

    A step takes the mean over a batch. Losses depend on the number of ranks by rounding only.
    """

    def __init__(self, context: ModeContext) -> None:
        """Pack the rows of the vertices with a label, and begin to prepare batches. Collective.

        Raises:
            CollectiveError: a row cannot be read, or holds a value that is not a finite number.
        """
        super().__init__(context)
        objective, labels = context.vertex_objective, context.labels
        self._rows = stored_rows(context)
        known = {split: as_array(objective.known(labels, split)) for split in SPLIT if split != "none"}
        self._measured = np.flatnonzero(np.logical_or.reduce(list(known.values())))
        packed = together(context.comm, lambda: self._rows.packed(self._measured))
        context.place.files.while_used(packed)
        self.features = _view(self._rows, packed.values, self._measured, context.feature_norm, context.place)
        #: Rows of this rank in the training split, and their numbers among those of all.
        self._training = np.flatnonzero(known["train"])
        self._number, self._total = number_vertices(
            context.comm, context.shards.num_vertices, self._rows.vertex[self._training], context.place
        )
        self.num_batches = -(-self._total // context.options["batch_size"])
        self._division = once_per_epoch(self._divide)
        self._begin()

    def _divide(self, epoch: int) -> Division:
        context = self.context
        batch = batch_of(self._total, context.options["batch_size"], context.seed, epoch, self._number)
        return Division(batch, self.num_batches)

    def _prepare(self, number: int) -> Prepared:
        """See :meth:`PreparedMode._prepare`: reads this rank's rows of a batch."""
        context = self.context
        epoch, batch = divmod(number, self.num_batches)
        rows = self._training[self._division(epoch).members(batch)]
        vertex, labels = self._rows.vertex[rows], context.labels.take(context.place.from_numpy(rows))
        loss = context.vertex_objective.loss(Layout(self.alone, vertex, (AXIS,)), labels)
        return Prepared(number, vertex, RowsOnly(context.operator.grid, vertex), self.features.ahead(vertex), loss)

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:  # noqa: ARG002 - batches come in order
        total = 0.0
        for _ in range(self.num_batches):
            share = next(self._ready)
            # If the classes of a batch have no weight, it has no gradient on any rank.
            if terms := self._terms(share):
                total += self._train_batch(share, terms)
                update()
        return total / self.context.loss.num_terms

    def scores(self) -> Tensor:
        """See :meth:`Mode.scores`; zeros for vertices without a label, which no metric reads."""
        context = self.context
        found = _new_rows(context.model, self._rows, "scores", context.objective.num_outputs)
        for rows in _steps(context.model, self._measured):
            found.write(rows, _outputs(context.model, self._rows.vertex[rows], self.features)[1])
        context.place.files.once(found.check)
        return found.tensor


def stored_rows(context: ModeContext) -> StoredRows:
    """The rows that the session has opened.

    Raises:
        InputError: it has not.
    """
    if not isinstance(context.given, StepInputs):
        raise InputError("mode rows: the session has opened no rows")
    return context.given.rows


def all_outputs(model: Model, rows: StoredRows, norm: str, *, embeddings: bool) -> tuple[Tensor, Tensor | None]:
    """Scores, and the last layer's input if wanted, of all vertices of this rank; some at a time.

    Called without gradients, with the model in evaluation mode. Communicates nothing. The files of the results are
    compared with what was written by the next check of the files of the model's place.

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
        features = _view(rows, packed.values, part, norm, model.place)
        for step in model.place.steps(_steps(model, part)):
            found = _outputs(model, rows.vertex[step], features)
            for each, output in zip((before, made), found, strict=True):
                if each is not None:
                    each.write(step, output)
        packed.check()
    for each in (made, before):
        if each is not None:
            model.place.files.once(each.check)
    return made.tensor, None if before is None else before.tensor


def _view(
    rows: StoredRows, packed: NDArray[np.float32], of: NDArray[np.int64], norm: str, place: Place
) -> PropagatedFeatures:
    """Packed rows as the model's input.

    Args:
        of: (num_packed,) int64 which of the rank's rows they are.
    """
    return PropagatedFeatures(packed, rows.vertex[of], rows.num_features, norm, place)


def step_rows(model: Model) -> int:
    """Rows that an evaluation treats at a time."""
    return max(1, _NUMBERS // max(model.options.dims))


def _steps(model: Model, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    size = step_rows(model)
    yield from (rows[start : start + size] for start in range(0, len(rows), size))


def _outputs(model: Model, vertex: NDArray[np.int64], features: FeatureView) -> tuple[Tensor, Tensor]:
    """The last layer's input and the scores of some vertices, of the dtype of sums."""
    with multiplying_by(RowsOnly(model.operator.grid, vertex), model):
        hidden = model.embed(Inputs(features.rows(vertex)))
        # Reading scores may empty what they are made of.
        before = model.as_sums(hidden.value)
        return before, model.classify(hidden)


def _new_rows(model: Model, rows: StoredRows, what: str, width: int) -> MappedRows | UnbackedRows:
    """(num_own, width) zeros of the dtype of sums in a temporary file."""
    return model.place.mapped(rows.folder, what, (len(rows.vertex), width), model.dtype)
