"""Reads and maps files in NumPy's format from any thread."""

from __future__ import annotations

import mmap
import os
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gnnloom.storage.faults import fault_point
from gnnloom.storage.system_errors import naming

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


def map_array(path: Path, mode: Literal["r", "r+"] = "r") -> NDArray[Any]:
    """Map an array, which takes a tenth of the time that :func:`numpy.load` takes: no link of the path is resolved.

    Args:
        path: of a file in NumPy's format.
        mode: ``r``, or ``r+`` to write elements.

    Raises:
        ValueError: the file is damaged, or has Python objects.
    """
    mapped = _map_file(path, mode)
    # Magic string, version, and the length of the rest of the header, as in all files that NumPy writes by default.
    shape, dtype, start = _described(mapped[: 10 + int.from_bytes(mapped[8:10], "little")])
    if len(mapped) < start + dtype.itemsize * int(np.prod(shape)):
        raise ValueError(f"{path}: shorter than its header says")
    return np.ndarray(shape, dtype, mapped, start)


def create_array_file(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Create a file of zeros in NumPy's format, and map it to write it.

    Raises:
        OSError: the disk is full. The space is taken here, as a full disk would end a process that writes to a map.
    """
    with naming(path):
        array: np.memmap[Any, Any] = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
        reserve(path)
    return array


def reserve(path: Path) -> None:
    """Have the disk keep the space of a file with holes."""
    with path.open("r+b", buffering=0) as file:
        fault_point("map.reserve", path)
        # The C library writes to every block where the file system cannot do it.
        if size := os.fstat(file.fileno()).st_size:
            os.posix_fallocate(file.fileno(), 0, size)


def map_plain(path: Path, dtype: str, mode: Literal["r", "r+"] = "r") -> NDArray[Any]:
    """Map all of a file without a header, which is not empty, as a vector."""
    return np.frombuffer(_map_file(path, mode), dtype)


def _map_file(path: Path, mode: Literal["r", "r+"]) -> mmap.mmap:
    with path.open("rb" if mode == "r" else "r+b", buffering=0) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ if mode == "r" else mmap.ACCESS_WRITE)


@lru_cache(maxsize=256)
def _described(header: bytes) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype and first byte of the data of a file with this header."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return _parse(header)
        except SystemError:  # See load_array.
            pass
    return _parse(header)


def _parse(header: bytes) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    file = BytesIO(header)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"expected version 1.0 of NumPy's format, found {version[0]}.{version[1]}")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if is_fortran or dtype.hasobject:
        raise ValueError(f"expected numbers in C order, found {dtype}")
    return shape, dtype, len(header)
