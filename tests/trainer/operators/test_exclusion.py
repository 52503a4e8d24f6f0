"""Products of steps that exclude edges equal those with a rebuilt graph, and send what the others send."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.storage import Catalog
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.trainer.config.train_config import TrainConfig
from support.covering import FEW_OR_EVERY, covering
from support.dense import normalized
from support.dense_models import DenseModel
from support.mpi import run_program
from support.problems import problem
from support.target_pairs import ListedPairs
from support.tolerance import assert_close

PROBLEMS = {
    given.name: given
    for given in (
        problem("directed", 60, 240, symmetric=False),
        problem("undirected", 61, 150, symmetric=True),
        problem("weighted", 45, 200, symmetric=False, weighted=True),
        problem("fewer-vertices-than-ranks", 3, 6, symmetric=False),
    )
}
RANKS = (1, 2, 3, 4)
DIM = 6


@dataclass(frozen=True)
class Case:
    """Products of one operator."""

    problem: str
    algorithm: str
    grid: tuple[int, ...]
    normalization: str = "symmetric"
    dtype: str = "float64"
    permutation: str = "double"
    on_disk: bool = False
    options: tuple[tuple[str, int | str], ...] = ()

    @property
    def ranks(self) -> int:
        return int(np.prod(self.grid))

    def shows(self) -> set[Hashable]:
        """What a few cases must show, too."""
        told = (self.problem, self.normalization, self.dtype, self.permutation, self.on_disk)
        return {
            (self.algorithm, self.ranks),
            (self.algorithm, self.options),
            (self.problem, self.ranks > 1),
            *enumerate(told),
        }

    #: A pair that takes the place of the first one.
    wrong: tuple[int, int, float] | None = None
    other_directions: bool = False
    with_reverse: bool = False

    @property
    def pairs(self) -> ListedPairs:
        given = PROBLEMS[self.problem]
        pairs = ListedPairs.of(given.adjacency, 11, symmetric=given.symmetric, weighted=given.weighted)
        return pairs.with_reverse(given.adjacency) if self.with_reverse else pairs

    @property
    def steps(self) -> list[NDArray[np.int64] | None]:
        """A third of the pairs, another half, nothing, all of them, and nothing."""
        rng, count = np.random.default_rng(5), self.pairs.num_pairs
        some, others = (np.sort(rng.choice(count, count // share, replace=False)) for share in (3, 2))
        return [some, others, None, np.arange(count), None]

    @property
    def operands(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rng, shape = np.random.default_rng(6), (len(PROBLEMS[self.problem].label), DIM)
        return rng.standard_normal(shape), rng.standard_normal(shape)

    def content(self, catalog: Catalog) -> dict[str, Any]:
        pairs, (features, gradient) = self.pairs, self.operands
        if self.wrong is not None:
            pairs.pair[0], pairs.weight[0] = self.wrong[:2], self.wrong[2]
        return {
            "catalog": str(catalog.root),
            "dataset": self.problem,
            "algorithm": self.algorithm,
            "grid": self.grid,
            "normalization": self.normalization,
            "dtype": self.dtype,
            "permutation": self.permutation,
            "on_disk": self.on_disk,
            "options": dict(self.options),
            "pair": pairs.pair.tolist(),
            "weight": pairs.weight.tolist(),
            "symmetric": pairs.symmetric != self.other_directions,
            "features": features.tolist(),
            "gradient": gradient.tolist(),
            "steps": [None if step is None else step.tolist() for step in self.steps],
        }

    def check(self, found: dict[str, Any]) -> None:
        assert "error" not in found, found
        features, gradient = self.operands
        adjacency = PROBLEMS[self.problem].adjacency
        for step, results in zip(self.steps, found["steps"], strict=True):
            chosen = np.empty(0, np.int64) if step is None else step
            matrix = normalized(self.pairs.without(adjacency, chosen), self.normalization)
            for layer, (product, adjoint) in enumerate(results["layers"]):
                message = f"{self} layer {layer}"
                if self.dtype == "float64":
                    assert_close(product, matrix @ features, message=message)
                    assert_close(adjoint, matrix.T @ gradient, message=message)
                else:
                    allowed = {"float32": 1e-5, "bfloat16": 4e-2}[self.dtype]
                    np.testing.assert_allclose(product, matrix @ features, rtol=allowed, atol=allowed, err_msg=message)
                    np.testing.assert_allclose(
                        adjoint, matrix.T @ gradient, rtol=allowed, atol=allowed, err_msg=message
                    )
        # A step that excludes nothing has the bits of another one, and no step sends more.
        assert found["steps"][2] == found["steps"][4]
        assert len({tuple(results["traffic"]) for results in found["steps"]}) == 1


def _row_cases(ranks: int) -> list[Case]:
    normalizations = ("symmetric", "mean", "none")
    cases = [Case(name, "p2p", (ranks,), kind) for name in PROBLEMS for kind in normalizations]
    for name in ("undirected", "weighted"):
        cases += [Case(name, "p2p", (ranks,), on_disk=True)]
        cases += [Case(name, "p2p", (ranks,), dtype=dtype) for dtype in ("float32", "bfloat16")]
    # Sums for other ranks lack the excluded entries, too.
    cover = (("exchange", "cover"),)
    cases += [Case(name, "p2p", (ranks,), options=cover) for name in PROBLEMS]
    cases += [Case("weighted", "p2p", (ranks,), dtype="bfloat16", options=cover)]
    return cases


GRIDS: dict[int, list[tuple[str, tuple[int, ...]]]] = {
    1: [("broadcast", (1,)), ("summa", (1, 1)), ("tensor3d", (1, 1, 1))],
    4: [
        ("broadcast", (4,)),
        ("replicated", (2, 2)),
        ("summa", (2, 2)),
        ("split3d", (2, 1, 2)),
        ("tensor3d", (2, 2, 1)),
    ],
    8: [
        ("broadcast", (8,)),
        ("replicated", (2, 4)),
        ("summa", (4, 2)),
        ("split3d", (2, 2, 2)),
        ("tensor3d", (2, 2, 2)),
    ],
}
#: Every kind of graph, of normalization and of order at least once, and products in many pieces.
VARIANTS: list[dict[str, Any]] = [
    {"problem": "directed"},
    {"problem": "directed", "permutation": "partition", "normalization": "mean"},
    {"problem": "undirected", "normalization": "mean"},
    {"problem": "undirected", "permutation": "single", "dtype": "bfloat16"},
    {"problem": "weighted", "normalization": "none"},
    {"problem": "weighted", "dtype": "float32"},
    {"problem": "weighted", "permutation": "none"},
    {"problem": "fewer-vertices-than-ranks"},
]
IN_PIECES = {"summa": ("summa_width", 7), "split3d": ("summa_width", 7), "tensor3d": ("aggregation_blocks", 3)}


def _grid_cases(ranks: int) -> list[Case]:
    cases = [
        Case(algorithm=algorithm, grid=grid, **variant) for algorithm, grid in GRIDS[ranks] for variant in VARIANTS
    ]
    cases += [
        Case("directed", algorithm, grid, options=(IN_PIECES[algorithm],))
        for algorithm, grid in GRIDS[ranks]
        if algorithm in IN_PIECES
    ]
    return cases


ROW_CASES = [case for ranks in RANKS for case in _row_cases(ranks)]
GRID_CASES = [case for ranks in GRIDS for case in _grid_cases(ranks)]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("exclusion") / "catalog")
    for given in PROBLEMS.values():
        orders = {case.permutation for case in GRID_CASES if case.problem == given.name}
        given.store_grid(catalog, *sorted(orders), grid=(3, 2))
        given.store(catalog, *RANKS)
    return catalog


def _check(catalog: Catalog, folder: Path, ranks: int, cases: Sequence[Case]) -> None:
    found = run_program(ranks, "exclusion", folder, [case.content(catalog) for case in cases], timeout=600)
    for case, result in zip(cases, found, strict=True):
        case.check(result)


@pytest.mark.slow
@pytest.mark.parametrize("every", FEW_OR_EVERY)
@pytest.mark.parametrize(
    ("cases", "ranks"),
    [
        # The training below has two and three ranks.
        *(
            pytest.param(ROW_CASES, ranks, id=f"rows-{ranks}", marks=[pytest.mark.long] if ranks in {2, 3} else [])
            for ranks in RANKS
        ),
        # Eight ranks on two cores mostly wait.
        *(
            pytest.param(GRID_CASES, ranks, id=f"grids-{ranks}", marks=[pytest.mark.long] if ranks > 4 else [])
            for ranks in GRIDS
        ),
    ],
)
def test_products_and_adjoints_equal_those_with_a_rebuilt_graph(
    catalog: Catalog, tmp_path: Path, cases: list[Case], ranks: int, every: bool
) -> None:
    chosen = cases if every else covering(cases, Case.shows, lambda case: case.ranks)
    _check(catalog, tmp_path, ranks, [case for case in chosen if case.ranks == ranks])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3])
def test_steps_exclude_the_reverses_of_their_pairs_where_there_are_some(
    catalog: Catalog, tmp_path: Path, ranks: int
) -> None:
    where: list[tuple[str, tuple[int, ...]]] = [("p2p", (ranks,)), *([("summa", (1, 1))] if ranks == 1 else [])]
    names = ("directed", "weighted")
    cases = [Case(name, algorithm, grid, with_reverse=True) for name in names for algorithm, grid in where]
    for case in cases:
        own = case.pairs
        assert 0 < np.count_nonzero(own.weight[:, 1]) < own.num_pairs
    _check(catalog, tmp_path, ranks, cases)


#: Models, and the algorithms and grids that train them; GraphSAGE aligns its rows on grids.
TRAINED: dict[str, list[tuple[str, tuple[int, ...]]]] = {
    "gcn": [("p2p", (2,)), ("replicated", (2, 2)), ("split3d", (1, 2, 2))],
    "sage": [("p2p", (3,)), ("tensor3d", (2, 1, 2))],
    "gin": [("p2p", (4,))],
    "gat": [("p2p", (3,)), ("p2p", (1,))],
    "gatv2": [("p2p", (2,))],
}
#: The first step's gradients affect the second epoch's loss.
EPOCHS = 2


def _training(catalog: Catalog, name: str, model: str, algorithm: str, grid: tuple[int, ...]) -> dict[str, Any]:
    case = Case(name, algorithm, grid)
    config = TrainConfig.of(
        catalog=str(catalog.root),
        dataset=name,
        model=model.removesuffix("v2"),
        attention="v2" if model == "gatv2" else "v1",
        algorithm=algorithm,
        grid=grid,
        ranks=case.ranks,
        permutation="double" if algorithm != "p2p" else None,
        hidden=(8, 6),
        heads=2,
        epochs=EPOCHS,
        lr=0.02,
        precision="float64",
        seed=3,
        eval_every=0,
        threads=1,
        cache_input_product=False,
        run=f"{model}-{algorithm}-{case.ranks}",
    )
    pairs, numbers = case.pairs, case.steps[0]
    assert numbers is not None
    return {
        "config": config.to_json(),
        "pair": pairs.pair.tolist(),
        "weight": pairs.weight.tolist(),
        "symmetric": pairs.symmetric,
        "numbers": numbers.tolist(),
    }


@pytest.mark.slow
@pytest.mark.parametrize("every", FEW_OR_EVERY)
def test_training_without_some_edges_has_the_losses_of_a_rebuilt_graph(
    catalog: Catalog, tmp_path: Path, every: bool
) -> None:
    cases = [("directed", model, *where) for model, grids in TRAINED.items() for where in grids]
    # An operator leaves out both directions of an edge for any model, and attention has an operator of its own.
    cases += [("undirected", model, *TRAINED[model][0]) for model in (TRAINED if every else ("gcn", "gat"))]
    jobs = [_training(catalog, *case) for case in cases]
    # At learning rate 0 nothing changes, so the checkpoints of these runs hold the initial weights.
    starts = [_training(catalog, "directed", model, "p2p", (1,)) for model in TRAINED]
    for model, start in zip(TRAINED, starts, strict=True):
        start["config"] |= {"run": f"{model}-start", "lr": 0.0, "epochs": 1}
    found = run_program(4, "exclusion_training", tmp_path, [*starts, *jobs])
    for case, losses in zip(cases, found[len(starts) :], strict=True):
        name, model = case[:2]
        given, one = PROBLEMS[name], Case(name, "p2p", (1,))
        assert one.steps[0] is not None
        rebuilt = one.pairs.without(given.adjacency, one.steps[0])
        arrays = dict(read_checkpoint(catalog["directed"].run_path(f"{model}-start") / "checkpoint").arrays)
        heads = {"heads": 2} if "gat" in model else {}
        expected = [
            DenseModel.from_arrays(model.removesuffix("v2"), matrix, arrays, **heads).train(
                given.feature, given.label, given.training, EPOCHS, 0.02, "adam"
            )
            for matrix in (rebuilt, given.adjacency.toarray())
        ]
        assert_close(losses, expected[0], steps=EPOCHS * 3, message=str(case))
        assert not np.allclose(expected[0], expected[1], rtol=1e-3), case


@pytest.mark.slow
def test_pairs_of_another_graph_fail_all_ranks_with_one_error(catalog: Catalog, tmp_path: Path) -> None:
    given = Case("directed", "p2p", (3,))
    adjacency = PROBLEMS["directed"].adjacency
    # No row of the rank that owns the target has an entry in this column.
    part = PROBLEMS["directed"].part(3)
    target = 0
    known = set(adjacency[part == part[target]].nonzero()[1].tolist()) | set(np.flatnonzero(part == part[target]))
    source = min(set(range(len(part))) - known)
    cases = [
        replace(given, wrong=(3, 60, 1)),
        replace(given, wrong=(-1, 2, 1)),
        replace(given, wrong=(source, target, 1)),
        replace(given, other_directions=True),
    ]
    found = run_program(3, "exclusion", tmp_path, [case.content(catalog) for case in cases])
    errors = [result["error"] for result in found]
    assert errors[0].startswith("pairs 0 to ")
    assert errors[0].endswith("in a graph of 60")
    assert "vertices from -1 to " in errors[1]
    # Another rank reports what it finds.
    assert errors[2] in (f"pair 0: vertices {source} and {target} have no edge in the shards", f"rank {part[0]} failed")
    assert re.search("pairs .* undirected.* shards .* directed", errors[3])
