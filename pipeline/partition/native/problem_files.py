"""Files that hand a problem to a native program: hMETIS' and METIS' text formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.adjacency_graph import AdjacencyGraph
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.storage.kernels import kernel

#: Pins that are formatted at a time, into at most 20 MB of text.
_CHUNK_PINS = 1 << 20
#: Bytes that the longest number and the separator behind it need.
_DIGITS = 20


def write_hmetis(path: Path, hypergraph: Hypergraph, vertex_weight: NDArray[np.int64]) -> None:
    """Write a hypergraph with these vertex weights; the file numbers nets and vertices from 1.

    The text takes about 7 bytes for each pin.  Memory does not grow with the size, unless nets have weights (then 16
    bytes for each pin).

    Args:
        vertex_weight: (num_vertices,) int64; replaces the hypergraph's own.
    """
    with path.open("wb") as file:
        weighted = hypergraph.net_weight is not None
        # The last number announces weights: 10 of vertices only, 11 of nets as well.
        file.write(f"{hypergraph.num_nets} {hypergraph.num_vertices} {11 if weighted else 10}\n".encode())
        if hypergraph.net_weight is None:
            write_lines(file, hypergraph.net_offset, hypergraph.pin, 1)
        else:
            # A net's line begins with its weight; 1 is subtracted here because write_lines adds 1 to every number.
            offset = hypergraph.net_offset
            numbers = np.insert(hypergraph.pin.astype(np.int64), offset[:-1], hypergraph.net_weight - 1)
            write_lines(file, offset + np.arange(len(offset)), numbers, 1)
        one_per_line = np.arange(len(vertex_weight) + 1, dtype=np.int64)
        write_lines(file, one_per_line, vertex_weight, 0)


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


def write_lines(file: BinaryIO, offset: NDArray[np.int64], value: NDArray[Any], increment: int) -> None:
    """Write value[offset[k]..offset[k+1]], each plus ``increment``, as line k.

    Args:
        offset: (num_lines + 1,) int64.
        value: (num_values,) integers; at least 0 after the increment.
    """
    start = 0
    while start < len(offset) - 1:
        # A line that is longer than a chunk is written alone.
        stop = max(start + 1, int(np.searchsorted(offset, offset[start] + _CHUNK_PINS, side="right")) - 1)
        lines = offset[start : stop + 1]
        # Every number at its longest; pages that stay untouched take no memory.
        text = np.empty((lines[-1] - lines[0]) * _DIGITS + len(lines), dtype=np.uint8)
        length = _format_lines(lines, value, increment, text)
        file.write(text[:length].data)
        start = stop


@kernel
def _format_lines(offset: NDArray[np.int64], value: NDArray[Any], increment: int, text: NDArray[np.uint8]) -> int:
    """Format non-negative numbers in decimal, separated by blanks; returns the number of bytes."""
    digits = np.empty(_DIGITS, dtype=np.uint8)
    length = 0
    for line in range(len(offset) - 1):
        # Formatting in a kernel makes no Python object per pin.
        for position in range(offset[line], offset[line + 1]):
            # Digits come out from the last to the first, so they are reversed on the way to the text.
            rest = np.int64(value[position]) + increment
            count = 0
            # At least one digit, so that 0 is written as well.
            while count == 0 or rest > 0:
                digits[count] = 48 + rest % 10
                rest //= 10
                count += 1
            while count > 0:
                count -= 1
                text[length] = digits[count]
                length += 1
            text[length] = 32
            length += 1
        # The newline replaces the blank after the last number.
        text[length - 1] = 10
    return length
