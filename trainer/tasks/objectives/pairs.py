"""Common base of tasks on pairs of vertices: every split's pairs on the ranks that own their sources, and steps.

The model's output is a vector for every vertex; a decoder makes scores of the vectors of both ends of a pair.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.part_members import map_part_members
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.storage.matrix.permutation import KeyedPermutation
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.shards.known_pairs import known_targets
from gnnloom.storage.shards.row_shards import RowShards
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.exchange import BlockExchange, by_rank
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.open_shards import VertexRows
from gnnloom.trainer.data.owners import Owners
from gnnloom.trainer.data.target_edges import PairsOfStep, PairSource, StateTargets, Targets
from gnnloom.trainer.feed.negatives import NegativeSampler
from gnnloom.trainer.feed.pair_seeds import TEST, TRAIN, VALID, PairSet, pair_order
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.links.decoder import Decoder
from gnnloom.trainer.links.decoders.registry import decoder_kind
from gnnloom.trainer.links.pair_rows import GridOwners, Numbering, PairRows
from gnnloom.trainer.links.scoring import Lists
from gnnloom.trainer.operators.exclusion import ExcludingOperator
from gnnloom.trainer.operators.grid_targets import AllPositions
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.place.global_generator import Draws, derived_seed
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.objective import TASK_MODULE, Objective, StepLoss, TaskContext
from gnnloom.trainer.tasks.options import AUTO, step_pairs
from gnnloom.trainer.tasks.task import Task

#: Names of the negatives that all pairs of a split share.
POOLS: Final[Mapping[str, str]] = {VALID: "valid_pool", TEST: "test_pool"}
#: Steps of an epoch after which the others take no more memory. They are alike, but what a step keeps is there while
#: the next one begins, and its tensors differ a little from those before, so that they leave gaps in the workspace.
_ALIKE: Final = 2
#: Pairs and negatives that each rank draws at once. Small steps draw together, because ranks may have to ask each
#: other.
_DRAWN_AT_ONCE: Final = 1 << 18
#: Number of the decoder among what is created with a seed.
_OF_DECODER: Final = 1


@dataclass(frozen=True)
class PairLabels:
    """The pairs whose sources this rank owns.

    Attributes:
        sets: by split, and the shared negatives.
        rows: the vectors of both ends.
        negatives: draws what training pairs are compared with; None if a task compares them with nothing.
    """

    sets: Mapping[str, PairSet]
    rows: PairRows
    negatives: NegativeSampler | None = None


class PairAccess:
    """Access of an objective to data and other ranks, apart from the pairs; the forecast has its own implementation."""

    def owners(self, given: TaskContext, operator: Operator, layout: Layout) -> Owners | None:
        """The rank of every vertex; None for one rank. Collective."""
        # Only ranks that map a graph with types load it.
        from gnnloom.trainer.data.typed_vertices import TypedVertices  # noqa: PLC0415

        if layout.grid.comm.size == 1:
            return None
        if isinstance(given.shards, TypedVertices):
            return given.shards.owners(layout.grid.comm.size)
        if isinstance(given.shards, RowShards):
            key = given.shards.artifact.inputs["partition"]
            part: Owners = map_part_members(given.dataset.partition(key=key)).part
            return part
        adjacency = getattr(operator, "adjacency")  # noqa: B009 - all operators on grids have it
        return GridOwners(layout, AllPositions(layout.grid.comm, adjacency, layout.place))

    def local_numbers(self, vertex: NDArray[np.int64]) -> Numbering:
        """Numbering that finds the rows of this rank's vertices."""
        return LocalNumbers.of(vertex)

    def exchange(self, comm: Communicator, counts: NDArray[np.int64], place: Place) -> BlockExchange:
        """Exchange that moves pairs to the ranks that own their sources. Collective."""
        return BlockExchange(comm, counts, place, Kind.SETUP)

    def training_pairs(self, links: Links, counter: ReadCounter) -> PairSource:
        """The training pairs as operators read them, to leave them out."""
        return TrainingPairs(links, counter)

    def known_targets(self, graph: BlockMatrix, links: Links, sources: NDArray[np.int64]) -> Lists:
        """The targets of some sources in the graph and among the pairs. Communicates nothing."""
        return Lists(*known_targets(graph, links, sources))


@dataclass(frozen=True)
class TrainingPairs:
    """The training pairs as operators read them, to leave them out; see :class:`PairSource`."""

    links: Links
    counter: ReadCounter

    @property
    def num_pairs(self) -> int:
        return self.links.num_pairs[TRAIN]

    @property
    def symmetric(self) -> bool:
        return self.links.symmetric

    @property
    def num_entries(self) -> int:
        return round(self.num_pairs * (1 + (1 if self.symmetric else self.links.reverse_share)))

    def targets(
        self,
        read: Callable[[], Sequence[Targets]],
        state: Callable[[StateTargets], Sequence[Targets]],  # noqa: ARG002
    ) -> Sequence[Targets]:
        """See :meth:`PairSource.targets`: they are read."""
        return read()

    def read(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """See :meth:`PairSource.read`."""
        pairs, weight = self.links.pair(TRAIN, start, stop, self.counter), self.links.weight(start, stop, self.counter)
        if self.links.excludes_reverse:
            weight = np.stack([weight, self.links.reverse_weight(start, stop, self.counter)], 1)
        return pairs, weight


@dataclass(frozen=True)
class PairObjective(Objective[PairLabels]):
    """A task on pairs.

    Sources and targets of pairs of a relation may be of two types; all pairs here have both in one numbering, see
    :attr:`gnnloom.storage.artifacts.links.Links.first_target`.

    Attributes:
        num_outputs: width of the vectors.
        given: context that the task was given.
        pairs: the links.
        decoder: makes scores; None until the task is attached to a model.
        num_layers: of that model.
        access: what it reads apart from the pairs.
    """

    given: TaskContext = field(kw_only=True)
    pairs: Links = field(kw_only=True)
    decoder: Decoder | None = None
    num_layers: int = 0
    access: PairAccess = field(default_factory=PairAccess)

    @classmethod
    def of(cls, task: Task, context: TaskContext) -> Self:
        if context.links is None:
            raise ValueError("an objective on pairs needs links")
        return cls(task, context.width, options=context.options, given=context, pairs=context.links)

    @property
    def num_scores(self) -> int:
        """Scores of a pair."""
        return self.task.width(self.pairs)

    def attached(self, model: nn.Module, operator: Operator) -> Self:
        """See :meth:`Objective.attached`: the decoder's parameters become the model's."""
        place = operator.grid.place
        seed = derived_seed(self.given.seed, Draws.CREATION, _OF_DECODER)
        decoder = build_decoder(self.task, self.options, self.num_outputs, self.num_scores, seed, place)
        model.add_module(TASK_MODULE, decoder)
        # Pairs differ between all ranks, but gradients of the model's parameters are summed along some axes only.
        axes = tuple(axis for axis in operator.grid.axes if axis not in operator.weight_axes)
        others = operator.grid.group(axes)
        if others.size > 1:
            for parameter in decoder.parameters():
                parameter.register_hook(_summing(others, place))  # type: ignore[no-untyped-call]
        return replace(self, decoder=decoder, num_layers=len(getattr(model, "options").dims) - 1)  # noqa: B009

    def read(self, rows: VertexRows, place: Place) -> dict[str, PairSet]:  # noqa: ARG002 - pairs are read from the links
        """See :meth:`Objective.read`: this rank's share of the pairs of each split, and of the shared negatives."""
        links = self.pairs
        sets = {split: self._share(links, split) for split in (TRAIN, VALID, TEST)}
        pools = {name: self._pool_share(links, split) for split, name in POOLS.items() if links.num_pooled(split)}
        return sets | pools

    def _share(self, links: Links, split: str) -> PairSet:
        context = self.given
        start, stop = split_range(links.num_pairs[split], context.num_ranks, context.rank)
        pair = links.pair(split, start, stop, context.counter)
        value = None if links.kind == "pair" else links.value(split, start, stop, context.counter)
        negative = links.negative(split, start, stop, context.counter) if links.num_negatives(split) else None
        replaced = links.negative_source(split, start, stop, context.counter) if links.num_replaced(split) else None
        found = PairSet(np.arange(start, stop), pair[:, 0].copy(), pair[:, 1].copy(), value, negative, replaced)
        return found.moved(links.first_target)

    def _pool_share(self, links: Links, split: str) -> PairSet:
        context = self.given
        start, stop = split_range(links.num_pooled(split), context.num_ranks, context.rank)
        pair = links.pool(split, start, stop, context.counter)
        return PairSet(np.arange(start, stop), pair[:, 0].copy(), pair[:, 1].copy()).moved(links.first_target)

    def placed(self, read: Mapping[str, PairSet], operator: Operator) -> PairLabels:
        """See :meth:`Objective.placed`: every pair goes to the rank that owns its source."""
        layout, n = operator.layout(self.num_layers), self.pairs.num_ends
        comm, place = layout.grid.comm, layout.place
        owners = self.access.owners(self.given, operator, layout)
        rows = PairRows(layout, self.num_outputs, n, owners, operator.align, self.access.local_numbers)
        sets = {name: self._routed(comm, each, rows.owner(each.source), place) for name, each in read.items()}
        if self.options["exclude_targets"] and self.given.steps_on_graph:
            _excluding(operator).prepare_targets(self.access.training_pairs(self.pairs, self.given.counter))
        return PairLabels(sets, rows)

    def _routed(self, comm: Communicator, pairs: PairSet, owner: NDArray[np.int32], place: Place) -> PairSet:
        """The pairs whose sources this rank owns, by source and number. Collective."""
        order, counts = by_rank(owner, comm.size)
        blocks = self.access.exchange(comm, counts, place)
        found = pairs.changed(lambda array: blocks.forth(np.ascontiguousarray(array[order])).copy())
        # Pairs of a source follow each other, so its vector stays in the caches.
        return found.take(np.lexsort((found.number, found.source)))

    # Steps

    @property
    def step_pairs(self) -> int:
        """Training pairs of a step on the whole graph."""
        options, total = self.options, self.pairs.num_pairs[TRAIN]
        return step_pairs(int(options["link_batch"]), total, excludes=options["exclude_targets"])

    @property
    def num_steps(self) -> int:
        return -(-self.pairs.num_pairs[TRAIN] // self.step_pairs)

    def steps(self, loss: StepLoss, labels: PairLabels, operator: Operator, epoch: int) -> Iterator[StepLoss]:  # noqa: ARG002 - steps have losses of their own
        """See :meth:`Objective.steps`: a random order of all training pairs is cut into steps."""
        size, order = self.step_pairs, self.order(epoch)

        def step_of(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
            return order.forward(numbers) // size

        excluding = _excluding(operator) if self.options["exclude_targets"] else None
        steps = operator.grid.place.steps(range(self.num_steps), _ALIKE)
        try:
            for step, pairs in zip(steps, self._pairs_of_steps(labels, step_of, epoch), strict=False):
                if excluding is not None:
                    choose = PairsOfStep(step_of, step, self.num_steps)
                    # A rank may find that the weights that are left cannot be normalized.
                    together(operator.grid.comm, partial(excluding.exclude, choose))
                count = min(size, self.pairs.num_pairs[TRAIN] - step * size)
                yield self._whole_loss(labels, pairs, TRAIN, count)
        finally:
            if excluding is not None:
                excluding.exclude(None)

    def _pairs_of_steps(
        self, labels: PairLabels, step_of: Callable[[NDArray[np.int64]], NDArray[np.int64]], epoch: int
    ) -> Iterator[PairSet]:
        """This rank's pairs of every step, with what they are compared with. Collective."""
        pairs, of_step = labels.sets[TRAIN], self.step_pairs * (1 + int(self.options.get("negatives", 0)))
        step, at_once = step_of(pairs.number), max(1, _DRAWN_AT_ONCE * self.given.num_ranks // of_step)
        for first in range(0, self.num_steps, at_once):
            chosen = np.flatnonzero((step >= first) & (step < first + at_once))
            # Slices of what is in the order of the steps take no memory of their own.
            chosen = chosen[np.argsort(step[chosen], kind="stable")]
            group = step[chosen]
            given = replace(pairs.take(chosen), group=group)
            found = self.compared(labels, given, epoch)
            last = min(first + at_once, self.num_steps)
            for start, stop in itertools.pairwise(np.searchsorted(group, np.arange(first, last + 1))):
                yield found.take(slice(start, stop))

    def order(self, epoch: int) -> KeyedPermutation:
        """The order of the training pairs in an epoch, the same for any number of ranks."""
        return pair_order(self.given.seed, epoch, self.pairs.num_pairs[TRAIN])

    def loss(self, layout: Layout, labels: PairLabels, split: str = TRAIN) -> StepLoss:  # noqa: ARG002 - labels know it
        """See :meth:`Objective.loss`."""
        return self._whole_loss(labels, self.compared(labels, labels.sets[split]), split, self.pairs.num_pairs[split])

    def _whole_loss(self, labels: PairLabels, pairs: PairSet, split: str, count: int) -> StepLoss:
        """The loss over some pairs, of the model's output on the whole graph; for arguments see :meth:`step_loss`."""
        rows = labels.rows

        def ends(output: Tensor, *vertices: NDArray[np.int64]) -> tuple[Tensor, list[NDArray[np.int64]]]:
            return rows.numbered(rows.spread(output), *vertices)

        return self.step_loss(labels, pairs, split, count, ends)

    def compared(self, labels: PairLabels, pairs: PairSet, epoch: int = -1) -> PairSet:  # noqa: ARG002 - for subclasses
        """Some pairs with the negatives that a loss compares them with, if it does. Collective.

        Args:
            epoch: that they are drawn in; -1 outside of any.
        """
        return pairs

    @abstractmethod
    def step_loss(self, labels: PairLabels, pairs: PairSet, split: str, count: int, ends: Ends) -> PairStepLoss:
        """The loss over some pairs of this rank. Collective.

        Args:
            pairs: as :meth:`compared` returns them, of a split.
            count: number of pairs over all ranks.
            ends: finds the vectors of vertices in what the loss is called with.
        """

    def decode(self, source: Tensor, target: Tensor) -> Tensor:
        """(num_pairs, ...) scores of the (num_pairs, dim) vectors of both ends; differentiable."""
        scores: Tensor = self.attached_decoder(source, target)
        return scores

    @property
    def attached_decoder(self) -> Decoder:
        """The decoder.

        Raises:
            ValueError: the objective is not attached to a model.
        """
        if self.decoder is None:
            raise ValueError("an objective on pairs has to be attached to a model before it scores pairs")
        return self.decoder

    def predict(self, layout: Layout, scores: Tensor) -> dict[str, Tensor]:
        return {"vector": self.whole(layout, scores)}


#: Maps the model's output and arrays of vertices, of any shapes, to the vectors of these vertices and, for each array,
#: the positions of its vectors, in the shape of the array; differentiable. Collective.
Ends = Callable[..., tuple[Tensor, list[NDArray[np.int64]]]]


@dataclass
class PairStepLoss:
    """A mean over pairs of all ranks; see :class:`StepLoss`.

    Attributes:
        num_examples: pairs of all ranks.
        num_terms: what the sum is divided by.
        contribute: from the model's output to the sum over this rank's pairs, divided by ``num_terms``. Collective.
    """

    num_examples: int
    num_terms: float
    contribute: Callable[[Tensor], Tensor]

    def __call__(self, scores: Tensor) -> Tensor:
        """See :meth:`StepLoss.__call__`."""
        return self.contribute(scores)


def build_decoder(
    task: Task, options: Mapping[str, Any], dim: int, num_scores: int, seed: int, place: Place
) -> Decoder:
    """The decoder of a task on pairs. Communicates nothing.

    Args:
        options: the options of the task by name.
        dim: width of the vectors that it is given.
        num_scores: scores of a pair.
        seed: seed of its parameters, the same on every rank.

    Raises:
        InputError: the class of the user's own cannot be loaded, or it gives fewer scores.
    """
    kind = decoder_kind(task.usual_decoder if options["decoder"] == AUTO else options["decoder"])
    own = {name: options.get(name, option.default) for name, option in kind.options.items()}
    decoder: Decoder = kind.load()(dim, place, seed, num_scores, own)
    return decoder


def _excluding(operator: Operator) -> ExcludingOperator:
    """An operator whose steps can exclude edges.

    Raises:
        InputError: it cannot.
    """
    if not isinstance(operator, ExcludingOperator):
        raise InputError("exclude_targets: the algorithm cannot leave out edges; pass --no-exclude-targets")
    return operator


def _summing(group: Communicator, place: Place) -> Callable[[Tensor], Tensor]:
    def summed(gradient: Tensor) -> Tensor:
        total = place.contiguous(gradient).clone()
        group.all_reduce(total, Kind.GRADIENT)
        return total

    return summed
