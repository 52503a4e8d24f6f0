"""The table of kernels that compute nothing, but take the same memory as real kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.trainer.kernels.unperformed import Unwritten
from gnnloom.trainer.place.contract import (
    HUB_ENTRIES,
    AttentionInputs,
    HeadsPass,
    RowPass,
    RowReader,
    RowsOnDisk,
    SparseProduct,
    SparseRows,
    num_column_ranges,
    num_vector_ranges,
)
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.threads import num_block_buffers
from gnnloom.trainer.place.unbacked import UnbackedPlace


@dataclass(frozen=True)
class UnreadRows(CSR):
    """Rows without readable entries.

    Attributes:
        memory: memory of their arrays.
        num_listed: rows with entries in each of several ranges of columns, in sum over the ranges.
    """

    memory: Unwritten
    num_listed: int


class UnperformedProduct:
    """See :class:`gnnloom.trainer.place.contract.SparseProduct`; leaves every output as it is."""

    def __init__(self, matrix: CSR | SparseRows | RowsOnDisk, *kept: object, num_threads: int = 1) -> None:
        """Keep the memory of the matrix, as a product does, and of what else is given."""
        self._num_threads = num_threads
        self.num_rows, self.num_columns, self.nnz = matrix.num_rows, matrix.num_columns, matrix.nnz
        self._matrix, self._kept = matrix, kept
        self._reader: RowReader | None = None

    def multiply(self, *_: object, **__: object) -> None:
        """Compute nothing; of a matrix on disk, keep the buffers of its first sweep."""
        if self._reader is None and not isinstance(self._matrix, CSR | SparseRows):
            self._reader = self._matrix.sweep(num_block_buffers(self._num_threads))

    def restricted(self, rows: NDArray[np.int64]) -> UnperformedProduct:  # noqa: ARG002
        return self


def _empty(matrix: CSR) -> Callable[[tuple[int], np.dtype[Any]], NDArray[Any]]:
    """Function that allocates arrays without values next to the arrays of a matrix."""
    return matrix.memory.array if isinstance(matrix, UnreadRows) else np.empty


def unperformed_by_columns(matrix: CSR, num_parts: int) -> Sequence[UnperformedProduct]:
    """Take the memory of lists of rows; see :func:`gnnloom.trainer.kernels.dispatch.products_by_columns`."""
    listed = matrix.num_listed if isinstance(matrix, UnreadRows) else min(matrix.nnz, num_parts * matrix.num_rows)
    empty = _empty(matrix)
    # For the moment, the owner and the row of every entry, and whether it differs from the one before.
    momentary = [empty((matrix.nnz,), np.dtype(kind)) for kind in (np.int64, np.int64, "V3")]
    product = UnperformedProduct(matrix, *(empty((listed,), np.dtype(np.int64)) for _ in range(3)))
    del momentary
    return [product] * num_parts


class UnperformedSoftmax:
    """See :class:`gnnloom.trainer.place.contract.EdgeSoftmax`; leaves every output as it is."""

    def __init__(self, pattern: CSR, place: Place, *, dynamic: bool = False) -> None:
        """Keep the memory of the pattern and of its transpose."""
        self.nnz, self.is_dynamic = pattern.nnz, dynamic
        self._num_parts = min(place.threads.num_threads, num_column_ranges(pattern.nnz, pattern.num_rows))
        # At most, as nobody reads how many rows are that long.
        self._num_hubs = min(pattern.num_rows, pattern.nnz // HUB_ENTRIES)
        self._place, empty = place, _empty(pattern)
        transposed = (pattern.num_columns + 1, np.int64), (pattern.nnz, index_dtype(pattern.num_rows))
        hubs = () if dynamic else ((self._num_hubs, np.int64),)
        self._kept = pattern, *(empty((count,), np.dtype(kind)) for count, kind in (*transposed, *hubs))

    def accumulate(self, *_: object, **__: object) -> None:
        """Compute nothing."""

    def gradients(self, *given: Any) -> None:
        """Take the memory of the sums that ranges of columns or rows form apart, and of the sums of hubs in float64."""
        result: AttentionInputs = given[2]
        if self.is_dynamic:
            # The parts, once more as they are added up, and their total before and after.
            self._place.empty((2 * num_vector_ranges(self.nnz) + 2, *result.source.shape), torch.float64)
            return
        parts = self._place.empty((self._num_parts, *result.target.shape), result.target.dtype)
        of_hubs = self._place.empty((self._num_parts + 1, self._num_hubs, result.target.shape[1]), torch.float64)
        del parts, of_hubs


class WithoutValues:
    """See :class:`gnnloom.trainer.place.place.Kernels`; leaves every output as it is."""

    def sparse_product(self, matrix: SparseRows | RowsOnDisk, place: Place, dtype: torch.dtype) -> UnperformedProduct:  # noqa: ARG002
        return UnperformedProduct(matrix, num_threads=place.threads.num_threads)

    def products_by_columns(self, matrix: CSR, parts: Sequence[slice], place: Place) -> list[SparseProduct]:  # noqa: ARG002
        return list[SparseProduct](unperformed_by_columns(matrix, len(parts)))

    def edge_softmax(self, pattern: CSR, negative_slope: float, place: Place, *, dynamic: bool) -> UnperformedSoftmax:  # noqa: ARG002
        return UnperformedSoftmax(pattern, place, dynamic=dynamic)

    def find_runs(self, factors: Tensor, runs: Tensor) -> bool:  # noqa: ARG002
        return True

    def pass_rows(self, given: RowPass, place: Place) -> None:
        """Compute nothing."""

    def pass_heads(self, given: HeadsPass, place: Place) -> None:
        """Compute nothing."""

    def score_block(self, left: Tensor, right: Tensor, out: Tensor, place: Place) -> None:
        """Compute nothing."""

    def score_pairs(self, left: Tensor, right: Tensor, out: Tensor, place: Place) -> None:
        """Compute nothing."""

    def score_entries(
        self, left: Tensor, right: Tensor, entries: tuple[NDArray[Any], NDArray[Any]], out: Tensor, place: Place
    ) -> None:
        """Compute nothing."""

    def normal_rows(
        self,
        key: np.uint64,  # noqa: ARG002
        rows: NDArray[np.int64],
        columns: slice,
        width: int,  # noqa: ARG002
        place: Place,
    ) -> Tensor:
        return place.lasting((len(rows), columns.stop - columns.start), torch.float32)


def place_without_values(feature_dtype: torch.dtype = torch.float32) -> UnbackedPlace:
    """A place where nothing is computed, for the forecast of memory."""
    return UnbackedPlace(WithoutValues(), feature_dtype)
