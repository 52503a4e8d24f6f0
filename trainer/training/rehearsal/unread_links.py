"""Links as a rank sees them before it reads them: as many pairs, of any vertices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.links import VALUE_DTYPES, Links
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.trainer.tasks.objectives.objective import Objective


def unread_pairs(objective: Objective) -> Objective:
    """An objective on pairs without their contents."""
    # It imports numba, which a task on vertices need not load.
    from gnnloom.trainer.tasks.objectives.pairs import PairObjective  # noqa: PLC0415

    if not isinstance(objective, PairObjective):
        raise TypeError(f"task {objective.task.name}: its class is not one of pairs")
    return replace(objective, links=UnreadLinks(objective.pairs.artifact))


class UnreadLinks(Links):
    """Links without contents. Vertices are random: where two pairs have one in common, its row is fetched once."""

    def pair(
        self,
        split: str,
        start: int = 0,
        stop: int | None = None,
        counter: ReadCounter | None = None,  # noqa: ARG002
    ) -> NDArray[np.int64]:
        return self._vertices(start, self._stop(split, stop), 2)

    def weight(self, start: int = 0, stop: int | None = None, counter: ReadCounter | None = None) -> NDArray[Any]:  # noqa: ARG002
        dtype = self.artifact.record("train/weight").dtype
        return np.full(self._stop("train", stop) - start, not self.artifact.facts["train_held_out"], dtype)

    def reverse_weight(
        self,
        start: int = 0,
        stop: int | None = None,
        counter: ReadCounter | None = None,
    ) -> NDArray[Any]:
        return self.weight(start, stop, counter)

    def value(
        self,
        split: str,
        start: int = 0,
        stop: int | None = None,
        counter: ReadCounter | None = None,  # noqa: ARG002
    ) -> NDArray[Any]:
        return np.zeros(self._stop(split, stop) - start, VALUE_DTYPES[self.kind])

    def negative(
        self,
        split: str,
        start: int = 0,
        stop: int | None = None,
        counter: ReadCounter | None = None,  # noqa: ARG002
    ) -> NDArray[np.int64]:
        return self._vertices(start, self._stop(split, stop), self.num_negatives(split))

    def negative_source(
        self,
        split: str,
        start: int = 0,
        stop: int | None = None,
        counter: ReadCounter | None = None,  # noqa: ARG002
    ) -> NDArray[np.int64]:
        return self._vertices(start, self._stop(split, stop), self.num_replaced(split))

    def pool(
        self,
        split: str,
        start: int = 0,
        stop: int | None = None,
        counter: ReadCounter | None = None,  # noqa: ARG002
    ) -> NDArray[np.int64]:
        return self._vertices(start, self.num_pooled(split) if stop is None else stop, 2)

    def _stop(self, split: str, stop: int | None) -> int:
        return self.num_pairs[split] if stop is None else stop

    def _vertices(self, start: int, stop: int, width: int) -> NDArray[np.int64]:
        return np.random.default_rng(start).integers(0, self.num_vertices, (stop - start, width))
