"""OGB's raw layout of a dataset for node property prediction: a folder of (compressed) CSV files.

    raw/edge.csv.gz   num-node-list.csv.gz   num-edge-list.csv.gz   node-feat.csv.gz   node-label.csv.gz
    split/NAME/{train,valid,test}.csv.gz

Each file may also be uncompressed, without ``.gz``. Features, labels and splits are optional. A single column of labels
contains classes; several columns contain zeros and ones, one column per class, as in ogbn-proteins. Hu et al., Open
Graph Benchmark (NeurIPS 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnnloom.pipeline.sources.format import SPLIT_NAME, BundledVertices, Format
from gnnloom.pipeline.sources.reading.text_columns import read_count
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.sources.vertex_data.ogb_vertices import OgbVertices, has_vertices, ogb_root, required_file
from gnnloom.storage.errors import InputError


@dataclass(frozen=True)
class OgbEdges:
    """Edges of an OGB folder; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`."""

    edges: TextEdges
    num_edges: int
    is_counted: bool = False

    @classmethod
    def open(cls, folder: str) -> OgbEdges:
        """Find the files and read the stated numbers.

        Raises:
            NotFoundError: the folder, or one of its files, does not exist.
            InputError: a stated number is invalid, or the edge file is empty.
        """
        root = ogb_root(folder)
        num_vertices = read_count(required_file(root, "raw/num-node-list"))
        num_edges = read_count(required_file(root, "raw/num-edge-list"))
        edges = TextEdges.open([required_file(root, "raw/edge").location])
        return cls(edges.with_vertices(num_vertices), num_edges)

    def identity(self) -> dict[str, Any]:
        stated = {"num_vertices": self.num_vertices(), "num_edges": self.num_edges}
        return {**self.edges.identity(), "format": "ogb", **stated}

    def num_vertices(self) -> int | None:
        return self.edges.num_vertices()

    def ranges(self) -> Sequence[SourceRange]:
        ranges = self.edges.ranges()
        # Comparing the number of edges with the stated one requires reading the whole file, or counting its lines.
        return ranges if len(ranges) > 1 else [SourceRange(0, 0, -1)]

    def surveys(self) -> Sequence[SourceRange]:
        ranges = self.ranges()
        return [] if self.is_counted or len(ranges) == 1 else ranges

    def survey(self, span: SourceRange) -> list[int]:
        return [self.edges.count_lines(span)]

    def with_surveys(self, found: Sequence[Sequence[int]]) -> OgbEdges:
        self._check_edges(sum(edges for (edges,) in found))
        return replace(self, is_counted=True)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        found = 0
        for chunk in self.edges.read(span):
            found += len(chunk.source)
            yield chunk
        if span.stop < 0:
            self._check_edges(found)

    def _check_edges(self, found: int) -> None:
        if found != self.num_edges:
            raise InputError(
                f"{self.edges.files[0].location}: {found:,} edges, num-edge-list says {self.num_edges:,};"
                " the file is truncated or belongs to another graph"
            )


FORMAT = Format(
    name="ogb",
    order=80,
    help="OGB's raw CSV layout",
    open_edges=OgbEdges.open,
    is_fallback=True,
    one_location=True,
    vertices=BundledVertices(OgbVertices.open, has_vertices, (SPLIT_NAME,)),
)
