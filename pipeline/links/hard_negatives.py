"""Hard negatives: for each pair, the replacements of one of its ends that look most like edges.

One end x of a pair stays. The vertices that may replace the other end are ranked three times: by resource allocation
with x, by personalized PageRank from x, both in the message graph, whose edges count in both directions, and by the
cosine of their features and the features of x. Equal scores share the best of their ranks. Negative cosines count as 0,
and scores of 0 rank after all others. The vertices with the lowest sums of ranks are taken; which of those with equal
sums is random, keyed by the pair. Neither end of the pair is taken, nor a vertex with which x has an edge, or is a pair
of any split; of directed graphs, in the direction of the pair or, where links hold both directions of an edge out
together, in either one.

In a relation between two types, an end is replaced by vertices of its own type. The neighbors of a source are targets,
so resource allocation takes one step more: each source divides its allocation among its targets (Zhou, Ren, Medo,
Zhang, Phys. Rev. E 76, 2007, section II). The vertex x and the vertices that it is compared with have different types,
so the mean of the features of the neighbors of x is used instead of its features.

Li, Shomer, Mao, Zeng, Ma, Shah, Tang, Yin (NeurIPS 2023), section 4; PageRank by local pushes: Andersen, Chung, Lang
(FOCS 2006), with the probability and the threshold of the former.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.links.baselines import (
    NeighborLists,
    Neighbors,
    map_matrix,
    map_transpose,
    near,
    next_entry,
    num_neighbors,
)
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import write_rows
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import GOLDEN, mix
from gnnloom.storage.shards.known_pairs import partners_in_pairs
from gnnloom.storage.wording import counted

#: Probability to return to the start, and residual of a vertex, over its neighbors, from which it is pushed.
RETURN, THRESHOLD = 0.15, 5e-5
#: Bytes that a task holds for each vertex: scores, residuals, the queue, candidates, their ranks and their order.
VERTEX_BYTES: Final = 200
#: Numbers of features that are widened at a time.
_WIDENED: Final = 1 << 20


#: Folders of the vertex data with features of the possible sources and of the possible targets.
EndFeatures = tuple[Path | None, Path | None]


@dataclass(frozen=True)
class HardTask(Task):
    """Finds the negatives of pairs ``start`` to ``stop`` of a split.

    Attributes:
        links: folder of the links artifact with the pairs.
        neighbors: in the message graph.
        graph: folder of the graph whose edges are not drawn as negatives; in a graph with types, only the edges of the
            relation are excluded.
        transpose: folder of its transpose, or of the reverses; None for a symmetric graph.
        features: folders of the vertex data with features of the possible sources and targets; None to rank without.
        stream: key of the stream of random numbers of the split.
        counts: how many vertices replace the target, and the source.
    """

    links: Path
    neighbors: Neighbors
    graph: Path
    transpose: Path | None
    features: EndFeatures
    split: str
    stream: int
    counts: tuple[int, int]
    start: int
    stop: int


def write_hard(task: HardTask) -> int:
    """Write the negatives of some pairs; returns the number of pairs.

    Raises:
        InputError: too few vertices can replace an end.
    """
    with task.writer.task(task.name) as output:
        scores, relation = VertexScores.open(task.neighbors, task.features), task.neighbors.relation
        rows = map_matrix(task.graph, relation)
        columns = rows if task.transpose is None else map_transpose(task.transpose, relation)
        links = Links(Artifact(task.links))
        pairs = links.pair(task.split, task.start, task.stop)
        found = [np.empty((len(pairs), count), np.int64) for count in task.counts]
        # Pairs that are not edges are known as well.
        others = [split for split in LINK_SPLITS if links.num_other_pairs(split)]
        paired = [partners_in_pairs(links, others, pairs[:, end], end) for end in (0, 1)]
        for place, (source, target) in enumerate(pairs.tolist()):
            # Targets of the edges from the source, and sources of the edges to the target.
            for side, (kept, other, matrix) in enumerate(((source, target, columns), (target, source, rows))):
                allowed = np.ones(matrix.num_columns, np.bool_)
                for each in (rows, columns) if links.together else (matrix,):
                    allowed[each.indices[each.indptr[kept] : each.indptr[kept + 1]]] = False
                first, last, partners = paired[side]
                allowed[partners[first[place] : last[place]]] = False
                allowed[[kept, other] if links.can_be_loops else other] = False
                candidates = np.flatnonzero(allowed)
                if len(candidates) < task.counts[side]:
                    end = ("target", "source")[side]
                    raise InputError(
                        f"pair ({source}, {target}): {counted(len(candidates), 'vertex')} can replace the {end}, fewer"
                        f" than {task.counts[side]:,}; use fewer --negatives"
                    )
                number = np.uint64(2 * (task.start + place) + side)
                order = scores.hardest(
                    kept, candidates, task.counts[side], stream_of(np.uint64(task.stream), number), side
                )
                found[side][place] = candidates[order]
        for name, array in zip(("negative", "negative_source"), found, strict=True):
            output.add(write_rows(task.writer.path, f"{task.split}/{name}", task.start, array))
    return len(pairs)


@kernel
def stream_of(stream: np.uint64, number: np.uint64) -> np.uint64:
    """Key of the stream of an end: 2 k of the target, and 2 k + 1 of the source, of pair k."""
    return mix(stream + (number + np.uint64(1)) * GOLDEN)


@kernel
def _ties(stream: np.uint64, vertices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """(num_vertices,) uint64 random numbers of vertices."""
    out = np.empty(len(vertices), np.uint64)
    for k in range(len(vertices)):
        out[k] = mix(stream + (np.uint64(vertices[k]) + np.uint64(1)) * GOLDEN)
    return out


@dataclass(frozen=True)
class VertexScores:
    """Scores of all vertices as partners of one vertex.

    Attributes:
        lists: neighbors in the message graph.
        features: (num_vertices, num_features) of the possible sources and the possible targets, mapped; None without.
        norms: (num_vertices,) float64 norms of the rows of features.
    """

    lists: NeighborLists
    features: tuple[NDArray[Any] | None, NDArray[Any] | None]
    norms: tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]

    @classmethod
    def open(cls, neighbors: Neighbors, features: EndFeatures = (None, None)) -> VertexScores:
        """Map what is needed."""
        of_folder = {each: map_vertices(Vertices(Artifact(each)))["feature"] for each in features if each is not None}
        norm_of_folder = {each: by_rows(lengths, feature) for each, feature in of_folder.items()}
        source, target = (None if each is None else (of_folder[each], norm_of_folder[each]) for each in features)
        feature, norm = zip(source or (None, None), target or (None, None), strict=True)
        return cls(neighbors.open(), feature, norm)

    def of(self, vertex: int, side: int = 0) -> list[NDArray[np.float64]]:
        """(num_vertices,) scores with a vertex: resource allocation, PageRank and, with features, cosines.

        Args:
            vertex: a source, or a target.
            side: 0 to score all targets with a source, 1 to score all sources with a target.
        """
        n, first = self.lists.num_vertices, self.lists.first_target
        here = vertex + first * side
        allocated, rank = np.zeros(n), np.zeros(n)
        _allocate(here, self.lists, allocated)
        if first:
            amount, allocated = allocated, np.zeros(n)
            _divide(amount, self.lists, allocated)
        residual, queue, queued = np.zeros(n), np.empty(n, np.int64), np.zeros(n, np.bool_)
        _push(here, self.lists, rank, residual, queue, queued)
        scored = slice(0, n) if not first else slice(first, n) if side == 0 else slice(0, first)
        found = [allocated[scored], rank[scored]]
        feature, norm = self.features[1 - side], self.norms[1 - side]
        if feature is not None and norm is not None:
            own = feature[vertex].astype(np.float64) if not first else self._mean_of_neighbors(here, side, feature)
            own_norm = norm[vertex] if not first else lengths(own[None])[0]
            found.append(by_rows(cosines, feature, norm, own, own_norm))
        return found

    def _mean_of_neighbors(self, here: int, side: int, feature: NDArray[Any]) -> NDArray[np.float64]:
        """(num_features,) float64 mean of the features of a vertex's neighbors, read in pieces; 0 without neighbors."""
        at, end, other, other_end = near(self.lists, here)
        # Rows of a relation list sources, and rows of its reverse list targets.
        own = self.lists.indices[at:end] if side == 1 else self.lists.other_indices[other:other_end]
        vertices, step = np.unique(own), max(1, _WIDENED // max(1, feature.shape[1]))
        total = np.zeros(feature.shape[1])
        for start in range(0, len(vertices), step):
            total += feature[vertices[start : start + step]].sum(axis=0, dtype=np.float64)
        return total / max(1, len(vertices))

    def hardest(
        self, vertex: int, candidates: NDArray[np.int64], count: int, stream: np.uint64, side: int = 0
    ) -> NDArray[np.int64]:
        """(count,) int64 places of the candidates that rank first, from the first on; for ``side`` see :meth:`of`."""
        total = np.zeros(len(candidates), np.int64)
        for scores in self.of(vertex, side):
            total += ranks_of(scores[candidates])
        return np.lexsort((_ties(np.uint64(stream), candidates), total))[:count]


def ranks_of(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """(num_scores,) int64 ranks from 1 on, the highest score first; see the module."""
    positive = scores > 0
    _, place, counts = np.unique(-scores[positive], return_inverse=True, return_counts=True)
    first = np.cumsum(counts) - counts + 1
    ranks = np.full(len(scores), first[-1] + 1 if len(first) else 1, np.int64)
    ranks[positive] = first[place]
    return ranks


@kernel
def _allocate(vertex: int, lists: NeighborLists, out: NDArray[np.float64]) -> None:
    """Add the resource allocation of a vertex with all others: through each neighbor, 1 over its neighbors."""
    at, end, other, other_end = near(lists, vertex)
    while at < end or other < other_end:
        middle, at, other = next_entry(lists, at, end, other, other_end)
        if middle != vertex:
            _share(middle, 1.0, lists, out)


@kernel
def _divide(amount: NDArray[np.float64], lists: NeighborLists, out: NDArray[np.float64]) -> None:
    """Divide the amount of each vertex equally among its neighbors."""
    for vertex in range(len(amount)):
        if amount[vertex] > 0:
            _share(vertex, amount[vertex], lists, out)


@kernel
def _share(vertex: int, amount: float, lists: NeighborLists, out: NDArray[np.float64]) -> None:
    """Add an equal share of an amount to each neighbor of a vertex."""
    share = amount / num_neighbors(lists, vertex)
    at, end, other, other_end = near(lists, vertex)
    while at < end or other < other_end:
        found, at, other = next_entry(lists, at, end, other, other_end)
        if found != vertex:
            out[found] += share


@kernel
def _push(
    vertex: int,
    lists: NeighborLists,
    rank: NDArray[np.float64],
    residual: NDArray[np.float64],
    queue: NDArray[np.int64],
    queued: NDArray[np.bool_],
) -> None:
    """Personalized PageRank from a vertex, at most ``THRESHOLD`` for each neighbor of a vertex below the exact one.

    Args:
        rank, residual: (num_vertices,) of zeros.
        queue: (num_vertices,) int64, any numbers.
        queued: (num_vertices,) bool, False.
    """
    residual[vertex], queue[0], queued[vertex] = 1.0, vertex, True
    first, waiting = 0, 1
    while waiting:
        here = queue[first]
        first, waiting = (first + 1) % len(queue), waiting - 1
        queued[here] = False
        amount, degree = residual[here], num_neighbors(lists, here)
        residual[here] = 0.0
        if not degree:
            rank[here] += amount
            continue
        rank[here] += RETURN * amount
        share = (1 - RETURN) * amount / degree
        at, end, other, other_end = near(lists, here)
        while at < end or other < other_end:
            found, at, other = next_entry(lists, at, end, other, other_end)
            if found == here:
                continue
            residual[found] += share
            if not queued[found] and residual[found] >= THRESHOLD * num_neighbors(lists, found):
                queue[(first + waiting) % len(queue)] = found
                waiting, queued[found] = waiting + 1, True


def by_rows(
    function: Callable[..., NDArray[np.float64]],
    feature: NDArray[Any],
    each: NDArray[np.float64] | None = None,
    *others: Any,
) -> NDArray[np.float64]:
    """Results of a compiled function for each row of features, of any dtype that features are stored in.

    Args:
        each: (num_vertices,) a number for each row, which the function takes as well.
        others: further arguments.
    """
    if feature.dtype != np.float16:
        return function(feature, *(() if each is None else (each,)), *others)
    # numba has no float16; a few rows at a time are widened.
    out, step = np.empty(len(feature), np.float64), max(1, _WIDENED // max(1, feature.shape[1]))
    for start in range(0, len(feature), step):
        rows = slice(start, start + step)
        own = () if each is None else (each[rows],)
        out[rows] = function(feature[rows].astype(np.float32), *own, *others)
    return out


@kernel
def lengths(feature: NDArray[Any]) -> NDArray[np.float64]:
    """(num_vertices,) float64 lengths of the rows of features."""
    out = np.empty(len(feature), np.float64)
    for row in range(len(feature)):
        total = 0.0
        for column in range(feature.shape[1]):
            total += np.float64(feature[row, column]) * np.float64(feature[row, column])
        out[row] = np.sqrt(total)
    return out


@kernel
def cosines(
    feature: NDArray[Any], norm: NDArray[np.float64], own: NDArray[np.float64], own_norm: float
) -> NDArray[np.float64]:
    """(num_vertices,) float64 cosines of all rows of features with one row; 0 for a row of zeros.

    Sums in the order of the columns, so that every machine gets the same bits.

    Args:
        feature: (num_vertices, num_features).
        norm: (num_vertices,) lengths of its rows.
        own: (num_features,) the row.
        own_norm: its length.
    """
    out = np.empty(len(feature), np.float64)
    for row in range(len(feature)):
        total = 0.0
        for column in range(len(own)):
            total += own[column] * np.float64(feature[row, column])
        length = own_norm * norm[row]
        out[row] = total / length if length > 0 else 0.0
    return out
