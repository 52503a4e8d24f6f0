"""Lists of ids on disk, one for each row, streamed block by block: the pins of nets, and the nets of vertices.

Two plain files: ``offset`` (num_rows + 1,) int64 and ``id`` (num_ids,) int32 or int64.  Blocks hold at most
``Incidence.block_ids`` rows and ids, or one row.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.raw_files import read_bytes
from gnnloom.pipeline.partition.multilevel.pieces import (
    NUMBER_BYTES,
    RangeTask,
    consecutive,
    phase_over,
    range_pieces,
    run_pieces,
)
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.storage.disk.numpy_files import map_plain
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.system_errors import naming


class IncidenceBlock(NamedTuple):
    """Some consecutive rows; a tuple, so that kernels take it as it is.

    Attributes:
        first_row: number of the first row.
        offset: (num_rows + 1,) int64 from 0; row k of the block has ids[offset[k]:offset[k + 1]].
        ids: (num_ids,) int32 or int64.
    """

    first_row: int
    offset: NDArray[np.int64]
    ids: NDArray[Any]


@dataclass(frozen=True)
class Incidence:
    """The lists of ids in a folder; small and picklable, so that tasks can hold it.

    Attributes:
        dtype: of the ids.
        block_ids: maximum number of rows and ids of a block, unless a single row has more ids: 8 MiB of int64.
    """

    folder: Path
    num_rows: int
    num_ids: int
    dtype: str
    block_ids: int = 1 << 20

    @property
    def itemsize(self) -> int:
        """Bytes of an id."""
        return np.dtype(self.dtype).itemsize

    @property
    def num_bytes(self) -> int:
        """Bytes of the files."""
        return 8 * (self.num_rows + 1) + self.itemsize * self.num_ids

    def block_bytes(self, row_bytes: int = 0, id_bytes: int = 0) -> int:
        """Bytes of a block while a task works on it, as if no row had more than ``block_ids`` ids.

        Args:
            row_bytes, id_bytes: bytes that the task holds for each row and id of the block, besides these.
        """
        # The offsets are read, and then counted from the block's first.
        rows, ids = (min(self.block_ids, count) for count in (self.num_rows, self.num_ids))
        return (2 * NUMBER_BYTES + row_bytes) * (rows + 1) + (self.itemsize + id_bytes) * ids

    def offset(self, mode: Literal["r", "r+"] = "r") -> NDArray[np.int64]:
        """Map the (num_rows + 1,) int64 offsets; pages are read on access.

        Args:
            mode: ``r``, or ``r+`` for tasks that write rows of their own.
        """
        return map_plain(self.folder / "offset", "int64", mode)

    def ids(self, mode: Literal["r", "r+"] = "r") -> NDArray[Any]:
        """Map the (num_ids,) ids; pages are read on access."""
        # An empty file cannot be mapped.
        return map_plain(self.folder / "id", self.dtype, mode) if self.num_ids else np.empty(0, self.dtype)

    def block(self, first: int, stop: int) -> IncidenceBlock:
        """Read the rows from ``first`` up to ``stop``."""
        offset = np.empty(stop - first + 1, dtype=np.int64)
        read_bytes(self.folder / "offset", 8 * first, offset)
        ids = np.empty(int(offset[-1] - offset[0]), dtype=self.dtype)
        read_bytes(self.folder / "id", ids.itemsize * int(offset[0]), ids)
        return IncidenceBlock(first, offset - offset[0], ids)

    def blocks(self, rows: range | None = None) -> Iterator[IncidenceBlock]:
        """Yield consecutive rows, by default all, in blocks; one is in memory at a time."""
        first, last = (rows.start, rows.stop) if rows is not None else (0, self.num_rows)
        offset = self.offset()
        while first < last:
            fitting = int(np.searchsorted(offset, offset[first] + self.block_ids, side="right")) - 1
            # At least one row per block, however long that row is.
            stop = min(last, first + self.block_ids, max(fitting, first + 1))
            yield self.block(first, stop)
            first = stop

    def ranges(self, count: int) -> list[range]:
        """Return all rows in at most ``count`` consecutive ranges with about equal numbers of ids."""
        wanted = [self.num_ids * number // count for number in range(1, count)]
        edges = np.searchsorted(self.offset(), wanted).tolist()
        # Long rows make edges coincide; the set below drops the empty ranges between them.
        return [range(a, b) for a, b in pairwise(sorted({0, *edges, self.num_rows}))]


class StatedLists(Incidence):
    """Lists with sizes and no contents, for plans: as if all rows had the same length."""

    @classmethod
    def of(cls, num_rows: int, num_ids: int, num_columns: int) -> StatedLists:
        """Lists of ids below ``num_columns``."""
        return cls(Path(), num_rows, num_ids, index_dtype(num_columns).name)

    def ranges(self, count: int) -> list[range]:
        return range_pieces(range(self.num_rows), count)


def stated_pieces(lists: Incidence, count: int) -> list[StatedLists]:
    """Even pieces of lists without contents."""
    pieces = range_pieces(range(lists.num_rows), count)
    return [StatedLists(Path(), len(rows), lists.num_ids // len(pieces), lists.dtype) for rows in pieces]


def create_incidence(folder: Path, num_rows: int, num_ids: int, dtype: np.dtype[Any]) -> Incidence:
    """Create lists whose files are zero, for tasks that write rows of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in (("offset", 8 * (num_rows + 1)), ("id", dtype.itemsize * num_ids)):
        with (folder / name).open("wb") as file:
            file.truncate(size)
    return Incidence(folder, num_rows, num_ids, dtype.name)


class IncidenceWriter:
    """Writes lists of ids in the order of their rows.

    As a context manager it closes the files even after an error; :meth:`close` returns the finished lists.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._dtype = folder, dtype
        self._ids = (folder / "id").open("wb")
        self._offset = (folder / "offset").open("wb")
        self._offset.write(np.zeros(1, dtype=np.int64).data)
        self._rows, self._written = 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ids.close()
        self._offset.close()

    def append(self, offset: NDArray[np.int64], ids: NDArray[Any]) -> None:
        """Add rows.

        Args:
            offset: (num_rows + 1,) int64 from 0; row k has ids[offset[k]:offset[k + 1]].
            ids: (num_ids,) integers that fit the dtype of the file.
        """
        # Offsets on disk count from the first id of the file, so a block is read without those before it.
        with naming(self._folder):
            self._offset.write(np.ascontiguousarray(offset[1:] + self._written).data)
            self._ids.write(np.ascontiguousarray(ids[: offset[-1]], dtype=self._dtype).data)
        self._rows += len(offset) - 1
        self._written += int(offset[-1])

    def close(self) -> Incidence:
        """Close the files and return the finished lists."""
        self._ids.close()
        self._offset.close()
        return Incidence(self._folder, self._rows, self._written, self._dtype.name)


@dataclass(frozen=True)
class _Join:
    """The lists of consecutive ranges of rows, to be joined into one."""

    pieces: tuple[Incidence, ...]
    result: Incidence


def join_lists(name: str, pieces: Sequence[Incidence], folder: Path, cluster: Cluster) -> Incidence:
    """Write the lists of all pieces, one after the other, and remove the pieces.

    Args:
        name: of the phase.
        pieces: one or more, with ids of one dtype.
    """
    num_rows, num_ids = sum(piece.num_rows for piece in pieces), sum(piece.num_ids for piece in pieces)
    result = create_incidence(folder, num_rows, num_ids, np.dtype(pieces[0].dtype))
    run_pieces(join_phase(name, pieces, result), cluster)
    for piece in pieces:
        shutil.rmtree(piece.folder)
    return result


def join_phase(name: str, pieces: Sequence[Incidence], result: Incidence) -> Phase:
    """The phase of :func:`join_lists`."""
    ranges, firsts = (
        consecutive(piece.num_rows for piece in pieces),
        accumulate((piece.num_ids for piece in pieces), initial=0),
    )
    work, size, held = _Join(tuple(pieces), result), result.num_bytes, result.block_bytes(row_bytes=NUMBER_BYTES)
    return phase_over(ranges, name, _place, work, reads=size, writes=size, files=2, firsts=firsts, buffers=held)


def _place(task: RangeTask[_Join]) -> None:
    offset, ids, first_id = task.work.result.offset("r+"), task.work.result.ids("r+"), task.first
    for block in task.work.pieces[task.number].blocks():
        first = task.rows.start + block.first_row
        # The offset of the first row of all is 0, as the file was created.
        offset[first + 1 : first + len(block.offset)] = first_id + block.offset[1:]
        ids[first_id : first_id + len(block.ids)] = block.ids
        first_id += len(block.ids)
