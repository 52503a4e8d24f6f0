"""A graph's whole matrix for random access: in the memory of one process, or mapped from files that all share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.disk.value_rules import Ascending, Within
from gnnloom.storage.format.mapped_copy import ArrayContent, open_copy
from gnnloom.storage.kernels import kernel, read_only
from gnnloom.storage.matrix.csr import CSR, index_dtype


@dataclass(frozen=True)
class WholeGraph:
    """All rows of a graph. Row i lists the vertices that vertex i gathers from.

    Attributes:
        matrix: all rows and columns; its arrays cannot be written.
        loop: (num_vertices,) bool, whether each vertex is in its own row.
    """

    matrix: CSR
    loop: NDArray[np.bool_]

    @property
    def num_vertices(self) -> int:
        return self.matrix.num_rows

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """All arrays."""
        values = [] if self.matrix.data is None else [self.matrix.data]
        return [self.matrix.indptr, self.matrix.indices, *values, self.loop]


def whole_graph(matrix: CSR) -> WholeGraph:
    """Wrap a square matrix that is in memory."""
    loop = np.empty(matrix.num_rows, np.bool_)
    _find_loops(0, matrix.indptr, matrix.indices, loop)
    data = None if matrix.data is None else read_only(matrix.data)
    frozen = CSR(0, read_only(matrix.indptr), read_only(matrix.indices), data, matrix.num_columns)
    return WholeGraph(frozen, read_only(loop))


def read_whole_graph(graph: Graph, *, pattern: bool = False) -> WholeGraph:
    """Read a graph into memory.

    Args:
        pattern: leave out the weights.
    """
    contents = graph_contents(graph)
    if pattern:
        contents.pop("data", None)
    arrays = {name: content.read(f"{graph.artifact.path}: {name}") for name, content in contents.items()}
    return _from_arrays({name: read_only(array) for name, array in arrays.items()})


def map_whole_graph(graph: Graph) -> WholeGraph:
    """Map a graph from uncompressed files in its dataset; the first call of all processes makes them.

    All processes of a node that map it share one copy in the page cache. The files count as used, and stay, as long as
    the result exists; see :mod:`gnnloom.storage.format.mapped_copy`.

    Raises:
        BudgetError: the disk has no room for the files.
        InputError: the folder of the dataset cannot be written.
    """
    return _from_arrays(open_copy(graph.artifact, graph_contents(graph)))


def graph_contents(graph: Graph) -> dict[str, ArrayContent]:
    """The arrays of a whole graph by name: ``indptr``, ``indices``, ``loop`` and, if it has weights, ``data``."""
    n, nnz = graph.num_vertices, graph.nnz
    contents = {
        "indptr": ArrayContent((n + 1,), np.dtype(np.int64), Ascending(nnz), lambda: pointer_chunks(graph)),
        "indices": ArrayContent((nnz,), index_dtype(n), Within(0, n), lambda: column_chunks(graph)),
        "loop": ArrayContent((n,), np.dtype(np.bool_), Within(0, 2), lambda: _loops(graph)),
    }
    weights = graph.weights(0)
    if weights is not None:
        contents["data"] = ArrayContent((nnz,), weights.dtype, None, lambda: _weights(graph))
    return contents


def _from_arrays(arrays: dict[str, NDArray[Any]]) -> WholeGraph:
    n = len(arrays["indptr"]) - 1
    return WholeGraph(CSR(0, arrays["indptr"], arrays["indices"], arrays.get("data"), n), arrays["loop"])


def pointer_chunks(graph: BlockMatrix) -> Iterator[NDArray[np.int64]]:
    """The row pointers of a whole matrix, in pieces."""
    yield np.zeros(1, np.int64)
    first = 0
    for number in range(graph.num_blocks):
        # Row pointers of a block start at 0, so each block is shifted by the nonzeros before it.
        yield graph.pointers(number)[1:] + first
        first += graph.block_nnz[number]


def column_chunks(graph: BlockMatrix) -> Iterator[NDArray[Any]]:
    """The column ids of a whole matrix, in pieces."""
    for number in range(graph.num_blocks):
        yield from graph.columns(number).chunks()


def _weights(graph: Graph) -> Iterator[NDArray[Any]]:
    for number in range(graph.num_blocks):
        weights = graph.weights(number)
        yield from () if weights is None else weights.chunks()


def _loops(graph: Graph) -> Iterator[NDArray[np.bool_]]:
    for block in graph.blocks():
        loop = np.empty(block.num_rows, np.bool_)
        _find_loops(block.row_offset, block.indptr, block.indices, loop)
        yield loop


@kernel
def _find_loops(first_row: int, indptr: NDArray[np.int64], indices: NDArray[Any], loop: NDArray[np.bool_]) -> None:
    for row in range(len(loop)):
        loop[row] = False
        for position in range(indptr[row], indptr[row + 1]):
            loop[row] |= indices[position] == first_row + row
