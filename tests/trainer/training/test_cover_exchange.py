"""Ranks that send partial sums in place of some rows train the same model, and send the minimum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.csgraph import maximum_bipartite_matching

from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.candidates import make_plans, plan_of
from gnnloom.trainer.planner.profile import GENERIC, open_profile
from gnnloom.trainer.planner.stored import situation_of
from support.dense_models import DenseModel
from support.mpi import train_all
from support.problems import Problem, problem
from support.shards import volume
from support.tolerance import ADAM_BITS, assert_close

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

EPOCHS, HIDDEN, DIMS = 3, (17, 11), (5, 17, 11, 3)


def _skewed() -> Problem:
    """A directed graph in which a few vertices have most of the edges: one sum replaces many rows."""
    given, rng = problem("skewed", 60, 10, symmetric=False), np.random.default_rng(1)
    row, column = (60 * rng.random(300) ** 4).astype(int), rng.integers(0, 60, 300)
    hubs = scipy.sparse.csr_matrix((np.ones(300), (row, column)), (60, 60))
    adjacency = ((given.adjacency + hubs) != 0).astype(float).tocsr()
    return replace(given, adjacency=adjacency)


PROBLEMS = {
    given.name: given
    for given in (
        problem("undirected", 50, 200, symmetric=True),
        problem("directed", 45, 260, symmetric=False),
        problem("weighted", 45, 260, symmetric=False, weighted=True),
        problem("empty-ranks", 40, 160, symmetric=False, crowded=True),
        problem("fewer-vertices-than-ranks", 5, 9, symmetric=True),
        _skewed(),
    )
}


@dataclass(frozen=True)
class Case:
    """One training run."""

    problem: str
    ranks: int
    model: str = "gcn"
    exchange: str = "cover"
    precision: str = "float64"
    again: bool = False
    dropout: float = 0.0

    @property
    def run(self) -> str:
        other = ("-again" if self.again else "") + ("-dropped" if self.dropout else "")
        return f"{self.model}-{self.exchange}-{self.precision}-{self.ranks}{other}"

    def config(self, catalog: Catalog, **options: Any) -> TrainConfig:
        fixed: dict[str, Any] = {"epochs": EPOCHS, "lr": 0.02, "seed": 3, "eval_every": 0, "threads": 1}
        own: dict[str, Any] = {"hidden": HIDDEN, "precision": self.precision, "exchange": self.exchange}
        own["dropout"] = self.dropout
        named: dict[str, Any] = {"dataset": self.problem, "ranks": self.ranks, "model": self.model, "run": self.run}
        return TrainConfig.of(catalog=str(catalog.root), **{**fixed, **own, **named, **options})


EXACT = [
    *(Case("undirected", ranks) for ranks in (1, 2, 3, 4, 7)),
    *(Case("directed", ranks) for ranks in (2, 3, 7)),
    *(Case("weighted", ranks) for ranks in (3, 4)),
    *(Case("directed", 4, model) for model in ("sage", "gin")),
    *(Case("undirected", 3, model) for model in ("sage", "gin")),
    Case("skewed", 4),
    Case("empty-ranks", 4),
    Case("fewer-vertices-than-ranks", 7),
]
AGAIN = Case("directed", 3, again=True)
DROPPED = [Case("skewed", 4, exchange=exchange, dropout=0.5) for exchange in ("rows", "cover")]
#: On the partition of a stored graph, which counts its cover.
PLANNED = [Case("planned", 3, precision=precision) for precision in ("float32", "bf16")]
NARROW = [Case("skewed", 4, exchange=exchange, precision="bf16") for exchange in ("rows", "cover")]


def _store_planned(catalog: Catalog) -> None:
    """Store a graph, a partition that counts its cover, and the row shards of the partition."""
    given, cluster = problem("planned", 60, 400, symmetric=False), InProcessCluster()
    dataset = given.store_grid(catalog)
    for exchange in ("rows", "cover"):
        options = PartitionOptions(3, "block", exchange=exchange)
        partition = partition_graph(dataset, dataset.graph(), options, cluster)
    shard_rows(dataset, partition, cluster)


class Results:
    """All runs of one MPI job, and the weights with which they begin."""

    def __init__(self, folder: Path) -> None:
        self.catalog = Catalog(folder / "catalog")
        cases = [*EXACT, AGAIN, *NARROW, *DROPPED, *PLANNED]
        _store_planned(self.catalog)
        for name, given in PROBLEMS.items():
            given.store(self.catalog, *sorted({1, *(case.ranks for case in cases if case.problem == name)}))
        starts = {(case.problem, case.model) for case in EXACT}
        configs = [case.config(self.catalog) for case in cases]
        configs += [
            Case(name, 1, model).config(self.catalog, run=f"{model}-start", lr=0.0, epochs=1) for name, model in starts
        ]
        found = train_all(folder, configs)
        self.of = dict(zip(cases, found[: len(cases)], strict=True))

    def arrays(self, name: str, run: str) -> dict[str, np.ndarray]:
        return dict(read_checkpoint(self.catalog[name].run_path(run) / "checkpoint").arrays)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return Results(tmp_path_factory.mktemp("cover"))


@pytest.mark.parametrize("case", EXACT, ids=lambda case: f"{case.problem}-{case.model}-{case.ranks}")
def test_losses_and_parameters_equal_the_dense_model(results: Results, case: Case) -> None:
    given = PROBLEMS[case.problem]
    dense = DenseModel.from_arrays(
        case.model, given.adjacency.toarray(), results.arrays(case.problem, f"{case.model}-start")
    )
    losses = dense.train(given.feature, given.label, given.training, EPOCHS, 0.02, "adam")
    assert_close(results.of[case]["loss"], losses, steps=EPOCHS * 3)
    arrays = results.arrays(case.problem, case.run)
    for name, parameter in dense.parameters.items():
        assert_close(arrays[f"parameter/{name}"], parameter.detach().numpy(), steps=EPOCHS * 3, bits=ADAM_BITS)


def test_the_same_configuration_gives_the_same_bits(results: Results) -> None:
    first = Case("directed", 3)
    assert results.of[AGAIN]["loss"] == results.of[first]["loss"]
    before, after = (results.arrays("directed", case.run) for case in (first, AGAIN))
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_dropout_draws_the_same_masks_with_both_exchanges(results: Results) -> None:
    rows, cover = (results.of[case]["loss"] for case in DROPPED)
    assert_close(cover, rows, steps=EPOCHS * 3)
    assert rows != results.of[Case("skewed", 4)]["loss"]


def _blocks(adjacency: Any, part: np.ndarray, ranks: int) -> list[Any]:
    """The blocks between two ranks that have nonzeros."""
    pairs = [(one, other) for one in range(ranks) for other in range(ranks) if one != other]
    found = [adjacency[part == one][:, part == other] for one, other in pairs]
    return [block for block in found if block.nnz]


def _minimum(blocks: list[Any]) -> int:
    """Rows and sums of minimum covers."""
    return sum(int((maximum_bipartite_matching(block) >= 0).sum()) for block in blocks)


def test_an_epoch_sends_the_rows_and_sums_of_minimum_covers(results: Results) -> None:
    # A X is cached; the other layers form A (H W), as H W is the narrower one: 11 and 3 columns.
    saved, columns = 0, 11 + 3
    for case in (case for case in EXACT if case.model == "gcn"):
        given = PROBLEMS[case.problem]
        part, forward = given.part(case.ranks), given.adjacency.tocsr()
        for kind, matrix in (("halo forward", forward), ("halo backward", forward.T.tocsr())):
            least = _minimum(_blocks(matrix, part, case.ranks))
            assert results.of[case]["bytes_by_kind"].get(kind, 0) == least * columns * 8, (case, kind)
            cut = volume(matrix, part, case.ranks)
            assert least <= cut
            saved += cut - least
    assert saved > 0


@pytest.mark.parametrize("case", PLANNED, ids=lambda case: case.precision)
def test_the_plan_of_a_counted_cover_has_the_bytes_and_messages_of_the_run(results: Results, case: Case) -> None:
    found, dataset = results.of[case], results.catalog["planned"]
    partition = dataset.find("partition", parts=3, exchange="cover")
    profile, config = open_profile(results.catalog.root, GENERIC), case.config(results.catalog)
    plan = plan_of(config, situation_of(dataset), profile, partition.key).to_json()
    assert all(plan[name] == found[name] for name in ("bytes_by_kind", "messages_by_kind"))
    assert (plan["exchange"], plan["estimated"]) == ("cover", "")
    quality = partition.facts["quality"]
    columns, size = 11 + 3, 2 if case.precision == "bf16" else 4
    assert found["bytes_by_kind"]["halo forward"] == quality["volume_cover_total"] * columns * size


def test_a_plan_lists_both_exchanges_of_a_partition_that_counts_them(results: Results) -> None:
    situation = situation_of(results.catalog["planned"])
    config, profile = PLANNED[0].config(results.catalog, exchange="rows"), open_profile(results.catalog.root, GENERIC)
    plans = make_plans(config, situation, profile, algorithms=["p2p"], exchanges=("rows", "cover"))
    by_exchange = {(plan.exchange, plan.estimated): plan.bytes_sent for plan in plans}
    assert by_exchange["cover", ""] < by_exchange["rows", ""]
    assert len(plans) == 3
    # A partition that does not count its cover bounds the bytes.
    given = make_plans(config.with_options(exchange="cover"), situation, profile, algorithms=["p2p"])
    assert sorted(bool(plan.estimated) for plan in given) == [False, True]
    attending = config.with_options(model="gat", normalization="none", hidden=(16,), heads=2)
    attended = make_plans(attending, situation, profile, algorithms=["p2p"], exchanges=("rows", "cover"))
    assert {plan.exchange for plan in attended} == {"rows"}


def test_sums_of_narrow_features_are_as_narrow_and_change_a_loss_by_rounding(results: Results) -> None:
    rows, cover = (results.of[case] for case in NARROW)
    given = PROBLEMS["skewed"]
    for kind, matrix in (("halo forward", given.adjacency), ("halo backward", given.adjacency.T)):
        least = _minimum(_blocks(matrix.tocsr(), given.part(4), 4))
        assert cover["bytes_by_kind"][kind] == least * (11 + 3) * 2 < rows["bytes_by_kind"][kind]
    exact = results.of[Case("skewed", 4)]["loss"]
    off = [np.abs(np.array(found["loss"]) - exact).max() for found in (rows, cover)]
    assert off[1] < max(2 * off[0], 2.0**-8)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"model": "gat"}, "gat"),
        ({"mode": "minibatch", "batch_size": 8}, "minibatch"),
        ({"adjacency": "disk"}, "adjacency"),
    ],
)
def test_what_needs_rows_is_refused(tmp_path: Path, options: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match="exchange") as caught:
        TrainConfig.of(catalog=str(tmp_path), dataset="any", ranks=2, exchange="cover", **options)
    assert word in str(caught.value)
