"""``rows``: batches of training vertices, of which only rows are read; every rank trains on those that it owns.

Frasca et al., "SIGN: Scalable Inception Graph Neural Networks" (GRL+ workshop at ICML 2020), section 3: what needs the
edges was done before. The rows of all vertices with a label are copied to a temporary file, in which batches are random
accesses and evaluations one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.sampling.ahead import prepare_ahead
from gnnloom.storage.sampling.vertex import batch_of
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.batch_share import Division
from gnnloom.trainer.data.stored_rows import StoredRows
from gnnloom.trainer.data.vertex_data import normalize_feature
from gnnloom.trainer.data.vertex_numbers import number_vertices
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.modes.epochs.mode import Mode, ModeContext, add_gradients, awaited, multiplying_by
from gnnloom.trainer.operators.rows_only import RowsOnly
from gnnloom.trainer.operators.whole_rows import AXIS
from gnnloom.trainer.place.arrays import array_dtype, as_array
from gnnloom.trainer.place.mapped_rows import MappedRows, UnbackedRows
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss

#: Epochs whose division into batches is kept: the present one, and the one that is prepared ahead.
_EPOCHS: Final = 2
#: Numbers of the widest layer that an evaluation has at a time.
_NUMBERS: Final = 1 << 22


@dataclass(frozen=True)
class _Share:
    """A rank's share of a batch that is ready for training.

    Attributes:
        number: of the batch, among those of all epochs.
        vertex: (num_rows,) int64 ids.
        feature: (num_rows, width) the input.
        loss: over these rows only; it sends nothing.
    """

    number: int
    vertex: NDArray[np.int64]
    feature: Tensor
    loss: MaskedLoss


class RowsMode(Mode):
    """Each epoch divides the training vertices of all ranks at random into batches.

    A step takes the mean over a batch. Losses depend on the number of ranks by rounding only.
    """

    def __init__(self, context: ModeContext) -> None:
        """Pack the rows of the vertices with a label, and begin to prepare batches. Collective.

        Raises:
            CollectiveError: a row cannot be read, or holds a value that is not a finite number.
        """
        super().__init__(context)
        objective, labels, options = context.vertex_objective, context.labels, context.options
        self._rows = stored_rows(context)
        known = {split: as_array(objective.known(labels, split)) for split in SPLIT if split != "none"}
        self._measured = np.flatnonzero(np.logical_or.reduce(list(known.values())))
        packed = together(context.comm, lambda: self._rows.packed(self._measured))
        context.place.files.while_used(packed)
        self._packed = packed.values
        #: Rows of this rank in the training split, their places in the file, and their numbers among those of all.
        self._training = np.flatnonzero(known["train"])
        self._place = np.searchsorted(self._measured, self._training)
        self._number, self._total = number_vertices(
            context.comm, context.shards.num_vertices, self._rows.vertex[self._training], context.place
        )
        self._batches = -(-self._total // options["batch_size"])
        #: A grid of this rank alone, for losses of its own rows.
        self._alone = ProcessGrid(context.operator.grid.group(()), {AXIS: 1}, context.place)
        self._lock = Lock()
        self._division = lru_cache(_EPOCHS)(self._divide)
        ready = prepare_ahead(self._prepare, self._numbers(), options["sampler_threads"], options["pool"])
        self._ready = awaited(ready, context.comm.traffic)

    def _numbers(self) -> Iterator[int]:
        epochs = self.context.epochs
        yield from range(epochs.start * self._batches, epochs.stop * self._batches)

    def _divide(self, epoch: int) -> Division:
        context = self.context
        batch = batch_of(self._total, context.options["batch_size"], context.seed, epoch, self._number)
        return Division(batch, self._batches)

    def _prepare(self, number: int) -> _Share:
        """Read this rank's rows of a batch. Communicates nothing; several threads do so at a time."""
        context = self.context
        epoch, batch = divmod(number, self._batches)
        # Two threads would divide the same epoch.
        with self._lock:
            members = self._division(epoch).members(batch)
        rows, packed = self._training[members], take_rows(self._packed, self._place[members])
        vertex = self._rows.vertex[rows]
        labels = context.labels.take(context.place.from_numpy(rows))
        loss = context.vertex_objective.loss(Layout(self._alone, vertex, (AXIS,)), labels)
        return _Share(number, vertex, as_input(packed, self._rows, context.feature_norm, context.place), loss)

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:  # noqa: ARG002 - batches come in order
        context, total = self.context, 0.0
        for _ in range(self._batches):
            share = next(self._ready)
            terms = context.place.tensor([share.loss.num_terms], torch.float64)
            context.comm.all_reduce(terms, Kind.LOSS)
            # If the classes of a batch have no weight, it has no gradient on any rank.
            if float(terms):
                context.model.zero_grad()
                operator = RowsOnly(context.operator.grid, share.vertex)
                total += add_gradients(context.model, share.number, operator, share.feature, share.loss, float(terms))
                update()
        return total / context.loss.num_terms

    def scores(self) -> Tensor:
        """See :meth:`Mode.scores`; zeros for vertices without a label, which no metric reads."""
        context = self.context
        found = _new_rows(context.model, self._rows, "scores", context.objective.num_outputs)
        for rows in _steps(context.model, np.arange(len(self._measured))):
            given = as_input(self._packed[rows], self._rows, context.feature_norm, context.place)
            scores = _outputs(context.model, self._rows.vertex[self._measured[rows]], given)[1]
            found.write(self._measured[rows], scores)
        context.place.files.once(found.check)
        return found.tensor

    def close(self) -> None:
        self._ready.close()


def stored_rows(context: ModeContext) -> StoredRows:
    """The rows that the session has opened.

    Raises:
        InputError: it has not.
    """
    if context.rows is None:
        raise InputError("mode rows: the session has opened no rows")
    return context.rows


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
        values = packed.values
        for step in model.place.steps(_steps(model, np.arange(len(part)))):
            given = as_input(values[step], rows, norm, model.place)
            found = _outputs(model, rows.vertex[part[step]], given)
            for each, output in zip((before, made), found, strict=True):
                if each is not None:
                    each.write(part[step], output)
        packed.check()
    for each in (made, before):
        if each is not None:
            model.place.files.once(each.check)
    return made.tensor, None if before is None else before.tensor


def as_input(packed: NDArray[np.float32], rows: StoredRows, norm: str, place: Place) -> Tensor:
    """(num_rows, width) packed rows as the model's input: every vertex scaled in each of the matrices."""
    given = place.from_numpy(packed.astype(array_dtype(place.sum_dtype)))
    normalize_feature(given.view(-1, rows.num_features), norm, place)
    return given


def step_rows(model: Model) -> int:
    """Rows that an evaluation treats at a time."""
    return max(1, _NUMBERS // max(model.options.dims))


def _steps(model: Model, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    size = step_rows(model)
    yield from (rows[start : start + size] for start in range(0, len(rows), size))


def _outputs(model: Model, vertex: NDArray[np.int64], given: Tensor) -> tuple[Tensor, Tensor]:
    """The last layer's input and the scores of some vertices, of the dtype of sums."""
    with multiplying_by(RowsOnly(model.operator.grid, vertex), model):
        hidden = model.embed(Inputs(given))
        # Reading scores may empty what they are made of.
        before = model.as_sums(hidden.value)
        return before, model.classify(hidden)


def _new_rows(model: Model, rows: StoredRows, what: str, width: int) -> MappedRows | UnbackedRows:
    """(num_own, width) zeros of the dtype of sums in a temporary file."""
    return model.place.mapped(rows.folder, what, (len(rows.vertex), width), model.dtype)
