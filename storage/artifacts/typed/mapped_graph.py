"""The relations of a graph with types for random access, mapped from files that all processes of a node share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph, positions
from gnnloom.storage.artifacts.whole_graph import column_chunks, pointer_chunks
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.disk.value_rules import Ascending, Within
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.mapped_copy import ArrayContent, open_copy
from gnnloom.storage.matrix.csr import CSR, index_dtype

#: Arrays of the matrix of a relation; all others are columns of its edges.
_INDPTR: Final = "indptr"
_INDICES: Final = "indices"
#: Positions of entries among the edges of the relation whose columns they have.
_POSITION: Final = "position"


@dataclass(frozen=True)
class MappedRelation:
    """The edges of one relation, for random access.

    Attributes:
        name: name of the relation.
        source, target: names of the types.
        matrix: pattern of the edges: row i lists the vertices with edges to vertex i. Its arrays cannot be written.
        columns: (nnz, ...) values of the edges by name: ``weight``, ``time``, ``feature`` and ``label``, as far as the
            relation has them, in the order of :meth:`edges`.
        position: (nnz,) int64 positions of the entries among the edges of the relation whose columns they have, for a
            reverse and for a relation without held-out edges; None for a relation with all edges, in this order.
    """

    name: str
    source: str
    target: str
    matrix: CSR
    columns: Mapping[str, NDArray[Any]]
    position: NDArray[np.int64] | None = None

    @property
    def edge_type(self) -> tuple[str, str, str]:
        """Source type, name and target type."""
        return self.source, self.name, self.target

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """All arrays."""
        position = [] if self.position is None else [self.position]
        return [self.matrix.indptr, self.matrix.indices, *self.columns.values(), *position]

    def edges(self, entry: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_entries,) int64 positions of entries among the edges of the relation, in the order of its columns."""
        return entry if self.position is None else take_rows(self.position, entry)

    def values(self, name: str, entry: NDArray[np.int64]) -> NDArray[Any]:
        """(num_entries, ...) values of a column for some entries of the matrix."""
        return take_rows(self.columns[name], self.edges(entry))


def map_relations(graph: TypedGraph, names: Collection[str] | None = None) -> dict[str, MappedRelation]:
    """Map relations of a graph, by name; raises as :func:`~gnnloom.storage.format.mapped_copy.open_copy`.

    Args:
        names: the relations to map; by default all.
    """
    found = {} if graph.origin is None else map_relations(graph.origin, names)
    stored = [each for each in graph.stored_relations if names is None or each.name in names]
    if not stored:
        return found
    contents, own_names = relation_contents(graph), {each.name for each in stored}
    wanted = [path for path in contents if path.rpartition(".")[0] in own_names]
    arrays = open_copy(graph.artifact, contents, wanted)
    of_relations = dict[str, dict[str, NDArray[Any]]]()
    for path, array in arrays.items():
        relation, _, name = path.rpartition(".")
        of_relations.setdefault(relation, {})[name] = array
    for each in stored:
        own = of_relations[each.name]
        matrix = CSR(0, own.pop(_INDPTR), own.pop(_INDICES), None, each.num_columns)
        position = own.pop(_POSITION, None)
        columns = own if position is None else found[each.name].columns
        found[each.name] = MappedRelation(each.name, each.source.name, each.target.name, matrix, columns, position)
    return found


def map_reverses(reverses: Reverses, relations: Mapping[str, MappedRelation]) -> dict[str, MappedRelation]:
    """Map the reverses of relations, by name; raises as :func:`map_relations`.

    Args:
        relations: the mapped relations, whose columns they share.
    """
    found = {} if reverses.origin is None else map_reverses(reverses.origin, relations)
    arrays = open_copy(reverses.artifact, reverse_contents(reverses))
    for each in reverses.relations:
        indptr, indices, position = (arrays[f"{each.name}.{name}"] for name in (_INDPTR, _INDICES, _POSITION))
        of, matrix = relations[each.relation.name], CSR(0, indptr, indices, None, each.num_columns)
        found[each.name] = MappedRelation(each.name, of.target, of.source, matrix, of.columns, position)
    return found


def map_pattern(graph: TypedGraph, name: str) -> CSR:
    """Map the pattern of one relation, without its columns; raises as :func:`map_relations`."""
    relation = graph.relation(name)
    holder = graph if graph.origin is None or relation.artifact is graph.artifact else graph.origin
    return _mapped_pattern(relation, name, relation_contents(holder))


def map_reverse_pattern(reverses: Reverses, name: str) -> CSR:
    """Map the pattern of the reverse of a relation; raises as :func:`map_relations`.

    Args:
        name: name of the relation.
    """
    found = next((each for each in reverses.relations if each.relation.name == name), None)
    if found is None and reverses.origin is not None:
        return map_reverse_pattern(reverses.origin, name)
    if found is None:
        raise NotFoundError(f"{reverses.artifact.path}: no reverse of relation {name!r}")
    return _mapped_pattern(found, found.name, reverse_contents(reverses))


def _mapped_pattern(matrix: BlockMatrix, name: str, contents: dict[str, ArrayContent]) -> CSR:
    wanted = [f"{name}.{_INDPTR}", f"{name}.{_INDICES}"]
    arrays = open_copy(matrix.artifact, contents, wanted)
    indptr, indices = (arrays[path] for path in wanted)
    return CSR(0, indptr, indices, None, matrix.num_columns)


def reverse_contents(reverses: Reverses) -> dict[str, ArrayContent]:
    """The arrays of all reverses, by the name of the reverse, a dot, and the name of the array."""
    found = dict[str, ArrayContent]()
    for each in reverses.relations:
        own = {**matrix_contents(each), _POSITION: _positions(each, each.relation.whole.nnz)}
        found |= {f"{each.name}.{name}": content for name, content in own.items()}
    return found


def _positions(matrix: BlockMatrix, num_edges: int) -> ArrayContent:
    chunks = _in_blocks(matrix.num_blocks, lambda number: positions(matrix, number, num_edges))
    return ArrayContent((matrix.nnz,), np.dtype(np.int64), Within(0, num_edges), chunks)


def relation_contents(graph: TypedGraph) -> dict[str, ArrayContent]:
    """The arrays of the relations that a graph stores, by the names of relation and array with a dot between them."""
    return {
        f"{relation.name}.{name}": content
        for relation in graph.stored_relations
        for name, content in _contents(relation).items()
    }


def _contents(relation: Relation) -> dict[str, ArrayContent]:
    found = matrix_contents(relation)
    if relation.whole is not relation:
        return found | {_POSITION: _positions(relation, relation.whole.nnz)}
    for name in relation.edge_columns:
        found[name] = ArrayContent.of(relation.artifact.array(f"{relation.prefix}{name}"))
    if not relation.edge_columns and relation.num_blocks:
        # A single number of each edge is stored in the blocks.
        for name, opened in (("weight", relation.weights), ("time", relation.times)):
            first = opened(0)
            if first is not None:
                found[name] = ArrayContent((relation.nnz,), first.dtype, None, _in_blocks(relation.num_blocks, opened))
    return found


def matrix_contents(matrix: BlockMatrix) -> dict[str, ArrayContent]:
    """The pattern of a matrix."""
    rows, columns, nnz = matrix.num_rows, matrix.num_columns, matrix.nnz
    pointers = ArrayContent((rows + 1,), np.dtype(np.int64), Ascending(nnz), lambda: pointer_chunks(matrix))
    indices = ArrayContent((nnz,), index_dtype(columns), Within(0, columns), lambda: column_chunks(matrix))
    return {_INDPTR: pointers, _INDICES: indices}


def _in_blocks(num_blocks: int, opened: Callable[[int], ArrayReader | None]) -> Callable[[], Iterator[NDArray[Any]]]:
    """Function that yields the chunks of an array of each block."""

    def chunks() -> Iterator[NDArray[Any]]:
        for number in range(num_blocks):
            stored = opened(number)
            yield from () if stored is None else stored.chunks()

    return chunks
