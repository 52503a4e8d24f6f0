"""Layouts of a dense (n, dim) matrix on the process grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True)
class Layout:
    """The rows and columns of a matrix that each rank holds; ranks along the other axes hold copies.

    Attributes:
        vertex: (num_rows,) int64 global ids of this rank's rows.
        row_axes: axes of the grid that split the rows.
        column_axes: axes that split the columns; rank i of p along them holds columns i*dim//p to (i+1)*dim//p.
        order: name of the vertex order; the rows are a range of that order.
    """

    grid: ProcessGrid
    vertex: NDArray[np.int64]
    row_axes: tuple[str, ...]
    column_axes: tuple[str, ...] = ()
    order: str = "rows"

    @property
    def place(self) -> Place:
        """Place of this rank's rows and columns."""
        return self.grid.place

    @property
    def num_rows(self) -> int:
        return len(self.vertex)

    @property
    def ids(self) -> Tensor:
        """(num_rows,) int64 global ids, as a tensor."""
        return self.place.from_numpy(self.vertex)

    @property
    def key(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """Identifies a layout among the layouts of the same grid and graph."""
        # Without `vertex`: an array has no hash, and the order and the row axes determine it.
        return self.order, self.row_axes, self.column_axes

    def columns(self, dim: int, coordinate: Mapping[str, int] | None = None) -> slice:
        """Columns of a matrix of width ``dim`` that this rank holds, or the rank at a coordinate of the grid."""
        return slice(*self.grid.span(dim, self.column_axes, coordinate))

    def widths(self, dim: int) -> list[int]:
        """Numbers of columns that the ranks of the column group hold."""
        return self.grid.sizes(dim, self.column_axes)

    @property
    def column_group(self) -> Communicator:
        """The ranks that hold the other columns of the same rows."""
        return self.grid.group(self.column_axes)

    @property
    def has_copies(self) -> bool:
        """Whether several ranks hold the same rows and columns."""
        split = self.row_axes + self.column_axes
        return self.grid.size(axis for axis in self.grid.axes if axis not in split) > 1

    @property
    def speaks_for_rows(self) -> bool:
        """True on exactly one of the ranks that hold columns or copies of the same rows; it counts them in sums."""
        return self.grid.index(axis for axis in self.grid.axes if axis not in self.row_axes) == 0

    def speaks_for_piece(self, among: Iterable[str]) -> bool:
        """True on exactly one of the ranks along the axes ``among`` that hold copies of the same rows and columns."""
        split = self.row_axes + self.column_axes
        return self.grid.index(axis for axis in among if axis not in split) == 0
