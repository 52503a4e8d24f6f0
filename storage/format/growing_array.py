"""Writes an array whose length is not known in advance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.storage.format.array_metadata import DEFAULT_CODEC, remove_unfinished
from gnnloom.storage.format.arrays import Array, ArrayRecord, Piece, default_chunk_rows, new_metadata, write_array
from gnnloom.storage.format.chunks import ChunkWriter


class GrowingArray:
    """A one-dimensional array written from ranges of any size; holds at most one chunk in memory.

    The bytes on disk equal the bytes that :func:`gnnloom.storage.format.arrays.write_array` writes for the whole array.
    """

    def __init__(
        self,
        root: Path,
        path: str,
        dtype: np.dtype[Any] | type[Any] | str,
        dims: Sequence[str],
        codec: str = DEFAULT_CODEC,
    ) -> None:
        self._root, self._path, self._dims, self._codec = root, path, tuple(dims), codec
        self._dtype = np.dtype(dtype).newbyteorder("<")
        # The chunk rows of an array longer than any chunk; close() writes shorter ones whole.
        self._chunk = default_chunk_rows((np.iinfo(np.int64).max,), self._dtype)
        self._metadata = new_metadata((0,), self._dtype, dims, self._chunk, codec)
        self._hash = xxhash.xxh3_128()
        self._pending: Array = np.empty(0, dtype=self._dtype)
        self._filled = 0
        self._chunks: ChunkWriter | None = None
        self._checksums: list[str] = []
        self._written = 0

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows at the end; whole chunks are written at once, without a copy.

        Args:
            rows: (count,), of any length.
        """
        rows = np.ascontiguousarray(rows, dtype=self._dtype)
        if self._filled:
            rows = self._fill(rows)
        # ``_fill`` leaves either no rows or an empty pending chunk, so the rest starts at a chunk boundary.
        whole = len(rows) - len(rows) % self._chunk
        if whole:
            self._store(rows[:whole])
        if whole < len(rows):
            self._fill(rows[whole:])

    def close(self) -> ArrayRecord:
        """Write the last chunk and return the record of the whole array."""
        pending = self._pending[: self._filled]
        # Shorter than one chunk: a chunk of the array's own size, as ``write_array`` chooses it, so that the bytes are
        # equal.
        if self._chunks is None:
            return write_array(self._root, self._path, pending, self._dims, codec=self._codec)
        if len(pending):
            self._store(pending)
        # Not before: another attempt of the same task may have finished the array, with its whole length.
        where = self._root / self._path
        remove_unfinished(where)
        replace(self._metadata, shape=(self._written,)).rewrite(where)
        pieces = (Piece(0, self._written, self._hash.hexdigest(), "".join(self._checksums)),)
        return ArrayRecord(self._path, (self._written,), self._dtype.name, self._dims, pieces)

    def _fill(self, rows: Array) -> Array:
        """Fill the pending chunk, store it if it is full, and return the remaining rows."""
        if not len(self._pending):
            self._pending = np.empty(self._chunk, dtype=self._dtype)
        count = min(self._chunk - self._filled, len(rows))
        self._pending[self._filled : self._filled + count] = rows[:count]
        self._filled += count
        if self._filled == self._chunk:
            self._store(self._pending)
            self._filled = 0
        return rows[count:]

    def _store(self, rows: Array) -> None:
        stop = self._written + len(rows)
        if self._chunks is None:
            where = self._root / self._path
            where.mkdir(parents=True, exist_ok=True)
            self._chunks = ChunkWriter(where, self._metadata)
        self._checksums.append(self._chunks.write(self._written, rows))
        self._hash.update(rows.view(np.uint8).data)
        self._written = stop
