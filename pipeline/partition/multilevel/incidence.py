"""Lists of ids on disk, one for each row, streamed block by block: the pins of nets, and the nets of vertices.

Two plain files: ``offset`` (num_rows + 1,) int64 and ``id`` (num_ids,) int32 or int64.  Blocks hold at most
``BLOCK_IDS`` ids, or one row.  The writer cuts them, so they do not depend on the number of readers.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.spill import read_bytes

#: Most ids of a block, unless a single row has more: 8 MiB of int64.
BLOCK_IDS = 1 << 20


@dataclass(frozen=True)
class IncidenceBlock:
    """Some consecutive rows.

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
        bounds: (num_blocks + 1,) first rows of the blocks.
        starts: (num_blocks + 1,) first ids of the blocks.
        dtype: of the ids.
    """

    folder: Path
    bounds: tuple[int, ...]
    starts: tuple[int, ...]
    dtype: str

    @property
    def num_rows(self) -> int:
        return self.bounds[-1]

    @property
    def num_ids(self) -> int:
        return self.starts[-1]

    @property
    def num_blocks(self) -> int:
        return len(self.bounds) - 1

    @property
    def num_bytes(self) -> int:
        """Bytes of the files."""
        return 8 * (self.num_rows + 1) + np.dtype(self.dtype).itemsize * self.num_ids

    def block(self, number: int) -> IncidenceBlock:
        """Read one block."""
        first, stop = self.bounds[number : number + 2]
        offset = np.empty(stop - first + 1, dtype=np.int64)
        read_bytes(self.folder / "offset", 8 * first, offset)
        ids = np.empty(self.starts[number + 1] - self.starts[number], dtype=self.dtype)
        read_bytes(self.folder / "id", ids.itemsize * self.starts[number], ids)
        return IncidenceBlock(first, offset - offset[0], ids)

    def blocks(self) -> Iterator[IncidenceBlock]:
        """Yield the blocks in order, one in memory at a time."""
        for number in range(self.num_blocks):
            yield self.block(number)

    def ranges(self, count: int) -> list[range]:
        """Return consecutive blocks in at most ``count`` ranges with about equal numbers of ids."""
        # Long rows make edges coincide; the set below drops the empty ranges between them.
        edges = [bisect.bisect_left(self.starts, self.num_ids * number // count) for number in range(count)]
        distinct = sorted({*edges, 0, self.num_blocks})
        return [range(a, b) for a, b in pairwise(distinct)]


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
        self._bounds, self._starts = [0], [0]

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
        self._offset.write(np.ascontiguousarray(offset[1:] + self._written).data)
        self._ids.write(np.ascontiguousarray(ids[: offset[-1]], dtype=self._dtype).data)
        self._mark_blocks(offset)
        self._rows += len(offset) - 1
        self._written += int(offset[-1])

    def close(self) -> Incidence:
        """Close the files and return the finished lists."""
        self._ids.close()
        self._offset.close()
        if self._bounds[-1] < self._rows:
            self._bounds.append(self._rows)
            self._starts.append(self._written)
        return Incidence(self._folder, tuple(self._bounds), tuple(self._starts), self._dtype.name)

    def _mark_blocks(self, offset: NDArray[np.int64]) -> None:
        """End each block before the row that would bring it above ``BLOCK_IDS`` ids."""
        while True:
            # Each turn closes one block.  The open block begins at ``_starts[-1]`` and may span several calls.
            room = self._starts[-1] + BLOCK_IDS - self._written
            fitting = int(np.searchsorted(offset, room, side="right")) - 1
            if fitting >= len(offset) - 1:
                return
            # At least one row per block, however long that row is.
            row = max(fitting, self._bounds[-1] - self._rows + 1)
            self._bounds.append(self._rows + row)
            self._starts.append(self._written + int(offset[row]))
