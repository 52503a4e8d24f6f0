"""Every algorithm on every process grid trains the dense model, and sends what its paper states."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.storage import Catalog
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.algorithms.algorithm import factorizations
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.algorithms.steps import Volume
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.describe import GraphFacts, epoch_steps, workload
from support import traffic
from support.covering import FEW_OR_EVERY, covering
from support.dense import DenseGCN, from_arrays, normalized, train_dense
from support.dense_models import DenseModel
from support.mpi import train_all
from support.problems import Problem, problem, usual_problems
from support.tolerance import ADAM_BITS, assert_close

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

#: The first step's gradients affect the second epoch's loss; the second step's affect the parameters.
EPOCHS = 2
LR = 0.02
HIDDEN = {2: (17,), 3: (17, 11), 4: (17, 11, 6)}
ON_GRIDS = ("broadcast", "replicated", "summa", "split3d", "tensor3d")

PROBLEMS = {
    given.name: given
    for given in (
        *usual_problems(),
        problem("weighted", 45, 200, symmetric=False, weighted=True),
    )
}
#: Uneven grids of a few algorithms, for promises that need not be tested on all of them.
SOME_GRIDS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("broadcast", (3,)),
    ("replicated", (2, 2)),
    ("summa", (2, 3)),
    ("split3d", (1, 3, 2)),
    ("split3d", (2, 2, 2)),
    ("tensor3d", (3, 1, 2)),
    ("tensor3d", (2, 2, 2)),
)
#: Options that must not change any result.
SAVINGS: dict[str, dict[str, Any]] = {
    "propagate-first": {"product_order": "propagate-first"},
    "transform-first": {"product_order": "transform-first"},
    "nothing-saved": {"cache_input_product": False, "skip_input_gradient": False, "product_order": "propagate-first"},
    "transform-first-gradient": {"skip_input_gradient": False, "product_order": "transform-first"},
    "transposed-products": {"gradient_product": "transposed"},
    "measured-products": {"gradient_product": "measured"},
    "in-blocks": {"cache_input_product": False, "aggregation_blocks": 3, "summa_width": 7},
}
#: Other models and options, each compared with its own dense model.
VARIANTS: dict[str, dict[str, Any]] = {
    "sage": {"model": "sage", "hidden": (7, 11)},
    "residual": {"hidden": (9, 9, 9), "residual": True},
    "layer-norm": {"norm": "layer"},
    "batch-norm": {"norm": "batch", "lr": 0.01},
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

    @property
    def ranks(self) -> int:
        return int(np.prod(self.grid))

    def shows(self) -> set[Hashable]:
        """What a few cases of every promise must show, too."""
        told = (self.problem, self.permutation, self.depth, self.switch, self.train_features)
        return {self.algorithm, *enumerate(told)}

    def config(self, catalog: Catalog, **options: object) -> TrainConfig:
        fixed: dict[str, Any] = {
            "ranks": self.ranks,
            "grid": self.grid,
            "algorithm": self.algorithm,
            "permutation": self.permutation,
            "hidden": HIDDEN[self.depth],
            "train_features": self.train_features,
            "dropout": self.dropout,
            "epochs": EPOCHS,
            "lr": LR,
            "precision": "float64",
            "seed": 3,
            "eval_every": 0,
            "threads": 1,
            "run": self.run,
        }
        chosen = {**fixed, **{**SAVINGS, **VARIANTS}.get(self.switch, {}), **options}
        return TrainConfig.of(catalog=str(catalog.root), dataset=self.problem, **chosen)


def grids_of(ranks: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    return [
        (name, grid)
        for name in ON_GRIDS
        for count in ranks
        for grid in factorizations(count, len(ALGORITHMS[name].axes))
    ]


#: Grids of four ranks, and of two for what other tests here show on four.
SMALLER: dict[str, tuple[int, ...]] = {"summa": (2, 2), "split3d": (1, 2, 2), "tensor3d": (2, 1, 2)}
SMALLEST: dict[str, tuple[int, ...]] = {
    "replicated": (1, 2), "summa": (1, 2), "split3d": (1, 1, 2), "tensor3d": (1, 1, 2)
}  # fmt: skip

# test_every_grid tries all grids of up to twelve ranks, in a longer run.
EVERY_GRID = [Case("directed", *where) for where in grids_of((2,))]
PREDICTED = [
    Case("undirected", *where, permutation=permutation)
    for where, permutation in zip(SOME_GRIDS[::2], ("single", "single", "partition", "partition"), strict=True)
]
PREDICTED += [Case("directed", *where, depth=2) for where in SOME_GRIDS[1::2]]
ODD_GRAPHS = [
    # Five products of nine blocks, two at a time.
    Case("directed", "broadcast", (9,)),
    # Two of the seven layers have none of the five vertices.
    Case("fewer-vertices-than-ranks", "split3d", (1, 1, 7)),
    *(Case("fewer-vertices-than-ranks", *where) for where in (("replicated", (4, 2)), *SOME_GRIDS[4:])),
    *(Case("isolated", *where, "none") for where in SOME_GRIDS[:6:2]),
    *(Case("weighted", *where) for where in SOME_GRIDS[1:6:2]),
]
DEEPER = [Case("directed", *where, depth=4) for where in SOME_GRIDS[2:6]]
SWITCHED = [
    Case("directed", *where, switch=switch)
    for switch, options in SAVINGS.items()
    for where in (SOME_GRIDS[2], SOME_GRIDS[5])
    if where[0] == "tensor3d" or "gradient_product" not in options
]
SWITCHED += [Case("directed", *SOME_GRIDS[1], switch=switch) for switch in ("transform-first", "nothing-saved")]
FEATURES = [Case("directed", *where, train_features=True) for where in SOME_GRIDS[:6]]
FEATURES += [Case("directed", *SOME_GRIDS[5], switch="transform-first", train_features=True)]
DROPPED = [Case("undirected", *where, "double", 3, "dropout", dropout=0.4) for where in SOME_GRIDS[1:6]]

VARIED = {
    switch: [Case("directed", *where, switch=switch) for where in grids]
    for switch, grids in (
        ("sage", SOME_GRIDS[:6]),
        ("residual", SOME_GRIDS[:6]),
        ("layer-norm", (SOME_GRIDS[2], SOME_GRIDS[5])),
        ("batch-norm", (SOME_GRIDS[1], SOME_GRIDS[5])),
    )
}
VARIED["sage"] += [Case("directed", *SOME_GRIDS[number], "single", switch="sage") for number in (1, 6)]
VARIED["sage"] += [Case("directed", *SOME_GRIDS[5], switch="sage", train_features=True)]


def _with_smaller(cases: list[Case], grids: Mapping[str, tuple[int, ...]] = SMALLER) -> list[Case]:
    """The cases, and the same on smaller grids: those are cheaper, so they are the few that stand for all."""
    smaller = [replace(case, grid=grids[case.algorithm]) for case in cases if case.algorithm in grids]
    return list(dict.fromkeys([*cases, *smaller]))


# Odd graphs and predictions keep the grids that are not square: these show what goes to which rank.
SWITCHED = _with_smaller(SWITCHED)
# Of these, test_learned_features and test_pairs have quick cases on larger grids.
FEATURES, DROPPED = (_with_smaller(cases, SMALLEST) for cases in (FEATURES, DROPPED))
VARIED = {switch: _with_smaller(cases) for switch, cases in VARIED.items()}

#: All cases, by promise.
CASES = (EVERY_GRID, PREDICTED, ODD_GRAPHS + DEEPER, SWITCHED, FEATURES, DROPPED, list(chain(*VARIED.values())))


class Results:
    """All runs of one MPI job."""

    def __init__(self, folder: Path, cases: list[Case]) -> None:
        self.catalog = Catalog(folder / "catalog")
        # The initial weights are the same for every graph.
        self.first = [Case("directed", "broadcast", (1,), depth=depth, switch="start") for depth in HIDDEN]
        for given in PROBLEMS.values():
            permutations = {case.permutation for case in (*self.first, *cases) if case.problem == given.name}
            given.store_grid(self.catalog, *sorted(permutations), grid=(3, 2))
        self.first += [Case("directed", "broadcast", (1,), switch=switch) for switch in VARIANTS]
        # At learning rate 0 nothing changes, so the checkpoints of these runs hold the initial weights.
        configs = [case.config(self.catalog, lr=0.0, epochs=1) for case in self.first]
        configs += [case.config(self.catalog, save_embeddings=case in PREDICTED) for case in cases]
        results = train_all(folder, configs, timeout=1000)
        self.of = dict(zip([*self.first, *cases], results, strict=True))

    def having(self, *cases: Case) -> list[Case]:
        """Those of the cases that were trained."""
        found = [case for case in cases if case in self.of]
        assert found
        return found

    def arrays(self, case: Case) -> dict[str, NDArray[Any]]:
        return dict(read_checkpoint(self.catalog[case.problem].run_path(case.run) / "checkpoint").arrays)

    def dense(self, case: Case) -> DenseGCN:
        """The dense model with the initial weights of all runs."""
        start = next(first for first in self.first if first.depth == case.depth)
        operator = normalized(PROBLEMS[case.problem].adjacency.toarray(), "symmetric")
        return from_arrays(operator, self.arrays(start), case.depth)

    def compare(self, case: Case) -> None:
        """Compare losses, parameters and trained features with the dense reference."""
        given, dense, result = PROBLEMS[case.problem], self.dense(case), self.of[case]
        assert "error" not in result, result
        feature = given.feature.astype(float)
        losses = train_dense(
            dense, feature, given.label, given.training, EPOCHS, LR, "adam", train_features=case.train_features
        )
        assert_close(result["loss"], losses, steps=EPOCHS * 3, message=str(case))
        assert result["grid"] == list(case.grid)
        arrays = self.arrays(case)
        trained = from_arrays(np.empty(0), arrays, case.depth)  # without an operator: only the parameters are compared
        for mine, expected in zip(trained.parameters, dense.parameters, strict=True):
            assert_close(mine, expected, steps=EPOCHS * 3, bits=ADAM_BITS, message=str(case))
        if case.train_features:
            assert_close(arrays["parameter/feature"], feature, steps=EPOCHS * 3, bits=ADAM_BITS, message=str(case))
            assert not np.allclose(feature, given.feature)


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    chosen = CASES if request.param else [covering(cases, Case.shows, lambda case: case.ranks) for cases in CASES]
    return Results(tmp_path_factory.mktemp("algorithms"), [case for cases in chosen for case in cases])


@pytest.mark.parametrize("algorithm", ON_GRIDS)
def test_every_grid_gives_the_dense_loss_curve_and_parameters(results: Results, algorithm: str) -> None:
    for case in results.having(*EVERY_GRID):
        if case.algorithm == algorithm:
            results.compare(case)


@pytest.mark.parametrize("name", sorted({case.problem for case in ODD_GRAPHS + DEEPER}))
def test_empty_ranks_isolated_vertices_weights_and_depth_change_no_result(results: Results, name: str) -> None:
    for case in results.having(*ODD_GRAPHS, *DEEPER):
        if case.problem == name:
            results.compare(case)


@pytest.mark.parametrize("switch", SAVINGS)
def test_options_that_save_work_change_no_result(results: Results, switch: str) -> None:
    for case in results.having(*SWITCHED):
        if case.switch == switch:
            results.compare(case)


@pytest.mark.parametrize("algorithm", ON_GRIDS)
def test_input_features_are_trained_on_every_layout(results: Results, algorithm: str) -> None:
    for case in results.having(*FEATURES):
        if case.algorithm == algorithm:
            results.compare(case)


def test_dropout_has_the_same_masks_on_every_layout(results: Results) -> None:
    curves = [results.of[case]["loss"] for case in results.having(*DROPPED)]
    for curve in curves[1:]:
        assert_close(curve, curves[0], steps=EPOCHS * 3)
    assert abs(curves[0][-1] - results.of[PREDICTED[0]]["loss"][-1]) > 1e-6


def _dense_variant(results: Results, switch: str, train_features: bool) -> tuple[list[float], dict[str, NDArray[Any]]]:
    """Losses and parameters of the dense model."""
    given, options = PROBLEMS["directed"], dict(VARIANTS[switch])
    kind, lr = options.pop("model", "gcn"), options.pop("lr", LR)
    options.pop("hidden", None)
    arrays = results.arrays(Case("directed", "broadcast", (1,), switch=switch))
    if train_features:
        arrays["parameter/feature"] = given.feature.astype(float)
    dense = DenseModel.from_arrays(kind, given.adjacency.toarray(), arrays, **options)
    losses = dense.train(given.feature, given.label, given.training, EPOCHS, lr, "adam")
    return losses, {name: parameter.detach().numpy() for name, parameter in dense.parameters.items()}


@pytest.mark.parametrize(("switch", "features"), [*((switch, False) for switch in VARIANTS), ("sage", True)])
def test_other_models_and_norms_equal_the_dense_ones(results: Results, switch: str, features: bool) -> None:
    losses, parameters = _dense_variant(results, switch, features)
    for case in results.having(*(case for case in VARIED[switch] if case.train_features == features)):
        assert_close(results.of[case]["loss"], losses, steps=EPOCHS * 3, message=str(case))
        arrays = results.arrays(case)
        for name, parameter in parameters.items():
            mine = arrays[f"parameter/{name}"]
            # A bias before a batch norm has no effect: its gradient is rounding noise, which Adam magnifies.
            assert_close(mine, parameter, steps=EPOCHS * 3, bits=ADAM_BITS + 4, message=f"{case} {name}")


def _cuts(case: Case, orders: tuple[bool, ...]) -> list[tuple[traffic.Cut, traffic.Cut, traffic.Cut, traffic.Cut]]:
    """For every layer, the cuts of the product's input and output, and of the layer's input and output."""
    names = ("columns", "rows") if case.permutation == "double" else ("rows", "rows")
    if case.algorithm == "tensor3d":
        return traffic.plane_cuts(orders, names)
    rows, columns = ((0, 2)[: len(case.grid) - 1], (1,)) if case.algorithm in {"summa", "split3d"} else ((0, 1), ())
    rows = tuple(axis for axis in rows if axis < len(case.grid))
    ends = [traffic.Cut(names[layer % 2], rows, columns) for layer in range(len(orders) + 1)]
    return [(before, after, before, after) for before, after in pairwise(ends)]


@pytest.mark.parametrize("switch", ["sage", "residual"])
def test_realignment_sends_each_rank_only_what_it_lacks(results: Results, switch: str) -> None:
    for case in results.having(*VARIED[switch]):
        shards = results.catalog["directed"].grid_shards(permutation=case.permutation)
        vertices = {order: shards.vertex_ids(order, (0, shards.num_vertices)) for order in ("rows", "columns")}
        dims = (5, *VARIANTS[switch]["hidden"], 3)
        orders = tuple(2 * before <= 2 * after for before, after in pairwise(dims))
        expected = {"align forward": [0, 0], "align backward": [0, 0]}
        for layer, (product, result, enters, leaves) in enumerate(_cuts(case, orders)):
            if switch == "residual" and (layer == 0 or dims[layer] != dims[layer + 1]):
                continue
            source, target = (enters, leaves) if switch == "residual" else (product, result)
            if switch == "sage" and layer == 0:
                if not case.train_features:
                    continue
                source = replace(source, rows=(0, 2))
            width = dims[layer] if switch == "residual" or orders[layer] else dims[layer + 1]
            for kind, ends in (("align forward", (source, target)), ("align backward", (target, source))):
                for number, count in enumerate(traffic.alignment(case.grid, *ends, vertices, width)):
                    expected[kind][number] += count
        for kind, counts in expected.items():
            found = [results.of[case][f"{what}_by_kind"].get(kind, 0) for what in ("bytes", "messages")]
            assert found == counts, (case, kind)


def test_predictions_and_accuracy_are_those_of_the_dense_model_in_vertex_order(results: Results) -> None:
    for case in results.having(*PREDICTED):
        given = PROBLEMS[case.problem]
        operator = normalized(given.adjacency.toarray(), "symmetric")
        outputs = from_arrays(operator, results.arrays(case), case.depth).layers(given.feature.astype(float))
        predictions = Run.open(results.catalog[case.problem], case.run).predictions()
        assert_close(predictions.score(), outputs[-1], steps=3, message=str(case))
        assert_close(predictions.embedding(), outputs[-2], steps=3, message=str(case))
        assert np.array_equal(predictions.label(), predictions.score().argmax(1)), case
        for figure, value in (("train_accuracy", 1), ("val_accuracy", 2), ("test_accuracy", 3)):
            chosen = (given.split == value) & (given.label >= 0)
            assert results.of[case][figure] == (predictions.label()[chosen] == given.label[chosen]).mean(), case


def expected_traffic(given: Problem, config: TrainConfig) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes and messages of an epoch by the papers' formulas."""
    dims = (5, *config.model.hidden, 3)
    gradient = config.model.train_features or not config.model.skip_input_gradient
    kept = config.model.cache_input_product and config.model.product_order != "transform-first" and not gradient
    cheaper = [
        before * (1 + (layer > 0 or gradient)) <= 2 * after for layer, (before, after) in enumerate(pairwise(dims))
    ]
    given_order = {"auto": cheaper, "propagate-first": [True] * len(cheaper)}.get(
        config.model.product_order, [False] * len(cheaper)
    )
    orders = (kept or given_order[0], *given_order[1:])
    epoch = traffic.Epoch(
        len(given.label), given.adjacency.nnz, int(given.training.sum()), dims, orders, kept, gradient
    )
    grid = config.algorithm.grid or ()
    if config.algorithm.name in {"broadcast", "replicated"}:
        traffic.row_blocks(epoch, *grid)
    elif config.algorithm.name == "tensor3d":
        x, y, z = grid
        traffic.tensor3d(epoch, x, y, z, blocks=config.algorithm.aggregation_blocks)
    else:
        rows, columns, layers = (*grid, 1)[:3]
        traffic.summa(epoch, rows, columns, layers, config.algorithm.summa_width)
    return epoch.counted()


@pytest.mark.parametrize("algorithm", ON_GRIDS)
def test_bytes_and_messages_of_an_epoch_equal_the_papers_formulas(results: Results, algorithm: str) -> None:
    # The formulas do not cover the blocks that are sent for weighted edges.
    odd = [case for case in ODD_GRAPHS if case.problem != "weighted"]
    for case in results.having(*EVERY_GRID, *SWITCHED, *FEATURES, *DEEPER, *odd):
        if case.algorithm == algorithm:
            expected = expected_traffic(PROBLEMS[case.problem], case.config(results.catalog))
            found = results.of[case]["bytes_by_kind"], results.of[case]["messages_by_kind"]
            assert found == tuple(expected), case


def predicted_traffic(given: Problem, config: TrainConfig) -> Volume:
    """Bytes and messages of an epoch as the planner predicts them."""
    facts = GraphFacts(
        num_vertices=len(given.label),
        nnz=given.adjacency.nnz,
        num_features=given.feature.shape[1],
        num_outputs=3,
        num_training=int(given.training.sum()),
        symmetric=given.symmetric,
        weighted=given.weighted,
    )
    return Volume.of(epoch_steps(config.algorithm, workload(config, facts)))


@pytest.mark.parametrize("algorithm", ON_GRIDS)
def test_predicted_words_and_messages_equal_the_counted_ones(results: Results, algorithm: str) -> None:
    chosen = [case for case in results.of if case.algorithm == algorithm]
    assert chosen
    for case in chosen:
        predicted = predicted_traffic(PROBLEMS[case.problem], case.config(results.catalog))
        found = results.of[case]
        # What moves between two random orders is known on average only; test_volume compares that.
        estimated = {"align forward", "align backward"} if case.permutation == "double" else set()
        for counted, known in (
            (found["bytes_by_kind"], predicted.bytes),
            (found["messages_by_kind"], predicted.messages),
        ):
            assert _without(known, estimated) == _without(counted, estimated), case


def _without(counts: Mapping[str, float], names: set[str]) -> dict[str, float]:
    return {name: count for name, count in counts.items() if name not in names}
