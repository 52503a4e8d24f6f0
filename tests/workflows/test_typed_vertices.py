"""Features, labels and splits of the vertices of types come from the rows of the tables, by id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import gnnloom
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import CorruptError, ExistsError, GnnloomError, InputError, NotFoundError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.workflows.cli.main import cli
from support.damage import edit_manifest

_USERS = "user=users.csv:id,age as feature,height as feature,job as label,part as split"
_ITEMS = "item=items.csv:sku,price as feature"


def run(*words: str, expected: int = 0) -> Any:
    """Run a command; returns its result."""
    done = CliRunner().invoke(cli, [*words])
    assert done.exit_code == expected, f"{done.output}{done.exception}"
    return done


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, pd.DataFrame]:
    """Tables in the current folder, whose rows are in no order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNLOOM_CATALOG", str(tmp_path / "catalog"))
    rng = np.random.default_rng(1)
    clicks = pd.DataFrame(
        {"user": rng.integers(0, 40, 200) * 10, "item": [f"sku-{each}" for each in rng.integers(0, 30, 200)]}
    )
    users = pd.DataFrame(
        {
            "id": rng.permutation(45) * 10,
            "age": rng.integers(1, 99, 45),
            "height": rng.random(45).round(3),
            "job": rng.choice(["cook", "smith", "weaver"], 45),
            "part": rng.choice(["train", "valid", "test"], 45),
            "note": "no",
        }
    )
    items = pd.DataFrame({"sku": [f"sku-{each}" for each in rng.permutation(35)], "price": rng.random(35).round(3)})
    found = {"clicks": clicks, "users": users, "items": items}
    for name, table in found.items():
        table.to_csv(f"{name}.csv", index=False)
    return found


_CLICKS = ("--relation", "user,buys,item=clicks.csv:user,item")


def _check(data: Any, tables: dict[str, pd.DataFrame]) -> None:
    """Compare what PyG gets with the rows of the tables in the order of their ids."""
    users = tables["users"].sort_values("id")
    items = tables["items"].sort_values("sku")
    np.testing.assert_array_equal(data["user"].x.numpy(), users[["age", "height"]].to_numpy(np.float32))
    jobs = ["cook", "smith", "weaver"]
    assert data["user"].y.tolist() == [jobs.index(each) for each in users["job"]]
    for mask, part in (("train_mask", "train"), ("val_mask", "valid"), ("test_mask", "test")):
        assert data["user"][mask].tolist() == (users["part"] == part).tolist()
    np.testing.assert_array_equal(data["item"].x.numpy(), items[["price"]].to_numpy(np.float32))
    assert "y" not in data["item"]
    assert [name for name in data.node_types if "x" in data[name]] == ["item", "user"]


def test_each_type_gets_the_columns_of_its_table(tables: dict[str, pd.DataFrame]) -> None:
    pytest.importorskip("torch_geometric")
    words = (*_CLICKS, "--vertices", _USERS, "--vertices", _ITEMS, "--vertices", "shop=clicks.csv:user")
    done = json.loads(run("ingest", "shop", *words, "--json").stdout)
    data = {each["name"]: each.get("data") for each in done["types"]}
    assert data["shop"] is None
    assert [(each["feature"], each["class"], each["arrays"]) for each in data["user"]] == [
        (2, 3, ["feature", "label", "split"])
    ]
    graph, *others = json.loads(run("catalog", "show", "shop", "--json").stdout)["artifacts"]
    assert graph["types"] == done["types"]
    assert sorted(each["parameters"]["type"] for each in others) == ["item", "user"]
    assert "2 features, 3 classes, split" in run("catalog", "show", "shop").output
    shop = gnnloom.Catalog()["shop"]
    _check(shop.to_pyg(), tables)
    run("catalog", "verify", "shop")
    shown = run("catalog", "lineage", "shop").output
    assert "users.csv" in shown
    assert "type=user" in shown
    run("catalog", "export", "shop", "shop.tar.zst")
    run("catalog", "import", "shop.tar.zst", "--as", "copy")
    _check(gnnloom.Catalog()["copy"].to_pyg(), tables)


@pytest.mark.slow
def test_the_bytes_are_those_of_any_way_to_give_them(tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    relations = {("user", "buys", "item"): "clicks.csv:user,item"}
    recipe = tmp_path / "shop.toml"
    recipe.write_text(
        f"""[catalog]
path = "{tmp_path}/catalog"
[dataset]
name = "recipe"
[[relations]]
source = "user"
name = "buys"
target = "item"
path = ["clicks.csv"]
columns = ["user", "item"]
[[vertices]]
type = "user"
path = ["users.csv"]
id = "id"
features = ["age", "height"]
label = "job"
split = "part"
[[vertices]]
type = "item"
path = ["items.csv"]
id = "sku"
features = ["price"]
"""
    )
    run("run", str(recipe))
    assert "done" in run("run", str(recipe), "--dry-run").output
    listed = {"user": "users.csv:id", "item": "items.csv:sku"}
    for name, workers in (("two", 2), ("none", 0)):
        found = {"user": _USERS.partition("=")[2], "item": _ITEMS.partition("=")[2]}
        gnnloom.ingest(name, relations=relations, vertices=found, workers=workers)
    later = gnnloom.ingest("later", relations=relations, vertices=listed, workers=0)
    columns: dict[str, Any] = {"label": "users.csv:job", "split": "users.csv:part", "feature": "users.csv:age,height"}
    gnnloom.features(later, **columns, ids_file="users.csv:id", of_type="user", workers=0)
    gnnloom.features(later, feature="items.csv:price", ids_file="items.csv:sku", of_type="item", workers=0)
    for of_type in ("user", "item"):
        graphs = [gnnloom.Catalog()[name] for name in ("recipe", "two", "none", "later")]
        stored = [each.vertices(of_type=of_type).artifact for each in graphs]
        assert len({each.digest for each in stored}) == 1
        assert len({each.key for each in stored}) == 1
    frames = gnnloom.ingest(
        "frames",
        relations=relations,
        vertices={
            "user": (tables["users"], ["id", "age as feature", "job as label"]),
            "item": (tables["items"], ["sku"]),
        },
        workers=0,
    )
    assert frames.vertices(of_type="user").class_names == ("cook", "smith", "weaver")


@pytest.mark.slow
def test_data_of_a_type_may_be_in_several_files(tables: dict[str, pd.DataFrame]) -> None:
    pytest.importorskip("torch_geometric")
    users, numbers = tables["users"], ["id", "age", "height"]
    users[numbers].iloc[:20].to_csv("part-1.csv", index=False)
    users[numbers].iloc[20:30].to_csv("part-2.csv.gz", index=False)
    users[numbers].iloc[30:].to_csv("part-3.csv", index=False)
    users[["part", "job", "id"]].to_csv("jobs.csv", index=False)
    relations = {("user", "buys", "item"): "clicks.csv:user,item"}
    columns = "id,age as feature,height as feature"
    files = [f"part-{number}:{columns}" for number in ("[12].csv*", "3.csv")]
    vertices: dict[str, Any] = {"user": [*files, "jobs.csv:id,job as label,part as split"], "item": _ITEMS[5:]}
    found = [gnnloom.ingest(f"shop{each}", relations=relations, vertices=vertices, workers=each) for each in (0, 2)]
    _check(found[0].to_pyg(), tables)
    digests = {each.vertices(of_type="user").artifact.digest for each in found}
    assert len(digests) == 1
    # An error is in the line of its own part, and columns are in one order.
    text = Path("part-3.csv").read_text().splitlines()
    Path("part-3.csv").write_text("\n".join([*text[:4], "7,x,1.5", *text[4:]]))
    with pytest.raises(InputError, match=r"part-3\.csv, line 5: column age: expected a number"):
        gnnloom.ingest("bad", relations=relations, vertices=vertices, workers=0)
    users[["id", "height", "age"]].iloc[30:].to_csv("part-3.csv", index=False)
    with pytest.raises(InputError, match=r"part-3\.csv:.*part-1\.csv"):
        gnnloom.ingest("bad", relations=relations, vertices=vertices, workers=0)


def test_what_does_not_fit_is_refused(tables: dict[str, pd.DataFrame]) -> None:
    relations: dict[Any, Any] = {("user", "buys", "item"): "clicks.csv:user,item"}
    tables["users"].iloc[:40].to_csv("few.csv", index=False)
    both = ["users.csv:id,age as feature", "few.csv:id,age as feature"]
    cases: list[tuple[Any, str]] = [
        ({"user": "users.csv:id,age as weight"}, "age as weight.*as feature"),
        ({"user": "users.csv:id,years as feature"}, "users.csv.*years"),
        ({"user": "users.csv:age as feature"}, "users.csv.*column of ids"),
        ({"user": [both[0], "few.csv:id,height as feature"]}, "users.csv has other columns with feature"),
    ]
    for vertices, named in cases:
        with pytest.raises(InputError, match=named):
            gnnloom.ingest("wrong", relations=relations, vertices=vertices, workers=0)
        assert "wrong" not in gnnloom.Catalog()
    with pytest.raises(InputError, match=r"few\.csv, line 2:"):
        gnnloom.ingest("twice", relations=relations, vertices={"user": both}, workers=0)
    vertices = {"user": "few.csv:id,age as feature"}
    with pytest.raises(InputError, match=r"few\.csv.*without features"):
        gnnloom.ingest("added", relations=relations, vertices=vertices, unknown="add", workers=0)
    shop = gnnloom.ingest("shop", relations=relations, vertices={"user": "users.csv:id,age as feature"}, workers=0)
    more: dict[str, Any] = {"feature": "users.csv:height", "ids_file": "users.csv:id"}
    with pytest.raises(ExistsError, match="user=KEY"):
        gnnloom.features(shop, **more, of_type="user", workers=0)
    gnnloom.features(shop, **more, of_type="user", add=True, workers=0)
    with pytest.raises(InputError, match="several"):
        shop.vertices_of_types(shop.typed_graph().artifact.key)
    wrong: list[tuple[dict[str, Any], type[GnnloomError]]] = [({"of_type": "users"}, NotFoundError), ({}, InputError)]
    for keywords, kind in wrong:
        with pytest.raises(kind):
            gnnloom.features(shop, **more, **keywords, workers=0)
    with pytest.raises(GnnloomError, match="from files"):
        gnnloom.features(shop, "random", of_type="user", workers=0)


def test_data_of_types_are_not_data_of_a_graph_without_types(tables: dict[str, pd.DataFrame]) -> None:
    """Whether the numbers of vertices happen to agree or not."""
    pytest.importorskip("torch_geometric")
    relations: dict[Any, Any] = {("user", "buys", "item"): "clicks.csv:user,item"}
    both = gnnloom.ingest("both", relations=relations, vertices={"user": "users.csv:id,age as feature"}, workers=0)
    with pytest.raises(NotFoundError, match="type=user"):
        both.vertices()
    edges = np.stack([np.arange(45), np.roll(np.arange(45), 1)])
    gnnloom.ingest("both", edges, add=True, workers=0)
    plain = both.graph()
    assert plain.num_vertices == 45
    assert "x" not in both.to_pyg(plain.artifact.key)
    with pytest.raises(InputError, match="no features"):
        gnnloom.loader(both, graph=plain.artifact.key, split="all", labels=False)
    batch = next(iter(gnnloom.loader(both, graph=plain.artifact.key, split="all", labels=False, features="none")))
    assert "x" not in batch
    gnnloom.features(both, feature=np.ones((45, 2)), graph=plain.artifact.key, workers=0)
    assert both.vertices().num_features == 2
    typed = next(info.key for info in both.ingested_graphs() if info.is_typed)
    assert both.to_pyg(typed)["user"].x.shape == (45, 1)
    assert both.vertices(both.vertices(of_type="user").artifact.key).num_features == 1


def test_data_with_the_rows_of_another_type_are_damaged(tables: dict[str, pd.DataFrame]) -> None:
    relations = {("user", "buys", "item"): "clicks.csv:user,item"}
    shop = gnnloom.ingest("shop", relations=relations, vertices={"user": "users.csv:id,age as feature"}, workers=0)
    path = shop.vertices(of_type="user").artifact.path
    check_artifact(shop, Artifact(path))
    stored = Artifact(path)
    changed = edit_manifest(stored, parameters=stored.parameters | {"type": "item"})
    with pytest.raises(CorruptError, match="type item has"):
        check_artifact(shop, changed)


@pytest.mark.parametrize(("before", "after"), [("}", ""), ('"inputs"', '"inputz"')])
def test_data_that_cannot_be_read_are_not_left_out(tables: dict[str, pd.DataFrame], before: str, after: str) -> None:
    relations = {("user", "buys", "item"): "clicks.csv:user,item"}
    shop = gnnloom.ingest("shop", relations=relations, vertices={"user": "users.csv:id,age as feature"}, workers=0)
    gnnloom.partition(shop, parts=2, method="block", workers=0)
    manifest = shop.vertices(of_type="user").artifact.path / "manifest.json"
    manifest.write_text(manifest.read_text().replace(before, after))
    for shape in ({"parts": 2}, {"grid": (2, 1)}):
        options: Any = {"workers": 0, **shape}
        with pytest.raises(CorruptError, match=r"manifest\.json"):
            gnnloom.shard(shop, **options)
