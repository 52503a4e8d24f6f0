"""The graphs whose plans are counted: real ones, and two that no machine at hand can hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnnloom.pipeline.matrix_sort.sort_plan import SortSizes
from gnnloom.pipeline.shards.shard_source import ShardSource
from gnnloom.pipeline.sources.numpy_edges import RANGE_EDGES
from gnnloom.pipeline.tasks.sizes import GraphSizes, VertexSizes

#: Bytes that a worker may use.
MEMORY = 1 << 30
#: Classes of every graph.
CLASSES = 172


@dataclass(frozen=True)
class Described:
    """Sizes of an undirected graph.

    Attributes:
        nnz: nonzeros of its adjacency, both directions included.
        width: features of a vertex.
    """

    name: str
    num_vertices: int
    nnz: int
    width: int

    @property
    def types(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Vertex arrays of the grid shards."""
        return {
            "degree": ("int64", ()),
            "feature": ("float32", (self.width,)),
            "label": ("int32", ()),
            "split": ("uint8", ()),
        }

    @property
    def row_bytes(self) -> int:
        """Bytes of a vertex in the vertex data."""
        return 4 * self.width + 5

    @property
    def matrix_bytes(self) -> int:
        """Bytes of the adjacency in memory."""
        return self.nnz * (4 if self.num_vertices < 1 << 31 else 8) + 8 * self.num_vertices

    @property
    def edges(self) -> SortSizes:
        """The edges as an ingest finds them, in NumPy arrays."""
        count = self.nnz // 2
        ranges = math.ceil(count / RANGE_EDGES)
        return SortSizes.even(self.num_vertices, count, ranges, MEMORY, undirected=True)

    @property
    def source(self) -> ShardSource:
        """What shards are made from."""
        graph = GraphSizes.even(
            self.num_vertices,
            self.nnz,
            symmetric=True,
            weighted=False,
            num_blocks=self.edges.num_blocks,
            stored_bytes=self.matrix_bytes,
        )
        return ShardSource(graph, VertexSizes.plain(self.num_vertices, self.width, CLASSES))

    def halo_rows(self, ranks: int) -> int:
        """Rows that random parts receive, all ranks together: the most that any partition needs."""
        degree = self.nnz / self.num_vertices
        return int((1 - (1 - 1 / ranks) ** degree) * self.num_vertices * (ranks - 1))


#: n, nnz and widths of ogbn-products, ogbn-papers100M and com-Friendster as published; the last two are made up.
GRAPHS = (
    Described("products", 2_449_029, 123_718_280, 100),
    Described("papers100M", 111_059_956, 3_231_371_744, 128),
    Described("friendster", 65_608_366, 3_612_134_270, 64),
    Described("billion", 10**9, 10**10, 128),
    Described("ten-billion", 10**10, 10**11, 128),
)
#: Ids beyond 32 bits, and few enough bytes that the tasks of the ranges of its rows are soon described.
NARROW = Described("narrow", 3 * 10**9, 10**10, 8)
