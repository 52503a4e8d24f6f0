"""Stored shards as a rank sees them before it reads them: the shapes of its arrays, with zeros for their contents.

Zeros that nobody has read or written take no memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.row_shards import RowShard
from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.data.open_shards import OpenedShards, OwnRowShard

#: Arrays with a number for each rank, which say whose rows go where.
_READ = ("halo_offset", "send_offset")


def unread(opened: OpenedShards, rank: int) -> OpenedShards:
    """The same shards without their contents, except for the numbers of rows that ranks exchange."""
    if isinstance(opened, OwnRowShard):
        return replace(opened, shard=UnreadRowShard(opened.shards, rank, None))
    # It imports numba, which a job on row shards need not load.
    from gnnloom.trainer.data.unread_grid import unread_grid  # noqa: PLC0415

    return unread_grid(opened)


class UnreadRowShard(RowShard):
    """A row shard without entries; the rank still exchanges the same rows."""

    def read(self, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        if name.endswith(_READ):
            return super().read(name, dtype)
        record = self.shards.artifact.record(f"{self.prefix}/{name}")
        return np.zeros(record.shape, dtype or record.dtype)

    def _csr(self, name: str, num_columns: int) -> CSR:
        indices = np.empty(0, self.shards.artifact.record(f"{self.prefix}/{name}/indices").dtype)
        return CSR(0, self.read(f"{name}/indptr"), indices, None, num_columns)
