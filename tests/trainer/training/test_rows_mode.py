"""Models on rows train as plain PyTorch does, on any ranks, from what is on disk, and without the adjacency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.predictions import Predictions
from gnnloom.storage.runs.run import Run
from gnnloom.storage.sampling.vertex import batch_of
from gnnloom.storage.shards.row_shards import RowShard
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from support.covering import FEW_OR_EVERY
from support.lone import LoneCommunicator
from support.mpi import train_all
from support.problems import Problem, problem
from support.propagated import reference_steps, store_propagated
from support.tolerance import ADAM_BITS, assert_close

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

RANKS = (1, 2, 3, 4)
STEPS, EPOCHS, BATCH = 2, 3, 7
HIDDEN = (10, 6)
PROBLEMS = {
    given.name: given
    for given in (
        problem("directed", 60, 240, symmetric=False),
        problem("fewer-vertices-than-ranks", 5, 9, symmetric=False),
        problem("empty-ranks", 40, 160, symmetric=False, crowded=True),
        problem("training-on-one-rank", 60, 200, symmetric=True, gathered=True),
    )
}
#: Options of the runs, and the model's input by step.
CASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "sign": ({"model": "sign"}, (0, 1, 2)),
    "mlp": ({"model": "mlp"}, (0, 1, 2)),
    "last": ({"model": "mlp", "steps": (2,), "hidden": ()}, (2,)),
    "features": ({"model": "mlp", "steps": (0,)}, (0,)),
    "order": ({"model": "sign", "steps": (2, 0)}, (2, 0)),
    "scaled": ({"model": "sign", "feature_norm": "row"}, (0, 1, 2)),
}
#: Numbers of ranks of the quick tests, by problem and case.
FEW: dict[str, dict[str, tuple[int, ...]]] = {
    "directed": {"sign": (1, 4), "mlp": (2,), "last": (3,), "features": (1,), "order": (2,), "scaled": (3,)},
    "fewer-vertices-than-ranks": {"sign": (4,)},
    "empty-ranks": {"sign": (4,)},
    "training-on-one-rank": {"mlp": (2,)},
}
EVERY = {
    name: dict.fromkeys(CASES, RANKS) if name == "directed" else {"sign": RANKS, "mlp": (1, 3)} for name in PROBLEMS
}


def store(catalog: Catalog, given: Problem, *ranks: int, steps: int = STEPS) -> Dataset:
    """Store the graph, its vertices, row shards for one rank and other numbers of ranks, and propagated features."""
    dataset = given.store_grid(catalog)
    given.store_rows(dataset, *sorted({1, *ranks}))
    if steps:
        values = reference_steps(given.adjacency, given.feature, steps, "symmetric")
        store_propagated(dataset, dataset.graph().artifact.key, values)
    return dataset


def config(catalog: Catalog, name: str, run: str, ranks: int = 1, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {
        "mode": "rows",
        "model": "sign",
        "hidden": HIDDEN,
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "lr": 0.05,
        "precision": "float64",
        "feature_norm": "none",
        "save_embeddings": True,
        "seed": 3,
        "threads": 1,
    }
    return TrainConfig.of(catalog=str(catalog.root), dataset=name, run=run, ranks=ranks, **{**fixed, **options})


class Reference:
    """The same model in plain PyTorch, from the parameters of a checkpoint."""

    def __init__(self, given: Problem, case: str, arrays: Mapping[str, np.ndarray]) -> None:
        options, steps = CASES[case]
        self.given, self.is_sign = given, options["model"] == "sign"
        values = [given.feature, *reference_steps(given.adjacency, given.feature, STEPS, "symmetric")]
        # Values are stored in float32.
        self.inputs = [torch.tensor(values[step].astype(np.float32)).double() for step in steps]
        if options.get("feature_norm") == "row":
            self.inputs = [torch.nn.functional.normalize(each, p=1.0) for each in self.inputs]
        names = [name for name in arrays if name.startswith("parameter/")]
        self.parameters = {name.removeprefix("parameter/"): torch.tensor(arrays[name]) for name in names}
        for parameter in self.parameters.values():
            parameter.requires_grad_()
        self.label = torch.tensor(given.label)

    def __call__(self) -> Tensor:
        self.hidden = torch.cat(self.inputs, 1)
        count = sum(name.startswith("weights.") for name in self.parameters)
        for layer in range(count):
            weight = self.parameters[f"weights.{layer}"]
            if layer == 0 and self.is_sign:
                # Each step has a part of the columns, as equal as can be.
                bounds = [weight.shape[1] * step // len(self.inputs) for step in range(len(self.inputs) + 1)]
                parts = zip(self.inputs, bounds[:-1], bounds[1:], strict=True)
                output = torch.cat([each @ weight[:, start:stop] for each, start, stop in parts], 1)
            else:
                output = self.hidden @ weight
            output = output + self.parameters[f"biases.{layer}"]
            if layer == count - 1:
                return output
            self.hidden = torch.relu(output)
        raise AssertionError("no layers")

    def train(self, epochs: int) -> list[float]:
        """The mean losses over the training vertices, each as before the step on its batch."""
        training = np.flatnonzero(self.given.training)
        optimizer, losses = torch.optim.Adam(list(self.parameters.values()), lr=0.05), []
        for epoch in range(epochs):
            batch = batch_of(len(training), BATCH, 3, epoch, np.arange(len(training)))
            total = 0.0
            for number in range(-(-len(training) // BATCH)):
                rows = torch.tensor(training[batch == number])
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(self()[rows], self.label[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += float(loss.detach()) * len(rows)
            losses.append(total / len(training))
        return losses


class Job:
    """All runs."""

    def __init__(self, folder: Path, cases: Mapping[str, Mapping[str, tuple[int, ...]]]) -> None:
        self.catalog, self.cases = Catalog(folder / "catalog"), cases
        for name, given in PROBLEMS.items():
            store(self.catalog, given, *(ranks for every in cases[name].values() for ranks in every))
        configs = [config(self.catalog, name, f"{case}-{ranks}", ranks, **CASES[case][0]) for name, case, ranks in self]
        starts = [
            config(self.catalog, name, f"{case}-start", **{**CASES[case][0], "epochs": 1, "lr": 0.0})
            for name, methods in cases.items()
            for case in methods
        ]
        self.results = dict(zip(self, train_all(folder, [*configs, *starts]), strict=False))

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        for name, methods in self.cases.items():
            for case, every in methods.items():
                yield from ((name, case, ranks) for ranks in every)

    def arrays(self, name: str, run: str) -> dict[str, np.ndarray]:
        return dict(read_checkpoint(self.catalog[name].run_path(run) / "checkpoint").arrays)

    def predictions(self, name: str, run: str) -> Predictions:
        return Run.open(self.catalog[name], run).predictions()


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("rows"), EVERY if request.param else FEW)


def test_losses_equal_those_of_plain_pytorch_on_any_ranks(job: Job) -> None:
    for (name, case, ranks), result in job.results.items():
        reference = Reference(PROBLEMS[name], case, job.arrays(name, f"{case}-start"))
        where = f"{name} {case} on {ranks} ranks"
        assert_close(result["loss"], reference.train(EPOCHS), steps=30 * EPOCHS, bits=ADAM_BITS, message=where)


def test_predictions_and_accuracies_are_those_of_all_rows(job: Job) -> None:
    for (name, case, ranks), result in job.results.items():
        given, found = PROBLEMS[name], job.predictions(name, f"{case}-{ranks}")
        reference = Reference(given, case, job.arrays(name, f"{case}-{ranks}"))
        scores, where = reference().detach().numpy(), f"{name} {case} on {ranks} ranks"
        assert_close(found.score(), scores, steps=4, message=where)
        np.testing.assert_array_equal(found.label(), np.asarray(found.score()).argmax(1), where)
        if CASES[case][0].get("hidden") != ():
            assert_close(found.embedding(), reference.hidden.detach().numpy(), steps=4, message=where)
        for split, code in {"train": 1, "val": 2, "test": 3}.items():
            chosen = (given.split == code) & (given.label >= 0)
            right = found.label()[chosen] == given.label[chosen]
            assert result[f"{split}_accuracy"] == (right.mean() if chosen.any() else None), where


OPTIONS: dict[str, dict[str, Any]] = {
    "dropout": {"dropout": 0.4, "norm": "layer"},
    "batch": {"norm": "batch", "hidden": (6, 6), "residual": True, "class_weights": "balanced"},
    "unit": {"unit_embedding": True, "sampler_threads": 0, "bias": False},
    "steps": {"dropout": 0.2, "pool": 1, "clip_norm": 0.5, "optimizer": "sgd"},
}


#: What interrupted runs have to go on with: statistics and moments, dropout and momentum.
FEW_INTERRUPTED = ("batch", "steps")


@pytest.mark.parametrize("every", FEW_OR_EVERY)
def test_losses_and_checkpoints_are_the_same_on_any_ranks_and_after_an_interruption(
    catalog: Catalog, tmp_path: Path, every: bool
) -> None:
    interrupted = OPTIONS if every else FEW_INTERRUPTED
    store(catalog, PROBLEMS["directed"], 3)
    runs = [
        config(catalog, "directed", f"{name}-{ranks}", ranks, epochs=4, keep=9, **options)
        for name, options in OPTIONS.items()
        for ranks in (1, 3)
    ]
    three_ranks = dict(zip(OPTIONS, runs[1::2], strict=True))
    halves = [
        each.with_options(run=f"{each.run.name}-halves", epochs=2) for each in map(three_ranks.get, interrupted) if each
    ]
    results = train_all(tmp_path, [*runs, *halves, *(each.with_options(epochs=4) for each in halves)])
    whole = dict(zip(OPTIONS, zip(results[0 : len(runs) : 2], results[1 : len(runs) : 2], strict=True), strict=True))
    for name, (one, three) in whole.items():
        assert_close(three["loss"], one["loss"], steps=40, bits=ADAM_BITS, message=name)
    for name, resumed in zip(interrupted, results[-len(halves) :], strict=True):
        assert resumed["loss"] == whole[name][1]["loss"], name
        before, after = (
            read_checkpoint(catalog["directed"].run_path(f"{name}-3{end}") / "checkpoint").arrays
            for end in ("", "-halves")
        )
        for array, values in before.items():
            np.testing.assert_array_equal(after[array], values, f"{name} {array}")


def test_a_perceptron_on_one_batch_of_the_features_is_that_of_the_whole_graph(catalog: Catalog) -> None:
    store(catalog, PROBLEMS["directed"])
    options: dict[str, Any] = {"model": "mlp", "norm": "layer", "feature_norm": "auto"}
    rows = config(catalog, "directed", "rows", batch_size=1000, steps=(0,), **options)
    full = config(catalog, "directed", "full", mode="full", batch_size=1024, **options)
    found, expected = (train(LoneCommunicator(), each) for each in (rows, full))
    assert_close(found["loss"], expected["loss"], steps=10 * EPOCHS, bits=ADAM_BITS)
    scores = [Run.open(catalog["directed"], run).predictions().score() for run in ("rows", "full")]
    assert_close(*scores, steps=10 * EPOCHS, bits=ADAM_BITS)


def test_features_that_are_never_negative_are_scaled_by_default(catalog: Catalog) -> None:
    given = replace(PROBLEMS["directed"], feature=np.abs(PROBLEMS["directed"].feature), name="counts")
    store(catalog, given)
    store(catalog, PROBLEMS["directed"])
    for name, norm in {"counts": "row", "directed": "none"}.items():
        by_default, chosen = (
            train(LoneCommunicator(), config(catalog, name, each, feature_norm=each, epochs=1))["loss"]
            for each in ("auto", norm)
        )
        assert by_default == chosen, name


def test_a_model_of_ones_own_trains_on_rows_if_it_treats_them_one_by_one(catalog: Catalog) -> None:
    store(catalog, PROBLEMS["directed"])
    own = "support.own_models:Rowwise"
    found = train(LoneCommunicator(), config(catalog, "directed", "own", model=own, epochs=20))
    assert found["loss"][-1] < 0.8 * found["loss"][0]
    assert Run.open(catalog["directed"], "own").predictions().embedding().shape == (60, HIDDEN[-1])
    wrong = config(catalog, "directed", "wrong", model="support.own_models:WronglyRowwise")
    # The rehearsal finds it.
    with pytest.raises(CollectiveError, match=r"one by one .*multiplies with the adjacency"):
        train(LoneCommunicator(), wrong, begun=lambda _: None)


@pytest.mark.parametrize("mode", ["rows", "full"])
def test_the_adjacency_is_not_read(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    store(catalog, PROBLEMS["directed"])
    read: list[str] = []
    before = RowShard.read

    def watched(shard: RowShard, name: str, *rest: Any) -> Any:
        read.append(name)
        return before(shard, name, *rest)

    def refuse(*_: Any) -> Any:
        raise AssertionError("the adjacency is read")

    options = {"batch_size": 1024} if mode == "full" else {}
    given = config(catalog, "directed", "run", mode=mode, model="mlp", **options)
    with monkeypatch.context() as patch:
        patch.setattr(RowShard, "read", watched)
        for name in ("_csr", "_stored", "_offsets"):
            patch.setattr(RowShard, name, refuse)
        # What is rehearsed has shards of its own.
        patch.setattr("gnnloom.trainer.training.loop.check_fits", lambda *_, **__: None)
        train(LoneCommunicator(), given)
        predict(LoneCommunicator(), PredictConfig.of_training(given, shards=None, checkpoint="last"))
    assert set(read) == {"vertex", "label", "split"} | ({"feature"} if mode == "full" else set())


def test_a_run_predicts_with_what_it_was_trained_on(catalog: Catalog) -> None:
    dataset = store(catalog, PROBLEMS["directed"], steps=0)
    plain = config(catalog, "directed", "plain", model="mlp", save_embeddings=False)
    train(LoneCommunicator(), plain)
    graph, given = dataset.graph().artifact.key, PROBLEMS["directed"]
    values = reference_steps(given.adjacency, given.feature, 3, "mean")
    first = store_propagated(dataset, graph, values[:2], normalization="mean")
    # A run goes on with what it has begun with, or not at all.
    with pytest.raises(CollectiveError, match="was trained on other propagated values"):
        train(LoneCommunicator(), plain.with_options(epochs=5))
    chosen = plain.with_options(run="chosen")
    train(LoneCommunicator(), chosen)
    second = store_propagated(dataset, graph, values, normalization="mean")
    for each, width in ((plain, 5), (chosen, 15)):
        predict(LoneCommunicator(), PredictConfig.of_training(each, shards=None))
        stored = read_checkpoint(dataset.run_path(each.run_name) / "checkpoint").arrays
        assert stored["parameter/weights.0"].shape[0] == width
    with pytest.raises(CollectiveError, match=f"several propagated artifacts.*{first.artifact.key}"):
        train(LoneCommunicator(), plain.with_options(run="third"))
    train(LoneCommunicator(), plain.with_options(run="third", propagated=second.artifact.key, steps=(3,)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"model": "gcn"},
            "mode 'rows': model gcn does not treat rows one by one, .*; choose --model mlp or sign",
        ),
        ({"mode": "full", "model": "sign"}, "model 'sign': mode full does not read rows alone; choose --mode rows"),
        (
            {"mode": "minibatch", "model": "mlp"},
            "model 'mlp': mode minibatch does not train models that use no edges; .* full or rows",
        ),
        ({"algorithm": "summa"}, "algorithm summa does not .*; choose --algorithm p2p"),
        ({"mode": "full", "model": "mlp", "steps": (0,)}, "steps: mode full has no such option, only rows"),
        ({"embed": 4}, "embed 4: mode rows does not learn input features; choose --mode full"),
        ({"train_features": True}, "train_features: mode rows does not form the gradient"),
        ({"task": "link"}, "task 'link': mode rows does not train on pairs of vertices"),
    ],
)
def test_what_does_not_go_with_rows_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        TrainConfig.of(catalog="c", dataset="d", **{"mode": "rows", "model": "sign", **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": (0, 7)}, r"steps \(0, 7\): .* has no step 7, only \(0, 1, 2\)"),
        ({"propagated": "feed"}, "no propagated.*feed.*make some with `gnnloom propagate directed --steps 3`"),
    ],
)
def test_values_that_are_not_there_are_one_error(catalog: Catalog, options: dict[str, Any], said: str) -> None:
    store(catalog, PROBLEMS["directed"])
    with pytest.raises(CollectiveError, match=said):
        train(LoneCommunicator(), config(catalog, "directed", "run", **options))


def test_sign_without_propagated_values_says_how_to_make_them(catalog: Catalog) -> None:
    store(catalog, PROBLEMS["directed"], steps=0)
    with pytest.raises(CollectiveError, match=r"no propagated features .* `gnnloom propagate directed --steps 3`"):
        train(LoneCommunicator(), config(catalog, "directed", "run"))


def test_a_row_that_is_not_finite_is_named(catalog: Catalog) -> None:
    given = PROBLEMS["directed"]
    dataset = given.store_grid(catalog)
    values = reference_steps(given.adjacency, given.feature, 1, "symmetric")
    vertex = int(np.flatnonzero(given.training)[-1])
    values[0][vertex, 3] = np.inf
    given.store_rows(dataset, 1)
    store_propagated(dataset, dataset.graph().artifact.key, values)
    with pytest.raises(CollectiveError, match=f"step/00001/.*vertex {vertex} has a value that is not a finite number"):
        train(LoneCommunicator(), config(catalog, "directed", "run"))
