"""Subgraph training computes what a dense reference does on the same subgraphs, on any threads and after restarts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.whole_graph import map_whole_graph
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.sampling.normalization import count_samples
from gnnloom.storage.sampling.sampler import Sample, SubgraphSampler
from gnnloom.storage.sampling.vertex import VertexSampler
from gnnloom.storage.sampling.walk import WalkSampler
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.covering import few_of
from support.dense_models import DenseModel
from support.lone import LoneCommunicator
from support.mpi import train_all
from support.partitions import store_partition
from support.problems import Problem, problem
from support.sampled import sampled_config, store_whole
from support.tolerance import ADAM_BITS, assert_close
from support.warnings_logged import warnings_logged

PROBLEMS = {
    given.name: given
    for given in (
        problem("web", 60, 240, symmetric=True),
        problem("directed", 60, 300, symmetric=False),
        problem("weighted", 50, 300, symmetric=False, weighted=True),
    )
}
N = 60
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {},
    "sage": {"model": "sage"},
    "gin": {"model": "gin"},
    "gat": {"model": "gat", "heads": 2},
    "gatv2": {"model": "gat", "attention": "v2", "heads": 2},
    "norm": {"norm": "layer", "unit_embedding": True},
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("subgraph") / "catalog")
    for given in PROBLEMS.values():
        store_whole(catalog, given, 1, 2, 3)
    return catalog


def config(catalog: Catalog, run: str, dataset: str = "web", **options: Any) -> TrainConfig:
    return sampled_config(catalog, dataset, "subgraph", run, **options)


def lone(config: TrainConfig) -> dict[str, Any]:
    return train(LoneCommunicator(), config)


def arrays(catalog: Catalog, dataset: str, run: str) -> dict[str, np.ndarray]:
    return dict(read_checkpoint(catalog[dataset].run_path(run) / "checkpoint").arrays)


def dense_gradients(
    given: Problem, kind: str, start: dict[str, np.ndarray], samples: list[Sample], **options: Any
) -> tuple[float, dict[str, np.ndarray]]:
    """The mean over the training vertices of subgraphs, each a graph of its own, and its gradients, in dense torch."""
    dense = given.adjacency.toarray()
    model = DenseModel.from_arrays(kind, dense, start, **options)
    losses = []
    for sample in samples:
        ids = sample.vertices
        model.adjacency = dense[np.ix_(ids, ids)]
        mask, label = torch.tensor(given.training[ids]), torch.tensor(given.label[ids])
        scores = model.scores(torch.tensor(given.feature[ids]).double())
        losses.append(torch.nn.functional.cross_entropy(scores[mask], label[mask], reduction="none"))
    loss = torch.cat(losses).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach()), {name: value.grad.numpy() for name, value in model.parameters.items()}  # type: ignore[union-attr]


def check_step(catalog: Catalog, dataset: str, run: str, expected: dict[str, np.ndarray]) -> None:
    """At learning rate 1, one step of gradient descent subtracts the gradients."""
    before, after = arrays(catalog, dataset, f"{run}-start"), arrays(catalog, dataset, run)
    for name, gradient in expected.items():
        step = before[f"parameter/{name}"] - after[f"parameter/{name}"]
        assert_close(step, gradient, steps=4, message=name)


@pytest.mark.parametrize(("dataset", "name"), few_of(("web", "directed"), MODELS, together=1))
def test_a_step_has_the_gradient_of_the_subgraph(catalog: Catalog, dataset: str, name: str) -> None:
    run, options = f"step-{name}", {"batches": 1, "epochs": 1, "optimizer": "sgd", "sampler": "walk", **MODELS[name]}
    lone(config(catalog, f"{run}-start", dataset, lr=0.0, **options))
    trained = lone(config(catalog, run, dataset, lr=1.0, **options))
    sampler = WalkSampler(map_whole_graph(catalog[dataset].graph()), 0, 20)
    kind = options.get("model", "gcn")
    dense = {each: options[each] for each in ("norm", "unit_embedding", "heads") if each in options}
    start = arrays(catalog, dataset, f"{run}-start")
    loss, gradients = dense_gradients(PROBLEMS[dataset], kind, start, [sampler.sample(0, 0)], **dense)
    assert_close(trained["loss"], [loss], steps=4)
    check_step(catalog, dataset, run, gradients)


@pytest.mark.parametrize("dataset", ["web", "weighted"])
def test_counted_samples_weigh_losses_and_edges(catalog: Catalog, dataset: str) -> None:
    sampler = WalkSampler(map_whole_graph(catalog[dataset].graph()), 0, 20)
    counts = count_samples(sampler, 40)
    # How often each vertex and edge was in the counted batches, by hand.
    n = sampler.graph.num_vertices
    shown = np.zeros((40, n))
    for number in range(40):
        epoch, batch = -1 - number // sampler.num_batches, number % sampler.num_batches
        shown[number, sampler.draw(epoch, batch)] = 1
    np.testing.assert_array_equal(shown.sum(0), counts.vertex_count)
    once_more = shown.sum(0) + 1
    check_weighted_step(catalog, dataset, sampler, once_more[:, None] / (shown.T @ shown + 1), 41 / once_more)


@pytest.mark.parametrize("dataset", ["web", "weighted"])
def test_vertex_batches_have_exact_weights(catalog: Catalog, dataset: str) -> None:
    sampler = VertexSampler(map_whole_graph(catalog[dataset].graph()), 0, 20)
    n = sampler.graph.num_vertices
    sizes = np.array([len(sampler.draw(0, batch)) for batch in range(sampler.num_batches)])
    factor = np.full((n, n), n * (n - 1) / (sizes * (sizes - 1)).sum())
    np.fill_diagonal(factor, 1)
    check_weighted_step(catalog, dataset, sampler, factor, np.full(n, float(len(sizes))))


def check_weighted_step(
    catalog: Catalog, dataset: str, sampler: SubgraphSampler, factor: np.ndarray, weight: np.ndarray
) -> None:
    """Compare a step with dense torch.

    Args:
        factor: (n, n) of every nonzero.
        weight: (n,) of the loss of every vertex.
    """
    given, kind = PROBLEMS[dataset], sampler.kind
    options: dict[str, Any] = {"batches": 1, "epochs": 1, "optimizer": "sgd", "presamples": 40, "sampler": kind}
    lone(config(catalog, f"weights-{kind}-start", dataset, lr=0.0, **options))
    trained = lone(config(catalog, f"weights-{kind}", dataset, lr=1.0, **options))
    dense, ids = given.adjacency.toarray(), sampler.draw(0, 0)
    degree = dense.sum(1)[ids]
    operator = torch.tensor((dense * factor)[np.ix_(ids, ids)] / np.sqrt(np.outer(degree, degree)))
    start = arrays(catalog, dataset, f"weights-{kind}-start")
    model = DenseModel.from_arrays("gcn", dense, start)
    hidden = torch.tensor(given.feature[ids]).double()
    for layer in range(2):
        hidden = operator @ hidden @ model[f"weights.{layer}"] + model[f"biases.{layer}"]
        hidden = torch.relu(hidden) if layer == 0 else hidden
    mask = given.training[ids]
    each = torch.nn.functional.cross_entropy(hidden[mask], torch.tensor(given.label[ids][mask]), reduction="none")
    loss = (each * torch.tensor(weight[ids][mask])).sum() / int(given.training.sum())
    loss.backward()  # type: ignore[no-untyped-call]
    assert_close(trained["loss"], [float(loss.detach())], steps=4)
    gradients = {name: value.grad.numpy() for name, value in model.parameters.items()}  # type: ignore[union-attr]
    check_step(catalog, dataset, f"weights-{kind}", gradients)


@pytest.mark.slow
def test_few_counted_batches_are_reported_once_and_auto_counts_enough(catalog: Catalog) -> None:
    options: dict[str, Any] = {"sampler": "walk", "epochs": 2}
    with warnings_logged() as logged:
        lone(config(catalog, "few", presamples=10, **options))
        assert len(logged) == 1
        assert "10 batches with a vertex" in logged[0]
        enough = int(logged[0].rpartition("about ")[2].replace(",", ""))
        lone(config(catalog, "enough", presamples=round(1.2 * enough), **options))
        lone(config(catalog, "auto", presamples="auto", **options))
        # Their weights are exact, whatever is drawn beforehand.
        exact = [
            lone(config(catalog, f"exact-{number}", **{**options, "sampler": "edge", "presamples": number}))["loss"]
            for number in (1, "auto")
        ]
    assert len(logged) == 1
    assert exact[0] == exact[1]


def test_losses_do_not_depend_on_sampler_threads_and_no_two_epochs_are_alike(catalog: Catalog) -> None:
    options: dict[str, Any] = {"dropout": 0.3, "norm": "batch", "lr": 0.0, "hidden": (8, 8)}
    losses = [
        lone(config(catalog, f"threads-{threads}", sampler_threads=threads, pool=pool, **options))["loss"]
        for threads, pool in ((0, 1), (1, 3), (3, 2))
    ]
    assert losses[0] == losses[1] == losses[2]
    # At learning rate 0 only the subgraphs change.
    assert len(set(losses[0])) == len(losses[0])
    assert not [thread for thread in threading.enumerate() if "sampler" in thread.name]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["frontier", "vertex", "edge", "walk"])
def test_a_resumed_run_has_the_losses_of_one_that_was_not_interrupted(catalog: Catalog, sampler: str) -> None:
    options: dict[str, Any] = {"sampler": sampler, "dropout": 0.3, "norm": "batch", "presamples": 5, "epochs": 5}
    straight = lone(config(catalog, f"straight-{sampler}", **options))
    lone(config(catalog, f"parts-{sampler}", **{**options, "epochs": 2}))
    assert lone(config(catalog, f"parts-{sampler}", **options))["loss"] == straight["loss"]
    found, expected = (arrays(catalog, "web", f"{name}-{sampler}") for name in ("parts", "straight"))
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_clusters_are_parts_of_a_partition(catalog: Catalog) -> None:
    # Some cluster has no training vertex.
    part = np.arange(N) % 6
    store_partition(catalog["web"], catalog["web"].graph(), part, 6)
    options: dict[str, Any] = {"sampler": "cluster", "batch_size": 1024, "lr": 0.0}
    trained = lone(config(catalog, "clusters", cluster_parts=6, parts_per_batch=1, **options))
    clusters = [Sample(np.flatnonzero(part == number), ()) for number in range(6)]
    # Every epoch has every cluster once, in another order.
    expected, _ = dense_gradients(PROBLEMS["web"], "gcn", arrays(catalog, "web", "clusters"), clusters)
    assert_close(trained["loss"], [expected] * 3, steps=4)
    pairs = lone(config(catalog, "pairs", cluster_parts=6, parts_per_batch=2, **options))
    assert len(set(pairs["loss"])) == 3
    with pytest.raises(CollectiveError, match="no partition with parts=7"):
        lone(config(catalog, "none", cluster_parts=7, **options))


@pytest.mark.slow
def test_ranks_train_on_the_same_subgraphs_and_a_step_is_the_mean_over_them(catalog: Catalog, tmp_path: Path) -> None:
    still: dict[str, Any] = {"lr": 0.0, "dropout": 0.3, "eval_every": 1}
    ranks = [config(catalog, f"ranks-{size}", ranks=size, **still) for size in (1, 2, 3)]
    step: dict[str, Any] = {"batches": 5, "epochs": 1, "optimizer": "sgd", "sampler": "walk", "ranks": 3}
    # Five batches make two steps of three ranks, of which the last has no batch in the second one.
    steps = [config(catalog, "average-start", lr=0.0, **step), config(catalog, "average", lr=1.0, **step)]
    moving = [config(catalog, f"moving-{run}", ranks=2, norm="batch", dropout=0.3, epochs=4) for run in "ab"]
    parts = [moving[0].with_options(run="moving-parts", epochs=epochs) for epochs in (2, 4)]
    results = train_all(tmp_path, [*ranks, *steps, *moving, *parts])
    # Without updates, the mean over an epoch is the same for any number of ranks.
    for result in results[1:3]:
        assert_close(result["loss"], results[0]["loss"], steps=4)
        assert result["val_accuracy"] == results[0]["val_accuracy"]
    sampler = WalkSampler(map_whole_graph(catalog["web"].graph()), 0, 20)
    places = [divmod(number, sampler.num_batches) for number in range(5)]
    samples = [sampler.sample(*place) for place in places]
    start = arrays(catalog, "web", "average-start")
    _, first = dense_gradients(PROBLEMS["web"], "gcn", start, samples[:3])
    middle = {f"parameter/{name}": start[f"parameter/{name}"] - gradient for name, gradient in first.items()}
    _, second = dense_gradients(PROBLEMS["web"], "gcn", middle, samples[3:])
    for name, gradient in second.items():
        found = arrays(catalog, "web", "average")[f"parameter/{name}"]
        assert_close(found, middle[f"parameter/{name}"] - gradient, steps=8, message=name)
    one, other, _, resumed = results[5:]
    assert one["loss"] == other["loss"] == resumed["loss"]


def test_metrics_are_those_of_the_whole_graph(catalog: Catalog) -> None:
    given = PROBLEMS["web"]
    trained = lone(config(catalog, "measured", epochs=8, model="sage"))
    model = DenseModel.from_arrays("sage", given.adjacency.toarray(), arrays(catalog, "web", "measured"))
    predicted = model.scores(torch.tensor(given.feature).double(), training=False).argmax(1).numpy()
    for name, code in (("train", 1), ("val", 2), ("test", 3)):
        chosen = (given.split == code) & (given.label >= 0)
        assert trained[f"{name}_accuracy"] == np.mean(predicted[chosen] == given.label[chosen])
    assert trained["mode"] == "subgraph"


def test_whole_graphs_as_batches_are_full_graph_training(catalog: Catalog) -> None:
    """The curves of both modes are then the same: one subgraph of all vertices per epoch."""
    options: dict[str, Any] = {"epochs": 6, "class_weights": "0.5,2,1"}
    sampled = lone(config(catalog, "all", sampler="vertex", batch_size=N, **options))
    whole = lone(config(catalog, "whole", **options).with_options(mode="full", batch_size=1024))
    assert_close(sampled["loss"], whole["loss"], steps=6 * 4, bits=ADAM_BITS)


def test_a_dataset_without_its_graph_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    only = Catalog(tmp_path / "catalog")
    problem("shards-only", 30, 90, symmetric=True).store(only, 1)
    with pytest.raises(CollectiveError, match="has no graph"):
        lone(sampled_config(only, "shards-only", "subgraph", "run"))
