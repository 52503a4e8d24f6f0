"""Merges the equal nets of drawn batches, by tasks over pieces and over ranges of hashes.

Of equal nets, the first is kept and weighs as much as all of them.  The kept ones stay in order: by batch, then by
piece, then within the piece.  Four kinds of task, each reading what the one before wrote:

    index    a piece: its distinct hashes, ascending; each with its first net and the number of its nets
    merge    a range of hashes: for each hash the piece that keeps its net, over all pieces
    choose   a piece: its kept nets in order, and how many each batch has
    place    a piece: its kept nets, copied to their place among all
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.kept_results import keep_results
from gnnloom.pipeline.partition.net_lists import select_nets
from gnnloom.pipeline.partition.stochastic.net_pieces import piece_folder
from gnnloom.pipeline.partition.stochastic.restricted_nets import NETS, PINS, figures_by_group
from gnnloom.pipeline.partition.stochastic.stored_nets import OpenNets, StoredNets
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks
from gnnloom.storage.format.numpy_files import load_array

#: Bytes of indexes that a task merges, at least; and of those that it reads of one piece, so that opens are worth it.
_BUCKET_BYTES, _SLICE_BYTES = 16 << 20, 128 << 10
#: Numbers of an index for each distinct hash: the hash, and batch, position and number of its nets.
INDEX_NUMBERS = 4
_HASHES = 1 << 64


@dataclass(frozen=True)
class DrawnNets:
    """The nets of some batches in the files that :mod:`.restricted_nets` writes for each piece.

    Attributes:
        work: folder of the pieces.
        count: batches that count, from the first on; the last group may have more.
        dtype: of the pins.
    """

    work: Path
    num_pieces: int
    count: int
    dtype: str

    def bucket_path(self, bucket: int) -> Path:
        """File of the kept nets in a range of hashes."""
        # Named by the batches: a run that was killed may have counted fewer, if time stopped it.
        return self.work / f"bucket-{self.count}-{bucket:05d}.npy"


@dataclass(frozen=True)
class _PieceTask:
    """Works on one piece.

    Attributes:
        buckets: ranges of hashes; 0 before their number is known.
    """

    nets: DrawnNets
    number: int
    buckets: int = 0

    @property
    def folder(self) -> Path:
        return piece_folder(self.nets.work, self.number)

    def path(self, name: str) -> Path:
        return self.folder / f"{name}-{self.nets.count}.npy"


@dataclass(frozen=True)
class _BucketTask:
    """Merges a range of hashes, one of ``buckets``."""

    nets: DrawnNets
    bucket: int
    buckets: int


@dataclass(frozen=True)
class _PlaceTask:
    """Copies the kept nets of a piece."""

    piece: _PieceTask
    merged: StoredNets


def merge_equal(nets: DrawnNets, folder: Path, cluster: Cluster) -> StoredNets:
    """Write the nets of drawn batches into ``folder``, equal ones merged."""
    pieces = [_PieceTask(nets, number) for number in range(nets.num_pieces)]
    run_tasks(cluster, _index_piece, [task for task in pieces if not task.path("index").exists()])
    buckets = num_buckets(sum(_mapped(task.path("index")).shape[1] for task in pieces), len(pieces))
    tasks = [_BucketTask(nets, bucket, buckets) for bucket in range(buckets)]
    run_tasks(cluster, _merge_bucket, [task for task in tasks if not nets.bucket_path(task.bucket).exists()])
    pieces = [_PieceTask(nets, number, buckets) for number in range(nets.num_pieces)]
    run_tasks(cluster, _choose_nets, [task for task in pieces if not task.path("kept").exists()])
    merged = _place_of_each(nets, pieces, folder)
    run_tasks(cluster, _place_nets, [_PlaceTask(task, merged) for task in pieces])
    return merged


def num_buckets(distinct: int, num_pieces: int) -> int:
    """Return the number of ranges of hashes for so many entries in the indexes of all pieces."""
    return max(1, -(-8 * INDEX_NUMBERS * distinct // max(_BUCKET_BYTES, _SLICE_BYTES * num_pieces)))


def _index_piece(task: _PieceTask) -> None:
    figures = figures_by_group(task.folder, task.nets.count)
    hashes = [_numbers(task.folder / f"hash-{group}", each, np.uint64) for group, each in enumerate(figures)]
    # Of equal hashes, ``return_index`` gives the first.
    distinct, position, weight = np.unique(np.concatenate(hashes), return_index=True, return_counts=True)
    batch = np.searchsorted(_ends(figures), position, side="right")
    columns = (distinct, batch, position, weight)
    keep_results(task.path("index"), [np.stack([column.view(np.uint64) for column in columns])])


def _merge_bucket(task: _BucketTask) -> None:
    """Write (3, num_kept) int64: piece, position and weight of the kept nets, by piece and position."""
    parts = [_bucket_of(task, number) for number in range(task.nets.num_pieces)]
    hashed, batch, position, weight, piece = np.concatenate(parts, axis=1)
    order = np.lexsort((piece, batch, hashed))
    first = np.flatnonzero(np.diff(hashed[order], prepend=~hashed[order[:1]]))
    total = np.add.reduceat(weight[order], first) if len(first) else weight
    kept = np.stack([piece[order[first]], position[order[first]], total]).view(np.int64)
    keep_results(task.nets.bucket_path(task.bucket), [kept[:, np.lexsort((kept[1], kept[0]))]])


def _bucket_of(task: _BucketTask, number: int) -> NDArray[np.uint64]:
    """(5, num_hashes) the columns of the index of a piece in this range of hashes, and the number of the piece."""
    index = _mapped(_PieceTask(task.nets, number).path("index"))
    # Ranges end where the next begins; the last ends with the hashes.
    edges = [-(-_HASHES * edge // task.buckets) for edge in (task.bucket, task.bucket + 1)]
    start, stop = (
        index.shape[1] if edge == _HASHES else int(np.searchsorted(index[0], np.uint64(edge))) for edge in edges
    )
    return np.concatenate([index[:, start:stop], np.full((1, stop - start), number, np.uint64)])


def _choose_nets(task: _PieceTask) -> None:
    """Write (2, num_kept) position and weight of the kept nets, and (2, count) the nets and pins of each batch."""
    parts = []
    for bucket in range(task.buckets):
        kept = _mapped(task.nets.bucket_path(bucket))
        start, stop = np.searchsorted(kept[0], (task.number, task.number + 1))
        parts.append(kept[1:, start:stop])
    position, weight = np.concatenate(parts, axis=1)
    order = np.argsort(position)
    position, weight = position[order], weight[order]
    figures = figures_by_group(task.folder, task.nets.count)
    size = np.concatenate([_numbers(task.folder / f"size-{g}", each, np.int64) for g, each in enumerate(figures)])
    batch = np.searchsorted(_ends(figures), position, side="right")
    counts = np.zeros((2, task.nets.count), dtype=np.int64)
    np.add.at(counts[0], batch, 1)
    np.add.at(counts[1], batch, size[position])
    keep_results(task.path("chosen"), [np.stack([position, weight])])
    # The last file, which says that both are there.
    keep_results(task.path("kept"), [counts])


def _place_of_each(nets: DrawnNets, pieces: list[_PieceTask], folder: Path) -> StoredNets:
    """Create the merged nets, and write for each piece the nets and pins before those of each batch."""
    total = np.zeros((2, nets.count), dtype=np.int64)
    for task in pieces:
        total += load_array(task.path("kept"))
    before = np.cumsum(total, axis=1) - total
    # Within a batch, the pieces follow each other.
    for task in pieces:
        keep_results(task.path("before"), [before])
        before += load_array(task.path("kept"))
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
    before = iter(load_array(piece.path("before")).T.tolist())
    first = 0
    # One batch at a time, because the nets of other pieces come between those of two batches.
    for group, figures in enumerate(figures_by_group(piece.folder, piece.nets.count)):
        sizes = _numbers(piece.folder / f"size-{group}", figures, np.int64)
        with (piece.folder / f"pin-{group}").open("rb") as file:
            for nets, pins in figures[:, [NETS, PINS]].tolist():
                size, sizes = sizes[:nets], sizes[nets:]
                pin = np.fromfile(file, merged.dtype, pins)
                chosen = slice(*np.searchsorted(position, (first, first + nets)))
                kept = np.zeros(nets, dtype=np.bool_)
                kept[position[chosen] - first] = True
                first_net, first_pin = next(before)
                _, pin = select_nets(size, pin, kept)
                merged.write(first_net, first_pin, size[kept], pin, weight[chosen])
                first += nets


def _numbers(path: Path, figures: NDArray[np.int64], dtype: Any) -> NDArray[Any]:
    """(num_nets,) sizes or hashes of the nets of the batches with these figures."""
    return np.fromfile(path, dtype, int(figures[:, NETS].sum()))


def _ends(figures: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """(count,) the nets of all batches up to each, and including it."""
    return np.cumsum(np.concatenate([each[:, NETS] for each in figures]))


def _mapped(path: Path) -> NDArray[Any]:
    return np.asarray(load_array(path, mmap_mode="r"))
