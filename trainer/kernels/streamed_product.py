"""The product of a matrix on disk with a dense one: threads take blocks of rows, which they decode and multiply.

Semi-external sparse products keep dense matrices in memory and stream the sparse one in the order stored (Zheng,
Mhembere, Lyzinski, Vogelstein, Priebe, Burns, "Semi-External Memory Sparse Matrix Multiplication for Billion-Node
Graphs", IEEE TPDS 28(5), 2017). Reading and decoding release the GIL, and take a few times less processor time than
the product even of narrow matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from threading import Lock, Semaphore

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.trainer.place.contract import (
    ColumnScale,
    Progress,
    RowBlock,
    RowReader,
    RowSink,
    RowsOnDisk,
    SparseProduct,
    ascending_rows,
)
from gnnloom.trainer.place.threads import num_block_buffers


class StreamedProduct:
    """See :class:`gnnloom.trainer.place.contract.SparseProduct`. Gives the same bits as the matrix in memory."""

    def __init__(
        self,
        matrix: RowsOnDisk,
        prepare: Callable[[CSR], SparseProduct],
        *,
        num_threads: int = 1,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            prepare: prepares the rows of a block for a product in one thread.
            num_threads: that multiply blocks.
            rows: strictly ascending; only these are computed. None for all.
        """
        self.num_rows, self.num_columns = matrix.num_rows, matrix.num_columns
        self._matrix, self._prepare, self._rows = matrix, prepare, rows
        self.nnz = matrix.nnz if rows is None else int((matrix.indptr[rows + 1] - matrix.indptr[rows]).sum())
        self._num_threads = num_threads
        # The blocks that contain some of the rows, ascending.
        needed: Sequence[int] = range(len(matrix.bounds) - 1)
        if rows is not None:
            needed = distinct(np.searchsorted(matrix.bounds, rows, side="right") - 1).tolist()
        self._blocks = _Blocks(matrix, needed, num_threads)

    def restricted(self, rows: NDArray[np.int64]) -> StreamedProduct:
        rows = ascending_rows(rows, self.num_rows)
        kept = rows if self._rows is None else np.intersect1d(rows, self._rows, assume_unique=True)
        return StreamedProduct(self._matrix, self._prepare, num_threads=self._num_threads, rows=kept)

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
        """See the contract.

        Args:
            progress: called in this thread between its blocks, for what has to advance during the product.
        """
        if tuple(dense.shape) != (self.num_columns, out.shape[1]) or out.shape[0] != self.num_rows:
            shapes = f"{tuple(dense.shape)} into {tuple(out.shape)}"
            raise ValueError(f"sparse product: ({self.num_rows}, {self.num_columns}) times {shapes}")
        if self._rows is not None and not isinstance(out, Tensor):
            raise ValueError("sparse product: some rows of a product are written to memory only")
        if accumulate and self.nnz == 0:
            return
        # No kernel has both weights and factors of columns. Here, once and not for every block.
        if self._matrix.is_weighted and column_scale is not None:
            dense, column_scale = (dense * column_scale.factors.unsqueeze(1)).to(dense.dtype), None

        def multiply(block: CSR, target: Tensor) -> None:
            span = slice(block.row_offset, block.row_offset + block.num_rows)
            product = self._prepare(block)
            if self._rows is not None:
                start, stop = np.searchsorted(self._rows, [span.start, span.stop])
                product = product.restricted(self._rows[start:stop] - span.start)
            scale = row_scale[span] if len(row_scale) else row_scale
            product.multiply(dense, target, scale, accumulate=accumulate, column_scale=column_scale)

        def use(block: RowBlock) -> None:
            if isinstance(out, Tensor):
                multiply(block.rows, out[block.span])
                return
            # What is written is in a buffer of this thread, small enough for its cache.
            for part in _parts(block.rows, out.range_rows):
                target = dense.new_empty((part.num_rows, out.shape[1]), dtype=out.dtype)
                if accumulate:
                    out.read(part.row_offset, target)
                multiply(part, target)
                out.write(part.row_offset, target)

        self._blocks.give(use, progress)


def _parts(rows: CSR, size: int) -> Iterator[CSR]:
    """Some rows of a matrix in ranges that begin and end at multiples of a size."""
    first, last = rows.row_offset, rows.row_offset + rows.num_rows
    while first < last:
        stop = min((first // size + 1) * size, last)
        indptr = rows.indptr[first - rows.row_offset : stop - rows.row_offset + 1]
        own = slice(int(indptr[0]), int(indptr[-1]))
        data = None if rows.data is None else rows.data[own]
        yield CSR(first, indptr - indptr[0], rows.indices[own], data, rows.num_columns)
        first = stop


class _Blocks:
    """Some blocks of a matrix, over and over in the same order, given to threads that each take the next one."""

    def __init__(self, matrix: RowsOnDisk, numbers: Sequence[int], num_threads: int) -> None:
        self._matrix, self._numbers = matrix, numbers
        self._num_buffers = num_block_buffers(num_threads)
        # The calling thread takes blocks, too.
        self._pool = ThreadPoolExecutor(self._num_buffers - 1, thread_name_prefix="gnnloom-blocks")
        self._reading, self._multiplying = Lock(), Semaphore(num_threads)
        self._remaining = iter(numbers)
        self._num_bytes = self._num_files = 0

    def give(self, use: Callable[[RowBlock], None], progress: Progress) -> None:
        """Call ``use`` once for every block, in several threads, and return when all calls have returned.

        Args:
            progress: called in this thread between its blocks.

        Raises:
            CorruptError: a chunk is missing or damaged; the message names the file.
        """
        if not self._numbers:
            return
        self._remaining, self._num_bytes, self._num_files = iter(self._numbers), 0, 0
        helpers = [self._pool.submit(self._take, use, buffer) for buffer in range(1, self._num_buffers)]
        try:
            self._take(use, 0, progress)
        finally:
            # No other may write after the return, and a failure of one ends the work of all.
            self._remaining = iter(())
            wait(helpers)
        for helper in helpers:
            helper.result()
        # Here and not in the threads, so that the bytes of an epoch are the bytes of its products.
        self._matrix.count(self._num_bytes, self._num_files)

    def _take(self, use: Callable[[RowBlock], None], buffer: int, progress: Progress = None) -> None:
        """Read one remaining block after the other into a buffer, and use it."""
        try:
            while (block := self._read(buffer)) is not None:
                with self._multiplying:
                    use(block)
                if progress is not None:
                    progress()
        except BaseException:
            self._remaining = iter(())
            raise

    def _read(self, buffer: int) -> RowBlock | None:
        """Read the next block; None if there is none."""
        # In the order stored, so that every chunk is decoded once.
        with self._reading:
            number = next(self._remaining, None)
            if number is None:
                return None
            block = self._reader.read(number, buffer)
            self._num_bytes, self._num_files = self._num_bytes + block.num_bytes, self._num_files + block.num_files
            return block

    @cached_property
    def _reader(self) -> RowReader:
        return self._matrix.sweep(self._num_buffers)
