"""How a worker's memory budget is spent."""

from __future__ import annotations

import ctypes

from gnnloom.storage.errors import BudgetError

MIB = 1 << 20

#: Largest allocation, in bytes, that goes to a later one when it is freed, rather than back to the system.
KEPT_ALLOCATION = 1 << 30

#: Parameters of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8

#: What a worker process holds before it touches an edge: interpreter, libraries, kernels, the compiler.
BASE_MEMORY = 320 * MIB

#: The least that leaves room for buffers worth the name.
MINIMUM_MEMORY = 448 * MIB


def working_memory(memory: int) -> int:
    """Bytes for buffers in a worker that may use ``memory`` bytes in all.

    Raises:
        BudgetError: there would be no room for buffers.
    """
    if memory < MINIMUM_MEMORY:
        raise BudgetError(
            f"memory of {memory / MIB:,.0f} MiB per worker: at least {MINIMUM_MEMORY // MIB} MiB are needed"
            f" ({BASE_MEMORY // MIB} MiB for the process itself, the rest for buffers)"
        )
    return memory - BASE_MEMORY


def keep_freed_memory() -> None:
    """Keep what this process frees for its next buffers, which are alike: fresh pages are dear.

    One arena only, since glibc's arenas of threads hand out no block of more than 64 MiB.  Does nothing where the C
    library is not glibc.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        for parameter, value in (
            (_ARENA_MAX, 1),
            (_MMAP_THRESHOLD, KEPT_ALLOCATION),
            (_TRIM_THRESHOLD, KEPT_ALLOCATION),
        ):
            library.mallopt(parameter, value)
