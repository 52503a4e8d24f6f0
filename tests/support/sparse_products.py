"""Random sparse products for hypothesis, and their results computed by SciPy in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage import CSR
from gnnloom.trainer.place.contract import RUN_COLUMNS, ColumnScale

_SUMS = {torch.float32: torch.float32, torch.float64: torch.float64, torch.bfloat16: torch.float32}


def random_csr(
    num_rows: int, num_columns: int, density: float, *, weighted: bool, index: type = np.int32, seed: int = 0
) -> CSR:
    """A random matrix with a given share of nonzeros."""
    shape = (num_rows, num_columns)
    matrix = scipy.sparse.csr_array(scipy.sparse.random_array(shape, density=density, rng=seed))
    data = matrix.data if weighted else None
    return CSR(0, matrix.indptr.astype(np.int64), matrix.indices.astype(index), data, num_columns)


@dataclass(frozen=True)
class Case:
    """A product: diag(row_scale) A diag(column_scale) dense, written or added to some rows of ``before``.

    Attributes:
        padding: elements between the rows of the dense matrices.
        wide: the output has the dtype of the sums.
        rows: (num_listed,) the rows that are asked for, or None for all.
    """

    matrix: CSR
    dtype: torch.dtype
    dim: int
    padding: int
    wide: bool
    accumulate: bool
    scaled: tuple[bool, bool]
    rows: NDArray[np.int64] | None
    seed: int

    def dense(self) -> Tensor:
        return self._matrix(1, self.matrix.num_columns)

    def before(self) -> Tensor:
        before = self._matrix(2, self.matrix.num_rows)
        # As far apart as before: a conversion would close the gaps.
        return torch.empty_strided(before.shape, before.stride(), dtype=self.out_dtype).copy_(before)

    @property
    def out_dtype(self) -> torch.dtype:
        return _SUMS[self.dtype] if self.wide else self.dtype

    def row_scale(self) -> Tensor:
        return self._factors(3, self.matrix.num_rows if self.scaled[0] else 0)

    def column_scale(self) -> ColumnScale | None:
        """Factors, of which every other case lists runs; some of these have one factor."""
        if not self.scaled[1]:
            return None
        factors = self._factors(4, self.matrix.num_columns)
        if self.seed % 2:
            return ColumnScale(factors)
        starts = range(0, len(factors), RUN_COLUMNS)
        runs = torch.full((len(starts),), torch.nan, dtype=factors.dtype)
        for run in range(self.seed // 2 % 2, len(starts), 2):
            factors[starts[run] : starts[run] + RUN_COLUMNS] = runs[run] = factors[starts[run]]
        return ColumnScale(factors, runs)

    def expected(self) -> NDArray[np.float64]:
        """(num_rows, dim), by SciPy."""
        data = np.ones(self.matrix.nnz) if self.matrix.data is None else self._rounded(self.matrix.data)
        shape = (self.matrix.num_rows, self.matrix.num_columns)
        matrix = scipy.sparse.csr_array((data, self.matrix.indices, self.matrix.indptr), shape)
        scale = self.column_scale()
        dense = self.dense().double().numpy()
        result = matrix @ (dense if scale is None else dense * scale.factors.double().numpy()[:, None])
        if self.scaled[0]:
            result = result * self.row_scale().double().numpy()[:, None]
        before: NDArray[np.float64] = self.before().double().numpy()
        result = before + result if self.accumulate else result
        if self.rows is not None:
            untouched = np.delete(np.arange(self.matrix.num_rows), self.rows)
            result[untouched] = before[untouched]
        return np.asarray(result)

    def _matrix(self, stream: int, num_rows: int) -> Tensor:
        """Random rows that are ``padding`` elements apart."""
        shape = (num_rows, self.dim + self.padding)
        return torch.randn(shape, generator=self._generator(stream)).to(self.dtype)[:, : self.dim]

    def _factors(self, stream: int, length: int) -> Tensor:
        return torch.rand(length, generator=self._generator(stream)).to(_SUMS[self.dtype]) + 0.5

    def _generator(self, stream: int) -> torch.Generator:
        return torch.Generator().manual_seed(100 * self.seed + stream)

    def _rounded(self, data: NDArray[Any]) -> NDArray[Any]:
        return torch.from_numpy(data).to(_SUMS[self.dtype]).double().numpy()


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Matrices of all kinds: with empty rows, few non-empty ones, wide ids, weights; dense ones of width 1 to 300."""
    num_rows, num_columns = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    density, seed = draw(st.sampled_from([0.0, 0.005, 0.05, 0.3, 1.0])), draw(st.integers(0, 99))
    index = draw(st.sampled_from([np.int32, np.int64]))
    matrix = random_csr(num_rows, num_columns, density, weighted=draw(st.booleans()), index=index, seed=seed)
    subset = draw(st.none() | st.sets(st.integers(0, num_rows - 1)))
    return Case(
        matrix,
        draw(st.sampled_from(list(_SUMS))),
        dim=draw(st.integers(1, 300) | st.sampled_from([1, 2, 3, 4, 6, 7, 8, 16, 31, 64, 128, 256])),
        padding=draw(st.sampled_from([0, 0, 1, 16])),
        wide=draw(st.booleans()),
        accumulate=draw(st.booleans()),
        scaled=(draw(st.booleans()), draw(st.booleans())),
        rows=None if subset is None else np.array(sorted(subset), np.int64),
        seed=seed,
    )
