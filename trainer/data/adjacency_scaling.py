"""Normalizations of the adjacency: diag(left) A diag(right)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.stored_csr import StoredCSR, row_sums
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.csr import CSR

if TYPE_CHECKING:
    # They import torch, which the command line need not load.
    from torch import Tensor

    from gnnloom.trainer.place.place import Place

NORMALIZATIONS = ("symmetric", "mean", "none")


@dataclass(frozen=True)
class Scaling:
    """The two vectors of a rank's rows, each (num_rows,), or (0,) if all factors are 1.

    The transpose of the scaled matrix has the two exchanged.
    """

    left: Tensor
    right: Tensor

    @property
    def transposed(self) -> Scaling:
        return Scaling(self.right, self.left)


def scaling(where: str, normalization: str, degree: NDArray[np.float64], place: Place) -> Scaling:
    """The vectors of a normalization, for some rows of the adjacency.

    Args:
        where: array or artifact to name in an error message.
        normalization: ``symmetric`` (degree^-1/2 on both sides, as PyG's gcn_norm), ``mean`` (1/degree on the
            left) or ``none``.
        degree: (num_rows,) sums of the rows, including self loops. A row of degree 0 gets the factor 0.
        place: where the vectors are needed, in the dtype of sums.

    Raises:
        InputError: a degree is negative or not finite, which only ``none`` allows.
    """
    ones = place.lasting((0,), place.sum_dtype)
    if normalization == "none":
        return Scaling(ones, ones)
    if not (np.isfinite(degree).all() and (degree >= 0).all()):
        raise InputError(f"{where}: the weights of a row have a negative or infinite sum, which cannot be normalized")
    # 1 / infinity is 0, so a row of degree 0 needs no case of its own below.
    positive = np.where(degree > 0, degree, np.inf)
    # Computed in float64, so that a float32 factor is rounded once.
    factor = place.from_numpy(1 / (positive if normalization == "mean" else np.sqrt(positive))).to(place.sum_dtype)
    return Scaling(factor, ones if normalization == "mean" else factor)


def degrees(*blocks: CSR | StoredCSR) -> NDArray[np.float64]:
    """(num_rows,) float64 row sums of the matrix that consists of these column blocks; reads weights on disk."""
    degree = row_sums(blocks[0])
    for block in blocks[1:]:
        if block.nnz:
            degree += row_sums(block)
    return degree
