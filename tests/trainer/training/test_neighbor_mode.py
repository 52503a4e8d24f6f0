"""Neighbor mode: with all neighbors its steps are those of dense training on the batches; runs repeat exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.passes.layerwise import layerwise_scores
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from support.covering import FEW_OR_EVERY
from support.dense_models import DenseModel
from support.lone import LoneCommunicator
from support.lone_training import lone_session
from support.mpi import train_all
from support.problems import Problem, problem
from support.sampled import sampled_config, store_for_sampling
from support.samples import in_memory, seeded
from support.tolerance import ADAM_BITS, assert_close

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

RANKS = (1, 3)
EVERYTHING = (ALL,) * 3
PROBLEMS = {
    given.name: given
    for given in (
        problem("directed", 60, 240, symmetric=False),
        problem("undirected", 61, 150, symmetric=True),
        # Other ranks have no vertex, or no training vertex.
        problem("empty-ranks", 40, 160, symmetric=False, crowded=True),
        problem("training-on-one-rank", 60, 200, symmetric=False, gathered=True),
    )
}
MODELS = ("gcn", "sage", "gin")
#: Kinds of attention.
ATTENTION = ("v1", "v2")
OWN_MODEL = "gnnloom.workflows.examples.gcnii:GCNII"
SAMPLED = ("directed", "training-on-one-rank")


@dataclass(frozen=True)
class Chosen:
    """What is trained beside the initial weights and the models on two ranks.

    Attributes:
        ranks: numbers of ranks of every problem's runs on all neighbors.
        sampled: problems with runs that draw some neighbors.
        attention: numbers of ranks of the runs with attention.
        stored: numbers of ranks of every problem's runs from samples.
    """

    ranks: Mapping[str, tuple[int, ...]]
    sampled: tuple[str, ...]
    attention: tuple[int, ...]
    stored: Mapping[str, tuple[int, ...]]


EVERY = Chosen(
    ranks=dict.fromkeys(PROBLEMS, RANKS),
    sampled=SAMPLED,
    attention=RANKS,
    stored=dict.fromkeys(SAMPLED, RANKS),
)
FEW = Chosen(
    ranks={"directed": (1,), "undirected": (1,), "empty-ranks": (3,), "training-on-one-rank": (3,)},
    sampled=("directed",),
    attention=(2,),
    stored={"directed": (3,), "training-on-one-rank": (1,)},
)


#: Models, rows that are gathered at once and precisions of inference layer by layer; of all, each once.
STEPS = ((1, "float64"), (40, "float64"), (1 << 20, "float64"), (40, "bf16"))
LAYERED = [(model, *step) for step in STEPS for model in MODELS]
FEW_LAYERED = [("gcn", 1, "float64"), ("sage", 40, "float64"), ("gin", 1 << 20, "float64"), ("gcn", 40, "bf16")]


class Results:
    """All runs of one MPI job, by name."""

    def __init__(self, catalog: Catalog, configs: list[TrainConfig], folder: Path, chosen: Chosen) -> None:
        self.catalog, self.chosen = catalog, chosen
        self.by_run = dict(
            zip([(c.data.dataset, c.run.name) for c in configs], train_all(folder, configs), strict=True)
        )

    def loss(self, dataset: str, run: str) -> list[float]:
        losses: list[float] = self.by_run[dataset, run]["loss"]
        return losses


def neighbor_config(catalog: Catalog, name: str, ranks: int, run: str, **options: Any) -> TrainConfig:
    """Without evaluations; ``options`` override."""
    fixed: dict[str, Any] = {"hidden": (9, 7), "lr": 0.02, "seed": 3, "eval_every": 0, "batch_size": 1024}
    mode = options.pop("mode", "neighbor")
    return sampled_config(catalog, name, mode, run, ranks=ranks, **{**fixed, **options})


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder, chosen = tmp_path_factory.mktemp("neighbor"), EVERY if request.param else FEW
    catalog = Catalog(folder / "catalog")
    configs = []
    for name, given in PROBLEMS.items():
        store_for_sampling(catalog, given, *RANKS, 2)
        configs += [
            neighbor_config(catalog, name, 1, f"start-{model}", model=model, lr=0.0, epochs=1)
            # Other models are trained on one problem only.
            for model in (MODELS if name == "directed" else ("gcn",))
        ]
        every = {"fanout": EVERYTHING, "batch_size": 4, "optimizer": "sgd", "lr": 0.3}
        for ranks in chosen.ranks[name]:
            configs.append(neighbor_config(catalog, name, ranks, f"gcn-{ranks}", **every))
        if name in chosen.sampled:
            sampled: dict[str, Any] = {"fanout": (3, 2, 2), "batch_size": 4, "dropout": 0.4}
            configs.append(neighbor_config(catalog, name, 3, "sampled", **sampled))
            configs.append(neighbor_config(catalog, name, 3, "uncached", **sampled, cache_memory=0))
            configs.append(neighbor_config(catalog, name, 3, "unthreaded", **sampled, sampler_threads=0))
    for model in MODELS:
        configs.append(neighbor_config(catalog, "directed", 2, f"{model}-two", model=model, **every))
    configs.append(neighbor_config(catalog, "directed", 2, "batch-norm", norm="batch", **every))
    # An evaluation between two steps, of which the first one's gradients affect the second one's loss.
    attending: dict[str, Any] = {"model": "gat", "heads": 2, "hidden": (8, 6), "epochs": 2, "eval_every": 1}
    dataset = catalog["directed"]
    for ranks in chosen.attention:
        # All training vertices are in one batch, and all neighbors are drawn: an epoch is a step on the whole graph.
        drawn = SampleOptions(fanout=EVERYTHING, batch_size=60, epochs=1, ranks=ranks, seed=3)
        samples = write_samples(dataset, dataset.graph(), dataset.partition(parts=ranks), drawn, InProcessCluster())
        kinds: dict[str, dict[str, Any]] = {
            "full": {"mode": "full", "batch_size": 1024},
            "blocks": {"fanout": EVERYTHING, "batch_size": 60},
            "disk": {"samples": samples.artifact.key, "batch_size": 60},
        }
        for kind, options in kinds.items():
            for version in ATTENTION:
                run, attention = f"{version}-{kind}-{ranks}", {**attending, **options, "attention": version}
                configs.append(neighbor_config(catalog, "directed", ranks, run, **attention))
    return Results(catalog, configs, folder, chosen)


def dense_losses(results: Results, given: Problem, ranks: int, model: str) -> list[float]:
    """SGD in dense torch; a step's loss is the mean over the batches of all ranks."""
    arrays = dict(read_checkpoint(results.catalog[given.name].run_path(f"start-{model}") / "checkpoint").arrays)
    dense = DenseModel.from_arrays(model, given.adjacency.toarray(), arrays)
    graph, part = in_memory(given.adjacency), given.part(ranks)
    samplers = [
        seeded(graph, 3, seeds, EVERYTHING, 4)
        for seeds in (np.flatnonzero(given.training & (part == rank)) for rank in range(ranks))
        if len(seeds)
    ]
    steps = torch.optim.SGD(list(dense.parameters.values()), lr=0.3)
    feature, label = torch.tensor(given.feature).double(), torch.tensor(given.label)
    losses = []
    for epoch in range(3):
        total = 0.0
        for batch in range(max(sampler.num_batches for sampler in samplers)):
            drawn = [sampler.draw(epoch, batch) for sampler in samplers if batch < sampler.num_batches]
            seeds = np.concatenate(drawn)
            steps.zero_grad()
            loss = torch.nn.functional.cross_entropy(dense.scores(feature)[seeds], label[seeds])
            loss.backward()  # type: ignore[no-untyped-call]
            steps.step()
            total += loss.item() * len(seeds)
        losses.append(total / given.training.sum())
    return losses


@pytest.mark.parametrize("name", PROBLEMS)
def test_with_all_neighbors_every_step_is_that_of_dense_training_on_the_batch(results: Results, name: str) -> None:
    for ranks in results.chosen.ranks[name]:
        expected = dense_losses(results, PROBLEMS[name], ranks, "gcn")
        assert_close(results.loss(name, f"gcn-{ranks}"), expected, steps=60)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_runs_on_blocks(results: Results, model: str) -> None:
    expected = dense_losses(results, PROBLEMS["directed"], 2, model)
    assert_close(results.loss("directed", f"{model}-two"), expected, steps=60)


def test_batch_normalization_trains_on_blocks(results: Results) -> None:
    found = results.loss("directed", "batch-norm")
    assert np.isfinite(found).all()
    assert found[-1] < found[0]


def test_attention_over_all_neighbors_is_that_of_the_whole_graph(results: Results) -> None:
    for ranks, version in product(results.chosen.attention, ATTENTION):
        whole, *sampled = (results.loss("directed", f"{version}-{kind}-{ranks}") for kind in ("full", "blocks", "disk"))
        for losses in sampled:
            assert_close(losses, whole, steps=60, bits=ADAM_BITS)


def test_neither_the_cache_nor_the_threads_change_a_loss(results: Results) -> None:
    for name in results.chosen.sampled:
        losses = results.loss(name, "sampled")
        assert results.loss(name, "uncached") == losses, name
        assert results.loss(name, "unthreaded") == losses, name
        assert len(set(losses)) == 3, name


def test_the_cache_saves_messages_and_one_rank_sends_none(results: Results) -> None:
    cached, uncached, alone = (
        results.by_run["directed", run]["bytes_by_kind"].get("rows", 0) for run in ("sampled", "uncached", "gcn-1")
    )
    assert cached < uncached
    assert alone == 0


def test_a_resumed_run_has_the_losses_of_an_uninterrupted_one(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    store_for_sampling(catalog, PROBLEMS["undirected"], 1)
    options: dict[str, Any] = {"fanout": (3, 2, 2), "batch_size": 5, "dropout": 0.3}
    whole = train(LoneCommunicator(), neighbor_config(catalog, "undirected", 1, "whole", epochs=5, **options))
    train(LoneCommunicator(), neighbor_config(catalog, "undirected", 1, "twice", epochs=2, **options))
    twice = train(LoneCommunicator(), neighbor_config(catalog, "undirected", 1, "twice", epochs=5, **options))
    assert twice["loss"] == whole["loss"]
    assert len(set(whole["loss"])) == 5
    other = train(LoneCommunicator(), neighbor_config(catalog, "undirected", 1, "other", epochs=5, **options, seed=4))
    assert other["loss"] != whole["loss"]


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Runs that draw their batches, and runs that read them from samples of as many epochs, and of fewer."""
    folder, chosen = tmp_path_factory.mktemp("samples"), EVERY if request.param else FEW
    catalog, configs = Catalog(folder / "catalog"), []
    for name, feature_norm in (("directed", "auto"), ("training-on-one-rank", "row")):
        dataset = store_for_sampling(catalog, PROBLEMS[name], *RANKS)
        for ranks in chosen.stored[name]:
            partition = dataset.partition(parts=ranks)
            options: dict[str, Any] = {"dropout": 0.4, "feature_norm": feature_norm, "eval_every": 1}
            # Only so that the loss of the validation split is measured.
            options |= {"patience": 100, "monitor": "val_loss"}
            drawn: dict[str, Any] = {"fanout": (3, 2, 2), "batch_size": 4}
            for epochs in (2, 3):
                given = SampleOptions(**drawn, epochs=epochs, ranks=ranks, seed=3, cache_memory=200)
                key = write_samples(dataset, dataset.graph(), partition, given, InProcessCluster()).artifact.key
                run = f"stored-{epochs}-{ranks}"
                configs.append(neighbor_config(catalog, name, ranks, run, samples=key, **options))
            configs.append(neighbor_config(catalog, name, ranks, f"drawn-{ranks}", **drawn, **options))
    return Results(catalog, configs, folder, chosen)


@pytest.mark.parametrize("name", SAMPLED)
def test_training_from_samples_has_the_losses_of_training_that_draws_them(stored: Results, name: str) -> None:
    for ranks in stored.chosen.stored[name]:
        _check_stored(stored, name, ranks)


def _check_stored(stored: Results, name: str, ranks: int) -> None:
    losses = stored.loss(name, f"drawn-{ranks}")
    assert stored.loss(name, f"stored-3-{ranks}") == losses
    # After two epochs, the first one is read again.
    assert stored.loss(name, f"stored-2-{ranks}")[:2] == losses[:2]
    assert stored.loss(name, f"stored-2-{ranks}")[2] != losses[2]
    sent = stored.by_run[name, f"stored-3-{ranks}"]["bytes_by_kind"]
    assert "rows" not in sent


@pytest.mark.parametrize("name", SAMPLED)
def test_evaluation_from_disk_is_that_of_the_whole_graph(stored: Results, name: str) -> None:
    for ranks in stored.chosen.stored[name]:
        _check_evaluation(stored, name, ranks)


def _check_evaluation(stored: Results, name: str, ranks: int) -> None:
    dataset = stored.catalog[name]
    from_disk, whole = (Run.open(dataset, f"{run}-{ranks}").metrics() for run in ("stored-3", "drawn"))
    for mine, other in zip(from_disk, whole, strict=True):
        assert_close(mine["val_loss"], other["val_loss"], steps=60)
        for figure in ("train_accuracy", "val_accuracy", "test_accuracy"):
            assert mine[figure] == other[figure]
    # Settled from the samples as from the shards; the features of one problem have negative numbers.
    mine, other = (stored.by_run[name, f"{run}-{ranks}"]["feature_norm"] for run in ("stored-3", "drawn"))
    assert mine == other


@pytest.mark.parametrize(
    ("model", "step", "precision"),
    [*FEW_LAYERED, *(pytest.param(*case, marks=pytest.mark.long) for case in LAYERED if case not in FEW_LAYERED)],
)
def test_layer_by_layer_from_disk_the_scores_are_those_of_the_whole_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, step: int, precision: str
) -> None:
    monkeypatch.setattr("gnnloom.trainer.passes.ranges.GATHERED", step)
    catalog = Catalog(tmp_path / "catalog")
    dataset = store_for_sampling(catalog, PROBLEMS["undirected"], 1)
    given = SampleOptions(fanout=(3, 2, 2), batch_size=4, epochs=1)
    samples = write_samples(dataset, dataset.graph(), None, given, InProcessCluster())
    options: dict[str, Any] = {"model": model, "norm": "layer", "unit_embedding": True, "hidden": (7, 7)}
    options |= {"residual": True, "feature_norm": "row", "precision": precision}
    whole, stored = (
        lone_session(neighbor_config(catalog, "undirected", 1, "a", **options, **given))
        for given in ({}, {"samples": samples.artifact.key})
    )
    whole.model.eval()
    stored.model.eval()
    with torch.no_grad():
        expected = whole.model(whole.take_inputs())
        labels, layout = stored.objective.read(stored.share.label_rows, stored.place), stored.operator.layout(0)
        loss = stored.objective.loss(layout, labels)
        context = stored.mode_context(stored.take_inputs(), labels, loss, 0)
        found = layerwise_scores(context.model, context.source)
    # Rows in float32 have the same bits, and so their roundings to bf16.
    assert_close(found, expected, steps=30, dtype=np.float32 if precision == "bf16" else np.float64)
    assert stored.opened.counter.bytes < whole.opened.counter.bytes
    assert [path.name for path in dataset.path.iterdir() if path.is_file()] == ["zarr.json"]


def test_a_run_from_samples_is_predicted_from_its_shards(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    dataset = store_for_sampling(catalog, PROBLEMS["undirected"], 1)
    samples = write_samples(
        dataset, dataset.graph(), None, SampleOptions(fanout=(3, 2, 2), epochs=1), InProcessCluster()
    )
    config = neighbor_config(catalog, "undirected", 1, "a", samples=samples.artifact.key)
    result = train(LoneCommunicator(), config)
    predict(LoneCommunicator(), PredictConfig.of(catalog=str(catalog.root), dataset="undirected", run="a"))
    label, given = Run.open(dataset, "a").predictions().label(), PROBLEMS["undirected"]
    test = (given.split == 3) & (given.label >= 0)
    assert (label[test] == given.label[test]).mean() == result["test_accuracy"]


def test_samples_that_do_not_fit_the_run_are_refused(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    dataset = store_for_sampling(catalog, PROBLEMS["undirected"], 1, 2)
    options = SampleOptions(fanout=(3, 2, 2), batch_size=4, epochs=1, ranks=2)
    two = write_samples(dataset, dataset.graph(), dataset.partition(parts=2), options, InProcessCluster())
    one = write_samples(dataset, dataset.graph(), None, SampleOptions(fanout=(3, 2), epochs=1), InProcessCluster())
    wrong: dict[str, dict[str, Any]] = {
        "samples for 2 ranks": {"samples": two.artifact.key},
        "but the model has 3 layers": {"samples": one.artifact.key},
        "drawn with batch_size 1024, but 7": {"samples": one.artifact.key, "batch_size": 7, "hidden": (9,)},
        "no samples with key ffff": {"samples": "ffff"},
    }
    for message, given in wrong.items():
        with pytest.raises(CollectiveError, match=message):
            train(LoneCommunicator(), neighbor_config(catalog, "undirected", 1, "a", **given))


def test_what_does_not_fit_the_model_is_refused(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    store_for_sampling(catalog, PROBLEMS["undirected"], 1)
    with pytest.raises(InputError, match="the model has 3 layers"):
        train(LoneCommunicator(), neighbor_config(catalog, "undirected", 1, "a", fanout=(3, 2)))
    with pytest.raises(InputError, match="fanout 0: "):
        train(LoneCommunicator(), neighbor_config(catalog, "undirected", 1, "b", fanout=(3, 0, 2)))
    with pytest.raises(CollectiveError, match="need the same rows before and after"):
        train(LoneCommunicator(), neighbor_config(catalog, "undirected", 1, "c", model=OWN_MODEL, hidden=(8, 8)))
