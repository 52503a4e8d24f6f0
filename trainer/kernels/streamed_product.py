"""The product of a matrix on disk with a dense one: blocks of rows are multiplied while a thread decodes the next ones.

Semi-external sparse products keep dense matrices in memory and stream the sparse one in the order stored (Zheng,
Mhembere, Lyzinski, Vogelstein, Priebe, Burns, "Semi-External Memory Sparse Matrix Multiplication for Billion-Node
Graphs", IEEE TPDS 28(5), 2017). Reading and decoding release the GIL, and take a few times less processor time than
the product even of narrow matrices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.kernels.contract import Progress, RowBlock, RowsOnDisk, SparseProduct
from gnnloom.trainer.place.arrays import sum_dtype


class StreamedProduct:
    """See :class:`gnnloom.trainer.kernels.contract.SparseProduct`. Gives the same bits as the matrix in memory."""

    def __init__(
        self,
        matrix: RowsOnDisk,
        dtype: torch.dtype,
        prepare: Callable[[CSR, torch.dtype], SparseProduct],
        *,
        fuses: bool,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            dtype: of the dense matrices.
            prepare: prepares the rows of a block for a product with matrices of a dtype.
            fuses: the kernel converts and scales dense rows while it reads them. Otherwise they are converted and
                scaled here, once and not for every block.
            rows: strictly ascending; only these are computed. None for all.
        """
        self.num_rows, self.num_columns = matrix.num_rows, matrix.num_columns
        self._matrix, self._dtype, self._prepare, self._fuses, self._rows = matrix, dtype, prepare, fuses, rows
        self.nnz = matrix.nnz if rows is None else int((matrix.indptr[rows + 1] - matrix.indptr[rows]).sum())
        self._stream = _Stream(matrix, _needed_blocks(matrix, rows))

    def restricted(self, rows: NDArray[np.int64]) -> StreamedProduct:
        rows = np.ascontiguousarray(rows, np.int64)
        if len(rows) and (rows[0] < 0 or rows[-1] >= self.num_rows or np.any(np.diff(rows) <= 0)):
            raise ValueError(f"rows of a product must be strictly ascending, in 0..{self.num_rows - 1}")
        kept = rows if self._rows is None else np.intersect1d(rows, self._rows, assume_unique=True)
        return StreamedProduct(self._matrix, self._dtype, self._prepare, fuses=self._fuses, rows=kept)

    def multiply(
        self,
        dense: Tensor,
        out: Tensor,
        row_scale: Tensor,
        *,
        accumulate: bool = False,
        column_scale: Tensor | None = None,
        progress: Progress = None,
    ) -> None:
        """See the contract.

        Args:
            progress: called between blocks, for what has to advance while the product is computed.
        """
        if dense.shape != (self.num_columns, out.shape[1]) or len(out) != self.num_rows:
            shapes = f"{tuple(dense.shape)} into {tuple(out.shape)}"
            raise ValueError(f"sparse product: ({self.num_rows}, {self.num_columns}) times {shapes}")
        if accumulate and self.nnz == 0:
            return
        source, factors = self._scaled(dense, column_scale)
        for block in self._stream.sweep():
            target, rows = out[block.span], self._rows_in(block)
            # Without `fuses`, sums of a type of their own are added up in a copy and rounded once.
            total = target if self._fuses else target.to(source.dtype)
            product = self._prepare(block.rows, source.dtype)
            product = product if rows is None else product.restricted(rows)
            scale = row_scale[block.span] if len(row_scale) else row_scale
            product.multiply(source, total, scale, accumulate=accumulate, column_scale=factors)
            if total is not target:
                target.copy_(total)
            if progress is not None:
                progress()

    def _scaled(self, dense: Tensor, column_scale: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The dense matrix and the factors of its rows that are left for the kernel."""
        has_factors = column_scale is not None and len(column_scale) > 0
        if has_factors and self._matrix.is_weighted and column_scale is not None:
            dense, column_scale = (dense * column_scale.unsqueeze(1)).to(dense.dtype), None
        if self._fuses:
            return dense, column_scale
        dense = dense.to(sum_dtype(self._dtype)).contiguous()
        if column_scale is not None and len(column_scale):
            dense = dense * column_scale.unsqueeze(1)
        return dense, None

    def _rows_in(self, block: RowBlock) -> NDArray[np.int64] | None:
        """The rows of a block that are computed, counted from its first; None for all."""
        if self._rows is None:
            return None
        start, stop = np.searchsorted(self._rows, [block.span.start, block.span.stop])
        rows: NDArray[np.int64] = self._rows[start:stop] - block.span.start
        return rows


def _needed_blocks(matrix: RowsOnDisk, rows: NDArray[np.int64] | None) -> list[int]:
    """Numbers of the blocks that contain some of the rows, ascending."""
    if rows is None:
        return list(range(len(matrix.bounds) - 1))
    found: list[int] = np.unique(np.searchsorted(matrix.bounds, rows, side="right") - 1).tolist()
    return found


class _Stream:
    """Some blocks of a matrix, over and over in the same order, decoded ahead by a thread.

    The first blocks of the next sweep are decoded while whatever comes between two products is computed.
    """

    def __init__(self, matrix: RowsOnDisk, numbers: list[int]) -> None:
        self._matrix, self._numbers = matrix, numbers
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gnnloom-decode")
        self._ahead: deque[Future[RowBlock]] = deque()
        self._next = 0

    def sweep(self) -> Iterator[RowBlock]:
        """All of the blocks, in order; each is valid until the next one is asked for.

        Raises:
            CorruptError: a chunk is missing or damaged; the message names the file.
        """
        if not self._ahead and self._numbers:
            self._reader = self._matrix.sweep()
            for _ in range(self._matrix.num_buffers):
                self._begin()
        try:
            for _ in self._numbers:
                block = self._ahead.popleft().result()
                # Here and not in the thread, so that the bytes of an epoch are those of its products.
                self._matrix.count(block.num_bytes, block.num_files)
                yield block
                # The buffer of this block is free now.
                self._begin()
        except BaseException:
            # What was decoded ahead belongs to a sweep that did not end; the next one starts over.
            wait(self._ahead)
            self._ahead.clear()
            self._next = 0
            raise

    def _begin(self) -> None:
        """Begin to read one more block."""
        number = self._numbers[self._next % len(self._numbers)]
        self._next += 1
        self._ahead.append(self._thread.submit(self._reader.read, number))
