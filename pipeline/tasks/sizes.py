"""The sizes with which stages plan: measured ones from manifests of stored artifacts, or stated ones."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph
from gnnloom.storage.artifacts.typed.union import BACKWARD, FORWARD, UnionSpec, all_reverses
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.arrays import ArrayRecord, default_chunk_rows
from gnnloom.storage.matrix.csr import TIME_BYTES, WEIGHT_BYTES, index_dtype

#: Maximum number of rows of a block of a union of relations. Part of the format.
UNION_ROWS: Final = 1 << 22


@dataclass(frozen=True)
class GraphSizes:
    """The sizes of a graph, or of a relation.

    Attributes:
        num_vertices: number of rows.
        weighted: whether nonzeros have weights.
        block_rows, block_nnz: rows and nonzeros of each row block.
        stored_bytes: bytes on disk.
        raw_bytes: bytes of the same arrays in memory.
        has_times: whether nonzeros have times.
        num_sources: number of columns of a relation; None if the matrix is square.
    """

    num_vertices: int
    nnz: int
    symmetric: bool
    weighted: bool
    block_rows: tuple[int, ...]
    block_nnz: tuple[int, ...]
    stored_bytes: int
    raw_bytes: int
    has_times: bool = False
    num_sources: int | None = None

    @classmethod
    def of_relation(cls, relation: Relation) -> GraphSizes:
        """The sizes of a stored relation, without the columns next to its edges."""
        prefix = relation.prefix
        records = [each for name, each in relation.artifact.records.items() if name.startswith(f"{prefix}block/")]
        raw = sum(_raw_bytes(record) for record in records)
        return cls(
            relation.num_rows,
            relation.nnz,
            False,
            relation.weighted,
            tuple(np.diff(relation.block_rows).tolist()),
            tuple(relation.block_nnz),
            raw,
            raw,
            relation.has_times or "time" in relation.edge_columns,
            relation.num_columns,
        )

    @classmethod
    def of_matrix(cls, matrix: BlockMatrix) -> GraphSizes:
        """The sizes of the pattern of a stored matrix."""
        raw = matrix.nnz * int(index_dtype(matrix.num_columns).itemsize) + 16 * matrix.num_rows
        rows, nonzeros = tuple(np.diff(matrix.block_rows).tolist()), tuple(matrix.block_nnz)
        return cls(matrix.num_rows, matrix.nnz, False, False, rows, nonzeros, raw, raw, num_sources=matrix.num_columns)

    def reversed(self) -> GraphSizes:
        """The estimated sizes of the transposed pattern, in the same number of blocks."""
        rows, blocks = self.num_columns, self.num_blocks
        raw = self.nnz * int(index_dtype(self.num_vertices).itemsize) + 16 * rows
        even = _even(rows, blocks), _even(self.nnz, blocks)
        return GraphSizes(rows, self.nnz, False, False, *even, raw, raw, num_sources=self.num_vertices)

    @classmethod
    def of(cls, graph: Graph) -> GraphSizes:
        """The sizes of a stored graph."""
        return cls(
            graph.num_vertices,
            graph.nnz,
            graph.symmetric,
            graph.weighted,
            tuple(np.diff(graph.block_rows).tolist()),
            tuple(graph.block_nnz),
            graph.artifact.stored_bytes(),
            sum(_raw_bytes(record) for record in graph.artifact.records.values()),
            graph.has_times,
        )

    @classmethod
    def even(
        cls,
        num_vertices: int,
        nnz: int,
        *,
        symmetric: bool,
        weighted: bool,
        num_blocks: int,
        stored_bytes: int,
        has_times: bool = False,
    ) -> GraphSizes:
        """The sizes of a graph whose blocks are all alike."""
        entry = index_dtype(num_vertices).itemsize + (WEIGHT_BYTES if weighted else 0)
        entry += TIME_BYTES if has_times else 0
        # A pointer and a degree for every row.
        raw = nnz * entry + 16 * num_vertices
        rows, nonzeros = (_even(total, num_blocks) for total in (num_vertices, nnz))
        return cls(num_vertices, nnz, symmetric, weighted, rows, nonzeros, stored_bytes, raw, has_times)

    def without_times(self) -> GraphSizes:
        """The sizes of the same graph without the times of its edges."""
        if not self.has_times:
            return self
        raw_bytes = self.raw_bytes - TIME_BYTES * self.nnz
        return replace(self, has_times=False, stored_bytes=min(self.stored_bytes, raw_bytes), raw_bytes=raw_bytes)

    @property
    def num_blocks(self) -> int:
        return len(self.block_nnz)

    @property
    def num_columns(self) -> int:
        return self.num_vertices if self.num_sources is None else self.num_sources

    @property
    def entry_bytes(self) -> int:
        """Bytes of a nonzero in memory: the column id and, if there is one, the weight; few stages read the times."""
        return int(index_dtype(self.num_columns).itemsize) + (WEIGHT_BYTES if self.weighted else 0)


@dataclass(frozen=True)
class TypedSizes:
    """The sizes of a graph with types.

    Attributes:
        types: name and number of vertices of each type.
        relations: names of the source and target type and the sizes of each relation, by name.
        reverses: the sizes of the reverse of each relation; estimated if the reverses are not stored.
    """

    types: Mapping[str, int]
    relations: Mapping[str, tuple[str, str, GraphSizes]]
    reverses: Mapping[str, GraphSizes]

    @classmethod
    def of(cls, graph: TypedGraph, reverses: Reverses | None = None) -> TypedSizes:
        """The sizes of a stored graph."""
        relations = {
            each.name: (each.source.name, each.target.name, GraphSizes.of_relation(each)) for each in graph.relations
        }
        stored = {} if reverses is None else all_reverses(reverses)
        backward = {
            name: GraphSizes.of_matrix(stored[name]) if name in stored else sizes.reversed()
            for name, (_, _, sizes) in relations.items()
        }
        return cls({each.name: each.count for each in graph.types}, relations, backward)

    @classmethod
    def even(cls, types: Mapping[str, int], relations: Mapping[str, tuple[str, str, int]], entries: int) -> TypedSizes:
        """The sizes of a graph whose edges are spread evenly.

        Args:
            types: number of vertices of each type.
            relations: source type, target type and number of edges of each relation.
            entries: entries of a row block.
        """

        def sizes(rows: int, columns: int, nnz: int) -> GraphSizes:
            blocks = max(1, -(-nnz // entries), -(-rows // UNION_ROWS))
            found = GraphSizes.even(rows, nnz, symmetric=False, weighted=False, num_blocks=blocks, stored_bytes=4 * nnz)
            return replace(found, num_sources=columns)

        return cls(
            types,
            {name: (one, to, sizes(types[to], types[one], nnz)) for name, (one, to, nnz) in relations.items()},
            {name: sizes(types[one], types[to], nnz) for name, (one, to, nnz) in relations.items()},
        )

    @property
    def num_vertices(self) -> int:
        return sum(self.types.values())

    @property
    def nnz(self) -> int:
        """Edges of all relations."""
        return sum(sizes.nnz for _, _, sizes in self.relations.values())

    @cached_property
    def first(self) -> Mapping[str, int]:
        """Number of the first vertex of each type."""
        return dict(zip(self.types, accumulate(self.types.values(), initial=0), strict=False))

    def matrices(self, spec: UnionSpec) -> list[tuple[int, GraphSizes]]:
        """Number of the first row, and the sizes, of each matrix of a union: relations, reverses, or both."""
        found = list[tuple[str, str, GraphSizes]]()
        if spec.direction != BACKWARD:
            found += self.relations.values()
        if spec.direction != FORWARD:
            ends = {name: (target, source) for name, (source, target, _) in self.relations.items()}
            found += [(*ends[name], sizes) for name, sizes in self.reverses.items()]
        return [(self.first[target], sizes) for source, target, sizes in found if spec.has(source, target)]

    def union_bounds(self, spec: UnionSpec) -> list[int]:
        """First row of each block of the union, and the number of vertices: no block of a matrix is cut."""
        bounds = {0, self.num_vertices, *self.first.values()}
        for first, sizes in self.matrices(spec):
            bounds.update(accumulate(sizes.block_rows, initial=first))
        # A type that no edge ends in is in no block of a matrix.
        for start, stop in pairwise(sorted(bounds)):
            bounds.update(range(start, stop, UNION_ROWS))
        return sorted(bounds)

    def union_nnz(self, spec: UnionSpec) -> list[int]:
        """Most entries of each block of the union, if entries are spread evenly over the blocks of a matrix."""
        bounds = self.union_bounds(spec)
        total = np.zeros(len(bounds) - 1, np.float64)
        for first, sizes in self.matrices(spec):
            start = first
            for rows, nnz in zip(sizes.block_rows, sizes.block_nnz, strict=True):
                begin, end = bisect_left(bounds, start), bisect_left(bounds, start + rows)
                for number in range(begin, end):
                    total[number] += nnz * (bounds[number + 1] - bounds[number]) / rows
                start += rows
        return [math.ceil(each) for each in total]

    def union(self, spec: UnionSpec) -> GraphSizes:
        """Upper bounds of the sizes of the union, which has an entry of several relations once."""
        bounds, nnz = self.union_bounds(spec), self.union_nnz(spec)
        num_bytes = sum(nnz) * int(index_dtype(self.num_vertices).itemsize) + 24 * self.num_vertices
        rows = tuple(np.diff(bounds).tolist())
        shape = self.num_vertices, sum(nnz), spec.is_symmetric
        return GraphSizes(*shape, False, rows, tuple(nnz), num_bytes, num_bytes)


@dataclass(frozen=True)
class VertexSizes:
    """The sizes of vertex data.

    Attributes:
        num_features: width of the features.
        num_classes: number of classes; 0 if there are none.
        types: dtype and trailing shape of each array.
        chunk_rows: rows of a chunk of each array.
        stored_bytes: bytes on disk.
    """

    num_vertices: int
    num_features: int
    num_classes: int
    types: Mapping[str, tuple[str, tuple[int, ...]]]
    chunk_rows: tuple[int, ...]
    stored_bytes: int

    @classmethod
    def of(cls, vertices: Vertices) -> VertexSizes:
        """The sizes of stored vertex data."""
        artifact = vertices.artifact
        records = {name: artifact.record(name) for name in vertices.names}
        return cls(
            vertices.num_vertices,
            vertices.num_features,
            vertices.num_classes,
            {name: (record.dtype, record.shape[1:]) for name, record in records.items()},
            tuple(artifact.array(name).chunk_rows for name in records),
            artifact.stored_bytes(),
        )

    @classmethod
    def plain(cls, num_vertices: int, num_features: int, num_classes: int, store: str = "float32") -> VertexSizes:
        """Features, one class and a split for every vertex, without compression.

        Args:
            store: dtype of the features.
        """
        types = {"feature": (store, (num_features,)), "label": ("int32", ()), "split": ("uint8", ())}
        chunks = tuple(default_chunk_rows((num_vertices, *shape), np.dtype(kind)) for kind, shape in types.values())
        return cls(num_vertices, num_features, num_classes, types, chunks, num_vertices * _row_bytes(types))

    @property
    def raw_bytes(self) -> int:
        """Bytes of all arrays in memory."""
        return self.num_vertices * self.row_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of one vertex in memory."""
        return _row_bytes(self.types)


@dataclass(frozen=True)
class PartSizes:
    """The sizes of the parts of a partition; each attribute has a number per part.

    Attributes:
        vertices: vertices that the part owns.
        nonzeros: nonzeros of the rows that it owns.
        sent, received: rows of other parts per product with the adjacency.
        sent_back: rows sent per product with the transpose of a directed graph.
        types: vertices of each type, by type, of a graph with types.
    """

    vertices: tuple[int, ...]
    nonzeros: tuple[int, ...]
    sent: tuple[int, ...]
    received: tuple[int, ...]
    sent_back: tuple[int, ...] = ()
    types: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def first_of_types(self, part: int, names: Sequence[str]) -> tuple[int, ...]:
        """Local number of the first vertex of each type in a part, and the number of vertices; empty without types."""
        return tuple(accumulate((self.types[name][part] for name in names), initial=0)) if names else ()

    @classmethod
    def of(cls, partition: Partition) -> PartSizes:
        """The measured sizes of a stored partition."""
        quality = partition.quality
        sent = tuple(quality["volume_per_part"])
        return cls(
            tuple(quality["vertices_per_part"]),
            tuple(quality["load_per_part"]),
            sent,
            tuple(quality.get("receive_volume_per_part", sent)),
            tuple(quality.get("volume_backward_per_part", ())),
            {name: tuple(each) for name, each in quality.get("vertices_per_type", {}).items()},
        )

    @classmethod
    def at_random(
        cls, graph: GraphSizes, num_parts: int, types: Mapping[str, int] | None = None, entries: int | None = None
    ) -> PartSizes:
        """Expected sizes of a random partition of a graph whose degrees are all equal.

        A row with d entries besides its self loop refers to a given part with probability 1 - (1 - 1/P)^d. This
        function of d is concave, so unequal degrees, like any better partition, mean fewer rows.

        Args:
            types: number of vertices of each type of a graph with types.
            entries: entries of all its relations; by default the nonzeros of the graph.
        """
        n, degree = graph.num_vertices, max(0.0, graph.nnz / max(1, graph.num_vertices) - 1)
        reached = 1 - (1 - 1 / num_parts) ** degree
        halo = tuple(int((n - own) * reached) for own in _even(n, num_parts))
        back = () if graph.symmetric or types else halo
        of_types = {name: _even(count, num_parts) for name, count in (types or {}).items()}
        own = tuple(map(sum, zip(*of_types.values(), strict=True))) if of_types else _even(n, num_parts)
        return cls(own, _even(graph.nnz if entries is None else entries, num_parts), halo, halo, back, of_types)


def _even(total: int, count: int) -> tuple[int, ...]:
    """The lengths of ``count`` ranges of about equal length."""
    return tuple((number + 1) * total // count - number * total // count for number in range(count))


def _row_bytes(types: Mapping[str, tuple[str, tuple[int, ...]]]) -> int:
    return sum(np.dtype(kind).itemsize * math.prod(shape) for kind, shape in types.values())


def _raw_bytes(record: ArrayRecord) -> int:
    return math.prod(record.shape) * np.dtype(record.dtype).itemsize
