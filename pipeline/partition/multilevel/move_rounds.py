"""One pass of refinement in rounds: tasks propose moves, the client accepts classes of them, tasks make those.

The moves of a round are chosen with the parts as they were before it.  Moves between two parts are divided at random
into a few classes; the client accepts or refuses classes as a whole, by their weights, so that no part gets too heavy.
What the moves change is grouped by ranges of nets, and then the masks of each range are updated.
Neither what is proposed nor what is accepted depends on how the vertices of a round are divided into tasks.  Masks are
read from one file and written to another, because a task runs twice if its worker dies.  Every round has files of its
own, so a task that was taken for dead but still runs cannot change those of a later round.  What tasks leave to those
of the next phase is in lanes, so that each of these opens few files, however many tasks there are.

Deterministic rounds: Gottesbüren, Hamann, Deterministic parallel hypergraph partitioning (Euro-Par 2022), section 4;
their balance is by pairs of blocks and gains, ours by classes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.partition.model.part_bits import WORD_BITS
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.move_classes import MoveClasses
from gnnloom.pipeline.partition.multilevel.net_masks import create_masks
from gnnloom.pipeline.partition.multilevel.net_updates import UPDATE_BYTES, net_updates
from gnnloom.pipeline.partition.multilevel.pieces import range_pieces, round_tasks, writing_tasks
from gnnloom.pipeline.partition.multilevel.route_rows import route_rows
from gnnloom.pipeline.partition.multilevel.vectors import map_vector, store_vector
from gnnloom.pipeline.partition.multilevel.vertex_moves import (
    accept_classes,
    accepted_moves,
    join_parts,
    leave_parts,
    propose_moves,
)
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.run_list import LaneRuns
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import RunsWriter
from gnnloom.pipeline.shuffle.unrecorded import UnrecordedShuffle
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks
from gnnloom.storage.format.files import remove_tree
from gnnloom.storage.matrix.permutation import mix

#: Rounds of a pass.  Vertices of one round do not see each other's moves: with 16 rounds rather than one vertex after
#: the other, R-MAT graphs send 0.1 % and soc-Slashdot0902 1.6 % more rows; with 64, 0.0 % and 0.2 % fewer.
ROUNDS = 16
#: Classes of the moves between two parts, and the most of all parts together.
_MOST_BUCKETS, _MOST_CLASSES = 4, 1 << 20
#: Columns of what tasks route: a vertex, and the class of its move; a class of moves, and its weight; a net, and the
#: indices of the parts that a pin of it leaves and joins.
_MOVE, _UPDATE = Column("move", "int64", (2,)), Column("update", "int64", (3,))
_CLASSES = (Column("class", "int64"), Column("weight", "int64"))


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
    """Proposes moves of a range of vertices.

    Attributes:
        moves: the moves.
        classes: the classes of these moves, ascending.
    """

    round: _Round
    rows: range
    number: int
    moves: UnrecordedShuffle
    classes: UnrecordedShuffle


@dataclass(frozen=True)
class _SpreadTask:
    """Changes the parts of some of the vertices that move, and finds what else their moves change.

    Attributes:
        moves: all of the round.
        rows: numbers of those of this task.
        nets: ranges of the tasks that change masks.
        updates: what moves change, by range of nets.
    """

    round: _Round
    moves: UnrecordedShuffle
    rows: range
    number: int
    nets: tuple[range, ...]
    updates: UnrecordedShuffle


@dataclass(frozen=True)
class _MaskTask:
    """Changes the masks of a range of nets.

    Attributes:
        next_path: file of the masks after the round.
        number: of the range of nets.
        updates: what the moves change, in the order of the vertices.
    """

    round: _Round
    next_path: Path
    number: int
    nets: tuple[range, ...]
    updates: UnrecordedShuffle


def move_in_rounds(work: Pass, position: NDArray[np.int64], load: NDArray[np.int64], cluster: Cluster) -> int:
    """Move vertices once through a window of parts; returns the number of moves.

    Args:
        position: (num_parts,) int64 position of each part.
        load: (num_parts,) int64 weight of each part; updated.
    """
    work.scratch.mkdir(parents=True, exist_ok=True)
    num_tasks = round_tasks(work.hypergraph.num_vertices // ROUNDS, cluster.workers)
    nets = tuple(work.hypergraph.nets.ranges(num_tasks))
    num_nets, _, num_words = map_vector(work.mask_path).shape
    now, moved = work.mask_path, 0
    for number, rows in enumerate(work.hypergraph.vertices.ranges(ROUNDS)):
        this = _Round(work, now, work.scratch / f"{number:02d}-{uuid.uuid4().hex}")
        store_vector(this.state_path, np.stack([position, load]))
        pieces = range_pieces(rows, round_tasks(len(rows), cluster.workers))
        moves = UnrecordedShuffle.create(this.folder, "moves", len(pieces), [_MOVE])
        classes = UnrecordedShuffle.create(this.folder, "classes", len(pieces), _CLASSES)
        proposals = [_ProposeTask(this, piece, task, moves, classes) for task, piece in enumerate(pieces)]
        found = list(cluster.map(_propose, proposals))
        num_moves = moves.list_runs((task, runs) for task, runs, *_ in found)
        classes.list_runs((task, runs) for task, _, runs, _ in found)
        if num_moves:
            store_vector(this.accepted_path, _accept(classes, load, work))
            num_updates = sum(updates for *_, updates in found)
            shares = range_pieces(range(num_moves), writing_tasks(len(nets), UPDATE_BYTES * num_updates, len(nets)))
            updates = UnrecordedShuffle.create(this.folder, "updates", len(shares), [_UPDATE], len(nets))
            spreads = [_SpreadTask(this, moves, share, task, nets, updates) for task, share in enumerate(shares)]
            spread = list(cluster.map(_spread, spreads))
            moved += sum(made for *_, made in spread)
            updates.list_runs((task, runs) for task, runs, _ in spread)
            then = work.scratch / f"masks-{uuid.uuid4().hex}.npy"
            create_masks(then, num_nets, num_words)
            changes = [_MaskTask(this, then, task, nets, updates) for task in range(len(nets))]
            run_tasks(cluster, _change_masks, changes)
            now.unlink()
            now = then
        remove_tree(this.folder)
    now.replace(work.mask_path)
    return moved


def _propose(task: _ProposeTask) -> tuple[int, LaneRuns, LaneRuns, int]:
    """Return the task's number, what it wrote of moves and of classes, and how many nets the moving vertices have."""
    work = task.round.work
    hypergraph = work.hypergraph
    weight, net_weight = hypergraph.vertex_weight, hypergraph.net_weight
    part, mask = map_vector(work.part_path), map_vector(task.round.mask_path)
    position, load = map_vector(task.round.state_path)
    window = window_of(position, work.first, mask.shape[2])
    buckets, found, classes = work.buckets(len(load)), [np.empty((0, 2), dtype=np.int64)], MoveClasses()
    num_updates = 0
    for block in hypergraph.vertices.blocks(task.rows):
        moves = np.empty((len(block.offset) - 1, 2), dtype=np.int64)
        count = propose_moves(
            block.first_row, block.offset, block.ids, weight, net_weight, part, position, work.first, window,
            mask, load, work.limit, work.heat, work.key, buckets, moves,
        )  # fmt: skip
        found.append(moves[:count].copy())
        classes.add(found[-1][:, 1], weight[found[-1][:, 0]])
        num_updates += int(np.diff(block.offset)[found[-1][:, 0] - block.first_row].sum())
    with task.moves.routed(task.number) as moved, task.classes.routed(task.number) as out:
        _add_all(moved, {_MOVE.name: np.concatenate(found)})
        _add_all(out, dict(zip(("class", "weight"), classes.merged(), strict=True)))
    return task.number, moved.written, out.written, num_updates


def _add_all(out: RunsWriter, values: dict[str, NDArray[np.int64]]) -> None:
    """Route rows of which every task may read any."""
    (num_rows,) = {len(column) for column in values.values()}
    out.add(Index.of_offsets(np.array([0, num_rows])), values)


def _accept(proposed: UnrecordedShuffle, load: NDArray[np.int64], work: Pass) -> NDArray[np.int64]:
    """The (num_accepted,) int64 classes that are made, ascending; updates ``load``."""
    classes = MoveClasses()
    with OpenFiles(proposed.work) as files:
        for section in proposed.rows(files).sections(0, 1):
            classes.add(section.read("class"), section.read("weight"))
    move_class, weight = classes.merged()
    buckets = work.buckets(len(load))
    # In random order, so that no part is served first; moves for the balance last, as long as they are needed.
    for_balance = move_class >= buckets * len(load) ** 2
    order = np.lexsort((_hash_all(move_class, work.key), for_balance))
    accepted = accept_classes(move_class[order], weight[order], load, work.limit, buckets)
    return np.sort(move_class[order[accepted]])


def _spread(task: _SpreadTask) -> tuple[int, LaneRuns, int]:
    """Return the task's number, what it wrote, and how many vertices move."""
    work = task.round.work
    part, accepted = map_vector(work.part_path, "r+"), map_vector(task.round.accepted_path)
    index = map_vector(task.round.state_path)[0] - work.first
    moved = 0

    def updates(files: OpenFiles) -> Iterator[NDArray[np.int64]]:
        nonlocal moved
        for moves in task.moves.rows(files).numbered(task.rows, _MOVE.name):
            made = accepted_moves(moves, accepted, len(index))
            part[made[:, 0]] = made[:, 2]
            moved += len(made)
            made[:, 1:] = index[made[:, 1:]]
            yield from net_updates(made, work.hypergraph.vertices)

    with OpenFiles(task.moves.work) as files, task.updates.routed(task.number) as out:
        route_rows(out, _UPDATE.name, updates(files), task.nets)
    return task.number, out.written, moved


def _change_masks(task: _MaskTask) -> None:
    nets = task.nets[task.number]
    mask = map_vector(task.next_path, "r+")
    mask[nets.start : nets.stop] = map_vector(task.round.mask_path)[nets.start : nets.stop]
    with OpenFiles(task.updates.work) as files:
        sections = task.updates.rows(files).sections(task.number, task.number + 1)
        # All leave before any of them joins another part.
        for update in (leave_parts, join_parts):
            for section in sections:
                update(section.read(_UPDATE.name), mask)


def window_of(position: NDArray[np.int64], first: int, num_words: int) -> NDArray[np.int64]:
    """(num_indices,) int64 part at each index of the window that begins at position ``first``."""
    # Sorting the positions inverts the permutation: it gives the part at each of them.
    return np.argsort(position, kind="stable")[first : first + num_words * WORD_BITS]


@njit(cache=True, nogil=True)
def _hash_all(value: NDArray[np.int64], key: np.uint64) -> NDArray[np.uint64]:
    hashed = np.empty(len(value), np.uint64)
    for k in range(len(value)):
        hashed[k] = mix(key ^ mix(np.uint64(value[k])))
    return hashed
