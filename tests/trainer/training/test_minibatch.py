"""Mini-batch training: losses of a dense reference, on any number of ranks, and the bytes of the batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.whole_graph import map_whole_graph
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.sampling.vertex import VertexSampler
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.covering import FEW_OR_EVERY
from support.dense_models import DenseModel
from support.lone import LoneCommunicator
from support.mpi import train_all
from support.problems import problem
from support.sampled import sampled_config, store_whole
from support.shards import volume
from support.tolerance import ADAM_BITS, assert_close

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

PROBLEMS = {
    given.name: given
    for given in (
        problem("web", 60, 240, symmetric=True),
        problem("directed", 60, 300, symmetric=False),
        problem("weighted", 50, 300, symmetric=False, weighted=True),
        problem("crowded", 40, 160, symmetric=False, crowded=True, gathered=True),
    )
}
#: Dataset and options of the trainings that run on several numbers of ranks.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gcn": ("directed", {"dropout": 0.3}),
    "sage": ("web", {"model": "sage", "norm": "batch", "class_weights": "balanced"}),
    "gin": ("directed", {"model": "gin", "clip_norm": 0.5}),
    "gat": ("web", {"model": "gat", "heads": 2, "dropout": 0.3}),
    "gatv2": ("directed", {"model": "gat", "attention": "v2", "heads": 2, "dropout": 0.3}),
    "weighted": ("weighted", {}),
    "empty-ranks": ("crowded", {"model": "sage", "batch_size": 7}),
}
EPOCHS, SIZE = 3, 20
#: Numbers of ranks that are compared with one rank, for every case, and few of them.
SEVERAL: dict[str, tuple[int, ...]] = dict.fromkeys(CASES, (2, 3, 4))
FEW: dict[str, tuple[int, ...]] = {
    "gcn": (3,), "sage": (2,), "gin": (2,), "gat": (2,), "gatv2": (2,), "weighted": (2,), "empty-ranks": (4,)
}  # fmt: skip


def config(catalog: Catalog, dataset: str, run: str, **options: Any) -> TrainConfig:
    return sampled_config(catalog, dataset, "minibatch", run, **{"epochs": EPOCHS, "batch_size": SIZE, **options})


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("minibatch") / "catalog")
    for given in PROBLEMS.values():
        store_whole(catalog, given, 1, 2, 3, 4)
    return catalog


@dataclass
class Results:
    """All runs of one MPI job, by name, and the numbers of ranks of every case beside one."""

    by_run: dict[str, dict[str, Any]]
    several: dict[str, tuple[int, ...]]

    def __getitem__(self, run: str) -> dict[str, Any]:
        return self.by_run[run]


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def results(request: pytest.FixtureRequest, catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Results:
    several = SEVERAL if request.param else FEW
    configs = [
        config(catalog, dataset, f"{case}-{ranks}", ranks=ranks, **options)
        for case, (dataset, options) in CASES.items()
        for ranks in (1, *several[case])
    ]
    long = config(catalog, "web", "straight", ranks=2, epochs=5, dropout=0.3, norm="batch")
    configs += [long, long.with_options(run="parts", epochs=2), long.with_options(run="parts")]
    configs += [long.with_options(run="parts-elsewhere", epochs=2), long.with_options(run="parts-elsewhere", ranks=3)]
    # Quick and long tests do not share runs.
    stored = [each.with_options(run=f"{each.run.name}-of-{'every' if request.param else 'few'}") for each in configs]
    found = train_all(tmp_path_factory.mktemp("results"), stored)
    return Results({given.run_name: result for given, result in zip(configs, found, strict=True)}, several)


@pytest.mark.parametrize("case", CASES)
def test_losses_are_equal_on_any_number_of_ranks(results: Results, case: str) -> None:
    one = results[f"{case}-1"]
    for ranks in results.several[case]:
        several = results[f"{case}-{ranks}"]
        assert_close(several["loss"], one["loss"], steps=EPOCHS * 6, bits=ADAM_BITS)
        assert several["val_accuracy"] == one["val_accuracy"], ranks


@pytest.mark.parametrize("dataset", ["web", "directed", "weighted"])
def test_losses_are_those_of_dense_torch_on_the_induced_graphs(catalog: Catalog, dataset: str) -> None:
    given = PROBLEMS[dataset]
    train(LoneCommunicator(), config(catalog, dataset, "start", lr=0.0, epochs=1))
    start = dict(read_checkpoint(catalog[dataset].run_path("start") / "checkpoint").arrays)
    trained = train(LoneCommunicator(), config(catalog, dataset, "dense", optimizer="sgd", lr=0.5))
    dense = given.adjacency.toarray()
    model, sampler = (
        DenseModel.from_arrays("gcn", dense, start),
        VertexSampler(map_whole_graph(catalog[dataset].graph()), 0, SIZE),
    )
    steps = torch.optim.SGD(list(model.parameters.values()), lr=0.5)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in range(sampler.num_batches):
            ids = sampler.draw(epoch, batch)
            model.adjacency = dense[np.ix_(ids, ids)]
            mask, label = torch.tensor(given.training[ids]), torch.tensor(given.label[ids])
            # A batch without training vertices has no loss, and its step changes nothing.
            if not mask.any():
                continue
            steps.zero_grad()
            scores = model.scores(torch.tensor(given.feature[ids]).double())
            loss = torch.nn.functional.cross_entropy(scores[mask], label[mask])
            loss.backward()  # type: ignore[no-untyped-call]
            steps.step()
            total += float(loss.detach()) * int(mask.sum())
        # The epoch's loss is the mean over all training vertices, each in the batch that had it.
        assert_close(trained["loss"][epoch], total / int(given.training.sum()), steps=4 * (epoch + 1))


@pytest.mark.parametrize("case", ["gcn", "weighted"])
def test_bytes_are_those_of_the_rows_that_batches_send(catalog: Catalog, results: Results, case: str) -> None:
    for ranks in (1, *results.several[case]):
        _check_bytes(catalog, results, case, ranks)


def _check_bytes(catalog: Catalog, results: Results, case: str, ranks: int) -> None:
    dataset = CASES[case][0]
    given, adjacency = PROBLEMS[dataset], PROBLEMS[dataset].adjacency.tocsr()
    sampler = VertexSampler(map_whole_graph(catalog[dataset].graph()), 0, SIZE)
    part, rows = given.part(ranks), [0, 0]
    for batch in range(sampler.num_batches):
        ids = sampler.draw(EPOCHS - 1, batch)
        induced = adjacency[ids][:, ids].tocsr()
        rows[0] += volume(induced, part[ids], ranks)
        rows[1] += volume(induced.T.tocsr(), part[ids], ranks)
    sent = results[f"{case}-{ranks}"]["bytes_by_kind"]
    # A X of the first layer, 5 wide, and A (H W) of the second, 3 wide; only the second goes back to its input.
    assert sent.get("halo forward", 0) == rows[0] * (5 + 3) * 8
    assert sent.get("halo backward", 0) == rows[1] * 3 * 8


def test_a_resumed_run_has_the_losses_of_one_that_was_not_interrupted(results: Results) -> None:
    assert results["parts"]["loss"] == results["straight"]["loss"]
    # The batches do not depend on the ranks, so a run continues on any number of them.
    assert_close(results["parts-elsewhere"]["loss"], results["straight"]["loss"], steps=5 * 6, bits=ADAM_BITS)


def test_losses_do_not_depend_on_sampler_threads(catalog: Catalog) -> None:
    losses = [
        train(LoneCommunicator(), config(catalog, "web", f"threads-{threads}", sampler_threads=threads, pool=pool))
        for threads, pool in ((0, 1), (1, 4), (3, 2))
    ]
    assert losses[0]["loss"] == losses[1]["loss"] == losses[2]["loss"]
