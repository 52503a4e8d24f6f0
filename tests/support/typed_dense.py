"""Random graphs with types, and dense matrices of their relations over all vertices, made from lists of edges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.storage import Dataset, TypedGraph
from support.typed_tables import TypedProblem

#: Source and target type of the relations of random graphs: within a type, two between the same types, one to a type of
#: few vertices, and one whose edges all end in unknown vertices.
_ENDS = {
    "knows": ("user", "user"),
    "buys": ("user", "item"),
    "views": ("user", "item"),
    "made_in": ("item", "country"),
    "left": ("user", "gone"),
}


def dense_relations(graph: TypedGraph) -> dict[str, np.ndarray]:
    """(n, n) int64 numbers of edges by relation: row i, column j has those from vertex j to vertex i."""
    found = {}
    for each in graph.relations:
        found[each.name] = np.zeros((graph.num_vertices, graph.num_vertices), np.int64)
        for source, target, _ in each.edge_blocks():
            np.add.at(found[each.name], (target + each.target.first, source + each.source.first), 1)
    return found


def dense_union(graph: TypedGraph, direction: str) -> tuple[np.ndarray, np.ndarray]:
    """The (n, n) bool union of the relations in a direction, and the (n,) edges of all of them in each row."""
    total = np.add.reduce([np.zeros((graph.num_vertices,) * 2, np.int64), *dense_relations(graph).values()])
    total = {"forward": total, "backward": total.T, "both": total + total.T}[direction]
    return total > 0, total.sum(axis=1)


@st.composite
def typed_problems(draw: st.DrawFn) -> TypedProblem:
    """Tables of a few edges, many of them parallel; some relations are empty, and some vertices have no edges."""
    relations: dict[Any, Sequence[tuple[Any, ...]]] = {}
    for name, (source, target) in _ENDS.items():
        sizes = [2 if each == "country" else 9 for each in (source, target)]
        ends = st.tuples(*(st.integers(0, size) for size in sizes))
        rows = draw(st.lists(ends, min_size=1, max_size=30))
        # Ids that no list has: all edges of the relation are left out.
        is_left_out = name == "left" or draw(st.integers(0, 5)) == 0
        relations[source, name, target] = [(one + 50, other + 50) for one, other in rows] if is_left_out else rows
    listed = {"user": list(range(10)), "item": list(range(8)), "country": [0, 1, 2], "gone": [0], "alone": [3, 4]}
    return TypedProblem(relations, listed, "drop")


def ingest_kept(problem: TypedProblem, dataset: Dataset, folder: Path) -> TypedGraph:
    """Store a graph with its parallel edges."""
    return problem.ingest(dataset, folder, options=IngestOptions(merge="keep"))
