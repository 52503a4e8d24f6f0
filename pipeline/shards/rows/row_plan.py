"""The plan of row shards, for stored artifacts or for stated sizes.

The rows and vertex data are routed to the ranges of the ranks that own them: passes of independent tasks, with merges
between them if there are many pieces. A rank whose rows fit a task is one range, and one task finds its halo and writes
it. A larger rank has tasks for each of its ranges before and after the one that makes its halo, and one that joins what
they wrote. The last pass looks up each rank's send lists in the halos of the others. The work grows with the nonzeros,
not with nonzeros times ranks, and the memory of a task with neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Final

from gnnloom.pipeline.shards.rows.relation_routes import (
    RouteRelationTask,
    route_relation,
)
from gnnloom.pipeline.shards.rows.replicated_rows import replicated_phases
from gnnloom.pipeline.shards.rows.row_halo import (
    FindHaloTask,
    HaloFiles,
    SendListTask,
    find_halo,
    find_name,
    write_send_lists,
)
from gnnloom.pipeline.shards.rows.row_numbers import VertexNumbers
from gnnloom.pipeline.shards.rows.row_rank import (
    JoinRangesTask,
    ShardRankTask,
    WriteRangeTask,
    join_ranges,
    shard_rank,
    write_range,
    write_range_name,
)
from gnnloom.pipeline.shards.rows.row_routed import (
    RouteBlockTask,
    RoutedMatrix,
    RoutedProduct,
    RoutedVertices,
    RouteVerticesTask,
    rank_folder,
    route_block,
    route_type,
    route_vertices,
)
from gnnloom.pipeline.shards.rows.row_shuffles import FOUND_COPIES, RowPlaces, RowShuffles, routed_bytes
from gnnloom.pipeline.shards.shard_source import ShardSource
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.tasks.memory import WRITING_BYTES
from gnnloom.pipeline.tasks.phase import Needs, Phase
from gnnloom.pipeline.tasks.sizes import PartSizes
from gnnloom.storage.format.arrays import CHUNK_BYTES

#: Copies of a nonzero while rows are renumbered, as large as its column: slots, places, local columns, and values.
_SEGMENT_COPIES: Final = 8
#: Copies of a halo vertex once it is found, as large as its id.
_HALO_COPIES: Final = 2
#: Bytes of a row of a block while its rows are sorted by part.
_BLOCK_ROW_BYTES = 48


def row_phases(source: ShardSource, parts: PartSizes, places: RowPlaces, reorder: str = "none") -> list[Phase]:
    """The phases that make row shards, once the transpose of a directed graph exists.

    Args:
        source: sizes of the graph and the vertex data.
        parts: sizes of the parts.
        reorder: order of a rank's rows.
    """
    return _RowPlan(RowShuffles(source, parts, places, reorder)).phases()


@dataclass(frozen=True, eq=False)
class _RowPlan:
    """The phases of :func:`row_phases`, which move rows through the given shuffles."""

    shuffles: RowShuffles

    @property
    def source(self) -> ShardSource:
        return self.shuffles.source

    @property
    def parts(self) -> PartSizes:
        return self.shuffles.parts

    @property
    def places(self) -> RowPlaces:
        return self.shuffles.places

    def phases(self) -> list[Phase]:
        rows = [(plan, self._blocks(number)) for number, plan in enumerate(self.shuffles.row_plans)]
        data = [(plan, self._bounds_tasks(number)) for number, plan in enumerate(self.shuffles.vertex_plans)]
        if self.source.types:
            # There may be hundreds of relations with few edges each, so one phase routes all relations.
            routes = [self._route(rows, route_relation, "rows"), self._route(data, route_type, "vertices")]
        else:
            routes = [self._route([each], route_block, "rows") for each in rows]
            routes += [self._route([each], route_vertices, "vertices") for each in data]
        routed, collected = (
            tuple(plan.read_files for plan in plans) for plans in (self.shuffles.routed_plans, self.shuffles.halo_plans)
        )
        halos = tuple(plan.files for plan in self.shuffles.halo_plans)
        send = Phase(
            "send lists", write_send_lists, self._send_tasks(), "vertices", collected, makes_arrays=True, arrays=3
        )
        last = [*(phase for plan in self.shuffles.halo_plans for phase in plan.merges("merge halos")), send]
        arrays = max(3, len(self.shuffles.routed_plans))
        shard = Phase(
            "shard", shard_rank, self._rank_tasks(), "vertices", routed, halos, makes_arrays=True, arrays=arrays
        )
        first = [phase for phases in routes for phase in phases]
        held = replicated_phases(self.source, self.places)
        return [*first, *(self._cut_phases(shard) if self.shuffles.large_ranks else [shard]), *last, *held]

    def _cut_phases(self, shard: Phase) -> list[Phase]:
        """The phases of ranks of several ranges, before and after the one that makes their halos."""
        rows, found = tuple(plan.read_files for plan in self.shuffles.row_plans), self.shuffles.found_plans
        lists, halos = tuple(plan.read_files for plan in found), HaloFiles(self.places.writer.work)
        where, arrays = tuple(plan.files for plan in found), max(4, len(self.shuffles.routed_plans) + 1)
        find = Phase("find halos", find_halo, self._find_tasks(), files=where, reads=rows, arrays=len(rows))
        shard = replace(shard, reads=(*shard.reads, *lists), files=(*shard.files, halos))
        edges, written = self.shuffles.edge_plan.files, (*shard.reads[: len(self.shuffles.routed_plans)], halos)
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

    # Tasks

    @cached_property
    def _numbers(self) -> VertexNumbers:
        return VertexNumbers(self.places.numbers, self.source.graph.num_vertices, self.shuffles.reorder != "none")

    def _blocks(self, number: int) -> list[RouteBlockTask | RouteRelationTask]:
        source, plan, places = self.shuffles.sources[number], self.shuffles.row_plans[number], self.places
        tasks: list[RouteBlockTask | RouteRelationTask] = []
        entry, where = source.entry_bytes, (self._numbers, plan.shuffle)
        for block, (rows, nnz) in enumerate(zip(source.sizes.block_rows, source.sizes.block_nnz, strict=True)):
            name = f"route-{plan.shuffle.name}/{block:05d}"
            held = min(nnz * entry, places.steps.routed_bytes) if self.source.types else nnz * entry
            needs = Needs(
                reads=nnz * entry + 8 * rows,
                writes=routed_bytes(rows, nnz, entry) + 8 * self.shuffles.ranges.num_positions,
                memory=2 * held + _BLOCK_ROW_BYTES * rows,
            )
            at = *where, block, plan.lane(block)
            if self.source.types:
                tasks.append(
                    RouteRelationTask(
                        places.writer, name, needs, places.relations, number, *at, places.steps.routed_bytes
                    )
                )
            else:
                tasks.append(RouteBlockTask(places.writer, name, needs, places.matrices[number], *at))
        return tasks

    def _bounds_tasks(self, number: int) -> list[RouteVerticesTask]:
        plan, places, data = self.shuffles.vertex_plans[number], self.places, self.shuffles.data[number]
        path, tasks = places.of_types[data.type_name][0] if data.type_name in places.of_types else places.vertices, []
        for index, (start, stop) in enumerate(pairwise(data.bounds)):
            num_bytes = (stop - start) * data.row_bytes
            needs = Needs(num_bytes, num_bytes + 8 * self.shuffles.ranges.num_positions, 0, 2 * num_bytes)
            name, where = f"route-{plan.shuffle.name}/{index:05d}", (path, self._numbers, plan.shuffle)
            task = RouteVerticesTask(places.writer, name, needs, *where, start, stop, plan.lane(index), data.first)
            tasks.append(task)
        return tasks

    @cached_property
    def _products(self) -> tuple[RoutedProduct, ...]:
        matrices = [
            RoutedMatrix(each.prefix, plan.shuffle, each.row_type, each.replicated)
            for each, plan in zip(self.shuffles.sources, self.shuffles.row_plans, strict=True)
        ]
        exchanges = [
            (found.shuffle, halo.shuffle)
            for found, halo in zip(self.shuffles.found_plans, self.shuffles.halo_plans, strict=True)
        ]
        if self.source.types:
            return (RoutedProduct("", tuple(matrices), *exchanges[0]),)
        pairs = zip(matrices, exchanges, strict=True)
        return tuple(RoutedProduct(matrix.prefix, (matrix,), *exchange) for matrix, exchange in pairs)

    @cached_property
    def _vertices(self) -> tuple[RoutedVertices, ...]:
        found = []
        for data, plan in zip(self.shuffles.data, self.shuffles.vertex_plans, strict=True):
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
            "num_parts": self.shuffles.num_parts,
            "rank": rank,
            "slots": (self._first_slots[rank], self._first_slots[rank + 1]),
            "positions": self.shuffles.ranges.positions(rank),
            "products": self._products,
            "vertices": self._vertices,
            "steps": self.places.steps,
            "types": self.parts.first_of_types(rank, [each.name for each in self.source.types]),
        }

    def _find_tasks(self) -> list[FindHaloTask]:
        tasks: list[FindHaloTask] = []
        steps = self.places.steps
        for rank in self.shuffles.large_ranks:
            # Data that the ranges of a rank share are computed once: large graphs have hundreds of ranges per rank.
            own, nonzeros, entry = self._of_range(rank)
            found = len(self.shuffles.graphs) * self.shuffles.found(rank) * (8 + self._numbers.dtype.itemsize)
            reads = len(self.shuffles.graphs) * routed_bytes(self.source.routed_rows(own, nonzeros), nonzeros, entry)
            listed = min(self.shuffles.found(rank), 3 * steps.listed_columns)
            copies = FOUND_COPIES * listed + 2 * min(self.parts.nonzeros[rank], steps.segment_nonzeros)
            memory = self._held(rank) + self._numbers.dtype.itemsize * copies
            common = self._of_rank(rank)
            for number, position in enumerate(self.shuffles.ranges.positions(rank)):
                opens = sum(plan.opens((position, position + 1)) for plan in self.shuffles.row_plans)
                lanes = tuple(plan.lane(len(tasks)) for plan in self.shuffles.found_plans)
                needs, name = Needs(reads, found, opens, memory), find_name(rank, number)
                tasks.append(FindHaloTask(**common, name=name, needs=needs, position=position, lanes=lanes))
        return tasks

    def _of_range(self, rank: int) -> tuple[int, int, int]:
        """Vertices and nonzeros of a range of a rank, about, and the bytes of a nonzero."""
        count = self.shuffles.ranges.num_ranges[rank]
        own, nonzeros = -(-self.parts.vertices[rank] // count), -(-self.parts.nonzeros[rank] // count)
        return own, nonzeros, self.source.nonzero_bytes

    def _held(self, rank: int) -> int:
        """Bytes that a task holds of a range of a rank as it was routed."""
        return -(-self.shuffles.ranges.sizes[rank] // self.shuffles.ranges.num_ranges[rank])

    def _writing(self, rank: int) -> int:
        """Bytes that a task holds while it renumbers a part of a range and writes it."""
        steps = self.places.steps
        nonzeros = min(self.parts.nonzeros[rank], steps.segment_nonzeros)
        segment = _SEGMENT_COPIES * self._numbers.dtype.itemsize * nonzeros
        return segment + WRITING_BYTES + 8 * steps.place_ranges

    def _rank_tasks(self) -> list[ShardRankTask]:
        tasks = []
        for rank, count in enumerate(self.shuffles.ranges.num_ranges):
            lanes = tuple(plan.lane(rank) for plan in self.shuffles.halo_plans)
            needs = self._alone_needs(rank) if count == 1 else self._halo_needs(rank)
            tasks.append(ShardRankTask(**self._of_rank(rank), name=rank_folder(rank), needs=needs, halo_lanes=lanes))
        return tasks

    def _alone_needs(self, rank: int) -> Needs:
        own, nonzeros, entry = self._of_range(rank)
        halo, matrices = self.parts.received[rank], len(self.shuffles.graphs)
        position, id_bytes = self.shuffles.ranges.first_positions[rank], self._numbers.dtype.itemsize * halo
        return Needs(
            reads=matrices * routed_bytes(self.source.routed_rows(own, nonzeros), nonzeros, entry)
            + self._vertex_bytes(rank),
            # The halo, and where its owners begin.
            writes=self._written(rank) + matrices * (8 * halo + 8 * self.shuffles.num_parts),
            opens=sum(plan.opens((position, position + 1)) for plan in self.shuffles.routed_plans),
            memory=self._held(rank) + max(FOUND_COPIES * id_bytes, _HALO_COPIES * id_bytes + self._writing(rank)),
        )

    def _vertex_bytes(self, rank: int) -> int:
        """Bytes of the vertex data of a rank."""
        if not self.source.types:
            return self.parts.vertices[rank] * self.source.vertex_row_bytes
        return sum(self.parts.types[each.type_name][rank] * each.row_bytes for each in self.shuffles.data)

    def _written(self, rank: int) -> int:
        """Bytes of the ids and the vertex data of a rank, and of each matrix its own and halo pointers, and entries."""
        own, nonzeros = self.parts.vertices[rank], self.parts.nonzeros[rank]
        of_matrix = 16 * own * self.source.row_records + nonzeros * self.source.nonzero_bytes
        return 8 * own + self._vertex_bytes(rank) + len(self.shuffles.graphs) * of_matrix

    def _halo_needs(self, rank: int) -> Needs:
        """Needs of the task that joins the lists of a rank's ranges."""
        halo, count = self.parts.received[rank], self.shuffles.ranges.num_ranges[rank]
        found = (8 + self._numbers.dtype.itemsize) * self.shuffles.found(rank) * count
        span = rank * self._numbers.num_vertices, (rank + 1) * self._numbers.num_vertices
        return Needs(
            reads=len(self.shuffles.graphs) * found,
            writes=len(self.shuffles.graphs) * (8 * halo + 8 * self.shuffles.num_parts),
            opens=sum(plan.opens(span) for plan in self.shuffles.found_plans),
            memory=4 * self.places.steps.joined_bytes + 24 * self.shuffles.num_parts + WRITING_BYTES,
        )

    def _range_tasks(self) -> list[WriteRangeTask]:
        tasks: list[WriteRangeTask] = []
        edges, routed = self.shuffles.edge_plan, self.shuffles.routed_plans
        for rank in self.shuffles.large_ranks:
            own, nonzeros, entry = self._of_range(rank)
            count, matrices = self.shuffles.ranges.num_ranges[rank], len(self.shuffles.graphs)
            rows = self.source.routed_rows(own, nonzeros)
            reads = matrices * routed_bytes(rows, nonzeros, entry) + self._vertex_bytes(rank) // count
            writes, memory = self._shared(rank) // count, self._held(rank) + self._writing(rank)
            common = {**self._of_rank(rank), "edges": edges.shuffle}
            for number, position in enumerate(self.shuffles.ranges.positions(rank)):
                opens = sum(plan.opens((position, position + 1)) for plan in routed)
                needs, name = Needs(reads, writes, opens, memory), write_range_name(rank, number)
                lane = edges.lane(len(tasks))
                tasks.append(WriteRangeTask(**common, name=name, needs=needs, number=number, lane=lane))
        return tasks

    def _shared(self, rank: int) -> int:
        """Bytes of the chunks that ranges of a rank share: one of each array for each range, and not more than all."""
        return min(self._written(rank), self.shuffles.num_arrays * CHUNK_BYTES * self.shuffles.ranges.num_ranges[rank])

    def _join_tasks(self) -> list[JoinRangesTask]:
        tasks, edges = [], self.shuffles.edge_plan
        for rank in self.shuffles.large_ranks:
            # All is read once, for the digests.
            written = self._written(rank)
            opens = min(self.shuffles.ranges.num_ranges[rank], edges.files.lanes.num_files)
            needs = Needs(written, written, opens, 3 * CHUNK_BYTES + WRITING_BYTES)
            tasks.append(
                JoinRangesTask(**self._of_rank(rank), name=f"join/{rank:05d}", needs=needs, edges=edges.shuffle)
            )
        return tasks

    def _send_tasks(self) -> list[SendListTask]:
        tasks, parts = [], self.parts
        for rank in range(self.shuffles.num_parts):
            sent = parts.sent[rank] + (parts.sent_back[rank] if parts.sent_back else 0)
            read, written = 8 * sent + 24 * self.shuffles.num_parts, 4 * sent + 8 * self.shuffles.num_parts
            opens = sum(plan.opens((rank, rank + 1)) for plan in self.shuffles.halo_plans)
            needs = Needs(read, written, opens, 24 * self.shuffles.num_parts + WRITING_BYTES)
            tasks.append(SendListTask(**self._of_rank(rank), name=f"send/{rank:05d}", needs=needs))
        return tasks
