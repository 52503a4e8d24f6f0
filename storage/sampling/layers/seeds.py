"""The seeds of layered batches: vertices in batches, whose order a sampler of neighbors does not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.mapped_vertices import SplitVertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.sampling.vertex import members


@dataclass(frozen=True)
class SeedsOfBatch:
    """The vertices of a batch that neighbors are drawn for.

    Attributes:
        vertices: (num_seeds,) int64, ascending; in a graph with types, such arrays by type.
        pairs: the pairs whose ends the vertices are, if any.
        without: rows and columns of the entries of the graph to draw without; in a graph with types, such rows and
            columns by relation. None to draw from all entries.
    """

    vertices: Any
    pairs: Any = None
    without: Any = None


class Seeds(Protocol):
    """The examples of all epochs, in batches."""

    @property
    def batch_size(self) -> int:
        """Examples of every batch but the last."""
        ...

    @property
    def num_examples(self) -> int:
        """Examples of an epoch."""
        ...

    def begin(self, epoch: int) -> Callable[[int], SeedsOfBatch]:
        """The function from the number of a batch of an epoch to its seeds; several threads may call it.

        Collective if the seeds of ranks depend on each other.
        """
        ...


@dataclass(frozen=True, eq=False)
class VertexSeeds:
    """Vertices as seeds, such as the vertices of a split; see :class:`Seeds`.

    Attributes:
        vertices: (num_examples,) int64, ascending; in a random order, they may be vertices of a split that are not in
            memory.
        batch_size: vertices of every batch but the last.
        seed: of the random order.
        shuffle: in a random order that differs between epochs, instead of ascending.
        of_type: the type of the vertices; None in a graph without types.

    Raises:
        InputError: a batch has no vertex.
    """

    vertices: NDArray[np.int64] | SplitVertices
    batch_size: int
    seed: int
    shuffle: bool = True
    of_type: str | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InputError(f"batches of {self.batch_size} seeds: expected 1 or more")

    @property
    def num_examples(self) -> int:
        return len(self.vertices)

    @property
    def num_batches(self) -> int:
        """Batches of an epoch."""
        return -(-len(self.vertices) // self.batch_size)

    def of(self, epoch: int, batch: int) -> NDArray[np.int64]:
        """(at most batch_size,) int64 vertices of a batch, ascending.

        Raises:
            InputError: a random order has fewer batches.
        """
        if self.shuffle:
            return self.vertices[members(len(self.vertices), self.batch_size, self.seed, epoch, batch)]
        first = batch * self.batch_size
        return self.vertices[np.arange(first, max(first, min(first + self.batch_size, len(self.vertices))))]

    def places(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_asked,) int64 places of some seeds among all."""
        seeds = self.vertices
        return seeds.places(vertices) if isinstance(seeds, SplitVertices) else np.searchsorted(seeds, vertices)

    def begin(self, epoch: int) -> Callable[[int], SeedsOfBatch]:
        """See :meth:`Seeds.begin`. Communicates nothing."""

        def of(batch: int) -> SeedsOfBatch:
            found = self.of(epoch, batch)
            return SeedsOfBatch(found if self.of_type is None else {self.of_type: found})

        return of
