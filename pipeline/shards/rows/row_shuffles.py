"""The shuffles of row shards: the matrices and vertex data that are routed, the ranges they go to, and their files.

The rows of every rank are cut into ranges that fit a task. Rows and vertex data move to these ranges, columns of other
ranks move from the ranges to their rank, halos move to the ranks that send them, and rows of chunks that several ranges
share move to the task that joins them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from gnnloom.pipeline.shards.rows.row_halo import found_shuffle, halo_shuffle
from gnnloom.pipeline.shards.rows.row_numbers import RangeSizes
from gnnloom.pipeline.shards.rows.row_rank import edge_shuffle
from gnnloom.pipeline.shards.rows.row_routed import ROW_STEPS, VERTEX, RowSteps, row_shuffle, vertex_shuffle
from gnnloom.pipeline.shards.shard_source import RelationSource, ShardSource, TypeSource
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import MIB
from gnnloom.pipeline.tasks.sizes import GraphSizes, PartSizes
from gnnloom.storage.artifacts.typed.union import TypedMatrices
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.format.arrays import CHUNK_BYTES
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.ranges import Span

#: Bytes of the halo of a rank of a single range, while it is found.
ALONE_HALO_BYTES: Final = 64 * MIB
#: Bytes of a vertex of a range: id, nonzeros, where these begin, slot, and what is copied to put the rows in order.
_VERTEX_BYTES: Final = 64
#: Rows of a chunk of ids of vertices without data.
_ROWS_WITHOUT_DATA: Final = CHUNK_BYTES // 8
#: Copies of a halo vertex while it is found, as large as its id: ids, slots, and buffers to sort them.
FOUND_COPIES: Final = 7


@dataclass(frozen=True)
class RowPlaces:
    """Files that tasks read and write, and sizes of their steps; the default files are for plans that are only counted.

    Attributes:
        numbers: folder of the mapped numbers of all vertices.
        matrices: artifacts of the adjacency and, if directed, its transpose.
        vertices: artifact of the vertex data.
        dims: names of all dimensions of each of its arrays.
        relations: the relations of a graph with types.
        of_types: artifact of the vertex data of each type, and names of all dimensions of each of their arrays.
        partition: artifact of the partition of a graph with types.
        steps: sizes of the steps of tasks.
    """

    writer: ArtifactWriter = field(default_factory=lambda: ArtifactWriter(Path(), "shards", ""))
    numbers: Path = Path()
    matrices: tuple[Path, ...] = (Path(), Path())
    vertices: Path = Path()
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    relations: TypedMatrices = field(default_factory=lambda: TypedMatrices(Path(), None))
    of_types: Mapping[str, tuple[Path, Mapping[str, tuple[str, ...]]]] = field(default_factory=dict)
    partition: Path = Path()
    steps: RowSteps = ROW_STEPS


def range_sizes(source: ShardSource, parts: PartSizes, scratch: Scratch) -> RangeSizes:
    """Cut the rows of every rank into ranges whose entries and vertex data fit a task."""
    vertex, nonzero = _VERTEX_BYTES * source.row_records + source.vertex_row_bytes, source.nonzero_bytes
    if source.row_records * source.graph.num_vertices > source.entries + source.graph.num_vertices:
        # Of many relations, a vertex has a row in few, and not in more than it has edges.
        vertex, nonzero = _VERTEX_BYTES + source.vertex_row_bytes, nonzero + _VERTEX_BYTES
    sizes = [vertex * own + nonzero * nnz for own, nnz in zip(parts.vertices, parts.nonzeros, strict=True)]
    most = ALONE_HALO_BYTES // (FOUND_COPIES * index_dtype(source.graph.num_vertices).itemsize)
    num_ranges = [
        # The halo of a rank of several ranges is never in memory.
        max(2 if halo > most else 1, -(-size // scratch.range_bytes))
        for size, halo in zip(sizes, parts.received, strict=True)
    ]
    return RangeSizes(tuple(num_ranges), tuple(sizes), vertex, nonzero)


def vertex_ranges(num_vertices: int, chunk_rows: Sequence[int], num_chunks: int) -> list[int]:
    """Bounds of the ranges that tasks route: whole chunks of the widest array, the same in every run.

    Args:
        chunk_rows: rows of a chunk of each array.
        num_chunks: chunks of a range.
    """
    step = num_chunks * min(chunk_rows, default=num_vertices or 1)
    return [*range(0, num_vertices, step), num_vertices]


def routed_bytes(num_vertices: int, nnz: int, entry_bytes: int) -> int:
    """Bytes of the routed rows of a matrix: their entries, and the id and the number of nonzeros of each."""
    return nnz * entry_bytes + 16 * num_vertices


@dataclass(frozen=True)
class MatrixSource:
    """A matrix whose rows are routed.

    Attributes:
        name: name of its shuffle.
        prefix: prefix of its arrays in a rank's folder.
        entry_bytes: bytes of a nonzero as it is routed.
        row_type: number of the type of its rows; None if it has a row for each vertex.
        edge_columns: columns of the edges of a relation.
        replicated: first and last (exclusive) vertex of the type of its columns, if every rank holds their rows.
    """

    name: str
    prefix: str
    sizes: GraphSizes
    entry_bytes: int
    row_type: int | None = None
    edge_columns: tuple[Column, ...] = ()
    replicated: Span | None = None

    @classmethod
    def of_relation(cls, relation: RelationSource, source: ShardSource) -> MatrixSource:
        entry = index_dtype(source.graph.num_vertices).itemsize
        entry += sum(each.num_bytes for each in relation.edge_columns)
        of_columns = source.types[relation.source_type]
        held = (of_columns.first, of_columns.first + of_columns.count)
        replicated = held if relation.source_type in source.replicated else None
        how = relation.sizes, entry, relation.row_type, relation.edge_columns, replicated
        return cls(f"rows-{relation.name}", f"relation/{relation.name}/", *how)

    @property
    def weighted(self) -> bool:
        """Whether nonzeros have values in the matrix. The values of a relation are columns of its edges."""
        return self.row_type is None and self.sizes.weighted


@dataclass(frozen=True)
class DataSource:
    """Vertex data that are routed.

    Attributes:
        name: name of their shuffle.
        prefix: prefix of their arrays in a rank's folder.
        arrays: dtype and trailing shape of each array.
        count: number of the vertices.
        bounds: bounds of the ranges that tasks route.
        row_type, type_name: number and name of the type of the vertices; None and empty for all vertices.
        first: number of the first vertex.
    """

    name: str
    prefix: str
    arrays: Mapping[str, tuple[str, tuple[int, ...]]]
    count: int
    bounds: Sequence[int]
    row_type: int | None = None
    type_name: str = ""
    first: int = 0

    @classmethod
    def of_type(cls, number: int, each: TypeSource, num_chunks: int) -> DataSource:
        arrays, chunk_rows = (each.vertices.types, each.vertices.chunk_rows) if each.vertices else ({}, ())
        bounds = vertex_ranges(each.count, chunk_rows or (_ROWS_WITHOUT_DATA,), num_chunks)
        where = f"type/{each.name}/", arrays, each.count, bounds, number, each.name, each.first
        return cls(f"vertices-{each.name}", *where)

    @property
    def columns(self) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        """Dtype and trailing shape of each column that is routed: the vertices of a type come with their ids."""
        return self.arrays if self.row_type is None else {VERTEX: ("int64", ()), **self.arrays}

    @property
    def row_bytes(self) -> int:
        """Bytes of a vertex as it is routed."""
        return sum(np.dtype(kind).itemsize * math.prod(shape) for kind, shape in self.columns.values())


@dataclass(frozen=True, eq=False)
class RowShuffles:
    """All shuffles of row shards, with their plans.

    Attributes:
        source: sizes of the graph and the vertex data.
        parts: sizes of the parts.
        reorder: order of a rank's rows.
    """

    source: ShardSource
    parts: PartSizes
    places: RowPlaces
    reorder: str

    @property
    def num_parts(self) -> int:
        return len(self.parts.vertices)

    @cached_property
    def graphs(self) -> list[GraphSizes]:
        """The adjacency and, if directed, its transpose; of a graph with types, the union."""
        backward = self.source.backward
        return [self.source.graph] if backward is None else [self.source.graph, backward]

    @cached_property
    def sources(self) -> list[MatrixSource]:
        """The matrices of all products."""
        if self.source.types:
            return [MatrixSource.of_relation(each, self.source) for each in self.source.relations]
        names = zip((("forward", ""), ("backward", "transpose/")), self.graphs, strict=False)
        return [MatrixSource(*name, graph, graph.entry_bytes) for name, graph in names]

    @cached_property
    def ranges(self) -> RangeSizes:
        return range_sizes(self.source, self.parts, self.places.writer.scratch)

    @property
    def large_ranks(self) -> list[int]:
        """Ranks of several ranges."""
        return [rank for rank, count in enumerate(self.ranges.num_ranges) if count > 1]

    @property
    def num_cut(self) -> int:
        """Number of ranges of large ranks."""
        return sum(self.ranges.num_ranges[rank] for rank in self.large_ranks)

    @property
    def readers(self) -> int:
        """Among how many readers a row block is divided."""
        # Rows that stay in the order of their ids reach one or two ranges of a rank from each row block.
        return self.num_parts if self.reorder == "none" else self.ranges.num_positions

    # Shuffles

    @cached_property
    def row_plans(self) -> list[ShufflePlan]:
        where = self.ranges.num_positions, self.source.graph.num_vertices, self.readers
        return [
            self._plan(
                row_shuffle(each.name, *where, weighted=each.weighted, edge_columns=each.edge_columns),
                each.sizes.num_blocks,
                routed_bytes(each.sizes.num_vertices, each.sizes.nnz, each.entry_bytes),
            )
            for each in self.sources
        ]

    @cached_property
    def vertex_plans(self) -> list[ShufflePlan]:
        return [
            self._plan(
                vertex_shuffle(each.columns, self.ranges.num_positions, self.readers, each.name),
                len(each.bounds) - 1,
                each.count * each.row_bytes,
            )
            for each in self.data
        ]

    @cached_property
    def data(self) -> list[DataSource]:
        """The vertex data: of all vertices, or of each type."""
        vertices, num_chunks = self.source.vertices, self.places.steps.vertex_chunks
        if self.source.types:
            return [DataSource.of_type(number, each, num_chunks) for number, each in enumerate(self.source.types)]
        n = self.source.graph.num_vertices
        bounds = vertex_ranges(n, vertices.chunk_rows if vertices else (), num_chunks)
        return [] if vertices is None else [DataSource("vertices", "", vertices.types, n, bounds)]

    @property
    def routed_plans(self) -> list[ShufflePlan]:
        """The plans of all that the ranks read."""
        return [*self.row_plans, *self.vertex_plans]

    @cached_property
    def halo_plans(self) -> list[ShufflePlan]:
        plans: list[ShufflePlan] = []
        for kind, sent in zip(("forward", "backward"), (self.parts.sent, self.parts.sent_back), strict=True):
            if len(plans) < len(self.graphs):
                pairs = min(sum(sent), self.num_parts**2)
                # Two numbers for each pair of ranks.
                num_bytes = 8 * sum(sent) + 16 * pairs
                shuffle = halo_shuffle(kind, self.num_parts)
                plans.append(ShufflePlan(self.places.writer, shuffle, self.num_parts, num_bytes, pairs))
        return plans

    @cached_property
    def found_plans(self) -> list[ShufflePlan]:
        """The plans of the columns that ranges need from other ranks; without tasks if no rank has several."""
        plans = []
        for kind, graph in zip(("forward", "backward"), self.graphs, strict=False):
            shuffle = found_shuffle(kind, self.num_parts, graph.num_vertices)
            columns = sum(self.found(rank) * self.ranges.num_ranges[rank] for rank in self.large_ranks)
            num_bytes = (8 + index_dtype(graph.num_vertices).itemsize) * columns
            plans.append(ShufflePlan(self.places.writer, shuffle, self.num_cut, num_bytes, 0))
        return plans

    def found(self, rank: int) -> int:
        """Columns of others in a range of a rank, at most."""
        nonzeros = self.parts.nonzeros[rank] // self.ranges.num_ranges[rank]
        return min(self.parts.received[rank], nonzeros)

    @cached_property
    def edge_plan(self) -> ShufflePlan:
        """The plan of the rows of shared chunks. A task that joins reads what the tasks of its rank left."""
        return ShufflePlan.unmerged(self.places.writer, edge_shuffle(self.num_arrays), self.num_cut)

    @property
    def num_arrays(self) -> int:
        """Arrays of a rank that its ranges write."""
        of_matrices = sum(
            (2 if each.replicated is None else 1) * (2 + each.weighted + len(each.edge_columns))
            for each in self.sources
        )
        return 1 + of_matrices + sum(len(each.arrays) for each in self.data)

    def _plan(self, shuffle: Shuffle, num_tasks: int, num_bytes: int) -> ShufflePlan:
        num_keys = num_tasks * self.readers + self.ranges.num_positions
        return ShufflePlan(self.places.writer, shuffle, num_tasks, num_bytes, num_keys)
