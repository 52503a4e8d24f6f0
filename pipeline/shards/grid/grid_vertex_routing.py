"""Vertex data on their way to a permuted order: what is stored for each vertex, routed by position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.shards.grid.grid_vertex_plan import Types, VertexPlan
from gnnloom.pipeline.shards.grid.part_order import Order
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Needs
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter


@dataclass(frozen=True)
class StoredVertexRows:
    """The per-vertex arrays to permute.

    Attributes:
        vertices_path: artifact of the vertex data; None if there are only degrees.
        types: name to dtype and trailing shape of each array.
    """

    graph_path: Path
    vertices_path: Path | None
    types: Mapping[str, tuple[str, tuple[int, ...]]]

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Read vertices ``start`` to ``stop`` of an array, in the order of the ids."""
        if name == "vertex":
            return np.arange(start, stop, dtype=np.int64)
        if name != "degree":
            return Vertices(Artifact(self.vertices_path or Path())).array(name).read(start, stop)
        graph = Graph(Artifact(self.graph_path))
        return _weighted_degree(graph, start, stop) if graph.weighted else graph.degree(start, stop)


@dataclass(frozen=True)
class RouteRangeTask:
    """Sorts one range of vertices by their positions in an order.

    Attributes:
        shuffle: of the order.
        number: number of the range.
        permutation: of the order; a plan that is only counted may lack it.
        lane: where its rows go, relative to the work folder.
        needs: what the task will do.
    """

    writer: ArtifactWriter
    shuffle: Shuffle
    permutation: Order | None
    table: StoredVertexRows
    plan: VertexPlan
    number: int
    lane: Lane
    needs: Needs

    @property
    def name(self) -> str:
        # A resumed run may have another memory, and then other ranges.
        return f"route/{self.shuffle.name}/{self.plan.range_rows}/{self.number:05d}"


def vertex_types(given: Types, *, weighted: bool, with_ids: bool) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Types of the arrays to permute: those given, and the degrees.

    The degree of a row is its number of nonzeros (int64), or the sum of its weights (float64).
    """
    types: dict[str, tuple[str, tuple[int, ...]]] = {"degree": ("float64" if weighted else "int64", ())}
    if with_ids:
        types["vertex"] = ("int64", ())
    return {**types, **given}


def route_range(task: RouteRangeTask) -> int:
    """Sort a range's rows by position and write them; returns the number of rows."""
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        start, stop = task.plan.vertices_of(task.number)
        position = np.arange(start, stop, dtype=np.int64)
        if task.permutation is not None:
            position = task.permutation.forward(position)
        # Positions are distinct, so any sort gives the same order.
        order = np.argsort(position)
        out.add_columns(Index.of_positions(position[order]), lambda name: task.table.read(name, start, stop)[order])
    return stop - start


def _weighted_degree(graph: Graph, start: int, stop: int) -> NDArray[np.float64]:
    """Sum the weights of rows ``start`` to ``stop``."""
    # Sums of float32 weights lose digits in rows with many entries, so they are kept in float64.
    sums = np.zeros(stop - start, dtype=np.float64)
    for block in range(graph.num_blocks):
        first, last = max(start, graph.block_rows[block]), min(stop, graph.block_rows[block + 1])
        if first < last:
            csr = graph.block(block)
            rows = np.repeat(np.arange(csr.num_rows) + csr.row_offset, np.diff(csr.indptr))
            inside = (rows >= first) & (rows < last)
            values = csr.data if csr.data is not None else np.ones(csr.nnz)
            sums += np.bincount(rows[inside] - start, weights=values[inside], minlength=stop - start)
    return sums
