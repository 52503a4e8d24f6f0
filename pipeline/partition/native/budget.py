"""The memory that a partitioner needs, compared with what there is."""

from __future__ import annotations

from gnnloom.pipeline.partition.native.program import NativeProgram
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.machine_memory import available_memory, memory_text

#: What to do if a program does not fit.
OTHER_METHODS = "use method multilevel, random or block, or more memory"


def native_memory(program: NativeProgram, preset: str, size: int, num_vertices: int, parts: int) -> int:
    """Bytes that a native program peaks at; see :meth:`NativeProgram.memory`."""
    return program.memory(preset, size, num_vertices, parts)


def check_native_memory(
    program: NativeProgram,
    preset: str,
    size: int,
    num_vertices: int,
    parts: int,
    limit: int | None,
    way_out: str = OTHER_METHODS,
) -> None:
    """Raise BudgetError if a program would run out of memory; called before a hypergraph is built.

    Args:
        size: pins of the hypergraph, or entries of the graph.
        limit: bytes that the program may use; None for what the machine has.
        way_out: end of the message: what to do.
    """
    check_memory(
        f"method {program.name}: {size:,} pins into {parts:,} parts",
        native_memory(program, preset, size, num_vertices, parts),
        limit,
        way_out,
    )


def check_memory(what: str, needed: int, limit: int | None, way_out: str) -> None:
    """Raise BudgetError if ``what`` needs more bytes than are allowed.

    Args:
        what: beginning of the message, such as the method and the size of its problem.
        limit: bytes allowed; None for what the machine has.
        way_out: end of the message: what to do.
    """
    available = available_memory() if limit is None else limit
    if needed > available:
        raise BudgetError(
            f"{what}: needs about {memory_text(needed)} of memory, but only {memory_text(available)} are available;"
            f" {way_out}"
        )
