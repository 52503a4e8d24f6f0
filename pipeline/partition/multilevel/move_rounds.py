"""One pass of refinement in rounds: tasks propose moves, the client accepts classes of them, tasks make those.

The moves of a round are chosen with the parts as they were before it.  Moves between two parts are divided at random
into a few classes; the client accepts or refuses classes as a whole, by their weights, so that no part gets too heavy.
Neither what is proposed nor what is accepted depends on how the vertices of a round are divided into tasks.  Masks are
read from one file and written to another, because a task runs twice if its worker dies.  Every round has files of its
own, so a task that was taken for dead but still runs cannot change those of a later round.

Deterministic rounds: Gottesbüren, Hamann, Deterministic parallel hypergraph partitioning (Euro-Par 2022), section 4;
their balance is by pairs of blocks and gains, ours by classes.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.net_masks import create_masks
from gnnloom.pipeline.partition.multilevel.pieces import range_pieces, tasks_per_round
from gnnloom.pipeline.partition.multilevel.vectors import map_vector, store_vector
from gnnloom.pipeline.partition.multilevel.vertex_moves import (
    accept_classes,
    join_parts,
    leave_parts,
    move_to_parts,
    propose_moves,
)
from gnnloom.pipeline.partition.part_bits import WORD_BITS
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.format.files import remove_tree
from gnnloom.storage.matrix.permutation import mix

#: Rounds of a pass.  Vertices of one round do not see each other's moves: with 16 rounds rather than one vertex after
#: the other, R-MAT graphs send 0.1 % and soc-Slashdot0902 1.6 % more rows; with 64, 0.0 % and 0.2 % fewer.
_ROUNDS = 16
#: Classes of the moves between two parts, and the most of all parts together.
_MOST_BUCKETS, _MOST_CLASSES = 4, 1 << 20


@dataclass(frozen=True)
class Pass:
    """What the tasks of a pass have in common; small and picklable.

    Attributes:
        part_path: file of the (num_vertices,) int32 parts.
        mask_path: file of the masks of a window of parts, filled for these parts; overwritten.
        first: position of the window's first part.
        limit: weight up to which moves may fill a part.
        heat: a loss is accepted with a chance of exp(-loss / heat); 0 for never.
        key: of the random numbers of this pass.
        scratch: folder for the files of the rounds.
    """

    hypergraph: DiskHypergraph
    part_path: Path
    mask_path: Path
    first: int
    limit: int
    heat: float
    key: np.uint64
    scratch: Path

    def buckets(self, num_parts: int) -> int:
        """Into how many classes the moves between two parts are divided."""
        return max(1, min(_MOST_BUCKETS, _MOST_CLASSES // num_parts**2))


@dataclass(frozen=True)
class _Round:
    """What the tasks of a round have in common.

    Attributes:
        mask_path: file of the masks before this round.
        folder: for the files of this round only, and removed after it.
    """

    work: Pass
    mask_path: Path
    folder: Path

    @property
    def state_path(self) -> Path:
        """File of (2, num_parts) int64: the position of each part, and its weight before this round."""
        return self.folder / "state.npy"

    @property
    def accepted_path(self) -> Path:
        """File of the classes that the round makes."""
        return self.folder / "accepted.npy"


@dataclass(frozen=True)
class _ProposeTask:
    """Proposes moves of a range of vertices."""

    round: _Round
    rows: range
    number: int

    @property
    def moves_path(self) -> Path:
        return self.round.folder / f"moves-{self.number:05d}.npy"

    @property
    def classes_path(self) -> Path:
        """File of (2, num_classes) int64: the classes of these moves, ascending, and their weights."""
        return self.round.folder / f"classes-{self.number:05d}.npy"


@dataclass(frozen=True)
class _MakeTask:
    """Makes moves: updates the masks of a range of nets, and the parts in some of the files of moves.

    Attributes:
        next_path: file of the masks after it.
        moves: files of all moves.
        own: files of the moves for which this task updates the parts.
    """

    round: _Round
    next_path: Path
    nets: range
    moves: tuple[Path, ...]
    own: tuple[Path, ...]


def move_in_rounds(work: Pass, position: NDArray[np.int64], load: NDArray[np.int64], cluster: Cluster) -> int:
    """Move vertices once through a window of parts; returns the number of moves.

    Args:
        position: (num_parts,) int64 position of each part.
        load: (num_parts,) int64 weight of each part; updated.
    """
    work.scratch.mkdir(parents=True, exist_ok=True)
    num_tasks = tasks_per_round(cluster)
    net_ranges = work.hypergraph.nets.ranges(num_tasks)
    num_nets, _, num_words = map_vector(work.mask_path).shape
    now, moved = work.mask_path, 0
    for number, rows in enumerate(work.hypergraph.vertices.ranges(_ROUNDS)):
        this = _Round(work, now, work.scratch / f"{number:02d}-{uuid.uuid4().hex}")
        store_vector(this.state_path, np.stack([position, load]))
        proposals = [_ProposeTask(this, piece, task) for task, piece in enumerate(range_pieces(rows, num_tasks))]
        if sum(cluster.map(_propose, proposals)):
            store_vector(this.accepted_path, _accept(proposals, load, work))
            then = work.scratch / f"masks-{uuid.uuid4().hex}.npy"
            create_masks(then, num_nets, num_words)
            moves = tuple(task.moves_path for task in proposals)
            makers = [
                _MakeTask(this, then, nets, moves, moves[task :: len(net_ranges)])
                for task, nets in enumerate(net_ranges)
            ]
            moved += sum(cluster.map(_make, makers))
            now.unlink()
            now = then
        remove_tree(this.folder)
    now.replace(work.mask_path)
    return moved


def _propose(task: _ProposeTask) -> int:
    work = task.round.work
    hypergraph = work.hypergraph
    weight, net_weight = hypergraph.vertex_weight, hypergraph.net_weight
    part, mask = map_vector(work.part_path), map_vector(task.round.mask_path)
    position, load = map_vector(task.round.state_path)
    window = window_of(position, work.first, mask.shape[2])
    buckets, found, classes = work.buckets(len(load)), [np.empty((0, 2), dtype=np.int64)], _Classes()
    for block in hypergraph.vertices.blocks(task.rows):
        moves = np.empty((len(block.offset) - 1, 2), dtype=np.int64)
        count = propose_moves(
            block.first_row, block.offset, block.ids, weight, net_weight, part, position, work.first, window,
            mask, load, work.limit, work.heat, work.key, buckets, moves,
        )  # fmt: skip
        found.append(moves[:count].copy())
        classes.add(found[-1][:, 1], weight[found[-1][:, 0]])
    store_vector(task.moves_path, np.concatenate(found))
    store_vector(task.classes_path, np.stack(classes.merged()))
    return sum(map(len, found))


def _accept(proposals: Sequence[_ProposeTask], load: NDArray[np.int64], work: Pass) -> NDArray[np.int64]:
    """The (num_accepted,) int64 classes that are made, ascending; updates ``load``."""
    classes = _Classes()
    classes.add(*np.concatenate([map_vector(task.classes_path) for task in proposals], axis=1))
    move_class, weight = classes.merged()
    buckets = work.buckets(len(load))
    # In random order, so that no part is served first; moves for the balance last, as long as they are needed.
    for_balance = move_class >= buckets * len(load) ** 2
    order = np.lexsort((_hash_all(move_class, work.key), for_balance))
    accepted = accept_classes(move_class[order], weight[order], load, work.limit, buckets)
    return np.sort(move_class[order[accepted]])


def _make(task: _MakeTask) -> int:
    work = task.round.work
    vertices = work.hypergraph.vertices
    part, mask = map_vector(work.part_path, "r+"), map_vector(task.next_path, "r+")
    mask[task.nets.start : task.nets.stop] = map_vector(task.round.mask_path)[task.nets.start : task.nets.stop]
    position, accepted = map_vector(task.round.state_path)[0], map_vector(task.round.accepted_path)
    offset, ids = vertices.offset(), vertices.ids()
    moves = [map_vector(path) for path in task.moves]
    for update in (leave_parts, join_parts):
        for each in moves:
            update(each, accepted, offset, ids, position, work.first, mask, task.nets.start, task.nets.stop)
    return sum(move_to_parts(map_vector(path), accepted, len(position), part) for path in task.own)


def window_of(position: NDArray[np.int64], first: int, num_words: int) -> NDArray[np.int64]:
    """(num_indices,) int64 part at each index of the window that begins at position ``first``."""
    # Sorting the positions inverts the permutation: it gives the part at each of them.
    return np.argsort(position, kind="stable")[first : first + num_words * WORD_BITS]


class _Classes:
    """Sums weights by class of move."""

    def __init__(self) -> None:
        self._class, self._weight = np.empty((2, 0), dtype=np.int64)

    def add(self, move_class: NDArray[np.int64], weight: NDArray[np.int64]) -> None:
        """Add the weights of moves."""
        merged, inverse = np.unique(np.concatenate([self._class, move_class]), return_inverse=True)
        total = np.zeros(len(merged), dtype=np.int64)
        np.add.at(total, inverse, np.concatenate([self._weight, weight]))
        self._class, self._weight = merged, total

    def merged(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All classes, ascending, and their weights; both (num_classes,) int64."""
        return self._class, self._weight


@njit(cache=True, nogil=True)
def _hash_all(value: NDArray[np.int64], key: np.uint64) -> NDArray[np.uint64]:
    hashed = np.empty(len(value), np.uint64)
    for k in range(len(value)):
        hashed[k] = mix(key ^ mix(np.uint64(value[k])))
    return hashed
