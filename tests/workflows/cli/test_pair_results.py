"""What commands, notebooks and reports show of a run on pairs fits a terminal, and has the figures of the run."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.trainer.tasks.registry import TASKS
from gnnloom.workflows.cli.terminal.scores import scores_by_figure
from gnnloom.workflows.formatting import baseline_rows
from gnnloom.workflows.report.build import write_report
from gnnloom.workflows.report.facts import RunFacts
from gnnloom.workflows.report.tables import figures_card
from support.lone_training import install
from support.pair_runs import TRAIN, call, shard, shown, store_named
from support.reported_runs import draw_few_pixels

LINK = ("--task", "link", "--filtered-ranks", "--eval-every", "1", *TRAIN)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        store_named(folder / "catalog", folder)
        call(folder / "catalog", "train", "named/run", *LINK)
        yield folder / "catalog"


def test_the_result_has_a_line_for_each_figure(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result, text = call(root, "train", "named/run"), shown(root, "train", "named/run")
    assert max(map(len, text.splitlines())) <= 80
    assert f"{result['val_auc']:.4g} validation, {result['test_auc']:.4g} test" in text
    lines = [line.split("│")[1].strip() for line in text.splitlines() if "│" in line]
    figures = ["AUC", "average precision", "Hits@20", "Hits@50", "Hits@100"]
    filtered = [f"{name}, filtered" for name in ("MRR", "Hits@1", "Hits@3", "Hits@10")]
    start = lines.index("AUC")
    # No line for figures that need a list of negatives for each pair.
    assert lines[start : start + 9] == figures + filtered
    assert f"{result['filtered']['hits_10']:.4g} test" in text
    assert "validation" not in json.dumps(result)


def test_a_figure_that_was_not_measured_has_no_line() -> None:
    task = TASKS["link"]
    assert scores_by_figure(task, {"test_mrr": 0.25, "val_auc": None, "loss": 1.0}) == {"MRR": "0.25 test"}
    assert scores_by_figure(TASKS["edge-class"], {"train_accuracy": 1.0, "test_accuracy": 0.5}) == {
        "accuracy": "1 training, 0.5 test"
    }
    assert scores_by_figure(task, {}) == {}


def test_a_figure_that_its_negatives_decide_is_marked() -> None:
    few = "fewer than 50 negatives"
    measured = {"val_hits_50": 1.0, "test_hits_50": 1.0, "val_hits_20": 1.0, "test_hits_20": 0.5}
    both = scores_by_figure(TASKS["link"], {**measured, "notes": {"val_hits_50": few, "test_hits_50": few}})
    assert both == {"Hits@20": "1 validation, 0.5 test", "Hits@50": f"1 validation, 1 test ({few})"}
    one = scores_by_figure(TASKS["link"], {**measured, "notes": {"val_hits_20": "fewer than 20 negatives"}})
    assert one["Hits@20"] == "1 (fewer than 20 negatives) validation, 0.5 test"
    result = {"test_hits_20": 0.5, "test_hits_50": 1.0, "notes": {"test_hits_50": few}}
    rows = baseline_rows({**result, "baselines": {"adamic_adar": {"hits_20": 0.25, "hits_50": 1.0}}})
    assert rows[0] == ("test pairs", "Hits@20", f"Hits@50 ({few})")


@pytest.mark.slow
def test_a_line_of_the_log_has_the_figure_that_counts_and_one_more(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    with caplog.at_level(logging.INFO, "gnnloom.trainer"):
        gnnloom.train("named", run="logged", task="link", catalog=root, embed=6, hidden=8, epochs=2, eval_every=1)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("epoch ")]
    assert len(lines) == 2
    for line in lines:
        assert re.findall(r"(\w+_\w+) ", line) == ["val_auc", "test_auc", "val_ap", "test_ap"]
        assert len(line) <= 110


def test_the_catalog_shows_the_figure_that_counts(root: Path) -> None:
    found = {row["run"]: row for row in call(root, "catalog", "show", "named")["runs"]}["run"]
    result = call(root, "train", "named/run")
    assert (found["task"], found["scores"]["test_ap"]) == ("link", result["test_ap"])
    text = " ".join(shown(root, "catalog", "show", "named").split())
    assert f"AUC {result['val_auc']:.4g} validation, {result['test_auc']:.4g} test" in text
    assert "hits" not in text


def test_pairs_with_negatives_of_their_own_are_judged_by_their_reciprocal_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    root, rng = tmp_path / "catalog", np.random.default_rng(6)
    call(root, "generate", "lists", "sbm", "--vertices", "100", "--edges", "400", "--workers", "0")
    entries = Catalog(root)["lists"].graph().to_scipy().tocoo()
    pairs = rng.permutation(np.stack(entries.coords, 1)[entries.row > entries.col])
    options = ["file"]
    for split, some in (("valid", pairs[:20]), ("test", pairs[20:50])):
        np.save(tmp_path / f"{split}.npy", some)
        np.save(tmp_path / f"{split}-targets.npy", rng.integers(0, 100, (len(some), 30)))
        options += [f"--{split}", str(tmp_path / f"{split}.npy")]
        options += [f"--{split}-targets", str(tmp_path / f"{split}-targets.npy")]
    shard(root, "lists", *options)
    train = ("--task", "link", "--hidden", "8", "--epochs", "3", "--eval-every", "1", "--keep-best", "auto")
    result = call(root, "train", "lists/run", *train)
    best = max(gnnloom.Run.open("lists/run", catalog=root).metrics()["val_mrr"])
    assert (result["best"]["metric"], result["best"]["value"], result["val_auc"]) == ("val_mrr", best, None)
    assert (result["checkpoint_epoch"], result["val_mrr"]) == (result["best"]["epoch"], best)
    # Each pair has 30 negatives.
    few = {f"{split}_hits_{count}": f"fewer than {count} negatives" for split in ("val", "test") for count in (50, 100)}
    assert result["notes"] == few
    assert {result[name] for name in few} == {1.0}
    assert "MRR " in shown(root, "catalog", "show", "lists")
    lines = [line.split("│")[1].strip() for line in shown(root, "train", "lists/run").splitlines() if "│" in line]
    start = lines.index("MRR")
    assert lines[start : start + 4] == ["MRR", "Hits@20", "Hits@50", "Hits@100"]
    assert "AUC" not in lines
    facts = RunFacts.gather(Catalog(root)["lists"], "run")
    assert facts.score.name == "mrr"
    card = figures_card(facts)
    assert card is not None
    assert card.count("100.00% (fewer than 50 negatives)") == 2
    assert "(fewer than 20 negatives)" not in card
    assert sum(facts.result["score_distribution"]["negative"]) == 30 * 30


def test_notebooks_and_arrays_have_all_figures(root: Path) -> None:
    run = gnnloom.Run.open("named/run", catalog=root)
    metrics, result = run.metrics(), run.result()
    assert metrics["test_auc"][-1] == result["test_auc"]
    assert metrics["val_hits_50"].shape == (2,)
    assert "test auc" in run._repr_html_()
    assert "mrr" not in run._repr_html_()


@pytest.mark.slow
def test_the_report_shows_the_scores_of_pairs_and_all_figures(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_few_pixels(monkeypatch)
    facts = RunFacts.gather(Catalog(root)["named"], "run")
    found = facts.result["score_distribution"]
    links = facts.dataset.links()
    for name in ("positive", "negative"):
        assert len(found[name]) == 64
        assert sum(found[name]) == links.num_pairs["test"]
    scores = gnnloom.predict("named/run", catalog=root).score(links.pair("test"))
    assert found["range"][0] <= scores.min()
    assert scores.max() <= found["range"][1]
    counts = np.histogram(scores, 64, found["range"])[0]
    # A score at the border of two bins may be on the other side.
    assert np.abs(np.cumsum(counts) - np.cumsum(found["positive"])).max() <= 1
    page, *pictures = write_report(facts, tmp_path / "report")
    assert {"scores", "accuracy", "loss", "lineage"} <= {picture.stem for picture in pictures}
    text = page.read_text(encoding="utf-8")
    result = facts.result
    for value in (result["test_auc"], result["val_hits_20"], result["filtered"]["mrr"]):
        assert f"<td>{value:.2%}</td>" in text
    assert "MRR among all vertices, filtered" in text
    assert f"{links.num_pairs['test']:,} test pairs and {links.num_pairs['test']:,} negatives after epoch 2" in text
    # The links are part of the origin.
    assert f"{links.num_pairs['train']:,} training pairs" in text
    assert f"{links.num_pairs['valid']:,} valid, {links.num_pairs['test']:,} test" in text


def test_a_run_whose_judge_was_not_measured_is_judged_by_what_was(root: Path) -> None:
    facts = RunFacts.gather(Catalog(root)["named"], "run")
    for line in facts.metrics:
        for figure in ("auc", "ap"):
            line.pop(f"val_{figure}"), line.pop(f"test_{figure}")
    assert facts.score.name == "hits_20"
