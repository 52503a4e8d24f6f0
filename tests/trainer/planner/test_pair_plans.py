"""Plans of training on pairs state the messages of runs, and about their bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.trainer.algorithms.steps import Volume
from gnnloom.trainer.algorithms.workload import Exchange, Workload
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.memory import project_new_training
from gnnloom.trainer.planner.pair_steps import PairFacts, add_pairs
from gnnloom.trainer.training.rehearsal.shard_sizes import RowShardSizes, RowSizes
from support.pair_runs import call


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with links, and row shards for several ranks."""
    root = tmp_path_factory.mktemp("planned")
    sizes = ("--vertices", "400", "--edges", "3000", "--classes", "4", "--workers", "0")
    call(root, "generate", "web", "sbm", *sizes)
    message = call(root, "links", "web", "random", "--workers", "0")["message_graph"]
    for parts in ("2", "3"):
        method = "block" if parts == "2" else "random"
        how = ("--graph", message, "--parts", parts, "--method", method, "--workers", "0")
        call(root, "partition", "web", *how)
        call(root, "shard", "web", "--parts", parts, "--workers", "0")
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "options"),
    [
        pytest.param(2, (), marks=pytest.mark.long),
        (3, ("--negatives", "3", "--negative-sampler", "pairs", "--link-batch", "500")),
    ],
)
def test_a_run_sends_the_planned_messages_and_about_the_planned_bytes(
    root: Path, ranks: int, options: tuple[str, ...]
) -> None:
    chosen = ("--task", "link", "--hidden", "8", "--output-dim", "8", "--ranks", str(ranks), *options)
    name = f"web/on-{ranks}"
    call(root, "train", name, *chosen, "--epochs", "1")
    run = gnnloom.Run.open(name, root)
    forecast, measured = run.forecast(), run.metrics()
    assert forecast is not None
    kinds = {"row ids", "rows", "row gradients", "halo forward", "halo backward", "gradient", "loss"}
    assert forecast["bytes_by_kind"].keys() == kinds
    for kind, num_bytes in forecast["bytes_by_kind"].items():
        column = kind.replace(" ", "_")
        assert forecast["messages_by_kind"][kind] == measured[f"messages_sent_{column}"][0]
        sent = measured[f"bytes_sent_{column}"][0]
        if kind.startswith("row"):
            # Which ends other ranks own is expected, as drawn from all vertices.
            assert sent / 1.5 <= num_bytes <= 1.5 * sent
        else:
            assert num_bytes == sent
    assert sum(forecast["bytes_by_kind"].values()) == pytest.approx(measured["bytes_sent"][0], rel=0.25)
    message = Catalog(root)["web"].links().message_graph
    plans = call(root, "plan", "web", "--graph", message, *chosen, "--precision", "float32")["plans"]
    (planned,) = [plan for plan in plans if plan["algorithm"] == "p2p"]
    assert planned["bytes_by_kind"] == forecast["bytes_by_kind"]
    assert planned["estimated"] == "expected ends of pairs on other ranks"
    # An epoch on vertices has one step.
    of_vertices = call(root, "plan", "web", "--graph", message, "--hidden", "8", "--ranks", str(ranks))["plans"]
    assert {plan["estimated"] for plan in of_vertices if plan["algorithm"] == "p2p"} == {""}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "grid"),
    # SUMMA gathers columns as tensor3d gathers planes.
    [
        ("tensor3d", "1x1x2"),
        pytest.param("tensor3d", "1x2x1", marks=pytest.mark.long),
        pytest.param("summa", "1x2", marks=pytest.mark.long),
    ],
)
def test_a_run_on_a_grid_sends_the_planned_messages(root: Path, algorithm: str, grid: str) -> None:
    message = Catalog(root)["web"].links().message_graph
    call(root, "shard", "web", "--graph", message, "--grid", "4x4", "--workers", "0")
    name = f"web/{algorithm}-{grid}"
    chosen = ("--task", "link", "--hidden", "8", "--output-dim", "8", "--link-batch", "700")
    call(root, "train", name, *chosen, "--ranks", "2", "--algorithm", algorithm, "--grid", grid, "--epochs", "1")
    run = gnnloom.Run.open(name, root)
    forecast, measured = run.forecast(), run.metrics()
    assert forecast is not None
    # The columns of a vertex's row come together on one rank, and copies get its gradient.
    assert "align backward" in forecast["bytes_by_kind"]
    kinds = {
        name.removeprefix("messages_sent_")
        for name, count in measured.items()
        if sum(count) and "messages_sent_" in name
    }
    assert {kind.replace(" ", "_") for kind in forecast["bytes_by_kind"]} == kinds
    for kind, num_bytes in forecast["bytes_by_kind"].items():
        column = kind.replace(" ", "_")
        assert forecast["messages_by_kind"][kind] == measured[f"messages_sent_{column}"][0], kind
        sent = measured[f"bytes_sent_{column}"][0]
        assert num_bytes == (pytest.approx(sent, rel=0.25) if kind.startswith("row") else sent), kind


def test_a_simulation_takes_the_steps_of_the_pairs(root: Path) -> None:
    chosen = ("--task", "link", "--hidden", "8", "--output-dim", "8")
    graph = ("web", "--graph", Catalog(root)["web"].links().message_graph)
    planned = call(root, "plan", *graph, *chosen, "--ranks", "2", "--precision", "float32")["plans"]
    simulated = call(root, "simulate", *graph, *chosen, "--ranks", "2")["plans"]
    for each in simulated:
        assert each in planned
    # A graph of numbers only has a pair for every edge, of which a step takes a tenth.
    sizes = ("--vertices", "10000", "--edges", "90000", "--ranks", "2,4", *chosen)
    usual, small, weak = (
        {(each["algorithm"], each["ranks"]): each for each in call(root, "simulate", *sizes, *more)["plans"]}
        for more in ((), ("--link-batch", "1000"), ("--weak", "--link-batch", "1000"))
    )
    for which, each in usual.items():
        for name in ("halo forward", "broadcast", "propagate forward"):
            if each["messages_by_kind"].get(name):
                assert small[which]["messages_by_kind"][name] == 4 * each["messages_by_kind"][name], which
    for algorithm, ranks in usual:
        # Twice the pairs take twice the steps of so many.
        grown, before = weak[algorithm, ranks], small[algorithm, ranks]
        steps = sum(grown["messages_by_kind"].values()) / sum(before["messages_by_kind"].values())
        assert steps == pytest.approx(ranks / 2, rel=0.05), (algorithm, ranks)


@pytest.mark.parametrize(("cut", "expected"), [(0, 0.0), (600, 600 / 40_000), (None, 0.75)])
def test_targets_follow_the_edges_that_a_partition_cuts(cut: int | None, expected: float) -> None:
    n, ranks, degree = 10_000, 4, 4
    others = n * 3 / 4
    # Edges that a rank receives from others, spread over these vertices; a random partition cuts all that it can.
    received = others * (1 - (1 - 1 / others) ** (cut / ranks)) if cut is not None else others
    exchange = Exchange(rows=ranks * received, messages=12, busiest_rows=received, busiest_messages=3)
    work = Workload(
        num_vertices=n,
        nnz=(degree + 1) * n,
        num_training=1,
        dims=(8, 16),
        inner=(16,),
        propagates_first=(True,),
        input_is_kept=False,
        exchange=exchange,
    )
    pairs = PairFacts(num_pairs=4000, step_pairs=4000)
    volume = Volume.of(add_pairs(pairs, work, ranks))
    # Of 1000 targets of a rank, each of which is fetched once.
    fetched = others * (1 - (1 - 1 / others) ** (1000 * expected))
    assert volume.bytes.get("rows", 0) == pytest.approx(ranks * fetched * 16 * 4, rel=1e-3)
    assert volume.messages["row ids"] == 4 * 12


def test_new_trainings_on_pairs_are_estimated_with_what_these_take() -> None:
    sizes = RowSizes(
        num_vertices=10_000, num_features=16, num_outputs=32, symmetric=True, weighted=False,
        ranks=(RowShardSizes(5000, 3000, 3000, 50_000, 1 << 20),), index_bytes=4,
    )  # fmt: skip

    def estimated(num_pairs: int | None, **options: Any) -> int:
        config = TrainConfig.of(catalog="c", dataset="d", task="link", ranks=2, hidden=(32,), **options)
        pairs = None if num_pairs is None else PairFacts.of(config, num_pairs)
        return project_new_training(config, sizes, pairs=pairs).peak_memory[0]

    usual = estimated(100_000)
    # Each rank has a half of the pairs, of two ids of 8 bytes each.
    assert usual - estimated(None) > 100_000 * 8
    for more in ({"exclude_targets": False}, {"negatives": 9}, {"link_batch": 50_000}):
        assert estimated(100_000, **more) > usual, more
    assert estimated(200_000, link_batch=10_000) > usual
    drawn: dict[str, Any] = {"mode": "neighbor", "model": "sage", "fanout": (3, 2)}
    few, many = (estimated(100_000, **drawn, link_batch=size) for size in (0, 4096))
    assert few < many


def test_steps_follow_from_the_options() -> None:
    def facts(**options: object) -> PairFacts:
        return PairFacts.of(TrainConfig.of(catalog="c", dataset="d", **options), 1001)

    assert (facts(task="link").num_steps, facts(task="link").negatives) == (10, 1)
    assert facts(task="link", exclude_targets=False).num_steps == 1
    assert facts(task="edge-class", link_batch=100).num_steps == 11
    assert facts(task="edge-class").negatives == 0
    assert facts(task="link", negatives=7, negative_sampler="pairs").draws_sources
