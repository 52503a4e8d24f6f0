"""Grid shards of a graph with types: the matrix of every relation in blocks, on one permutation of all vertices.

A relation is a matrix over all vertices, whose entries lie in the rows of its target type and the columns of its source
type. Rows and columns are permuted by the orders of the common numbering and cut at i*n//p, as the adjacency of a graph
without types is, so that a position means the same vertex in all relations. There are the same variants; the reverse of
a relation has no blocks of its own, as it is the transposed variant of the relation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.typed.typed_graph import VertexType
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.arrays import ArrayReader, ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.format.vertex_arrays import vertex_bounds
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.matrix.permutation import KeyedPermutation
from gnnloom.storage.matrix.ranges import Span, overlapped, split_range
from gnnloom.storage.shards.grid_shards import StoredCells, cell_path, order_path
from gnnloom.storage.shards.grid_variants import stored_variants
from gnnloom.storage.shards.grid_window import read_windows
from gnnloom.storage.shards.typed_row_shards import ShardedRelation
from gnnloom.storage.wording import counted, did_you_mean


def relation_cell_path(variant: str, row: int, column: int, relation: str) -> str:
    """Path of the block of a relation in a cell."""
    return f"{cell_path(variant, row, column)}/relation/{relation}"


#: Array with the positions of the vertices of a type.
POSITION: Final = "position"


def type_order_path(order: str, row: int, type_name: str) -> str:
    """Path of the vertex data of a type at a range of positions of an order."""
    return f"{order_path(order, row)}/type/{type_name}"


@dataclass(frozen=True)
class _RelationCells(StoredCells["TypedGridShards"]):
    """The blocks of a relation in one variant; implements :class:`gnnloom.storage.shards.grid_window.Cells`.

    Attributes:
        column: name of the column of the edges that takes the place of weights; None for the pattern.
    """

    relation: str
    column: str | None

    @property
    def weighted(self) -> bool:
        return self.column is not None

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        if self.column in {None, "weight"}:
            return np.dtype(np.float32)
        facts = next(each for each in self.shards.artifact.facts["relations"] if each["name"] == self.relation)
        is_float = self.column == "time" and "time_unit" not in facts
        return np.dtype(np.float64 if is_float else np.int64)

    def is_empty(self, row: int, column: int) -> bool:
        """Whether a block has no entries, and so no arrays."""
        return not self.shards.has_entries(self.relation, self.variant, row, column)

    def path(self, row: int, column: int) -> str:
        return relation_cell_path(self.shards.stored_variant(self.variant), row, column, self.relation)

    def array(self, row: int, column: int, name: str) -> ArrayReader:
        return super().array(row, column, (self.column or "") if name == "data" else name)


class TypedGridShards:
    """The grid shards of a graph with types."""

    def __init__(self, artifact: Artifact) -> None:
        """Read the facts from the manifest.

        Raises:
            InputError: the shards are of a graph without types, or row shards.
        """
        if artifact.version != TYPED_VERSION or artifact.parameters["layout"] != "grid":
            raise InputError(f"{artifact.path}: not grid shards of a graph with types")
        self.artifact = artifact
        self.num_vertices: int = artifact.sizes["vertex"]
        #: Edges of all relations.
        self.nnz: int = artifact.facts["nnz"]
        self.grid: tuple[int, int] = tuple(artifact.parameters["grid"])
        self.permutation: str = artifact.parameters["permutation"]
        self.types = VertexType.all_of(artifact.facts)
        self.relations = ShardedRelation.all_of(artifact.facts)
        orders = (artifact.facts[name] for name in ("row_order", "column_order"))
        self.row_order, self.column_order = (
            None if content is None else KeyedPermutation.from_json(content) for content in orders
        )
        self._stored = stored_variants(symmetric=False, double=self.permutation == "double")

    def __repr__(self) -> str:
        size = f"{self.grid[0]} x {self.grid[1]}, {counted(self.num_vertices, 'vertex')}"
        return f"TypedGridShards({size}, {counted(len(self.relations), 'relation')}, {self.permutation})"

    def stored_variant(self, variant: str) -> str:
        """The stored variant that equals this one."""
        return self._stored[variant]

    def relation(self, name: str) -> ShardedRelation:
        """A relation.

        Raises:
            NotFoundError: the shards have no such relation.
        """
        names = [each.name for each in self.relations]
        if name not in names:
            known = did_you_mean(name, names, "there are")
            raise NotFoundError(f"{self.artifact.path}: no relation {name!r}; {known}")
        return self.relations[names.index(name)]

    def has_entries(self, relation: str, variant: str, row: int, column: int) -> bool:
        """Whether the block of a relation in a cell has entries; blocks without entries have no arrays."""
        path = relation_cell_path(self.stored_variant(variant), row, column, relation)
        return f"{path}/indptr" in self.artifact

    def block(
        self, relation: str, variant: str, row: int, column: int, counter: ReadCounter | None = None
    ) -> tuple[CSR, Mapping[str, NDArray[Any]]]:
        """Read the block of a relation in a cell.

        Args:
            counter: counts the bytes read.

        Returns:
            The pattern, with rows and columns local to the cell, and the (nnz, ...) values of each column of the edges,
            in the order of the entries.

        Raises:
            NotFoundError: the shards have no such relation.
        """
        columns = self.relation(relation).columns
        rows, width = (split_range(self.num_vertices, self.grid[axis], (row, column)[axis]) for axis in (0, 1))
        if not self.has_entries(relation, variant, row, column):
            none = np.empty(0, index_dtype(width[1] - width[0]))
            pointers = np.zeros(rows[1] - rows[0] + 1, np.int64)
            return CSR(rows[0], pointers, none, None, width[1] - width[0]), {}
        (pattern,) = self.windows(relation, variant, rows, [width], counter)
        path = relation_cell_path(self.stored_variant(variant), row, column, relation)
        return pattern, {name: self.artifact.array(f"{path}/{name}", counter).read() for name in columns}

    def windows(
        self,
        relation: str,
        variant: str,
        rows: Span,
        columns: Sequence[Span],
        counter: ReadCounter | None = None,
        column: str | None = None,
    ) -> list[CSR]:
        """Read rows of a variant of a relation in several ranges of columns, with little more in memory.

        Args:
            variant: ``even``, ``odd``, ``even_transposed`` or ``odd_transposed``.
            rows: first row, and one past the last.
            columns: ascending ranges of columns, given likewise.
            counter: counts the bytes read.
            column: name of a column of the edges with one value each, such as ``weight`` or ``edge``; None for the
                pattern.

        Returns:
            A CSR matrix for each range of columns, with column ids local to it, the first row as ``row_offset``, and
            the values of the column, of its dtype, as ``data``.

        Raises:
            NotFoundError: there is no such relation, or its edges have no such column.
            InputError: the column has several values for each edge.
        """
        found = self.relation(relation)
        if column is not None and column not in found.columns:
            known = did_you_mean(column, found.columns, "there are") if found.columns else "there are none"
            raise NotFoundError(f"{self.artifact.path}: relation {relation} has no column {column!r}; {known}")
        if column == "feature":
            raise InputError("column 'feature': has several values for each edge; read blocks, or the column 'edge'")
        cells = _RelationCells(self, variant, counter, relation, column)
        return read_windows(cells, rows, columns, cells.stored_dtype)

    def vertex_ids(self, order: str, span: Span) -> NDArray[np.int64]:
        """(stop - start,) int64 ids, among all types, of the vertices at the positions ``span`` of an order.

        Args:
            order: ``rows`` or ``columns``.
        """
        permutation = self.row_order if order == "rows" else self.column_order
        positions = np.arange(*span, dtype=np.int64)
        return permutation.inverse(positions) if permutation else positions

    def vertex_data(
        self, type_name: str, name: str, order: str, span: Span, counter: ReadCounter | None = None
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Read an array such as ``feature`` of the vertices of a type at the positions ``span`` of an order.

        Args:
            order: ``rows`` or ``columns``.
            span: first position, and one past the last.
            counter: counts the bytes read.

        Returns:
            (num_found,) int64 positions, ascending, of the vertices of the type, and their (num_found, ...) values.

        Raises:
            NotFoundError: the type has no such array.
        """
        # Only a double permutation has two orders; for the others, one copy of the vertex data is stored.
        order = order if self.permutation == "double" else "rows"
        paths = [f"{type_order_path(order, row, type_name)}/" for row in range(self.grid[0])]
        having = [path for path in paths if f"{path}{name}" in self.artifact]
        if not having:
            raise NotFoundError(f"{self.artifact.path}: type {type_name!r} has no {name!r}")
        record = self.artifact.record(f"{having[0]}{name}")
        facts = next(each for each in self.artifact.facts["types"] if each["name"] == type_name)
        positions, values = [np.empty(0, np.int64)], [np.empty((0, *record.shape[1:]), record.dtype)]
        for row, shared in overlapped(span, self.num_vertices, self.grid[0]):
            if paths[row] in having:
                found = self.artifact.array(f"{paths[row]}{POSITION}", counter, (0, self.num_vertices)).read()
                start, stop = np.searchsorted(found, shared).tolist()
                stored = self.artifact.array(f"{paths[row]}{name}", counter, vertex_bounds(name, facts))
                positions.append(found[start:stop])
                values.append(stored.read(start, stop))
        return np.concatenate(positions), np.concatenate(values)

    def positions(self, order: str, vertex: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_ids,) int64 positions of vertices in an order; the inverse of :meth:`vertex_ids`."""
        permutation = self.row_order if order == "rows" else self.column_order
        return permutation.forward(vertex) if permutation else vertex
