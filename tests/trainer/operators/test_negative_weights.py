"""Negative weights are accepted if nothing is normalized by their sums; otherwise all ranks fail with one error."""

from __future__ import annotations

from typing import Any

import pytest

from gnnloom.storage import Catalog
from gnnloom.trainer.config.train_config import TrainConfig
from support.mpi import train_all
from support.problems import problem
from support.tolerance import assert_close

GRIDS = (("p2p", (2,)), ("broadcast", (2,)), ("summa", (1, 2)), ("tensor3d", (2, 1, 1)))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("negative")
    catalog = Catalog(folder / "catalog")
    given = problem("signed", 40, 160, symmetric=False, weighted=True)
    # In one row only, which one rank holds.
    given.adjacency.data[: given.adjacency.indptr[1]] *= -1
    given.store_grid(catalog, "single", grid=(2, 2))
    given.store(catalog, 2)
    fixed: dict[str, Any] = {
        "hidden": (4,),
        "epochs": 3,
        "precision": "float64",
        "seed": 3,
        "eval_every": 0,
        "threads": 1,
    }
    chosen = [(algorithm, grid, kind) for kind in ("symmetric", "none") for algorithm, grid in GRIDS]
    configs = [
        TrainConfig.of(
            catalog=str(catalog.root),
            dataset="signed",
            ranks=2,
            algorithm=algorithm,
            grid=grid,
            normalization=kind,
            run=f"{algorithm}-{kind}",
            **fixed,
        )
        for algorithm, grid, kind in chosen
    ]
    results = train_all(folder, configs)
    return {(algorithm, kind): result for (algorithm, _, kind), result in zip(chosen, results, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [algorithm for algorithm, _ in GRIDS])
def test_a_negative_sum_fails_all_ranks_with_one_error_unless_nothing_is_normalized(
    results: dict[tuple[str, str], dict[str, Any]], algorithm: str
) -> None:
    refused = results[algorithm, "symmetric"]
    # Rank 1 may be the only one that holds the row, and then reports it.
    assert refused["error"].endswith(("a negative or infinite sum, which cannot be normalized", "rank 1 failed"))
    assert refused["code"] == 3
    assert_close(results[algorithm, "none"]["loss"], results["p2p", "none"]["loss"], steps=3 * 3)
