"""On any number of ranks, losses, parameters, predictions and traffic equal the dense reference."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from support.covering import FEW_OR_EVERY
from support.dense import DenseGCN, from_arrays, normalized, train_dense
from support.mpi import train_all
from support.problems import Problem, problem, usual_problems
from support.shards import volume
from support.tolerance import ADAM_BITS, assert_close

RANKS = (1, 2, 3, 4, 7)
FEWER_RANKS = (1, 3)
WITH_DROPOUT = ("directed", "empty-ranks")
NORMALIZATIONS = ("mean", "none")
#: The gradients of the first step affect the loss of the second epoch, and moments of Adam that of the third.
EPOCHS = 3
HIDDEN = (17, 11)
DIMS = (5, *HIDDEN, 3)

PROBLEMS = {
    given.name: given
    for given in (
        *usual_problems(),
        problem("empty-ranks", 40, 160, symmetric=False, crowded=True),
        problem("training-on-one-rank", 60, 200, symmetric=False, gathered=True),
        problem("weighted", 45, 200, symmetric=False, weighted=True),
    )
}
#: Options that must not change a result.
SAVINGS: dict[str, dict[str, Any]] = {
    "propagate-first": {"product_order": "propagate-first"},
    "transform-first": {"product_order": "transform-first"},
    "nothing-cached": {"cache_input_product": False},
    "input-gradient": {"skip_input_gradient": False},
}


#: Numbers of ranks of every problem's runs, by what the runs are for.
EVERY: dict[str, dict[str, tuple[int, ...]]] = {
    "adam": dict.fromkeys(PROBLEMS, RANKS),
    "sgd": dict.fromkeys(PROBLEMS, FEWER_RANKS),
    "dropout": dict.fromkeys(WITH_DROPOUT, RANKS),
    **{normalization: {"directed": FEWER_RANKS} for normalization in NORMALIZATIONS},
    **{switch: {"directed": (1, 3)} for switch in SAVINGS},
}
#: Every problem, number of ranks and option, but not every combination of them.
FEW: dict[str, dict[str, tuple[int, ...]]] = {
    "adam": {
        "directed": (1, 3),
        "undirected": (2, 7),
        "fewer-vertices-than-ranks": (7,),
        "isolated": (3,),
        "empty-ranks": (1, 4),
        "training-on-one-rank": (2,),
        "weighted": (3,),
    },
    "sgd": {**dict.fromkeys(PROBLEMS, (1,)), "directed": (3,)},
    "dropout": {"directed": (1, 2), "empty-ranks": (1, 3)},
    **{normalization: {"directed": (3,)} for normalization in NORMALIZATIONS},
    **{switch: {"directed": (3,)} for switch in SAVINGS},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "adam": {"save_embeddings": True},
    "sgd": {"optimizer": "sgd", "lr": 0.3},
    "dropout": {"dropout": 0.5},
    **{normalization: {"normalization": normalization} for normalization in NORMALIZATIONS},
    **SAVINGS,
}


def _config(catalog: Catalog, name: str, ranks: int, run: str, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {
        "hidden": HIDDEN,
        "epochs": EPOCHS,
        "lr": 0.02,
        "precision": "float64",
        "seed": 3,
        "eval_every": 0,
        "threads": 1,
    }
    return TrainConfig.of(catalog=str(catalog.root), dataset=name, ranks=ranks, run=run, **{**fixed, **options})


class Results:
    """All runs of one MPI job, by name.

    Attributes:
        ranks: numbers of ranks of every problem's runs, by what the runs are for.
    """

    def __init__(
        self,
        catalog: Catalog,
        configs: list[TrainConfig],
        folder: Path,
        ranks: Mapping[str, Mapping[str, tuple[int, ...]]],
    ) -> None:
        self.catalog, self.ranks = catalog, ranks
        results = train_all(folder, configs)
        self.by_run = {
            (c.data.dataset, c.run.name, c.algorithm.ranks): r for c, r in zip(configs, results, strict=True)
        }

    def __call__(self, name: str, run: str, ranks: int) -> dict[str, Any]:
        return self.by_run[name, f"{run}-{ranks}", ranks]

    def arrays(self, name: str, run: str) -> dict[str, np.ndarray]:
        return dict(read_checkpoint(self.dataset(name).run_path(run) / "checkpoint").arrays)

    def dataset(self, name: str) -> Dataset:
        return self.catalog[name]

    def dense_at_start(self, given: Problem, normalization: str = "symmetric") -> DenseGCN:
        operator = normalized(given.adjacency.toarray(), normalization)
        return from_arrays(operator, self.arrays(given.name, "start"), len(DIMS) - 1)


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("exactness")
    catalog, ranks = Catalog(folder / "catalog"), EVERY if request.param else FEW
    for name, given in PROBLEMS.items():
        given.store(catalog, *sorted({number for numbers in ranks.values() for number in (1, *numbers.get(name, ()))}))
    # At learning rate 0 nothing changes, so the checkpoints of these runs hold the initial weights.
    configs = [_config(catalog, name, 1, "start", lr=0.0, epochs=1) for name in PROBLEMS]
    configs += [
        _config(catalog, name, number, f"{run}-{number}", **OPTIONS[run])
        for run, problems in ranks.items()
        for name, numbers in problems.items()
        for number in numbers
    ]
    configs.append(_config(catalog, "directed", 3, "again-3"))
    return Results(catalog, configs, folder, ranks)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(("optimizer", "lr"), [("adam", 0.02), ("sgd", 0.3)])
def test_loss_curve_and_parameters_equal_the_dense_reference_on_any_number_of_ranks(
    results: Results, name: str, optimizer: str, lr: float
) -> None:
    given = PROBLEMS[name]
    dense = results.dense_at_start(given)
    start = [p.copy() for p in dense.parameters]
    losses = train_dense(dense, given.feature.astype(float), given.label, given.training, EPOCHS, lr, optimizer)
    for ranks in results.ranks[optimizer][name]:
        assert_close(results(name, optimizer, ranks)["loss"], losses, steps=EPOCHS * 3)
        arrays = results.arrays(name, f"{optimizer}-{ranks}")
        trained = from_arrays(dense.operator, arrays, len(DIMS) - 1).parameters
        for mine, expected, before in zip(trained, dense.parameters, start, strict=True):
            assert_close(mine, expected, steps=EPOCHS * 3, bits=ADAM_BITS)
            assert not np.array_equal(mine, before), "a parameter that does not change"


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_other_normalizations_equal_the_dense_reference(results: Results, normalization: str) -> None:
    given = PROBLEMS["directed"]
    dense = results.dense_at_start(given, normalization)
    losses = train_dense(dense, given.feature.astype(float), given.label, given.training, EPOCHS, 0.02, "adam")
    for ranks in results.ranks[normalization]["directed"]:
        assert_close(results("directed", normalization, ranks)["loss"], losses, steps=EPOCHS * 3)


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_dropout_draws_the_same_masks_on_any_number_of_ranks(results: Results, name: str) -> None:
    curves = [results(name, "dropout", ranks)["loss"] for ranks in results.ranks["dropout"][name]]
    for curve in curves[1:]:
        assert_close(curve, curves[0], steps=EPOCHS * 3)
    assert curves[0] != results(name, "adam", 1)["loss"]


@pytest.mark.parametrize("switch", SAVINGS)
def test_savings_do_not_change_the_result(results: Results, switch: str) -> None:
    for ranks in results.ranks[switch]["directed"]:
        found, usual = (results("directed", run, ranks)["loss"] for run in (switch, "adam"))
        assert_close(found, usual, steps=EPOCHS * 3)


def test_the_same_configuration_gives_the_same_bits(results: Results) -> None:
    assert results("directed", "again", 3)["loss"] == results("directed", "adam", 3)["loss"]
    first, second = (results.arrays("directed", run) for run in ("adam-3", "again-3"))
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", PROBLEMS)
def test_bytes_of_an_epoch_equal_what_the_partition_says(results: Results, name: str) -> None:
    for ranks in results.ranks["adam"][name]:
        _check_bytes(results, name, ranks)


def _check_bytes(results: Results, name: str, ranks: int) -> None:
    given, itemsize = PROBLEMS[name], 8
    part = given.part(ranks)
    # A X is cached; the other layers form A (H W), as H W is the narrower one: 11 and 3 columns.
    columns = 11 + 3
    forward = volume(given.adjacency, part, ranks) * columns * itemsize
    backward = volume(given.adjacency.T.tocsr(), part, ranks) * columns * itemsize
    parameters = sum(a * b + b for a, b in pairwise(DIMS))
    expected = {
        "halo forward": forward,
        "halo backward": backward,
        "gradient": 2 * (ranks - 1) * parameters * itemsize,
        "loss": 2 * (ranks - 1) * 2 * 8,
    }
    result = results(name, "adam", ranks)
    assert result["bytes_by_kind"] == {kind: count for kind, count in expected.items() if count}
    assert result["bytes_sent"] == sum(expected.values())
    metrics = Run.open(results.dataset(name), f"adam-{ranks}").metrics()
    assert all(line["bytes"] == result["bytes_by_kind"] for line in metrics)
    between = np.array(result["bytes_between"])
    assert between.sum() == result["bytes_sent"]
    dense = [matrix.toarray() != 0 for matrix in (given.adjacency, given.adjacency.T.tocsr())]
    for sender, receiver in product(range(ranks), repeat=2):
        rows = sum(int(each[np.ix_(part == receiver, part == sender)].any(0).sum()) for each in dense)
        # All-reduces go around a ring, to the next rank; everything else is halo rows.
        if receiver not in {sender, (sender + 1) % ranks}:
            assert between[sender, receiver] == rows * columns * itemsize


@pytest.mark.parametrize("ranks", [2, 7])
def test_a_message_goes_to_each_rank_that_needs_rows(results: Results, ranks: int) -> None:
    given = PROBLEMS["undirected"]
    part, matrix = given.part(ranks), given.adjacency.tocoo()
    pairs = set(zip(part[matrix.row].tolist(), part[matrix.col].tolist(), strict=True))
    neighbors = sum(receiver != sender for receiver, sender in pairs)
    assert results("undirected", "adam", ranks)["messages_by_kind"]["halo forward"] == 2 * neighbors


@pytest.mark.parametrize("name", PROBLEMS)
def test_predictions_and_accuracy_are_those_of_the_dense_model_in_vertex_order(results: Results, name: str) -> None:
    given = PROBLEMS[name]
    for ranks in results.ranks["adam"][name]:
        operator = normalized(given.adjacency.toarray(), "symmetric")
        dense = from_arrays(operator, results.arrays(name, f"adam-{ranks}"), 3)
        outputs = dense.layers(given.feature.astype(float))
        predictions = Run.open(results.dataset(name), f"adam-{ranks}").predictions()
        predictions.verify()
        assert_close(predictions.score(), outputs[-1], steps=3)
        assert_close(predictions.embedding(), outputs[-2], steps=3)
        assert predictions.label().dtype == np.int32
        assert np.array_equal(predictions.label(), predictions.score().argmax(1))
        for figure, value in (("train_accuracy", 1), ("val_accuracy", 2), ("test_accuracy", 3)):
            chosen = (given.split == value) & (given.label >= 0)
            right = predictions.label()[chosen] == given.label[chosen]
            assert results(name, "adam", ranks)[figure] == (right.mean() if chosen.any() else None)


def test_the_result_has_the_fields_that_the_command_line_promises(results: Results) -> None:
    result = results("directed", "adam", 3)
    assert (result["algorithm"], result["ranks"], result["grid"], len(result["loss"])) == ("p2p", 3, [3], EPOCHS)
    assert len(result["bytes_read"]) == len(result["peak_memory"]) == 3
    assert result["epoch_seconds"] > 0
    assert Run.open(results.dataset("directed"), "adam-3").result() == result
