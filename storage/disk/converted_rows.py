"""Copies rows of an array into rows of another dtype, without a copy of all rows in between."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Bytes that are converted at once: they stay in a core's cache.
_PIECE_BYTES: Final = 1 << 17


def fill_rows(
    array: NDArray[Any], rows: NDArray[np.int64], out: NDArray[Any], place: NDArray[np.int64] | None = None
) -> None:
    """Copy rows of an array: ``out[place] = array[rows]``.

    Args:
        array: (num_rows, ...), mapped or in memory.
        rows: (num_taken,) int64 existing rows.
        out: (num_filled, ...) C-contiguous, of any dtype that the values are converted to.
        place: (num_taken,) int64 where each row goes in ``out``; None for all of ``out``, in order.
    """
    if array.dtype == np.float16 and out.dtype == np.float32 and array.ndim == 2:
        # Numba takes seconds to load, and only float16 needs it.
        from gnnloom.storage.disk.widened_rows import widen  # noqa: PLC0415

        widen(array.view(np.uint16), rows, out.view(np.uint32), out, np.arange(len(rows)) if place is None else place)
    elif out.dtype == array.dtype and place is None:
        # Other modes fill a copy of the output first.
        np.take(array, rows, axis=0, out=out, mode="clip")
    else:
        step = max(1, _PIECE_BYTES // max(1, array[:1].nbytes))
        for start in range(0, len(rows), step):
            some = slice(start, start + step) if place is None else place[start : start + step]
            # Taking releases Python's lock while pages are read; indexing does not.
            out[some] = np.take(array, rows[start : start + step], axis=0, mode="clip")


def converted(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array itself if it has the dtype, or a converted copy."""
    if array.dtype == dtype:
        return array
    out = np.empty(array.shape, dtype)
    fill_rows(array, np.arange(len(array)), out)
    return out
