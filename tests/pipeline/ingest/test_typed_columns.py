"""Columns of edges lie in the order of the edges, and are those of the rows of the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph
from gnnloom.pipeline.ingest.typed.table import parse_relations, parse_vertices
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.tasks.cluster import Cluster, InProcessCluster
from gnnloom.storage import Catalog, Dataset, TypedGraph
from gnnloom.storage.errors import GnnloomError
from support.covering import examples
from support.lanes import flip_bit
from support.scratch import SMALL_LANES
from support.stopping import run_in_steps

COLUMNS = "who,what,amount as weight,at as time,fee as feature,tip as feature,kind as label"


def _ingest(
    dataset: Dataset,
    table: Path,
    merge: str = "keep",
    cluster: Cluster | None = None,
    columns: str = COLUMNS,
    vertices: list[str] | None = None,
) -> TypedGraph:
    tables = TypedTables.open(
        parse_relations([f"user,pays,shop={table}:{columns}"]), parse_vertices(vertices or []), {}
    )
    how = IngestOptions(merge=merge), TypedOptions("drop"), cluster or InProcessCluster()
    return ingest_typed_graph(dataset, tables, *how)


def _random(seed: int, count: int = 300, *, names: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    who, what = rng.integers(0, 25, count), rng.integers(0, 12, count)
    return pd.DataFrame(
        {
            "who": [f"u{each}é" for each in who] if names else who * 7,
            "what": what,
            "amount": rng.integers(1, 99, count),
            "at": pd.to_datetime(rng.integers(0, 1 << 30, count), unit="s").strftime("%Y-%m-%dT%H:%M:%S"),
            "fee": rng.integers(0, 9, count) / 4,
            "tip": rng.integers(-9, 9, count),
            "kind": rng.choice(["card", "cash", "transfer"], count),
        }
    )


def _check(graph: TypedGraph, table: pd.DataFrame, merge: str = "keep") -> None:
    """Compare a relation with the table, sorted as its edges are."""
    pays = graph.relation("pays")
    ids = {each.name: graph.ids(each.name) for each in graph.types}
    called = {
        name: np.array(each.original_name() if each.has_names else each.original_id()) for name, each in ids.items()
    }
    known = table[table["who"].isin(called["user"]) & table["what"].isin(called["shop"])]
    wanted = known.assign(row=known.index).sort_values(["what", "who", "row"], kind="stable")
    if merge == "first":
        wanted = wanted.drop_duplicates(["what", "who"])
    blocks = list(pays.edge_blocks())
    np.testing.assert_array_equal(called["user"][np.concatenate([each[0] for each in blocks])], wanted["who"])
    np.testing.assert_array_equal(called["shop"][np.concatenate([each[1] for each in blocks])], wanted["what"])
    np.testing.assert_array_equal(np.concatenate([pays.rows(k) for k in range(pays.num_blocks)]), wanted["row"])
    np.testing.assert_array_equal(pays.column("weight"), wanted["amount"].astype("float32"))
    times = pays.column("time").astype(f"M8[{pays.time_unit}]")
    np.testing.assert_array_equal(times, pd.to_datetime(wanted["at"]).to_numpy())
    np.testing.assert_array_equal(pays.column("feature"), wanted[["fee", "tip"]].to_numpy("float32"))
    np.testing.assert_array_equal(np.array(pays.classes)[pays.column("label")], wanted["kind"])
    assert pays.edge_columns["feature"] == ["fee", "tip"]
    data = pays.to_scipy().data
    np.testing.assert_array_equal(data, wanted["amount"].astype("float32"))


@pytest.fixture
def many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many chunks, which make many tasks."""
    monkeypatch.setattr("gnnloom.pipeline.ingest.typed.edge_columns.CHUNK_BYTES", 256)


MANY_BLOCKS = replace(SMALL_LANES, block_entries=60)
#: Many files, and steps of a few edges.
MANY_STEPS = replace(MANY_BLOCKS, gathered_bytes=5000, read_edges=40, step_entries=17)


@pytest.mark.slow
@pytest.mark.parametrize(("merge", "suffix", "names"), [("keep", "csv", True), ("first", "parquet", False)])
def test_columns_follow_their_edges(catalog: Catalog, tmp_path: Path, merge: str, suffix: str, names: bool) -> None:
    table = _random(1, names=names)
    file = tmp_path / f"pay.{suffix}"
    if suffix == "csv":
        table.to_csv(file, index=False)
    else:
        table.to_parquet(file, index=False)
    listed = tmp_path / "shops.csv"
    listed.write_text("id\n" + "".join(f"{each}\n" for each in range(9)))
    graph = _ingest(catalog.create("g"), file, merge, vertices=[f"shop={listed}:id"])
    _check(graph, table, merge)
    assert graph.relation("pays").facts["left_out"] == (table["what"] > 8).sum()
    assert [finding.problem for finding in catalog["g"].verify()] == [None]
    catalog["g"].export(tmp_path / "g.tar.zst")
    _check(catalog.import_dataset(tmp_path / "g.tar.zst", "h").typed_graph(), table, merge)


@pytest.mark.usefixtures("many_files")
def test_bytes_do_not_depend_on_memory_interruptions_or_workers(catalog: Catalog, tmp_path: Path) -> None:
    table = _random(2)
    for number in range(3):
        table[number * 100 : number * 100 + 100].to_csv(tmp_path / f"pay-{number}.csv", index=False)
    whole = _ingest(catalog.create("whole"), tmp_path / "pay-*.csv", cluster=InProcessCluster(scratch=MANY_BLOCKS))
    _check(whole, table)
    stopped, ran = run_in_steps(
        lambda cluster: _ingest(catalog.create("stopped"), tmp_path / "pay-*.csv", cluster=cluster),
        31,
        scratch=MANY_STEPS,
    )
    assert len([name for name, _ in ran if name in {"route_values", "route_places", "write_arrays"}]) > 15
    assert stopped.artifact.digest == whole.artifact.digest
    assert stopped.artifact.facts == whole.artifact.facts


@pytest.mark.slow
def test_workers_give_the_same_bytes(catalog: Catalog, tmp_path: Path) -> None:
    table = _random(3)
    table.to_csv(tmp_path / "pay.csv", index=False)
    alone = _ingest(catalog.create("alone"), tmp_path / "pay.csv")
    with open_cluster(ClusterOptions(workers=2)) as cluster:
        shared = _ingest(catalog.create("shared"), tmp_path / "pay.csv", cluster=cluster)
    assert shared.artifact.digest == alone.artifact.digest


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=15),
    merge=st.sampled_from(["keep", "first"]),
)
def test_random_tables(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, ...]], merge: str) -> None:
    folder = tmp_path_factory.mktemp("random")
    table = pd.DataFrame(rows, columns=["who", "what", "amount"])
    table = table.assign(
        at="2024-01-02T00:00:00", fee=table["amount"] / 2, tip=1, kind=table["amount"].astype(str) + "k"
    )
    table.to_csv(folder / "pay.csv", index=False)
    _check(_ingest(Catalog(folder / "catalog").create("g"), folder / "pay.csv", merge), table, merge)


def test_every_flipped_bit_of_columns_is_found(catalog: Catalog, tmp_path: Path) -> None:
    _random(4, 60).to_csv(tmp_path / "pay.csv", index=False)
    graph = _ingest(catalog.create("g"), tmp_path / "pay.csv")
    files = [path for path in sorted(graph.artifact.path.glob("relation/pays/[wtfl]*/**/*")) if path.is_file()]
    assert len(files) >= 8
    for file in files:
        before = file.read_bytes()
        flip_bit(file, len(before) // 2)
        assert any(finding.problem for finding in catalog["g"].verify()), file
        file.write_bytes(before)


@pytest.mark.parametrize(
    ("columns", "merge", "line", "message"),
    [
        (COLUMNS, "sum", "", "--merge keep"),
        ("who,what,fee as feature,fee as label,kind as label", "keep", "", "one column each"),
        ("fee as feature", "keep", "", "both ends"),
        ("who,what,nothing as feature", "keep", "", "nothing"),
        ("who,what,fee as feature", "keep", "1,2,3,2024-01-01,x,5,card", r"pay\.csv, line 5.*"),
        ("who,what,kind as label", "keep", "1,2,3,2024-01-01,1,5,", r"pay\.csv, line 5.*else unknown"),
        ("who,what,fee as feature", "keep", "1,2,3,2024-01-01,,5,card", r"pay\.csv, line 5.*column fee.*else 0"),
        ("who,what,fee as float16 feature", "keep", "1,2,3,2024-01-01,70000,5,x", r"line 5.*float16.*70000"),
        ("who,what,fee as feature", "keep", "1,2,3,2024-01-01,1,5", r"pay\.csv, line 5.*7"),
        ("who,what,at as time,fee as feature", "keep", "1,2,3,17,1,5,x", r"pay\.csv, line 5.*'17'"),
        ("who,what,amount as time else 0", "keep", "1,2,12345678901234567.25,x,1,5,x", r"pay\.csv, line 5.*float64"),
        ("who,what,fee as feature else few", "keep", "", "else 'few'.*number"),
        ("who,what,at as time else 0,fee as feature", "keep", "", "else '0'.*date"),
        ("who,what,fee as float16 feature else 70000", "keep", "", "finite number up to"),
        ("who,what,fee as float16 feature,tip as feature", "keep", "", "one type"),
        ("who,what,fee as faeture", "keep", "", "did you mean feature"),
        ("who,what,fees as feature", "keep", "", "did you mean fee"),
        ("who,what,fee as feature else", "keep", "", "as feature"),
    ],
)
def test_bad_columns_get_one_error(
    catalog: Catalog, tmp_path: Path, columns: str, merge: str, line: str, message: str
) -> None:
    rows = ["who,what,amount,at,fee,tip,kind", *["1,2,3,2024-01-01,1,5,card"] * 3, *([line] if line else [])]
    (tmp_path / "pay.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(GnnloomError, match=message):
        _ingest(catalog.create("g"), tmp_path / "pay.csv", merge, columns=columns)


def test_pyg_gets_all_columns(catalog: Catalog, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    from gnnloom.workflows.interop.graph_libraries import to_hetero_data

    table = _random(5, 50)
    table.to_csv(tmp_path / "pay.csv", index=False)
    graph = _ingest(catalog.create("g"), tmp_path / "pay.csv")
    found: Any = to_hetero_data(graph)["user", "pays", "shop"]
    for name, array in (("edge_weight", "weight"), ("time", "time"), ("edge_attr", "feature"), ("edge_label", "label")):
        np.testing.assert_array_equal(found[name].numpy(), graph.relation("pays").column(array))
    assert found.edge_index.shape == (2, 50)


PARTS = (
    "who,what,amount as weight else 1,at as time else 1970-01-01,fee as float16 feature else -1,kind as label else none"
)


def _divided(seed: int, count: int, blank: float = 0.2) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Edges of several relations between vertices of two types, with empty cells; and the type of each vertex."""
    rng = np.random.default_rng(seed)
    table = _random(seed, count).astype({"amount": "float64"}).drop(columns="tip")
    table["word"] = rng.choice(["pays", "owes", "lends"], count)
    table["what"] += 1000
    for column in ("amount", "at", "fee", "kind"):
        table.loc[rng.random(count) < blank, column] = np.nan
    ids = np.unique(table[["who", "what"]])
    return table, pd.DataFrame({"id": ids, "type": np.where(ids % 3 == 0, "firm", "person")})


def _check_divided(graph: TypedGraph, table: pd.DataFrame, vertices: pd.DataFrame, merge: str = "keep") -> None:
    """Compare all relations with joins of the tables."""
    types = vertices.set_index("id")["type"]
    table = table.assign(row=np.arange(len(table)), source=table["who"].map(types), target=table["what"].map(types))
    table = table[table["source"].notna() & table["target"].notna()]
    table = table.fillna({"amount": 1, "at": "1970-01-01T00:00:00", "fee": -1, "kind": "none"})
    groups = dict(iter(table.groupby(["source", "word", "target"])))
    assert {(each.source.name, each.facts.get("word", each.name), each.target.name) for each in graph.relations} == set(
        groups
    )
    for relation in graph.relations:
        source, target = relation.source.name, relation.target.name
        wanted = groups[source, relation.facts.get("word", relation.name), target]
        wanted = wanted.sort_values(["what", "who", "row"])
        wanted = wanted.drop_duplicates(["what", "who"]) if merge == "first" else wanted
        rows = np.concatenate([relation.rows(number) for number in range(relation.num_blocks)])
        np.testing.assert_array_equal(rows, wanted["row"])
        sources, targets, _ = (list(each) for each in zip(*relation.edge_blocks(), strict=True))
        np.testing.assert_array_equal(graph.original_id(source)[np.concatenate(sources)], wanted["who"])
        np.testing.assert_array_equal(graph.original_id(target)[np.concatenate(targets)], wanted["what"])
        np.testing.assert_array_equal(relation.column("weight"), wanted["amount"].astype("float32"))
        times = relation.column("time").astype(f"M8[{relation.time_unit}]")
        np.testing.assert_array_equal(times, pd.to_datetime(wanted["at"]).to_numpy())
        features = relation.column("feature")
        assert features.dtype == np.float16
        np.testing.assert_array_equal(features[:, 0], wanted["fee"].astype("float16"))
        np.testing.assert_array_equal(np.array(relation.classes)[relation.column("label")], wanted["kind"])


def _ingest_divided(
    dataset: Dataset,
    folder: Path,
    table: pd.DataFrame,
    vertices: pd.DataFrame,
    *,
    suffix: str = "csv",
    merge: str = "keep",
    cluster: Cluster | None = None,
) -> TypedGraph:
    pays, listed = folder / f"pay.{suffix}", folder / "vertices.csv"
    if not pays.exists():
        folder.mkdir(parents=True, exist_ok=True)
        table.to_parquet(pays, index=False) if suffix == "parquet" else table.to_csv(pays, index=False)
        vertices.to_csv(listed, index=False)
    relations = parse_relations([f"*,*,*={pays}:{PARTS},word as relation"])
    tables = TypedTables.open(relations, parse_vertices([f"*={listed}:id,type as type"]), {})
    how = IngestOptions(merge=merge), TypedOptions("drop"), cluster or InProcessCluster()
    return ingest_typed_graph(dataset, tables, *how)


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "merge"), [("csv", "keep"), ("csv.gz", "first"), ("parquet", "keep")])
def test_columns_of_divided_tables_follow_their_edges(
    catalog: Catalog, tmp_path: Path, suffix: str, merge: str
) -> None:
    table, vertices = _divided(6, 300)
    graph = _ingest_divided(catalog.create("g"), tmp_path, table, vertices[:-2], suffix=suffix, merge=merge)
    _check_divided(graph, table, vertices[:-2], merge)
    assert [finding.problem for finding in catalog["g"].verify()] == [None]
    for file in sorted(graph.artifact.path.glob("relation/*/[wtfl]*/c/**/*")):
        if file.is_file():
            flip_bit(file, file.stat().st_size // 2)
            assert any(finding.problem for finding in catalog["g"].verify()), file
            flip_bit(file, file.stat().st_size // 2)


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
def test_bytes_of_divided_columns_do_not_depend_on_memory_or_interruptions(catalog: Catalog, tmp_path: Path) -> None:
    table, vertices = _divided(7, 200)
    cluster = InProcessCluster(scratch=MANY_BLOCKS)
    whole = _ingest_divided(catalog.create("whole"), tmp_path, table, vertices, cluster=cluster)
    _check_divided(whole, table, vertices)
    stopped, _ = run_in_steps(
        lambda cluster: _ingest_divided(catalog.create("stopped"), tmp_path, table, vertices, cluster=cluster),
        23,
        scratch=MANY_STEPS,
    )
    assert stopped.artifact.digest == whole.artifact.digest
    assert stopped.artifact.facts == whole.artifact.facts


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, *(pytest.param(each, marks=pytest.mark.long) for each in (1, 3))])
def test_workers_give_the_same_bytes_of_divided_columns(catalog: Catalog, tmp_path: Path, workers: int) -> None:
    table, vertices = _divided(8, 300)
    alone = _ingest_divided(catalog.create("alone"), tmp_path, table, vertices)
    with open_cluster(ClusterOptions(workers=workers)) as cluster:
        shared = _ingest_divided(catalog.create("shared"), tmp_path, table, vertices, cluster=cluster)
    assert shared.artifact.digest == alone.artifact.digest


@pytest.mark.slow
@settings(max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 30),
    blank=st.sampled_from([0.0, 0.5]),
    merge=st.sampled_from(["keep", "first"]),
)
def test_random_divided_tables(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, blank: float, merge: str
) -> None:
    folder = tmp_path_factory.mktemp("random")
    table, vertices = _divided(seed, count, blank)
    # A column without any value is one of numbers.
    table.loc[0, ["amount", "at", "fee", "kind"]] = [3, "2001-02-03T04:05:06", 0.25, "card"]
    graph = _ingest_divided(Catalog(folder / "catalog").create("g"), folder, table, vertices, merge=merge)
    _check_divided(graph, table, vertices, merge)


def test_no_edge_may_be_left_and_comments_are_no_rows(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "pay.csv").write_text("# payments\nwho,what,fee\n1,2,0.5\n# more\n1,3,0.25\n")
    (tmp_path / "users.csv").write_text("id\n7\n")
    columns = "who,what,fee as feature"
    kept = _ingest(catalog.create("kept"), tmp_path / "pay.csv", columns=columns)
    assert kept.relation("pays").column("feature").tolist() == [[0.5], [0.25]]
    none = _ingest(
        catalog.create("none"), tmp_path / "pay.csv", columns=columns, vertices=[f"user={tmp_path / 'users.csv'}:id"]
    )
    assert (none.relation("pays").nnz, none.relation("pays").edge_columns) == (0, {})
    assert [finding.problem for finding in catalog["none"].verify()] == [None]


def test_declared_columns_are_named_without_their_types(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "pay.csv").write_text("who,what,amount:float,since:datetime\n1,2,0.5,2020-01-02T03:04:05Z\n")
    graph = _ingest(catalog.create("g"), tmp_path / "pay.csv", columns="who,what,amount as weight,since as time")
    assert graph.relation("pays").column("weight").tolist() == [0.5]
    assert graph.relation("pays").edge_columns == {"time": ["since"], "weight": ["amount"]}
    graph = _ingest(catalog.create("h"), tmp_path / "pay.csv", columns="who,what,amount as weight")
    assert graph.relation("pays").to_scipy().data.tolist() == [0.5]
