"""Numbers of vertices and nets in files: every task maps what it reads, so no process holds them in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.format.files import written_aside
from gnnloom.storage.format.numpy_files import map_array


def store_vector(path: Path, values: NDArray[Any]) -> Path:
    """Write an array to a file, and return its path.

    A process that has mapped an earlier file of this path keeps that file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside, aside.open("wb") as file:
        np.save(file, values, allow_pickle=False)
    return path


def map_vector(path: Path, mode: Literal["r", "r+"] = "r") -> NDArray[Any]:
    """Map a file that :func:`store_vector` or NumPy made.

    Args:
        mode: ``r``, or ``r+`` for tasks that write elements of their own.
    """
    return map_array(path, mode)


def create_vector(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Create a file of zeros, of which tasks write ranges; it takes no memory here."""
    np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
