"""Measures what a choice of method depends on, on a hypergraph on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import row_nonzeros
from gnnloom.pipeline.partition.model.structure import Structure
from gnnloom.pipeline.partition.multilevel.clustering import cluster_vertices
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.store_hypergraph import store_rows
from gnnloom.pipeline.partition.multilevel.transpose_incidence import transpose_incidence
from gnnloom.pipeline.partition.multilevel.vectors import store_vector
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage.artifacts.graph import Graph

#: Rounds of label propagation, and average vertices that a cluster may weigh as much as.
_ROUNDS, _VERTICES_PER_CLUSTER = 2, 6
#: Bytes for the buffers of the sort that transposes a directed graph.
_SORT_BYTES = 128 << 20


def measure_structure(graph: Graph, scratch: Path) -> Structure:
    """Measure a graph; takes about 0.3 processor seconds for a million pins, and memory for each vertex only.

    Args:
        graph: its rows are taken as nets, whatever direction is partitioned: both have the same clusters.
        scratch: folder for temporary files, which the caller removes.
    """
    nonzeros = np.concatenate([part for _, part in row_nonzeros(graph)])
    hypergraph = _hypergraph_of_rows(graph, np.maximum(nonzeros, 1), scratch)
    limit = _VERTICES_PER_CLUSTER * hypergraph.total_weight // graph.num_vertices
    label = cluster_vertices(hypergraph, limit, _ROUNDS)
    skew = float(nonzeros.max(initial=0)) / max(float(nonzeros.mean()), 1e-300)
    return Structure(graph.nnz + graph.num_vertices, pins_left(hypergraph, label), skew)


def pins_left(hypergraph: DiskHypergraph, label: NDArray[Any]) -> float:
    """The share of pins that remain if the vertices of a cluster become one; nets within one cluster vanish.

    Args:
        label: (num_vertices,) cluster of each vertex.
    """
    before, after = _count_pins(hypergraph, label)
    return after / max(1, before)


def _count_pins(hypergraph: DiskHypergraph, label: NDArray[Any]) -> tuple[int, int]:
    """Pins of nets with two or more pins, before and after repeated labels of a net become one."""
    seen = np.full(int(label.max(initial=0)) + 1, -1, dtype=np.int64)
    total = np.zeros(2, dtype=np.int64)
    for block in hypergraph.nets.blocks():
        _count_labels(block.first_row, block.offset, block.ids, label, seen, total)
    before, after = total.tolist()
    return before, after


@njit(cache=True, nogil=True)
def _count_labels(
    first_net: int,
    offset: NDArray[np.int64],
    pin: NDArray[Any],
    label: NDArray[Any],
    seen: NDArray[np.int64],
    total: NDArray[np.int64],
) -> None:
    """Add the counts of a block of nets to ``total``, (2,) int64.

    Args:
        seen: (num_labels,) int64 last net that had a pin of each label.
    """
    for row in range(len(offset) - 1):
        net = first_net + row
        distinct = 0
        for position in range(offset[row], offset[row + 1]):
            if seen[label[pin[position]]] != net:
                seen[label[pin[position]]] = net
                distinct += 1
        size = offset[row + 1] - offset[row]
        if size > 1:
            total[0] += size
        if distinct > 1:
            total[1] += distinct


def _hypergraph_of_rows(graph: Graph, weight: NDArray[np.int64], folder: Path) -> DiskHypergraph:
    here = InProcessCluster()
    nets = vertices = store_rows(folder / "rows", graph, here)
    # Not the stored transpose: a projection may not write an artifact.
    if not graph.symmetric:
        vertices = transpose_incidence(nets, graph.num_vertices, folder / "columns", _SORT_BYTES, here)
    path = store_vector(folder / "weight.npy", weight)
    return DiskHypergraph(nets, vertices, path, None, int(weight.sum()), int(weight.max(initial=0)))
