"""The interface through which a rank reads vertex data of some rows, whatever the kind of shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.row_shards import RowShards

if TYPE_CHECKING:
    # It imports numba, which a job on row shards need not load.
    from gnnloom.storage.artifacts.grid_shards import GridShards


class VertexRows(Protocol):
    """Some rows of the vertex data of shards."""

    @property
    def shards(self) -> RowShards | GridShards: ...

    @property
    def prefix(self) -> str:
        """Path of the rows inside the artifact, for messages."""
        ...

    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """(num_rows, ...) the rows of an array such as ``feature``, converted to ``dtype`` if given."""
        ...

    def vertex(self) -> NDArray[np.int64]:
        """(num_rows,) int64 global ids."""
        ...
