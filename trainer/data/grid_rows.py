"""Some rows of the vertex data of grid shards: a range of positions in one of the two orders of the vertices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.grid_shards import GridShards
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.matrix.ranges import Span


@dataclass(frozen=True)
class GridRows:
    """A range of rows; reads nothing else.

    Attributes:
        order: order of the vertices: ``rows`` (Pr) or ``columns`` (Pc).
        span: first position in this order and the one after the last.
        counter: counts the bytes read.
    """

    shards: GridShards
    order: str
    span: Span
    counter: ReadCounter

    @property
    def prefix(self) -> str:
        return f"order/{self.order}"

    def __contains__(self, name: str) -> bool:
        return name in self.shards

    def read(self, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """(num_rows, ...) the rows of an array such as ``feature``, converted to ``dtype`` if given."""
        return self.shards.vertex_data(name, self.order, self.span, self.counter, dtype)

    def vertex(self) -> NDArray[np.int64]:
        """(num_rows,) int64 global ids of the rows' vertices."""
        return self.shards.vertex_ids(self.order, self.span, self.counter)
