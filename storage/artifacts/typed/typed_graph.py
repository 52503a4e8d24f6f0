"""A stored graph with types: one numbering of all vertices in which each type is a range, and a matrix per relation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.typed.source_ids import TYPES, SourceIds
from gnnloom.storage.artifacts.typed.typed_names import check_relation_names, check_type_name, reverse_name
from gnnloom.storage.disk.files import parsing
from gnnloom.storage.errors import CorruptError, InputError, NotFoundError
from gnnloom.storage.format.arrays import ArrayReader, ReadCounter
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.wording import counted, did_you_mean

if TYPE_CHECKING:
    import scipy.sparse

#: Arrays with a value for each edge of a relation.
EDGE_ARRAYS: Final = ("weight", "time", "feature", "label")
#: Name of the array in a block that has the positions of edges among the edges of a relation.
POSITION: Final = "row"


@dataclass(frozen=True)
class VertexType:
    """The vertices of one type: ``first`` to ``first + count`` in the numbering of all vertices.

    Within its type, a vertex is called by its number from 0.
    """

    name: str
    first: int
    count: int

    @classmethod
    def all_of(cls, facts: Mapping[str, Any]) -> tuple[VertexType, ...]:
        """The types that an artifact lists in its facts."""
        return tuple(cls(each["name"], each["first"], each["count"]) for each in facts["types"])


def type_folder(name: str) -> str:
    """Prefix of the paths of a type's arrays."""
    return f"{TYPES}/{name}/"


def relation_folder(name: str) -> str:
    """Prefix of the paths of a relation's arrays."""
    return f"relation/{name}/"


class Relation(BlockMatrix):
    """The edges of one relation: row i of the matrix lists the vertices of the source type with edges to vertex i.

    Rows are numbered within the target type, and columns within the source type.

    Attributes:
        name: name of the relation.
        source, target: types of the vertices.
    """

    def __init__(self, artifact: Artifact, types: Mapping[str, VertexType], facts: Mapping[str, Any]) -> None:
        self.name: str = facts["name"]
        self.source, self.target = types[facts["source"]], types[facts["target"]]
        #: Counts from the tables: edges, self loops, duplicates, dropped edges.
        self.facts = facts
        #: Names of the table's columns by array: ``weight``, ``time``, ``feature`` or ``label``. Empty if a number that
        #: the edges have, if any, is stored in the blocks.
        self.edge_columns: dict[str, list[str]] = facts.get("columns", {})
        #: The relation whose columns the edges have: this one, or the one that links hold edges out of.
        self.whole: Relation = self
        shape = self.target.count, self.source.count
        super().__init__(artifact, relation_folder(self.name), shape, facts)

    def __repr__(self) -> str:
        names = list(self.edge_columns) or ["weight"] * self.weighted + ["time"] * self.has_times
        values = f" with {' and '.join(f'{name}s' for name in names)}" if names else ""
        return f"Relation({' '.join(self.edge_type)}: {counted(self.nnz, 'edge')}{values})"

    @property
    def edge_type(self) -> tuple[str, str, str]:
        """Source type, name and target type."""
        return self.source.name, self.name, self.target.name

    def column(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Values of edges ``start`` to ``stop``, in the order in which they are stored.

        Args:
            name: ``weight`` (float32), ``time`` (int64 or float64), ``feature`` (float32 or float16, with a column
                for each of the table) or ``label`` (int64; a number of :attr:`classes` if the table has words).

        Raises:
            NotFoundError: the edges do not have such values next to them.
        """
        if name not in self.edge_columns:
            raise NotFoundError(f"{self.where}: no {name} next to the edges; {_known(name, list(self.edge_columns))}")
        return self.artifact.array(f"{self.prefix}{name}").read(start, stop)

    @property
    def classes(self) -> list[str]:
        """The words of the labels of edges, by number; empty if the labels are numbers."""
        return list(self.facts.get("classes", []))

    def rows(self, number: int, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """(num_edges,) int64 number of the row of the table from which each edge of a block comes, from 0.

        Args:
            start, stop: edges of the block; by default all.

        Raises:
            NotFoundError: the relation does not keep it, as it has no columns next to the edges.
        """
        if not self.nnz and self.edge_columns:
            return np.empty(0, np.int64)
        # The table may have edges of other relations.
        bounds = 0, self.facts.get("table_rows", self.facts["edges_in"])
        return self.artifact.array(f"{self.block_path(number)}/row", bounds=bounds).read(start, stop)

    def first_edge(self, number: int) -> int:
        """Position of the first edge of a block."""
        return sum(self.block_nnz[:number])

    def block(self, number: int, counter: ReadCounter | None = None) -> CSR:
        """Read one block of rows; ``counter`` counts the bytes read."""
        found = super().block(number, counter)
        if "weight" not in self.edge_columns:
            return found
        first = self.first_edge(number)
        return replace(found, data=self.column("weight", first, first + self.block_nnz[number]))

    def edge_blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any] | None]]:
        """Sources, targets, and weights or times, of the edges of each row block, in the order in which it is stored.

        Values that are stored next to the edges are read by :meth:`column`.

        Yields:
            (num_edges,) int64 twice, numbered within their types; (num_edges,) values, or None.
        """
        for number in range(self.num_blocks):
            pointers = self.pointers(number)
            target = np.repeat(np.arange(len(pointers) - 1, dtype=np.int64), np.diff(pointers))
            values = self.times(number) if self.has_times else self.weights(number)
            yield (
                self.columns(number).read().astype(np.int64),
                target + self.block_rows[number],
                None if values is None else values.read(),
            )


class KeptEdges(Relation):
    """The edges of a relation that links do not hold out, with their positions in the relation.

    Attributes:
        whole: the relation with all edges, which has their columns.
    """

    def __init__(self, artifact: Artifact, whole: Relation, facts: Mapping[str, Any]) -> None:
        types = {each.name: each for each in (whole.source, whole.target)}
        super().__init__(artifact, types, {**whole.facts, **facts})
        self.whole = whole
        if self.block_rows != whole.block_rows or self.nnz > whole.nnz:
            raise CorruptError(f"{self.where}: other rows, or more edges, than {whole.where}")

    def column(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """See :meth:`Relation.column`."""
        position = self.edge_positions(start, stop)
        first, last = (int(position[0]), int(position[-1]) + 1) if len(position) else (0, 0)
        found: NDArray[Any] = self.whole.column(name, first, last)[position - first]
        return found

    def rows(self, number: int, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """See :meth:`Relation.rows`."""
        before = self.first_edge(number)
        last = before + (self.block_nnz[number] if stop is None else stop)
        position = self.edge_positions(before + start, last) - self.whole.first_edge(number)
        if not len(position):
            return np.empty(0, np.int64)
        found: NDArray[np.int64] = self.whole.rows(number, int(position[0]), int(position[-1]) + 1)[
            position - position[0]
        ]
        return found

    def edge_positions(self, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """(stop - start,) int64 positions of edges among all edges of the relation, ascending."""
        stop, found, first = self.nnz if stop is None else stop, [np.empty(0, np.int64)], 0
        for number, nnz in enumerate(self.block_nnz):
            begin, end = max(start, first) - first, min(stop, first + nnz) - first
            stored = positions(self, number, self.whole.nnz) if begin < end else None
            if stored is not None:
                found.append(stored.read(begin, end))
            first += nnz
        return np.concatenate(found)


def positions(matrix: BlockMatrix, number: int, num_edges: int) -> ArrayReader | None:
    """Open the positions of the entries of a block among the edges of a relation; None if there are no entries.

    Args:
        num_edges: edges of the relation.
    """
    path = f"{matrix.block_path(number)}/{POSITION}"
    return matrix.artifact.array(path, bounds=(0, num_edges)) if path in matrix.artifact or matrix.nnz else None


class ReverseRelation:
    """The edges of a relation in the other direction, which are derived from it.

    Attributes:
        relation: the stored relation.
        name: ``rev_`` and the name of the relation.
        source, target: types of the vertices.
        nnz: number of edges.
    """

    def __init__(self, relation: Relation) -> None:
        self.relation, self.name = relation, reverse_name(relation.name)
        self.source, self.target, self.nnz = relation.target, relation.source, relation.nnz

    def __repr__(self) -> str:
        return f"ReverseRelation({' '.join(self.edge_type)}: {counted(self.nnz, 'edge')})"

    @property
    def edge_type(self) -> tuple[str, str, str]:
        """Source type, name and target type."""
        return self.source.name, self.name, self.target.name

    def to_scipy(self, max_nnz: int = 200_000_000) -> scipy.sparse.csr_array[Any]:
        """Read the transposed matrix of the relation into memory; raises as :meth:`Relation.to_scipy`."""
        # Its types have the result of tocsr as a union with other formats.
        transposed: scipy.sparse.csr_array[Any] = self.relation.to_scipy(max_nnz).T.tocsr()
        return transposed


class TypedGraph:
    """A graph whose vertices have types and whose edges belong to relations between two types.

    A graph without the edges that links hold out of one relation stores that relation only; its types and all other
    relations are in the graph that the links were drawn from.

    Attributes:
        origin: the graph that links hold edges out of; None for a graph that was made from tables.
    """

    def __init__(self, artifact: Artifact) -> None:
        """Read the graph's facts from the manifest.

        Raises:
            InputError: the graph has no types.
            CorruptError: the manifest does not describe a graph with types.
            NotFoundError: the graph that links hold edges out of is gone.
        """
        self.artifact = artifact
        if artifact.version != TYPED_VERSION:
            raise InputError(f"{artifact.path}: a graph without types; Dataset.graph reads it")
        with parsing(artifact.path / MANIFEST, "the manifest of a graph with types"):
            self.num_vertices: int = artifact.sizes["vertex"]
            #: The types, in the order of their vertices.
            self.types = VertexType.all_of(artifact.facts)
            self._check_types()
            by_name = {each.name: each for each in self.types}
            self.origin = self._origin()
            own = {each["name"]: each for each in artifact.facts["relations"]}
            #: The relations, by name.
            self.relations: tuple[Relation, ...]
            if self.origin is None:
                self.relations = tuple(Relation(artifact, by_name, each) for each in own.values())
            else:
                self.relations = tuple(
                    KeptEdges(artifact, each, own.pop(each.name)) if each.name in own else each
                    for each in self.origin.relations
                )
                if own or self.origin.types != self.types:
                    raise CorruptError(f"{artifact.path}: other types or relations than {self.origin.artifact.path}")
            self._check_relations()

    def _origin(self) -> TypedGraph | None:
        """Open the graph that links hold edges out of."""
        key = self.artifact.inputs.get("graph")
        if key is None:
            return None
        found = Artifact(self.artifact.path.parent / Path(str(key)).name)
        if "graph" in found.inputs:
            raise CorruptError(f"{self.artifact.path}: made from a graph without held-out edges, {found.path}")
        return TypedGraph(found)

    def _check_types(self) -> None:
        """Refuse names that lead out of the artifact, and types that are not consecutive ranges of all vertices."""
        ends = list(accumulate((each.count for each in self.types), initial=0))
        for each, first in zip(self.types, ends, strict=False):
            check_type_name(each.name, "type")
            if each.first != first or each.count < 0:
                raise CorruptError(f"{self.artifact.path}: type {each.name} begins at {each.first}, expected {first}")
        if ends[-1] != self.num_vertices or len({each.name for each in self.types}) != len(self.types):
            raise CorruptError(f"{self.artifact.path}: the types do not cover {counted(self.num_vertices, 'vertex')}")

    def _check_relations(self) -> None:
        names = [check_type_name(each.name, "relation") for each in self.relations]
        check_relation_names(names)
        if sum(each.nnz for each in self.relations) != self.artifact.facts["nnz"]:
            raise CorruptError(f"{self.artifact.path}: the relations do not add up to the edges in the manifest")

    def __repr__(self) -> str:
        types = ", ".join(f"{each.name} {each.count:,}" for each in self.types)
        relations = ", ".join(f"{' '.join(each.edge_type)} {each.nnz:,}" for each in self.relations)
        return f"TypedGraph({types}; {relations})"

    @property
    def stored_relations(self) -> tuple[Relation, ...]:
        """The relations whose edges this artifact has; the others are in :attr:`origin`."""
        return tuple(each for each in self.relations if each.artifact is self.artifact)

    @property
    def nnz(self) -> int:
        """Edges of all relations."""
        return sum(each.nnz for each in self.relations)

    def type(self, name: str) -> VertexType:
        """A type by its name.

        Raises:
            NotFoundError: the graph has no such type.
        """
        found = next((each for each in self.types if each.name == name), None)
        if found is None:
            raise NotFoundError(f"{self.artifact.path}: no type {name!r}; {_known(name, [t.name for t in self.types])}")
        return found

    def relation(self, name: str) -> Relation:
        """A stored relation by its name; see :meth:`reverse` for the derived ones.

        Raises:
            NotFoundError: the graph has no such relation.
        """
        found = next((each for each in self.relations if each.name == name), None)
        if found is None:
            known = _known(name, [each.name for each in self.relations])
            raise NotFoundError(f"{self.artifact.path}: no relation {name!r}; {known}")
        return found

    def reverse(self, name: str) -> ReverseRelation:
        """The reverse of a relation, by the name of the relation or of its reverse.

        Raises:
            NotFoundError: the graph has no such relation.
        """
        names = {each.name for each in self.relations}
        return ReverseRelation(self.relation(name if name in names else reverse_name(name)))

    def ids(self, name: str) -> SourceIds:
        """The ids or names of a type's vertices in the source, by the numbers of the vertices within the type.

        Raises:
            NotFoundError: the graph has no such type.
        """
        return SourceIds((self.origin or self).artifact, type_folder(name), self.type(name).count)

    def original_id(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """(stop - start,) int64 ids of vertices of a type in the source.

        Raises:
            NotFoundError: the graph has no such type.
        """
        return self.ids(name).original_id(start, stop)

    def original_name(self, name: str, start: int = 0, stop: int | None = None) -> list[str]:
        """Names of vertices of a type in the source.

        Raises:
            NotFoundError: the graph has no such type, or its vertices have numbers.
        """
        return self.ids(name).original_name(start, stop)


def _known(name: str, names: Sequence[str]) -> str:
    return did_you_mean(name, names, "there are")
