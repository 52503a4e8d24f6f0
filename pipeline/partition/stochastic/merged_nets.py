"""Merges the equal nets of drawn batches, by tasks over pieces and over ranges of hashes.

Of equal nets, the first is kept and weighs as much as all of them.  The kept ones stay in order: by batch, then by
piece, then within the piece.  Four kinds of task, each reading what the one before wrote:

    index    a piece: its distinct hashes, ascending; each with its first net and the number of its nets
    merge    a range of hashes: for each hash the piece that keeps its net, over all pieces
    choose   a piece: its kept nets in order, and how many each batch has
    place    a piece: its kept nets, copied to their place among all

What the first two find for tasks of the other kind is in lanes, so no task opens more than 16 files of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.external_sort.raw_files import read_bytes
from gnnloom.pipeline.partition.measure.kept_results import keep_results
from gnnloom.pipeline.partition.model.net_lists import select_nets
from gnnloom.pipeline.partition.stochastic.kept_rows import KeptRows
from gnnloom.pipeline.partition.stochastic.net_pieces import piece_folder
from gnnloom.pipeline.partition.stochastic.restricted_nets import HASH, NETS, PIN, PINS, SIZE, figures_path
from gnnloom.pipeline.partition.stochastic.stored_nets import OpenNets, StoredNets
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks
from gnnloom.storage.format.numpy_files import load_array

#: Bytes of indexes that a task merges, at least; and of those that it reads of one piece, so that few reads are short.
_BUCKET_BYTES, _SLICE_BYTES = 16 << 20, 128 << 10
#: Numbers of an index for each distinct hash: the hash; batch and piece, batch * num_pieces + piece; and position and
#: number of its nets.
INDEX_NUMBERS = 4
#: Numbers of a kept net for the task that chooses: its position and its weight.
KEPT_NUMBERS = 2
_HASHES = 1 << 64


@dataclass(frozen=True)
class DrawnNets:
    """The nets of some batches in the files that :mod:`.restricted_nets` writes for each piece.

    Attributes:
        work: folder of the pieces.
        count: batches that count, from the first on; the last group may have more.
        group: number of the last group.
        num_nets: nets of the batches that count, over all pieces.
        dtype: of the pins.
    """

    work: Path
    num_pieces: int
    count: int
    group: int
    num_nets: int
    dtype: str

    def figures(self, piece: int) -> NDArray[np.int64]:
        """Read the (count, num_figures) figures of a piece."""
        return load_array(figures_path(piece_folder(self.work, piece), self.group))[: self.count]


@dataclass(frozen=True)
class _Merging:
    """What the tasks of all kinds need; small and picklable.

    Attributes:
        index: rows of ``INDEX_NUMBERS``, of each piece, grouped by range of hashes; ascending by hash.
        kept: rows of ``KEPT_NUMBERS``, of each range of hashes, grouped by piece.
    """

    nets: DrawnNets
    index: KeptRows
    kept: KeptRows

    @classmethod
    def of(cls, nets: DrawnNets) -> _Merging:
        """Prepare the files of the rows."""
        pieces, buckets, work = nets.num_pieces, num_buckets(nets.num_nets, nets.num_pieces), nets.work
        # Named by the batches: a run that was killed may have counted fewer, if time stopped it.
        return cls(
            nets,
            KeptRows.prepare(work, f"index-{nets.count}", pieces, INDEX_NUMBERS, buckets),
            KeptRows.prepare(work, f"kept-{nets.count}", buckets, KEPT_NUMBERS, pieces),
        )


@dataclass(frozen=True)
class _PieceTask:
    """Works on one piece."""

    merging: _Merging
    number: int

    @property
    def folder(self) -> Path:
        return piece_folder(self.merging.nets.work, self.number)

    def path(self, name: str) -> Path:
        return self.folder / f"{name}-{self.merging.nets.count}.npy"


@dataclass(frozen=True)
class _BucketTask:
    """Merges a range of hashes."""

    merging: _Merging
    number: int


@dataclass(frozen=True)
class _PlaceTask:
    """Copies the kept nets of a piece."""

    piece: _PieceTask
    merged: StoredNets


def merge_equal(nets: DrawnNets, folder: Path, cluster: Cluster) -> StoredNets:
    """Write the nets of drawn batches into ``folder``, equal ones merged."""
    merging = _Merging.of(nets)
    pieces = [_PieceTask(merging, number) for number in range(nets.num_pieces)]
    merging.index.run(_index_piece, pieces, cluster)
    buckets = [_BucketTask(merging, number) for number in range(merging.index.rows.num_ranges)]
    merging.kept.run(_merge_bucket, buckets, cluster)
    run_tasks(cluster, _choose_nets, [task for task in pieces if not task.path("counts").exists()])
    merged = _place_of_each(nets, pieces, folder)
    run_tasks(cluster, _place_nets, [_PlaceTask(task, merged) for task in pieces])
    return merged


def num_buckets(num_nets: int, num_pieces: int) -> int:
    """Return the number of ranges of hashes for so many nets of all pieces, which have at most as many hashes."""
    return max(1, -(-8 * INDEX_NUMBERS * num_nets // max(_BUCKET_BYTES, _SLICE_BYTES * num_pieces)))


def _index_piece(task: _PieceTask) -> None:
    nets, index = task.merging.nets, task.merging.index
    figures = nets.figures(task.number)
    # Of equal hashes, ``return_index`` gives the first.
    found = np.unique(_numbers(task.folder / HASH, figures, np.uint64), return_index=True, return_counts=True)
    distinct, position, weight = found
    batch = np.searchsorted(_ends(figures), position, side="right")
    columns = (distinct, batch * nets.num_pieces + task.number, position, weight)
    rows = np.stack([column.view(np.uint64) for column in columns], axis=1)
    # Ranges end where the next begins; the last ends with the hashes.
    buckets = index.rows.num_ranges
    edges = np.array([-(-_HASHES * number // buckets) for number in range(buckets)], dtype=np.uint64)
    index.keep(task.number, rows, np.append(np.searchsorted(distinct, edges), len(distinct)))


def _merge_bucket(task: _BucketTask) -> None:
    nets, index = task.merging.nets, task.merging.index.rows
    with OpenFiles(index.folder) as files:
        hashed, place, position, weight = index.rows_within(files, _only(task.number), np.uint64).T
    # By batch, then by piece: the first net of each hash is the one to keep.
    order = np.lexsort((place, hashed))
    first = np.flatnonzero(np.diff(hashed[order], prepend=~hashed[order[:1]]))
    total = np.add.reduceat(weight[order], first) if len(first) else weight
    piece, position = place[order[first]] % np.uint64(nets.num_pieces), position[order[first]]
    by_piece = np.lexsort((position, piece))
    begin = np.searchsorted(piece[by_piece], np.arange(nets.num_pieces + 1, dtype=np.uint64))
    task.merging.kept.keep(task.number, np.stack([position, total], axis=1)[by_piece], begin)


def _choose_nets(task: _PieceTask) -> None:
    """Write (2, num_kept) position and weight of the kept nets, and (2, count) the nets and pins of each batch."""
    nets, kept = task.merging.nets, task.merging.kept.rows
    with OpenFiles(kept.folder) as files:
        rows = kept.rows_within(files, _only(task.number))
    position, weight = rows[np.argsort(rows[:, 0])].T
    figures = nets.figures(task.number)
    size = _numbers(task.folder / SIZE, figures, np.int64)
    batch = np.searchsorted(_ends(figures), position, side="right")
    counts = np.zeros((2, nets.count), dtype=np.int64)
    np.add.at(counts[0], batch, 1)
    np.add.at(counts[1], batch, size[position])
    keep_results(task.path("chosen"), [np.stack([position, weight])])
    # The last file, which says that both are there.
    keep_results(task.path("counts"), [counts])


def _only(number: int) -> range:
    return range(number, number + 1)


def _place_of_each(nets: DrawnNets, pieces: list[_PieceTask], folder: Path) -> StoredNets:
    """Create the merged nets, and write for each piece the nets and pins before those of each batch."""
    total = np.zeros((2, nets.count), dtype=np.int64)
    for task in pieces:
        total += load_array(task.path("counts"))
    before = np.cumsum(total, axis=1) - total
    # Within a batch, the pieces follow each other.
    for task in pieces:
        keep_results(task.path("before"), [before])
        before += load_array(task.path("counts"))
    num_nets, num_pins = total.sum(axis=1).tolist()
    merged = StoredNets(folder, num_nets, num_pins, nets.dtype)
    merged.create()
    return merged


def _place_nets(task: _PlaceTask) -> None:
    with task.merged.opened() as merged:
        _copy_kept(task.piece, merged)


def _copy_kept(piece: _PieceTask, merged: OpenNets) -> None:
    """Write the kept nets of a piece to their places among all."""
    position, weight = load_array(piece.path("chosen"))
    before, first = load_array(piece.path("before")).T.tolist(), 0
    figures = piece.merging.nets.figures(piece.number)[:, [NETS, PINS]].tolist()
    with (piece.folder / SIZE).open("rb") as sizes, (piece.folder / PIN).open("rb") as all_pins:
        # One batch at a time, because the nets of other pieces come between those of two batches.
        for (nets, pins), (first_net, first_pin) in zip(figures, before, strict=True):
            size, pin = np.fromfile(sizes, np.int64, nets), np.fromfile(all_pins, merged.dtype, pins)
            chosen = slice(*np.searchsorted(position, (first, first + nets)))
            kept = np.zeros(nets, dtype=np.bool_)
            kept[position[chosen] - first] = True
            _, pin = select_nets(size, pin, kept)
            merged.write(first_net, first_pin, size[kept], pin, weight[chosen])
            first += nets


def _numbers(path: Path, figures: NDArray[np.int64], dtype: Any) -> NDArray[Any]:
    """(num_nets,) sizes or hashes of the nets of the batches with these figures."""
    numbers = np.empty(int(figures[:, NETS].sum()), dtype)
    read_bytes(path, 0, numbers)
    return numbers


def _ends(figures: NDArray[np.int64]) -> NDArray[np.int64]:
    """(count,) the nets of all batches up to each, and including it."""
    return np.cumsum(figures[:, NETS])
