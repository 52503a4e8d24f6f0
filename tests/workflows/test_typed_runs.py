"""A run on a graph with types through the Python interface: trained, predicted, shown, exported, reported, verified."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gnnloom
from gnnloom.storage.errors import InputError
from support.lone_training import install
from support.pair_runs import shown
from support.typed_papers import COUNTS, store, tables

OWN = "support.typed_modules:Averages"


@pytest.mark.slow
def test_a_run_is_used_as_every_other_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("matplotlib")
    launcher = install(monkeypatch)
    dataset: Any = store(tmp_path / "catalog", "papers", tables(5))
    gnnloom.features(dataset, feature=np.random.default_rng(7).normal(size=(COUNTS["topic"], 2)), of_type="topic")
    options: dict[str, Any] = {"mode": "neighbor", "of_type": "paper", "model": OWN, "hidden": 8, "fanout": (3, 2)}
    with caplog.at_level(logging.INFO):
        run = gnnloom.train(dataset, **options, batch_size=8, epochs=3, reverse=True, run="own")
    # PyG is not needed for a module of torch alone.
    assert run.state == "finished"
    assert len(run.metrics()["loss"]) == 3
    assert gnnloom.train(dataset, **options, batch_size=8, epochs=3, reverse=True, run="own").result() == run.result()
    assert launcher.jobs == 1
    gnnloom.predict(run)
    frame, vertices = run.frame(), dataset.vertices(of_type="paper")
    assert frame["vertex"].tolist() == dataset.typed_graph().original_id("paper").tolist()
    np.testing.assert_array_equal(frame["class"], run.scores().argmax(1))
    np.testing.assert_array_equal(frame["label"], vertices.label())
    table: Any = gnnloom.export(f"{dataset.name}/own", "predictions", catalog=tmp_path / "catalog")
    assert table["class"].tolist() == frame["class"].tolist()
    assert run.report(tmp_path / "report").exists()
    assert run.state_dict().keys() >= {"module.layers.0.paper.weight"}
    node = dataset.lineage()["runs/own"]
    stored = {f"vertices/{info.key}" for info in dataset.artifacts("vertices")}
    assert {each for each in node.inputs.values() if each.startswith("vertices/")} == stored
    assert {each.partition("/")[0] for each in node.inputs.values()} == {"graph", "transpose", "vertices"}
    assert not [finding for finding in dataset.verify() if finding.problem]


def shop(catalog: Path) -> tuple[Any, pd.DataFrame]:
    """A dataset of ratings, and their table."""
    rng = np.random.default_rng(3)
    # Users have names, and items have numbers, of which some are numbers of no item of the graph.
    users, items = [f"u{number}" for number in range(30)], np.arange(20) * 10
    rates = pd.DataFrame({"user": rng.choice(users, 240), "item": rng.choice(items, 240), "stars": rng.random(240)})
    dataset: Any = gnnloom.ingest(
        "shop",
        relations={("user", "rates", "item"): (rates, ["user", "item", "stars as weight"])},
        vertices={
            "user": (pd.DataFrame({"id": users, "age": rng.normal(size=30)}), ["id", "age as feature"]),
            "item": (pd.DataFrame({"id": items, "price": rng.normal(size=20)}), ["id", "price as feature"]),
        },
        workers=0,
        catalog=catalog,
    )
    return dataset, rates


@pytest.mark.slow
def test_a_recommender_predicts_by_the_ids_of_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    install(monkeypatch)
    catalog = tmp_path / "catalog"
    dataset, rates = shop(catalog)
    links = gnnloom.draw_links(dataset, relation="rates", valid=0.1, test=0.1, negatives=3, workers=0)
    options: dict[str, Any] = {"mode": "neighbor", "task": "link", "relation": "rates", "model": OWN, "hidden": 8}
    run = gnnloom.train(dataset, **options, fanout=(3, 2), reverse=True, epochs=2, output_dim=4, run="own")
    assert run.result()["test_auc"] > 0
    gnnloom.predict(run)
    vector, first = run.predictions(), 30
    assert vector.shape == (30 + 20, 4)
    frame = run.frame()
    assert frame["type"].tolist() == ["user"] * 30 + ["item"] * 20
    typed = dataset.typed_graph()
    names, numbers = typed.original_name("user"), typed.original_id("item")
    assert frame["vertex"].tolist() == [*names, *map(str, numbers.tolist())]
    # Scores are by numbers within the types, and frames by ids.
    pairs = links.pair("test")
    expected = (vector[pairs[:, 0]] * vector[first + pairs[:, 1]]).sum(1)
    np.testing.assert_allclose(run.score(pairs), expected, rtol=1e-5)
    given = [[names[user], str(numbers[item])] for user, item in pairs.tolist()]
    scored = run.score_frame(given)
    assert scored["source"].tolist() == [each[0] for each in given]
    assert scored["target"].tolist() == [int(each[1]) for each in given]
    np.testing.assert_allclose(scored["score"], expected, rtol=1e-5)
    # The best items of a user are items that the user has not rated in any split.
    rated = {(user, int(item)) for user, item in zip(rates["user"], rates["item"], strict=True)}
    best = run.top_frame(["u3", "u7"], 5)
    assert best["source"].unique().tolist() == ["u3", "u7"]
    assert not rated & set(zip(best["source"], best["target"], strict=True))
    user = names.index("u3")
    known = [item for item in range(20) if ("u3", int(numbers[item])) in rated]
    scores = vector[user] @ vector[first:].T
    scores[known] = -np.inf
    assert best["target"].tolist()[:5] == numbers[np.argsort(-scores, kind="stable")[:5]].tolist()
    target, _ = run.top([user], 5)
    assert numbers[target[0]].tolist() == best["target"].tolist()[:5]
    # The same from files.
    pd.DataFrame(given).to_csv(tmp_path / "pairs.csv", index=False, header=False)
    (tmp_path / "users.txt").write_text("u3\nu7\n")
    how = ["predict", "shop/own", "--model", OWN, "--ranks", "1"]
    shown(catalog, *how, "--pairs", str(tmp_path / "pairs.csv"), "--out", str(tmp_path / "scores.csv"))
    np.testing.assert_allclose(pd.read_csv(tmp_path / "scores.csv")["score"], expected, rtol=1e-5)
    shown(catalog, *how, "--top", "5", "--of", str(tmp_path / "users.txt"), "--out", str(tmp_path / "top.csv"))
    assert pd.read_csv(tmp_path / "top.csv")["target"].tolist() == best["target"].tolist()
    table: Any = gnnloom.export("shop/own", "predictions", catalog=catalog)
    assert table["vertex"].tolist() == frame["vertex"].tolist()
    assert run.report(tmp_path / "report").exists()
    check_errors(run, dataset)
    assert not [finding for finding in dataset.verify() if finding.problem]


def check_errors(run: gnnloom.Run, dataset: Any) -> None:
    for wrong, named in (([["u3", "7"]], r"number 1: '7' is not a vertex of type item"), ([["x", "10"]], "type user")):
        with pytest.raises(InputError, match=named):
            run.score_frame(wrong)
    with pytest.raises(InputError, match="20 is not one of the 20 vertices of type item"):
        run.score([[0, 20]])
    # The graph has all edges, and the run was trained on the message graph.
    assert gnnloom.predict(run, on=dataset).state == "transferred"
