"""Grid shards before they are read; see :mod:`gnnloom.trainer.training.rehearsal.unread`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.matrix.ranges import Span, split_range
from gnnloom.storage.shards.grid_shards import GridShards, cell_path, order_path
from gnnloom.trainer.data.open_shards import OpenedShards, SharedGridShards
from gnnloom.trainer.kernels.dispatch import Unwritten, even_offsets


def unread_grid(opened: OpenedShards, memory: Unwritten) -> OpenedShards:
    """The same shards without their contents; shards that are not grid shards are returned unchanged."""
    if not isinstance(opened, SharedGridShards):
        return opened
    return replace(opened, shards=UnreadGridShards(opened.shards.artifact, memory), counter=ReadCounter())


class UnreadGridShards(GridShards):
    """Windows have entries in proportion to their shares of the cells, as if a cell's entries were spread evenly.

    Attributes:
        read_shares: entries of the windows that were asked for over the entries of one variant, and the share of the
            rows whose features were, or if no features were, whose splits.
    """

    def __init__(self, artifact: Artifact, memory: Unwritten) -> None:
        super().__init__(artifact)
        self._memory = memory
        self._entries_read = 0.0
        self._rows_read = dict.fromkeys(("feature", "split"), 0.0)

    @property
    def read_shares(self) -> tuple[float, float]:
        return self._entries_read, self._rows_read["feature"] or self._rows_read["split"]

    def windows(
        self,
        variant: str,
        rows: Span,
        columns: Sequence[Span],
        counter: ReadCounter | None = None,  # noqa: ARG002 - nothing is read
        dtype: np.dtype[Any] | None = None,
    ) -> list[CSR]:
        return [self._window(variant, rows, each, dtype or np.dtype(np.float32)) for each in columns]

    def _window(self, variant: str, rows: Span, columns: Span, dtype: np.dtype[Any]) -> CSR:
        nnz, width = self._entries(variant, rows, columns), columns[1] - columns[0]
        self._entries_read += nnz / max(1, self.nnz)
        data = self._memory.array((nnz,), dtype) if self.weighted else None
        indptr = even_offsets(rows[1] - rows[0] + 1, nnz)
        return CSR(rows[0], indptr, self._memory.array((nnz,), index_dtype(width)), data, width)

    def _entries(self, variant: str, rows: Span, columns: Span) -> int:
        stored, total = self.stored_variant(variant), 0.0
        for row in range(self.grid[0]):
            down = _share(split_range(self.num_vertices, self.grid[0], row), rows)
            for column in range(self.grid[1]) if down else ():
                across = _share(split_range(self.num_vertices, self.grid[1], column), columns)
                if across:
                    record = self.artifact.record(f"{cell_path(stored, row, column)}/indices")
                    total += down * across * record.shape[0]
        return round(total)

    def vertex_data(
        self,
        name: str,
        order: str,
        span: Span,
        counter: ReadCounter | None = None,
        dtype: np.dtype[Any] | None = None,
    ) -> NDArray[Any]:
        # Which vertices a rank has decides what it exchanges when rows change their order.
        if name == "vertex":
            return super().vertex_data(name, order, span, counter, dtype)
        if name in self._rows_read:
            self._rows_read[name] += (span[1] - span[0]) / max(1, self.num_vertices)
        record = self.artifact.record(f"{order_path('rows', 0)}/{name}")
        return self._memory.array((span[1] - span[0], *record.shape[1:]), dtype or np.dtype(record.dtype))


def _share(cell: Span, window: Span) -> float:
    """The share of a cell's rows or columns that a window takes."""
    common = min(cell[1], window[1]) - max(cell[0], window[0])
    return max(0, common) / max(1, cell[1] - cell[0])
