"""The halo of a rank, and the rows that it sends to other ranks.

The halo has the vertices of other ranks that its rows refer to, numbered by owner and then by id: by slot. A rank of
several ranges has a task for each range, which lists the columns of other ranks in its rows, and then one task that
joins these lists. The last pass of the row shards looks up what a rank must send in the halos of the ranks that need
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shards.rows.row_entries import RangeRows, foreign_columns
from gnnloom.pipeline.shards.rows.row_numbers import VertexNumbers
from gnnloom.pipeline.shards.rows.row_routed import RoutedProduct, RoutedRank
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.mapped_vectors import map_vector, write_vector
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle, ShuffledRows
from gnnloom.pipeline.tasks.phase import WorkFiles
from gnnloom.storage.format.array_pieces import ArrayAppender, ArrayForm
from gnnloom.storage.format.arrays import ArrayReader, ArrayRecord, write_array
from gnnloom.storage.format.artifact import TaskOutput, TaskRecord
from gnnloom.storage.format.growing_array import GrowingArray
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.shards.typed_row_shards import REPLICATED

#: Which of the counts of entries a block has: columns of other ranks are counted apart.
BLOCK_NUMBERS: Final = {"own": 0, REPLICATED: 0, "halo": 1}
#: Folder in the work folder with the halos of ranks of several ranges.
_FOLDER: Final = "halo"


@dataclass(frozen=True)
class HaloPiece:
    """Consecutive vertices of a halo.

    Attributes:
        slot: (num_rows,) slots in the order of the ids, ascending.
        vertex: (num_rows,) global ids.
    """

    slot: NDArray[Any]
    vertex: NDArray[Any]

    @classmethod
    def of(cls, vertex: NDArray[Any], numbers: VertexNumbers) -> HaloPiece:
        """Order distinct ids, given in any order."""
        slot = numbers.by_id[vertex]
        order = np.argsort(slot)
        return cls(slot[order], vertex[order])


@dataclass(frozen=True)
class MatrixSizes:
    """The sizes of the two matrices that a rank's rows are split into, and where the entries of its ranges begin.

    Attributes:
        num_halo: vertices of the halo.
        begin: (num_ranges + 1, 2) int64 entries of the own and of the halo matrix before each range, and of all.
    """

    num_halo: int
    begin: NDArray[np.int64]

    def nonzeros(self, block: str) -> int:
        """Entries of the ``own`` or the ``halo`` matrix, or of the only one, ``replicated``."""
        return int(self.begin[-1, BLOCK_NUMBERS[block]])

    @classmethod
    def of(cls, num_halo: int, counts: Sequence[Sequence[int]]) -> MatrixSizes:
        """The sizes for (num_ranges, 2) entries of each range."""
        begin = np.zeros((len(counts) + 1, 2), np.int64)
        np.cumsum(np.asarray(counts, np.int64), axis=0, out=begin[1:])
        return cls(num_halo, begin)


# Lists of columns


def found_shuffle(kind: str, num_parts: int, num_vertices: int) -> Shuffle:
    """The shuffle of the columns of others, from the ranges to their rank; a position is a slot of one rank's list.

    Args:
        kind: of the product.
    """
    columns = (Column("vertex", index_dtype(num_vertices).name),)
    return Shuffle(f"found-{kind}", num_parts * num_vertices, columns, num_parts)


@dataclass(frozen=True)
class FindHaloTask(RoutedRank):
    """Lists the columns of others in the rows of a range.

    Attributes:
        position: of the range.
        lanes: where the list of each matrix goes.
    """

    position: int
    lanes: tuple[Lane, ...]


def find_halo(task: FindHaloTask) -> int:
    """List the columns of others of a range; returns its nonzeros."""
    counts = []
    with OpenFiles(task.writer.work) as files, task.writer.task(task.name) as output:
        for product, lane in zip(task.products, task.lanes, strict=True):
            matrices = [RangeRows(task, files, matrix, task.position) for matrix in product.matrices]
            halo_nonzeros: list[int] = []
            with product.found.routed(output, lane) as out:
                for vertex in foreign_columns(matrices, task, halo_nonzeros, task.steps.listed_columns):
                    piece = HaloPiece.of(vertex, task.numbers)
                    position = piece.slot.astype(np.int64) + task.rank * task.numbers.num_vertices
                    out.add(Index.of_positions(position), {"vertex": piece.vertex})
            pairs = zip(matrices, halo_nonzeros, strict=True)
            counts += [[rows.num_nonzeros - nonzeros, nonzeros] for rows, nonzeros in pairs]
        output.facts["nonzeros"] = counts
    return sum(sum(each) for each in counts)


def find_name(rank: int, number: int) -> str:
    """Name of the task that lists the columns of others of a range.

    Args:
        number: number of the range within its rank.
    """
    return f"find/{rank:05d}-{number:06d}"


# Halos of ranks of several ranges, in files that the tasks of the ranges map


@dataclass(frozen=True, eq=False)
class HaloFiles(WorkFiles):
    """The halos of ranks of several ranges."""

    work: Path

    def is_intact(self, record: TaskRecord) -> bool:
        return all((self.work / path).exists() for path in record.facts.get("halo_files", ()))

    def remove(self) -> None:
        for path in (self.work / _FOLDER).glob("*"):
            path.unlink(missing_ok=True)


def halo_slots(task: RoutedRank, product: RoutedProduct) -> NDArray[Any]:
    """(num_halo,) slots of the halo of a rank of several ranges."""
    return map_vector(task.writer.work / _slots_path(task, product), task.numbers.dtype)


def stored_sizes(task: RoutedRank) -> list[MatrixSizes]:
    """The sizes of the matrices of a rank of several ranges."""
    begin = map_vector(task.writer.work / _sizes_path(task), np.int64).reshape(-1, len(task.matrices), 2)
    num_halo = [len(halo_slots(task, product)) for product in task.products for _ in product.matrices]
    return [MatrixSizes(count, begin[:, number]) for number, count in enumerate(num_halo)]


def _slots_path(task: RoutedRank, product: RoutedProduct) -> str:
    return f"{_FOLDER}/{product.halo.name}-{task.rank:05d}"


def _sizes_path(task: RoutedRank) -> str:
    return f"{_FOLDER}/sizes-{task.rank:05d}"


def join_halos(task: RoutedRank, files: OpenFiles, output: TaskOutput, lanes: Sequence[Lane]) -> None:
    """Join the lists of all ranges of a rank, and write its halos."""
    names = [find_name(task.rank, number) for number in range(len(task.positions))]
    recorded = task.writer.recorded_of(names)
    counts = [recorded[name].facts["nonzeros"] for name in names]
    num_vertices = task.numbers.num_vertices
    for product, lane in zip(task.products, lanes, strict=True):
        rows = product.found.rows(task.writer.work, files)
        pieces = _joined(rows, task.rank * num_vertices, num_vertices, task.steps.joined_bytes)
        writer = HaloWriter(task, product)
        # The slots are written while they are read.
        slots = task.writer.work / _slots_path(task, product)
        write_vector(slots, (piece.slot.astype(task.numbers.dtype) for piece in writer.written(pieces)))
        record = writer.close(output)
        stored = ArrayReader(task.writer.path, record)
        writer.route(output, lane, stored.chunks)
    sizes = [MatrixSizes.of(0, [each[number] for each in counts]).begin for number in range(len(task.matrices))]
    write_vector(task.writer.work / _sizes_path(task), [np.stack(sizes, axis=1)])
    output.facts["halo_files"] = [*(_slots_path(task, product) for product in task.products), _sizes_path(task)]


def _joined(rows: ShuffledRows, first: int, num_vertices: int, step_bytes: int) -> Iterator[HaloPiece]:
    """The distinct vertices of several lists, in steps.

    Args:
        first: position of slot 0.
    """
    for step in rows.steps(step_bytes, first, first + num_vertices):
        position, vertex = step.position, step.column("vertex")
        is_first = np.ones(len(position), np.bool_)
        np.not_equal(position[1:], position[:-1], out=is_first[1:])
        yield HaloPiece(position[is_first] - first, vertex[is_first])


class HaloWriter:
    """Writes the halo of a rank from consecutive pieces, and routes it to the ranks that send it."""

    def __init__(self, task: RoutedRank, product: RoutedProduct) -> None:
        self._task, self._product = task, product
        self._prefix = f"{task.folder}/{product.prefix}"
        self._vertex = GrowingArray(task.writer.path, f"{self._prefix}halo_vertex", np.int64, ("halo",))
        self._offsets = task.numbers.offsets
        self._counts = np.zeros(task.num_parts, np.int64)

    def written(self, pieces: Iterable[HaloPiece]) -> Iterator[HaloPiece]:
        """Write pieces, and pass them on."""
        for piece in pieces:
            self._vertex.append(piece.vertex.astype(np.int64))
            self._counts += np.diff(np.searchsorted(piece.slot, self._offsets))
            yield piece

    def close(self, output: TaskOutput) -> ArrayRecord:
        """Write where the vertices of each owner begin; returns the record of the vertices."""
        record = self._vertex.close()
        offset = np.concatenate([[0], np.cumsum(self._counts)])
        path = f"{self._prefix}halo_offset"
        output.add(record)
        output.add(write_array(self._task.writer.path, path, offset, ("part+1",)))
        return record

    def route(self, output: TaskOutput, lane: Lane, vertices: Callable[[], Iterable[NDArray[Any]]]) -> None:
        """Route the halo.

        Args:
            vertices: gives the ids once more, some at a time.
        """
        senders = np.flatnonzero(self._counts)
        with self._product.halo.routed(output, lane) as out:
            run = out.begin(Index.of_positions(senders), (int(self._counts.sum()),))
            run.put("receiver", np.full(len(senders), self._task.rank))
            run.put("count", self._counts[senders])
            for vertex in vertices():
                run.put("vertex", vertex)


def write_halo(task: RoutedRank, product: RoutedProduct, piece: HaloPiece, output: TaskOutput, lane: Lane) -> None:
    """Write a halo that is in memory, and route it."""
    writer = HaloWriter(task, product)
    for _ in writer.written([piece]):
        pass
    writer.close(output)
    writer.route(output, lane, lambda: [piece.vertex])


# Send lists


def halo_shuffle(kind: str, num_parts: int) -> Shuffle:
    """The shuffle of halos, from the ranks that need rows to the ranks that send them.

    A row has the vertices that one rank sends to another; its position is the sender.

    Args:
        kind: of the product.
    """
    columns = (Column("receiver", "int64"), Column("count", "int64"), Column("vertex", "int64", lengths="count"))
    return Shuffle(f"halo-{kind}", num_parts, columns, num_parts)


@dataclass(frozen=True)
class SendListTask(RoutedRank):
    """Writes the send lists of one rank."""


def write_send_lists(task: SendListTask) -> int:
    """Write which local rows one rank sends, in the order of each receiver's halo; returns its number of vertices."""
    with task.writer.task(task.name) as output, OpenFiles(task.writer.work) as files:
        for product in task.products:
            for record in _write_product_send(task, files, product):
                output.add(record)
    return task.num_own


def _write_product_send(task: SendListTask, files: OpenFiles, product: RoutedProduct) -> list[ArrayRecord]:
    # Receivers ascend, as the tasks that route do.
    sections = product.halo.rows(task.writer.work, files).sections(task.rank, task.rank + 1)
    offset = np.zeros(task.num_parts + 1, np.int64)
    for section in sections:
        offset[section.read("receiver") + 1] = section.read("count")
    np.cumsum(offset, out=offset)
    root, prefix, dtype = task.writer.path, f"{task.folder}/{product.prefix}", index_dtype(task.num_own)
    rows = ArrayAppender(root, ArrayForm(f"{prefix}send_row", (int(offset[-1]),), dtype.name, ("send",)))
    by_number = task.numbers.by_number
    for section in sections:
        for vertex in section.blocks("vertex"):
            rows.append((by_number[vertex] - task.slots[0]).astype(dtype))
    return [rows.close(), write_array(root, f"{prefix}send_offset", offset, ("part+1",))]
