"""The column-net hypergraph of a stored graph, which partitioners cut so that few rows have to be sent.

Vertex i is row i of the adjacency; its weight is the cost of the row's product, its nonzeros.  Net j is column j: its
pins are the rows with a nonzero in column j, and j itself, which owns the row of H that those rows need.  The
connectivity-1 cut then equals the number of rows of H that all ranks together send for one product A H.

Catalyurek, Aykanat (IEEE TPDS 10(7), 1999), section 3; Demirci, Haldar, Ferhatosmanoglu (PVLDB 16(4), 2022), section 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.settings import OF_TYPE
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.matrix.permutation import mix
from gnnloom.storage.shards.block_ranges import row_ranges

#: Weight of all vertices of a balanced type over the weight of all other vertices, at least: the other vertices change
#: the balance of the type by a thousandth.
TYPE_WEIGHT: Final = 1000


@dataclass(frozen=True)
class Hypergraph:
    """Vertices and nets with weights.

    Attributes:
        vertex_weight: (num_vertices,) int64, at least 1.
        net_offset: (num_nets + 1,) int64; net j has the pins net_offset[j]..net_offset[j+1].
        pin: (num_pins,) int32 or int64 vertices, distinct within a net; every net has two or more.
        net_weight: (num_nets,) int64, at least 1: the cost of each part beyond the first; None if all are 1.
    """

    vertex_weight: NDArray[np.int64]
    net_offset: NDArray[np.int64]
    pin: NDArray[Any]
    net_weight: NDArray[np.int64] | None = None

    @property
    def num_vertices(self) -> int:
        return len(self.vertex_weight)

    @property
    def num_nets(self) -> int:
        return len(self.net_offset) - 1

    @property
    def num_pins(self) -> int:
        return len(self.pin)

    @property
    def size(self) -> int:
        """Number of pins: what a partitioner's time and memory grow with."""
        return len(self.pin)


def row_nonzeros(graph: Graph) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The nonzeros of every row, as (first row, (num_rows,) int64), one range of rows at a time."""
    for number in range(graph.num_blocks):
        for rows in row_ranges(graph, number):
            yield rows.first, rows.nonzeros


def row_weights(graph: Graph, first: int, nonzeros: NDArray[np.int64], weights: str) -> NDArray[np.int64]:
    """(num_rows,) int64 weights of rows for the balance, at least 1.

    Args:
        first: number of the first row.
        nonzeros: (num_rows,) int64 nonzeros of the rows.
        weights: ``nonzeros`` (in a union of relations, the edges of all relations), ``unit`` for 1, or ``OF_TYPE`` with
            the name of a type, whose rows outweigh all other rows together.
    """
    if weights == "unit":
        return np.ones_like(nonzeros)
    if weights == "nonzeros":
        # Native partitioners refuse weights below 1, which empty rows would have.
        return np.maximum(graph.row_entries(first, nonzeros), 1)
    start, stop = graph.type_spans[weights.removeprefix(OF_TYPE)]
    weight = np.ones_like(nonzeros)
    if start < stop:
        heavy = TYPE_WEIGHT * -(-graph.num_vertices // (stop - start))
        weight[max(0, start - first) : max(0, stop - first)] = heavy
    return weight


def vertex_weights(graph: Graph, weights: str) -> NDArray[np.int64]:
    """(num_vertices,) int64 weights of the vertices for the balance; see :func:`row_weights`."""
    if weights == "unit":
        return np.ones(graph.num_vertices, dtype=np.int64)
    weight = np.empty(graph.num_vertices, dtype=np.int64)
    for start, nonzeros in row_nonzeros(graph):
        weight[start : start + len(nonzeros)] = row_weights(graph, start, nonzeros, weights)
    return weight


def column_net_hypergraph(
    graph: Graph, transpose: Graph, weights: str = "nonzeros", directions: str = "forward"
) -> Hypergraph:
    """Build the hypergraph in memory: 4 bytes for each pin (8 beyond 2^31 vertices) and 16 for each vertex.

    Args:
        transpose: the transpose of ``graph``, whose rows are the columns; ``graph`` itself if symmetric.
        weights: weights of the vertices; see :func:`vertex_weights`.
        directions: ``forward`` for the nets of the product with the matrix; ``both`` to add the nets of the product
            with its transpose, which the backward pass of a directed graph sends.

    Nets with a single pin cost nothing in any partition and are left out.
    """
    matrices = net_matrices(graph, transpose, directions)
    num_vertices = graph.num_vertices
    # These lengths are upper bounds; pages that stay untouched take no memory.
    net_offset = np.zeros(len(matrices) * num_vertices + 1, dtype=np.int64)
    num_pins = sum(matrix.nnz + num_vertices for matrix in matrices)
    pin = np.empty(num_pins, dtype=index_dtype(num_vertices))
    num_nets = 0
    for matrix in matrices:
        for block in matrix.blocks():
            num_nets = _append_nets(block.row_offset, block.indptr, block.indices, net_offset, pin, num_nets)
    return Hypergraph(vertex_weights(graph, weights), net_offset[: num_nets + 1], pin[: net_offset[num_nets]])


def block_nets(block: CSR) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The nets with two or more pins that the rows of a block make, as they are in the hypergraph.

    Returns:
        (num_nets + 1,) int64 offsets, and the (num_pins,) pins.
    """
    net_offset = np.zeros(block.num_rows + 1, dtype=np.int64)
    pin = np.empty(block.nnz + block.num_rows, dtype=index_dtype(block.num_columns))
    num_nets = _append_nets(block.row_offset, block.indptr, block.indices, net_offset, pin, 0)
    return net_offset[: num_nets + 1], pin[: net_offset[num_nets]]


def net_matrices(graph: Graph, transpose: Graph, directions: str) -> list[Graph]:
    """The matrices whose rows are the nets: one for a symmetric graph, whose directions are the same."""
    return [transpose, graph] if directions == "both" and not graph.symmetric else [transpose]


@kernel
def _append_nets(
    row_offset: int,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    net_offset: NDArray[np.int64],
    pin: NDArray[Any],
    num_nets: int,
) -> int:
    """Append the rows of one block as nets, each with its own vertex among the pins; returns the new number of nets.

    Args:
        net_offset, pin: arrays of the hypergraph, filled up to ``num_nets``.
    """
    for row in range(len(indptr) - 1):
        # Blocks come in order and each row appends behind the last net, so nothing is moved or allocated.
        first = net_offset[num_nets]
        end = first
        owner = row_offset + row
        has_owner = False
        for position in range(indptr[row], indptr[row + 1]):
            pin[end] = indices[position]
            has_owner = has_owner or indices[position] == owner
            end += 1
        if not has_owner:
            pin[end] = owner
            end += 1
        # A net with one pin is overwritten by the next.
        if end - first > 1:
            num_nets += 1
            net_offset[num_nets] = end
    return num_nets


@kernel(inline="always")
def pin_hash(pin: int) -> np.uint64:
    """Hash one pin; the sum over the pins of a net, modulo 2^64, does not depend on their order.

    Two different nets share a sum once in 2^64 pairs; then the cut counts one net with the weight of both.
    """
    # Without the constant, pin 0 would hash to 0 and would not change any sum.
    return mix(mix(np.uint64(pin) + np.uint64(0x9E3779B97F4A7C15)))


def select_nets(
    size: NDArray[np.int64], pin: NDArray[Any], kept: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return offsets and pins of the chosen nets.

    Args:
        size: (num_nets,) int64 pins of each net.
        pin: (num_pins,) pins, net by net.
        kept: (num_nets,) whether to keep each net.

    Returns:
        (num_kept + 1,) int64 offsets, and the pins of the kept nets.
    """
    return np.concatenate([[0], np.cumsum(size[kept])]).astype(np.int64), pin[np.repeat(kept, size)]
