"""The kernels in C for attention over the nonzeros of a pattern (attention_kernel.h).

Scores and weights are computed for a few entries at a time, with vectors of all heads; the sums of a row or column stay
in registers, and the rows that its entries need are fetched ahead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.kernels.c.calls import bounds_of, num_threads_for
from gnnloom.trainer.kernels.c.library import DTYPES, AttentionStruct, Library
from gnnloom.trainer.kernels.contract import Attended, Progress, SoftmaxGradient, SoftmaxState
from gnnloom.trainer.kernels.edge_softmax import PatternSoftmax
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.threads import RowRange

#: Steps of attention.h.
_ATTEND, _COLUMNS = 0, 1


class CEdgeSoftmax(PatternSoftmax):
    """See :class:`gnnloom.trainer.kernels.contract.EdgeSoftmax`."""

    def __init__(self, library: Library, pattern: CSR, negative_slope: float, place: Place) -> None:
        super().__init__(pattern, negative_slope, place)
        self._library = library
        self._indices, self._rows = np.ascontiguousarray(self._indices), np.ascontiguousarray(self._rows)
        self._indptr = np.ascontiguousarray(self._indptr)

    def _attend(
        self,
        given: Attended,
        state: SoftmaxState,
        output: Tensor | None,
        *,
        begins: bool,
        slices: list[list[RowRange]],
        progress: Progress,
    ) -> None:
        described = self._described(given, _ATTEND, self._indptr, self._indices)
        described.maximum, described.total, described.weighted = (tensor.data_ptr() for tensor in state)
        described.output, described.begins = None if output is None else output.data_ptr(), begins
        for ranges in slices:
            self._run(described, ranges)
            if progress is not None:
                progress()

    def _column_gradients(
        self, given: Attended, gradient: SoftmaxGradient, result: Attended, ranges: list[RowRange]
    ) -> None:
        given = given._replace(target=gradient.rows)
        described = self._described(given, _COLUMNS, self._column_indptr, self._rows)
        described.gradient, described.num_rows = gradient.output.data_ptr(), len(gradient.output)
        described.of_values, described.of_source, described.of_target = (tensor.data_ptr() for tensor in result)
        self._run(described, ranges)

    def _described(self, given: Attended, step: int, offsets: NDArray[np.int64], ids: NDArray[Any]) -> AttentionStruct:
        _, heads, dim = given.values.shape
        return AttentionStruct(
            offsets=offsets.ctypes.data,
            ids=ids.ctypes.data,
            wide_ids=ids.dtype == np.int64,
            values=given.values.data_ptr(),
            source=given.source.data_ptr(),
            target=given.target.data_ptr(),
            num_entries=self.nnz,
            heads=heads,
            dim=dim,
            slope=self._slope,
            step=step,
            dtype=DTYPES[given.values.dtype],
        )

    def _run(self, described: AttentionStruct, ranges: list[RowRange]) -> None:
        threads = self._place.threads
        num_threads = num_threads_for(self.nnz * described.heads * max(1, described.dim), threads)
        if not ranges:
            return
        if num_threads == 1 or self._library.has_threads:
            self._library.attend(described, bounds_of(ranges), num_threads)
            return
        # Every call takes its range for the first one, so that of its number has to begin at its own part.
        size = 4 if described.dtype != DTYPES[torch.float64] else 8
        parts = {start: described.of_target or 0 for start, _ in ranges}
        if described.step == _COLUMNS:
            part = described.num_rows * described.heads * size
            parts = {start: address + number * part for number, (start, address) in enumerate(parts.items())}

        def kernel(start: int, stop: int) -> None:
            own = AttentionStruct.from_buffer_copy(described)
            own.of_target = parts[start] or None
            self._library.attend(own, bounds_of([(start, stop)]))

        threads.run(kernel, ranges)
