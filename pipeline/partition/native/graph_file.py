"""Files that hand a graph to a native program: METIS' text format, or plain arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.adjacency_graph import AdjacencyGraph
from gnnloom.pipeline.partition.native.hmetis import write_lines
from gnnloom.storage.format.numpy_files import load_array


def write_metis(path: Path, graph: AdjacencyGraph, vertex_weight: NDArray[np.int64]) -> None:
    """Write METIS' text format: for each vertex a line with its weight, then each neighbor and the edge's weight.

    The file numbers vertices from 1.

    Args:
        vertex_weight: (num_vertices,) int64; replaces the graph's own.
    """
    # Native programs take at most 2^31 - 1 vertices (``check_problem``), so ids from 1 on still fit int32.
    pairs = np.empty((graph.size, 2), dtype=graph.neighbor.dtype)
    pairs[:, 0] = graph.neighbor + 1
    pairs[:, 1] = graph.edge_weight
    numbers = np.insert(pairs.reshape(-1), 2 * graph.offset[:-1], vertex_weight.astype(pairs.dtype))
    with path.open("wb") as file:
        # The header counts each edge once; 11 announces weights of vertices and of edges.
        file.write(f"{graph.num_vertices} {graph.size // 2} 11\n".encode())
        # Two numbers per neighbor, and one more for each line before: the weight of its vertex.
        write_lines(file, 2 * graph.offset + np.arange(graph.num_vertices + 1), numbers, 0)


def save_graph(path: Path, graph: AdjacencyGraph, vertex_weight: NDArray[np.int64]) -> None:
    """Save the arrays with 32 bits per number, as METIS reads them; ``check_problem`` made sure that these suffice."""
    with path.open("wb") as file:
        for array in (graph.offset, graph.neighbor, vertex_weight, graph.edge_weight):
            np.save(file, array.astype(np.int32), allow_pickle=False)


def load_graph(path: Path) -> list[NDArray[np.int32]]:
    """Read what :func:`save_graph` wrote: offsets, neighbors, vertex weights and edge weights, all int32."""
    with path.open("rb") as file:
        return [load_array(file) for _ in range(4)]
