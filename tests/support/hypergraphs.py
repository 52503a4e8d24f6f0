"""Small hypergraphs and graphs, and their partition by a native program."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from gnnloom.pipeline.partition.methods.kahypar import KAHYPAR
from gnnloom.pipeline.partition.methods.metis import METIS
from gnnloom.pipeline.partition.model.adjacency_graph import AdjacencyGraph
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.native.ka_min_par import KAMINPAR
from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.native.program import PartitionRequest
from gnnloom.pipeline.partition.native.run import native_partition

PROGRAMS = {program.name: program for program in (MT_KAHYPAR, KAHYPAR, METIS, KAMINPAR)}


def hypergraph_of(nets: Sequence[ArrayLike], weight: ArrayLike) -> Hypergraph:
    """A hypergraph of these nets, each a list of pins, and vertex weights."""
    offset = np.concatenate([[0], np.cumsum([np.size(net) for net in nets])]).astype(np.int64)
    pin = np.concatenate([np.empty(0), *map(np.asarray, nets)]).astype(np.int32)
    return Hypergraph(np.asarray(weight, dtype=np.int64), offset, pin)


def ring(num_vertices: int, width: int = 3) -> Hypergraph:
    """Vertices on a circle; each net joins ``width`` neighbors."""
    nets = [[(start + step) % num_vertices for step in range(width)] for start in range(num_vertices)]
    return hypergraph_of(nets, [1] * num_vertices)


def as_graph(nets: Hypergraph) -> AdjacencyGraph:
    """The graph that joins the pins of every net."""
    joined = np.zeros((nets.num_vertices, nets.num_vertices), dtype=np.int8)
    for start, stop in pairwise(nets.net_offset):
        pins = nets.pin[start:stop]
        joined[np.ix_(pins, pins)] = 1
    np.fill_diagonal(joined, 0)
    matrix = scipy.sparse.csr_array(joined)
    return AdjacencyGraph(nets.vertex_weight, matrix.indptr.astype(np.int64), matrix.indices, matrix.data)


def partition(hypergraph: Hypergraph | AdjacencyGraph, method: str, request: PartitionRequest) -> NDArray[np.int32]:
    """The parts by a native program, which has to leave its scratch folder empty."""
    with tempfile.TemporaryDirectory() as scratch:
        part = native_partition(hypergraph, PROGRAMS[method], request, Path(scratch))
        assert list(Path(scratch).iterdir()) == []
        return part
