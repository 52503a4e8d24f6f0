"""How a dense (n, dim) matrix is spread over the process grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnloom.trainer.comm import Communicator
from gnnloom.trainer.process_grid import ProcessGrid


@dataclass(frozen=True)
class Layout:
    """The rows and columns that each rank holds; ranks along the other axes hold copies.

    Attributes:
        vertex: (num_rows,) int64 global ids of this rank's rows, ascending.
        row_axes: axes of the grid that split the rows.
        column_axes: axes that split the columns; share i of p holds columns i*dim//p to (i+1)*dim//p.
    """

    grid: ProcessGrid
    vertex: NDArray[np.int64]
    row_axes: tuple[str, ...]
    column_axes: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        return len(self.vertex)

    def columns(self, dim: int) -> slice:
        """This rank's columns of a matrix of width ``dim``."""
        share, num_shares = self.grid.index(self.column_axes), self.grid.size(self.column_axes)
        return slice(share * dim // num_shares, (share + 1) * dim // num_shares)

    @property
    def column_group(self) -> Communicator:
        """The ranks that hold the other columns of the same rows."""
        return self.grid.group(self.column_axes)

    @property
    def speaks_for_rows(self) -> bool:
        """True on one rank of all that hold (columns or copies of) the same rows: the one that counts them in sums."""
        others = tuple(axis for axis in self.grid.axes if axis not in self.row_axes)
        return self.grid.index(others) == 0
