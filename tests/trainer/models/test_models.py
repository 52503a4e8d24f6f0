"""GraphSAGE, GIN, GAT, GATv2 and the options of all models equal the dense reference on any number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.algorithms.steps import Volume
from gnnloom.trainer.algorithms.workload import Exchange
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.describe import GraphFacts, epoch_steps, workload
from support.covering import FEW_OR_EVERY
from support.dense_models import DenseModel
from support.mpi import run_program
from support.partitions import rows_sent
from support.problems import problem
from support.shards import volume
from support.tolerance import ADAM_BITS, assert_close

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

EPOCHS = 2
HIDDEN = (8, 6)
HEADS = 2

PROBLEMS = {
    given.name: given
    for given in (
        problem("directed", 60, 240, symmetric=False),
        problem("isolated", 50, 40, symmetric=False, loops=False),
        problem("empty-ranks", 40, 100, symmetric=True, crowded=True),
    )
}
#: Options of the models by name.
MODELS: dict[str, dict[str, Any]] = {
    "sage": {"model": "sage"},
    "gin": {"model": "gin"},
    "gat": {"model": "gat"},
    "gatv2": {"model": "gat", "attention": "v2"},
}
#: Options of all models, each tried on one of them; residuals need hidden layers of equal width.
OPTIONS: dict[str, dict[str, Any]] = {
    "gcn-batch": {"model": "gcn", "norm": "batch", "residual": True, "optimizer": "sgd", "lr": 0.2},
    "gcn-layer": {"model": "gcn", "norm": "layer", "residual": True},
    "sage-unit": {"model": "sage", "unit_embedding": True},
    "gin-batch": {"model": "gin", "norm": "batch", "optimizer": "sgd", "lr": 0.05},
    "gat-layer": {"model": "gat", "norm": "layer", "residual": True, "negative_slope": 0.05},
}
SAVINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "propagate-first": ("gat", {"product_order": "propagate-first"}),
    "sage-transform-first": ("sage", {"product_order": "transform-first"}),
    "gin-transform-first": ("gin", {"product_order": "transform-first"}),
    "gat-transform-first": ("gat", {"product_order": "transform-first"}),
    "input-gradient": ("gat", {"skip_input_gradient": False}),
    "gatv2-transform-first": ("gatv2", {"product_order": "transform-first"}),
}
REFUSED: list[dict[str, Any]] = [{**MODELS[model], "run": f"{model}-refused"} for model in MODELS]


#: Numbers of ranks by problem.
Ranks = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Chosen:
    """What is trained beside the initial weights and the variations of every model.

    Attributes:
        models: numbers of ranks of every model's runs, by model and problem.
        options: those of every option's runs.
        dropout: models that are trained with dropout, too.
        halves: options whose runs are repeated in two halves.
    """

    models: Mapping[str, Ranks]
    options: Mapping[str, Ranks]
    dropout: tuple[str, ...]
    halves: tuple[str, ...]


EVERY = Chosen(
    models={model: {"directed": (1, 2, 3, 4, 7), "isolated": (1, 3), "empty-ranks": (2, 7)} for model in MODELS},
    options={run: {"directed": (1, 4), "empty-ranks": (7,)} for run in OPTIONS},
    dropout=tuple(MODELS),
    halves=("gcn-batch", "gat-layer"),
)
#: Every model on every problem, every number of ranks and every option, but not every combination of them.
FEW = Chosen(
    models={
        "sage": {"directed": (1, 2), "isolated": (1,), "empty-ranks": (2,)},
        "gin": {"directed": (1, 2), "isolated": (3,), "empty-ranks": (2,)},
        "gat": {"directed": (1, 2, 3), "isolated": (1,), "empty-ranks": (2,)},
        "gatv2": {"directed": (1, 2), "isolated": (1,), "empty-ranks": (7,)},
    },
    options={
        "gcn-batch": {"directed": (4,), "empty-ranks": (7,)},
        "gcn-layer": {"directed": (1,)},
        "sage-unit": {"directed": (4,)},
        "gin-batch": {"directed": (1,)},
        "gat-layer": {"directed": (4,)},
    },
    dropout=("gat",),
    halves=("gcn-batch",),
)


def _config(catalog: Catalog, name: str, ranks: int, run: str, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {
        "hidden": (6, 6) if options.get("residual") else HIDDEN,
        "heads": HEADS,
        "epochs": EPOCHS,
        "lr": 0.02,
        "precision": "float64",
        "seed": 3,
        "eval_every": 0,
        "threads": 1,
    }
    return TrainConfig.of(catalog=str(catalog.root), dataset=name, ranks=ranks, run=run, **{**fixed, **options})


def _starts(catalog: Catalog) -> list[TrainConfig]:
    """Runs whose checkpoints hold the initial weights: at learning rate 0 nothing changes."""
    all_options: dict[str, dict[str, Any]] = {**MODELS, **OPTIONS}
    still: dict[str, Any] = {"lr": 0.0, "epochs": 1}
    return [_config(catalog, "directed", 1, f"{run}-start", **{**given, **still}) for run, given in all_options.items()]


def _curves(catalog: Catalog, chosen: Chosen) -> list[TrainConfig]:
    configs = [
        _config(catalog, name, number, f"{model}-{number}", **MODELS[model])
        for model, problems in chosen.models.items()
        for name, ranks in problems.items()
        for number in ranks
    ]
    return configs + [
        _config(catalog, name, number, f"{run}-{number}", save_embeddings=True, **OPTIONS[run])
        for run, problems in chosen.options.items()
        for name, ranks in problems.items()
        for number in ranks
    ]


def _variations(catalog: Catalog, chosen: Chosen) -> list[TrainConfig]:
    """Runs of one step whose change is the gradient, with dropout, with savings, and in two halves."""
    configs = []
    for model, chosen_model in MODELS.items():
        step: dict[str, Any] = {**chosen_model, "optimizer": "sgd", "lr": 1.0, "epochs": 1}
        configs.append(_config(catalog, "directed", 2, f"{model}-step-2", **step))
    for model in chosen.dropout:
        dropout: dict[str, Any] = {**MODELS[model], "dropout": 0.4}
        configs += [_config(catalog, "directed", ranks, f"{model}-dropout-{ranks}", **dropout) for ranks in (1, 4)]
    for switch, (model, options) in SAVINGS.items():
        configs.append(_config(catalog, "directed", 2, f"{switch}-2", **MODELS[model], **options))
    for run in chosen.halves:
        half = _config(catalog, "directed", 4, f"{run}-halves-4", **{**OPTIONS[run], "epochs": EPOCHS // 2})
        configs += [half, half.with_options(epochs=EPOCHS)]
    return configs


class Results:
    """All runs of one MPI job, by name."""

    def __init__(self, catalog: Catalog, chosen: Chosen, others: list[dict[str, Any]], folder: Path) -> None:
        self.catalog, self.chosen = catalog, chosen
        configs = _starts(catalog) + _curves(catalog, chosen) + _variations(catalog, chosen)
        found = run_program(7, "train_all", folder, [*(config.to_json() for config in configs), *others])
        self.by_run = {(c.data.dataset, c.run.name): r for c, r in zip(configs, found, strict=False)}
        self.others = found[len(configs) :]

    def __call__(self, name: str, run: str, ranks: int) -> dict[str, Any]:
        found: dict[str, Any] = self.by_run[name, f"{run}-{ranks}"]
        return found

    def arrays(self, name: str, run: str) -> dict[str, np.ndarray]:
        return dict(read_checkpoint(self.catalog[name].run_path(run) / "checkpoint").arrays)

    def dense(self, name: str, run: str, **options: Any) -> DenseModel:
        """The dense model with a run's parameters; the initial weights are the same for every graph."""
        kind, adjacency = run.partition("-")[0].removesuffix("v2"), PROBLEMS[name].adjacency.toarray()
        arrays = self.arrays("directed" if run.endswith("start") else name, run)
        return DenseModel.from_arrays(kind, adjacency, arrays, heads=HEADS, **options)


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("models")
    catalog = Catalog(folder / "catalog")
    for name, given in PROBLEMS.items():
        given.store(catalog, *EVERY.models["sage"][name])
    problem("weighted", 20, 60, symmetric=False, weighted=True).store(catalog, 1)
    others = [_config(catalog, "weighted", 1, **options).to_json() for options in REFUSED]
    predict = {"catalog": str(catalog.root), "dataset": "directed", "run": "gcn-batch-4", "ranks": 3}
    return Results(catalog, EVERY if request.param else FEW, [*others, predict], folder)


def _train(
    dense: DenseModel, name: str, epochs: int = EPOCHS, lr: float = 0.02, optimizer: str = "adam"
) -> list[float]:
    given = PROBLEMS[name]
    return dense.train(given.feature, given.label, given.training, epochs, lr, optimizer)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_equals_the_dense_one_on_any_number_of_ranks(results: Results, name: str, model: str) -> None:
    dense = results.dense(name, f"{model}-start")
    start = {key: parameter.detach().clone() for key, parameter in dense.parameters.items()}
    losses = _train(dense, name)
    for ranks in results.chosen.models[model][name]:
        assert_close(results(name, model, ranks)["loss"], losses, steps=EPOCHS * 3)
        arrays = results.arrays(name, f"{model}-{ranks}")
        for key, parameter in dense.parameters.items():
            mine = arrays[f"parameter/{key}"]
            assert_close(mine, parameter.detach().numpy(), steps=EPOCHS * 3, bits=ADAM_BITS, message=key)
            assert not np.array_equal(mine, start[key].numpy()), f"{key} does not change"


@pytest.mark.parametrize("model", MODELS)
def test_the_gradient_of_every_parameter_equals_the_dense_one(results: Results, model: str) -> None:
    dense = results.dense("directed", f"{model}-start")
    start = {key: parameter.detach().clone() for key, parameter in dense.parameters.items()}
    _train(dense, "directed", epochs=1, lr=1.0, optimizer="sgd")
    arrays = results.arrays("directed", f"{model}-step-2")
    for key, parameter in dense.parameters.items():
        mine = start[key].numpy() - arrays[f"parameter/{key}"]
        assert parameter.grad is not None
        assert_close(mine, parameter.grad.numpy(), steps=EPOCHS * 3, message=key)
        assert np.abs(mine).max() > 1e-6, key


@pytest.mark.parametrize("run", OPTIONS)
def test_norms_residuals_and_unit_rows_equal_the_dense_model(results: Results, run: str) -> None:
    for name, ranks in results.chosen.options[run].items():
        _check_option(results, run, name, ranks)


def _check_option(results: Results, run: str, name: str, chosen: tuple[int, ...]) -> None:
    given, options = PROBLEMS[name], dict(OPTIONS[run])
    optimizer, lr = options.pop("optimizer", "adam"), options.pop("lr", 0.02)
    del options["model"]
    dense = results.dense(name, f"{run}-start", **options)
    losses = _train(dense, name, lr=lr, optimizer=optimizer)
    for ranks in chosen:
        assert_close(results(name, run, ranks)["loss"], losses, steps=EPOCHS * 3)
        trained = results.dense(name, f"{run}-{ranks}", **options)
        trained.running = dense.running
        scores = trained.scores(_double(given.feature), training=False).detach().numpy()
        found = Run.open(results.catalog[name], f"{run}-{ranks}").predictions().score()
        assert_close(found, scores, steps=EPOCHS * 3, bits=ADAM_BITS)


def _double(feature: np.ndarray) -> torch.Tensor:
    return torch.tensor(feature).double()


def test_dropout_draws_the_same_masks_on_any_number_of_ranks(results: Results) -> None:
    for model in results.chosen.dropout:
        one, four = (results("directed", f"{model}-dropout", ranks)["loss"] for ranks in (1, 4))
        assert_close(four, one, steps=EPOCHS * 3, message=model)
        assert one != results("directed", model, 1)["loss"], model


@pytest.mark.parametrize("switch", SAVINGS)
def test_savings_do_not_change_the_result(results: Results, switch: str) -> None:
    curves = [results("directed", run, 2)["loss"] for run in (SAVINGS[switch][0], switch)]
    assert_close(curves[1], curves[0], steps=EPOCHS * 3)


def test_a_run_in_two_halves_equals_the_uninterrupted_run(results: Results) -> None:
    for run in results.chosen.halves:
        assert results("directed", f"{run}-halves", 4)["loss"] == results("directed", run, 4)["loss"], run
        whole, halves = (results.arrays("directed", f"{name}-4") for name in (run, f"{run}-halves"))
        assert whole.keys() == halves.keys()
        assert all(np.array_equal(whole[key], halves[key]) for key in whole), run


def test_predictions_on_other_ranks_use_the_running_averages(results: Results) -> None:
    assert results.others[-1]["state"] == "finished"
    given = PROBLEMS["directed"]
    trained = results.dense("directed", "gcn-batch-4", norm="batch", residual=True)
    arrays = results.arrays("directed", "gcn-batch-4")
    for layer in range(2):
        mean, variance = (_double(arrays[f"buffer/norms.{layer}.running_{name}"]) for name in ("mean", "variance"))
        trained.running[layer] = mean, variance
    scores = trained.scores(_double(given.feature), training=False).detach().numpy()
    predictions = Run.open(results.catalog["directed"], "gcn-batch-4").predictions()
    assert_close(predictions.score(), scores, steps=3)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("model", MODELS)
def test_bytes_of_an_epoch_equal_the_formula(results: Results, name: str, model: str) -> None:
    for ranks in results.chosen.models[model][name]:
        _check_bytes(results, name, ranks, model)


def _check_bytes(results: Results, name: str, ranks: int, model: str) -> None:
    given, itemsize = PROBLEMS[name], 8
    part = given.part(ranks)
    there = volume(given.adjacency, part, ranks)
    # The first layer's exchange is cached. GraphSAGE then sends H W of width 6 and of width 3, the classes; GIN sends H
    # of width 6 in both layers. Attention fetches H W of width 6, then H of width 6, as two heads of 3 classes are not
    # narrower; the gradients of what it fetched go back to the owners.
    columns = 6 + 3 if model == "sage" else 6 + 6
    back = there if "gat" in model else volume(given.adjacency.T.tocsr(), part, ranks)
    arrays = results.arrays("directed", f"{model}-1")
    parameters = sum(array.size for key, array in arrays.items() if key.startswith("parameter/"))
    expected = {
        "halo forward": there * columns * itemsize,
        "halo backward": back * columns * itemsize,
        "gradient": 2 * (ranks - 1) * parameters * itemsize,
        "loss": 2 * (ranks - 1) * 2 * 8,
    }
    assert results(name, model, ranks)["bytes_by_kind"] == {kind: count for kind, count in expected.items() if count}


def test_predicted_words_and_messages_equal_the_counted_ones(results: Results) -> None:
    for config in _curves(results.catalog, results.chosen):
        given, ranks = PROBLEMS[config.data.dataset], config.algorithm.ranks
        part = given.part(ranks)
        exchanges = tuple(_exchange(matrix, part, ranks) for matrix in (given.adjacency, given.adjacency.T.tocsr()))
        facts = GraphFacts(
            num_vertices=len(given.label),
            nnz=given.adjacency.nnz,
            num_features=given.feature.shape[1],
            num_outputs=3,
            num_training=int(given.training.sum()),
        )
        predicted = Volume.of(epoch_steps(config.algorithm, workload(config, facts, (exchanges[0], exchanges[1]))))
        found = results(config.data.dataset, config.run_name.rpartition("-")[0], ranks)
        assert (predicted.bytes, predicted.messages) == (found["bytes_by_kind"], found["messages_by_kind"]), config


def _exchange(adjacency: Any, part: np.ndarray, ranks: int) -> Exchange:
    sent = rows_sent(adjacency.toarray(), part, ranks)
    return Exchange(rows=int(sent.sum()), messages=int((sent > 0).sum()), busiest_rows=0, busiest_messages=0)


def test_attention_does_not_read_the_transpose(results: Results) -> None:
    assert results("directed", "gat", 1)["bytes_read"][0] < results("directed", "sage", 1)["bytes_read"][0]


def test_batch_norm_sends_three_sums_per_layer_and_two_back(results: Results) -> None:
    # Forward a count, 6 sums and 6 sums of squares, backward 2 * 6 sums; a ring of 7 ranks sends 2 (7 - 1) times that.
    assert results("empty-ranks", "gcn-batch", 7)["bytes_by_kind"]["norm"] == 2 * (1 + 4 * 6) * 8 * 12


def test_weighted_graphs_are_refused_by_models_that_would_ignore_the_weights(results: Results) -> None:
    for given, found in zip(REFUSED, results.others, strict=False):
        assert f"model {given['model']} does not use" in found["error"]
        assert found["code"] == InputError.exit_code


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "gat", "hidden": (9,), "heads": 2}, "heads 2"),
        ({"model": "gat", "heads": 0}, "heads"),
        ({"model": "gat", "negative_slope": 1.5}, "negative_slope"),
        ({"model": "sage", "normalization": "symmetric"}, "normalization 'symmetric'"),
        ({"model": "gin", "normalization": "mean"}, "normalization 'mean'"),
        ({"residual": True, "hidden": (8, 4)}, "residual"),
        ({"unit_embedding": True, "hidden": ()}, "unit_embedding"),
        ({"norm": "group"}, "norm"),
    ],
)
def test_options_that_do_not_fit_the_model_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        TrainConfig.of(catalog="c", dataset="d", **options)


def test_every_model_has_its_usual_normalization() -> None:
    every = {"gcn": {"model": "gcn"}, **MODELS}
    found = {
        name: TrainConfig.of(catalog="c", dataset="d", **given).model.normalization for name, given in every.items()
    }
    assert found == {"gcn": "symmetric", "sage": "mean", "gin": "none", "gat": "none", "gatv2": "none"}
