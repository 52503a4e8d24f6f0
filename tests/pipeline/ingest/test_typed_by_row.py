"""Tables whose rows name the relation of an edge, or the type of a vertex, become what pandas makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gnnloom
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.divide import DividePlan, Division
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph
from gnnloom.pipeline.ingest.typed.table import parse_relations, parse_vertices
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.tasks.cluster import Cluster, InProcessCluster
from gnnloom.pipeline.tasks.phase import count
from gnnloom.storage import Catalog, Dataset, TypedGraph
from gnnloom.storage.artifacts.typed.typed_names import distinct_names
from gnnloom.storage.errors import GnnloomError, InputError
from support.covering import examples
from support.stopping import run_in_steps
from support.typed_tables import FEW_KEYS, MANY_BLOCKS, MANY_FILES


def _ingest(dataset: Dataset, folder: Path, unknown: str = "drop", cluster: Cluster | None = None) -> TypedGraph:
    """Store the tables of a folder: edges with a word and a weight, and vertices with a type."""
    relations = parse_relations([f"*,*,*={folder / 'edges.csv'}:from,to,word as relation,w as weight"])
    tables = TypedTables.open(relations, parse_vertices([f"*={folder / 'vertices.csv'}:id,kind as type"]), {})
    cluster = cluster or InProcessCluster(scratch=FEW_KEYS)
    return ingest_typed_graph(dataset, tables, IngestOptions(), TypedOptions(unknown), cluster)


def _write(folder: Path, edges: pd.DataFrame, vertices: pd.DataFrame) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    edges.to_csv(folder / "edges.csv", index=False)
    vertices.to_csv(folder / "vertices.csv", index=False)


def _check(graph: TypedGraph, edges: pd.DataFrame, vertices: pd.DataFrame) -> None:
    """Compare every type and relation with a join of the tables."""
    kinds = vertices.drop_duplicates("id")
    assert [each.name for each in graph.types] == sorted(set(kinds["kind"]))
    ids = {}
    for each in graph.types:
        members = np.unique(kinds["id"][kinds["kind"] == each.name])
        found = graph.ids(each.name)
        ids[each.name] = np.array(found.original_name() if found.has_names else found.original_id())
        np.testing.assert_array_equal(ids[each.name], members)
    joined = edges.merge(kinds, left_on="from", right_on="id").merge(kinds, left_on="to", right_on="id")
    wanted = joined.groupby(["word", "kind_x", "kind_y", "from", "to"], as_index=False)["w"].sum()
    parts = []
    for relation in graph.relations:
        matrix, source, target = relation.to_scipy().tocoo(), relation.source.name, relation.target.name
        of_relation = pd.DataFrame({"from": ids[source][matrix.col], "to": ids[target][matrix.row]})
        word = relation.facts.get("word", relation.name)
        parts.append(of_relation.assign(word=word, kind_x=source, kind_y=target, w=matrix.data))
    order = ["word", "kind_x", "kind_y", "from", "to"]
    found = pd.concat(parts)[[*order, "w"]].sort_values(order, ignore_index=True)
    expected = wanted[[*order, "w"]].sort_values(order, ignore_index=True)
    pd.testing.assert_frame_equal(found, expected.astype({"w": "float32"}), check_dtype=False)
    assert graph.artifact.facts.get("left_out", 0) == len(edges) - len(joined)
    assert graph.artifact.facts["edges_in"] == len(edges)


def _random(seed: int, edges: int = 300, *, names: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    ids = rng.permutation(60) * 3
    kinds = rng.choice(["Person", "City", "Film"], 50)
    called = np.array([f"n{each}é" for each in range(200)]) if names else np.arange(200)
    vertices = pd.DataFrame({"id": called[ids[:50]], "kind": kinds})
    # Some rows occur twice, with the same type.
    vertices = pd.concat([vertices, vertices[:7]])
    ends = called[rng.choice(ids, (2, edges))]
    words = rng.choice(["knows", "/likes/very much", "IN"], edges)
    return pd.DataFrame({"from": ends[0], "to": ends[1], "word": words, "w": rng.integers(1, 9, edges)}), vertices


#: Many files and blocks, of which a few edges are read at a time.
FEW_EDGES = replace(MANY_FILES, read_edges=7)


@pytest.mark.slow
@pytest.mark.parametrize("names", [False, True])
def test_tables_of_several_types_and_relations(catalog: Catalog, tmp_path: Path, names: bool) -> None:
    edges, vertices = _random(1, names=names)
    _write(tmp_path / "t", edges, vertices)
    graph = _ingest(catalog.create("g"), tmp_path / "t")
    _check(graph, edges, vertices)
    assert [finding.problem for finding in catalog["g"].verify()] == [None]
    # The names of relations are valid, and the words are kept.
    named = {each.facts.get("word", each.name) for each in graph.relations}
    assert named == {"knows", "/likes/very much", "IN"}
    assert "Person_likes_very_much_City" in {each.name for each in graph.relations}
    with pytest.raises(InputError, match="'"):
        _ingest(catalog.create("strict"), tmp_path / "t", "error")


@pytest.mark.slow
def test_bytes_do_not_depend_on_memory_or_interruptions(catalog: Catalog, tmp_path: Path) -> None:
    edges, vertices = _random(2)
    _write(tmp_path / "t", edges, vertices)
    whole = _ingest(catalog.create("whole"), tmp_path / "t", cluster=InProcessCluster(scratch=MANY_BLOCKS))
    _check(whole, edges, vertices)
    stopped, ran = run_in_steps(
        lambda cluster: _ingest(catalog.create("stopped"), tmp_path / "t", cluster=cluster), 23, scratch=FEW_EDGES
    )
    assert len(ran) > 80
    assert stopped.artifact.digest == whole.artifact.digest
    assert stopped.artifact.facts == whole.artifact.facts


@st.composite
def _tables(draw: st.DrawFn) -> tuple[pd.DataFrame, pd.DataFrame]:
    ids = draw(st.lists(st.integers(0, 30), min_size=2, max_size=12, unique=True))
    kinds = draw(st.lists(st.sampled_from(["a1", "b1", "c1"]), min_size=len(ids), max_size=len(ids)))
    row = st.tuples(st.sampled_from([*ids, 99]), st.sampled_from(ids), st.sampled_from("xyz"), st.integers(1, 3))
    rows = [(ids[0], ids[1], "x", 1), *draw(st.lists(row, max_size=20))]
    return pd.DataFrame(rows, columns=["from", "to", "word", "w"]), pd.DataFrame({"id": ids, "kind": kinds})


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(tables=_tables())
def test_random_tables(tmp_path_factory: pytest.TempPathFactory, tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    folder = tmp_path_factory.mktemp("random")
    _write(folder, *tables)
    _check(_ingest(Catalog(folder / "catalog").create("g"), folder), *tables)


@pytest.mark.parametrize(
    ("edges", "vertices", "unknown", "message"),
    [
        ("1,2,x,1\n", "1,a\n2,b\n1,b\n", "drop", r"vertices\.csv, line 2: .*'1'.*(a and b|b and a)"),
        ("1,9,x,1\n", "1,a\n2,b\n", "add", "--unknown add"),
        ("1,9,x,1\n", "1,a\n2,b\n", "error", r"edges\.csv, line 2: .*'9'"),
        ("8,9,x,1\n", "1,a\n2,b\n", "drop", "1 edge"),
        ("1,2,,1\n", "1,a\n2,b\n", "drop", r"edges\.csv, line 2"),
    ],
)
def test_bad_input_gets_one_error(
    catalog: Catalog, tmp_path: Path, edges: str, vertices: str, unknown: str, message: str
) -> None:
    (tmp_path / "edges.csv").write_text(f"from,to,word,w\n{edges}")
    (tmp_path / "vertices.csv").write_text(f"id,kind\n{vertices}")
    with pytest.raises(GnnloomError, match=message):
        _ingest(catalog.create("g"), tmp_path, unknown)


def test_types_of_rows_that_look_alike_are_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "facts.csv").write_text("from,to,word\nann,m1,saw\nbob,m2,saw\n")
    (tmp_path / "all.csv").write_text("id,kind\nann,person\nbob,person\nm1,movie\nm2,movies\n")
    gnnloom.ingest(
        "g",
        relations={("*", "*", "*"): f"{tmp_path / 'facts.csv'}:from,to,word as relation"},
        vertices={"*": f"{tmp_path / 'all.csv'}:id,kind as type"},
        workers=0,
        catalog=tmp_path / "catalog",
    )
    assert "types movie and movies, with 1 vertex and 1 vertex" in caplog.text


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["/a/b./c/d", "a b"], ["a_b_c_d", "a_b"]),
        (["a b", "a-b", "A_B"], ["a_b", "a_b_2", "A_B_3"]),
        (["http://x.org/knows", "<http://y.org/z#knows>"], ["knows", "knows_2"]),
        (["日本", "17", "x" * 120], ["unnamed", "17", "x" * 100]),
    ],
)
def test_words_become_names(words: list[str], names: list[str]) -> None:
    assert list(distinct_names(words).values()) == names


@pytest.mark.slow
def test_the_division_runs_the_tasks_that_are_counted(catalog: Catalog, tmp_path: Path) -> None:
    edges, vertices = _random(4, 60)
    _write(tmp_path, edges, vertices)
    graph, ran = run_in_steps(
        lambda cluster: _ingest(catalog.create("g"), tmp_path, cluster=cluster), 10**6, scratch=FEW_EDGES
    )
    planned = graph.artifact.measured["plan"]
    relations = parse_relations([f"*,*,*={tmp_path / 'edges.csv'}:from,to,word as relation,w as weight"])
    (table,) = TypedTables.open(relations, {}, {}).relations
    division = Division(3, 3, 3)
    counts = count(DividePlan.stated(60, len(table.edges.ranges()), division, 4).phases)
    assert [each.tasks for each in counts] == [len([name for function, name in ran if function == "divide_range"])]
    assert planned["spill_bytes"]["planned"] >= counts[0].bytes_written == 60 * (8 + 8 + 4)
    assert planned["ranges"]["planned"] >= 3


def test_more_relations_than_tasks_can_count_are_refused(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnloom.pipeline.ingest.typed.relations._MOST_POSITIONS", 26)
    _write(tmp_path, *_random(5, 40))
    with pytest.raises(InputError, match="3 words"):
        _ingest(catalog.create("g"), tmp_path)
