"""The Zarr group of a stored CSR matrix, with the attributes that SciPy and anndata use.

The arrays ``indptr``, ``indices`` and (for weighted matrices) ``data`` lie in the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.storage.disk.groups import write_group

ENCODING_TYPE = "csr_matrix"
#: Version of anndata's encoding of sparse matrices.
_ENCODING_VERSION = "0.1.0"


@dataclass(frozen=True)
class Window:
    """Position of a stored matrix in the whole matrix: its first row and column, and the shape of the whole matrix."""

    row_offset: int
    column_offset: int
    global_shape: tuple[int, int]


def csr_attributes(shape: tuple[int, int], nnz: int, window: Window | None = None) -> dict[str, Any]:
    """Attributes of the group of a CSR matrix.

    Args:
        shape: numbers of rows and columns of the stored matrix.
        nnz: number of stored entries.
        window: for a block of a larger matrix.
    """
    attributes: dict[str, Any] = {"encoding-type": ENCODING_TYPE, "encoding-version": _ENCODING_VERSION}
    attributes["shape"] = list(shape)
    if window is not None:
        attributes["row_offset"] = window.row_offset
        attributes["col_offset"] = window.column_offset
        attributes["global_shape"] = list(window.global_shape)
    attributes["nnz"] = nnz
    return attributes


def write_csr_group(path: Path, shape: tuple[int, int], nnz: int, window: Window | None = None) -> None:
    """Make ``path`` the group of a CSR matrix; see :func:`csr_attributes`."""
    write_group(path, csr_attributes(shape, nnz, window))
