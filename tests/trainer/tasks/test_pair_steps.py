"""Steps on pairs are those of a dense model without the pairs' edges, on the whole graph and with all neighbors."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.feed.negatives import UniformNegatives
from gnnloom.trainer.feed.pair_seeds import PairSet
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.links.decoder import Decoder
from gnnloom.trainer.links.scoring import score_all
from gnnloom.trainer.modes.epochs.pair_batches import RankPairs
from gnnloom.trainer.place.unbacked import UnbackedPlace
from gnnloom.trainer.tasks.objectives import links, pairs
from gnnloom.trainer.training.evaluation import Evaluation
from gnnloom.trainer.training.loop import train
from support.covering import FEW_OR_EVERY
from support.dense_models import DenseModel
from support.lone import LoneCommunicator
from support.mpi import train_all
from support.pair_problems import pair_config, store_pairs
from support.problems import Problem, problem
from support.tolerance import assert_close

#: Steps of SGD: parameters before and after say what the gradient was.
LR = 0.5
#: More than there are pairs to train on.
EVERY_PAIR = 1000
RANKS = (1, 3)
#: How losses of the same step may differ.
SAME = 1e-10
GRAPHS = {
    given.name: given
    for given in (
        problem("directed", 60, 240, symmetric=False),
        problem("undirected", 61, 150, symmetric=True),
        problem("weighted", 45, 200, symmetric=False, weighted=True),
    )
}


@dataclass(frozen=True)
class Stored:
    """A problem on disk."""

    given: Problem
    catalog: Catalog
    links: Links

    def train(self, run: str, **options: Any) -> dict[str, Any]:
        return train(LoneCommunicator(), pair_config(self.catalog, self.given.name, run, **options))

    def run(self, name: str) -> Run:
        return Run.open(self.catalog[self.given.name], name)

    def parameters(self, run: str) -> dict[str, NDArray[Any]]:
        arrays = dict(read_checkpoint(self.run(run).checkpoints).arrays)
        return {name: array for name, array in arrays.items() if name.startswith("parameter/")}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return Catalog(tmp_path_factory.mktemp("steps") / "catalog")


@pytest.fixture(scope="module")
def all_stored(catalog: Catalog) -> dict[str, Stored]:
    return {name: Stored(given, catalog, store_pairs(catalog, given, *RANKS)[1]) for name, given in GRAPHS.items()}


@pytest.fixture(params=GRAPHS)
def stored(request: pytest.FixtureRequest, all_stored: dict[str, Stored]) -> Stored:
    return all_stored[request.param]


@pytest.fixture
def one_stored(all_stored: dict[str, Stored]) -> Stored:
    return all_stored["undirected"]


def without_pairs(given: Problem, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """The dense adjacency without the edges of some pairs."""
    dense: NDArray[np.float64] = given.adjacency.toarray().astype(np.float64)
    dense[pairs[:, 1], pairs[:, 0]] = 0
    if given.symmetric:
        dense[pairs[:, 0], pairs[:, 1]] = 0
    return dense


@pytest.mark.slow
@pytest.mark.parametrize("exclude", [True, False])
def test_a_step_has_the_loss_and_the_gradients_of_a_dense_model(stored: Stored, exclude: bool) -> None:
    given, pairs = stored.given, stored.links.pair("train")
    options: dict[str, Any] = {"exclude_targets": exclude, "link_batch": EVERY_PAIR, "epochs": 1, "optimizer": "sgd"}
    options["negatives"] = 3
    how = "excluding" if exclude else "whole"
    stored.train(f"start-{how}", **options, lr=0.0)
    result = stored.train(f"step-{how}", **options, lr=LR)
    before, after = (stored.parameters(f"{run}-{how}") for run in ("start", "step"))
    adjacency = without_pairs(given, pairs) if exclude else given.adjacency.toarray()
    dense = DenseModel.from_arrays("gcn", adjacency, before)
    vectors = dense.scores(torch.from_numpy(given.feature).double())
    positives = PairSet(np.arange(len(pairs)), pairs[:, 0], pairs[:, 1])
    drawn = UniformNegatives(3, 3, len(given.label)).draw(0, positives)
    positive = (vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(1)
    negative = (vectors[np.repeat(pairs[:, 0], 3)] * vectors[drawn.ravel()]).sum(1)
    scores, target = torch.cat([positive, negative]), torch.zeros(4 * len(pairs)).double()
    target[: len(pairs)] = 1
    loss = functional.binary_cross_entropy_with_logits(scores, target)
    loss.backward()  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(result["loss"], [loss.item()], rtol=SAME)
    for name, parameter in dense.parameters.items():
        assert parameter.grad is not None
        expected = before[f"parameter/{name}"] - LR * parameter.grad.numpy()
        np.testing.assert_allclose(after[f"parameter/{name}"], expected, rtol=SAME, atol=SAME, err_msg=name)
        assert parameter.grad.abs().max() > 1e-4


def test_the_area_under_the_curve_is_that_of_the_vectors_scores(stored: Stored) -> None:
    result = stored.train("figures", epochs=2, eval_every=1)
    # The score of a prediction is the scalar product of its vectors.
    arrays = stored.parameters("figures")
    dense = DenseModel.from_arrays("gcn", stored.given.adjacency.toarray(), arrays)
    with torch.no_grad():
        vectors = dense.scores(torch.from_numpy(stored.given.feature).double()).numpy()
    for number, (prefix, split) in enumerate((("val", "valid"), ("test", "test")), 1):
        pairs = stored.links.pair(split)
        positives = PairSet(np.arange(len(pairs)), pairs[:, 0], pairs[:, 1])
        drawn = UniformNegatives(number, 1, len(vectors)).draw(-1, positives)[:, 0]
        positive = (vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(1)
        negative = (vectors[pairs[:, 0]] * vectors[drawn]).sum(1)
        above = np.round(positive[:, None] - negative, 12)
        assert_close(result[f"{prefix}_auc"], np.mean((above > 0) + (above == 0) / 2))
        assert_close(result[f"{prefix}_hits_20"], np.mean(positive > np.sort(negative)[-20]))


#: What the steps of mode neighbor on all neighbors are compared on.
COMPARED: dict[str, dict[str, Any]] = {
    "excluding": {},
    "not-excluding": {"exclude_targets": False, "decoder": "mlp", "loss": "bpr"},
    "degree": {
        "exclude_targets": False,
        "negative_sampler": "degree",
        "strict_negatives": True,
        "negatives": 2,
        "loss": "ce",
    },
}
#: Every rank has a batch of its own, and leaves out the edges of its own pairs only.
COMPARED_RANKS = {"excluding": (1,), "not-excluding": RANKS, "degree": RANKS}
#: Numbers of ranks of every graph's quick runs, in which each of the others occurs on each number.
FEW_RANKS = {
    "directed": {"excluding": (1,), "not-excluding": (1,), "degree": (3,)},
    "undirected": {"excluding": (1,), "not-excluding": (3,), "degree": (1,)},
    "weighted": {"excluding": (1,), "not-excluding": (1,), "degree": (3,)},
}


@pytest.mark.slow
@pytest.mark.parametrize("every", FEW_OR_EVERY)
def test_a_step_with_all_neighbors_of_all_pairs_is_the_step_on_the_whole_graph(
    stored: Stored, tmp_path: Path, every: bool
) -> None:
    name = stored.given.name
    compared = COMPARED_RANKS if every else FEW_RANKS[name]
    shared: dict[str, Any] = {"link_batch": EVERY_PAIR, "optimizer": "sgd", "lr": 0.1, "epochs": 2}
    end = "every" if every else "few"
    configs = [
        pair_config(stored.catalog, name, f"full-{run}-{end}", **shared, **each) for run, each in COMPARED.items()
    ]
    drawn: dict[str, Any] = {"mode": "neighbor", "fanout": (ALL, ALL), **shared}
    configs += [
        pair_config(stored.catalog, name, f"neighbor-{run}-{ranks}-{end}", ranks=ranks, **drawn, **each)
        for run, each in COMPARED.items()
        for ranks in compared[run]
    ]
    losses = dict(zip([each.run.name for each in configs], train_all(tmp_path, configs), strict=True))
    assert not [result for result in losses.values() if "error" in result]
    for run in COMPARED:
        for ranks in compared[run]:
            found, expected = (losses[f"{each}-{end}"]["loss"] for each in (f"neighbor-{run}-{ranks}", f"full-{run}"))
            np.testing.assert_allclose(found, expected, rtol=SAME, err_msg=f"{run} on {ranks} ranks")


@pytest.mark.slow
def test_sampled_runs_on_pairs_repeat_exactly(one_stored: Stored, tmp_path: Path) -> None:
    name = one_stored.given.name
    drawn: dict[str, Any] = {
        "mode": "neighbor",
        "ranks": 3,
        "fanout": (3, 2),
        # Ranks have different numbers of batches.
        "link_batch": 15,
        "dropout": 0.3,
        "negative_sampler": "degree",
        "strict_negatives": True,
        "eval_every": 1,
    }
    others: dict[str, dict[str, Any]] = {"one": {}, "two": {}, "uncached": {"cache_memory": 0}}
    others["unthreaded"] = {"sampler_threads": 0}
    configs = [pair_config(one_stored.catalog, name, run, **drawn, **each) for run, each in others.items()]
    first, *again = train_all(tmp_path, configs)
    assert "error" not in first, first
    for result in again:
        assert [result[key] for key in ("loss", "val_auc", "test_ap")] == [
            first[key] for key in ("loss", "val_auc", "test_ap")
        ]


#: Trainings that are interrupted; the decoder has parameters of its own, and Adam has moments of them.
INTERRUPTED: dict[str, dict[str, Any]] = {
    "full": {"negative_sampler": "joint", "link_batch": 30},
    "neighbor": {"mode": "neighbor", "fanout": (3, 2), "link_batch": 30},
}


@pytest.mark.slow
@pytest.mark.parametrize("how", INTERRUPTED)
def test_a_run_that_goes_on_from_a_checkpoint_has_the_losses_of_one_that_did_not_stop(
    one_stored: Stored, how: str
) -> None:
    stored = one_stored
    options = {**INTERRUPTED[how], "decoder": "mlp", "dropout": 0.3, "eval_every": 1}
    whole = stored.train(f"whole-{how}", epochs=4, **options)
    stored.train(f"parts-{how}", epochs=2, **options)
    resumed = stored.train(f"parts-{how}", epochs=4, **options)
    for name in ("loss", "val_auc", "test_mrr", "test_hits_50"):
        assert resumed[name] == whole[name], name
    found, expected = (stored.parameters(f"{run}-{how}") for run in ("parts", "whole"))
    assert {name for name in found if "decoder" in name}
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


class Bilinear(Decoder):
    """A full matrix between both rows."""

    gives_several: ClassVar[bool] = False

    def create_parameters(self) -> None:
        self.between = nn.Linear(self.dim, self.dim, bias=False)
        with torch.no_grad():
            self.between.weight.copy_(torch.eye(self.dim))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        scores: Tensor = (self.between(source) * target).sum(1)
        return scores


def test_a_decoder_of_the_user_begins_as_the_scalar_product_and_learns(one_stored: Stored) -> None:
    stored = one_stored
    options: dict[str, Any] = {"link_batch": EVERY_PAIR, "epochs": 2}
    usual = stored.train("dot", decoder="dot", **options)["loss"]
    own = stored.train("own", decoder=f"{__name__}:Bilinear", **options)["loss"]
    np.testing.assert_allclose(own[0], usual[0], rtol=SAME)
    assert abs(own[1] - usual[1]) > 1e-6
    (learned,) = [array for name, array in stored.parameters("own").items() if "decoder" in name]
    assert not np.array_equal(learned, np.eye(len(learned)))


def test_the_last_evaluation_scores_every_pair_once(one_stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    scored = list[int]()

    def counting(rows: Any, vectors: Tensor, decoder: Decoder, pairs: NDArray[np.int64]) -> Tensor:
        # Memory is forecast by evaluating shapes alone.
        if not isinstance(rows.layout.place, UnbackedPlace):
            scored.append(len(pairs))
        return score_all(rows, vectors, decoder, pairs)

    monkeypatch.setattr(links, "score_all", counting)
    result = one_stored.train("once", epochs=2, eval_every=1)
    # Without stored negatives, every pair has one.
    evaluation = sorted(2 * [len(one_stored.links.pair(split)) for split in ("valid", "test")])
    assert sorted(scored) == sorted(2 * evaluation)
    assert sum(result["score_distribution"]["positive"]) == len(one_stored.links.pair("test"))


def test_pairs_of_an_epoch_are_gone_before_it_is_evaluated(one_stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, are_gone = list[weakref.ref[NDArray[np.int64]]](), list[bool]()
    of_epoch, measure = RankPairs._of_epoch, Evaluation.measure

    def recorded(*arguments: Any) -> PairSet:
        found = of_epoch(*arguments)
        kept.append(weakref.ref(found.source))
        return found

    def measured(*arguments: Any, **options: Any) -> Any:
        are_gone.extend(array() is None for array in kept)
        return measure(*arguments, **options)

    monkeypatch.setattr(RankPairs, "_of_epoch", recorded)
    monkeypatch.setattr(Evaluation, "measure", measured)
    one_stored.train("gone", mode="neighbor", fanout=(3, 2), link_batch=30, epochs=2, eval_every=1)
    assert are_gone == [True, True, True]


def test_ends_of_training_pairs_are_prepared_once_and_asked_for_once_an_epoch(
    one_stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked, ends = list[int](), list[int](), links._TrainingEnds

    class Counting(ends):  # type: ignore[misc, valid-type]
        def __init__(self, layout: Layout, read: PairSet, num_pairs: int) -> None:
            self._is_counted = not isinstance(layout.place, UnbackedPlace)
            if self._is_counted:
                made.append(num_pairs)
            super().__init__(layout, read, num_pairs)

        def __call__(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
            if self._is_counted:
                asked.append(len(numbers))
            found: NDArray[np.int64] = super().__call__(numbers)
            return found

    monkeypatch.setattr(links, "_TrainingEnds", Counting)
    one_stored.train("degree", epochs=2, link_batch=20, negative_sampler="degree")
    num_pairs = len(one_stored.links.pair("train"))
    assert made == [num_pairs]
    # Ranks exchange them, so steps of few pairs ask together.
    assert asked == [num_pairs, num_pairs]
    one_stored.train("uniform", epochs=1, link_batch=20)
    assert len(made) == 1


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["uniform", "joint", "degree"])
def test_losses_do_not_depend_on_how_many_steps_draw_at_once(
    one_stored: Stored, sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"link_batch": 10, "negative_sampler": sampler, "strict_negatives": True}
    found = []
    # All steps, three, and one; a step has 10 pairs and as many negatives.
    for at_once in (pairs._DRAWN_AT_ONCE, 60, 1):
        monkeypatch.setattr(pairs, "_DRAWN_AT_ONCE", at_once)
        found.append(one_stored.train(f"{sampler}-{at_once}", **options)["loss"])
    assert found[0] == found[1] == found[2]
