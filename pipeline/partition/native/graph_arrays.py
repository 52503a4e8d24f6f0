"""Plain arrays that hand a graph to a native program; the child process that reads them starts without numba."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.numpy_files import load_array

if TYPE_CHECKING:
    from gnnloom.pipeline.partition.model.adjacency_graph import AdjacencyGraph


def save_graph(path: Path, graph: AdjacencyGraph, vertex_weight: NDArray[np.int64]) -> None:
    """Save the arrays with 32 bits per number, as METIS reads them; ``check_problem`` made sure that these suffice."""
    with path.open("wb") as file:
        for array in (graph.offset, graph.neighbor, vertex_weight, graph.edge_weight):
            np.save(file, array.astype(np.int32), allow_pickle=False)


def load_graph(path: Path) -> list[NDArray[np.int32]]:
    """Read what :func:`save_graph` wrote: offsets, neighbors, vertex weights and edge weights, all int32."""
    with path.open("rb") as file:
        return [load_array(file) for _ in range(4)]
