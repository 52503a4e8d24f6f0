"""The local numbers of a rank's own vertices: by id, or by degree.

By degree, rows that are read most often lie together, and so fit into a cache. Hubs come first; equal degrees keep the
order of their ids, which keeps any locality that the ids have.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.shards.rows.row_routed import RowSegment, gather_ranges, row_spans

#: Bytes of vertex data that are moved at a time.
_MOVED_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class OwnRows:
    """The vertices of one rank in the order of their local numbers.

    Attributes:
        ascending: (num_own,) int64 global ids, ascending.
        order: (num_own,) int64 position in ``ascending`` of each local number; None if the numbers ascend.
    """

    ascending: NDArray[np.int64]
    order: NDArray[np.int64] | None

    @classmethod
    def of(cls, ascending: NDArray[np.int64], degree: NDArray[np.int64], reorder: str) -> OwnRows:
        """Number the vertices as one of :data:`gnnloom.pipeline.shards.shard_options.REORDERS` says.

        Args:
            degree: (num_own,) int64 nonzeros of their rows.
        """
        return cls(ascending, np.argsort(-degree, kind="stable") if reorder == "degree" else None)

    def __len__(self) -> int:
        return len(self.ascending)

    @property
    def vertex(self) -> NDArray[np.int64]:
        """(num_own,) int64 global ids by local number."""
        return self.ascending if self.order is None else self.ascending[self.order]

    def numbering(self) -> Callable[[NDArray[Any]], NDArray[np.int64]]:
        """What finds (num_ids,) local numbers by global ids, all of them own; holds 8 bytes per vertex if reordered."""
        places = Places(self.ascending)
        if self.order is None:
            return places.of
        number = np.empty_like(self.order)
        number[self.order] = np.arange(len(self.order))
        return lambda ids: number[places.of(ids)]


class Places:
    """Finds the places of ids in an ascending list, many at a time.

    The list is cut into ranges of ids of equal width, about one for every four ids of the list, and where each range
    begins is in a table. A binary search in all of the list would miss the caches again and again; a table of all
    vertices would grow with n.
    """

    def __init__(self, ascending: NDArray[np.int64]) -> None:
        """Make the table, 2 to 4 bytes for each id of the list.

        Args:
            ascending: (num_listed,) int64 distinct ids.
        """
        self._ascending = ascending
        self._first, last = (int(ascending[0]), int(ascending[-1])) if len(ascending) else (0, 0)
        self._shift = max(0, (4 * (last - self._first + 1) // max(1, len(ascending))).bit_length() - 1)
        num_ranges = ((last - self._first) >> self._shift) + 1
        bounds = self._first + (np.arange(num_ranges + 1, dtype=np.int64) << self._shift)
        self._start = np.searchsorted(ascending, bounds)

    def of(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """(num_ids,) int64 places of ids, all of which are in the list."""
        found = np.empty(len(ids), np.int64)
        _find_places(self._ascending, self._first, self._shift, self._start, ids.astype(np.int64, copy=False), found)
        return found


@njit(cache=True, nogil=True)
def _find_places(
    ascending: NDArray[np.int64],
    first: int,
    shift: int,
    start: NDArray[np.int64],
    ids: NDArray[np.int64],
    found: NDArray[np.int64],
) -> None:
    for k in range(ids.size):
        number = (ids[k] - first) >> shift
        low, high = start[number], start[number + 1]
        # Ids may lie densely in a few ranges.
        while high - low > 8:
            middle = (low + high) // 2
            if ascending[middle] <= ids[k]:
                low = middle
            else:
                high = middle
        while ascending[low] < ids[k]:
            low += 1
        found[k] = low


def reordered_segments(segments: Iterable[RowSegment], order: NDArray[np.int64], folder: Path) -> Iterator[RowSegment]:
    """The rows of all segments in another order, at most ``SEGMENT_NONZEROS`` nonzeros (or one row) at a time.

    Entries wait in temporary files; memory holds 32 bytes per row and one segment. The rows of a segment are named by
    their positions among the ascending ones.

    Args:
        segments: ascending rows.
        order: (num_rows,) int64 position among the ascending rows of each row to yield.
        folder: where temporary files go.
    """
    with TemporaryDirectory(dir=folder, prefix="reorder-") as scratch:
        nonzeros, files = _spill(segments, Path(scratch))
        begin = np.cumsum(nonzeros) - nonzeros
        for start, stop in row_spans(nonzeros[order]):
            chosen = order[start:stop]
            length = nonzeros[chosen]
            indices, *data = (file.gather(begin[chosen], length) for file in files)
            yield RowSegment(chosen, length, indices, data[0] if data else None)


def reordered_rows(rows: Iterable[NDArray[Any]], order: NDArray[np.int64], folder: Path) -> Iterator[NDArray[Any]]:
    """Rows of vertex data in another order, a few MiB at a time.

    Args:
        rows: (count, ...) consecutive rows.
        order: (num_rows,) int64 position among them of each row to yield.
        folder: where a temporary file goes.
    """
    with TemporaryDirectory(dir=folder, prefix="reorder-") as scratch:
        file: _Spilled | None = None
        width: tuple[int, ...] = ()
        for part in rows:
            file, width = file or _Spilled(Path(scratch, "rows"), part.dtype), part.shape[1:]
            file.append(part)
        if file is None:
            return
        length = int(np.prod(width, dtype=np.int64))
        step = max(1, _MOVED_BYTES // max(1, length * file.dtype.itemsize))
        for start in range(0, len(order), step):
            chosen = order[start : start + step]
            yield file.gather(chosen * length, np.full(len(chosen), length)).reshape(-1, *width)


class _Spilled:
    """Numbers in a temporary file: appended in order, then gathered at random."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._path = path
        self._file: IO[bytes] | None = path.open("wb")
        self._map: mmap.mmap | None = None

    def append(self, numbers: NDArray[Any]) -> None:
        if self._file is None:
            raise ValueError("numbers are gathered already")
        np.ascontiguousarray(numbers).tofile(self._file)

    def gather(self, begin: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[Any]:
        """(sum of lengths,) the ranges that begin at these positions, one after the other."""
        total = int(length.sum())
        if not total:
            return np.empty(0, self.dtype)
        if self._map is None:
            self._map = self._mapped()
        gathered: NDArray[Any] = gather_ranges(np.frombuffer(self._map, self.dtype), begin, length, total)
        # Pages that were read stay in the system's cache, but do not count as memory of this process.
        self._map.madvise(mmap.MADV_DONTNEED)
        return gathered

    def _mapped(self) -> mmap.mmap:
        if self._file is not None:
            self._file.close()
            self._file = None
        with self._path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _spill(segments: Iterable[RowSegment], scratch: Path) -> tuple[NDArray[np.int64], list[_Spilled]]:
    """Write the entries of all segments; returns the nonzeros of each row, and the files of columns and weights."""
    nonzeros = [np.empty(0, np.int64)]
    files: list[_Spilled] = []
    for segment in segments:
        columns = [segment.indices] if segment.data is None else [segment.indices, segment.data]
        if not files:
            files = [_Spilled(scratch / str(number), column.dtype) for number, column in enumerate(columns)]
        for file, column in zip(files, columns, strict=True):
            file.append(column)
        nonzeros.append(segment.nonzeros)
    return np.concatenate(nonzeros), files
