"""Divides a worker's memory budget."""

from __future__ import annotations

import ctypes

from gnnloom.storage.errors import BudgetError
from gnnloom.storage.machine_memory import memory_text

MIB = 1 << 20

#: Largest allocation, in bytes, that is kept for later ones when it is freed, rather than returned to the system.
KEPT_ALLOCATION = 1 << 30

#: Parameters of glibc's mallopt (malloc.h).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8

#: Bytes that a worker process holds before it reads an edge: interpreter, libraries, kernels, the compiler.
BASE_MEMORY = 320 * MIB

#: Minimum memory of a worker: 128 MiB more than ``BASE_MEMORY``, enough room for useful buffers.
MINIMUM_MEMORY = 448 * MIB

#: Bytes that a task holds to write up to four arrays: a chunk of 4 MiB of each, and its compressed copy.
WRITING_BYTES = 32 * MIB

#: Share of its buffers that a task fills with rows of a source before it writes them. The rest is for a second order of
#: the same rows, the chunk that is being read, the text that it is parsed from, and pages of a mapped file.
_GATHERED_SHARE = 1 / 4


def working_memory(memory: int) -> int:
    """Bytes for the buffers of a worker that may use ``memory`` bytes in total.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    if memory < MINIMUM_MEMORY:
        raise BudgetError(
            f"memory of {memory_text(memory)} per worker: at least {MINIMUM_MEMORY // MIB} MiB are needed"
            f" ({BASE_MEMORY // MIB} MiB for the process itself, the rest for buffers); increase --memory"
        )
    return memory - BASE_MEMORY


def rows_that_fit(memory: int, row_bytes: int, held: int = 0) -> int:
    """Number of rows that a task may hold, at least one, on a worker that may use ``memory`` bytes in total.

    Args:
        row_bytes: bytes that the task holds for a row at its peak, all copies and temporary arrays counted.
        held: bytes that it holds in addition, for any number of rows.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    return max(1, (working_memory(memory) - held) // row_bytes)


def gathered_memory(memory: int) -> int:
    """Bytes that a task gathers of a source before it writes them, on a worker that may use ``memory`` bytes in total.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    return int(working_memory(memory) * _GATHERED_SHARE)


def keep_freed_memory() -> None:
    """Make this process keep freed memory for its next buffers, because touching fresh pages is slow.

    Leaves a single arena, because glibc's per-thread arenas cannot serve blocks of more than 64 MiB. Does nothing if
    the C library is not glibc.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        # Setting a threshold also turns off glibc's dynamic adjustment of it (mallopt(3)).
        for parameter, value in (
            (_ARENA_MAX, 1),
            (_MMAP_THRESHOLD, KEPT_ALLOCATION),
            (_TRIM_THRESHOLD, KEPT_ALLOCATION),
        ):
            library.mallopt(parameter, value)
