"""How a worker's memory budget is spent."""

from __future__ import annotations

import ctypes

from gnnloom.storage.errors import BudgetError

MIB = 1 << 20

#: Largest allocation, in bytes, that is kept for later ones when it is freed, rather than returned to the system.
KEPT_ALLOCATION = 1 << 30

#: Parameters of glibc's mallopt (malloc.h).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8

#: Bytes that a worker process holds before it reads an edge: interpreter, libraries, kernels, the compiler.
BASE_MEMORY = 320 * MIB

#: Minimum memory of a worker: 128 MiB more than ``BASE_MEMORY``, enough room for useful buffers.
MINIMUM_MEMORY = 448 * MIB


def working_memory(memory: int) -> int:
    """Bytes for the buffers of a worker that may use ``memory`` bytes in total.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    if memory < MINIMUM_MEMORY:
        raise BudgetError(
            f"memory of {memory / MIB:,.0f} MiB per worker: at least {MINIMUM_MEMORY // MIB} MiB are needed"
            f" ({BASE_MEMORY // MIB} MiB for the process itself, the rest for buffers); increase --memory"
        )
    return memory - BASE_MEMORY


def rows_that_fit(memory: int, row_bytes: int) -> int:
    """How many rows a task may hold, at least one, on a worker that may use ``memory`` bytes in total.

    Args:
        row_bytes: bytes that the task holds for a row at its peak, all copies and temporary arrays counted.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    return max(1, working_memory(memory) // row_bytes)


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
