"""``link``: which pairs are edges. Losses compare pairs with others that are drawn, metrics with given ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.typed.mapped_graph import map_relations
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph
from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.storage.shards.known_pairs import SOURCES_AT_ONCE, KnownInTraining
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.owners import RangeOwners
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.feed.negatives import evaluated_negatives, make_negative_sampler
from gnnloom.trainer.feed.pair_seeds import TEST, TRAIN, VALID, PairSet
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.links.all_targets import filtered_ranks
from gnnloom.trainer.links.baselines import HITS, baseline_figures, list_figures, pool_figures
from gnnloom.trainer.links.distribution import score_distribution
from gnnloom.trainer.links.losses import LOSSES
from gnnloom.trainer.links.pair_sums import pair_loss
from gnnloom.trainer.links.ranking import Higher, ListRanks, PoolRanks
from gnnloom.trainer.links.scoring import AllTargets, score_all
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.tasks.objectives.objective import Metrics, StepLoss, TaskContext
from gnnloom.trainer.tasks.objectives.pairs import (
    POOLS,
    Ends,
    PairLabels,
    PairObjective,
    PairStepLoss,
)
from gnnloom.trainer.tasks.task import PREFIXES, Task

#: Ranks among all vertices that count as a hit.
_FILTERED_HITS = (1, 3, 10)


#: Scores of pairs and of their negatives.
_Scored = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Links(PairObjective):
    """Scores say how likely a pair is an edge.

    Attributes:
        is_known: says which pairs are known in training; None if negatives are not drawn again.
        kept: the vectors of an evaluation whose details were formed last, and the scores of the test pairs, which its
            metrics need as well; they empty it.
    """

    is_known: KnownInTraining | None = None
    kept: list[tuple[Tensor, _Scored]] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, task: Task, context: TaskContext) -> Self:
        objective = super().of(task, context)
        if objective.pairs.num_negatives(VALID):
            # Negatives of their own give the validation pairs no AUC.
            figures = tuple(replace(figure, judges=figure.name == "mrr") for figure in task.figures)
            objective = replace(objective, task=replace(task, figures=figures))
        if not context.options["strict_negatives"]:
            return objective
        known = objective.message_graph
        if isinstance(known, Graph):
            return replace(objective, is_known=KnownInTraining.of(known, objective.pairs))
        mapped = map_relations(TypedGraph(known.artifact), [known.name])[known.name]
        return replace(objective, is_known=KnownInTraining.of(mapped.matrix, objective.pairs))

    @property
    def message_graph(self) -> Graph | Relation:
        """The graph that the run multiplies with, or the relation of the pairs in it."""
        return self.given.dataset.message_edges(self.pairs)

    @property
    def notes(self) -> dict[str, str]:
        """The figures Hits@K that are 1 whatever the scores: their pairs have fewer than K negatives."""
        return {
            f"{prefix}_hits_{count}": f"fewer than {count} negatives"
            for prefix in self.task.judge.prefixes
            for count in HITS
            if self._num_compared(PREFIXES[prefix]) < count
        }

    def _num_compared(self, split: str) -> int:
        """Number of negatives that every pair of a split is compared with by the figures."""
        if own := self.pairs.num_negatives(split):
            return own + self.pairs.num_replaced(split)
        # A pool that is not stored is drawn.
        return self.pairs.num_pooled(split) or self.pairs.num_pairs[split]

    def placed(self, read: Mapping[str, PairSet], operator: Operator) -> PairLabels:
        """See :meth:`PairObjective.placed`: negatives may be ends of the pairs that any rank has read."""
        found, count = super().placed(read, operator), int(self.options["negatives"])
        # Negatives are drawn among the vertices of the target type.
        train = read[TRAIN].moved(-self.pairs.first_target)
        ends = partial(_TrainingEnds, found.rows.layout, train, self.pairs.num_pairs[TRAIN])
        sampler = make_negative_sampler(self.options["negative_sampler"], self.given.seed, count, self.pairs, ends)
        return replace(found, negatives=sampler)

    def loss(self, layout: Layout, labels: PairLabels, split: str = TRAIN) -> StepLoss:
        if split != TRAIN:
            return super().loss(layout, labels, split)
        # Steps draw negatives of their own, so negatives of all training pairs are drawn only if this is called.
        whole, count = super().loss, self.pairs.num_pairs[TRAIN]

        def contribute(scores: Tensor) -> Tensor:
            return whole(layout, labels, split)(scores)

        return PairStepLoss(count, count, contribute)

    def compared(self, labels: PairLabels, pairs: PairSet, epoch: int = -1) -> PairSet:
        """See :meth:`PairObjective.compared`: stored negatives, or drawn ones."""
        if pairs.negative is not None:
            return pairs.with_both_ends()
        if labels.negatives is None:
            raise ValueError("pairs that were placed without negatives")
        first, comm = self.pairs.first_target, labels.rows.layout.grid.comm
        return labels.negatives.compared(epoch, pairs.moved(-first), self.is_known, comm).moved(first)

    def step_loss(self, labels: PairLabels, pairs: PairSet, split: str, count: int, ends: Ends) -> PairStepLoss:  # noqa: ARG002 - for other tasks
        loss = LOSSES[self.task.losses[0] if self.given.loss == "auto" else self.given.loss]
        negative = pairs.negative
        if negative is None:
            raise ValueError("pairs without negatives to compare them with")
        num_terms = loss.num_terms(count, negative.shape[1])

        def contribute(output: Tensor) -> Tensor:
            found, numbers = ends(output, *pairs.ends)
            return pair_loss(self.attached_decoder, loss, found, numbers, num_terms)

        return PairStepLoss(count, num_terms, contribute)

    def metrics(self, layout: Layout, labels: PairLabels) -> Metrics:  # noqa: ARG002 - labels know it
        def measure(scores: Tensor) -> dict[str, float | None]:
            rows, kept = labels.rows.spread(scores), [scored for of, scored in self.kept if of is scores]
            known = dict(zip((TEST,), kept, strict=False))
            self.kept.clear()
            splits = [PREFIXES[prefix] for prefix in self.task.judge.prefixes]
            found = [
                self._figures(labels, split, known.get(split) or self._scored(labels, rows, split)) for split in splits
            ]
            return {
                f"{prefix}_{figure.name}": figures.get(figure.name)
                for figure in self.task.figures
                for prefix, figures in zip(self.task.judge.prefixes, found, strict=True)
            }

        return measure

    def _figures(self, labels: PairLabels, split: str, scored: _Scored) -> dict[str, float | None]:
        """Figures of a split, without the prefix. Collective."""
        layout = labels.rows.layout
        comm, place = layout.grid.comm, layout.place
        if self.pairs.num_negatives(split):
            return list_figures(ListRanks.of_scores(comm, place, *scored))
        return pool_figures(PoolRanks.of(comm, place, *scored))

    def _scored(self, labels: PairLabels, rows: Tensor, split: str) -> _Scored:
        """Scores of a split's pairs and of their negatives. Collective."""
        return self._scores(labels, rows, labels.sets[split]), self._scores_of_negatives(labels, rows, split)

    def _scores(self, labels: PairLabels, rows: Tensor, pairs: PairSet) -> Tensor:
        """(num_pairs,) scores of pairs of this rank. Collective.

        Args:
            rows: this rank's rows of the vectors.
        """
        return score_all(labels.rows, rows, self.attached_decoder, pairs.both_ends)

    def details(self, layout: Layout, labels: PairLabels, scores: Tensor) -> dict[str, Any]:  # noqa: ARG002 - as above
        """Figures of the test split and its pairs.

        ``baselines``, if they are stored; ``score_distribution`` of the pairs and their negatives; ``filtered``, if it
        was asked for: figures of the ranks of their ends among all vertices but known ones.
        """
        grid, rows = labels.rows.layout.grid, labels.rows.spread(scores)
        scored = self._scored(labels, rows, TEST)
        self.kept[:] = [(scores, scored)]
        found = {
            "baselines": baseline_figures(self.pairs, TEST, grid.comm, grid.place, self.given.counter),
            "score_distribution": score_distribution(grid.comm, grid.place, *scored),
            "filtered": self._filtered(labels, rows) if self.options["filtered_ranks"] else {},
        }
        return {name: figures for name, figures in found.items() if figures}

    def _scores_of_negatives(self, labels: PairLabels, rows: Tensor, split: str) -> Tensor:
        """Scores of the negatives of a split: a row for each pair, or of all that its pairs share. Collective."""
        pairs = labels.sets[split]
        if self.pairs.num_negatives(split):
            count = self._num_compared(split)
            source, target = pairs.with_both_ends().listed()[:, len(pairs) :]
            each = PairSet(np.repeat(pairs.number, count), source, target)
            return self._scores(labels, rows, each).view(len(pairs), count)
        pool = labels.sets.get(POOLS[split])
        if pool is None:
            # Links that came without negatives: one is drawn for each pair.
            first = self.pairs.first_target
            drawn = evaluated_negatives(split, self.pairs, pairs.moved(-first))[:, 0]
            pool = replace(pairs, target=drawn + first)
        return self._scores(labels, rows, pool)

    def _filtered(self, labels: PairLabels, rows: Tensor) -> dict[str, float | None]:
        """Figures of the ranks of the test pairs' targets among all vertices but known targets. Collective.

        A pair without a direction has its source ranked as well: which of its ends has the larger number says nothing.
        """
        found, pairs = labels.rows, labels.sets[TEST].both_ends
        comm, place = found.layout.grid.comm, found.layout.place
        if self.pairs.symmetric:
            pairs = np.concatenate([pairs, pairs[:, ::-1]])
            pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        first, parts = self.pairs.first_target, list[Higher]()
        targets = AllTargets(found, rows, self.attached_decoder, first_target=first)
        most = int(comm.gather_numbers([len(pairs)]).max())
        for start in place.steps(range(0, most, SOURCES_AT_ONCE)):
            some = pairs[start : start + SOURCES_AT_ONCE]
            known = together(comm, partial(self.access.known_targets, self.message_graph, self.pairs, some[:, 0]))
            parts.append(filtered_ranks(targets, some, known.moved(first)))
        ranks = ListRanks.of(comm, place, Higher.joined(parts))
        return {"mrr": ranks.mean_reciprocal_rank()} | {f"hits_{count}": ranks.hits(count) for count in _FILTERED_HITS}


class _TrainingEnds:
    """Ends of training pairs by number, from the ranks that have read them."""

    def __init__(self, layout: Layout, read: PairSet, num_pairs: int) -> None:
        """Communicates nothing.

        Args:
            read: the training pairs that this rank has read.
            num_pairs: number of training pairs of all ranks.
        """
        comm, place = layout.grid.comm, layout.place
        self._place = place
        rows = place.from_numpy(np.stack([read.target, read.source], 1))
        owners = RangeOwners(num_pairs, comm.size) if comm.size > 1 else None
        self._num_pairs = num_pairs
        self._exchange = RowExchange(comm, LocalNumbers.of(read.number), rows, owners, place)

    def __call__(self, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_ends,) int64 vertices; end i is the target of pair i, end ``num_pairs`` + i its source. Collective."""
        side, number = np.divmod(ends, self._num_pairs)
        wanted, where = np.unique(number, return_inverse=True)
        found: NDArray[np.int64] = self._place.to_numpy(self._exchange.fetch(wanted))[where, side]
        return found
