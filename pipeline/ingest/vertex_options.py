"""Options of stored vertex data that decide their bytes, besides the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.source import VertexData
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.option import Group, check_options, option

#: The array that has a choice of types.
_FEATURE: Final = VERTEX_ARRAYS["feature"]
#: Types in which features can be stored; sources give the first.
STORED: Final = (_FEATURE.dtypes[0], "float16")


@dataclass(frozen=True)
class VertexOptions:
    """Options that decide how vertex data are stored."""

    store: str = option(
        STORED[0],
        "Data type of stored features; float16 halves disk space and read traffic, and rounds features to 11 binary"
        " digits.",
        group=Group.OUTPUT,
        choices=STORED,
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of an artifact; the default adds none, so its key equals the key of earlier versions."""
        return {} if self.store == STORED[0] else {"store": self.store}

    def dtype(self, array: str) -> np.dtype[Any]:
        """The type in which an array is stored."""
        return np.dtype(self.store) if array == _FEATURE.name else VERTEX_ARRAYS[array].dtype

    def num_bytes(self, source: VertexData) -> int:
        """Bytes of a source's arrays as they are stored, before compression."""
        row = sum(source.num_columns(array) * self.dtype(array).itemsize for array in source.arrays)
        return source.num_vertices() * row


def narrowed(rows: NDArray[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], tuple[int, int] | None]:
    """Round rows to the type in which they are stored.

    Args:
        rows: (num_rows, num_columns) finite numbers, or (num_rows,) of ``dtype``.

    Returns:
        The rows of ``dtype``, rounded to the nearest; and the row and column of the first number beyond its range, or
        None.
    """
    if rows.dtype == dtype:
        return rows, None
    with np.errstate(over="ignore"):
        stored = rows.astype(dtype)
    beyond = np.isinf(stored)
    if not beyond.any():
        return stored, None
    row, column = np.argwhere(beyond)[0].tolist()
    return stored, (row, column)


def beyond_range(where: str, vertex: object, value: float, dtype: np.dtype[Any]) -> InputError:
    """The error for a feature that its stored type cannot hold.

    Args:
        where: the array.
        vertex: as the source of the edges calls it.
    """
    return InputError(
        f"{where}: vertex {vertex} has {value:g}, but {dtype.name} ends at {np.finfo(dtype).max:g}; scale the features,"
        f" or store them with `--store {STORED[0]}`"
    )
