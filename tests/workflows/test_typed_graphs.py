"""Graphs with types from the command line and from Python, compared with joins of their tables."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import gnnloom
from gnnloom.storage.errors import InputError
from gnnloom.workflows.cli.main import cli


def run(*words: str, expected: int = 0) -> Any:
    """Run a command; returns its result."""
    done = CliRunner().invoke(cli, [*words])
    assert done.exit_code == expected, done.output
    return done


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of some tables, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNLOOM_CATALOG", str(tmp_path / "catalog"))
    rng = np.random.default_rng(1)
    users, items = rng.integers(0, 40, 200), rng.integers(0, 30, 200)
    clicks = pd.DataFrame({"user": users * 10, "item": [f"sku-{each}" for each in items], "when": users + items})
    clicks = clicks.drop_duplicates(["user", "item"])
    clicks.to_csv("clicks.csv", index=False)
    clicks.to_parquet("clicks.parquet")
    pd.DataFrame({"id": np.arange(45) * 10, "age": 3}).to_csv("users.csv", index=False)
    return tmp_path


_CLICKS = ("--relation", "user,buys,item=clicks.csv:user,item,when as time", "--merge", "max")


def test_commands_show_types_and_relations(tables: Path) -> None:
    done = json.loads(run("ingest", "shop", *_CLICKS, "--vertices", "user=users.csv:id", "--json").stdout)
    assert [(each["name"], each["count"], each["names"]) for each in done["types"]] == [
        ("item", 30, True),
        ("user", 45, False),
    ]
    (relation,) = done["relations"]
    edges = len(pd.read_csv(tables / "clicks.csv"))
    ends = [relation[name] for name in ("name", "source", "target")]
    assert (*ends, relation["nnz"], relation["has_times"]) == ("buys", "user", "item", edges, True)
    assert done["nnz"] == done["edges_in"] == edges
    (artifact,) = json.loads(run("catalog", "show", "shop", "--json").stdout)["artifacts"]
    assert artifact["types"] == done["types"]
    assert artifact["relations"] == done["relations"]
    assert "buys" in run("catalog", "show", "shop").output
    (row,) = json.loads(run("catalog", "ls", "--json").stdout)["datasets"]
    assert (row["vertices"], row["nnz"], row["problem"]) == (75, edges, None)
    plan = json.loads(run("ingest", "more", *_CLICKS, "--plan", "--json").stdout)
    assert plan["edges"] == edges
    run("catalog", "verify", "shop")
    run("catalog", "export", "shop", "shop.tar.zst")
    run("catalog", "import", "shop.tar.zst", "--as", "copy")
    for command in ("train shop", "features shop random", "sample shop --fanout 3,3"):
        refused = str(run(*command.split(), expected=1).exception)
        assert "graph with types" in refused or "graph has types" in refused, command


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("clicks.csv", *_CLICKS), "relation"),
        (("clicks.csv", "--vertices", "user=users.csv"), "relation"),
        ((*_CLICKS, "--undirected"), "rev_NAME"),
        ((*_CLICKS, "--columns", "user,item"), "columns"),
        ((*_CLICKS, "--weights"), "weights"),
        ((*_CLICKS, "--store", "float16"), "store"),
        (("clicks.csv", "--columns", "user,item", "--unknown", "add"), "unknown"),
        ((), "SOURCE"),
    ],
)
@pytest.mark.usefixtures("tables")
def test_options_that_do_not_go_together_are_refused(words: tuple[str, ...], named: str) -> None:
    done = CliRunner().invoke(cli, ["ingest", "shop", *words])
    assert done.exit_code
    assert named in f"{done.exception}{done.output}"


def _edges(data: Any, clicks: pd.DataFrame) -> pd.DataFrame:
    """The edges of ``HeteroData``, called as the table calls them."""
    sources, targets = data["user", "buys", "item"].edge_index.numpy()
    users, items = np.arange(45) * 10, np.unique(clicks["item"])
    found = pd.DataFrame({"user": users[sources], "item": items[targets]})
    for name in ("time", "edge_weight"):
        if name in data["user", "buys", "item"]:
            found["when"] = data["user", "buys", "item"][name].numpy().astype(np.int64)
    return found.sort_values(["user", "item"], ignore_index=True)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["weight", "time"])
def test_pyg_gets_the_edges_of_the_table_however_it_is_given(tables: Path, role: str) -> None:
    pytest.importorskip("torch_geometric")
    clicks = pd.read_csv("clicks.csv")
    # Frames have any index.
    frame = clicks.sample(frac=1, random_state=2)
    columns, ends = ["user", "item", f"when as {role}"], ("user", "buys", "item")
    given = {
        "csv": f"clicks.csv:user,item,when as {role}",
        "parquet": (tables / "clicks.parquet", columns),
        "frame": (frame, columns),
    }
    digests = set()
    for name, table in given.items():
        users = {
            "csv": "users.csv:id",
            "parquet": pd.DataFrame({"id": np.arange(45) * 10}),
            "frame": np.arange(45) * 10,
        }
        shop = gnnloom.ingest(
            name, relations={ends: table}, vertices={"user": users[name]}, merge="max", workers=0, catalog=tables / "c"
        )
        data = shop.to_pyg()
        assert data.edge_types == [ends]
        assert (data["user"].num_nodes, data["item"].num_nodes) == (45, clicks["item"].nunique())
        pd.testing.assert_frame_equal(
            _edges(data, clicks), clicks[["user", "item", "when"]].sort_values(["user", "item"], ignore_index=True)
        )
        digests.add(shop.typed_graph().artifact.digest)
        matrix = shop.to_scipy(relation="buys")
        np.testing.assert_array_equal(shop.to_scipy(relation="rev_buys").toarray(), matrix.toarray().T)
        assert "user buys item" in repr(shop.typed_graph())
        with pytest.raises(InputError):
            shop.to_scipy()
    assert len(digests) == 1


def test_a_dataset_may_have_graphs_of_both_kinds(tables: Path) -> None:
    both = gnnloom.ingest("both", "clicks.csv", columns="user,item", ids="names", extra_columns=True, workers=0)
    buys = {("user", "buys", "item"): "clicks.csv:user,item"}
    gnnloom.ingest("both", relations=buys, workers=0, add=True)
    assert both.graph().num_vertices == 70
    assert [each.name for each in both.types] == ["item", "user"]
    assert [each.nnz for each in both.relations] == [both.graph().artifact.facts["edges_in"]]


def test_python_says_what_is_wrong_with_tables(tables: Path) -> None:
    buys: dict[Any, Any] = {("user", "buys", "item"): "clicks.csv:user,item"}
    for wrong, named in (
        ({"relations": {"buys": "clicks.csv"}}, "source type, name, target type"),
        ({"relations": buys, "vertices": {"user": np.arange(3)}}, "vertices user|relation buys|clicks.csv"),
        ({"vertices": {"user": "users.csv"}}, "relation|source"),
        ({"relations": buys, "source": "clicks.csv"}, "leave one of them out"),
        ({"relations": buys, "store": "float16"}, "store"),
        ({"source": "clicks.csv", "unknown": "add"}, "unknown"),
    ):
        with pytest.raises(InputError, match=named):
            gnnloom.ingest("wrong", **wrong, workers=0)


def _triples(file: Path) -> pd.DataFrame:
    with gzip.open(file, "rt") as text:
        return pd.read_csv(text, sep="\t", names=["head", "relation", "tail"])


@pytest.mark.slow
def test_triples_of_freebase_by_relation(tmp_path: Path, shared_data: Path) -> None:
    """The five largest relations of FB15k-237 in one file of triples."""
    pytest.importorskip("torch_geometric")
    folder = shared_data / "fb15k-237"
    if not folder.is_dir():
        pytest.skip(f"no triples at {folder}")
    triples = _triples(folder / "train.txt.gz")
    largest = triples["relation"].value_counts().index[:5]
    triples = triples[triples["relation"].isin(largest)]
    entities = np.unique(np.concatenate([triples["head"], triples["tail"]]))
    triples.to_csv(tmp_path / "train.txt", sep="\t", index=False, header=False)
    catalog = tmp_path / "catalog"
    graph = gnnloom.ingest("freebase", tmp_path / "train.txt", format="triples", workers=0, catalog=catalog)
    data = graph.to_pyg()
    assert data["entity"].num_nodes == len(entities)
    by_word = {each.facts["word"]: each.name for each in graph.relations}
    assert sorted(by_word) == sorted(largest)
    for name in largest:
        of_relation = triples[triples["relation"] == name]
        ends = [np.searchsorted(entities, of_relation[end]) for end in ("head", "tail")]
        wanted = np.unique(np.stack(ends), axis=1)
        found = data["entity", by_word[name], "entity"].edge_index.numpy()
        np.testing.assert_array_equal(found[:, np.lexsort(found[::-1])], wanted)


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("train2id.txt", "3\n7 8 0\n8 9 0\n7 9 1\n", {}),
        ("triples.tsv", "head\trelation\ttail\n7\t0\t8\n8\t0\t9\n7\t1\t9\n", {}),
        ("triples.csv", "t,r,h\n8,0,7\n9,0,8\n9,1,7\n", {"columns": "h,r,t"}),
        ("triples.txt", "7 0 8\n8 0 9\n7 1 9\n", {"ids": "names"}),
    ],
)
def test_triples_as_they_are_distributed(tmp_path: Path, name: str, text: str, options: dict[str, Any]) -> None:
    (tmp_path / name).write_text(text)
    catalog = tmp_path / "catalog"
    dataset = gnnloom.ingest("g", tmp_path / name, format="triples", workers=0, catalog=catalog, **options)
    graph = dataset.typed_graph()
    assert [(each.name, each.nnz) for each in graph.relations] == [("0", 2), ("1", 1)]
    assert graph.relation("1").to_scipy().toarray().tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    ids = graph.ids("entity")
    assert [str(each) for each in (ids.original_name() if ids.has_names else ids.original_id())] == ["7", "8", "9"]


def test_what_is_shown_of_a_table_counts_all_columns_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"h": ["a", "b"], "r": ["x", "x"], "t": ["b", "a"], "more": [1, 2]})
    table.to_parquet("t.parquet")
    table.to_csv("t.csv", index=False)
    for file in ("t.parquet", "t.csv"):
        shown = str(gnnloom.look(file, format="triples", columns="h,r,t"))
        assert "column r" in shown
        (left,) = re.findall(r"(?:ignored|not read): (.*)", shown)
        assert left == "more"


def test_files_of_triples_that_are_read_in_different_ways_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a2id.txt").write_text("2\n1 2 0\n2 1 0\n")
    (tmp_path / "b.txt").write_text("1 0 2\n2 0 1\n")
    files = [tmp_path / "a2id.txt", tmp_path / "b.txt"]
    cases: list[tuple[list[Path], dict[str, Any], str]] = [
        (files, {}, r"b\.txt: does not begin"),
        (files[1:], {"columns": "1,2"}, "heads, relations and tails"),
    ]
    for given, options, message in cases:
        with pytest.raises(InputError, match=message):
            gnnloom.ingest("g", given, format="triples", workers=0, catalog=tmp_path / "catalog", **options)


def _bipartite(text: str, columns: int) -> np.ndarray:
    """(num_entries, columns) numbers of the lines of a text that begin with a digit."""
    return np.array([line.split()[:columns] for line in text.splitlines() if line[:1].isdigit()], float)


@pytest.mark.parametrize(
    ("name", "text", "columns", "shape"),
    [
        # Columns of the matrix are the sources; its last row and column are empty.
        ("r.mtx", "%%MatrixMarket matrix coordinate pattern general\n4 3 3\n1 1\n3 2\n1 2\n", "", (4, 3)),
        ("out.r", "% bip unweighted\n1 1\n2 3\n2 1\n", "", (2, 2)),
        ("out.w", "% bip weighted\n1 1 5 77\n2 3 4 78\n2 1 2 79\n", ":1,2,3 as weight", (2, 2)),
    ],
)
def test_bipartite_graphs_need_only_the_names_of_their_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, columns: str, shape: tuple[int, int]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    shown = f'relations={{("user", "rates", "item"): "{name}"}}'
    for refuses in (lambda: gnnloom.look(name), lambda: gnnloom.ingest("g", name, workers=0, catalog="c")):
        with pytest.raises(InputError, match=f"^{name}: .*{re.escape(shown)}"):
            refuses()
    tables = {("user", "rates", "item"): f"{name}{columns}"}
    graph = gnnloom.ingest("g", relations=tables, workers=0, catalog="c")
    matrix, rows = graph.to_scipy(relation="rates"), _bipartite(text, 3 if columns else 2)
    wanted = np.zeros(shape)
    if name == "r.mtx":
        wanted[[0, 2, 0], [0, 1, 1]] = 1
    else:
        items = np.unique(rows[:, 1])
        wanted[np.searchsorted(items, rows[:, 1]), rows[:, 0].astype(int) - 1] = rows[:, 2] if columns else 1
    np.testing.assert_array_equal(matrix.toarray(), wanted)


def test_look_shows_how_ratings_get_two_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ratings.csv").write_text("userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n1,1029,3.0,1260759179\n")
    found = gnnloom.look("ratings.csv")
    (command,) = [each for when, each in found.others.items() if "two types" in when]
    assert command == (
        "gnnloom ingest NAME --relation"
        " 'user,user_movie,movie=ratings.csv:userId,movieId,rating as weight,timestamp as time' --merge keep"
    )
    run(*(word for word in shlex.split(command.replace("NAME", "g"))[1:]))
    Path("payments.csv").write_text(
        "payer,shop,amount,paid_at\nann,s1,3.5,2024-01-02T10:00:00Z\nbob,s1,4.0,2024-01-02T11:00:00Z\n"
        "ann,s2,1.25,2024-01-03T10:00:00Z\n"
    )
    (command,) = [each for when, each in gnnloom.look("payments.csv").others.items() if "two types" in when]
    assert command.endswith(
        " 'payer,payer_shop,shop=payments.csv:payer,shop,amount as weight,paid_at as time' --merge keep"
    )
    run(*(word for word in shlex.split(command.replace("NAME", "p"))[1:]))
    Path("friends.csv").write_text("person,friend\nann,bob\nbob,cy\n")
    assert not any("two types" in when for when in gnnloom.look("friends.csv").others)
    Path("calls.csv").write_text("caller_id,callee_id\n1,31\n")
    assert not any("two types" in when for when in gnnloom.look("calls.csv").others)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "npz", None])
def test_edges_of_a_relation_are_exported_with_the_ids_and_columns_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gnnloom.workflows.interop.export._NUMBERS_AT_ONCE", 16 * 7)
    rng = np.random.default_rng(4)
    table = pd.DataFrame(
        {
            "who": [f"u{each}" for each in rng.integers(0, 9, 50)],
            "what": rng.integers(0, 7, 50) * 10,
            "amount": rng.integers(1, 9, 50).astype(float),
            "fee": rng.integers(0, 9, 50) / 4,
            "kind": rng.choice(["card", "cash"], 50),
        }
    )
    table.to_csv("pay.csv", index=False)
    columns = ["who", "what", "amount as weight", "fee as feature", "kind as label"]
    shown = "<td>pays</td><td>user</td><td>shop</td><td>50</td><td>feature (fee), label (kind), weight (amount)</td>"
    tables = {("user", "pays", "shop"): ("pay.csv", columns), ("user", "likes", "shop"): "pay.csv:who,what"}
    assert shown in gnnloom.ingest("g", relations=tables, merge="keep", workers=0, catalog="c")._repr_html_()
    wanted = table.assign(row=table.index).sort_values(["what", "who", "row"], ignore_index=True)
    if suffix is None:
        found = gnnloom.export("g", "edges", relation="pays", catalog="c")
        assert isinstance(found, pd.DataFrame)
    else:
        run("--catalog", "c", "export", "g", "edges", "--relation", "pays", "--out", f"pays.{suffix}")
        if suffix == "npz":
            with np.load("pays.npz") as arrays:
                np.testing.assert_array_equal(arrays["target"], wanted["what"])
                np.testing.assert_array_equal(arrays["feature"][:, 0], wanted["fee"])
                np.testing.assert_array_equal(arrays["row"], wanted["row"])
            return
        found = pd.read_csv("pays.csv") if suffix == "csv" else pd.read_parquet("pays.parquet")
    for name, column in (("source", "who"), ("target", "what"), ("weight", "amount"), ("label_name", "kind")):
        np.testing.assert_array_equal(found[name], wanted[column])
    np.testing.assert_array_equal(found["row"], wanted["row"])
    lines = run("--catalog", "c", "catalog", "lineage", "g").output
    assert "relation pays pay.csv" in lines
    assert "relation likes pay.csv" in lines
    for words, named in (
        (("edges",), "likes, pays"),
        (("edges", "--relation", "pay"), "did you mean pays"),
        (("features", "--relation", "pays"), "relation"),
    ):
        failed = CliRunner().invoke(cli, ["--catalog", "c", "export", "g", *words, "--out", "x.csv"])
        assert named in str(failed.exception)
