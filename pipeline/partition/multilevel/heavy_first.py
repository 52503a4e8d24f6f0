"""Heavy-first random parts: balanced, without regard to the nets; a start for refinement.

One process assigns vertices one after another. With tasks, the client deals out classes of equal weights, and tasks
place the vertices: every part gets the same number of vertices of each weight; the vertices are random too, but drawn
in another order. If all weights add up to W, there are at most about sqrt(2 W) different ones.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import place_in_order
from gnnloom.pipeline.partition.model.moves import shuffled
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.pieces import (
    NUMBER_BYTES,
    PART_BYTES,
    RangeTask,
    phase_over,
    run_pieces,
    store_vector,
    vertex_pieces,
)
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.kernels import index_of_least, kernel
from gnnloom.storage.matrix.permutation import permute_by_network
from gnnloom.storage.matrix.random_numbers import stream_key

#: Up to this many vertices of one weight are dealt one by one.
_FEW = 32

#: The share of each part in each class: (num_classes,) int64 weights, ascending; (num_classes + 1,) int64 bounds of the
#: runs of each; (num_runs,) int32 part that a run of vertices goes to, and int64 vertices of the class up to its end.
_DEALT = ("weight", "offset", "part", "end")


def assign_heavy_first(weight: NDArray[np.int64], parts: int, seed: int, part: NDArray[np.int32]) -> NDArray[np.int64]:
    """Fill ``part``: the heaviest vertices first, equal ones in random order, each to the lightest part.

    Args:
        weight: (num_vertices,) int64.
        parts: number of parts P.
        part: (num_vertices,) int32, filled.

    Returns:
        (P,) int64 weight of each part.

    The longest-processing-time rule; see :func:`gnnloom.pipeline.partition.measure.balance.place_in_order`.
    """
    order = shuffled(len(weight), np.uint64(seed))
    # A stable sort of the shuffled vertices keeps equal weights in random order.
    order = order[np.argsort(-weight[order], kind="stable")]
    # Starting from equal loads, as ``place_in_order`` requires.
    load = np.zeros(parts, dtype=np.int64)
    place_in_order(order, weight, part, load)
    return load


@dataclass(frozen=True)
class _Classes:
    """Common fields of the tasks; ``folder`` holds the files of every task."""

    weight_path: Path
    part_path: Path
    folder: Path
    seed: int

    def counts_path(self, number: int) -> Path:
        """File of (2, num_classes) int64: the weights in a piece, ascending, and how many vertices have each."""
        return self.folder / f"counts-{number}.npy"

    def ranks_path(self, number: int) -> Path:
        """File of (num_classes,) int64: how many vertices before a piece have each of its weights."""
        return self.folder / f"ranks-{number}.npy"


def deal_heavy_first(
    hypergraph: DiskHypergraph, part_path: Path, parts: int, seed: int, folder: Path, cluster: Cluster
) -> None:
    """Fill a part vector: the heaviest vertices first, each to the lightest part.

    Args:
        part_path: file of (num_vertices,) int32 parts.
        parts: number of parts P.
        folder: for temporary files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    work = _Classes(hypergraph.weight_path, part_path, folder, seed)
    counting, placing = place_phases(hypergraph, work)
    run_pieces(counting, cluster)
    weight, count = _rank(work, len(counting.tasks))
    # A file of its own for every array, which all tasks map.
    for name, array in zip(_DEALT, _deal(weight, count, parts), strict=True):
        store_vector(folder / f"{name}.npy", array)
    run_pieces(placing, cluster)
    shutil.rmtree(folder)


def place_phases(hypergraph: DiskHypergraph, work: _Classes | None = None) -> list[Phase]:
    """The phases of :func:`deal_heavy_first`: count the weights, and place the vertices.

    At most, every vertex of a piece has another weight.

    Args:
        work: what the tasks have in common; None for plans.
    """
    work = work or _Classes(Path(), Path(), Path(), 0)
    n = hypergraph.num_vertices
    pieces, size, parts = vertex_pieces(n, hypergraph.steps), NUMBER_BYTES * n, PART_BYTES * n
    return [
        # The weights sorted, each once, and how many there are.
        phase_over(
            pieces, "count weights", _count, work,
            reads=size, writes=2 * size, files=1, row_bytes=7 * NUMBER_BYTES, at_most=True,
        ),
        # The weights and their counts and ranks, and four files of what the parts get. Of the vertices of one weight,
        # numbers as they are shuffled.
        phase_over(
            pieces, "place vertices", _place, work, reads=4 * size, writes=parts, files=7, row_bytes=9 * NUMBER_BYTES
        ),
    ]  # fmt: skip


def _count(task: RangeTask[_Classes]) -> None:
    weight = map_array(task.work.weight_path)[task.span]
    store_vector(task.work.counts_path(task.number), np.stack(np.unique(weight, return_counts=True)))


def _rank(work: _Classes, num_pieces: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Store the ranks of all pieces; returns the classes, ascending, and the number of vertices of each."""
    counts = [work.counts_path(number) for number in range(num_pieces)]
    weight = np.unique(np.concatenate([map_array(path)[0] for path in counts]))
    total = np.zeros(len(weight), dtype=np.int64)
    for number, path in enumerate(counts):
        each, count = map_array(path)
        place = np.searchsorted(weight, each)
        store_vector(work.ranks_path(number), total[place])
        total[place] += count
    return weight, total


def _deal(weight: NDArray[np.int64], count: NDArray[np.int64], parts: int) -> list[NDArray[Any]]:
    """Each part's share of every class: the arrays of ``_DEALT``."""
    load = np.zeros(parts, dtype=np.int64)
    runs: list[tuple[NDArray[np.int32], NDArray[np.int64]]] = []
    for each, vertices in zip(weight[::-1].tolist(), count[::-1].tolist(), strict=True):
        share = share_of_class(each, vertices, load)
        part = np.flatnonzero(share)
        runs.append((part.astype(np.int32), np.cumsum(share[part])))
    runs.reverse()
    offset = np.cumsum([0, *(len(part) for part, _ in runs)])
    return [weight, offset, *(np.concatenate(each) for each in zip(*runs, strict=True))]


@kernel
def share_of_class(weight: int, count: int, load: NDArray[np.int64]) -> NDArray[np.int64]:
    """Deal vertices of one weight, each to the part that is then the lightest, the first of equals.

    Args:
        weight: of each vertex.
        count: number of vertices.
        load: (num_parts,) int64 weight of each part; updated.

    Returns:
        (num_parts,) int64 number of vertices that each part gets.
    """
    share = np.zeros(len(load), np.int64)
    if count > _FEW:
        # Part p would take its next vertices at the loads load[p], load[p] + weight, and so on.  The vertices go to the
        # lowest of the loads of all parts: to all loads below the highest level that has at most as many loads below it
        # as there are vertices.
        low = int(np.min(load))
        high = low + count * weight + 1
        while high - low > 1:
            level = (low + high) // 2
            if _places_below(level, weight, load, share) <= count:
                low = level
            else:
                high = level
        count -= _places_below(low, weight, load, share)
        load += share * weight
        # The rest goes to parts at the level; there are more such parts than vertices left.
        for part in np.flatnonzero(load == low)[:count]:
            share[part] += 1
            load[part] += weight
        return share
    for _ in range(count):
        lightest = index_of_least(load)
        share[lightest] += 1
        load[lightest] += weight
    return share


@kernel
def _places_below(level: int, weight: int, load: NDArray[np.int64], places: NDArray[np.int64]) -> int:
    """Fill ``places``, (num_parts,) int64: vertices that each part takes while it is below a level; returns the sum."""
    total = 0
    for part in range(len(load)):
        places[part] = max(0, -((load[part] - level) // weight)) if load[part] < level else 0
        total += places[part]
    return total


def _place(task: RangeTask[_Classes]) -> None:
    work = task.work
    weight, offset, dealt, ends = (map_array(work.folder / f"{name}.npy") for name in _DEALT)
    own = map_array(work.weight_path)[task.span]
    (found, count), ranks = map_array(work.counts_path(task.number)), map_array(work.ranks_path(task.number))
    # Vertices of one weight follow each other, ascending.
    order = np.argsort(own, kind="stable")
    placed, first = np.empty(len(own), dtype=np.int32), 0
    for each, vertices, rank in zip(found.tolist(), count.tolist(), ranks.tolist(), strict=True):
        number = int(np.searchsorted(weight, each))
        runs = slice(offset[number], offset[number + 1])
        part, end = dealt[runs], ends[runs]
        # Ranks are shuffled, so that the vertices of a run are random ones of the class.
        key = int(stream_key(work.seed, f"heavy first {each}"))
        position = permute_by_network(np.arange(rank, rank + vertices), int(end[-1]), key)
        placed[order[first : first + vertices]] = part[np.searchsorted(end, position, side="right")]
        first += vertices
    map_array(work.part_path, "r+")[task.span] = placed
