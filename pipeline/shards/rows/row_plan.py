"""The plan of row shards, for stored artifacts or for stated sizes.

Three passes, each a set of independent tasks: route rows and vertex data to the parts that own them; renumber each
rank's matrices and find its halo; look up each rank's send lists in the halos of the others. If what was routed is in
many pieces, it is merged before it is read. The work grows with the nonzeros, not with nonzeros times ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from gnnloom.pipeline.shards.rows.row_halo import SendListTask, halo_shuffle, write_send_lists
from gnnloom.pipeline.shards.rows.row_rank import ShardRankTask, shard_rank
from gnnloom.pipeline.shards.rows.row_routed import (
    SEGMENT_NONZEROS,
    RouteBlockTask,
    RoutedMatrix,
    RoutedVertices,
    RouteVerticesTask,
    rank_folder,
    route_block,
    route_vertices,
    row_shuffle,
    vertex_shuffle,
)
from gnnloom.pipeline.shards.shard_source import ShardSource
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Needs, Phase
from gnnloom.pipeline.tasks.sizes import GraphSizes, PartSizes
from gnnloom.storage.format.artifact import ArtifactWriter

#: Chunks of vertex data that one task routes: about 64 MiB.
_CHUNKS_PER_TASK = 16
#: Bytes of a row of a block while its rows are sorted by part.
_BLOCK_ROW_BYTES = 48
#: Bytes of a nonzero while a segment of rows is renumbered: masks, local columns, and the sort by row.
_SEGMENT_BYTES = 72
#: Bytes of a halo vertex while the halo is found: ids, owners, positions, and what the merge of segments copies.
_HALO_BYTES = 56
#: Bytes of a vertex while its rank is reordered: its order, local number, nonzeros, and where they begin and end.
_REORDER_BYTES = 160


@dataclass(frozen=True)
class RowPlaces:
    """Where tasks read and write; the defaults are for plans that are counted and not run.

    Attributes:
        part_path: mapped vector of the (num_vertices,) int32 parts.
        matrices: artifacts of the adjacency and, if directed, its transpose.
        vertices: artifact of the vertex data.
        dims: names of all dimensions of each of its arrays.
    """

    writer: ArtifactWriter = field(default_factory=lambda: ArtifactWriter(Path(), "shards", ""))
    part_path: Path = Path()
    matrices: tuple[Path, ...] = (Path(), Path())
    vertices: Path = Path()
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def row_phases(source: ShardSource, parts: PartSizes, places: RowPlaces, reorder: str = "none") -> list[Phase]:
    """The phases that make row shards, once the transpose of a directed graph exists.

    Args:
        source: sizes of the graph and the vertex data.
        parts: sizes of the parts.
        reorder: order of a rank's rows.
    """
    return _RowPlan(source, parts, places, reorder).phases()


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


@dataclass(frozen=True, eq=False)
class _RowPlan:
    source: ShardSource
    parts: PartSizes
    places: RowPlaces
    reorder: str

    def phases(self) -> list[Phase]:
        routes = [self._route(plan, *self._blocks(number), "rows") for number, plan in enumerate(self._row_plans)]
        if self._vertex_plan is not None:
            routes.append(self._route(self._vertex_plan, route_vertices, self._ranges(), "vertices"))
        routed, halos = tuple(plan.read_files for plan in self._routed_plans), self._halo_plans
        tasks, sends = [], []
        for rank in range(self._num_parts):
            lanes, common = tuple(plan.lane(rank) for plan in halos), self._of_rank(rank)
            needs = self._shard_needs(rank)
            tasks.append(ShardRankTask(**common, name=rank_folder(rank), needs=needs, halo_lanes=lanes))
            sent = self.parts.sent[rank] + (self.parts.sent_back[rank] if self.parts.sent_back else 0)
            read, written = 8 * sent + 24 * self._num_parts, 4 * sent + 8 * self._num_parts
            opens = sum(plan.opens((rank, rank + 1)) for plan in halos)
            needs = Needs(read, written, opens, 24 * (sent + self.parts.vertices[rank]))
            sends.append(SendListTask(**common, name=f"send/{rank:05d}", needs=needs))
        files, collected = tuple(plan.files for plan in halos), tuple(plan.read_files for plan in halos)
        shard = Phase("shard", shard_rank, tasks, "vertices", routed, files, makes_arrays=True, arrays=3)
        send = Phase("send lists", write_send_lists, sends, "vertices", collected, makes_arrays=True, arrays=3)
        merges = [plan.merges("merge halos") for plan in halos]
        return [phase for phases in (*routes, [shard], *merges, [send]) for phase in phases]

    def _route(self, plan: ShufflePlan, function: Callable[[Any], int], tasks: Sequence[Any], what: str) -> list[Phase]:
        """A phase that routes, and the merges of what it leaves."""
        unit = "edges" if what == "rows" else what
        route = Phase(f"route {what}", function, tasks, unit, files=(plan.files,))
        return [route, *plan.merges(f"merge {what}")]

    # Sizes

    @property
    def _num_parts(self) -> int:
        return len(self.parts.vertices)

    @cached_property
    def _graphs(self) -> list[GraphSizes]:
        """The adjacency and, if directed, its transpose."""
        backward = self.source.backward
        return [self.source.graph] if backward is None else [self.source.graph, backward]

    @property
    def _mapped_bytes(self) -> int:
        """Bytes of the part of every vertex: pages of the mapped file count as the worker's own."""
        return 4 * self.source.graph.num_vertices

    # Shuffles

    @cached_property
    def _row_plans(self) -> list[ShufflePlan]:
        return [
            self._plan(
                row_shuffle(kind, self._num_parts, graph.num_vertices, weighted=graph.weighted),
                graph.num_blocks,
                routed_bytes(graph.num_vertices, graph.nnz, graph.entry_bytes),
            )
            for kind, graph in zip(("forward", "backward"), self._graphs, strict=False)
        ]

    @cached_property
    def _vertex_plan(self) -> ShufflePlan | None:
        vertices = self.source.vertices
        if vertices is None:
            return None
        return self._plan(vertex_shuffle(vertices.types, self._num_parts), len(self._bounds) - 1, vertices.raw_bytes)

    @property
    def _routed_plans(self) -> list[ShufflePlan]:
        """Of all that the ranks read."""
        return [*self._row_plans, *([self._vertex_plan] if self._vertex_plan else [])]

    @cached_property
    def _bounds(self) -> list[int]:
        """Bounds of the ranges of vertex data."""
        chunk_rows = self.source.vertices.chunk_rows if self.source.vertices else ()
        return vertex_ranges(self.source.graph.num_vertices, chunk_rows)

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

    def _plan(self, shuffle: Shuffle, num_tasks: int, num_bytes: int) -> ShufflePlan:
        return ShufflePlan(self.places.writer, shuffle, num_tasks, num_bytes, num_tasks * self._num_parts)

    # Tasks

    def _blocks(self, number: int) -> tuple[Callable[[Any], int], list[RouteBlockTask]]:
        graph, plan, places = self._graphs[number], self._row_plans[number], self.places
        return route_block, [
            RouteBlockTask(
                places.writer,
                f"route-{plan.shuffle.name}/{block:05d}",
                Needs(
                    reads=nnz * graph.entry_bytes + 8 * rows,
                    writes=routed_bytes(rows, nnz, graph.entry_bytes) + 8 * self._num_parts,
                    memory=2 * nnz * graph.entry_bytes + _BLOCK_ROW_BYTES * rows + self._mapped_bytes,
                ),
                places.matrices[number],
                places.part_path,
                plan.shuffle,
                block,
                plan.lane(block),
            )
            for block, (rows, nnz) in enumerate(zip(graph.block_rows, graph.block_nnz, strict=True))
        ]

    def _ranges(self) -> list[RouteVerticesTask]:
        plan, places = self._vertex_plan, self.places
        if plan is None or self.source.vertices is None:
            return []
        row_bytes, tasks = self.source.vertices.row_bytes, []
        for number, (start, stop) in enumerate(pairwise(self._bounds)):
            num_bytes = (stop - start) * row_bytes
            needs = Needs(num_bytes, num_bytes + 8 * self._num_parts, 0, 2 * num_bytes + self._mapped_bytes)
            name, where = f"route-{plan.shuffle.name}/{number:05d}", (places.vertices, places.part_path, plan.shuffle)
            tasks.append(RouteVerticesTask(places.writer, name, needs, *where, start, stop, plan.lane(number)))
        return tasks

    @cached_property
    def _matrices(self) -> tuple[RoutedMatrix, ...]:
        prefixes = ("", "transpose/")
        plans = zip(prefixes, self._row_plans, self._halo_plans, strict=False)
        return tuple(RoutedMatrix(prefix, rows.shuffle, halo.shuffle) for prefix, rows, halo in plans)

    def _of_rank(self, rank: int) -> dict[str, Any]:
        """What the tasks of the later passes of a rank have in common: no data, so that they are small to send."""
        vertices = RoutedVertices(self._vertex_plan.shuffle, self.places.dims) if self._vertex_plan else None
        return {
            "writer": self.places.writer,
            "part_path": self.places.part_path,
            "num_parts": self._num_parts,
            "rank": rank,
            "matrices": self._matrices,
            "vertices": vertices,
            "reorder": self.reorder,
        }

    def _shard_needs(self, rank: int) -> Needs:
        parts, graph = self.parts, self.source.graph
        own, nonzeros, halo = parts.vertices[rank], parts.nonzeros[rank], parts.received[rank]
        entry, matrices = graph.entry_bytes, len(self._graphs)
        vertex_bytes = own * (self.source.vertices.row_bytes if self.source.vertices else 0)
        # Rows of several blocks are joined into a segment, and the rows of the rank in one block are read at once.
        segment = min(nonzeros, SEGMENT_NONZEROS) * (_SEGMENT_BYTES + entry)
        memory = 16 * own + _HALO_BYTES * halo + segment + min(nonzeros, max(graph.block_nnz, default=0)) * entry
        if self.reorder != "none":
            memory += _REORDER_BYTES * own + _SEGMENT_BYTES * SEGMENT_NONZEROS
        return Needs(
            # Ids first, then the rows twice: local numbers are known when the halo is complete.
            reads=3 * matrices * routed_bytes(own, nonzeros, entry) + vertex_bytes,
            # Ids and vertex data; of each matrix its own and halo pointers, entries, halo, and where its owners begin.
            writes=8 * own + vertex_bytes + matrices * (16 * own + nonzeros * entry + 8 * halo + 8 * self._num_parts),
            opens=sum(plan.opens((rank, rank + 1)) for plan in self._routed_plans),
            memory=memory + self._mapped_bytes,
        )
