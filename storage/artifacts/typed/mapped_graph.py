"""The relations of a graph with types for random access, mapped from files that all processes of a node share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph
from gnnloom.storage.artifacts.whole_graph import column_chunks, pointer_chunks
from gnnloom.storage.disk.value_rules import Ascending, Within
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.mapped_copy import ArrayContent, open_copy
from gnnloom.storage.matrix.csr import CSR, index_dtype

#: Arrays of the matrix of a relation; all others are columns of its edges.
_INDPTR: Final = "indptr"
_INDICES: Final = "indices"


@dataclass(frozen=True)
class MappedRelation:
    """The edges of one relation, for random access.

    Attributes:
        name: name of the relation.
        source, target: names of the types.
        matrix: pattern of the edges: row i lists the vertices with edges to vertex i. Its arrays cannot be written.
        columns: (nnz, ...) values of the edges in the order of the entries, by name: ``weight``, ``time``, ``feature``
            and ``label``, as far as the relation has them.
    """

    name: str
    source: str
    target: str
    matrix: CSR
    columns: Mapping[str, NDArray[Any]]

    @property
    def edge_type(self) -> tuple[str, str, str]:
        """Source type, name and target type."""
        return self.source, self.name, self.target


def map_relations(graph: TypedGraph) -> dict[str, MappedRelation]:
    """Map all relations of a graph, by name; raises as :func:`~gnnloom.storage.format.mapped_copy.open_copy`."""
    arrays = open_copy(graph.artifact, relation_contents(graph))
    found = {}
    for each in graph.relations:
        own = {name.partition(".")[2]: array for name, array in arrays.items() if name.partition(".")[0] == each.name}
        matrix = CSR(0, own.pop(_INDPTR), own.pop(_INDICES), None, each.num_columns)
        found[each.name] = MappedRelation(each.name, each.source.name, each.target.name, matrix, own)
    return found


def relation_contents(graph: TypedGraph) -> dict[str, ArrayContent]:
    """The arrays of all relations, by the name of the relation, a dot, and the name of the array."""
    return {
        f"{relation.name}.{name}": content
        for relation in graph.relations
        for name, content in _contents(relation).items()
    }


def _contents(relation: Relation) -> dict[str, ArrayContent]:
    found = matrix_contents(relation)
    for name in relation.edge_columns:
        found[name] = ArrayContent.of(relation.artifact.array(f"{relation.prefix}{name}"))
    if not relation.edge_columns and relation.num_blocks:
        # A single number of each edge is stored in the blocks.
        for name, opened in (("weight", relation.weights), ("time", relation.times)):
            first = opened(0)
            if first is not None:
                found[name] = ArrayContent((relation.nnz,), first.dtype, None, _in_blocks(relation, opened))
    return found


def matrix_contents(matrix: BlockMatrix) -> dict[str, ArrayContent]:
    """The pattern of a matrix."""
    rows, columns, nnz = matrix.num_rows, matrix.num_columns, matrix.nnz
    pointers = ArrayContent((rows + 1,), np.dtype(np.int64), Ascending(nnz), lambda: pointer_chunks(matrix))
    indices = ArrayContent((nnz,), index_dtype(columns), Within(0, columns), lambda: column_chunks(matrix))
    return {_INDPTR: pointers, _INDICES: indices}


def _in_blocks(relation: Relation, opened: Callable[[int], ArrayReader | None]) -> Callable[[], Iterator[NDArray[Any]]]:
    def chunks() -> Iterator[NDArray[Any]]:
        for number in range(relation.num_blocks):
            stored = opened(number)
            yield from () if stored is None else stored.chunks()

    return chunks
