"""The kernels in C for attention over the nonzeros of a pattern (attention_kernel.h).

Scores and weights are computed for a few entries at a time, with vectors of all heads; the sums of a row or column stay
in registers, and the rows that its entries need are fetched ahead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.kernels.c.calls import bounds_of, num_threads_for
from gnnloom.trainer.kernels.c.library import DTYPES, AttentionStruct, Library
from gnnloom.trainer.kernels.edge_softmax import PatternSoftmax, Sweep
from gnnloom.trainer.place.contract import Attended, Progress, SoftmaxGradient, SoftmaxState
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.threads import RowRange

#: Steps of attention.h: those of :class:`Sweep`, and these.
_ATTEND, _ATTEND_DYNAMIC = 0, 2


class CEdgeSoftmax(PatternSoftmax):
    """See :class:`gnnloom.trainer.place.contract.EdgeSoftmax`."""

    def __init__(
        self, library: Library, pattern: CSR, negative_slope: float, place: Place, *, dynamic: bool = False
    ) -> None:
        super().__init__(pattern, negative_slope, place, dynamic=dynamic)
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
        step = _ATTEND_DYNAMIC if self.is_dynamic else _ATTEND
        described = self._described(given, step, self._indptr, self._indices)
        described.maximum, described.total, described.weighted = (tensor.data_ptr() for tensor in state)
        described.output, described.begins = None if output is None else output.data_ptr(), begins
        for ranges in slices:
            self._run(described, ranges)
            if progress is not None:
                progress()

    def _sweep(
        self,
        sweep: Sweep,
        given: Attended,
        gradient: SoftmaxGradient,
        result: Attended,
        ranges: list[RowRange],
        of_hubs: Tensor | None = None,
    ) -> None:
        by_row = self._indptr, self._indices
        entries = by_row if sweep is Sweep.DYNAMIC_ROWS else (self._column_indptr, self._rows)
        # Static scores of the rows are among the other numbers of the rows.
        described = self._described(given if self.is_dynamic else given._replace(target=gradient.rows), sweep, *entries)
        described.row_numbers = gradient.rows.data_ptr()
        described.gradient, described.num_rows = gradient.output.data_ptr(), len(gradient.output)
        described.of_values, described.of_source, described.of_target = (tensor.data_ptr() for tensor in result)
        if of_hubs is not None:
            described.hubs, described.num_hubs = self._hubs.ctypes.data, len(self._hubs)
            described.of_hubs, described.hub_columns = of_hubs.data_ptr(), self._hub_columns
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
        numbers = {start: number for number, (start, _) in enumerate(ranges)}

        def kernel(start: int, stop: int) -> None:
            own = AttentionStruct.from_buffer_copy(described)
            own.first_range = numbers[start]
            self._library.attend(own, bounds_of([(start, stop)]))

        threads.run(kernel, ranges)
