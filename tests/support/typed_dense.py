"""Random graphs with types, and dense matrices of their relations over all vertices, made from lists of edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

import gnnloom
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Dataset, TypedGraph
from gnnloom.storage.artifacts.typed.typed_graph import KeptEdges, Relation
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.shards.typed_row_shards import RelationRows, TypedRowShards
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


def dense_union(graph: TypedGraph, direction: str, replicated: Sequence[str] = ()) -> tuple[np.ndarray, np.ndarray]:
    """The (n, n) bool union of the relations in a direction, and the (n,) edges of all of them in each row.

    Args:
        replicated: types whose columns the union lacks.
    """
    total = np.add.reduce([np.zeros((graph.num_vertices,) * 2, np.int64), *dense_relations(graph).values()])
    total = {"forward": total, "backward": total.T, "both": total + total.T}[direction]
    pattern = total > 0
    for each in map(graph.type, replicated):
        pattern[:, each.first : each.first + each.count] = False
    return pattern, total.sum(axis=1)


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


def ingest_shop(
    catalog: Path, folder: Path, seed: int = 0, users: int = 60, scratch: Scratch = BESIDE
) -> gnnloom.Dataset:
    """Store a graph whose relations have several columns of edges, one value, or none; and vertex data of two types."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    count = 5 * users
    pays = {
        "user": rng.integers(0, users, count),
        "shop": rng.integers(0, 15, count),
        "amount": rng.integers(1, 99, count),
        "at": pd.to_datetime(rng.integers(0, 1 << 30, count), unit="s").strftime("%Y-%m-%dT%H:%M:%S"),
        "fee": rng.integers(0, 9, count) / 4,
        "tip": rng.integers(-9, 9, count),
        "kind": rng.choice(["card", "cash", "transfer"], count),
    }
    pd.DataFrame(pays).to_csv(folder / "pays.csv", index=False)
    knows = {"one": rng.integers(0, users, count), "other": rng.integers(0, users, count), "w": rng.random(count)}
    pd.DataFrame(knows).to_csv(folder / "knows.csv", index=False)
    at = {"shop": np.arange(15), "country": rng.integers(0, 3, 15)}
    pd.DataFrame(at).to_csv(folder / "at.csv", index=False)
    listed = {"id": np.arange(users), "age": rng.random(users), "y": rng.integers(0, 4, users)}
    pd.DataFrame(listed).to_csv(folder / "users.csv", index=False)
    shops = {"id": np.arange(15), "a": rng.random(15), "b": rng.random(15), "c": rng.random(15)}
    pd.DataFrame(shops).to_csv(folder / "shops.csv", index=False)
    columns = "user,shop,amount as weight,at as time,fee as feature,tip as feature,kind as label"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "gnnloom.workflows.api.ingest.open_cluster", lambda _: nullcontext(InProcessCluster(scratch=scratch))
        )
        return gnnloom.ingest(
            "shop",
            relations={
                ("user", "pays", "shop"): f"{folder}/pays.csv:{columns}",
                ("user", "knows", "user"): f"{folder}/knows.csv:one,other,w as weight",
                ("shop", "at", "country"): f"{folder}/at.csv:shop,country",
            },
            vertices={
                "user": f"{folder}/users.csv:id,age as feature,y as label",
                "shop": f"{folder}/shops.csv:id,a as feature,b as feature,c as feature",
            },
            merge="keep",
            workers=0,
            catalog=catalog,
        )


def edge_values(relation: Relation) -> dict[str, np.ndarray]:
    """(nnz, ...) values of the columns of the edges of a relation, in the order of its edges, and their numbers."""
    found = {name: relation.column(name) for name in relation.edge_columns}
    if not found and (relation.weighted or relation.has_times):
        name = "weight" if relation.weighted else "time"
        found[name] = np.concatenate([values for _, _, values in relation.edge_blocks() if values is not None])
    number = relation.edge_positions() if isinstance(relation, KeptEdges) else np.arange(relation.nnz)
    return found | ({"edge": number} if found else {})


def check_typed_shards(shards: TypedRowShards, graph: TypedGraph, part: np.ndarray, data: Mapping[str, Any]) -> None:
    """Compare all shards with what NumPy makes of the edges: numbers, halos, lists, matrices, columns, vertex data."""
    reverse = {each.name for each in shards.relations} - {each.name for each in graph.relations}
    union = dense_union(graph, "both" if reverse else "forward", shards.replicated)[0]
    own = [np.flatnonzero(part == rank) for rank in range(shards.num_parts)]
    halo = []
    for rank, vertices in enumerate(own):
        needed = np.flatnonzero(union[vertices].any(axis=0))
        needed = needed[part[needed] != rank]
        halo.append(needed[np.lexsort((needed, part[needed]))])
    for name in shards.replicated:
        each = graph.type(name)
        np.testing.assert_array_equal(shards.owner(name), part[each.first : each.first + each.count])
        names = data[name].names if name in data else ()
        assert shards.replicated_names(name) == list(names)
        for array in names:
            held = shards.replicated_array(name, array).read()
            np.testing.assert_array_equal(held, data[name].array(array).read())
    for rank, vertices in enumerate(own):
        shard = shards.shard(rank)
        np.testing.assert_array_equal(shard.vertex(), vertices)
        np.testing.assert_array_equal(shard.halo_vertex(), halo[rank])
        np.testing.assert_array_equal(np.diff(shard.halo_offset()), np.bincount(part[halo[rank]], minlength=len(own)))
        sent = [each[part[each] == rank] for each in halo]
        np.testing.assert_array_equal(vertices[shard.send_row()], np.concatenate(sent))
        np.testing.assert_array_equal(np.diff(shard.send_offset()), [len(each) for each in sent])
        for relation in shards.relations:
            _check_relation(shard.relation(relation.name), graph, vertices, halo[rank])
        for each in graph.types:
            of_type = vertices[(vertices >= each.first) & (vertices < each.first + each.count)] - each.first
            names = data[each.name].names if each.name in data else ()
            assert shard.vertex_names(each.name) == list(names)
            for name in names:
                rows = shard.vertex_array(each.name, name).read()
                np.testing.assert_array_equal(rows, data[each.name].array(name).read()[of_type])


def _check_relation(rows: RelationRows, graph: TypedGraph, own: np.ndarray, halo: np.ndarray) -> None:
    """Compare the rows of one relation with the edges that end, or for a reverse begin, at the own vertices."""
    relation, values = graph.relation(rows.relation.of), edge_values(graph.relation(rows.relation.of))
    sources, targets = (np.concatenate([each[end] for each in relation.edge_blocks()]) for end in (0, 1))
    ends = targets + relation.target.first, sources + relation.source.first
    at, to = ends if rows.relation.name == relation.name else ends[::-1]
    np.testing.assert_array_equal([rows.first_row], np.searchsorted(own, graph.type(rows.relation.target).first))
    source = graph.type(rows.relation.source)
    held = np.arange(source.first, source.first + source.count)
    if rows.relation.replicated:
        assert (rows.own.nnz, rows.halo.nnz) == (0, 0)
        blocks = [("replicated", held, rows.replicated)]
    else:
        assert rows.replicated is None
        blocks = [("own", own, rows.own), ("halo", halo, rows.halo)]
    assert set(rows.columns) == {block for block, _, _ in blocks}
    for block, columns, matrix in blocks:
        assert matrix is not None
        order = np.argsort(columns)
        place = np.full(graph.num_vertices, -1)
        place[columns[order]] = order
        edge = np.flatnonzero(np.isin(at, own) & (place[to] >= 0))
        row = np.searchsorted(own, at[edge]) - rows.first_row
        # Equal edges are in the order of their numbers.
        edge, row = (each[np.lexsort((edge, place[to[edge]], row))] for each in (edge, row))
        np.testing.assert_array_equal(np.diff(matrix.indptr), np.bincount(row, minlength=matrix.num_rows))
        np.testing.assert_array_equal(matrix.indices, place[to[edge]])
        assert matrix.num_columns == len(columns)
        assert set(rows.columns[block]) == set(values)
        for name, each in values.items():
            np.testing.assert_array_equal(rows.columns[block][name], each[edge])
