"""Labels of pairs: losses and metrics of the vertex tasks, with a row of scores for each pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from torch import Tensor

from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.feed.pair_seeds import TEST, TRAIN, VALID, PairSet
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.links.pair_rows import taken_ends
from gnnloom.trainer.tasks.objectives.classes import Classes
from gnnloom.trainer.tasks.objectives.numbers import Numbers
from gnnloom.trainer.tasks.objectives.objective import Metrics
from gnnloom.trainer.tasks.objectives.pairs import Ends, PairLabels, PairObjective, PairStepLoss
from gnnloom.trainer.tasks.objectives.vertex_objective import VertexObjective

_SPLITS = (TRAIN, VALID, TEST)
#: Count of numbers in the vectors that are fetched at a time when pairs are evaluated.
_FETCHED: Final = 1 << 22
_ENDS = ("number", "source", "target")


@dataclass(frozen=True)
class EdgeObjective(PairObjective):
    """A task on the values of pairs."""

    #: The class that works on rows of scores.
    by_row: ClassVar[type[VertexObjective]] = Classes

    @property
    def _rows(self) -> VertexObjective:
        return self.by_row(self.task, self.num_scores)

    def step_loss(self, labels: PairLabels, pairs: PairSet, split: str, count: int, ends: Ends) -> PairStepLoss:  # noqa: ARG002 - the loss counts
        layout, known = _as_rows(labels, [pairs], [split])
        loss, place = self._rows.loss(layout, known, split), layout.place

        def contribute(output: Tensor) -> Tensor:
            found, (source, target) = ends(output, pairs.source, pairs.target)
            scores = self.decode(*taken_ends(found, source, target, place))
            return loss(scores.view(len(pairs), self.num_scores))

        return PairStepLoss(loss.num_examples, loss.num_terms, contribute)

    def metrics(self, layout: Layout, labels: PairLabels) -> Metrics:  # noqa: ARG002 - labels know it
        pairs, rows, known = self._all(labels)
        measure = self._rows.metrics(rows, known)
        return lambda scores: measure(self._scored(labels, pairs, scores))

    def details(self, layout: Layout, labels: PairLabels, scores: Tensor) -> dict[str, Any]:  # noqa: ARG002 - as above
        pairs, rows, known = self._all(labels)
        return self._rows.details(rows, known, self._scored(labels, pairs, scores))

    def _all(self, labels: PairLabels) -> tuple[PairSet, Layout, Labels]:
        """The pairs of all splits, as rows."""
        sets = [labels.sets[split] for split in _SPLITS]
        pairs = PairSet(*(np.concatenate([getattr(each, name) for each in sets]) for name in _ENDS))
        return pairs, *_as_rows(labels, sets, _SPLITS)

    def _scored(self, labels: PairLabels, pairs: PairSet, scores: Tensor) -> Tensor:
        """(num_pairs, num_scores) scores of pairs of this rank, without gradients. Collective."""
        found = labels.rows
        rows, place = found.spread(scores), found.layout.place
        step = max(1, _FETCHED // max(1, self.num_outputs))
        out = place.lasting((len(pairs), self.num_scores), rows.dtype)
        # Ranks fetch rows from each other in every step, including ranks without remaining pairs.
        for start in range(0, int(found.layout.grid.comm.gather_numbers([len(pairs)]).max()), step):
            part = pairs.take(slice(start, start + step))
            source, target = found.ends(rows, part.source, part.target)
            out[start : start + step] = self.decode(source, target).view(len(part), self.num_scores)
        return out


@dataclass(frozen=True)
class EdgeClasses(EdgeObjective):
    """A class of each pair."""


@dataclass(frozen=True)
class EdgeNumbers(EdgeObjective):
    """A number for each pair."""

    by_row: ClassVar[type[VertexObjective]] = Numbers


def _as_rows(labels: PairLabels, sets: Sequence[PairSet], splits: Sequence[str]) -> tuple[Layout, Labels]:
    """A layout with a row for each pair of some sets, without copies, and the labels of the pairs."""
    rows = labels.rows.layout
    number = np.concatenate([each.number for each in sets])
    value = np.concatenate([each.value for each in sets if each.value is not None])
    if value.dtype != np.int64:
        value = value[:, None]
    split = np.repeat(np.array([SPLIT[name] for name in splits], np.uint8), [len(each) for each in sets])
    return replace(rows, vertex=number), Labels.of(value, split, rows.place)
