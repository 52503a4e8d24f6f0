"""Specifies the result of each kernel, for any implementation.

Tensors are on the device of the kernel, and contiguous where a docstring does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR

#: Number of features per word of bits of :class:`RowPass`.
LANES: Final = 32

#: What a kernel calls now and then between rows, so that messages in flight advance; None for nothing.
Progress = Callable[[], None] | None


@dataclass(frozen=True)
class SparseRows:
    """Some rows of a matrix of (num_rows, num_columns).

    Attributes:
        begin: (num_listed,) int64 position of each row's first entry.
        end: (num_listed,) int64 position after its last entry.
        target: (num_listed,) int64 the rows, ascending; None if all rows are listed.
        indices: (nnz,) int32 or int64 columns of the entries.
        data: (nnz,) their weights, or None for ones.
        is_subset: rows that are not listed are not asked for; otherwise they have no entries.
    """

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    target: NDArray[np.int64] | None
    indices: NDArray[Any]
    data: NDArray[Any] | None
    num_rows: int
    num_columns: int
    is_subset: bool = False

    @property
    def num_listed(self) -> int:
        return len(self.begin)

    # Kept, as every product asks for it.
    @cached_property
    def nnz(self) -> int:
        return int((self.end - self.begin).sum())

    def offsets(self) -> NDArray[np.int64]:
        """(num_listed + 1,) int64 entries of the rows before each listed row."""
        # In place: a matrix that arrives in every epoch is described in every epoch.
        offsets = np.zeros(self.num_listed + 1, np.int64)
        np.subtract(self.end, self.begin, out=offsets[1:])
        return np.cumsum(offsets, out=offsets)

    def restricted(self, rows: NDArray[np.int64]) -> SparseRows:
        """Only some of the rows; shares the entries.

        Args:
            rows: (num_listed,) strictly ascending rows of the matrix.

        Raises:
            ValueError: the rows are not strictly ascending, or outside the matrix.
        """
        rows = ascending_rows(rows, self.num_rows)
        begin, end, position = self.begin, self.end, rows
        if self.target is not None:
            # One row beyond the last, without entries, stands for unlisted rows.
            begin, end = np.append(begin, 0), np.append(end, 0)
            position = np.searchsorted(self.target, rows)
            position[np.append(self.target, -1)[position] != rows] = len(self.target)
        return replace(self, begin=begin[position], end=end[position], target=rows, is_subset=True)


def ascending_rows(rows: NDArray[np.int64], num_rows: int) -> NDArray[np.int64]:
    """(num_listed,) int64, contiguous: the rows that a product is restricted to.

    Raises:
        ValueError: the rows are not strictly ascending, or outside the matrix.
    """
    rows = np.ascontiguousarray(rows, np.int64)
    # A row given twice would have two threads that write it.
    if len(rows) and (rows[0] < 0 or rows[-1] >= num_rows or np.any(np.diff(rows) <= 0)):
        raise ValueError(f"rows of a product must be strictly ascending, in 0..{num_rows - 1}")
    return rows


class RowsOnDisk(Protocol):
    """A matrix whose entries are read block by block; see :class:`gnnloom.storage.artifacts.stored_csr.StoredCSR`."""

    indptr: NDArray[np.int64]
    num_columns: int

    @property
    def num_rows(self) -> int: ...

    @property
    def nnz(self) -> int: ...

    @property
    def is_weighted(self) -> bool: ...

    @property
    def bounds(self) -> NDArray[np.int64]:
        """(num_blocks + 1,) int64 first row of each block, and the number of rows."""
        ...

    def sweep(self, num_buffers: int) -> RowReader:
        """A reader of the blocks with ``num_buffers`` buffers of its own."""
        ...

    def count(self, num_bytes: int, num_files: int) -> None:
        """Count the bytes and files read for a block."""
        ...


class RowReader(Protocol):
    """Reads blocks of rows, one after the other, in one thread at a time."""

    def read(self, number: int, buffer: int) -> RowBlock:
        """Read the block of a number into a buffer; the block that was there is no longer valid."""
        ...


class RowBlock(Protocol):
    """Some rows of a matrix on disk."""

    @property
    def rows(self) -> CSR: ...

    @property
    def span(self) -> slice:
        """The block's rows in the whole matrix."""
        ...

    @property
    def num_bytes(self) -> int: ...

    @property
    def num_files(self) -> int: ...


#: Columns of a run; as GNNLOOM_RUN_BITS of product.h.
RUN_COLUMNS: Final = 64


class ColumnScale(NamedTuple):
    """Factors of the columns of a sparse matrix, of the dtype of sums.

    Attributes:
        factors: (num_columns,).
        runs: (num_columns / :data:`RUN_COLUMNS` rounded up,) the factor that all columns of a run have, or NaN. None if
            few have one. Most do if columns are in the order of their degrees. These stay in the caches, where the
            factors of millions of columns do not: each nonzero would wait for one more line of memory.
    """

    factors: Tensor
    runs: Tensor | None = None


class RowSink(Protocol):
    """Rows of a product that are not in memory: a thread writes, or reads and writes again, the rows of a range.

    Attributes:
        shape: of the whole product.
        range_rows: ranges begin and end at multiples of this, and where blocks of the matrix do.
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    range_rows: int

    def read(self, start: int, out: Tensor) -> None:
        """Fill a tensor with the rows from ``start`` that were written."""
        ...

    def write(self, start: int, rows: Tensor) -> None:
        """Write rows from ``start``."""
        ...


class SparseProduct(Protocol):
    """A sparse matrix A prepared for many products with dense matrices of one dtype.

    Whatever implements it, on any processor and with any number of threads, the result has the same bits.
    """

    @property
    def num_rows(self) -> int: ...

    @property
    def num_columns(self) -> int: ...

    @property
    def nnz(self) -> int: ...

    def multiply(
        self,
        dense: Tensor,
        out: Tensor | RowSink,
        row_scale: Tensor,
        *,
        accumulate: bool = False,
        column_scale: ColumnScale | None = None,
        progress: Progress = None,
    ) -> None:
        """Write diag(row_scale) A diag(column_scale) dense into ``out``, or add it to ``out``.

        Args:
            dense: (num_columns, dim) of the product's dtype. Rows are contiguous, and may be apart.
            out: (num_rows, dim) likewise; or float32 if the product's dtype is bfloat16, so that the sums of several
                products are not rounded in between. Shares no memory with ``dense``. A sink only for matrices on disk.
            row_scale: (num_rows,) of the same dtype (float32 if it is bfloat16), or (0,) for ones.
            accumulate: add to ``out`` instead of overwriting it.
            column_scale: likewise of the columns. The result has the bits of a product with scaled rows, which need
                not be stored.
            progress: called now and then between rows, so that messages in flight advance during a long product. The
                slices depend on the matrix alone, and no bit of the result on them.

        Raises:
            ValueError: the shapes or dtypes do not match the matrix.
        """
        ...

    def restricted(self, rows: NDArray[np.int64]) -> SparseProduct:
        """The same product for some of its rows; shares the matrix. Other rows of an output do not change.

        Args:
            rows: (num_listed,) strictly ascending.

        Raises:
            ValueError: the rows are not strictly ascending, or outside the matrix.
        """
        ...


class AttentionInputs(NamedTuple):
    """Inputs of attention, or their gradients.

    Attributes:
        values: (num_columns, heads, dim) values z of the columns.
        source: (num_columns, heads) scores s of the columns, of the dtype of sums. Of dynamic attention (heads, dim)
            vectors a, likewise.
        target: (num_rows, heads) scores t of the rows, likewise. Of dynamic attention (num_rows, heads, dim) values t
            of the rows, of the dtype of the values.
    """

    values: Tensor
    source: Tensor
    target: Tensor


class SoftmaxState(NamedTuple):
    """Running sums of an edge softmax over the columns seen so far, of the dtype of sums.

    Attributes:
        maximum: (num_rows, heads) largest score e; minus infinity for a row without columns.
        total: (num_rows, heads) sum of exp(e - maximum).
        weighted: (num_rows, heads, dim) sum of exp(e - maximum) z; empty if all columns are seen at once.
    """

    maximum: Tensor
    total: Tensor
    weighted: Tensor


class SoftmaxGradient(NamedTuple):
    """Values of the target rows that the adjoint of an edge softmax needs.

    Attributes:
        rows: (num_rows, 4, heads) of the dtype of sums: the target score, the maximum over all columns, the inverse of
            the total, and the sum over the features of the output times its gradient. What an entry needs of its row is
            in one place. Of dynamic attention (num_rows, 3, heads), without the target score.
        output: (num_rows, heads, dim) gradient of the output, of the dtype of the values.
    """

    rows: Tensor
    output: Tensor


class EdgeSoftmax(Protocol):
    """A sparsity pattern prepared for attention of its rows over its columns.

    For target row i, source column j and head h, with scores s_j and t_i (Velickovic et al., "Graph Attention
    Networks", ICLR 2018, equation 3):

        e_ij = LeakyReLU(s_j + t_i)
        weight_ij = exp(e_ij) / sum over k of exp(e_ik)
        out_i = sum over j of weight_ij z_j

    Dynamic attention has other scores, for which t_i is a vector (Brody, Alon, Yahav, "How Attentive are Graph
    Attention Networks?", ICLR 2022, equation 7):

        e_ij = a . LeakyReLU(z_j + t_i)

    Values and outputs have one dtype, scores the dtype of its sums. ``progress`` is called now and then, as in
    :class:`SparseProduct`. The number of threads changes no bit of a result, and neither does the processor for the
    kernels in C.
    """

    @property
    def nnz(self) -> int: ...

    @property
    def is_dynamic(self) -> bool:
        """Whether the scores are computed by dynamic attention."""
        ...

    def accumulate(
        self,
        given: AttentionInputs,
        state: SoftmaxState,
        output: Tensor | None = None,
        *,
        begins: bool = True,
        progress: Progress = None,
    ) -> None:
        """Add this pattern's columns to the running sums of the rows.

        Args:
            state: updated in place. With both ``begins`` and an output, its weighted sums are not used.
            output: (num_rows, heads, dim) gets the weighted sums divided by the totals, and 0 in rows without columns,
                if these columns are the last ones; may be the memory of the weighted sums.
            begins: these columns are the first ones: the state is overwritten.
        """
        ...

    def gradients(
        self, given: AttentionInputs, gradient: SoftmaxGradient, result: AttentionInputs, progress: Progress = None
    ) -> None:
        """Write the gradients of what the columns have, and this pattern's part of the gradients of the rest.

        Args:
            result: is overwritten.
        """
        ...


#: See :func:`num_column_ranges`; each thread that computes one needs memory for its part.
_MOST_COLUMN_RANGES: Final = 16


def num_column_ranges(nnz: int, num_rows: int) -> int:
    """Number of ranges of the columns whose parts of the target scores' gradients are formed apart, and added in order.

    It depends on the pattern alone, so that the number of threads changes no bit. Each part has a number for every row
    and head, so there are no more ranges than entries in a row.
    """
    return 1 << (max(1, min(nnz // max(1, num_rows), _MOST_COLUMN_RANGES)).bit_length() - 1)


#: A row with more entries is a hub: the gradient of its target score is a sum over many columns; a sequential float32
#: sum would lose digits, so partial sums are added in float64 after every few columns.
HUB_ENTRIES: Final = 1024
#: See :func:`num_hub_columns`.
_LEAST_HUB_COLUMNS: Final = 512
_ENTRIES_PER_HUB: Final = 16


def num_hub_columns(nnz: int, num_columns: int, num_hubs: int) -> int:
    """Number of columns after which the sums of hubs are added in float64.

    There are at least 16 entries for every hub that is visited, so that these visits take a few percent of the time.
    """
    return max(_LEAST_HUB_COLUMNS, _ENTRIES_PER_HUB * num_hubs * num_columns // max(1, nnz))


#: See :func:`num_vector_ranges`.
_MOST_VECTOR_RANGES: Final = 64
_VECTOR_RANGE_ENTRIES: Final = 4096


def num_vector_ranges(nnz: int) -> int:
    """Number of ranges whose parts of the vectors' gradients in dynamic attention are formed apart, and added in order.

    It depends on the pattern alone, so that the number of threads changes no bit.
    """
    return max(1, min(nnz // _VECTOR_RANGE_ENTRIES, _MOST_VECTOR_RANGES))


class HeadsStep(IntEnum):
    """Computation of a pass over heads; the numbers are the same as in attention.h."""

    #: sums = first . second, and other_sums = first . other.
    DOTS = 0
    #: gradient += sums * second + other_sums * other, and partial sums of sums * first and other_sums * first.
    SPREAD = 1


#: Rows of a chunk of :class:`HeadsPass`: the partial sums over them are small compared to the rows.
HEADS_CHUNK: Final = 1024


class HeadsPass(NamedTuple):
    """A pass over the heads of contiguous rows, without gradients.

    Attributes:
        first: (num_rows, heads, dim) float32, float64 or bfloat16.
        second: (heads, dim) of the dtype of sums; or, for DOTS, likewise.
        sums: (num_rows, heads) of the dtype of sums.
        other: (heads, dim) of the dtype of sums, or None.
        other_sums: (num_others, heads) of the leading rows, or None.
        gradient: (num_rows, heads, dim) like ``first``; for SPREAD.
        partial: (number of chunks, 2, heads, dim) of the dtype of sums; for SPREAD.
    """

    step: HeadsStep
    first: Tensor
    second: Tensor
    sums: Tensor
    other: Tensor | None = None
    other_sums: Tensor | None = None
    gradient: Tensor | None = None
    partial: Tensor | None = None


class RowStep(IntEnum):
    """Computation of a pass; the numbers are the same as in rectify.h."""

    #: relu(source + bias), then dropped if there is a mask; and the bits of what is not zero.
    RECTIFY = 0
    #: The source times the scale where the bit is set, else 0.
    SELECT = 1
    #: The source times the scale where the mask keeps it, else 0.
    DROP = 2


class Mask(NamedTuple):
    """The features of a rectangle that are dropped in one epoch and layer: their hash is below a threshold.

    Attributes:
        vertex: (num_rows,) int64 global ids of the rows.
        first_column: column of the whole matrix at which the rectangle begins.
        key: of the epoch and layer.
        threshold: of the 32-bit hashes.
        scale: of the features that are kept.
    """

    vertex: NDArray[np.int64]
    first_column: int
    key: np.uint64
    threshold: np.uint32
    scale: float


class RowPass(NamedTuple):
    """A pass over contiguous rows, without gradients.

    Attributes:
        source, result: (num_rows, dim) float32, float64 or bfloat16; may be the same.
        bias: (dim,) of the same dtype, or float32 for bfloat16; for RECTIFY.
        passed: (num_rows, dim / 32 rounded up) int32, whose bits RECTIFY writes and SELECT reads.
        mask: features to drop; None for no dropout.
        scale: of the features that are kept.
    """

    step: RowStep
    source: Tensor
    result: Tensor
    bias: Tensor | None = None
    passed: Tensor | None = None
    mask: Mask | None = None
    scale: float = 1.0
