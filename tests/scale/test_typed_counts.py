"""What the union, the partition and the row shards of graphs with types would do at sizes that no machine holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from scale.scale_graphs import MEMORY
from scale.test_counts import check_opens, long_if

from gnnloom.pipeline.matrix_sort.union import UnionPlan
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.partition_plan import partition_counts
from gnnloom.pipeline.shards.grid.typed_grid_plan import TypedGridPlaces, TypedGridPlan
from gnnloom.pipeline.shards.rows.row_plan import row_phases
from gnnloom.pipeline.shards.rows.row_shuffles import RowPlaces
from gnnloom.pipeline.shards.shard_options import GridOptions
from gnnloom.pipeline.shards.shard_source import ShardSource
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, MINIMUM_MEMORY
from gnnloom.pipeline.tasks.phase import PhaseCount, client_bytes, count, total_tasks
from gnnloom.pipeline.tasks.sizes import PartSizes, TypedSizes, VertexSizes
from gnnloom.storage.artifacts.typed.union import UnionSpec
from gnnloom.storage.disk.work_folder import BESIDE

RANKS = (1, 64, 1024)


@dataclass(frozen=True)
class DescribedTypes:
    """Sizes of a graph with types.

    Attributes:
        types: number of vertices of each type.
        relations: source type, target type and number of edges of each relation.
        widths: float16 features of the types that have some.
    """

    name: str
    types: Mapping[str, int]
    relations: Mapping[str, tuple[str, str, int]]
    widths: Mapping[str, int]

    @property
    def sizes(self) -> TypedSizes:
        return TypedSizes.even(self.types, self.relations, BESIDE.block_entries)

    @property
    def nnz(self) -> int:
        """Edges of all relations."""
        return sum(edges for _, _, edges in self.relations.values())

    def source(self, spec: UnionSpec) -> ShardSource:
        """What row shards are made from."""
        sizes = self.sizes
        return ShardSource.of_types(sizes, spec, sizes.union(spec), {}, self.data)

    @property
    def data(self) -> dict[str, VertexSizes]:
        """Vertex data by type."""
        return {name: VertexSizes.plain(self.types[name], width, 153, "float16") for name, width in self.widths.items()}

    @property
    def hubs(self) -> tuple[str, ...]:
        """The types of few vertices, which may be replicated."""
        return tuple(name for name, num_vertices in self.types.items() if num_vertices < 1_000_000)

    @property
    def feature_bytes(self) -> int:
        """Bytes of all features, labels and splits."""
        return sum((2 * width + 5) * self.types[name] for name, width in self.widths.items())


#: As published; of IGB, the edges between papers and of all relations, with an even split of the rest.
_REST = (5_812_005_639 - 3_996_442_004) // 3
GRAPHS = (
    DescribedTypes(
        "MAG240M",
        {"author": 122_383_112, "institution": 25_721, "paper": 121_751_666},
        {
            "affiliated_with": ("author", "institution", 44_592_586),
            "cites": ("paper", "paper", 1_297_748_926),
            "writes": ("author", "paper", 386_022_720),
        },
        {"paper": 768},
    ),
    DescribedTypes(
        "IGB-Het",
        {"author": 277_220_883, "fos": 712_960, "institute": 26_918, "paper": 269_346_174},
        {
            "affiliated_to": ("author", "institute", _REST),
            "cites": ("paper", "paper", 3_996_442_004),
            "topic": ("paper", "fos", _REST),
            "written_by": ("paper", "author", _REST),
        },
        {"author": 1024, "fos": 1024, "institute": 1024, "paper": 1024},
    ),
)
cases = pytest.mark.parametrize(
    ("graph", "ranks"),
    [
        pytest.param(graph, ranks, id=f"{graph.name}-{ranks}", marks=long_if(graph is GRAPHS[1] and ranks < RANKS[-1]))
        for graph in GRAPHS
        for ranks in RANKS
    ],
)
directions = pytest.mark.parametrize("direction", ["forward", "both"])


def shard_counts(graph: DescribedTypes, ranks: int, spec: UnionSpec) -> list[PhaseCount]:
    source = graph.source(spec)
    parts = PartSizes.at_random(source.graph, ranks, graph.types, source.entries)
    return count(row_phases(source, parts, RowPlaces()))


@directions
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_a_union_moves_the_edges_once_in_little_memory(graph: DescribedTypes, direction: str) -> None:
    phases = count(UnionPlan(graph.sizes, UnionSpec(direction)).phases())
    edges = graph.nnz * (2 if direction == "both" else 1)
    data = 4 * edges + 24 * graph.sizes.num_vertices
    assert sum(phase.bytes_read for phase in phases) < 2 * data
    assert max(phase.most_memory for phase in phases) + BASE_MEMORY < MEMORY
    assert total_tasks(phases) < 2 * data / (4 << 20) + 64
    check_opens(phases)


@directions
@cases
def test_a_partition_counts_what_parts_exchange_for_all_relations(
    graph: DescribedTypes, ranks: int, direction: str
) -> None:
    forward, backward = (graph.sizes.union(each) for each in (UnionSpec(direction), UnionSpec(direction).transposed))
    options = PartitionOptions(ranks, "random", reverse=direction == "both")
    counted = partition_counts(forward, backward, options, 1, MEMORY)
    check_opens(counted)
    data = 8 * (forward.nnz + backward.nnz) + 64 * forward.num_vertices
    assert sum(phase.bytes_read for phase in counted) < 4 * data
    assert total_tasks(counted) < data / (1 << 20) + 4 * ranks + 64


@cases
def test_grid_shards_move_the_edges_a_few_times_in_little_memory(graph: DescribedTypes, ranks: int) -> None:
    side = math.isqrt(ranks)
    options = GridOptions((side, side), "double")
    plan = TypedGridPlan(graph.sizes, {}, graph.data, options, MEMORY, TypedGridPlaces())
    phases = count(plan.phases())
    check_opens(phases)
    # Four variants of all edges as keys, and the row pointers of each relation in each column of the grid.
    pointers = 8 * graph.sizes.num_vertices * side * len(graph.relations)
    data = 4 * (8 * graph.nnz + pointers) + 2 * (graph.feature_bytes + 8 * graph.sizes.num_vertices)
    for phase in phases:
        assert phase.bytes_read <= 3 * data, phase
        assert phase.bytes_written <= 3 * data, phase
    assert max(phase.most_memory for phase in phases) + BASE_MEMORY < 2 * MEMORY + 16 * graph.sizes.num_vertices // side


@pytest.mark.slow
@pytest.mark.parametrize("is_replicated", [False, True], ids=["halos", "replicated"])
@directions
@cases
def test_row_shards_move_the_data_a_few_times_in_little_memory(
    graph: DescribedTypes, ranks: int, direction: str, is_replicated: bool
) -> None:
    spec = UnionSpec(direction, graph.hubs if is_replicated else ())
    phases = shard_counts(graph, ranks, spec)
    check_opens(phases)
    source = graph.source(spec)
    halo = 16 * sum(PartSizes.at_random(source.graph, ranks, graph.types).received)
    rows = 32 * graph.sizes.num_vertices * source.row_records
    data = 8 * source.entries + rows + graph.feature_bytes + halo + 16 * ranks**2
    for phase in phases:
        assert phase.bytes_read <= 4 * data, phase
        assert phase.bytes_written <= 4 * data, phase
        assert client_bytes([phase]) <= data // 400 + (20 << 20), phase
        # Row blocks are routed as large as ingest makes them.
        if not phase.phase.startswith("route"):
            assert BASE_MEMORY + phase.most_memory <= MINIMUM_MEMORY, phase
    written = sum(phase.bytes_written for phase in phases if phase.phase in {"shard", "join rows", "send lists"})
    assert written <= 2 * data
