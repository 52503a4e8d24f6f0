"""The table of a place's kernels, and the table of this processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.random_numbers import normal_rows
from gnnloom.trainer.kernels import pair_scores
from gnnloom.trainer.kernels.c.calls import CSparseProduct, c_heads, c_rows
from gnnloom.trainer.kernels.c.edge_softmax import CEdgeSoftmax
from gnnloom.trainer.kernels.c.library import best_library
from gnnloom.trainer.kernels.sparse_rows import listed_columns, listed_rows
from gnnloom.trainer.kernels.streamed_product import StreamedProduct
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.contract import (
    RUN_COLUMNS,
    EdgeSoftmax,
    HeadsPass,
    RowPass,
    RowsOnDisk,
    SparseProduct,
    SparseRows,
)
from gnnloom.trainer.place.place import Kernels, Place
from gnnloom.trainer.place.threads import Threads


class CpuKernels:
    """Kernels of the CPU: in C, and in numba for pairs and random numbers. See :class:`Kernels`."""

    def sparse_product(self, matrix: SparseRows | RowsOnDisk, place: Place, dtype: torch.dtype) -> SparseProduct:
        if isinstance(matrix, SparseRows):
            return CSparseProduct(best_library(), matrix, place.threads, dtype)
        # A single thread multiplies a block: several threads would wait for each other at the end of every block.
        alone = Threads()

        def prepare(block: CSR) -> SparseProduct:
            return CSparseProduct(best_library(), listed_rows(block), alone, dtype)

        return StreamedProduct(matrix, prepare, num_threads=place.threads.num_threads)

    def products_by_columns(self, matrix: CSR, parts: Sequence[slice], place: Place) -> list[SparseProduct]:
        if matrix.data is not None:
            # Converted here, so that the products share the result.
            matrix = replace(matrix, data=matrix.data.astype(array_dtype(place.sum_dtype), copy=False))
        return [self.sparse_product(rows, place, place.feature_dtype) for rows in listed_columns(matrix, parts)]

    def edge_softmax(self, pattern: CSR, negative_slope: float, place: Place, *, dynamic: bool) -> EdgeSoftmax:
        return CEdgeSoftmax(best_library(), pattern, negative_slope, place, dynamic=dynamic)

    def find_runs(self, factors: Tensor, runs: Tensor) -> bool:
        whole = len(factors) // RUN_COLUMNS
        least, most = factors[: whole * RUN_COLUMNS].view(whole, RUN_COLUMNS).aminmax(dim=1)
        runs.fill_(torch.nan)
        runs[:whole] = torch.where(least == most, least, torch.nan)
        return bool(runs.isnan().sum() < whole / 2)

    def pass_rows(self, given: RowPass, place: Place) -> None:
        # Rows of a dense matrix all take the same time, so the ranges are even.
        place.threads.run(c_rows(best_library(), given), place.threads.even_ranges(len(given.source)))

    def pass_heads(self, given: HeadsPass, place: Place) -> None:
        c_heads(best_library(), given, place.threads)

    def score_block(self, left: Tensor, right: Tensor, out: Tensor, place: Place) -> None:
        pair_scores.score_block(left, right, out, place)

    def score_pairs(self, left: Tensor, right: Tensor, out: Tensor, place: Place) -> None:
        pair_scores.score_pairs(left, right, out, place)

    def score_entries(
        self, left: Tensor, right: Tensor, entries: tuple[NDArray[Any], NDArray[Any]], out: Tensor, place: Place
    ) -> None:
        pair_scores.score_entries(left, right, entries, out, place)

    def normal_rows(self, key: np.uint64, rows: NDArray[np.int64], columns: slice, width: int, place: Place) -> Tensor:
        return place.from_numpy(normal_rows(key, rows, width, columns.start, columns.stop))


_COMPILED: Final = CpuKernels()


def kernels_of(place: Place) -> Kernels:
    """The kernels of a place; by default this processor's kernels."""
    return _COMPILED if place.kernels is None else place.kernels
