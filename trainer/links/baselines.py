"""Figures of scores that need no training, such as common neighbors; the scores are stored with the links."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from gnnloom.storage.artifacts.links import BASELINES, Links
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.links.ranking import Higher, ListRanks, PoolRanks, count_higher_in_rows
from gnnloom.trainer.place.place import Place

#: Numbers K of Hits@K for pairs that share negatives.
HITS = (20, 50, 100)
#: Number of scores of pairs' own negatives that are in memory at a time.
_SCORES = 1 << 20


def list_figures(ranks: ListRanks) -> dict[str, float | None]:
    """Figures of pairs that each have their own negatives. Collective."""
    return {"mrr": ranks.mean_reciprocal_rank()} | {f"hits_{count}": ranks.hits(count) for count in HITS}


def pool_figures(ranks: PoolRanks) -> dict[str, float | None]:
    """Figures of pairs that share their negatives. Collective."""
    hits = {f"hits_{count}": ranks.hits(count) for count in HITS}
    return {"auc": ranks.auc(), "ap": ranks.average_precision(), **hits}


def baseline_figures(
    links: Links, split: str, comm: Communicator, place: Place, counter: ReadCounter | None = None
) -> dict[str, dict[str, float | None]]:
    """The figures of a split for each baseline, by its name; none if the links have no such scores. Collective.

    Every rank reads its share of the scores, and has a third of its share in memory.
    """
    if not links.has_baselines(split):
        return {}
    measure = _measure_lists if links.num_negatives(split) else _measure_pool
    return {name: measure(links, split, number, comm, place, counter) for number, name in enumerate(BASELINES)}


def _measure_pool(
    links: Links, split: str, number: int, comm: Communicator, place: Place, counter: ReadCounter | None
) -> dict[str, float | None]:
    scores: dict[str, Tensor] = {}
    for kind, count in (("pair", links.num_pairs[split]), ("pool", links.num_pooled(split))):
        start, stop = split_range(count, comm.size, comm.rank)
        found = [
            links.baseline(f"{split}/{kind}", first, last, counter)[:, number]
            for first, last in _steps(start, stop, _SCORES)
        ]
        scores[kind] = place.from_numpy(np.concatenate([np.empty(0, np.float64), *found]))
    return pool_figures(PoolRanks.of(comm, place, scores["pair"], scores["pool"]))


def _measure_lists(
    links: Links, split: str, number: int, comm: Communicator, place: Place, counter: ReadCounter | None
) -> dict[str, float | None]:
    start, stop = split_range(links.num_pairs[split], comm.size, comm.rank)
    counts = {"negative": links.num_negatives(split), "negative_source": links.num_replaced(split)}
    kinds, higher = [f"{split}/{kind}" for kind, count in counts.items() if count], []
    for first, last in _steps(start, stop, max(1, _SCORES // sum(counts.values()))):
        positive = np.ascontiguousarray(links.baseline(f"{split}/pair", first, last, counter)[:, number])
        negative = np.concatenate([links.baseline(kind, first, last, counter)[..., number] for kind in kinds], axis=1)
        higher.append(count_higher_in_rows(place.from_numpy(positive), place.from_numpy(negative), place))
    return list_figures(ListRanks.of(comm, place, Higher.joined(higher)))


def _steps(start: int, stop: int, step: int) -> list[tuple[int, int]]:
    return [(first, min(first + step, stop)) for first in range(start, stop, step)]
