"""Links as a rank sees them before it reads them: as many pairs, of any vertices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.exchange import BlockExchange, Rows
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.owners import Owners
from gnnloom.trainer.data.target_edges import PairSource
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.links.pair_rows import Numbering
from gnnloom.trainer.links.scoring import BlockSizes, Lists
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.objective import Objective, TaskContext
from gnnloom.trainer.tasks.objectives.pairs import PairAccess, PairObjective, TrainingPairs
from gnnloom.trainer.training.rehearsal.unread_targets import StatedPairs


def unread_pairs(objective: Objective[Any]) -> Objective[Any]:
    """An objective on pairs without their contents."""
    if not isinstance(objective, PairObjective):
        raise TypeError(f"task {objective.task.name}: its class is not one of pairs")
    return replace(objective, pairs=UnreadLinks(objective.pairs.artifact), access=StatedAccess())


@dataclass(frozen=True)
class EvenOwners:
    """Ranks that own vertices: equally many each.

    Attributes:
        num_ranks: of all.
    """

    num_ranks: int

    def __getitem__(self, vertices: NDArray[np.int64], /) -> NDArray[np.int32]:
        return (vertices % self.num_ranks).astype(np.int32)


@dataclass(frozen=True)
class AnyNumbers:
    """Local numbers of any vertices; see :class:`gnnloom.storage.matrix.local_numbers.LocalNumbers`."""

    num_own: int

    def __call__(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return ids % max(1, self.num_own)


class _Kept(BlockExchange):
    """Takes the memory of rows that arrive, and goes on with those that this rank would send."""

    def forth(self, rows: Rows, kind: Kind | None = None, out: Tensor | None = None) -> Rows:
        super().forth(rows, kind, out)
        return rows


class _StatedTrainingPairs(StatedPairs, TrainingPairs):
    """Training pairs whose entries are as many as there are, in matrices where nobody has looked for them."""


class StatedAccess(PairAccess):
    """Reads nothing and asks nobody: vertices are spread evenly, and every source has many known targets."""

    def owners(self, given: TaskContext, operator: Operator, layout: Layout) -> Owners | None:  # noqa: ARG002
        return None if layout.grid.comm.size == 1 else EvenOwners(layout.grid.comm.size)

    def local_numbers(self, vertex: NDArray[np.int64]) -> Numbering:
        return AnyNumbers(len(vertex))

    def exchange(self, comm: Communicator, counts: NDArray[np.int64], place: Place) -> BlockExchange:
        return _Kept(comm, counts, place, Kind.SETUP)

    def training_pairs(self, links: Links, counter: ReadCounter) -> PairSource:
        return _StatedTrainingPairs(links, counter)

    def known_targets(self, graph: BlockMatrix, links: Links, sources: NDArray[np.int64]) -> Lists:  # noqa: ARG002
        # The pairs that are ranked often belong to vertices with many: as many as a block has at most.
        sizes, start = BlockSizes(), np.zeros(len(sources), np.int64)
        listed = np.zeros(sizes.listed // sizes.sources, np.int64)
        return Lists(start, start + len(listed), listed)


class UnreadLinks(Links):
    """Links without contents. Vertices are random: where two pairs have one in common, its row is fetched once."""

    def _read(
        self,
        name: str,
        start: int,
        stop: int | None,
        counter: ReadCounter | None,  # noqa: ARG002 - nothing is read
        bounds: tuple[int, int] | None,
    ) -> NDArray[Any]:
        record = self.artifact.record(name)
        shape = (record.shape[0] if stop is None else stop) - start, *record.shape[1:]
        if name.endswith("weight"):
            return np.full(shape, not self.artifact.facts["train_held_out"], record.dtype)
        if name.endswith("/value"):
            return np.zeros(shape, record.dtype)
        found = np.random.default_rng(start).integers(*(bounds or (0, self.num_vertices)), shape)
        # The ends of a pair of a relation are vertices of their own types.
        return found % (self.source_vertices, self.target_vertices) if name.endswith(("/pair", "/pool")) else found
