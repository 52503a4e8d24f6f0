"""The plan of row shards, for stored artifacts or for stated sizes.

The rows and vertex data are routed to the ranges of the ranks that own them: passes of independent tasks, with merges
between them if there are many pieces. A rank whose rows fit a task is one range, and one task finds its halo and writes
it. A larger rank has tasks for each of its ranges before and after the one that makes its halo, and one that joins what
they wrote. The last pass looks up each rank's send lists in the halos of the others. The work grows with the nonzeros,
not with nonzeros times ranks, and the memory of a task with neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from gnnloom.pipeline.shards.rows.relation_routes import (
    ROUTED_BYTES,
    RouteRelationTask,
    route_relation,
)
from gnnloom.pipeline.shards.rows.row_entries import SEGMENT_NONZEROS, Places
from gnnloom.pipeline.shards.rows.row_halo import (
    JOINED_BYTES,
    LISTED_COLUMNS,
    FindHaloTask,
    HaloFiles,
    SendListTask,
    find_halo,
    find_name,
    found_shuffle,
    halo_shuffle,
    write_send_lists,
)
from gnnloom.pipeline.shards.rows.row_numbers import RangeSizes, VertexNumbers
from gnnloom.pipeline.shards.rows.row_rank import (
    JoinRangesTask,
    ShardRankTask,
    WriteRangeTask,
    edge_shuffle,
    join_ranges,
    shard_rank,
    write_range,
    write_range_name,
)
from gnnloom.pipeline.shards.rows.row_routed import (
    VERTEX,
    RouteBlockTask,
    RoutedMatrix,
    RoutedProduct,
    RoutedVertices,
    RouteVerticesTask,
    rank_folder,
    route_block,
    route_type,
    route_vertices,
    row_shuffle,
    vertex_shuffle,
)
from gnnloom.pipeline.shards.shard_source import RelationSource, ShardSource, TypeSource
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import MIB, WRITING_BYTES
from gnnloom.pipeline.tasks.phase import Needs, Phase
from gnnloom.pipeline.tasks.sizes import GraphSizes, PartSizes
from gnnloom.storage.artifacts.typed.union import FORWARD, TypedMatrices
from gnnloom.storage.format.arrays import CHUNK_BYTES
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.csr import index_dtype

#: Bytes of the entries and the vertex data of a range of rows, which a task reads and holds: less than the memory that
#: the smallest workers have for buffers.
RANGE_BYTES: Final = 32 * MIB
#: Bytes of the halo of a rank of a single range, while it is found.
ALONE_HALO_BYTES: Final = 64 * MIB
#: Bytes of a vertex of a range: id, nonzeros, where these begin, slot, and what is copied to put the rows in order.
_VERTEX_BYTES: Final = 64
#: Copies of a nonzero while rows are renumbered, as large as its column: slots, places, local columns, and values.
_SEGMENT_COPIES: Final = 8
#: Copies of a halo vertex while it is found, as large as its id: ids, slots, and what sorting them needs; and later.
_FOUND_COPIES, _HALO_COPIES = 7, 2
#: Chunks of vertex data that one task routes: about 64 MiB.
_CHUNKS_PER_TASK = 16
#: Rows of a chunk of ids of vertices without data.
_ROWS_WITHOUT_DATA: Final = CHUNK_BYTES // 8
#: Bytes of a row of a block while its rows are sorted by part.
_BLOCK_ROW_BYTES = 48


@dataclass(frozen=True)
class RowPlaces:
    """Files that tasks read and write; the defaults are for plans that are counted and not run.

    Attributes:
        numbers: folder of the mapped numbers of all vertices.
        matrices: artifacts of the adjacency and, if directed, its transpose.
        vertices: artifact of the vertex data.
        dims: names of all dimensions of each of its arrays.
        relations: the relations of a graph with types.
        of_types: artifact of the vertex data of each type, and names of all dimensions of each of their arrays.
    """

    writer: ArtifactWriter = field(default_factory=lambda: ArtifactWriter(Path(), "shards", ""))
    numbers: Path = Path()
    matrices: tuple[Path, ...] = (Path(), Path())
    vertices: Path = Path()
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    relations: TypedMatrices = field(default_factory=lambda: TypedMatrices(Path(), None, FORWARD))
    of_types: Mapping[str, tuple[Path, Mapping[str, tuple[str, ...]]]] = field(default_factory=dict)


def row_phases(source: ShardSource, parts: PartSizes, places: RowPlaces, reorder: str = "none") -> list[Phase]:
    """The phases that make row shards, once the transpose of a directed graph exists.

    Args:
        source: sizes of the graph and the vertex data.
        parts: sizes of the parts.
        reorder: order of a rank's rows.
    """
    return _RowPlan(source, parts, places, reorder).phases()


def range_sizes(source: ShardSource, parts: PartSizes) -> RangeSizes:
    """Cut the rows of every rank into ranges that fit a task."""
    vertex, nonzero = _VERTEX_BYTES * source.row_records + source.vertex_row_bytes, source.nonzero_bytes
    if source.row_records * source.graph.num_vertices > source.graph.nnz + source.graph.num_vertices:
        # Of many relations, a vertex has a row in few, and not in more than it has edges.
        vertex, nonzero = _VERTEX_BYTES + source.vertex_row_bytes, nonzero + _VERTEX_BYTES
    sizes = [vertex * own + nonzero * nnz for own, nnz in zip(parts.vertices, parts.nonzeros, strict=True)]
    most = ALONE_HALO_BYTES // (_FOUND_COPIES * index_dtype(source.graph.num_vertices).itemsize)
    num_ranges = [
        # The halo of a rank of several ranges is never in memory.
        max(2 if halo > most else 1, -(-size // RANGE_BYTES))
        for size, halo in zip(sizes, parts.received, strict=True)
    ]
    return RangeSizes(tuple(num_ranges), tuple(sizes), vertex, nonzero)


def vertex_ranges(num_vertices: int, chunk_rows: Sequence[int]) -> list[int]:
    """Bounds of the ranges that tasks route: whole chunks of the widest array, the same in every run.

    Args:
        chunk_rows: rows of a chunk of each array.
    """
    step = _CHUNKS_PER_TASK * min(chunk_rows, default=num_vertices or 1)
    return [*range(0, num_vertices, step), num_vertices]


def routed_bytes(num_vertices: int, nnz: int, entry_bytes: int) -> int:
    """Bytes of the routed rows of a matrix: their entries, and the id and the number of nonzeros of each."""
    return nnz * entry_bytes + 16 * num_vertices


@dataclass(frozen=True)
class _MatrixSource:
    """A matrix whose rows are routed.

    Attributes:
        name: name of its shuffle.
        prefix: prefix of its arrays in a rank's folder.
        entry_bytes: bytes of a nonzero as it is routed.
        row_type: number of the type of its rows; None if it has a row for each vertex.
        edge_columns: columns of the edges of a relation.
    """

    name: str
    prefix: str
    sizes: GraphSizes
    entry_bytes: int
    row_type: int | None = None
    edge_columns: tuple[Column, ...] = ()

    @classmethod
    def of_relation(cls, relation: RelationSource, num_vertices: int) -> _MatrixSource:
        entry = index_dtype(num_vertices).itemsize + sum(each.num_bytes for each in relation.edge_columns)
        how = relation.sizes, entry, relation.row_type, relation.edge_columns
        return cls(f"rows-{relation.name}", f"relation/{relation.name}/", *how)

    @property
    def weighted(self) -> bool:
        """Whether nonzeros have values in the matrix. The values of a relation are columns of its edges."""
        return self.row_type is None and self.sizes.weighted


@dataclass(frozen=True)
class _DataSource:
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
    def of_type(cls, number: int, each: TypeSource) -> _DataSource:
        arrays, chunk_rows = (each.vertices.types, each.vertices.chunk_rows) if each.vertices else ({}, ())
        bounds = vertex_ranges(each.count, chunk_rows or (_ROWS_WITHOUT_DATA,))
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
class _RowPlan:
    source: ShardSource
    parts: PartSizes
    places: RowPlaces
    reorder: str

    def phases(self) -> list[Phase]:
        rows = [(plan, self._blocks(number)) for number, plan in enumerate(self._row_plans)]
        data = [(plan, self._bounds_tasks(number)) for number, plan in enumerate(self._vertex_plans)]
        if self.source.types:
            # There may be hundreds of relations with few edges each, so one phase routes all relations.
            routes = [self._route(rows, route_relation, "rows"), self._route(data, route_type, "vertices")]
        else:
            routes = [self._route([each], route_block, "rows") for each in rows]
            routes += [self._route([each], route_vertices, "vertices") for each in data]
        routed, collected = (
            tuple(plan.read_files for plan in plans) for plans in (self._routed_plans, self._halo_plans)
        )
        halos = tuple(plan.files for plan in self._halo_plans)
        send = Phase(
            "send lists", write_send_lists, self._send_tasks(), "vertices", collected, makes_arrays=True, arrays=3
        )
        last = [*(phase for plan in self._halo_plans for phase in plan.merges("merge halos")), send]
        arrays = max(3, len(self._routed_plans))
        shard = Phase(
            "shard", shard_rank, self._rank_tasks(), "vertices", routed, halos, makes_arrays=True, arrays=arrays
        )
        first = [phase for phases in routes for phase in phases]
        return [*first, *(self._cut_phases(shard) if self._large_ranks else [shard]), *last]

    def _cut_phases(self, shard: Phase) -> list[Phase]:
        """The phases of ranks of several ranges, before and after the one that makes their halos."""
        rows, found = tuple(plan.read_files for plan in self._row_plans), self._found_plans
        lists, halos = tuple(plan.read_files for plan in found), HaloFiles(self.places.writer.work)
        where, arrays = tuple(plan.files for plan in found), max(4, len(self._routed_plans) + 1)
        find = Phase("find halos", find_halo, self._find_tasks(), files=where, reads=rows, arrays=len(rows))
        shard = replace(shard, reads=(*shard.reads, *lists), files=(*shard.files, halos))
        edges, written = self._edge_plan.files, (*shard.reads[: len(self._routed_plans)], halos)
        return [
            find,
            *(phase for plan in found for phase in plan.merges("merge columns")),
            shard,
            Phase("write rows", write_range, self._range_tasks(), "vertices", written, (edges,), arrays=arrays),
            Phase("join rows", join_ranges, self._join_tasks(), "vertices", (edges, halos), makes_arrays=True),
        ]

    def _route(
        self, plans: Sequence[tuple[ShufflePlan, Sequence[Any]]], function: Callable[[Any], int], what: str
    ) -> list[Phase]:
        """A phase that routes, and the merges of what it leaves.

        Args:
            plans: plans of the shuffles, each with the tasks that route to it.
        """
        unit = "edges" if what == "rows" else what
        tasks = [task for _, own in plans for task in own]
        route = Phase(f"route {what}", function, tasks, unit, files=tuple(plan.files for plan, _ in plans))
        return [route, *(phase for plan, _ in plans for phase in plan.merges(f"merge {what}"))]

    # Sizes

    @property
    def _num_parts(self) -> int:
        return len(self.parts.vertices)

    @cached_property
    def _graphs(self) -> list[GraphSizes]:
        """The adjacency and, if directed, its transpose; of a graph with types, the union."""
        backward = self.source.backward
        return [self.source.graph] if backward is None else [self.source.graph, backward]

    @cached_property
    def _sources(self) -> list[_MatrixSource]:
        """The matrices of all products."""
        if self.source.types:
            n = self.source.graph.num_vertices
            return [_MatrixSource.of_relation(each, n) for each in self.source.relations]
        names = zip((("forward", ""), ("backward", "transpose/")), self._graphs, strict=False)
        return [_MatrixSource(*name, graph, graph.entry_bytes) for name, graph in names]

    @cached_property
    def _ranges(self) -> RangeSizes:
        return range_sizes(self.source, self.parts)

    @property
    def _large_ranks(self) -> list[int]:
        """Ranks of several ranges."""
        return [rank for rank, count in enumerate(self._ranges.num_ranges) if count > 1]

    @property
    def _num_cut(self) -> int:
        """Ranges of these."""
        return sum(self._ranges.num_ranges[rank] for rank in self._large_ranks)

    @property
    def _readers(self) -> int:
        """Among how many readers a row block is divided."""
        # Rows that stay in the order of their ids reach one or two ranges of a rank from each row block.
        return self._num_parts if self.reorder == "none" else self._ranges.num_positions

    # Shuffles

    @cached_property
    def _row_plans(self) -> list[ShufflePlan]:
        where = self._ranges.num_positions, self.source.graph.num_vertices, self._readers
        return [
            self._plan(
                row_shuffle(each.name, *where, weighted=each.weighted, edge_columns=each.edge_columns),
                each.sizes.num_blocks,
                routed_bytes(each.sizes.num_vertices, each.sizes.nnz, each.entry_bytes),
            )
            for each in self._sources
        ]

    @cached_property
    def _vertex_plans(self) -> list[ShufflePlan]:
        return [
            self._plan(
                vertex_shuffle(each.columns, self._ranges.num_positions, self._readers, each.name),
                len(each.bounds) - 1,
                each.count * each.row_bytes,
            )
            for each in self._data
        ]

    @cached_property
    def _data(self) -> list[_DataSource]:
        """The vertex data: of all vertices, or of each type."""
        vertices = self.source.vertices
        if self.source.types:
            return [_DataSource.of_type(number, each) for number, each in enumerate(self.source.types)]
        n = self.source.graph.num_vertices
        bounds = vertex_ranges(n, vertices.chunk_rows if vertices else ())
        return [] if vertices is None else [_DataSource("vertices", "", vertices.types, n, bounds)]

    @property
    def _routed_plans(self) -> list[ShufflePlan]:
        """The plans of all that the ranks read."""
        return [*self._row_plans, *self._vertex_plans]

    @cached_property
    def _halo_plans(self) -> list[ShufflePlan]:
        plans: list[ShufflePlan] = []
        for kind, sent in zip(("forward", "backward"), (self.parts.sent, self.parts.sent_back), strict=True):
            if len(plans) < len(self._graphs):
                pairs = min(sum(sent), self._num_parts**2)
                # Two numbers for each pair of ranks.
                num_bytes = 8 * sum(sent) + 16 * pairs
                shuffle = halo_shuffle(kind, self._num_parts)
                plans.append(ShufflePlan(self.places.writer, shuffle, self._num_parts, num_bytes, pairs))
        return plans

    @cached_property
    def _found_plans(self) -> list[ShufflePlan]:
        """The plans of the columns that ranges need from other ranks; without tasks if no rank has several."""
        plans = []
        for kind, graph in zip(("forward", "backward"), self._graphs, strict=False):
            shuffle = found_shuffle(kind, self._num_parts, graph.num_vertices)
            columns = sum(self._found(rank) * self._ranges.num_ranges[rank] for rank in self._large_ranks)
            num_bytes = (8 + index_dtype(graph.num_vertices).itemsize) * columns
            plans.append(ShufflePlan(self.places.writer, shuffle, self._num_cut, num_bytes, 0))
        return plans

    def _found(self, rank: int) -> int:
        """Columns of others in a range of a rank, at most."""
        nonzeros = self.parts.nonzeros[rank] // self._ranges.num_ranges[rank]
        return min(self.parts.received[rank], nonzeros)

    @cached_property
    def _edge_plan(self) -> ShufflePlan:
        """The plan of the rows of shared chunks. A task that joins reads what the tasks of its rank left."""
        return ShufflePlan.unmerged(self.places.writer, edge_shuffle(self._num_arrays), self._num_cut)

    @property
    def _num_arrays(self) -> int:
        """Arrays of a rank that its ranges write."""
        of_matrices = sum(2 * (2 + each.weighted + len(each.edge_columns)) for each in self._sources)
        return 1 + of_matrices + sum(len(each.arrays) for each in self._data)

    def _plan(self, shuffle: Shuffle, num_tasks: int, num_bytes: int) -> ShufflePlan:
        num_keys = num_tasks * self._readers + self._ranges.num_positions
        return ShufflePlan(self.places.writer, shuffle, num_tasks, num_bytes, num_keys)

    # Tasks

    @cached_property
    def _numbers(self) -> VertexNumbers:
        return VertexNumbers(self.places.numbers, self.source.graph.num_vertices, self.reorder != "none")

    def _blocks(self, number: int) -> list[RouteBlockTask | RouteRelationTask]:
        source, plan, places = self._sources[number], self._row_plans[number], self.places
        tasks: list[RouteBlockTask | RouteRelationTask] = []
        entry, where = source.entry_bytes, (self._numbers, plan.shuffle)
        for block, (rows, nnz) in enumerate(zip(source.sizes.block_rows, source.sizes.block_nnz, strict=True)):
            name = f"route-{plan.shuffle.name}/{block:05d}"
            held = min(nnz * entry, ROUTED_BYTES) if self.source.types else nnz * entry
            needs = Needs(
                reads=nnz * entry + 8 * rows,
                writes=routed_bytes(rows, nnz, entry) + 8 * self._ranges.num_positions,
                memory=2 * held + _BLOCK_ROW_BYTES * rows,
            )
            at = *where, block, plan.lane(block)
            if self.source.types:
                tasks.append(RouteRelationTask(places.writer, name, needs, places.relations, number, *at))
            else:
                tasks.append(RouteBlockTask(places.writer, name, needs, places.matrices[number], *at))
        return tasks

    def _bounds_tasks(self, number: int) -> list[RouteVerticesTask]:
        plan, places, data = self._vertex_plans[number], self.places, self._data[number]
        path, tasks = places.of_types[data.type_name][0] if data.type_name in places.of_types else places.vertices, []
        for index, (start, stop) in enumerate(pairwise(data.bounds)):
            num_bytes = (stop - start) * data.row_bytes
            needs = Needs(num_bytes, num_bytes + 8 * self._ranges.num_positions, 0, 2 * num_bytes)
            name, where = f"route-{plan.shuffle.name}/{index:05d}", (path, self._numbers, plan.shuffle)
            task = RouteVerticesTask(places.writer, name, needs, *where, start, stop, plan.lane(index), data.first)
            tasks.append(task)
        return tasks

    @cached_property
    def _products(self) -> tuple[RoutedProduct, ...]:
        matrices = [
            RoutedMatrix(each.prefix, plan.shuffle, each.row_type)
            for each, plan in zip(self._sources, self._row_plans, strict=True)
        ]
        exchanges = [
            (found.shuffle, halo.shuffle) for found, halo in zip(self._found_plans, self._halo_plans, strict=True)
        ]
        if self.source.types:
            return (RoutedProduct("", tuple(matrices), *exchanges[0]),)
        pairs = zip(matrices, exchanges, strict=True)
        return tuple(RoutedProduct(matrix.prefix, (matrix,), *exchange) for matrix, exchange in pairs)

    @cached_property
    def _vertices(self) -> tuple[RoutedVertices, ...]:
        found = []
        for data, plan in zip(self._data, self._vertex_plans, strict=True):
            dims = (
                self.places.dims if data.row_type is None else self.places.of_types.get(data.type_name, (None, {}))[1]
            )
            found.append(RoutedVertices(plan.shuffle, dims, data.prefix, data.row_type))
        return tuple(found)

    @cached_property
    def _first_slots(self) -> list[int]:
        """The slot of the first vertex of each rank, and the number of vertices."""
        return [0, *accumulate(self.parts.vertices)]

    def _of_rank(self, rank: int) -> dict[str, Any]:
        """Common fields of a rank's tasks in the later passes: no data, so that the tasks are small to send."""
        return {
            "writer": self.places.writer,
            "numbers": self._numbers,
            "num_parts": self._num_parts,
            "rank": rank,
            "slots": (self._first_slots[rank], self._first_slots[rank + 1]),
            "positions": self._ranges.positions(rank),
            "products": self._products,
            "vertices": self._vertices,
            "types": self.parts.first_of_types(rank, [each.name for each in self.source.types]),
        }

    def _find_tasks(self) -> list[FindHaloTask]:
        tasks: list[FindHaloTask] = []
        for rank in self._large_ranks:
            # What the ranges of a rank have in common is found once: large graphs have hundreds of ranges per rank.
            own, nonzeros, entry = self._of_range(rank)
            found = len(self._graphs) * self._found(rank) * (8 + self._numbers.dtype.itemsize)
            reads = len(self._graphs) * routed_bytes(self.source.routed_rows(own, nonzeros), nonzeros, entry)
            listed = min(self._found(rank), 3 * LISTED_COLUMNS)
            copies = _FOUND_COPIES * listed + 2 * min(self.parts.nonzeros[rank], SEGMENT_NONZEROS)
            memory = self._held(rank) + self._numbers.dtype.itemsize * copies
            common = self._of_rank(rank)
            for number, position in enumerate(self._ranges.positions(rank)):
                opens = sum(plan.opens((position, position + 1)) for plan in self._row_plans)
                lanes = tuple(plan.lane(len(tasks)) for plan in self._found_plans)
                needs, name = Needs(reads, found, opens, memory), find_name(rank, number)
                tasks.append(FindHaloTask(**common, name=name, needs=needs, position=position, lanes=lanes))
        return tasks

    def _of_range(self, rank: int) -> tuple[int, int, int]:
        """Vertices and nonzeros of a range of a rank, about, and the bytes of a nonzero."""
        count = self._ranges.num_ranges[rank]
        own, nonzeros = -(-self.parts.vertices[rank] // count), -(-self.parts.nonzeros[rank] // count)
        return own, nonzeros, self.source.nonzero_bytes

    def _held(self, rank: int) -> int:
        """Bytes that a task holds of a range of a rank as it was routed."""
        return -(-self._ranges.sizes[rank] // self._ranges.num_ranges[rank])

    def _writing(self, rank: int) -> int:
        """Bytes that a task holds while it renumbers a part of a range and writes it."""
        segment = _SEGMENT_COPIES * self._numbers.dtype.itemsize * min(self.parts.nonzeros[rank], SEGMENT_NONZEROS)
        return segment + WRITING_BYTES + 8 * Places.MOST_RANGES

    def _rank_tasks(self) -> list[ShardRankTask]:
        tasks = []
        for rank, count in enumerate(self._ranges.num_ranges):
            lanes = tuple(plan.lane(rank) for plan in self._halo_plans)
            needs = self._alone_needs(rank) if count == 1 else self._halo_needs(rank)
            tasks.append(ShardRankTask(**self._of_rank(rank), name=rank_folder(rank), needs=needs, halo_lanes=lanes))
        return tasks

    def _alone_needs(self, rank: int) -> Needs:
        own, nonzeros, entry = self._of_range(rank)
        halo, matrices = self.parts.received[rank], len(self._graphs)
        position, id_bytes = self._ranges.first_positions[rank], self._numbers.dtype.itemsize * halo
        return Needs(
            reads=matrices * routed_bytes(self.source.routed_rows(own, nonzeros), nonzeros, entry)
            + self._vertex_bytes(rank),
            # The halo, and where its owners begin.
            writes=self._written(rank) + matrices * (8 * halo + 8 * self._num_parts),
            opens=sum(plan.opens((position, position + 1)) for plan in self._routed_plans),
            memory=self._held(rank) + max(_FOUND_COPIES * id_bytes, _HALO_COPIES * id_bytes + self._writing(rank)),
        )

    def _vertex_bytes(self, rank: int) -> int:
        """Bytes of the vertex data of a rank."""
        if not self.source.types:
            return self.parts.vertices[rank] * self.source.vertex_row_bytes
        return sum(self.parts.types[each.type_name][rank] * each.row_bytes for each in self._data)

    def _written(self, rank: int) -> int:
        """Bytes of the ids and the vertex data of a rank, and of each matrix its own and halo pointers, and entries."""
        own, nonzeros = self.parts.vertices[rank], self.parts.nonzeros[rank]
        of_matrix = 16 * own * self.source.row_records + nonzeros * self.source.nonzero_bytes
        return 8 * own + self._vertex_bytes(rank) + len(self._graphs) * of_matrix

    def _halo_needs(self, rank: int) -> Needs:
        """Needs of the task that joins the lists of a rank's ranges."""
        halo, count = self.parts.received[rank], self._ranges.num_ranges[rank]
        found = (8 + self._numbers.dtype.itemsize) * self._found(rank) * count
        span = rank * self._numbers.num_vertices, (rank + 1) * self._numbers.num_vertices
        return Needs(
            reads=len(self._graphs) * found,
            writes=len(self._graphs) * (8 * halo + 8 * self._num_parts),
            opens=sum(plan.opens(span) for plan in self._found_plans),
            memory=4 * JOINED_BYTES + 24 * self._num_parts + WRITING_BYTES,
        )

    def _range_tasks(self) -> list[WriteRangeTask]:
        tasks: list[WriteRangeTask] = []
        edges, routed = self._edge_plan, self._routed_plans
        for rank in self._large_ranks:
            own, nonzeros, entry = self._of_range(rank)
            count, matrices = self._ranges.num_ranges[rank], len(self._graphs)
            rows = self.source.routed_rows(own, nonzeros)
            reads = matrices * routed_bytes(rows, nonzeros, entry) + self._vertex_bytes(rank) // count
            writes, memory = self._shared(rank) // count, self._held(rank) + self._writing(rank)
            common = {**self._of_rank(rank), "edges": edges.shuffle}
            for number, position in enumerate(self._ranges.positions(rank)):
                opens = sum(plan.opens((position, position + 1)) for plan in routed)
                needs, name = Needs(reads, writes, opens, memory), write_range_name(rank, number)
                lane = edges.lane(len(tasks))
                tasks.append(WriteRangeTask(**common, name=name, needs=needs, number=number, lane=lane))
        return tasks

    def _shared(self, rank: int) -> int:
        """Bytes of the chunks that ranges of a rank share: one of each array for each range, and not more than all."""
        return min(self._written(rank), self._num_arrays * CHUNK_BYTES * self._ranges.num_ranges[rank])

    def _join_tasks(self) -> list[JoinRangesTask]:
        tasks, edges = [], self._edge_plan
        for rank in self._large_ranks:
            # All is read once, for the digests.
            written = self._written(rank)
            opens = min(self._ranges.num_ranges[rank], edges.files.lanes.num_files)
            needs = Needs(written, written, opens, 3 * CHUNK_BYTES + WRITING_BYTES)
            tasks.append(
                JoinRangesTask(**self._of_rank(rank), name=f"join/{rank:05d}", needs=needs, edges=edges.shuffle)
            )
        return tasks

    def _send_tasks(self) -> list[SendListTask]:
        tasks, parts = [], self.parts
        for rank in range(self._num_parts):
            sent = parts.sent[rank] + (parts.sent_back[rank] if parts.sent_back else 0)
            read, written = 8 * sent + 24 * self._num_parts, 4 * sent + 8 * self._num_parts
            opens = sum(plan.opens((rank, rank + 1)) for plan in self._halo_plans)
            needs = Needs(read, written, opens, 24 * self._num_parts + WRITING_BYTES)
            tasks.append(SendListTask(**self._of_rank(rank), name=f"send/{rank:05d}", needs=needs))
        return tasks
