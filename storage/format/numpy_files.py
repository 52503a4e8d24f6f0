"""Reads files in NumPy's format from any thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

#: How often a file is read before the error counts as one of the file.
_ATTEMPTS = 20


def load_array(file: Path | BinaryIO, mmap_mode: Literal["r", "r+"] | None = None) -> NDArray[Any]:
    """Read or map an array; never one of Python objects.

    NumPy parses the header as a Python expression. If two threads do that at once, Python 3.11 and 3.12 may refuse to,
    because both count the depth of what they parse in one place; a second attempt succeeds.

    Args:
        file: path, or a file at the start of the array.
        mmap_mode: as for :func:`numpy.load`; None to read the array into memory.
    """
    start = None if isinstance(file, Path) else file.tell()
    for _ in range(_ATTEMPTS - 1):
        try:
            return _load(file, mmap_mode)
        except SystemError:
            if start is not None and not isinstance(file, Path):
                file.seek(start)
    return _load(file, mmap_mode)


def _load(file: Path | BinaryIO, mmap_mode: Literal["r", "r+"] | None) -> NDArray[Any]:
    array: NDArray[Any] = np.load(file, mmap_mode=mmap_mode, allow_pickle=False)
    return array
