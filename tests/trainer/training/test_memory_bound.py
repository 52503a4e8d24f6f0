"""A training on a tiny graph fits by an upper bound of its memory; all others are rehearsed."""

from __future__ import annotations

from typing import Any

import pytest

from gnnloom.storage import Catalog
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training import start
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.rehearsal.memory_bound import memory_bound
from gnnloom.trainer.training.rehearsal.rank_memory import rehearse
from support.lone import LoneCommunicator
from support.lone_training import opened_run
from support.pair_problems import store_pairs
from support.problems import problem
from support.sampled import store_for_sampling

#: The bound is at least so many times what is rehearsed.
FAR = 50
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"precision": "float64", "norm": "batch", "dropout": 0.5, "embed": 64},
    "sage": {"train_features": True, "residual": True},
    "gin": {"hidden": (16,)},
    "gat": {"heads": 1},
}
SAMPLED: dict[str, dict[str, Any]] = {
    "neighbor": {"mode": "neighbor", "model": "sage", "fanout": (30, 30, 30), "pool": 20, "batch_size": 3000},
    "cached": {"mode": "neighbor", "model": "sage", "cache_memory": 1 << 30, "ranks": 2},
    "subgraph": {"mode": "subgraph", "sampler": "frontier", "batch_size": 2000},
    "minibatch": {"mode": "minibatch", "batch_size": 2000, "ranks": 2},
}
ON_PAIRS: dict[str, dict[str, Any]] = {
    "usual": {},
    "negatives": {"negatives": 5},
    "replacing": {"negative_sampler": "joint", "link_batch": 20_000},
    "perceptron": {"decoder": "mlp", "output_dim": 256},
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("bounded") / "catalog")
    whole = problem("whole", 3000, 60_000, symmetric=False)
    whole.store(catalog, 1)
    whole.store_grid(catalog, "double", grid=(4, 4))
    store_for_sampling(catalog, problem("sampled", 3000, 60_000, symmetric=True), 1, 2)
    store_pairs(catalog, problem("paired", 6000, 40_000, symmetric=True), 2)
    return catalog


def opened(catalog: Catalog, **options: Any) -> OpenedRun:
    fixed: dict[str, Any] = {"dataset": "whole", "hidden": (64, 64), "threads": 1}
    return opened_run(TrainConfig(catalog=str(catalog.root), **{**fixed, **options}))


def check_is_far_above(run: OpenedRun) -> None:
    # Of a grid's ranks, the last ones have the longest ranges.
    for rank in sorted({0, run.config.ranks - 1}):
        bound, found = memory_bound(run, rank), rehearse(run, rank)
        assert bound is not None
        assert found is not None
        assert bound > FAR * found.total


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_no_model_takes_near_the_bound(catalog: Catalog, model: str) -> None:
    check_is_far_above(opened(catalog, model=model, **MODELS[model]))


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "p2p"])
def test_no_algorithm_takes_near_the_bound(catalog: Catalog, algorithm: str) -> None:
    ranks = 2 ** len(ALGORITHMS[algorithm].axes)
    check_is_far_above(opened(catalog, algorithm=algorithm, model="sage", ranks=ranks))


@pytest.mark.parametrize("case", SAMPLED)
def test_no_batches_take_near_the_bound(catalog: Catalog, case: str) -> None:
    check_is_far_above(opened(catalog, dataset="sampled", **SAMPLED[case]))


@pytest.mark.parametrize("case", ON_PAIRS)
def test_no_task_on_pairs_takes_near_the_bound(catalog: Catalog, case: str) -> None:
    check_is_far_above(opened(catalog, dataset="paired", task="link", ranks=2, **ON_PAIRS[case]))


def test_what_is_from_elsewhere_has_no_bound(catalog: Catalog) -> None:
    own: list[dict[str, Any]] = [
        {"model": "gnnloom.workflows.examples.gcnii:GCNII"},
        {"loss": "elsewhere:loss"},
        {"metric": "elsewhere:metric"},
        {"dataset": "paired", "task": "link", "ranks": 2, "decoder": "elsewhere:Decoder"},
    ]
    for options in own:
        assert memory_bound(opened(catalog, **options), 0) is None, options


def test_where_the_memory_is_plenty_a_training_is_not_rehearsed_unless_a_forecast_is_kept(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, rehearsed = opened(catalog, run="tiny", epochs=1), list[int]()

    def noted(opened: OpenedRun, rank: int) -> Any:
        rehearsed.append(rank)
        return rehearse(opened, rank)

    monkeypatch.setattr(start, "rehearse", noted)
    bound = memory_bound(run, 0)
    assert bound is not None
    for available, is_kept, expected in (
        (5 * bound, False, []),
        (5 * bound, True, [0]),
        # The bound fits, but not with certainty: memory is taken by others from moment to moment.
        (2 * bound, False, [0]),
    ):
        monkeypatch.setattr(start, "available_memory", lambda available=available: available)
        rehearsed.clear()
        assert start.check_fits(LoneCommunicator(), run, is_kept=is_kept) is not None
        assert rehearsed == expected
    kept = list[int | None]()
    monkeypatch.setattr(start, "available_memory", lambda: 5 * bound)
    train(LoneCommunicator(), run.config, restart=True)
    train(LoneCommunicator(), run.config, restart=True, begun=lambda begun: kept.append(begun.memory))
    assert kept[0] == pytest.approx(start.check_fits(LoneCommunicator(), run), rel=0.2)
    monkeypatch.setattr(start, "available_memory", lambda: 1000)
    with pytest.raises(CollectiveError, match="the rank on this machine will need about"):
        train(LoneCommunicator(), run.config, restart=True)
