"""Grid shards (2D): the permuted adjacency in p x q blocks, from which any rank of any grid cuts its window.

With row order Pr and column order Pc there are up to four *variants* of the matrix; equal ones are stored once:

====================  ==================  ==========================================
variant               matrix              equal to another one
====================  ==================  ==========================================
``even``              Pr A Pc^T
``odd``               Pc A Pr^T           ``even`` unless the permutation is double
``even_transposed``   Pc A^T Pr^T         ``odd`` if the graph is symmetric
``odd_transposed``    Pr A^T Pc^T         ``even`` if the graph is symmetric
====================  ==================  ==========================================

Rows and columns are cut at i*n//p (see :mod:`gnnloom.storage.matrix.ranges`), without padding. The transpose of a
window of one variant is the window of its transposed variant with rows and columns exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.format.arrays import CHUNK_BYTES, ArrayReader, ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.format.vertex_arrays import vertex_bounds
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.permutation import PARTITION_ORDER, KeyedPermutation
from gnnloom.storage.matrix.ranges import Span, overlapped, split_range
from gnnloom.storage.shards.grid_variants import TRANSPOSED, stored_variants
from gnnloom.storage.shards.grid_window import read_windows
from gnnloom.storage.wording import counted

#: Chunks per array, unless they would be too small: with many chunks, reading a range of rows reads little else.
_CHUNKS, _LEAST_CHUNK_BYTES = 16, 16 << 10
#: Bytes of vertex data that are read at once: enough to make calls rare, little compared with the result.
_STEP_BYTES = 1 << 18


def cell_path(variant: str, row: int, column: int) -> str:
    """Path of one block of a variant in the artifact."""
    return f"grid/{variant}/{row:03d}/{column:03d}"


def crop_chunk_rows(num_rows: int, row_bytes: int) -> int:
    """Rows per chunk of the arrays of cells and orders, from which ranks read ranges that may begin inside a chunk."""
    # Between the two sizes, an array has 16 chunks. A window that begins inside a chunk then reads less than two chunks
    # in vain, an eighth of the array.
    row_bytes = max(1, row_bytes)
    rows = max(1, _LEAST_CHUNK_BYTES // row_bytes, -(-num_rows // _CHUNKS))
    return max(1, min(CHUNK_BYTES // row_bytes or 1, rows, num_rows))


def order_path(order: str, row: int) -> str:
    """Path of the vertex data of row range ``row`` in the order ``rows`` (Pr) or ``columns`` (Pc)."""
    return f"order/{order}/{row:03d}"


class _Shards(Protocol):
    """Shards of a grid, with or without types."""

    artifact: Artifact
    num_vertices: int
    grid: tuple[int, int]

    def stored_variant(self, variant: str) -> str: ...


AnyShards = TypeVar("AnyShards", bound=_Shards)


@dataclass(frozen=True)
class StoredCells(Generic[AnyShards]):
    """The cells of one variant in the arrays of an artifact; a base of :class:`~.grid_window.Cells`."""

    shards: AnyShards
    variant: str
    counter: ReadCounter | None

    @property
    def num_vertices(self) -> int:
        return self.shards.num_vertices

    @property
    def grid(self) -> tuple[int, int]:
        return self.shards.grid

    def path(self, row: int, column: int) -> str:
        """Path of a block in the artifact."""
        return cell_path(self.shards.stored_variant(self.variant), row, column)

    def array(self, row: int, column: int, name: str) -> ArrayReader:
        left, right = split_range(self.num_vertices, self.grid[1], column)
        bounds = (0, right - left) if name == "indices" else None
        reader = self.shards.artifact.array(f"{self.path(row, column)}/{name}", self.counter, bounds)
        if name == "indptr":
            check_rows(reader, self.num_vertices, self.grid[0], row, 1)
        return reader

    def transposed(self) -> Self:
        return replace(self, variant=TRANSPOSED[self.variant])


@dataclass(frozen=True)
class _Cells(StoredCells["GridShards"]):
    """The cells of one variant; implements :class:`gnnloom.storage.shards.grid_window.Cells`."""

    @property
    def weighted(self) -> bool:
        return self.shards.weighted

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    def is_empty(self, row: int, column: int) -> bool:  # noqa: ARG002 - all cells have arrays
        return False


class GridShards:
    """The grid shards of one permutation."""

    def __init__(self, artifact: Artifact) -> None:
        """Read the facts from the manifest.

        Raises:
            InputError: the shards are of a graph with types.
        """
        if artifact.version == TYPED_VERSION:
            raise InputError(
                f"{artifact.path}: shards of a graph with types, which Dataset.typed_grid_shards reads; no training"
                " reads them so far"
            )
        self.artifact = artifact
        self.num_vertices: int = artifact.sizes["vertex"]
        self.nnz: int = artifact.facts["nnz"]
        self.num_features: int = artifact.sizes.get("feature", 0)
        self.num_classes: int = artifact.facts.get("num_classes", 0)
        self.num_targets: int = artifact.facts.get("num_targets", 0)
        self.symmetric: bool = artifact.facts["symmetric"]
        self.weighted: bool = artifact.facts["weighted"]
        self.grid: tuple[int, int] = tuple(artifact.parameters["grid"])
        self.permutation: str = artifact.parameters["permutation"]
        self.row_order = _order(artifact.facts["row_order"])
        self.column_order = _order(artifact.facts["column_order"])
        self._stored = stored_variants(symmetric=self.symmetric, double=self.permutation == "double")

    def __repr__(self) -> str:
        return (
            f"GridShards({self.grid[0]} x {self.grid[1]}, {counted(self.num_vertices, 'vertex')}, {self.permutation})"
        )

    def __contains__(self, name: str) -> bool:
        """Whether the vertex data have an array such as ``label``."""
        # Every range of rows has the same arrays, so the first one answers for all.
        return f"{order_path('rows', 0)}/{name}" in self.artifact

    def stored_variant(self, variant: str) -> str:
        """The stored variant that equals this one."""
        return self._stored[variant]

    def window(self, variant: str, rows: Span, columns: Span, counter: ReadCounter | None = None) -> CSR:
        """Read rows and columns of a variant, cropped from the blocks that they overlap; see :meth:`windows`."""
        return self.windows(variant, rows, [columns], counter)[0]

    def windows(
        self,
        variant: str,
        rows: Span,
        columns: Sequence[Span],
        counter: ReadCounter | None = None,
        dtype: np.dtype[Any] | None = None,
    ) -> list[CSR]:
        """Read rows of a variant in several ranges of columns, with little more in memory than the result.

        Args:
            variant: ``even``, ``odd``, ``even_transposed`` or ``odd_transposed``.
            rows: first row, and one past the last.
            columns: ascending ranges of columns, given likewise.
            counter: counts the bytes read.
            dtype: dtype of the weights; by default float32, as stored.

        Returns:
            A CSR matrix for each range of columns, with column ids local to it and the first row as ``row_offset``.
        """
        return read_windows(_Cells(self, variant, counter), rows, columns, dtype or np.dtype(np.float32))

    def vertex_ids(self, order: str, span: Span, counter: ReadCounter | None = None) -> NDArray[np.int64]:
        """(stop - start,) int64 ids of the vertices at the positions ``span`` of the order ``rows`` or ``columns``."""
        if self.permutation == "partition":
            return self.vertex_data("vertex", order, span, counter)
        permutation = self.row_order if order == "rows" else self.column_order
        positions = np.arange(*span, dtype=np.int64)
        return permutation.inverse(positions) if permutation else positions

    def positions(self, order: str, vertex: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of vertices in the order ``rows`` or ``columns``; the inverse of :meth:`vertex_ids`.

        Args:
            vertex: (num_ids,) int64 ids of vertices.

        Returns:
            (num_ids,) int64.

        Raises:
            InputError: the order comes from a partition, which is stored by position only.
        """
        if self.permutation == "partition":
            raise InputError(f"{self.artifact.path}: the positions of the vertices are not stored by id")
        permutation = self.row_order if order == "rows" else self.column_order
        return permutation.forward(vertex) if permutation else vertex

    def vertex_data(
        self,
        name: str,
        order: str,
        span: Span,
        counter: ReadCounter | None = None,
        dtype: np.dtype[Any] | None = None,
    ) -> NDArray[Any]:
        """Read rows of ``feature``, ``label``, ``split``, ``degree``, ... at the positions ``span`` of an order.

        Peak memory is the result and a few chunks.

        Args:
            order: ``rows`` or ``columns``.
            span: first position, and one past the last.
            counter: counts the bytes read.
            dtype: dtype of the result; by default the stored array's dtype.

        Returns:
            (stop - start, ...), in the order of the positions.
        """
        # Only a double permutation has two orders; for the others, one copy of the vertex data is stored.
        order = order if self.permutation == "double" else "rows"
        record = self.artifact.record(f"{order_path(order, 0)}/{name}")
        rows = np.empty((span[1] - span[0], *record.shape[1:]), dtype or record.dtype)
        bounds = (0, self.num_vertices) if name == "vertex" else vertex_bounds(name, self.artifact.facts)
        for row, shared in overlapped(span, self.num_vertices, self.grid[0]):
            reader = self.artifact.array(f"{order_path(order, row)}/{name}", counter, bounds)
            check_rows(reader, self.num_vertices, self.grid[0], row)
            first = split_range(self.num_vertices, self.grid[0], row)[0]
            # Step by step into the result: the stored dtype of the whole range is never in memory together with the
            # result.
            for start, stop in _steps(reader, shared[0] - first, shared[1] - first):
                rows[first + start - span[0] : first + stop - span[0]] = reader.read(start, stop)
        return rows


def check_rows(reader: ArrayReader, num_vertices: int, parts: int, number: int, more: int = 0) -> None:
    """Check that an array has one row for each vertex of its range, and ``more`` further rows."""
    start, stop = split_range(num_vertices, parts, number)
    if len(reader) != stop - start + more:
        raise CorruptError(
            f"{reader.where}: {counted(len(reader), 'row')}, expected {stop - start + more}; remove the shards and make"
            " them again"
        )


def _steps(reader: ArrayReader, start: int, stop: int) -> Iterator[Span]:
    """Cut the rows ``start`` to ``stop`` into steps of one chunk, or of several small ones."""
    row_bytes = reader.dtype.itemsize * int(np.prod(reader.shape[1:], dtype=np.int64))
    chunks = max(1, _STEP_BYTES // max(1, row_bytes * reader.chunk_rows)) * reader.chunk_rows
    while start < stop:
        # Steps end at chunk boundaries, so that no chunk is read twice.
        following = min(start - start % reader.chunk_rows + chunks, stop)
        yield start, following
        start = following


def _order(content: dict[str, Any] | None) -> KeyedPermutation | None:
    return None if content is None or content == PARTITION_ORDER else KeyedPermutation.from_json(content)
