"""Grid shards (2D): the permuted adjacency in p x q blocks, from which any rank of any grid cuts its window.

With row order Pr and column order Pc there are up to four *variants* of the matrix, stored once
where they are equal:

====================  ==================  ==========================================
variant               matrix              equal to another one
====================  ==================  ==========================================
``even``              Pr A Pc^T
``odd``               Pc A Pr^T           ``even`` unless the permutation is double
``even_transposed``   Pc A^T Pr^T         ``odd`` if the graph is symmetric
``odd_transposed``    Pr A^T Pc^T         ``even`` if the graph is symmetric
====================  ==================  ==========================================

Rows and columns are cut at i*n//p (see :mod:`gnnloom.storage.matrix.ranges`), without padding.  The transpose of a
window of one variant is a window of its transposed variant, rows and columns exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.grid_window import read_windows
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import CHUNK_BYTES, ArrayReader, ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.permutation import PARTITION_ORDER, KeyedPermutation
from gnnloom.storage.matrix.ranges import Span, overlapped, split_range

TRANSPOSED = {"even": "even_transposed", "odd": "odd_transposed", "even_transposed": "even", "odd_transposed": "odd"}

#: Chunks that an array is cut into, unless they are too small, so that a range of rows is read with little beside it.
_CHUNKS, _LEAST_CHUNK_BYTES = 16, 16 << 10
#: Bytes of vertex data that are read at a time.
_STEP_BYTES = 1 << 18


def stored_variants(*, symmetric: bool, double: bool) -> dict[str, str]:
    """For each variant the one that is stored in its place."""
    odd = "odd" if double else "even"
    if symmetric:
        return {"even": "even", "odd": odd, "even_transposed": odd, "odd_transposed": "even"}
    even_transposed = "even_transposed"
    odd_transposed = "odd_transposed" if double else even_transposed
    return {"even": "even", "odd": odd, "even_transposed": even_transposed, "odd_transposed": odd_transposed}


def cell_path(variant: str, row: int, column: int) -> str:
    """Path of one block of a variant within the artifact."""
    return f"grid/{variant}/{row:03d}/{column:03d}"


def crop_chunk_rows(num_rows: int, row_bytes: int) -> int:
    """Rows per chunk of the arrays of cells and orders, of which ranks read ranges that need not be whole chunks."""
    least, most = (max(1, size // max(1, row_bytes)) for size in (_LEAST_CHUNK_BYTES, CHUNK_BYTES))
    return max(1, min(most, max(least, -(-num_rows // _CHUNKS)), num_rows))


def order_path(order: str, row: int) -> str:
    """Path of the vertex data of row range ``row`` in the order ``rows`` (Pr) or ``columns`` (Pc)."""
    return f"order/{order}/{row:03d}"


@dataclass(frozen=True)
class _Cells:
    """The cells of one variant, as windows are cut from them."""

    shards: GridShards
    variant: str
    counter: ReadCounter | None

    @property
    def num_vertices(self) -> int:
        return self.shards.num_vertices

    @property
    def grid(self) -> tuple[int, int]:
        return self.shards.grid

    @property
    def weighted(self) -> bool:
        return self.shards.weighted

    def array(self, row: int, column: int, name: str) -> ArrayReader:
        stored = self.shards.stored_variant(self.variant)
        return self.shards.artifact.array(f"{cell_path(stored, row, column)}/{name}", self.counter)

    def transposed(self) -> _Cells:
        return _Cells(self.shards, TRANSPOSED[self.variant], self.counter)


class GridShards:
    """The grid shards of one permutation."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.num_vertices: int = artifact.sizes["vertex"]
        self.num_features: int = artifact.sizes.get("feature", 0)
        self.num_classes: int = artifact.facts.get("num_classes", 0)
        self.symmetric: bool = artifact.facts["symmetric"]
        self.weighted: bool = artifact.facts["weighted"]
        self.grid: tuple[int, int] = tuple(artifact.parameters["grid"])
        self.permutation: str = artifact.parameters["permutation"]
        self.row_order = _order(artifact.facts["row_order"])
        self.column_order = _order(artifact.facts["column_order"])
        self._stored = stored_variants(symmetric=self.symmetric, double=self.permutation == "double")

    def __repr__(self) -> str:
        return f"GridShards({self.grid[0]} x {self.grid[1]}, {self.num_vertices:,} vertices, {self.permutation})"

    def stored_variant(self, variant: str) -> str:
        """The variant that is stored in the place of one."""
        return self._stored[variant]

    def window(self, variant: str, rows: Span, columns: Span, counter: ReadCounter | None = None) -> CSR:
        """Rows and columns of a variant, cropped from the blocks that they overlap; see :meth:`windows`."""
        return self.windows(variant, rows, [columns], counter)[0]

    def windows(
        self,
        variant: str,
        rows: Span,
        columns: Sequence[Span],
        counter: ReadCounter | None = None,
        dtype: np.dtype[Any] | None = None,
    ) -> list[CSR]:
        """Rows of a variant in several ranges of columns, with little more in memory than what is returned.

        Args:
            variant: ``even``, ``odd``, ``even_transposed`` or ``odd_transposed``.
            rows: first row and the one after the last.
            columns: likewise, ascending ranges.
            counter: counts the bytes read.
            dtype: of the weights, by default float32, as they are stored.

        Returns:
            A CSR matrix for each range of columns, with local column ids, ``row_offset`` the first row.
        """
        return read_windows(_Cells(self, variant, counter), rows, columns, dtype or np.dtype(np.float32))

    def vertex_ids(self, order: str, span: Span, counter: ReadCounter | None = None) -> NDArray[np.int64]:
        """(span,) graph ids of the vertices at these places of the order ``rows`` or ``columns``."""
        if self.permutation == "partition":
            return self.vertex_data("vertex", order, span, counter)
        permutation = self.row_order if order == "rows" else self.column_order
        places = np.arange(*span, dtype=np.int64)
        return permutation.inverse(places) if permutation else places

    def places(self, order: str, vertex: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places of vertices in the order ``rows`` or ``columns``; the inverse of :meth:`vertex_ids`.

        Raises:
            InputError: the order is that of a partition, which is stored by place only.
        """
        if self.permutation == "partition":
            raise InputError(f"{self.artifact.path}: the places of the vertices are not stored by id")
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
        """Rows of an array such as ``feature``, ``label``, ``split`` or ``degree`` at these places of an order.

        Peak memory is the rows, in ``dtype`` if it is given, and some chunks.
        """
        order = order if self.permutation == "double" else "rows"
        record = self.artifact.array(f"{order_path(order, 0)}/{name}").record
        rows = np.empty((span[1] - span[0], *record.shape[1:]), dtype or record.dtype)
        for row, part in overlapped(span, self.num_vertices, self.grid[0]):
            reader = self.artifact.array(f"{order_path(order, row)}/{name}", counter)
            first = split_range(self.num_vertices, self.grid[0], row)[0]
            for start, stop in _steps(reader, part[0] - first, part[1] - first):
                rows[first + start - span[0] : first + stop - span[0]] = reader.read(start, stop)
        return rows


def _steps(reader: ArrayReader, start: int, stop: int) -> Iterator[Span]:
    """Rows ``start`` to ``stop`` a chunk at a time, or a few small ones."""
    row_bytes = reader.dtype.itemsize * int(np.prod(reader.shape[1:], dtype=np.int64))
    chunks = max(1, _STEP_BYTES // max(1, row_bytes * reader.chunk_rows)) * reader.chunk_rows
    while start < stop:
        following = min(start - start % reader.chunk_rows + chunks, stop)
        yield start, following
        start = following


def _order(content: dict[str, Any] | None) -> KeyedPermutation | None:
    return None if content is None or content == PARTITION_ORDER else KeyedPermutation.from_json(content)
