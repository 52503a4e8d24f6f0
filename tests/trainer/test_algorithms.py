"""Every algorithm on every process grid trains the dense model, and sends what its paper says."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.checkpoint import read_checkpoint
from gnnloom.storage.run import Run
from gnnloom.trainer.algorithms import AXES
from gnnloom.trainer.config import TrainConfig
from gnnloom.trainer.process_grid import factorisations
from support import traffic
from support.dense import DenseGCN, from_arrays, normalised, train_dense
from support.mpi import train_all
from support.problems import Problem, problem

EPOCHS = 4
LONG_EPOCHS = 20
LR = 0.02
HIDDEN = {2: (17,), 3: (17, 11), 4: (17, 11, 6)}
PERMUTATIONS = ("none", "single", "double")
ON_GRIDS = ("broadcast", "replicated", "summa", "split3d", "tensor3d")

PROBLEMS = {
    given.name: given
    for given in (
        problem("directed", 60, 240, symmetric=False),
        problem("undirected", 61, 150, symmetric=True),
        problem("fewer-vertices-than-ranks", 5, 9, symmetric=False),
        problem("isolated", 50, 40, symmetric=False, loops=False),
        problem("weighted", 45, 200, symmetric=False, weighted=True),
    )
}
#: Uneven grids of a few algorithms, for what need not be tried on all of them.
SOME_GRIDS = (
    ("broadcast", (3,)),
    ("replicated", (2, 2)),
    ("summa", (2, 3)),
    ("split3d", (1, 3, 2)),
    ("split3d", (2, 2, 2)),
    ("tensor3d", (3, 1, 2)),
    ("tensor3d", (2, 2, 2)),
)
#: Options that must not change a result.
SAVINGS = {
    "propagate-first": {"product_order": "propagate-first"},
    "transform-first": {"product_order": "transform-first"},
    "nothing-saved": {"cache_input_product": False, "skip_input_gradient": False, "product_order": "propagate-first"},
    "turned-gradient": {"skip_input_gradient": False, "product_order": "transform-first"},
    "in-pieces": {"cache_input_product": False, "aggregation_blocks": 3, "summa_width": 7},
}
#: Models that have no dense reference here; one rank is theirs.
VARIANTS = {
    "sage": {"model": "sage"},
    "layer-norm": {"norm": "layer"},
    "batch-norm": {"norm": "batch", "lr": 0.01},
    "residual": {"hidden": (9, 9, 9), "residual": True},
}


@dataclass(frozen=True)
class Case:
    """One training run."""

    problem: str
    algorithm: str
    grid: tuple[int, ...]
    permutation: str = "double"
    depth: int = 3
    switch: str = ""
    train_features: bool = False
    dropout: float = 0.0

    @property
    def run(self) -> str:
        parts = (self.algorithm, "x".join(map(str, self.grid)), self.permutation, f"{self.depth}-layers", self.switch)
        return "-".join((*filter(None, parts), *(["features"] if self.train_features else [])))

    def config(self, catalog: Catalog, **options: object) -> TrainConfig:
        fixed = {
            "ranks": int(np.prod(self.grid)),
            "grid": self.grid,
            "algorithm": self.algorithm,
            "permutation": self.permutation,
            "hidden": HIDDEN[self.depth],
            "train_features": self.train_features,
            "dropout": self.dropout,
            "epochs": EPOCHS,
            "lr": LR,
            "dtype": "float64",
            "seed": 3,
            "eval_every": 0,
            "threads": 1,
            "run": self.run,
        }
        chosen = {**fixed, **{**SAVINGS, **VARIANTS}.get(self.switch, {}), **options}
        return TrainConfig(catalog=str(catalog.root), dataset=self.problem, **chosen)


def grids_of(ranks: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, grid) for name in ON_GRIDS for count in ranks for grid in factorisations(count, len(AXES[name]))]


EVERY_GRID = [Case("directed", *where) for where in grids_of((2, 4))]
PREDICTED = [Case("undirected", *where, permutation="single") for where in SOME_GRIDS[::2]]
PREDICTED += [Case("directed", *where, depth=2) for where in SOME_GRIDS[1::2]]
ODD_GRAPHS = [
    *(Case("fewer-vertices-than-ranks", *where) for where in (("replicated", (4, 2)), *SOME_GRIDS[4:])),
    *(Case("isolated", *where, "none") for where in SOME_GRIDS[:6:2]),
    *(Case("weighted", *where) for where in SOME_GRIDS[1:6:2]),
]
DEEPER = [Case("directed", *where, depth=4) for where in SOME_GRIDS[2:6]]
SWITCHED = [Case("directed", *where, switch=switch) for switch in SAVINGS for where in (SOME_GRIDS[2], SOME_GRIDS[5])]
SWITCHED += [Case("directed", *SOME_GRIDS[1], switch=switch) for switch in ("transform-first", "nothing-saved")]
FEATURES = [Case("directed", *where, train_features=True) for where in SOME_GRIDS[:6]]
FEATURES += [Case("directed", *SOME_GRIDS[5], switch="transform-first", train_features=True)]
DROPPED = [Case("undirected", *where, "double", 3, "dropout", dropout=0.4) for where in SOME_GRIDS[1:6]]

#: The base is a variant's first case; those that turn their layouts do not serve sage and residual.
VARIED = {
    switch: [Case("directed", *where, "single", switch=switch) for where in (("broadcast", (1,)), *grids)]
    for switch, grids in (
        ("sage", SOME_GRIDS[1:4]),
        ("residual", SOME_GRIDS[2:4]),
        ("layer-norm", (SOME_GRIDS[2], SOME_GRIDS[5])),
        ("batch-norm", (SOME_GRIDS[1], SOME_GRIDS[5])),
    )
}


class Results:
    """All runs of one MPI job."""

    def __init__(self, folder, cases: list[Case], predicted: list[Case], epochs: int = EPOCHS) -> None:
        self.catalog, self.epochs = Catalog(folder / "catalog"), epochs
        self.first = [
            Case(name, "broadcast", (1,), depth=depth, switch="start") for name in PROBLEMS for depth in HIDDEN
        ]
        for given in PROBLEMS.values():
            given.store_grid(self.catalog, *PERMUTATIONS, grid=(3, 2))
        # Nothing is learnt at rate 0: these runs' checkpoints hold the weights at the start.
        configs = [case.config(self.catalog, lr=0.0, epochs=1) for case in self.first]
        configs += [case.config(self.catalog, epochs=epochs, save_embeddings=case in predicted) for case in cases]
        results = train_all(folder, configs, timeout=1000 if epochs == EPOCHS else 3600)
        self.of = dict(zip([*self.first, *cases], results, strict=True))

    def arrays(self, case: Case) -> dict[str, np.ndarray]:
        return dict(read_checkpoint(self.catalog[case.problem].run_path(case.run) / "checkpoint").arrays)

    def dense(self, case: Case) -> DenseGCN:
        """The dense model with the weights that all runs start with."""
        start = next(first for first in self.first if (first.problem, first.depth) == (case.problem, case.depth))
        operator = normalised(PROBLEMS[case.problem].adjacency.toarray(), "symmetric")
        return from_arrays(operator, self.arrays(start), case.depth)

    def compare(self, case: Case) -> None:
        """Losses, parameters and trained features against the dense reference."""
        given, dense, result = PROBLEMS[case.problem], self.dense(case), self.of[case]
        assert "error" not in result, result
        feature = given.feature.astype(float)
        losses = train_dense(
            dense, feature, given.label, given.training, self.epochs, LR, "adam", train_features=case.train_features
        )
        np.testing.assert_allclose(result["loss"], losses, rtol=1e-10, err_msg=str(case))
        assert result["grid"] == list(case.grid)
        arrays = self.arrays(case)
        for mine, expected in zip(from_arrays(None, arrays, case.depth).parameters, dense.parameters, strict=True):
            np.testing.assert_allclose(mine, expected, rtol=1e-8, atol=1e-10, err_msg=str(case))
        if case.train_features:
            np.testing.assert_allclose(arrays["parameter/feature"], feature, rtol=1e-8, atol=1e-10, err_msg=str(case))
            assert not np.allclose(feature, given.feature)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Results:
    cases = EVERY_GRID + PREDICTED + ODD_GRAPHS + DEEPER + SWITCHED + FEATURES + DROPPED
    cases += [case for varied in VARIED.values() for case in varied]
    return Results(tmp_path_factory.mktemp("algorithms"), cases, PREDICTED)


@pytest.mark.parametrize("algorithm", ON_GRIDS)
def test_every_grid_gives_the_dense_loss_curve_and_parameters(results, algorithm):
    for case in EVERY_GRID:
        if case.algorithm == algorithm:
            results.compare(case)


@pytest.mark.parametrize("case", ODD_GRAPHS + DEEPER, ids=lambda case: f"{case.problem}-{case.run}")
def test_empty_ranks_isolated_vertices_weights_and_depth_change_nothing(results, case):
    results.compare(case)


@pytest.mark.parametrize("switch", SAVINGS)
def test_savings_and_pieces_change_no_result(results, switch):
    for case in SWITCHED:
        if case.switch == switch:
            results.compare(case)


@pytest.mark.parametrize("case", FEATURES, ids=lambda case: case.run)
def test_input_features_are_trained_on_every_layout(results, case):
    results.compare(case)


def test_dropout_draws_the_same_masks_on_every_layout(results):
    curves = [results.of[case]["loss"] for case in DROPPED]
    for curve in curves[1:]:
        np.testing.assert_allclose(curve, curves[0], rtol=1e-10)
    assert abs(curves[0][-1] - results.of[PREDICTED[0]]["loss"][-1]) > 1e-6


@pytest.mark.parametrize("switch", VARIANTS)
def test_other_models_and_norms_are_those_of_one_rank(results, switch):
    first, *others = VARIED[switch]
    base, arrays = results.of[first], results.arrays(first)
    for case in others:
        np.testing.assert_allclose(results.of[case]["loss"], base["loss"], rtol=1e-10, err_msg=str(case))
        for name, array in results.arrays(case).items():
            np.testing.assert_allclose(array, arrays[name], rtol=1e-7, atol=1e-9, err_msg=f"{case} {name}")


@pytest.mark.parametrize("case", PREDICTED, ids=lambda case: f"{case.problem}-{case.run}")
def test_predictions_and_accuracy_are_those_of_the_dense_model_in_vertex_order(results, case):
    given = PROBLEMS[case.problem]
    operator = normalised(given.adjacency.toarray(), "symmetric")
    outputs = from_arrays(operator, results.arrays(case), case.depth).layers(given.feature.astype(float))
    predictions = Run.open(results.catalog[case.problem], case.run).predictions()
    np.testing.assert_allclose(predictions.score(), outputs[-1], atol=1e-12)
    np.testing.assert_allclose(predictions.embedding(), outputs[-2], atol=1e-12)
    assert np.array_equal(predictions.label(), predictions.score().argmax(1))
    for figure, value in (("train_accuracy", 1), ("val_accuracy", 2), ("test_accuracy", 3)):
        chosen = (given.split == value) & (given.label >= 0)
        assert results.of[case][figure] == (predictions.label()[chosen] == given.label[chosen]).mean()


def expected_traffic(given: Problem, config: TrainConfig) -> tuple[dict[str, int], dict[str, int]]:
    """What the papers' formulas say of an epoch."""
    dims = (5, *config.hidden, 3)
    gradient = config.train_features or not config.skip_input_gradient
    kept = config.cache_input_product and config.product_order != "transform-first" and not gradient
    cheaper = [
        before * (1 + (layer > 0 or gradient)) <= 2 * after for layer, (before, after) in enumerate(pairwise(dims))
    ]
    given_order = {"auto": cheaper, "propagate-first": [True] * len(cheaper)}.get(
        config.product_order, [False] * len(cheaper)
    )
    orders = (kept or given_order[0], *given_order[1:])
    epoch = traffic.Epoch(
        len(given.label), given.adjacency.nnz, int(given.training.sum()), dims, orders, kept, gradient
    )
    if config.algorithm in {"broadcast", "replicated"}:
        traffic.row_blocks(epoch, *config.grid)
    elif config.algorithm == "tensor3d":
        traffic.tensor3d(epoch, *config.grid, blocks=config.aggregation_blocks)
    else:
        traffic.summa(epoch, *config.grid, width=config.summa_width)
    return epoch.counted()


@pytest.mark.parametrize("algorithm", ON_GRIDS)
def test_bytes_and_messages_of_an_epoch_equal_the_papers_formulas(results, algorithm):
    for case in EVERY_GRID + SWITCHED + FEATURES + DEEPER:
        if case.algorithm == algorithm:
            expected = expected_traffic(PROBLEMS[case.problem], case.config(results.catalog))
            found = results.of[case]["bytes_by_kind"], results.of[case]["messages_by_kind"]
            assert found == tuple(expected), case


@pytest.fixture(scope="module")
def long_results(tmp_path_factory) -> Results:
    return Results(tmp_path_factory.mktemp("long"), LONG, [], LONG_EPOCHS)


LONG = [
    Case(name, *where, permutation, depth)
    for where in grids_of((1, 2, 3, 4, 6, 8, 12))
    for name, permutation, depth in (
        ("directed", "double", 4),
        ("undirected", "single", 3),
        ("fewer-vertices-than-ranks", "double", 2),
        ("isolated", "double", 3),
    )
]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["directed", "undirected", "fewer-vertices-than-ranks", "isolated"])
def test_every_factorisation_up_to_twelve_ranks_gives_the_dense_loss_curve(long_results, name):
    for case in LONG:
        if case.problem == name:
            long_results.compare(case)
