"""The figures of scores that need no training are in the result of every run on links, printed, and in its report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.links.baselines import baseline_figures
from gnnloom.trainer.place.place import Place
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.formatting import baseline_rows
from support.lone import LoneCommunicator
from support.lone_training import LoneLauncher, install
from support.reported_runs import draw_few_pixels

CLUSTER = InProcessCluster()
MADE = ("--task", "link", "--hidden", "8", "--output-dim", "4", "--epochs", "2", "--threads", "1")


@pytest.fixture
def launcher() -> Iterator[LoneLauncher]:
    with pytest.MonkeyPatch.context() as patch:
        yield install(patch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    dataset = Catalog(tmp_path / "catalog").create("web")
    model = StochasticBlockModel(num_vertices=120, num_edges=900, num_blocks=3, num_features=4, seed=1)
    graph = ingest_graph(dataset, model.edges(), IngestOptions(undirected=True), CLUSTER)
    ingest_vertices(dataset, model.vertices(), CLUSTER)
    links = draw_links(dataset, graph, DrawOptions(valid=0.1, test=0.2), CLUSTER)
    message = dataset.graph(links.message_graph)
    shard_rows(dataset, partition_graph(dataset, message, PartitionOptions(1, "random"), CLUSTER), CLUSTER)
    return dataset.path.parent


def run(root: Path, *arguments: str) -> str:
    done = CliRunner().invoke(cli, ["--catalog", str(root), *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
def test_a_run_on_links_is_shown_next_to_scores_that_need_no_training(
    root: Path, tmp_path: Path, launcher: LoneLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_few_pixels(monkeypatch)
    result = json.loads(run(root, "train", "web/first", *MADE, "--json"))
    links = Catalog(root)["web"].links()
    common, others = (links.baseline(f"test/{kind}")[:, 0] for kind in ("pair", "pool"))
    found = result["baselines"]["common_neighbors"]
    assert found["auc"] == pytest.approx((np.sign(common[:, None] - others).mean() + 1) / 2, rel=1e-12)
    assert found["hits_100"] == (common > np.sort(others)[-100]).mean()
    assert found["auc"] > 0.6
    assert launcher.jobs == 1
    # The same command shows the result again.
    shown = run(root, "train", "web/first", *MADE).splitlines()
    for name, figures in (("this run", {"auc": result["test_auc"]}), *result["baselines"].items()):
        (line,) = (line for line in shown if name.replace("_", " ") in line)
        assert f"{figures['auc']:.2%}" in line
    run(root, "report", "web/first", "--out", str(tmp_path / "report"))
    (page,) = (tmp_path / "report").rglob("index.html")
    text = page.read_text()
    assert "Scores that need no training after epoch 2" in text
    rows = ["this run", "common neighbors", "adamic adar", "resource allocation"]
    assert sorted(rows, key=lambda row: text.index(f"<td>{row}</td>")) == rows
    assert "<th>AUC</th><th>average precision</th><th>Hits@20</th><th>Hits@50</th><th>Hits@100</th>" in text
    assert f"<td>resource allocation</td><td>{result['baselines']['resource_allocation']['auc']:.2%}</td>" in text
    # The tables and pictures of where the run comes from have the links.
    assert f"links {links.artifact.key}" in text


@pytest.mark.parametrize("without", [{}, {"baselines": {}}, {"baselines": None}])
def test_results_without_such_scores_have_no_table(without: dict[str, Any]) -> None:
    assert baseline_rows({"test_auc": 0.5, **without}) == []


def test_figures_that_nothing_has_are_left_out() -> None:
    figures = {"mrr": 0.25, "hits_20": None}
    result = {"test_mrr": 0.5, "test_hits_20": 0.1, "baselines": {"common_neighbors": figures}}
    assert baseline_rows(result) == [("test pairs", "MRR"), ("this run", "50.00%"), ("common neighbors", "25.00%")]


#: Published Hits@100 of test pairs of Cora among as many negatives (Chamberlain et al., "Graph Neural Networks for Link
#: Prediction with Subgraph Sketching", ICLR 2023), and the fractions held out for validation and testing with which the
#: graph of the other edges gives them: that of common neighbors is without the validation pairs, the others have them.
_CORA: Mapping[str, tuple[float, float, float]] = {
    "common_neighbors": (0.1, 0.2, 33.9),
    "adamic_adar": (0.001, 0.2, 39.9),
    "resource_allocation": (0.001, 0.2, 41.1),
}


@pytest.mark.long
@pytest.mark.parametrize("name", _CORA)
def test_hits_on_cora_are_the_published_ones(tmp_path: Path, shared_data: Path, name: str) -> None:
    """Means over ten splits, within two standard deviations."""
    dataset = Catalog(tmp_path / "catalog").create("cora")
    edges = open_edges("ogb", [str(shared_data / "cora")])
    graph = ingest_graph(dataset, edges, IngestOptions(undirected=True), CLUSTER)
    valid, test, published = _CORA[name]
    found = []
    for seed in range(10):
        links = draw_links(dataset, graph, DrawOptions(valid=valid, test=test, seed=seed), CLUSTER)
        figures = baseline_figures(links, "test", LoneCommunicator(), Place())
        found.append(100 * (figures[name]["hits_100"] or 0))
        # Fewer than 100 negatives have a common neighbor, so every pair that has one is a hit.
        common, others = (links.baseline(f"test/{kind}")[:, 0] for kind in ("pair", "pool"))
        assert (others > 0).sum() < 100
        assert found[-1] == pytest.approx(100 * (common > 0).mean())
    assert abs(np.mean(found) - published) < 2 * np.std(found, ddof=1)


@pytest.mark.slow
def test_hard_negatives_of_both_ends_are_in_the_figures(root: Path, launcher: LoneLauncher) -> None:
    made = json.loads(run(root, "links", "web", "hard", "--negatives", "30", "--workers", "0", "--json"))
    assert made["negatives_of_each"] == 30
    again = json.loads(run(root, "links", "web", "hard", "--negatives", "30", "--workers", "0", "--json"))
    assert again["digest"] == made["digest"]
    words = (*MADE, "--links", made["key"], "--precision", "float64")
    result = json.loads(run(root, "train", "web/hard", *words, "--json"))
    assert launcher.jobs == 1
    dataset = Catalog(root)["web"]
    links = dataset.links(made["key"])
    pair = links.pair("test")
    scores = {name: links.baseline(f"test/{name}") for name in ("pair", "negative", "negative_source")}
    others = np.concatenate([scores["negative"], scores["negative_source"]], axis=1)
    for place, name in enumerate(("common_neighbors", "adamic_adar", "resource_allocation")):
        found, column = result["baselines"][name], scores["pair"][:, place, None]
        rank = ((others[..., place] > column).sum(1) + (others[..., place] >= column).sum(1)) / 2 + 1
        assert found["mrr"] == pytest.approx((1 / rank).mean(), rel=1e-12)
    run(root, "predict", "web/hard", "--json")
    vector = Run.open(dataset, "hard").predictions().array("vector").read()
    score = (vector[pair[:, 0]] * vector[pair[:, 1]]).sum(1)[:, None]
    targets = np.einsum("pd,pnd->pn", vector[pair[:, 0]], vector[links.negative("test")])
    sources = np.einsum("pd,pnd->pn", vector[pair[:, 1]], vector[links.negative_source("test")])
    others = np.concatenate([targets, sources], axis=1)
    rank = ((others > score).sum(1) + (others >= score).sum(1)) / 2 + 1
    assert result["test_mrr"] == pytest.approx((1 / rank).mean(), rel=1e-3)
    one_side = ((targets > score).sum(1) + (targets >= score).sum(1)) / 2 + 1
    assert result["test_mrr"] < 0.95 * (1 / one_side).mean()
