"""Batches of sampled neighbors as a rank trains on them, wherever they come from."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from gnnloom.storage.matrix.layered import LayeredBatch


@dataclass(frozen=True)
class Drawn:
    """One batch of a rank.

    Attributes:
        batch: its vertices and rows.
        label: (num_seeds, ...) labels of the seeds, as in :class:`~gnnloom.trainer.data.vertex_data.Labels`.
        feature: (num_vertices, num_features) input features of its vertices, normalized; without rows if they are
            fetched from other ranks.
    """

    batch: LayeredBatch
    label: Tensor
    feature: Tensor


class Batches(Protocol):
    """The batches of one rank.

    Attributes:
        num_batches: batches per epoch of this rank.
    """

    num_batches: int

    def begin(self, epoch: int) -> Generator[Drawn, None, None]:
        """The batches of an epoch, prepared ahead of their use; close it to end what prepares them.

        Communicates nothing.
        """
        ...

    def nothing(self) -> Drawn:
        """A batch of no vertices, for steps in which only other ranks have one."""
        ...

    def inputs(self, drawn: Drawn) -> Tensor:
        """(num_vertices, num_features) input features of a batch, normalized. Collective."""
        ...
