"""The relations of a graph with types as one adjacency over all vertices: the union of their matrices.

Entry (i, j) of the union is there if an edge of any relation leads from vertex j to vertex i. Parts that own rows of
the union exchange one row for each vertex, however many relations need it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.offsets import check_offsets, check_some_offsets
from gnnloom.storage.artifacts.typed.reverses import Reverse, Reverses, reverses_of
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.ranges import Span

#: Which matrices are united: relations, their reverses, or both.
FORWARD: Final = "forward"
BACKWARD: Final = "backward"
BOTH: Final = "both"
#: Parameters of a stored union: its direction, and the types whose columns or rows it lacks.
UNION: Final = "union"
_WITHOUT_SOURCES: Final = "without_sources"
_WITHOUT_TARGETS: Final = "without_targets"


@dataclass(frozen=True)
class UnionSpec:
    """Chooses the matrices of a union.

    Attributes:
        direction: ``FORWARD`` for the relations, ``BACKWARD`` for their reverses, or ``BOTH``.
        without_sources: names of types whose columns the union lacks, because every rank holds their rows.
        without_targets: names of types whose rows the union lacks.
    """

    direction: str = FORWARD
    without_sources: tuple[str, ...] = ()
    without_targets: tuple[str, ...] = ()

    @classmethod
    def of_parameters(cls, parameters: Mapping[str, Any]) -> UnionSpec:
        """The choice that a stored union was made by."""
        without = (tuple(parameters.get(name, ())) for name in (_WITHOUT_SOURCES, _WITHOUT_TARGETS))
        return cls(str(parameters[UNION]), *without)

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the artifact."""
        without = {_WITHOUT_SOURCES: list(self.without_sources), _WITHOUT_TARGETS: list(self.without_targets)}
        return {UNION: self.direction, **{name: types for name, types in without.items() if types}}

    @property
    def asked(self) -> dict[str, Any]:
        """Parameters by which :meth:`Dataset.find` finds the artifact, and no other union."""
        return {_WITHOUT_SOURCES: "", _WITHOUT_TARGETS: "", **self.parameters}

    @property
    def is_symmetric(self) -> bool:
        """Whether the union equals its transpose."""
        return self.direction == BOTH and self.without_sources == self.without_targets

    @property
    def transposed(self) -> UnionSpec:
        """The choice of the transpose of the union."""
        direction = {FORWARD: BACKWARD, BACKWARD: FORWARD, BOTH: BOTH}[self.direction]
        return UnionSpec(direction, self.without_targets, self.without_sources)

    def has(self, source: str, target: str) -> bool:
        """Whether the union has the matrices between two types."""
        return source not in self.without_sources and target not in self.without_targets


def least_entries(graph: TypedGraph, spec: UnionSpec) -> int:
    """Number of entries that a union has at least: relations between the same types may have the same edges."""
    found: dict[tuple[str, str], int] = {}
    for each in graph.relations:
        source, target = each.source.name, each.target.name
        ways = [] if spec.direction == BACKWARD else [(source, target)]
        if spec.direction != FORWARD:
            ways.append((target, source))
        for ends in ways:
            if spec.has(*ends):
                found[ends] = max(found.get(ends, 0), each.nnz - each.parallel)
    return sum(found.values())


@dataclass(frozen=True)
class PlacedMatrix:
    """The matrix of a relation or of a reverse, at its place among all vertices.

    Attributes:
        name: name of the relation or reverse.
        matrix: the stored matrix.
        source, target: names of the types of its columns and rows.
        first_row, first_column: number of the first vertex of the target and of the source type.
    """

    name: str
    matrix: Relation | Reverse
    source: str
    target: str
    first_row: int
    first_column: int

    @property
    def relation(self) -> Relation:
        """The relation whose edges these are."""
        return self.matrix.relation if isinstance(self.matrix, Reverse) else self.matrix

    @property
    def bounds(self) -> list[int]:
        """First row of each block among all vertices, and the end of the last one."""
        return [self.first_row + row for row in self.matrix.block_rows]


@dataclass(frozen=True)
class TypedMatrices:
    """Names some matrices of a graph with types; small and picklable.

    Attributes:
        graph: folder of the graph.
        reverses: folder of the reverses; None for the relations alone.
        spec: direction of the matrices, and the choice of matrices to unite.
    """

    graph: Path
    reverses: Path | None
    spec: UnionSpec = field(default_factory=UnionSpec)

    @classmethod
    def of(cls, graph: TypedGraph, reverses: Reverses | None, spec: UnionSpec) -> TypedMatrices:
        """The matrices of an opened graph."""
        return cls(graph.artifact.path, reverses.artifact.path if reverses else None, spec)

    def opened(self) -> list[PlacedMatrix]:
        """Open the matrices, in the order of the relations: first the relations, then the reverses.

        Raises:
            NotFoundError: the graph or the reverses are gone.
        """
        graph = TypedGraph(Artifact(self.graph))
        direction = self.spec.direction
        found = list(map(_placed, graph.relations)) if direction != BACKWARD else []
        if direction != FORWARD and self.reverses is not None:
            by_name = all_reverses(reverses_of(Artifact(self.reverses)))
            found += [_placed(by_name[each.name]) for each in graph.relations]
        return found

    def united(self) -> list[PlacedMatrix]:
        """Open the matrices that the union has; raises as :meth:`opened`."""
        return [each for each in self.opened() if self.spec.has(each.source, each.target)]


def _placed(matrix: Relation | Reverse) -> PlacedMatrix:
    if isinstance(matrix, Reverse):
        source, target = matrix.relation.target, matrix.relation.source
    else:
        source, target = matrix.source, matrix.target
    return PlacedMatrix(matrix.name, matrix, source.name, target.name, target.first, source.first)


def all_reverses(reverses: Reverses) -> dict[str, Reverse]:
    """The reverse of each relation; relations without held-out edges have theirs in the origin."""
    found = {} if reverses.origin is None else all_reverses(reverses.origin)
    return found | {each.relation.name: each for each in reverses.relations}


@dataclass(frozen=True)
class UnionRows:
    """Consecutive rows of a union.

    Attributes:
        first: number of the first row.
        indptr: (num_rows + 1,) int64 positions at which the entries of each row begin, from 0, and their end.
        indices: (nnz,) columns, ascending within a row, each once.
    """

    first: int
    indptr: NDArray[np.int64]
    indices: NDArray[Any]


def union_rows(
    matrices: Sequence[PlacedMatrix], rows: Span, num_vertices: int, scratch: Scratch = BESIDE
) -> Iterator[UnionRows]:
    """Unite the rows of one block of a union, some at a time.

    Args:
        rows: first and last (exclusive) row.
        scratch: its ``step_entries`` is the number of rows whose pointers are in memory at a time, and half the number
            of entries, unless a single row has more.

    Raises:
        CorruptError: row pointers or columns are out of range.
    """
    having = [each for each in matrices if each.bounds[0] <= rows[0] and rows[1] <= each.bounds[-1]]
    step = scratch.step_entries
    for start in range(*rows, step):
        stop = min(start + step, rows[1])
        pointers = [_pointers(each, start, stop) for each in having]
        ends, begin = np.zeros(stop - start + 1, np.int64), 0
        for each in pointers:
            ends += each - each[0]
        while begin < stop - start:
            end = max(begin + 1, int(np.searchsorted(ends, ends[begin] + 2 * step, side="right")) - 1)
            parts = [
                (own[begin : end + 1], _columns(each, start, own[begin], own[end]))
                for each, own in zip(having, pointers, strict=True)
                if own[end] > own[begin]
            ]
            # Rows without edges have no parts.
            repeats = len(parts) > 1 or (bool(parts) and any(each.matrix.parallel for each in having))
            yield _united(start + begin, end - begin, parts, num_vertices, repeats=repeats)
            begin = end


def _pointers(placed: PlacedMatrix, start: int, stop: int) -> NDArray[np.int64]:
    """Read the pointers of some rows of one block, with the end of the last row."""
    matrix, number = placed.matrix, _block_of(placed, start)
    stored, before = matrix.stored_pointers(number), placed.bounds[number]
    pointers = stored.read(start - before, stop - before + 1)
    is_whole = (start, stop) == tuple(placed.bounds[number : number + 2])
    check = check_offsets if is_whole else check_some_offsets
    check(stored.where, pointers, matrix.stored_nonzeros(number))
    return pointers


def _columns(placed: PlacedMatrix, row: int, begin: int, end: int) -> NDArray[np.int64]:
    """(end - begin,) int64 columns, among all vertices, of entries of the block with a row."""
    read = placed.matrix.columns(_block_of(placed, row)).read(int(begin), int(end))
    columns: NDArray[np.int64] = read.astype(np.int64) + placed.first_column
    return columns


def _block_of(placed: PlacedMatrix, row: int) -> int:
    return bisect_right(placed.bounds, row) - 1


def _united(
    first: int,
    num_rows: int,
    parts: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    num_vertices: int,
    *,
    repeats: bool,
) -> UnionRows:
    """Unite the same rows of some matrices.

    Args:
        parts: (num_rows + 1,) int64 pointers, from any position, and columns of the rows of each matrix.
        repeats: whether an entry may be there several times.
    """
    dtype, bits = index_dtype(num_vertices), np.int64(max(1, (num_vertices - 1).bit_length()))
    if not repeats:
        pointers, columns = parts[0] if parts else (np.zeros(num_rows + 1, np.int64), np.empty(0, np.int64))
        return UnionRows(first, pointers - pointers[0], columns.astype(dtype))
    keys = np.concatenate([(_rows(pointers) << bits) | columns for pointers, columns in parts])
    keys = distinct(keys, overwrite=True)
    indptr = np.searchsorted(keys, np.arange(num_rows + 1, dtype=np.int64) << bits)
    return UnionRows(first, indptr.astype(np.int64), (keys & ((np.int64(1) << bits) - 1)).astype(dtype))


def _rows(pointers: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(pointers) - 1, dtype=np.int64), np.diff(pointers))


def union_of(artifact: Artifact) -> TypedMatrices:
    """The matrices that a stored union was made from."""
    folder, key = artifact.path.parents[1], artifact.inputs.get("transpose")
    reverses = None if key is None else artifact.path.parent / Path(key).name
    graph = folder / "graph" / Path(artifact.inputs["graph"]).name
    return TypedMatrices(graph, reverses, UnionSpec.of_parameters(artifact.parameters))


def row_entries(matrices: Sequence[PlacedMatrix], start: int, stop: int) -> NDArray[np.int64]:
    """(stop - start,) int64 entries that all matrices together have in the rows of some vertices."""
    total = np.zeros(stop - start, np.int64)
    for each in matrices:
        first, last = max(start, each.first_row), min(stop, each.first_row + each.matrix.num_rows)
        if first < last:
            total[first - start : last - start] += each.matrix.degree(first - each.first_row, last - each.first_row)
    return total


def is_union(artifact: Artifact) -> bool:
    """Whether a transpose is a union of relations."""
    return UNION in artifact.parameters
