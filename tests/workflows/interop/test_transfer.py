"""A run that was trained on one graph predicts on another as a dense forward pass with its weights does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gnnloom
from gnnloom.storage.errors import ExistsError, InputError, NotFoundError
from gnnloom.storage.format.listing import list_run
from gnnloom.storage.runs.run import Run as StoredRun
from gnnloom.trainer.comm.agreement import CollectiveError
from support.dense import normalized
from support.dense_models import DenseModel
from support.lone_training import ThreadLauncher

RNG = np.random.default_rng(0)
#: Ids of the vertices of both graphs: tomorrow, some are gone and some are new.
IDS = {"today": [f"v{number:03d}" for number in range(60)], "tomorrow": [f"v{number:03d}" for number in range(7, 75)]}
IDS["linked"] = IDS["today"]
CLASSES, COLUMNS = ("art", "law", "sport"), tuple(f"x{at}" for at in range(5))
TOPICS, CITIES = RNG.integers(0, 3, 75).tolist(), RNG.choice(["Bonn", "Oslo"], 75).tolist()
#: Only vertices that are new tomorrow have negative features: how features are scaled is settled by the training.
FEATURES = np.abs(RNG.standard_normal((75, 5)))
FEATURES[60:] *= -1


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.trainer.job.launch._launch", ThreadLauncher())


def write_rows(path: Path, rows: Iterable[Sequence[Any]]) -> Path:
    path.write_text("".join(f"{','.join(map(str, row))}\n" for row in rows))
    return path


def store(
    folder: Path,
    name: str,
    *,
    columns: Sequence[str] = COLUMNS,
    classes: Sequence[str] = CLASSES,
    missing: Sequence[str] = (),
    weights: bool = False,
    parts: Sequence[int] = (1,),
    undirected: bool = True,
    **options: Any,
) -> gnnloom.Dataset:
    """A graph whose vertices have names and classes, with row shards for some numbers of ranks.

    Args:
        columns: the features, of which ``city`` has words.
        missing: vertices without the first feature.
    """
    rng, ids = np.random.default_rng(len(name)), IDS.get(name, IDS["tomorrow"])
    ends = [*rng.integers(0, len(ids), (200, 2)).tolist(), *pairwise(range(len(ids)))]
    weight = [[0.5]] * len(ends) if weights else [[]] * len(ends)
    edges = write_rows(folder / f"{name}.csv", [[ids[u], ids[v], *w] for (u, v), w in zip(ends, weight, strict=True)])
    rows = [["id", *columns, "topic", "split"]]
    for at, each in enumerate(ids):
        number = int(each[1:])
        values = {column: FEATURES[number, at] for at, column in enumerate(COLUMNS)} | {"city": CITIES[number]}
        values |= {"x0": ""} if each in missing else {}
        rows.append([each, *(values[column] for column in columns), classes[TOPICS[number] % len(classes)]])
        rows[-1].append("train" if at % 2 else "test")
    table = write_rows(folder / f"{name}-vertices.csv", rows)
    given = {"undirected": undirected, "ids": "compact", "workers": 0, "weights": weights, **options}
    dataset = gnnloom.ingest(name, edges, catalog=folder / "catalog", **given)
    arrays = {"feature": ",".join(columns), "label": "topic", "split": "split"}
    filling: dict[str, Any] = {"missing": "mean"} if missing else {}
    filling |= {array: f"{table}:{column}" for array, column in arrays.items()}
    gnnloom.features(dataset, by_id=True, workers=0, **filling)
    for ranks in parts:
        gnnloom.partition(dataset, ranks, method="random", workers=0)
        gnnloom.shard(dataset, ranks, workers=0)
    return dataset


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> gnnloom.Catalog:
    folder = tmp_path_factory.mktemp("transfer")
    store(folder, "today")
    store(folder, "tomorrow", parts=(1, 3))
    return gnnloom.Catalog(folder / "catalog")


def train(catalog: gnnloom.Catalog, run: str, dataset: str = "today", **options: Any) -> gnnloom.Run:
    given: dict[str, Any] = {"hidden": [8], "epochs": 2, "precision": "float64", "threads": 1}
    return gnnloom.train(dataset, catalog=catalog, run=run, **{**given, **options})


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"model": "gcn"},
        {"model": "sage", "mode": "neighbor", "fanout": [3, 3], "batch_size": 8, "norm": "batch"},
        {"model": "mlp", "mode": "rows"},
        {"model": "gcn", "embed": 4},
    ],
    ids=lambda options: options.get("mode", "embed" if "embed" in options else "full"),
)
def test_predictions_on_another_graph_are_those_of_a_dense_forward_pass(
    catalog: gnnloom.Catalog, options: dict[str, Any]
) -> None:
    if options.get("mode") == "rows":
        gnnloom.propagate("today", steps=2, catalog=catalog)
    run = train(catalog, f"{options.get('mode', 'full')}-{options.get('embed', 0)}", **options)
    if options.get("mode") == "rows":
        with pytest.raises(NotFoundError, match="`gnnloom propagate tomorrow --steps 2 --normalization symmetric`"):
            gnnloom.predict(run, on="tomorrow")
        gnnloom.propagate("tomorrow", steps=3, catalog=catalog)
    if "embed" in options:
        with pytest.raises(InputError, match=r"no learned vector of vertex 'v060'.*unknown=\"zero\""):
            gnnloom.predict(run, on="tomorrow")
        assert [name for name in catalog["tomorrow"].runs() if name.startswith(run.name)] == []
    expected = dense_scores(catalog, run, options)
    # Propagated values are stored in float32.
    tolerance = 1e-5 if options.get("mode") == "rows" else 1e-9
    for ranks in (3, 1):
        there = gnnloom.predict(run, on="tomorrow", ranks=ranks, unknown="zero" if "embed" in options else "error")
        assert (there.dataset.name, there.state) == ("tomorrow", "transferred")
        np.testing.assert_allclose(there.scores(), expected, rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(there.predictions(), expected.argmax(1))
        assert not [found for found in there.dataset.verify() if found.problem]
        StoredRun(there.path).drop_predictions()
    list_run(there.path)


def dense_scores(catalog: gnnloom.Catalog, run: gnnloom.Run, options: dict[str, Any]) -> np.ndarray:
    """(n, width) scores of tomorrow's vertices, in dense float64 from the weights of a run."""
    dataset, state = catalog["tomorrow"], run.state_dict()
    feature = dataset.vertices().feature().astype(np.float64)
    if options["model"] == "mlp":
        operator = normalized(dataset.graph().to_scipy().toarray().astype(np.float64), "symmetric")
        products = [feature, operator @ feature, operator @ operator @ feature]
        hidden = np.concatenate([each / np.abs(each).sum(1, keepdims=True) for each in products], 1)
        hidden = np.maximum(hidden @ state["weights.0"].numpy() + state["biases.0"].numpy(), 0)
        scores: np.ndarray = hidden @ state["weights.1"].numpy() + state["biases.1"].numpy()
        return scores
    feature /= np.abs(feature).sum(1, keepdims=True)
    if "embed" in options:
        learned = dict(zip(IDS["today"], state.pop("feature").numpy(), strict=True))
        feature = np.stack([learned.get(each, np.zeros(options["embed"])) for each in IDS["tomorrow"]])
    return forward(options["model"], dataset, state, feature, **{"norm": "batch"} if "norm" in options else {})


def forward(
    model: str, dataset: gnnloom.Dataset, state: dict[str, torch.Tensor], feature: np.ndarray, **known: Any
) -> np.ndarray:
    """(n, width) the output of a model on a graph, in dense float64."""
    adjacency = dataset.graph().to_scipy().toarray().astype(np.float64)
    arrays = {f"parameter/{name}": tensor.numpy() for name, tensor in state.items()}
    running = {0: (state["norms.0.running_mean"], state["norms.0.running_variance"])} if known else {}
    dense = DenseModel.from_arrays(model, adjacency, arrays, running=running, **known)
    scores: np.ndarray = dense.scores(torch.from_numpy(feature), training=False).detach().numpy()
    return scores


def perceptron(vectors: np.ndarray, decoder: dict[str, np.ndarray]) -> np.ndarray:
    """(n, n) scores of all pairs of vertices by a decoder with one hidden layer."""
    rows = vectors[:, None] * vectors
    for layer in range(2):
        rows = np.maximum(rows, 0) if layer else rows
        rows = rows @ decoder[f"decoder.layers.{layer}.weight"].T + decoder[f"decoder.layers.{layer}.bias"]
    scores: np.ndarray = rows[..., 0]
    return scores


@pytest.mark.slow
def test_links_are_scored_on_another_graph(catalog: gnnloom.Catalog, tmp_path: Path) -> None:
    linked, tomorrow = store(catalog.root.parent, "linked", parts=()), catalog["tomorrow"]
    links = gnnloom.draw_links(linked, test=0.2, workers=0)
    gnnloom.partition(linked, 1, graph=links.message_graph, method="random", workers=0)
    gnnloom.shard(linked, 1, graph=links.message_graph, workers=0)
    run = train(catalog, "links", dataset="linked", task="link", decoder="mlp", output_dim=4)
    best = tmp_path / "best.csv"
    there = gnnloom.predict(run, on=tomorrow, top=3, out=best, ranks=3)
    state = run.state_dict()
    decoder = {name: state.pop(name).numpy() for name in [*state] if name.startswith("decoder.")}
    feature = tomorrow.vertices().feature().astype(np.float64)
    vectors = forward("gcn", tomorrow, state, feature / np.abs(feature).sum(1, keepdims=True))
    np.testing.assert_allclose(there.predictions(), vectors, rtol=1e-9, atol=1e-9)
    n = len(vectors)
    pairs = np.stack(np.meshgrid(np.arange(n), np.arange(n), indexing="ij"), -1).reshape(-1, 2)
    scores = there.score(pairs).reshape(n, n)
    np.testing.assert_allclose(scores, perceptron(vectors, decoder), rtol=1e-9, atol=1e-9)
    # No edge of tomorrow's graph is a target.
    scores[tomorrow.graph().to_scipy().toarray().T > 0] = -np.inf
    np.fill_diagonal(scores, -np.inf)
    ids = IDS["tomorrow"]
    expected = [(ids[u], ids[v]) for u in range(n) for v in np.argsort(-scores[u], kind="stable")[:3]]
    rows = [tuple(line.split(",")[:2]) for line in best.read_text().splitlines()[1:]]
    assert [row.strip('"') for pair in rows for row in pair] == [each for pair in expected for each in pair]
    frame = there.top_frame([ids[5]], 2)
    assert frame["target"].tolist() == [v for _, v in expected[15:17]]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("narrow", {"columns": COLUMNS[:4]}, "column 'x4' is missing"),
        ("mixed", {"columns": (*COLUMNS[:3], "x4", "x3")}, "column 4 is 'x4', but was 'x3'"),
        (
            "filled",
            {"missing": ["v010"]},
            "missing values of column 'x0' are filled with .*, but were filled with nothing",
        ),
        ("weighted", {"weights": True}, "graph is weighted, but the graph of the training is unweighted"),
        ("directed", {"undirected": False}, "graph is directed, but the graph of the training is undirected"),
        ("loops", {"self_loops": "keep"}, '`self_loops="add"`'),
        (
            "music",
            {"classes": ("art", "law", "music")},
            "labels have 'music', which run today/full-0 was not trained on",
        ),
        ("bare", {"parts": ()}, "`gnnloom partition bare --parts 1` and `gnnloom shard bare --parts 1`"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_another_graph_that_does_not_fit_is_refused(
    catalog: gnnloom.Catalog, tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    folder = catalog.root.parent
    run = train(catalog, "full-0", model="gcn")
    dataset = store(folder, name, **{"parts": (), **options})
    with pytest.raises((InputError, NotFoundError, CollectiveError), match=message):
        gnnloom.predict(run, on=dataset)


def test_classes_are_those_of_the_training_by_name(catalog: gnnloom.Catalog) -> None:
    run = train(catalog, "full-0", model="gcn")
    dataset = store(catalog.root.parent, "fewer", classes=("law", "sport"))
    there = gnnloom.predict(run, on=dataset)
    frame = there.frame()
    assert frame["class_name"].tolist() == [CLASSES[number] for number in there.predictions()]
    labels = dataset.vertices().label()
    assert frame["label"].tolist() == [1 + number for number in labels.tolist()]
    with pytest.raises(CollectiveError, match=r"smooth: .*vertices.* run today"):
        gnnloom.predict(there, smooth="labels")
    with pytest.raises(ExistsError, match="only predicts"):
        gnnloom.train(dataset, run=there.name)


def test_a_recipe_predicts_on_another_graph(tmp_path: Path) -> None:
    root = tmp_path / "catalog"
    after = gnnloom.generate("after", "sbm", vertices=70, edges=300, classes=3, dim=5, seed=2, catalog=root, workers=0)
    gnnloom.partition(after, 1, method="block", workers=0)
    gnnloom.shard(after, 1, workers=0)
    recipe, out = tmp_path / "daily.toml", tmp_path / "after.csv"
    recipe.write_text(
        '[dataset]\nname = "before"\nundirected = true\n[source]\nformat = "sbm"\nvertices = 60\nedges = 300\n'
        'classes = 3\ndim = 5\n[partition]\nmethod = "block"\n[train]\nranks = 1\nhidden = 4\nepochs = 2\nthreads = 1\n'
        f'[cluster]\nworkers = 0\n[predict]\non = "after"\nout = "{out}"\n'
    )
    with pytest.raises(NotFoundError, match=r"daily.toml:"):
        gnnloom.run(recipe, settings={"predict.on": "never"}, catalog=root)
    assert [*gnnloom.Catalog(root)] == ["after"]
    for _ in range(2):
        gnnloom.run(recipe, catalog=root)
        (name,) = after.runs()
        rows = [int(line.split(",")[1]) for line in out.read_text().splitlines()[1:]]
        assert rows == gnnloom.Run(after, name).predictions().tolist()
    assert len(gnnloom.Catalog(root)["before"].runs()) == 1


def test_a_graph_of_the_same_dataset_gets_the_predictions_that_it_gets_elsewhere(tmp_path: Path) -> None:
    dataset, _ = store(tmp_path, "today"), store(tmp_path, "tomorrow")
    root = gnnloom.Catalog(tmp_path / "catalog")
    run = train(root, "first", ranks=1)
    before, own = {info.key for info in dataset.artifacts("graph")}, gnnloom.predict(run).predictions()
    edges = tmp_path / "tomorrow.csv"
    gnnloom.ingest("today", edges, undirected=True, ids="compact", add=True, catalog=root, workers=0)
    (key,) = {info.key for info in dataset.artifacts("graph")} - before
    table = tmp_path / "tomorrow-vertices.csv"
    columns: dict[str, Any] = {"feature": f"{table}:{','.join(COLUMNS)}", "label": f"{table}:topic"}
    gnnloom.features(dataset, **columns, by_id=True, graph=key, workers=0)
    gnnloom.partition(dataset, 1, graph=key, method="random", workers=0)
    with pytest.raises(CollectiveError, match=f"`gnnloom shard today --parts 1 --graph {key}`"):
        gnnloom.predict(run, graph=key)
    gnnloom.shard(dataset, 1, graph=key, workers=0)
    here, there = gnnloom.predict(run, graph=key), gnnloom.predict(run, on="tomorrow")
    np.testing.assert_array_equal(here.scores(), there.scores())
    # The predictions of the run on its own graph stay what they were.
    np.testing.assert_array_equal(gnnloom.predict(run).predictions(), own)


def test_the_own_graph_of_a_run_needs_no_vertex_data(tmp_path: Path) -> None:
    dataset = store(tmp_path, "today")
    run = train(gnnloom.Catalog(tmp_path / "catalog"), "first", ranks=1)
    expected = gnnloom.predict(run).scores()
    StoredRun(run.path).drop_predictions()
    # The row shards have the features.
    dataset.remove_artifact("vertices", dataset.vertices().artifact.key, force=True)
    again = gnnloom.predict(run, graph=dataset.graph().artifact.key)
    assert again.path == run.path
    np.testing.assert_array_equal(again.scores(), expected)


def test_vertex_data_stored_like_others_have_their_columns(catalog: gnnloom.Catalog, tmp_path: Path) -> None:
    rows: list[list[Any]] = [["id", "age", "city", "topic"], ["v000", 3, "Bonn", "law"], ["v001", "", "Oslo", "art"]]
    before = write_rows(tmp_path / "before.csv", [*rows, ["v002", 5, "Rome", "sport"]])
    rows = [["id", "age", "city", "topic"], ["v000", "", "Rome", "sport"], ["v001", 9, "Bonn", "law"]]
    after = write_rows(tmp_path / "after.csv", [*rows, ["v002", 1, "", "law"]])
    edges = write_rows(tmp_path / "edges.csv", [["v000", "v001"], ["v001", "v002"]])
    root = tmp_path / "catalog"

    def stored(name: str, table: Path, **options: Any) -> gnnloom.Dataset:
        dataset = gnnloom.ingest(name, edges, ids="compact", undirected=True, catalog=root, workers=0)
        options |= {"feature": f"{table}:age,city", "label": f"{table}:topic"}
        gnnloom.features(dataset, by_id=True, workers=0, **options)
        return dataset

    today = stored("today", before, missing="mean", missing_indicator=True).vertices()
    with pytest.raises(InputError, match="line 4: column city: "):
        stored("tomorrow", after, like="today")
    there = stored("tomorrow", after, like="today", missing="0").vertices()
    assert there.feature_columns == today.feature_columns
    assert there.class_names == ("art", "law", "sport")
    # An age that is missing becomes the mean of the ages before, and the last column says so.
    assert there.feature().tolist() == [[4, 0, 0, 1, 1], [9, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert there.label().tolist() == [2, 1, 1]
    new = write_rows(tmp_path / "new.csv", [*rows, ["v002", 1, "Riga", "law"]])
    music = write_rows(tmp_path / "music.csv", [*rows, ["v002", 1, "Bonn", "music"]])
    with pytest.raises(InputError, match=r"music.csv, line 4: column topic: 'music' "):
        stored("other", music, like="today")
    with pytest.raises(InputError, match=r"'Riga'.*`missing=0`"):
        stored("other", new, like="today")
