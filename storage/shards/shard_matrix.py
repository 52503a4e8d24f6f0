"""One matrix of a rank, in an own and a halo block of columns, and the rows that are exchanged for products with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.stored_csr import StoredCSR
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.csr import CSR

Block_co = TypeVar("Block_co", bound=CSR | StoredCSR, covariant=True)


@dataclass(frozen=True)
class ShardMatrix(Generic[Block_co]):
    """One matrix (the adjacency or its transpose) of one rank.

    Attributes:
        own: (num_own, num_own); columns are the rank's own vertices. In memory, or with its entries on disk.
        halo: (num_own, num_halo); columns are halo vertices. Likewise.
        halo_vertex: (num_halo,) int64 global ids.
        halo_offset: (num_parts + 1,) int64; owner p has the halo vertices halo_offset[p] to halo_offset[p+1].
        send_row: (num_send,) int32 or int64 own local ids to send, for each receiver in the order of its halo.
        send_offset: (num_parts + 1,) int64; receiver p gets send_row[send_offset[p]:send_offset[p+1]].
    """

    own: Block_co
    halo: Block_co
    halo_vertex: NDArray[np.int64]
    halo_offset: NDArray[np.int64]
    send_row: NDArray[Any]
    send_offset: NDArray[np.int64]

    def in_memory(self) -> tuple[CSR, CSR]:
        """The own and the halo block.

        Raises:
            InputError: their entries are on disk.
        """
        if isinstance(self.own, StoredCSR) or isinstance(self.halo, StoredCSR):
            raise InputError("the entries of the adjacency are on disk, but have to be in memory")
        return self.own, self.halo

    def exchanged(self, vertex: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Number of rows sent to and received from each rank, with a checksum of their vertices.

        Args:
            vertex: (num_own,) int64 global ids.

        Returns:
            (num_parts, 2) int64 for the rows to send, and (num_parts, 2) int64 for the rows to receive.
        """
        return (
            listed_by_rank(vertex[self.send_row], self.send_offset),
            listed_by_rank(self.halo_vertex, self.halo_offset),
        )


def listed_by_rank(ids: NDArray[np.int64], offset: NDArray[np.int64]) -> NDArray[np.int64]:
    """(num_parts, 2) int64 number and checksum of the vertices that are exchanged with each rank.

    Args:
        ids: (num_ids,) int64 vertices by rank.
        offset: (num_parts + 1,) int64; rank p has the vertices ids[offset[p]:offset[p+1]].
    """
    return np.array([_listed(each) for each in np.split(ids, offset[1:-1])], np.int64)


def _listed(ids: NDArray[np.int64]) -> tuple[int, int]:
    return len(ids), google_crc32c.value(np.ascontiguousarray(ids).view(np.uint8))
