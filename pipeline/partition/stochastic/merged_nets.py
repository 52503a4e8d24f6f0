"""Merges the equal nets of drawn batches, by tasks over pieces and over ranges of hashes.

The first of equal nets is kept, with the sum of their weights. Kept nets stay in order: by batch, then by piece, then
within the piece. There are three kinds of tasks, each reading the rows that the previous kind routed:

    index    a piece: its distinct hashes, ascending; each with its first net and the number of its nets
    merge    a range of hashes: for each hash the piece that keeps its net, over all pieces
    choose   a piece: its kept nets, by batch
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph, select_nets
from gnnloom.pipeline.partition.stochastic.restricted_nets import GroupShuffles
from gnnloom.pipeline.shuffle.columns import Column, row_bytes
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index, SortedRun
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Needs, Phase, WorkFiles
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.format.artifact import ArtifactWriter

#: Bytes of nets that are loaded at a time.
_LOADED_BYTES = 64 << 20
_HASHES = 1 << 64
#: Columns of the index: of each distinct hash of a piece, batch and piece of its first net as
#: ``batch * num_pieces + piece``, the position of that net in the piece, and the number of its nets.
INDEX_COLUMNS = (
    Column("hash", "uint64"),
    Column("place", "int64"),
    Column("position", "int64"),
    Column("weight", "int64"),
)
#: Columns of the nets that a piece keeps: position and weight.
KEPT_COLUMNS = (Column("position", "int64"), Column("weight", "int64"))


@dataclass(frozen=True)
class DrawnRuns:
    """Location of the nets of some batches, as :mod:`.restricted_nets` leaves them for each piece.

    Attributes:
        count: batches that count, from the first on; the last group may have more.
        num_groups: groups of batches.
        dtype: of the pins.
    """

    writer: ArtifactWriter
    num_pieces: int
    count: int
    num_groups: int
    dtype: str

    def open(self, files: OpenFiles, piece: int) -> list[SortedRun]:
        """Open the nets of each batch of a piece."""
        groups = [GroupShuffles.of(number, self.num_pieces, self.dtype) for number in range(self.num_groups)]
        found = self.writer.recorded_of(group.task_name(piece) for group in groups)
        sections = (
            section
            for group in groups
            for section in group.nets.recorded_sections(files, [found[group.task_name(piece)]])
        )
        return [section.run for _, section in zip(range(self.count), sections, strict=False)]


@dataclass(frozen=True)
class MergedNets:
    """The merged nets, from which a hypergraph is loaded.

    Attributes:
        work: the work folder.
        nets: sizes, weights and pins, by batch.
    """

    work: Path
    nets: Shuffle
    num_nets: int
    num_pins: int

    @classmethod
    def of(cls, work: Path, count: int, dtype: str, num_nets: int, num_pins: int) -> MergedNets:
        """The nets of ``count`` batches, with pins of type ``dtype``."""
        return cls(work, _merged_shuffle(count, dtype), num_nets, num_pins)

    def to_json(self) -> dict[str, Any]:
        """The arguments of :meth:`of`, without the folder."""
        dtype = self.nets.columns[-1].dtype
        return {
            "count": self.nets.num_positions, "dtype": dtype, "num_nets": self.num_nets, "num_pins": self.num_pins
        }  # fmt: skip

    def load(self, vertex_weight: NDArray[np.int64]) -> Hypergraph:
        """Read the hypergraph into memory.

        Args:
            vertex_weight: (num_vertices,) int64.

        Raises:
            DamagedWorkError: a file is damaged.
        """
        offset, weight = np.zeros(self.num_nets + 1, dtype=np.int64), np.empty(self.num_nets, dtype=np.int64)
        pin = np.empty(self.num_pins, dtype=self.nets.columns[-1].dtype)
        net, end = 0, 0
        with OpenFiles(self.work) as files:
            for rows in self.nets.rows(self.work, files).steps(_LOADED_BYTES):
                own, pins = slice(net, net + rows.num_rows), rows.column("pin")
                np.cumsum(rows.column("size"), out=offset[net + 1 : own.stop + 1])
                offset[net + 1 : own.stop + 1] += end
                weight[own], pin[end : end + len(pins)] = rows.column("weight"), pins
                net, end = own.stop, end + len(pins)
        return Hypergraph(vertex_weight, offset, pin, weight)


@dataclass(frozen=True)
class _Task:
    """Works on one piece or one range of hashes; small and picklable.

    Attributes:
        name: of the task.
        index: the distinct hashes of each piece, by range of hashes.
        kept: the nets that are kept, by piece.
        merged: the same nets with their pins, by batch.
        lane: where the rows that the task routes go.
    """

    name: str
    nets: DrawnRuns
    index: Shuffle
    kept: Shuffle
    merged: Shuffle
    number: int
    lane: Lane
    needs: Needs

    @property
    def writer(self) -> ArtifactWriter:
        return self.nets.writer


@dataclass(frozen=True, eq=False)
class MergePlan:
    """Plan for merging equal nets of drawn batches.

    Attributes:
        pieces: nets of each piece, and their pins.
        drawn: for each group of batches, the files with its nets, and those without which they cannot be made again.
    """

    nets: DrawnRuns
    pieces: Sequence[tuple[int, int]]
    drawn: Sequence[tuple[WorkFiles, WorkFiles]]

    def phases(self) -> list[Phase]:
        """The phases that merge the nets, after the phases that restrict the nets."""
        index, kept, merged = self._plans
        nets, groups = [files for files, _ in self.drawn], len(self.drawn)
        indexes = [
            # A file of each group; and the hashes while they are sorted with their positions.
            Needs(8 * num_nets, written, groups, written + 40 * num_nets)
            for num_nets, _ in self.pieces
            for written in [row_bytes(INDEX_COLUMNS) * num_nets + 8 * index.shuffle.num_positions]
        ]
        keeps = self._keep_needs()
        chooses = [self._choose_needs(piece, *sizes) for piece, sizes in enumerate(self.pieces)]
        read = [kept.read_files, *(files for both in self.drawn for files in both)]
        return [
            *self._phase("index nets", _index_piece, index, indexes, nets, groups),
            *self._phase("keep nets", _merge_bucket, kept, keeps, [index.read_files]),
            *self._phase("choose nets", _choose_nets, merged, chooses, read, groups + 1),
        ]

    def _phase(
        self,
        name: str,
        function: Callable[[_Task], int],
        plan: ShufflePlan,
        needs: Sequence[Needs],
        reads: Sequence[WorkFiles],
        arrays: int = 1,
    ) -> list[Phase]:
        """A phase that routes rows of a shuffle, and the merges of what it leaves."""
        index, kept, merged = (each.shuffle for each in self._plans)
        tasks = [
            _Task(_task_name(plan.shuffle, number), self.nets, index, kept, merged, number, plan.lane(number), need)
            for number, need in enumerate(needs)
        ]
        route = Phase(name, function, tasks, "nets", tuple(reads), (plan.files,), arrays=arrays)
        return [route, *plan.merges(f"merge {name}")]

    def merged(self) -> MergedNets:
        """The nets, once they are merged."""
        names = [_task_name(self._plans[2].shuffle, number) for number in range(len(self.pieces))]
        records = self.nets.writer.recorded_of(names).values()
        sizes = (sum(record.facts[name] for record in records) for name in ("nets", "pins"))
        return MergedNets(self.nets.writer.work, self._plans[2].shuffle, *sizes)

    @cached_property
    def _num_nets(self) -> int:
        return sum(count for count, _ in self.pieces)

    @cached_property
    def _plans(self) -> tuple[ShufflePlan, ShufflePlan, ShufflePlan]:
        """Plans that route the distinct hashes, the nets that are kept, and the merged nets."""
        nets, pieces = self.nets, len(self.pieces)
        num_nets = self._num_nets
        buckets = num_buckets(num_nets, pieces, nets.writer.scratch)
        # Named by the batches: a killed run that reached its time limit may have counted fewer.
        index = Shuffle(f"net-index/{nets.count}", buckets, INDEX_COLUMNS, buckets)
        kept = Shuffle(f"net-kept/{nets.count}", pieces, KEPT_COLUMNS, pieces)
        return (
            ShufflePlan(nets.writer, index, pieces, row_bytes(INDEX_COLUMNS) * num_nets, pieces * buckets),
            ShufflePlan(nets.writer, kept, buckets, row_bytes(KEPT_COLUMNS) * num_nets, pieces * buckets),
            # One process reads all rows, in few steps.
            ShufflePlan.unmerged(nets.writer, _merged_shuffle(nets.count, nets.dtype), pieces),
        )

    def _keep_needs(self) -> list[Needs]:
        index = self._plans[0]
        buckets = index.shuffle.num_positions
        read, written = (
            row_bytes(columns) * (self._num_nets // buckets) + 8 * len(self.pieces)
            for columns in (INDEX_COLUMNS, KEPT_COLUMNS)
        )
        # The rows of a range are sorted twice.
        return [Needs(read, written, index.opens((bucket, bucket + 1)), 6 * read) for bucket in range(buckets)]

    def _choose_needs(self, piece: int, num_nets: int, num_pins: int) -> Needs:
        kept, pin_bytes = self._plans[1], np.dtype(self.nets.dtype).itemsize
        read = row_bytes(KEPT_COLUMNS) * num_nets + 8 * (num_nets + self._plans[0].shuffle.num_positions)
        return Needs(
            read + pin_bytes * num_pins,
            16 * num_nets + pin_bytes * num_pins,
            len(self.drawn) + kept.opens((piece, piece + 1)),
            48 * num_nets + 3 * pin_bytes * num_pins // max(1, self.nets.count),
        )


def _merged_shuffle(count: int, dtype: str) -> Shuffle:
    columns = Column("size", "int64"), Column("weight", "int64"), Column("pin", dtype, lengths="size")
    return Shuffle(f"merged-nets/{count}", count, columns, 1)


def _task_name(routed: Shuffle, number: int) -> str:
    return f"{routed.name}/{number:05d}"


def num_buckets(num_nets: int, num_pieces: int, scratch: Scratch) -> int:
    """Return the number of ranges of hashes for the nets of all pieces, which have a hash each.

    A range has half the usual bytes, because its rows are sorted twice, and twice the usual bytes of each piece.
    """
    least = max(scratch.range_bytes // 2, 2 * scratch.slice_bytes * num_pieces)
    return max(1, -(-row_bytes(INDEX_COLUMNS) * num_nets // least))


def _index_piece(task: _Task) -> int:
    """Route the distinct hashes of a piece; returns how many there are."""
    nets, buckets = task.nets, task.index.num_positions
    with OpenFiles(task.writer.work) as files, task.writer.task(task.name) as output:
        runs = nets.open(files, task.number)
        # Of equal hashes, ``return_index`` gives the first.
        found = np.unique(_joined(runs, "hash", np.uint64), return_index=True, return_counts=True)
        distinct, position, weight = found
        place = np.searchsorted(_ends(runs), position, side="right") * nets.num_pieces + task.number
        # Ranges end where the next begins; the last ends with the hashes.
        edges = np.array([-(-_HASHES * number // buckets) for number in range(buckets)], dtype=np.uint64)
        offsets = np.append(np.searchsorted(distinct, edges), len(distinct))
        with task.index.routed(output, task.lane) as out:
            rows = {"hash": distinct, "place": place, "position": position, "weight": weight}
            out.add(Index.of_offsets(offsets), rows)
    return len(distinct)


def _merge_bucket(task: _Task) -> int:
    """Route the nets that are kept of a range of hashes; returns how many there are."""
    num_pieces = task.nets.num_pieces
    with OpenFiles(task.writer.work) as files, task.writer.task(task.name) as output:
        rows = task.index.rows(task.writer.work, files).read(task.number, task.number + 1)
        hashed, place, position, weight = (rows.column(column.name) for column in INDEX_COLUMNS)
        # By batch, then by piece: the first net of each hash is the one to keep.
        order = np.lexsort((place, hashed))
        first = np.flatnonzero(np.diff(hashed[order], prepend=~hashed[order[:1]]))
        total = np.add.reduceat(weight[order], first) if len(first) else weight
        piece, position = place[order[first]] % num_pieces, position[order[first]]
        by_piece = np.lexsort((position, piece))
        offsets = np.searchsorted(piece, np.arange(num_pieces + 1), sorter=by_piece)
        with task.kept.routed(output, task.lane) as out:
            out.add(Index.of_offsets(offsets), {"position": position[by_piece], "weight": total[by_piece]})
    return len(first)


def _choose_nets(task: _Task) -> int:
    """Route the kept nets of a piece by batch; returns how many there are."""
    with OpenFiles(task.writer.work) as files, task.writer.task(task.name) as output:
        rows = task.kept.rows(task.writer.work, files).read(task.number, task.number + 1)
        order = np.argsort(rows.column("position"))
        position, weight = rows.column("position")[order], rows.column("weight")[order]
        runs = task.nets.open(files, task.number)
        bounds = np.concatenate([[0], _ends(runs)])
        num_pins = int(_joined(runs, "size", np.int64)[position].sum())
        offsets = np.searchsorted(position, bounds)
        with task.merged.routed(output, task.lane) as out:
            run = out.begin(Index.of_offsets(offsets), (num_pins,))
            run.put("weight", weight)
            # One batch at a time, because all batches together may have several times the pins of the piece.
            for batch, drawn in enumerate(runs):
                size, pin = drawn.read_all("size"), drawn.read_all("pin")
                kept = np.zeros(len(size), dtype=np.bool_)
                kept[position[offsets[batch] : offsets[batch + 1]] - bounds[batch]] = True
                run.put("size", size[kept])
                run.put("pin", select_nets(size, pin, kept)[1])
        output.facts |= {"nets": len(position), "pins": num_pins}
    return len(position)


def _joined(runs: Sequence[SortedRun], name: str, dtype: type) -> NDArray[Any]:
    """A column of several batches."""
    return np.concatenate([np.empty(0, dtype), *(run.read_all(name) for run in runs)])


def _ends(runs: Sequence[SortedRun]) -> NDArray[np.int64]:
    """(count,) the nets of all batches up to each, and including it."""
    return np.cumsum([run.layout.num_rows for run in runs])
