"""The graphs whose plans are counted: real ones, and two that no machine at hand can hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Described:
    """Sizes of a graph.

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
