"""How a worker's memory budget is spent."""

from __future__ import annotations

from gnnloom.storage.errors import BudgetError

MIB = 1 << 20

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
