"""Invariants of every stored CSR matrix, checked chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.offsets import read_offsets
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.fingerprint import scan_rows

#: Python integers do not wrap; the mask makes their sums equal sums of uint64.
_MASK = (1 << 64) - 1
#: Weights and times are fingerprinted by their bits: the comparison is exact, and also distinguishes 0.0 from -0.0.
_BITS = {"float32": np.uint32, "float64": np.uint64, "int64": np.uint64}


@dataclass(frozen=True)
class MatrixPrint:
    """Fingerprints of a matrix and of its transpose, and its number of entries; blocks' fingerprints add up."""

    forward: int = 0
    backward: int = 0
    nnz: int = 0

    def __add__(self, other: MatrixPrint) -> MatrixPrint:
        return MatrixPrint(
            (self.forward + other.forward) & _MASK, (self.backward + other.backward) & _MASK, self.nnz + other.nnz
        )


def check_csr(
    artifact: Artifact, path: str, row_offset: int, width: int, values: str = "data", *, repeats: bool = False
) -> tuple[NDArray[np.int64], MatrixPrint]:
    """Check one CSR matrix of an artifact: its row pointers, and that column ids are in range and ascend within a row.

    Holds the row pointers and one chunk of the entries in memory.

    Args:
        path: path of the matrix in the artifact.
        row_offset: index of its first row in the whole matrix.
        width: number of columns.
        values: name of the array whose values count in the fingerprints, if there is one.
        repeats: a column may occur several times in a row.

    Returns:
        The (num_rows + 1,) int64 row pointers, and the fingerprints.

    Raises:
        CorruptError: an invariant is broken; the message names the array and the entry.
    """
    # The row pointers are checked before the kernel uses them to index without bounds checks.
    indices = artifact.array(f"{path}/indices")
    indptr = read_offsets(artifact.array(f"{path}/indptr"), len(indices))
    data = artifact.array(f"{path}/{values}") if f"{path}/{values}" in artifact else None
    found, previous = MatrixPrint(), -1
    for start in range(0, len(indices), indices.chunk_rows):
        stop = min(start + indices.chunk_rows, len(indices))
        columns = indices.read(start, stop)
        bits = data.read(start, stop).view(_BITS[data.dtype.name]) if data else np.empty(0, np.uint32)
        forward, backward, previous, wrong = scan_rows(
            indptr, start, columns, bits, row_offset, previous, width, repeats
        )
        if wrong >= 0:
            row = int(np.searchsorted(indptr, wrong, side="right")) - 1 + row_offset
            raise CorruptError(
                f"{artifact.path}/{path}/indices: entry {wrong} (row {row}) is {columns[wrong - start]}, expected ids"
                f" that ascend within the row and lie in 0..{width - 1}"
            )
        found += MatrixPrint(int(forward), int(backward), stop - start)
    return indptr, found
