"""Computes the memory and disk space of a streamed evaluation, and the width of its blocks of columns."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from gnnloom.storage.errors import BudgetError
from gnnloom.storage.machine_memory import available_memory, memory_text
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.passes.column_blocks import COLUMNS, PART_BYTES, even_width
from gnnloom.trainer.passes.program import Multiply, Program, StepMatrix
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.threads import num_block_buffers
from gnnloom.trainer.propagation.memory import RankSizes

#: Share of the free memory for an evaluation: pages of its files also need memory.
_SHARE: Final = 0.6
#: Bytes of all matrices of a range of rows, and their maximum share of the memory.
_RANGE_BYTES, _RANGE_SHARE = 48 << 20, 0.25


def granted_memory(given: int, available: int, ranks_here: int) -> int:
    """Bytes that a rank may take.

    Args:
        given: bytes for each rank; 0 for its share of the machine's free memory.
        available: free bytes of the machine.
    """
    return given or int(available * _SHARE) // ranks_here


def matrix_bytes(program: Program, num_rows: int, outputs: int, place: Place, num_scored: int | None = None) -> int:
    """Bytes of a program's matrices on one rank at the worst moment, with the scores.

    Args:
        outputs: number of columns of the outputs.
        num_scored: number of rows with outputs; all rows by default.
    """
    held, most = set[int](), 0
    for step, freed in zip(program.steps, program.freed, strict=True):
        held |= set(step.written)
        most = max(most, num_rows * sum(program.matrices[number].row_bytes(place) for number in held))
        held -= set(freed)
    return most + (num_rows if num_scored is None else num_scored) * outputs * place.sum_dtype.itemsize


@dataclass(frozen=True)
class Shape:
    """Shape of a program's run, the same on every rank except for the number of rows in a range.

    Attributes:
        width: most columns of a block.
        on_disk: matrices between the steps are in temporary files.
        range_rows: rows of a range.
        memory: bytes that this rank may take.
        keeps_pages: on disk, matrices fit in the memory that the rank does not take.
    """

    width: int
    on_disk: bool
    range_rows: int
    memory: int
    keeps_pages: bool = False


@dataclass(frozen=True)
class WorkingBytes:
    """Bytes that a program takes on one rank besides its matrices.

    Attributes:
        fixed: bytes that do not depend on the width of a block of columns.
        exchanged: bytes for each column of a product, in addition to the column.
        operand: bytes of a multiplied column, which is read into memory from matrices on disk.
        products: the products with the adjacency.
        range_rows: rows of a range.
    """

    fixed: int
    exchanged: int
    operand: int
    products: tuple[StepMatrix, ...]
    range_rows: int

    @classmethod
    def of(cls, program: Program, sizes: RankSizes, place: Place, memory: int, chunk: int) -> WorkingBytes:
        """Count.

        Args:
            memory: bytes that the rank may take.
            chunk: rows of a chunk of the features.
        """
        products = tuple(program.matrices[step.product] for step in program.steps if isinstance(step, Multiply))
        row_bytes = program.range_row_bytes
        range_rows = max(1, int(min(_RANGE_BYTES, _RANGE_SHARE * memory)) // row_bytes // chunk) * chunk
        # Ranges and products alternate, but the workspace keeps memory for both.
        blocks = num_block_buffers(place.threads.num_threads) * (sizes.block_bytes + PART_BYTES)
        fixed = sizes.index_bytes + blocks + min(range_rows, sizes.num_rows) * row_bytes
        operand = sizes.num_rows * place.feature_dtype.itemsize
        exchanged = sizes.exchanged_bytes(place.feature_dtype.itemsize, place.sum_dtype.itemsize)
        return cls(fixed, exchanged, operand, products, range_rows)

    @property
    def columns(self) -> int:
        """Number of columns of the widest product."""
        return max((product.dim for product in self.products), default=1)

    def whole(self, matrices: int) -> int:
        """Bytes with all matrices in memory, given the bytes of the matrices; see :func:`matrix_bytes`."""
        return self.fixed + matrices + self.exchanged * self.columns

    def in_blocks(self, columns: int) -> int:
        """Bytes with the matrices on disk, for products of ``columns`` columns."""
        return self.fixed + (self.operand + self.exchanged) * columns

    def width(self, memory: int) -> int:
        """Maximum number of columns of a block with which a program fits in memory while its matrices are on disk.

        Raises:
            BudgetError: not even one column fits.
        """
        width = min((memory - self.fixed) // max(1, self.operand + self.exchanged), self.columns)
        if width < 1:
            raise BudgetError(
                f"evaluation from disk: one column of all vertices takes {memory_text(self.in_blocks(1))} of"
                f" memory, but only {memory_text(memory)} are available; use more ranks, or allow more"
                " (--evaluation-memory)"
            )
        return width // COLUMNS * COLUMNS if width > COLUMNS else width

    def widest_block(self, width: int) -> StepMatrix:
        """Widest block of the products, as written to disk.

        Args:
            width: most columns of a block.
        """
        blocks = (replace(product, dim=even_width(product.dim, width)) for product in self.products)
        return max(blocks, key=lambda block: block.dim, default=StepMatrix(0))


def settle(
    comm: Communicator, program: Program, sizes: RankSizes, matrices: int, place: Place, given: int, chunk: int
) -> Shape:
    """Fit a program into memory. Collective.

    Args:
        matrices: see :func:`matrix_bytes`.
        given: see :func:`granted_memory`.
        chunk: rows of a chunk of the features.

    Raises:
        CollectiveError: not even one column fits.
    """
    available, ranks_here = available_memory(), comm.this_machine().ranks
    memory = granted_memory(given, available, ranks_here)
    needs = WorkingBytes.of(program, sizes, place, memory, chunk)
    fits = needs.whole(matrices) <= memory

    columns = together(comm, lambda: needs.columns if fits else needs.width(memory))
    agreed = comm.gather_numbers([columns, not fits])
    width, on_disk = int(agreed[:, 0].min()), bool(agreed[:, 1].any())
    return Shape(width, on_disk, needs.range_rows, memory, ranks_here * (matrices + memory) < available)


def whole_bytes(sizes: RankSizes, dims: Sequence[int], place: Place) -> int:
    """Approximate bytes for an evaluation on a rank with everything in memory, for any layers.

    Args:
        dims: widths from the input features to the outputs.
    """
    item = place.feature_dtype.itemsize
    # A layer has its input and its output, and the first one leaves the features to the end of the evaluation.
    rows = max(before + after for before, after in pairwise(dims)) if len(dims) > 2 else sum(dims)
    halo = (sizes.num_halo + sizes.num_sent) * max(dims)
    return sizes.adjacency_bytes + sizes.index_bytes + item * (sizes.num_rows * (dims[0] + rows) + halo)


def fits_whole(comm: Communicator, needed: Callable[[int], int], given: int) -> bool:
    """Whether all ranks can evaluate with everything in memory. Collective.

    Args:
        needed: maps the bytes that this rank may use to the bytes that it needs.
        given: see :func:`granted_memory`.
    """
    memory = granted_memory(given, available_memory(), comm.this_machine().ranks)
    return not comm.gather_numbers([together(comm, lambda: needed(memory)) > memory]).any()


def check_room(folder: Path, needed: int) -> None:
    """Check that a disk has room for temporary files.

    Raises:
        BudgetError: there is not enough room.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise BudgetError(
            f"{folder}: evaluation from disk writes {needed:,} bytes of temporary files, {free:,} are free; free disk"
            " space, or give it more memory (--evaluation-memory)"
        )
