"""One pass of refinement in rounds: tasks propose moves, the client accepts classes of moves, tasks make these moves.

The moves of a round are chosen with the parts as they were before it.  Moves between two parts are divided at random
into a few classes; the client accepts or refuses classes as a whole, by their weights, so that no part gets too heavy.
What the moves change is grouped by ranges of nets, and then the masks of each range are updated.
Neither what is proposed nor what is accepted depends on how the vertices of a round are divided into tasks.  Masks are
read from one file and written to another, because a task runs twice if its worker dies.  Every round has files of its
own, so a task that was taken for dead but still runs cannot change the files of a later round. Tasks pass data to the
next phase in lanes, so each task of that phase opens few files, for any number of tasks.

Deterministic rounds: Gottesbüren, Hamann, Deterministic parallel hypergraph partitioning (Euro-Par 2022), section 4;
their balance is by pairs of blocks and gains, ours by classes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.partition.measure.volume import KeySums
from gnnloom.pipeline.partition.model.moves import WORD_BITS
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.net_masks import create_masks, mask_bytes
from gnnloom.pipeline.partition.multilevel.net_updates import (
    UPDATE_BYTES,
    net_updates,
    route_rows,
    run_bytes,
    spread_bytes,
)
from gnnloom.pipeline.partition.multilevel.pieces import (
    NUMBER_BYTES,
    PART_BYTES,
    RangeTask,
    Setting,
    phase_over,
    range_pieces,
    round_tasks,
    run_pieces,
    shared_lanes,
    store_vector,
    writing_tasks,
)
from gnnloom.pipeline.partition.multilevel.vertex_moves import (
    Moving,
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
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase, results
from gnnloom.storage.disk.files import remove_tree
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import mix

#: Classes of the moves between two parts, and the most of all parts together.
_MOST_BUCKETS, _MOST_CLASSES = 4, 1 << 20
#: Bytes of a move, and of a class of moves with its weight; of the state of a part.
_MOVE_BYTES, _STATE_BYTES = 16, 16
#: Minimum number of classes per merge: a merge also sorts the classes that were merged before.
_MERGED_AT_ONCE = 1 << 16
#: Columns of the arrays that tasks route: a vertex, and the class of its move; a class of moves, and its weight; a net,
#: and the indices of the parts that a pin of it leaves and joins.
_MOVE, _UPDATE = Column("move", "int64", (2,)), Column("update", "int64", (3,))
_CLASSES = (Column("class", "int64"), Column("weight", "int64"))


@dataclass(frozen=True)
class Pass:
    """Common fields of a pass's tasks; small and picklable.

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

    def moving(
        self,
        part: NDArray[np.int32],
        position: NDArray[np.int64],
        mask: NDArray[np.uint64],
        load: NDArray[np.int64],
    ) -> Moving:
        """Arguments for kernels, with these parts, masks, and positions and weights of parts."""
        weights = self.hypergraph.vertex_weight, self.hypergraph.net_weight
        # Sorting the positions inverts the permutation: it gives the part at each of them.
        window = np.argsort(position, kind="stable")[self.first : self.first + mask.shape[2] * WORD_BITS]
        return Moving(*weights, part, position, self.first, window, mask, load, self.limit, self.heat, self.key)

    def buckets(self, num_parts: int) -> int:
        """Number of classes into which the moves between two parts are divided."""
        return max(1, min(_MOST_BUCKETS, _MOST_CLASSES // num_parts**2))


@dataclass(frozen=True)
class _Round:
    """Common fields of a round's tasks.

    Attributes:
        mask_path, next_path: files of the masks before and after this round.
        rows: the vertices of the round.
        nets: ranges of the tasks that change masks.
        moves: proposed moves.
        classes: classes of the moves, ascending for each task.
        updates: changes of the accepted moves, by range of nets; in the order of the vertices.
    """

    work: Pass
    mask_path: Path
    next_path: Path
    rows: range
    nets: tuple[range, ...]
    moves: UnrecordedShuffle
    classes: UnrecordedShuffle
    updates: UnrecordedShuffle

    @classmethod
    def of(cls, work: Pass, mask_path: Path, rows: range, nets: tuple[range, ...], workers: int) -> _Round:
        """A round in a new folder, which storing the state creates."""
        name = uuid.uuid4().hex
        scratch, folder = work.hypergraph.scratch, work.scratch / f"round-{name}"
        tasks = round_tasks(len(rows), workers, scratch, work.hypergraph.steps)
        return cls(
            work,
            mask_path,
            work.scratch / f"masks-{name}.npy",
            rows,
            nets,
            UnrecordedShuffle.named(folder, "moves", tasks, [_MOVE], scratch=scratch),
            UnrecordedShuffle.named(folder, "classes", tasks, _CLASSES, scratch=scratch),
            UnrecordedShuffle.named(folder, "updates", len(nets), [_UPDATE], len(nets), scratch),
        )

    @property
    def folder(self) -> Path:
        """For the files of this round only, and removed after it."""
        return self.moves.work

    @property
    def state_path(self) -> Path:
        """File of (2, num_parts) int64: the position of each part, and its weight before this round."""
        return self.folder / "state.npy"

    @property
    def accepted_path(self) -> Path:
        """File of the classes that the round makes."""
        return self.folder / "accepted.npy"


def move_in_rounds(work: Pass, position: NDArray[np.int64], load: NDArray[np.int64], cluster: Cluster) -> int:
    """Move vertices once through a window of parts; returns the number of moves.

    Args:
        position: (num_parts,) int64 position of each part.
        load: (num_parts,) int64 weight of each part; updated.
    """
    work.scratch.mkdir(parents=True, exist_ok=True)
    nets = _net_ranges(work.hypergraph, cluster.workers)
    num_nets, _, num_words = map_array(work.mask_path).shape
    now, moved = work.mask_path, 0
    for rows in work.hypergraph.vertices.ranges(work.hypergraph.steps.rounds):
        this = _Round.of(work, now, rows, nets, cluster.workers)
        store_vector(this.state_path, np.stack([position, load]))
        this.moves.create()
        this.classes.create()
        propose = _propose_phase(this, len(load), num_words)
        found = list(results(propose, cluster))
        num_moves = this.moves.list_runs((task, runs) for task, runs, *_ in found)
        this.classes.list_runs((task, runs) for task, _, runs, _ in found)
        if num_moves:
            store_vector(this.accepted_path, _accept(this.classes, load, work))
            this.updates.create()
            num_updates = sum(updates for *_, updates in found)
            spread = _spread_phase(this, len(load), num_moves, num_updates, len(propose.tasks))
            made = list(results(spread, cluster))
            moved += sum(count for *_, count in made)
            this.updates.list_runs((task, runs) for task, runs, _ in made)
            create_masks(this.next_path, num_nets, num_words)
            run_pieces(_change_phase(this, num_words, num_updates, len(spread.tasks)), cluster)
            now.unlink()
            now = this.next_path
        remove_tree(this.folder)
    now.replace(work.mask_path)
    return moved


def move_phases(hypergraph: DiskHypergraph, setting: Setting, num_words: int, passes: int) -> list[Phase]:
    """The phases of :func:`move_in_rounds`, in which at most all vertices of a round move.

    Args:
        num_words: of a net in each mask.
        passes: through a window of parts.
    """
    work = Pass(hypergraph, Path(), Path(), 0, 0, 0.0, np.uint64(0), Path())
    rows = max(hypergraph.vertices.ranges(hypergraph.steps.rounds), key=len)
    this = _Round.of(work, Path(), rows, _net_ranges(hypergraph, setting.workers), setting.workers)
    propose = _propose_phase(this, setting.parts, num_words)
    num_updates = hypergraph.pins_of(rows)
    spread = _spread_phase(this, setting.parts, len(rows), num_updates, len(propose.tasks))
    phases = [propose, spread, _change_phase(this, num_words, num_updates, len(spread.tasks))]
    return [replace(phase, repeats=passes * hypergraph.steps.rounds) for phase in phases]


def _net_ranges(hypergraph: DiskHypergraph, workers: int) -> tuple[range, ...]:
    steps = hypergraph.steps
    count = round_tasks(hypergraph.num_vertices // steps.rounds, workers, hypergraph.scratch, steps)
    return tuple(hypergraph.nets.ranges(count))


def _propose_phase(this: _Round, num_parts: int, num_words: int) -> Phase:
    hypergraph, rows = this.work.hypergraph, len(this.rows)
    pieces, weight = range_pieces(this.rows, this.moves.lanes.count), NUMBER_BYTES * hypergraph.is_weighted
    of_pin = hypergraph.vertices.itemsize + mask_bytes(num_words) + weight
    of_vertices = hypergraph.pins_of(this.rows) * of_pin + rows * (2 * NUMBER_BYTES + PART_BYTES)
    reads = of_vertices + len(pieces) * _STATE_BYTES * num_parts
    # A move, and its class with its weight.
    writes, files = 2 * _MOVE_BYTES * rows, 6 + hypergraph.is_weighted
    most = max(map(len, pieces)), (this.work.buckets(num_parts) + 1) * num_parts**2
    of_parts = 5 * NUMBER_BYTES * max(num_parts, WORD_BITS * num_words)
    held = hypergraph.vertices.block_bytes(row_bytes=_MOVE_BYTES) + _class_bytes(*most) + of_parts
    return phase_over(
        pieces, "propose moves", _propose, this, reads=reads, writes=writes, files=files,
        # Moves as they are found, and together.
        row_bytes=2 * _MOVE_BYTES, buffers=held, at_most=True,
    )  # fmt: skip


def _spread_phase(this: _Round, num_parts: int, num_moves: int, num_updates: int, proposing: int) -> Phase:
    """Change the parts of vertices, and find what else their moves change; tasks share the moves.

    Args:
        num_moves: that are proposed.
        num_updates: nets of their vertices.
        proposing: tasks that proposed them.
    """
    size, count, scratch = UPDATE_BYTES * num_updates, len(this.nets), this.work.hypergraph.scratch
    shares = range_pieces(range(num_moves), writing_tasks(count, size, count, scratch))
    of_nets = num_updates * this.work.hypergraph.vertices.itemsize
    reads = of_nets + num_moves * (_MOVE_BYTES + 2 * NUMBER_BYTES) + len(shares) * _STATE_BYTES * num_parts
    writes, lanes = size + PART_BYTES * num_moves, [shared_lanes(proposing, len(shares))]
    return phase_over(
        shares, "spread moves", _spread, this, reads=reads, writes=writes, files=4, lanes=lanes,
        buffers=spread_bytes() + NUMBER_BYTES * num_parts, at_most=True, scratch=scratch,
    )  # fmt: skip


def _change_phase(this: _Round, num_words: int, num_updates: int, spreading: int) -> Phase:
    """Change the masks of ranges of nets.

    Args:
        num_updates: of masks.
        spreading: tasks that found what changes.
    """
    masks = mask_bytes(num_words) * this.work.hypergraph.num_nets
    # Pins leave in one scan of the updates, and join in another.
    reads = 2 * UPDATE_BYTES * num_updates + masks
    lanes = [spreading]
    return phase_over(
        this.nets, "change masks", _change_masks, this,
        reads=reads, writes=masks, files=1, lanes=lanes, buffers=run_bytes(), at_most=True,
        scratch=this.work.hypergraph.scratch,
    )  # fmt: skip


def _propose(task: RangeTask[_Round]) -> tuple[int, LaneRuns, LaneRuns, int]:
    """Return the task's number, what it wrote of moves and of classes, and how many nets the moving vertices have."""
    this, work = task.work, task.work.work
    position, load = map_array(this.state_path)
    moving = work.moving(map_array(work.part_path), position, map_array(this.mask_path), load)
    buckets, found, classes = work.buckets(len(load)), [np.empty((0, 2), dtype=np.int64)], KeySums(_MERGED_AT_ONCE)
    num_updates = 0
    for block in work.hypergraph.vertices.blocks(task.rows):
        moves = np.empty((len(block.offset) - 1, 2), dtype=np.int64)
        found.append(moves[: propose_moves(block, moving, buckets, moves)].copy())
        classes.add(found[-1][:, 1], moving.vertex_weight[found[-1][:, 0]])
        num_updates += int(np.diff(block.offset)[found[-1][:, 0] - block.first_row].sum())
    with this.moves.routed(task.number) as moved, this.classes.routed(task.number) as out:
        _add_all(moved, {_MOVE.name: np.concatenate(found)})
        _add_all(out, dict(zip(("class", "weight"), classes.merged(), strict=True)))
    return task.number, moved.written, out.written, num_updates


def _add_all(out: RunsWriter, values: dict[str, NDArray[np.int64]]) -> None:
    """Route rows that every task may read."""
    (num_rows,) = {len(column) for column in values.values()}
    out.add(Index.of_offsets(np.array([0, num_rows])), values)


def _accept(proposed: UnrecordedShuffle, load: NDArray[np.int64], work: Pass) -> NDArray[np.int64]:
    """The (num_accepted,) int64 classes that are made, ascending; updates ``load``."""
    classes = KeySums(_MERGED_AT_ONCE)
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


def _spread(task: RangeTask[_Round]) -> tuple[int, LaneRuns, int]:
    """Return the task's number, what it wrote, and how many vertices move."""
    this, work = task.work, task.work.work
    part, accepted = map_array(work.part_path, "r+"), map_array(this.accepted_path)
    index = map_array(this.state_path)[0] - work.first
    moved = 0

    def updates(files: OpenFiles) -> Iterator[NDArray[np.int64]]:
        nonlocal moved
        for moves in this.moves.rows(files).numbered(task.rows, _MOVE.name):
            made = accepted_moves(moves, accepted, len(index))
            part[made[:, 0]] = made[:, 2]
            moved += len(made)
            made[:, 1:] = index[made[:, 1:]]
            yield from net_updates(made, work.hypergraph.vertices)

    with OpenFiles(this.folder) as files, this.updates.routed(task.number) as out:
        route_rows(out, _UPDATE.name, updates(files), this.nets)
    return task.number, out.written, moved


def _change_masks(task: RangeTask[_Round]) -> None:
    this, mask = task.work, map_array(task.work.next_path, "r+")
    mask[task.span] = map_array(this.mask_path)[task.span]
    with OpenFiles(this.folder) as files:
        sections = this.updates.rows(files).sections(task.number, task.number + 1)
        # All pins leave their parts before any pin joins another part.
        for update in (leave_parts, join_parts):
            for section in sections:
                update(section.read(_UPDATE.name), mask)


def _class_bytes(moves: int, classes: int) -> int:
    """Bytes held while moves are summed by class: the classes and weights, sorted and numbered."""
    merged = min(moves, classes)
    return 9 * NUMBER_BYTES * (merged + min(moves, max(_MERGED_AT_ONCE, merged)))


@kernel
def _hash_all(value: NDArray[np.int64], key: np.uint64) -> NDArray[np.uint64]:
    hashed = np.empty(len(value), np.uint64)
    for k in range(len(value)):
        hashed[k] = mix(key ^ mix(np.uint64(value[k])))
    return hashed
