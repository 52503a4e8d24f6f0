"""Row shards (1D): each rank's rows of the adjacency, renumbered, and the rows it exchanges with other ranks.

A rank's own vertices are numbered 0..num_own-1 by ascending global id, or by descending degree if the shards are
reordered. Its halo (the vertices of other ranks that its rows refer to) is numbered 0..num_halo-1 by owner, then by
global id. The adjacency of a rank is stored as two matrices, ``own`` (num_own x num_own) and ``halo`` (num_own x
num_halo), so that the product with the first can hide the exchange that the product with the second waits for.
Directed graphs also store the transpose in this way, for the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.offsets import read_offsets
from gnnloom.storage.artifacts.stored_csr import StoredCSR
from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.format.arrays import ArrayReader, ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.format.vertex_arrays import vertex_bounds
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.shards.shard_matrix import Block_co, ShardMatrix
from gnnloom.storage.wording import counted

if TYPE_CHECKING:
    # Only an exchange of sums needs it.
    from gnnloom.storage.shards.row_cover import CoveredMatrix

#: Bytes that are read at a time to be converted.
CONVERTED_BYTES: Final = 8 << 20
_REMEDY: Final = "remove the shards and make them again"


class RowShard:
    """The shard of one rank; reads only its own arrays."""

    def __init__(self, shards: RowShards, rank: int, counter: ReadCounter | None, *, on_disk: bool = False) -> None:
        self.shards = shards
        self.rank = rank
        self.prefix = f"row/{rank:05d}"
        self._counter = counter
        self.on_disk = on_disk

    def __contains__(self, name: str) -> bool:
        return f"{self.prefix}/{name}" in self.shards.artifact

    def read(self, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """Read a whole array of the shard, such as ``vertex`` or ``feature``; converted if ``dtype`` is given."""
        array = self._array(name)
        if dtype is None or dtype == array.dtype:
            return array.read()
        # Some rows at a time: the stored dtype of all rows is never in memory together with the result.
        rows, row_bytes = np.empty(array.shape, dtype), array.dtype.itemsize * math.prod(array.shape[1:])
        for start, stop in array.ranges(CONVERTED_BYTES // max(1, row_bytes)):
            rows[start:stop] = array.read(start, stop)
        return rows

    def array(self, name: str) -> ArrayReader:
        """Open an array of the shard, to read some of its rows."""
        return self._array(name)

    def vertex(self) -> NDArray[np.int64]:
        """(num_own,) int64 global ids of the rank's vertices by local number; ascending unless they are reordered."""
        return self.read("vertex")

    def streamed(self) -> RowShard:
        """The same shard, with the entries of the adjacency on disk."""
        return RowShard(self.shards, self.rank, self._counter, on_disk=True)

    def matrix(self, transpose: bool = False) -> ShardMatrix[CSR]:
        """Read the rank's rows of the adjacency, or of its transpose.

        For a symmetric graph both are the same matrix, which is stored once.
        """
        return self._matrix(transpose, self._csr)

    def operand(self, transpose: bool = False) -> ShardMatrix[CSR | StoredCSR]:
        """The same for products: if the adjacency stays on disk, only its row pointers are read."""
        return self._matrix(transpose, self._stored if self.on_disk else self._csr)

    def covered(self, matrix: ShardMatrix[CSR], transpose: ShardMatrix[CSR]) -> CoveredMatrix:
        """See :func:`gnnloom.storage.shards.row_cover.covered`."""
        from gnnloom.storage.shards.row_cover import covered  # noqa: PLC0415 - only an exchange of sums needs it

        return covered(matrix, transpose, self.vertex())

    def _matrix(self, transpose: bool, open_block: Callable[[str, int], Block_co]) -> ShardMatrix[Block_co]:
        prefix = "transpose/" if transpose and not self.shards.symmetric else ""
        # The number of vertices comes from the manifest, so their ids are not read for it.
        own_width = len(self._array("vertex"))
        halo_vertex, send_row = self.read(f"{prefix}halo_vertex"), self.read(f"{prefix}send_row")
        # Both blocks have the rank's rows. Other sizes of a folder agree by the registry of arrays.
        for name in ("own", "halo"):
            pointers = self._array(f"{prefix}{name}/indptr")
            if len(pointers) != own_width + 1:
                raise CorruptError(
                    f"{pointers.where}: {counted(len(pointers) - 1, 'row')} for the rank's"
                    f" {counted(own_width, 'vertex')}; {_REMEDY}"
                )
        return ShardMatrix(
            own=open_block(f"{prefix}own", own_width),
            halo=open_block(f"{prefix}halo", len(halo_vertex)),
            halo_vertex=halo_vertex,
            halo_offset=self._peers(f"{prefix}halo_offset", len(halo_vertex)),
            send_row=send_row,
            send_offset=self._peers(f"{prefix}send_offset", len(send_row)),
        )

    def _csr(self, name: str, num_columns: int) -> CSR:
        data = self.read(f"{name}/data") if f"{name}/data" in self else None
        indices = self._array(f"{name}/indices", (0, num_columns)).read()
        return CSR(0, self._indptr(name), indices, data, num_columns)

    def _stored(self, name: str, num_columns: int) -> StoredCSR:
        data = self._array(f"{name}/data") if f"{name}/data" in self else None
        indices = self._array(f"{name}/indices", (0, num_columns))
        return StoredCSR(self._indptr(name), indices, data, num_columns, self._counter)

    def _indptr(self, name: str) -> NDArray[np.int64]:
        num_entries = len(self._array(f"{name}/indices"))
        if num_entries:
            return self._offsets(f"{name}/indptr", num_entries)
        # Zeros that nobody has read or written take no memory: the halo of a single rank has no entry in any row.
        return np.zeros(len(self._array(f"{name}/indptr")), np.int64)

    def _peers(self, name: str, total: int) -> NDArray[np.int64]:
        """Offsets of the rows exchanged with each rank; a rank exchanges no rows with itself."""
        offsets = self._offsets(name, total)
        if offsets[self.rank] != offsets[self.rank + 1]:
            raise CorruptError(f"{self._array(name).where}: rank {self.rank} exchanges rows with itself; {_REMEDY}")
        return offsets

    def _offsets(self, name: str, total: int) -> NDArray[np.int64]:
        return read_offsets(self._array(name), total)

    def _array(self, name: str, bounds: tuple[int, int] | None = None) -> ArrayReader:
        return self.shards.artifact.array(f"{self.prefix}/{name}", self._counter, bounds or self._bounds(name))

    def _bounds(self, name: str) -> tuple[int, int] | None:
        """The smallest value that an array may hold, and one more than the largest; None for any."""
        match name.removeprefix("transpose/"):
            case "vertex" | "halo_vertex":
                return 0, self.shards.num_vertices
            case "send_row":
                return 0, len(self._array("vertex"))
        return vertex_bounds(name, self.shards.artifact.facts)


class RowShards:
    """All row shards of a partition."""

    def __init__(self, artifact: Artifact) -> None:
        """Read the facts from the manifest.

        Raises:
            InputError: the graph has types.
        """
        if artifact.version == TYPED_VERSION:
            raise InputError(
                f"{artifact.path}: shards of a graph with types, which Dataset.typed_row_shards reads; no training"
                " reads them so far: `gnnloom train --of-type TYPE` trains on the stored graph"
            )
        self.artifact = artifact
        self.num_vertices: int = artifact.sizes["vertex"]
        self.num_parts: int = artifact.sizes["part"]
        self.num_features: int = artifact.sizes.get("feature", 0)
        self.num_classes: int = artifact.facts.get("num_classes", 0)
        self.num_targets: int = artifact.facts.get("num_targets", 0)
        self.symmetric: bool = artifact.facts["symmetric"]
        self.weighted: bool = artifact.facts["weighted"]
        #: Order of the local numbers of a rank's vertices: ``none`` for ascending ids, or ``degree``.
        self.reorder: str = artifact.parameters.get("reorder", "none")
        #: Exact figures of the partition on this graph (volume, messages, ...).
        self.quality: dict[str, Any] = artifact.facts["quality"]

    def __repr__(self) -> str:
        return f"RowShards({counted(self.num_parts, 'part')} of {counted(self.num_vertices, 'vertex')})"

    def __contains__(self, name: str) -> bool:
        """Whether the vertex data have an array such as ``label``."""
        return f"row/00000/{name}" in self.artifact

    def shard(self, rank: int, counter: ReadCounter | None = None, *, on_disk: bool = False) -> RowShard:
        """The shard of one rank.

        Args:
            counter: counts the bytes that the shard reads.
            on_disk: leave the entries of the adjacency on disk.

        Raises:
            IndexError: there is no such rank.
        """
        if not 0 <= rank < self.num_parts:
            raise IndexError(f"{self.artifact.path}: rank {rank} of {self.num_parts}")
        return RowShard(self, rank, counter, on_disk=on_disk)
