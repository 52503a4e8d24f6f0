"""One result is of one checkpoint: all its figures are recomputed from what a prediction with that checkpoint stores.

The references are definitions written in NumPy, and read nothing but predictions, labels, splits and pairs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.format import open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import BASELINES, Links
from gnnloom.storage.checks.run_invariants import check_run
from gnnloom.storage.runs.checkpoint import checkpoint_epochs, read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.tasks.registry import TASKS
from gnnloom.trainer.tasks.task import Task
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.trainer.training.state.checkpoint_writer import CheckpointWriter
from support.edge_files import write_edges
from support.links import store_links
from support.lone import LoneCommunicator
from support.mpi import train_all
from support.pair_problems import link_arrays
from support.pair_runs import call, shown
from support.problems import problem

N, EPOCHS = 50, 4
CODES = {"train": 1, "val": 2, "test": 3}
SPLITS = {"train": "train", "val": "valid", "test": "test"}
#: Scores are stored in float32.
STORED: dict[str, Any] = {"rel": 1e-5, "abs": 1e-6}
MODES: dict[str, dict[str, Any]] = {
    "full": {},
    "subgraph": {"mode": "subgraph", "sampler": "edge", "batch_size": 20},
    "minibatch": {"mode": "minibatch", "batch_size": 15},
    "neighbor": {"mode": "neighbor", "fanout": (3, 3), "batch_size": 15},
    "samples": {"mode": "neighbor"},
    "rows": {"mode": "rows", "model": "mlp", "steps": (0,), "batch_size": 15},
}
VERTICES = ("class", "multilabel", "number")
PAIRS = ("link", "lists", "edge-class", "edge-number")
#: Datasets and modes that train them.
CASES = [(name, mode) for name in VERTICES for mode in MODES] + [
    (name, mode) for name in PAIRS for mode in ("full", "neighbor")
]
#: Tasks and modes of which each evaluates in its own way; the long tests have all.
FEW = [
    ("class", "full"),
    ("multilabel", "minibatch"),
    ("number", "neighbor"),
    ("link", "full"),
    ("lists", "neighbor"),
    ("edge-class", "full"),
]
REST = ("link", "multilabel", "number", "lists", "edge-class", "edge-number")
#: Datasets with shards for two ranks.
TWO_RANKS = ("class", "link")
#: Options that decide which epochs are evaluated before the last one.
KEEPING: dict[str, dict[str, Any]] = {
    # The best epoch has been evaluated.
    "evaluated": {"keep_best": "loss", "eval_every": 1},
    # The best epoch has not been evaluated.
    "unevaluated": {"keep_best": "loss", "eval_every": 2},
    "at-the-end": {"keep_best": "loss", "eval_every": 0},
    "no-final": {"keep_best": "loss", "eval_every": 1, "final_eval": False},
    "last": {"eval_every": 2},
}
FEW_KEPT = (("class", "at-the-end"), ("class", "no-final"), ("link", "evaluated"))


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A dataset for each of the tasks on vertices, and one for each kind of pairs."""
    folder, cluster = tmp_path_factory.mktemp("checkpoints"), InProcessCluster()
    catalog, rng, given = Catalog(folder / "catalog"), np.random.default_rng(3), problem("p", N, 150, symmetric=True)
    known = rng.random((N, 3)) < 0.8
    arrays: dict[str, NDArray[Any]] = {
        "feature": rng.standard_normal((N, 6)).astype(np.float32),
        "split": rng.integers(0, 4, N).astype(np.uint8),
        "class": rng.integers(-1, 3, N),
        "multilabel": np.where(known, rng.integers(0, 2, (N, 3)), np.nan).astype(np.float32),
        "number": np.where(known, rng.standard_normal((N, 3)), np.nan).astype(np.float32),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    edges = given.adjacency.tocoo()
    source = write_edges(folder / "e", edges.col, edges.row, vertices=N)
    for name in (*VERTICES, PAIRS[0]):
        dataset = catalog.create(name)
        graph = ingest_graph(dataset, source, IngestOptions(), cluster)
        files = {each: str(folder / f"{each}.npy") for each in ("feature", "split")}
        kind = {"number": "target"}.get(name, "label")
        labels = {kind: str(folder / f"{name}.npy")} if name in VERTICES else {}
        ingest_vertices(dataset, open_vertices("files", (), {**files, **labels}), cluster)
        for parts in (1, 2) if name in TWO_RANKS else (1,):
            shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(parts, "random"), cluster), cluster)
        if name in VERTICES:
            write_samples(dataset, graph, None, SampleOptions(fanout=(3, 3), batch_size=15, epochs=EPOCHS), cluster)
    for name in PAIRS[1:]:
        shutil.copytree(catalog[PAIRS[0]].path, catalog.root / name)
    for name in PAIRS:
        values = {"edge-class": "class", "edge-number": "number"}.get(name, "pair")
        links = link_arrays(given, values)
        for split in ("valid", "test"):
            count = len(links[f"{split}/pair"])
            more = {"link": ("pool", (30, 2)), "lists": ("negative", (count, 60))}.get(name)
            if more is not None:
                links[f"{split}/{more[0]}"] = rng.integers(0, N, more[1])
                # Many are equal, as numbers of common neighbors are.
                links[f"{split}/baseline"] = rng.integers(0, 4, (count, 3)).astype(np.float64)
                negatives = more[1][:1] if more[0] == "pool" else more[1]
                links[f"{split}/{more[0]}_baseline"] = rng.integers(0, 3, (*negatives, 3)).astype(np.float64)
        facts: dict[str, Any] = {"kind": values, "num_classes": 3 if values == "class" else 0, "held_out_entries": 0}
        facts["edges"] = {"train/pair": int((links["train/weight"] != 0).sum())}
        store_links(catalog[name], catalog[name].graph(), links, **facts)
    return catalog


def config_of(catalog: Catalog, name: str, mode: str, run: str, **options: Any) -> TrainConfig:
    """A training whose steps are far too long, so that its last epoch is not its best one."""
    fixed: dict[str, Any] = {"hidden": (8,), "epochs": EPOCHS, "lr": 30.0, "threads": 1, "ranks": 1, "seed": 1}
    if name in PAIRS:
        decoder = "distmult" if name == "edge-class" else "dot"
        fixed |= {"task": task_of(name).name, "output_dim": 4, "decoder": decoder}
        # One step per epoch, so that the loss of the first one is that of the initial parameters.
        fixed |= {"link_batch": 10_000} if mode == "full" else {}
        fixed |= {"filtered_ranks": True} if task_of(name).name == "link" else {}
    # Long steps switch hidden units off, after which some losses only fall.
    if (name, mode) == ("multilabel", "subgraph"):
        fixed["lr"] = 2.0
    if mode == "minibatch":
        fixed["hidden"] = ()
    if mode == "samples":
        fixed["samples"] = catalog[name].find("samples").key
    return TrainConfig.of(catalog=str(catalog.root), dataset=name, run=run, **{**fixed, **MODES[mode], **options})


def task_of(name: str) -> Task:
    return TASKS["link" if name == "lists" else name]


def f1(hits: NDArray[Any], predicted: NDArray[Any], known: NDArray[Any]) -> NDArray[Any]:
    """2 hits / (predicted + known), and 0 for 0 / 0."""
    found: NDArray[Any] = 2 * hits / np.maximum(predicted + known, 1)
    return found


def class_figures(label: NDArray[Any], predicted: NDArray[Any]) -> dict[str, Any]:
    return {"accuracy": float((label == predicted).mean())}


def number_figures(label: NDArray[Any], predicted: NDArray[Any]) -> dict[str, Any]:
    known = ~np.isnan(label)
    error = np.where(known, predicted - label, 0.0)
    mean = np.nanmean(label, 0)
    r2 = 1 - (error**2).sum(0) / np.nansum((label - mean) ** 2, 0)
    total = known.sum()
    return {"rmse": np.sqrt((error**2).sum() / total), "mae": np.abs(error).sum() / total, "r2": r2.mean()}


def label_figures(label: NDArray[Any], predicted: NDArray[Any]) -> dict[str, Any]:
    known = ~np.isnan(label)
    hits = ((label == 1) & (predicted == 1)).sum(0)
    said, true = ((predicted == 1) & known).sum(0), (label == 1).sum(0)
    accuracy = float((label == predicted)[known].mean())
    return {"accuracy": accuracy, "f1": f1(hits.sum(), said.sum(), true.sum()), "macro_f1": f1(hits, said, true).mean()}


def pool_figures(positive: NDArray[Any], negative: NDArray[Any]) -> dict[str, Any]:
    above = (positive[:, None] > negative).mean() + (positive[:, None] == negative).mean() / 2
    precision = [(positive >= each).sum() / ((positive >= each).sum() + (negative >= each).sum()) for each in positive]
    found = {"auc": above, "ap": np.mean(precision), "mrr": None}
    descending = np.sort(negative)[::-1]
    for count in (20, 50, 100):
        bar = descending[count - 1] if count <= len(negative) else -np.inf
        found[f"hits_{count}"] = float((positive > bar).mean())
    return found


def list_figures(positive: NDArray[Any], negative: NDArray[Any]) -> dict[str, Any]:
    return {**figures_of_ranks(positive, negative, 20, 50, 100), "auc": None, "ap": None}


def figures_of_ranks(positive: NDArray[Any], negative: NDArray[Any], *counts: int) -> dict[str, float]:
    """Figures of positives among their negatives, where what is not a number does not count as one."""
    column = positive[:, None]
    rank = ((negative > column).sum(1) + (negative >= column).sum(1)) / 2 + 1
    hits = {f"hits_{count}": float((rank <= count).mean()) for count in counts}
    return {"mrr": float((1 / rank).mean()), **hits}


def filtered_figures(dataset: Dataset, scores: NDArray[Any]) -> dict[str, float]:
    """Figures of the targets of the test pairs among all vertices but their sources and the known targets of these.

    The edges and pairs of the dataset have a direction.

    Args:
        scores: (N, N) of every source and target; changed.
    """
    links, known = dataset.links(), np.eye(N, dtype=bool)
    assert not links.symmetric
    known[dataset.graph().to_scipy().T.nonzero()] = True
    for split in SPLITS.values():
        known[tuple(links.pair(split).T)] = True
    source, target = links.pair("test").T
    positive = scores[source, target]
    scores[known] = np.nan
    return figures_of_ranks(positive, scores[source], 1, 3, 10)


def negative_pairs(links: Links, split: str) -> NDArray[Any]:
    """The pairs of a pool, or (num_pairs, num_negatives, 2) those of each pair."""
    if not links.num_negatives(split):
        return links.pool(split)
    targets = links.negative(split)
    return np.stack([np.broadcast_to(links.pair(split)[:, :1], targets.shape), targets], -1)


def baselines(links: Links, measure: Callable[[NDArray[Any], NDArray[Any]], dict[str, Any]]) -> dict[str, Any]:
    kind = "negative" if links.num_negatives("test") else "pool"
    pairs, others = links.baseline("test/pair"), links.baseline(f"test/{kind}")
    return {name: measure(pairs[:, number], others[..., number]) for number, name in enumerate(BASELINES)}


def distribution(positive: NDArray[Any], negative: NDArray[Any]) -> dict[str, Any]:
    both = np.concatenate([positive.ravel(), negative.ravel()])
    lowest, highest = float(both.min()), float(both.max())
    counts = [np.histogram(each, 64, (lowest, highest))[0] for each in (positive, negative)]
    return {"range": [lowest, highest], "positive": counts[0], "negative": counts[1]}


#: From labels and predictions to figures, by dataset.
MEASURES: dict[str, Callable[[NDArray[Any], NDArray[Any]], dict[str, Any]]] = {
    "class": class_figures,
    "edge-class": class_figures,
    "number": number_figures,
    "edge-number": number_figures,
    "multilabel": label_figures,
    "link": pool_figures,
    "lists": list_figures,
}


def recomputed(catalog: Catalog, name: str, run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures by their names in the result, and more about the test split, from the stored predictions."""
    dataset, predictions, measure = catalog[name], run.predictions(), MEASURES[name]
    found, details = dict[str, Any](), dict[str, Any]()
    if name in VERTICES:
        vertices, array = dataset.vertices(), {"class": "label", "number": "target"}.get(name, name)
        label, codes = vertices.array(array).read().astype(np.float64), vertices.array("split").read()
        predicted = predictions.array(array).read()
        label[label == -1] = np.nan
        for prefix, code in CODES.items():
            chosen = (codes == code) & ~(np.isnan(label).all(1) if label.ndim > 1 else np.isnan(label))
            found |= {f"{prefix}_{key}": value for key, value in measure(label[chosen], predicted[chosen]).items()}
        if name != "number":
            details = class_details(label[codes == 3], predicted[codes == 3])
        return found, details
    links, vector = dataset.links(), predictions.array("vector").read().astype(np.float64)
    weight = np.ones((1, vector.shape[1]))
    if name == "edge-class":
        folder = run.best_checkpoint if checkpoint_epochs(run.best_checkpoint) else run.checkpoints
        weight = next(array for key, array in read_checkpoint(folder).arrays.items() if key.endswith("decoder.weight"))

    def scored(pairs: NDArray[Any]) -> NDArray[Any]:
        scores: NDArray[Any] = (vector[pairs[..., 0]] * vector[pairs[..., 1]]) @ weight.T
        return scores[..., 0] if len(weight) == 1 else scores

    for prefix, split in SPLITS.items():
        scores = scored(links.pair(split))
        if name == "edge-class":
            figures = measure(links.value(split), scores.argmax(1))
            if prefix == "test":
                details = class_details(links.value(split), scores.argmax(1))
        elif name == "edge-number":
            figures = measure(links.value(split)[:, None].astype(np.float64), scores[:, None])
        elif prefix == "train":
            continue
        else:
            negative = scored(negative_pairs(links, split))
            figures = measure(scores, negative)
            details = {
                "score_distribution": distribution(scores, negative),
                "filtered": filtered_figures(dataset, (vector * weight) @ vector.T),
                "baselines": baselines(links, measure),
            }
        found |= {f"{prefix}_{key}": value for key, value in figures.items()}
    return found, details


def class_details(label: NDArray[Any], predicted: NDArray[Any]) -> dict[str, Any]:
    """Precision, recall and F1 of every class, and for one class per row the confusion matrix."""
    if label.ndim == 1:
        confusion = np.zeros((3, 3), int)
        np.add.at(confusion, (label[label >= 0].astype(int), predicted[label >= 0].astype(int)), 1)
        hits, said, true = confusion.diagonal(), confusion.sum(0), confusion.sum(1)
    else:
        confusion = None
        hits = ((label == 1) & (predicted == 1)).sum(0)
        said, true = ((predicted == 1) & ~np.isnan(label)).sum(0), (label == 1).sum(0)
    rows = zip(hits, said, true, strict=True)
    each = [{"precision": h / max(s, 1), "recall": h / max(t, 1), "support": int(t)} for h, s, t in rows]
    return {"per_class": each} | ({} if confusion is None else {"confusion": confusion.tolist()})


def check(catalog: Catalog, config: TrainConfig, result: Mapping[str, Any]) -> None:
    """Predict with what predicts by default, and compare every figure of the result with that."""
    name, run = config.data.dataset, Run.open(catalog[config.data.dataset], config.run_name)
    summary = predict(LoneCommunicator(), PredictConfig.of_run(catalog[name], run, ranks=1))
    assert summary["epoch"] == result["checkpoint_epoch"]
    figures, details = recomputed(catalog, name, run)
    named = [each for figure in task_of(name).figures for each in figure.names]
    assert set(named) <= set(figures) | {each for each in named if result[each] is None}
    for each, expected in figures.items():
        if expected is None:
            assert result[each] is None, each
        else:
            assert result[each] == pytest.approx(expected, **STORED), each
    if not config.run.final_eval:
        return
    for key, expected in details.items():
        if key == "per_class":
            shown = [{part: row[part] for part in ("precision", "recall", "support")} for row in result[key]]
            assert shown == [pytest.approx(row, **STORED) for row in expected]
        elif key == "baselines":
            # These are in double precision.
            for baseline, figures in expected.items():
                there = {each: value for each, value in figures.items() if value is not None}
                assert result[key][baseline] == pytest.approx(there, rel=1e-12), baseline
        elif key == "filtered":
            assert result[key] == pytest.approx(expected, **STORED)
        elif key == "score_distribution":
            assert result[key]["range"] == pytest.approx(expected["range"], **STORED)
            for each in ("positive", "negative"):
                # A score at the edge of two bins may be in either.
                assert np.abs(np.cumsum(result[key][each]) - np.cumsum(expected[each])).max() <= 2
                assert sum(result[key][each]) == expected[each].sum() > 0
        else:
            assert result[key] == expected


@pytest.fixture(scope="module")
def unrehearsed() -> Iterator[None]:
    """A rehearsal takes longer than training on a tiny graph."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gnnloom.trainer.training.start.rehearse", lambda *_: None)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("unrehearsed")
@pytest.mark.parametrize(
    ("name", "mode"), [pytest.param(*case, marks=() if case in FEW else pytest.mark.long) for case in CASES]
)
def test_every_figure_of_a_result_is_of_the_checkpoint_that_predicts(catalog: Catalog, name: str, mode: str) -> None:
    results = {}
    for kept in ("unevaluated", "last"):
        config = config_of(catalog, name, mode, f"{mode}-{kept}", **KEEPING[kept])
        results[kept] = train(LoneCommunicator(), config)
        check(catalog, config, results[kept])
        check_run(Run.open(catalog[name], config.run_name))
    assert results["unevaluated"]["checkpoint_epoch"] == results["unevaluated"]["best"]["epoch"] < EPOCHS
    assert results["last"]["checkpoint_epoch"] == EPOCHS
    # Both results would be right if the figures could not tell the checkpoints apart.
    names = [each for figure in task_of(name).figures for each in figure.names]
    assert [results["last"][each] for each in names] != [results["unevaluated"][each] for each in names]
    # What the last epoch reached is in its line.
    last = Run.open(catalog[name], f"{mode}-unevaluated").metrics()[-1]
    assert [last[each] for each in names] == [results["last"][each] for each in names]


@pytest.mark.usefixtures("unrehearsed")
@pytest.mark.parametrize(
    ("name", "kept"),
    [
        pytest.param(name, kept, marks=() if (name, kept) in FEW_KEPT else pytest.mark.long)
        for name in ("class", *REST)
        for kept in KEEPING
    ],
)
def test_it_does_not_matter_which_epochs_were_evaluated(catalog: Catalog, name: str, kept: str) -> None:
    config = config_of(catalog, name, "full", f"when-{kept}", **KEEPING[kept])
    result = train(LoneCommunicator(), config)
    check(catalog, config, result)
    check_run(Run.open(catalog[name], config.run_name))


@pytest.mark.usefixtures("unrehearsed")
def test_without_an_evaluation_of_the_checkpoint_its_figures_are_not_known(catalog: Catalog) -> None:
    # The evaluated epochs are 2 and 4, the checkpoints those of epochs 1 and 5.
    for run, given, epoch in (("none-best", {"keep_best": "loss"}, 1), ("none-last", {}, 5)):
        config = config_of(catalog, "class", "full", run, eval_every=2, final_eval=False, epochs=5, **given)
        result = train(LoneCommunicator(), config)
        assert (result["checkpoint_epoch"], result["test_accuracy"], result["train_accuracy"]) == (epoch, None, None)
        assert "confusion" not in result
        stored = Run.open(catalog["class"], run)
        check_run(stored)
        assert [line["epoch"] + 1 for line in stored.metrics() if "test_accuracy" in line] == [2, 4]


@pytest.mark.usefixtures("unrehearsed")
@pytest.mark.parametrize("keep_best", ["none", "loss"])
def test_a_stopped_training_reports_its_checkpoint_and_so_does_the_finished_one(
    catalog: Catalog, keep_best: str
) -> None:
    config = config_of(catalog, "class", "full", f"stopped-{keep_best}", eval_every=2, keep_best=keep_best)
    requests = iter([False, False, True])
    stopped = train(LoneCommunicator(), config, lambda: next(requests))
    epoch = 3 if keep_best == "none" else 1
    assert (stopped["state"], stopped["checkpoint_epoch"], stopped["test_accuracy"]) == ("stopped", epoch, None)
    run = Run.open(catalog["class"], config.run_name)
    assert predict(LoneCommunicator(), PredictConfig.of_run(catalog["class"], run, ranks=1))["epoch"] == epoch
    result = train(LoneCommunicator(), config)
    assert result["checkpoint_epoch"] == (EPOCHS if keep_best == "none" else 1)
    check(catalog, config, result)


@pytest.mark.usefixtures("unrehearsed")
def test_early_stopping_reports_the_best_checkpoint(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"keep_best": "val_loss", "monitor": "val_loss", "patience": 2, "eval_every": 1}
    config = config_of(catalog, "link", "full", "early", **options, epochs=30, save_embeddings=True)
    result = train(LoneCommunicator(), config)
    assert result["stopped_early"]["best_epoch"] == result["checkpoint_epoch"] < result["epochs"] < 30
    check(catalog, config, result)
    row = next(row for row in call(catalog.root, "catalog", "show", "link")["runs"] if row["run"] == "early")
    assert (row["scored_epoch"], row["scores"]["test_auc"]) == (result["checkpoint_epoch"], result["test_auc"])
    monkeypatch.setenv("COLUMNS", "300")  # no cell of the table is cut into lines
    assert f"after epoch {row['scored_epoch']}" in " ".join(shown(catalog.root, "catalog", "show", "link").split())


@pytest.mark.usefixtures("unrehearsed")
def test_a_best_checkpoint_that_is_not_kept_any_more_predicts_nothing(catalog: Catalog) -> None:
    config = config_of(catalog, "class", "full", "given-up", keep_best="loss", eval_every=1)
    assert train(LoneCommunicator(), config)["checkpoint_epoch"] < EPOCHS
    longer = config.with_options(keep_best="none", epochs=EPOCHS + 2)
    result = train(LoneCommunicator(), longer)
    assert result["checkpoint_epoch"] == EPOCHS + 2
    check(catalog, longer, result)
    check_run(Run.open(catalog["class"], config.run_name))


@pytest.mark.usefixtures("unrehearsed")
def test_a_best_checkpoint_of_an_epoch_that_is_trained_again_is_written_again(catalog: Catalog) -> None:
    config = config_of(catalog, "class", "full", "again", keep_best="val_loss", eval_every=1, lr=0.01, epochs=3)
    whole = train(LoneCommunicator(), config)
    assert whole["checkpoint_epoch"] == 3
    run = Run.open(catalog["class"], config.run_name)
    # As a kill leaves it after the best checkpoint of epoch 3, but before the next one of the others.
    stopped = config.with_options(run="killed", checkpoint_every=1)
    train(LoneCommunicator(), stopped, lambda: True)
    killed = Run.open(catalog["class"], "killed")
    shutil.rmtree(killed.best_checkpoint)
    shutil.copytree(run.best_checkpoint, killed.best_checkpoint)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointWriter, "save", lambda *_: None)
        # Epoch 2 ends with the best checkpoint of epoch 3, and this is not its.
        found = train(LoneCommunicator(), stopped, lambda: True)
    assert (found["epochs"], found["checkpoint_epoch"]) == (2, 2)
    assert not killed.best_checkpoint.exists()
    result = train(LoneCommunicator(), stopped)
    assert result["checkpoint_epoch"] == 3
    check(catalog, stopped, result)


@pytest.mark.slow
def test_on_two_ranks_too(catalog: Catalog, tmp_path: Path) -> None:
    cases = [
        (name, config_of(catalog, name, "full", f"two-{kept}", ranks=2, **KEEPING[kept]))
        for name, kept in zip(TWO_RANKS, ("unevaluated", "evaluated"), strict=True)
    ]
    for (_, config), result in zip(cases, train_all(tmp_path, [config for _, config in cases]), strict=True):
        assert result["checkpoint_epoch"] < EPOCHS
        check(catalog, config.with_options(ranks=1), result)
