"""A run on a graph with types predicts on another one what its module gives on that whole graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import gnnloom
from gnnloom.storage.errors import ExistsError, InputError, NotFoundError
from gnnloom.storage.runs.run import Run as StoredRun
from gnnloom.trainer.comm.agreement import CollectiveError
from support.lone_training import ThreadLauncher, lone_session
from support.tolerance import assert_close
from support.typed_pairs import vectors
from support.typed_papers import COUNTS, WRITES, store, tables, whole_graph
from support.typed_runs import OWN, stored_state, typed_config

#: They need PyG.
pytestmark = pytest.mark.slow

#: Papers and topics whose ids were not there today, and as many that are gone.
NEW = 5
TOPICS = np.random.default_rng(7).normal(size=(COUNTS["topic"] + NEW, 2))


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric.nn")
    monkeypatch.setattr("gnnloom.trainer.job.launch._launch", ThreadLauncher())


def tomorrow_tables() -> dict[str, pd.DataFrame]:
    """Other edges and features, of papers and topics with larger ids."""
    found = tables(1)
    for table, column in (
        ("paper", "id"),
        ("writes", "p"),
        ("cites", "p"),
        ("cites", "q"),
        ("about", "p"),
        ("about", "t"),
    ):
        found[table][column] += NEW
    return found


def with_features(dataset: Any, first: int) -> Any:
    """Topics, whose ids begin at ``first``, get features."""
    gnnloom.features(dataset, feature=TOPICS[: first + COUNTS["topic"]], of_type="topic", workers=0)
    return dataset


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> gnnloom.Catalog:
    root = tmp_path_factory.mktemp("typed") / "catalog"
    topics = np.arange(NEW, NEW + COUNTS["topic"])
    with_features(store(root, "today", tables()), 0)
    with_features(store(root, "tomorrow", tomorrow_tables(), topics=topics), NEW)
    store(root, "bare", tables())
    store(root, "bare-tomorrow", tomorrow_tables(), topics=topics)
    return gnnloom.Catalog(root)


def train(catalog: gnnloom.Catalog, dataset: str, run: str, model: str = "Attention", **options: Any) -> gnnloom.Run:
    config = typed_config(catalog[dataset], run, model, reverse=True, fanout=(3, 3), epochs=2, **options)
    given = {name: config.value(name) for name in config.changed() if name not in {"catalog", "dataset", "run"}}
    return gnnloom.train(dataset, catalog=catalog, run=run, **given)


def module_of(catalog: gnnloom.Catalog, dataset: str, run: gnnloom.Run) -> Any:
    """The trained module."""
    config = StoredRun.open(catalog[dataset], run.name).config()
    given = {name: value for name, value in config.items() if name in {"relation", "embed"} and value}
    module: Any = lone_session(typed_config(catalog[dataset], "fresh", "Attention", reverse=True, **given)).model.module
    module.load_state_dict({**module.state_dict(), **stored_state(catalog[dataset], run.name)})
    return module.eval()


def outputs(module: Any, data: Any) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        return vectors(module, data)


def test_scores_are_those_of_the_module_on_the_other_graph(catalog: gnnloom.Catalog) -> None:
    run = train(catalog, "today", "labels")
    expected = outputs(module_of(catalog, "today", run), whole_graph(catalog["tomorrow"], reverse=True))["paper"]
    for ranks in (3, 1):
        there = gnnloom.predict(run, on="tomorrow", ranks=ranks, model=f"{OWN}:Attention")
        assert (there.dataset.name, there.state) == ("tomorrow", "transferred")
        assert_close(there.scores(), expected, steps=4)
        np.testing.assert_array_equal(there.predictions(), expected.argmax(1))
        assert not [found for found in there.dataset.verify() if found.problem]
        StoredRun(there.path).drop_predictions()
    frame = gnnloom.predict(run, on="tomorrow", model=f"{OWN}:Attention").frame()
    assert frame["vertex"].tolist() == list(range(NEW, NEW + COUNTS["paper"]))
    assert frame["label"].tolist() == catalog["tomorrow"].vertices(of_type="paper").label().tolist()
    with pytest.raises(ExistsError, match="only predicts"):
        train(catalog, "tomorrow", there.name)


def test_learned_vectors_are_found_by_the_ids_of_their_type(catalog: gnnloom.Catalog) -> None:
    run = train(catalog, "bare", "learned", embed=2)
    own: dict[str, Any] = {"on": "bare-tomorrow", "model": f"{OWN}:Attention"}
    with pytest.raises(InputError, match=f"no learned vector of vertex '{COUNTS['topic']}' of type topic"):
        gnnloom.predict(run, **own)
    there = gnnloom.predict(run, **own, unknown="zero")
    data, state = whole_graph(catalog["bare-tomorrow"], reverse=True), run.state_dict()
    kept = state["feature_topic"][NEW:]
    data["topic"].x = torch.cat([kept, kept.new_zeros((NEW, 2))])
    assert_close(there.scores(), outputs(module_of(catalog, "bare", run), data)["paper"], steps=4)


@pytest.mark.parametrize("relation", ["writes", "cites"])
def test_pairs_of_the_other_graph_are_scored_and_its_edges_are_no_targets(
    catalog: gnnloom.Catalog, relation: str
) -> None:
    gnnloom.draw_links("today", relation=relation, valid=0.1, test=0.1, catalog=catalog, workers=0)
    run = train(catalog, "today", f"pairs-{relation}", relation=relation)
    there = gnnloom.predict(run, on="tomorrow", ranks=3, model=f"{OWN}:Attention")
    data = whole_graph(catalog["tomorrow"], reverse=True)
    found = outputs(module_of(catalog, "today", run), data)
    source = "author" if relation == "writes" else "paper"
    types = dict.fromkeys([source, "paper"])
    assert_close(there.predictions(), torch.cat([found[name] for name in types]), steps=4)
    every = np.stack(np.meshgrid(*(np.arange(COUNTS[name]) for name in (source, "paper")), indexing="ij"), -1)
    expected = (found[source] @ found["paper"].T).numpy()
    assert_close(there.score(every.reshape(-1, 2)).reshape(expected.shape), expected, steps=16)
    targets, _ = there.top(np.arange(COUNTS[source]), 2)
    expected[tuple(data[source, relation, "paper"].edge_index.numpy())] = -np.inf
    if source == "paper":
        np.fill_diagonal(expected, -np.inf)
    np.testing.assert_array_equal(targets, np.argsort(-expected, axis=1, kind="stable")[:, :2])


def test_a_recipe_predicts_on_another_graph_with_types(tmp_path: Path, catalog: gnnloom.Catalog) -> None:
    """The reverses of the other graph are stored on the way."""
    root, out = tmp_path / "catalog", tmp_path / "after.csv"
    after = with_features(store(root, "after", tomorrow_tables(), topics=np.arange(NEW, NEW + COUNTS["topic"])), NEW)
    for name, table in tables().items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    pd.DataFrame({"id": range(COUNTS["topic"]), "x0": TOPICS[:-NEW, 0], "x1": TOPICS[:-NEW, 1]}).to_csv(
        tmp_path / "topic.csv", index=False
    )
    lines = ['[dataset]\nname = "before"\nmerge = "keep"\nunknown = "drop"']
    for source, name, target, columns in (
        ("author", "writes", "paper", WRITES),
        ("paper", "cites", "paper", ["p", "q", "w as weight"]),
        ("paper", "about", "topic", ["p", "t"]),
        ("author", "knows", "author", ["a", "b", "at as time"]),
        ("topic", "near", "paper", ["t", "p", "at as time", "f as feature"]),
    ):
        given = [f'source = "{source}"', f'name = "{name}"', f'target = "{target}"', f'path = "{tmp_path}/{name}.csv"']
        roles: dict[str, Any] = {"columns": columns[:2]}
        for column, role in (each.split(" as ") for each in columns[2:]):
            roles |= {"features": [*roles.get("features", []), column]} if role == "feature" else {role: column}
        lines += ["[[relations]]", *given, *(f"{key} = {value!r}".replace("'", '"') for key, value in roles.items())]
    for name, more in (
        ("author", 'features = ["x0", "x1", "x2"]'),
        ("paper", 'features = ["x0", "x1", "x2", "x3", "x4"]\nlabel = "y"\nsplit = "split"'),
        ("topic", 'features = ["x0", "x1"]'),
    ):
        lines += ["[[vertices]]", f'type = "{name}"', f'path = "{tmp_path}/{name}.csv"', 'id = "id"', more]
    lines += [f'[train]\nmode = "neighbor"\nof_type = "paper"\nreverse = true\nmodel = "{OWN}:Attention"\nranks = 1']
    lines += [
        "hidden = [4]\nepochs = 2\nthreads = 1",
        '[cluster]\nworkers = 0\n[predict]\non = "after"',
        f'out = "{out}"',
    ]
    recipe = tmp_path / "daily.toml"
    recipe.write_text("\n".join(lines) + "\n")
    for _ in range(2):
        gnnloom.run(recipe, catalog=root)
        (name,) = after.runs()
        rows = [int(line.split(",")[1]) for line in out.read_text().splitlines()[1:]]
        assert rows == gnnloom.Run(after, name).predictions().tolist()


def test_vertex_data_of_a_type_are_stored_like_those_of_another_graph(tmp_path: Path) -> None:
    """A category that nobody has today still has its column, and a run predicts with it."""
    root, clicks = tmp_path / "catalog", pd.DataFrame({"user": [0, 1, 2], "item": [0, 1, 1]})
    users = pd.DataFrame({"id": [0, 1, 2], "city": ["Bonn", "Oslo", "Rome"], "age": [31, 45, 28]})
    items = pd.DataFrame({"id": [0, 1], "price": [1.5, 2.5], "kind": [0, 1], "split": ["train", "test"]})
    datasets = []
    for name in ("monday", "tuesday"):
        relations: Any = {("user", "buys", "item"): (clicks, ["user", "item"])}
        vertices = {
            "user": (users, "id"),
            "item": (items, ["id", "price as feature", "kind as label", "split as split"]),
        }
        datasets.append(gnnloom.ingest(name, relations=relations, vertices=vertices, workers=0, catalog=root))
    monday, tuesday = datasets
    of_users: dict[str, Any] = {"of_type": "user", "workers": 0}
    gnnloom.features(monday, feature=(users, ["city", "age"]), ids_file=(users, "id"), **of_users)
    fewer = users.assign(city=["Oslo", "Oslo", "Bonn"])
    tomorrow: dict[str, Any] = {"feature": (fewer, ["city", "age"]), "ids_file": (fewer, "id"), **of_users}
    gnnloom.features(tuesday, **tomorrow)
    model: dict[str, Any] = {"model": f"{OWN}:Sage", "hidden": 4, "epochs": 1, "threads": 1}
    run = gnnloom.train(monday, mode="neighbor", of_type="item", reverse=True, run="first", **model)
    with pytest.raises(InputError, match=r"column 'city'.*'Rome'.*of_type=\"user\".*like=\"monday/"):
        gnnloom.predict(run, on=tuesday, model=f"{OWN}:Sage")
    gnnloom.features(tuesday, **tomorrow, like=monday, add=True)
    stored = {info.key for info in tuesday.artifacts("vertices") if info.parameters.get("type") == "user"}
    (key,) = (each for each in stored if tuesday.vertices(each).num_features == 4)
    there = gnnloom.predict(run, on=tuesday, vertices=f"user={key}", model=f"{OWN}:Sage")
    assert len(there.predictions()) == 2
    assert StoredRun(there.path).inputs()["vertices/user"] == key


def test_the_own_graph_of_a_run_is_compared_with_nothing(tmp_path: Path) -> None:
    dataset = with_features(store(tmp_path / "catalog", "today", tables()), 0)
    run = train(gnnloom.Catalog(tmp_path / "catalog"), "today", "labels")
    key = StoredRun(run.path).inputs()["graph"]
    again = gnnloom.predict(run, graph=key, model=f"{OWN}:Attention")
    assert again.path == run.path
    StoredRun(run.path).drop_predictions()
    dataset.remove_artifact("vertices", dataset.vertices(of_type="topic").artifact.key, force=True)
    with pytest.raises(CollectiveError) as own:
        gnnloom.predict(run, model=f"{OWN}:Attention")
    with pytest.raises(CollectiveError) as given:
        gnnloom.predict(run, graph=key, model=f"{OWN}:Attention")
    assert str(given.value) == str(own.value)


def test_a_graph_that_does_not_fit_is_refused_by_what_differs(catalog: gnnloom.Catalog, tmp_path: Path) -> None:
    run, given = train(catalog, "today", "labels"), tomorrow_tables()
    topics = np.arange(NEW, NEW + COUNTS["topic"])

    def refused(name: str, message: str, *, features: bool = True, **changed: Any) -> None:
        leave_out = changed.pop("leave_out", "")
        dataset = store(catalog.root, name, {**given, **changed}, leave_out, topics)
        if features:
            with_features(dataset, NEW)
        with pytest.raises((InputError, NotFoundError), match=message):
            gnnloom.predict(run, on=dataset, model=f"{OWN}:Attention")

    refused("untopical", 'no features of type topic.*`gnnloom.features\\("untopical", of_type="topic"', features=False)
    refused("unknowing", "lacks relation author knows author", leave_out="knows")
    narrow = given["paper"].drop(columns="x4")
    refused("narrow", "column 'x4' is missing", paper=narrow)
    other = given["writes"].assign(role=np.where(np.arange(220) % 2, "first", "middle"))
    refused("roles", r"writes have a label \(first, middle\), but had a label \(first, last\)", writes=other)
    more = given["paper"].assign(y=given["paper"]["y"] + 1)
    refused("classes", "labels have 5 classes", paper=more)
