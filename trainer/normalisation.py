"""Normalisations of the adjacency: diag(left) A diag(right)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.csr import CSR
from gnnloom.storage.errors import InputError

NORMALISATIONS = ("symmetric", "mean", "none")


@dataclass(frozen=True)
class Scaling:
    """The two vectors of a rank's rows, each (num_rows,), or (0,) for ones.

    The transpose of the scaled matrix has them on the other sides.
    """

    left: NDArray[Any]
    right: NDArray[Any]

    @property
    def transposed(self) -> Scaling:
        return Scaling(self.right, self.left)


def scaling(normalisation: str, degree: NDArray[np.float64], dtype: np.dtype[Any]) -> Scaling:
    """The vectors of a normalisation, for some rows of the adjacency.

    Args:
        normalisation: ``symmetric`` (degree^-1/2 on both sides, as PyG's gcn_norm), ``mean`` (1/degree on the
            left) or ``none``.
        degree: (num_rows,) sums of the rows, with their self loops. A row of degree 0 gets the factor 0.
        dtype: of the result.
    """
    ones = np.empty(0, dtype)
    if normalisation == "none":
        return Scaling(ones, ones)
    positive = np.where(degree > 0, degree, np.inf)
    if normalisation == "mean":
        return Scaling((1 / positive).astype(dtype), ones)
    factor = (1 / np.sqrt(positive)).astype(dtype)
    return Scaling(factor, factor)


def degrees(where: str, *blocks: CSR) -> NDArray[np.float64]:
    """(num_rows,) sums of the rows of matrices that lie side by side.

    Raises:
        InputError: a sum of weights is negative or not finite.
    """
    degree = np.zeros(blocks[0].num_rows, np.float64)
    for block in blocks:
        if block.data is None:
            degree += np.diff(block.indptr)
        else:
            rows = np.repeat(np.arange(block.num_rows), np.diff(block.indptr))
            degree += np.bincount(rows, weights=block.data, minlength=block.num_rows)
    check_degrees(where, degree)
    return degree


def check_degrees(where: str, degree: NDArray[np.float64]) -> None:
    """Check sums of rows.

    Raises:
        InputError: one is negative or not finite.
    """
    if not (np.isfinite(degree).all() and (degree >= 0).all()):
        raise InputError(f"{where}: the weights of a row have a negative or infinite sum, which cannot be normalised")
