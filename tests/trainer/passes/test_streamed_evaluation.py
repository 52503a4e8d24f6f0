"""Outputs from disk, in ranges of rows and blocks of columns, are those of the whole graph in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.trainer.config.train_config import TrainConfig
from support.covering import FEW_OR_EVERY
from support.mpi import run_program
from support.problems import problem
from support.tolerance import assert_close

PROBLEMS = {
    given.name: given
    for given in (
        problem("directed", 60, 240, symmetric=False),
        problem("undirected", 61, 150, symmetric=True),
        problem("weighted", 45, 200, symmetric=False, weighted=True),
        problem("fewer-vertices-than-ranks", 3, 5, symmetric=False),
        problem("empty-ranks", 40, 160, symmetric=False, crowded=True),
    )
}
RANKS = (1, 2, 3, 4)
#: Columns of a block, rows of a range, and whether matrices are on disk.
SHAPES = {
    "column by column": {"width": 1, "on_disk": True, "range_rows": 7},
    "some columns": {"width": 3, "on_disk": True, "range_rows": 16},
    "all columns": {"width": 100, "on_disk": True, "range_rows": 1000},
    "memory": {"width": 100, "on_disk": False, "range_rows": 9},
}
#: Options by the name of a model that is evaluated.
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"model": "gcn"},
    "gcn-wide": {"model": "gcn", "hidden": (9, 11)},
    "gcn-narrow": {"model": "gcn", "hidden": (3, 2)},
    "gcn-one-layer": {"model": "gcn", "hidden": ()},
    "gcn-residual": {"model": "gcn", "residual": True, "norm": "layer"},
    "sage": {"model": "sage"},
    "sage-narrow": {"model": "sage", "hidden": (3, 3), "residual": True, "norm": "batch"},
    "sage-unit": {"model": "sage", "unit_embedding": True, "norm": "layer"},
    "gin": {"model": "gin"},
    "gin-residual": {"model": "gin", "residual": True, "unit_embedding": True},
    "gin-narrow": {"model": "gin", "hidden": (2, 3), "norm": "batch"},
    "gcn-transform-first": {"model": "gcn", "product_order": "transform-first"},
    "sage-transform-first": {"model": "sage", "product_order": "transform-first"},
    "sage-rows": {"model": "sage", "feature_norm": "row"},
    "gcn-mean": {"model": "gcn", "normalization": "mean"},
}
FEW = [
    ("directed", 1, "gcn", "column by column"), ("directed", 4, "sage", "some columns"),
    ("undirected", 3, "gin", "all columns"),
    ("weighted", 2, "gcn", "some columns"), ("fewer-vertices-than-ranks", 4, "gcn", "column by column"),
    ("empty-ranks", 3, "sage-narrow", "some columns"), ("directed", 1, "gin-residual", "memory"),
    ("undirected", 2, "gcn-residual", "some columns"), ("directed", 1, "gcn-narrow", "some columns"),
    ("directed", 1, "gcn-one-layer", "some columns"), ("directed", 2, "sage-unit", "column by column"),
    ("directed", 1, "gcn-wide", "some columns"), ("directed", 1, "sage-transform-first", "some columns"),
    ("undirected", 1, "gcn-transform-first", "memory"), ("directed", 1, "sage-rows", "column by column"),
    ("directed", 2, "gin-narrow", "some columns"), ("weighted", 1, "gcn-mean", "memory"),
]  # fmt: skip
EVERY = [
    (name, ranks, model, shape)
    for name in PROBLEMS
    for ranks in RANKS
    for model in MODELS
    for shape in SHAPES
    if name != "weighted" or model.startswith("gcn")
]
#: Machine epsilon of bfloat16.
BF16 = 2.0**-7
PRECISIONS = ("float64", "float32", "bf16")


def _case(catalog: Catalog, dataset: str, ranks: int, model: str, shape: str, precision: str) -> dict[str, Any]:
    fixed: dict[str, Any] = {"hidden": (7, 7), "dropout": 0.5, "precision": precision, "threads": 1, "seed": 3}
    config = TrainConfig.of(
        catalog=str(catalog.root), dataset=dataset, ranks=ranks, run="any", **{**fixed, **MODELS[model]}
    )
    return {"config": config.to_json(), "shape": SHAPES[shape]}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("streamed") / "catalog")
    for given in PROBLEMS.values():
        given.store(catalog, *RANKS)
    return catalog


@pytest.mark.slow
@pytest.mark.parametrize("every", FEW_OR_EVERY)
def test_outputs_from_disk_are_those_of_the_whole_graph_in_memory(
    tmp_path: Path, catalog: Catalog, every: bool
) -> None:
    chosen = [(*case, PRECISIONS[number % 3]) for number, case in enumerate(EVERY if every else FEW)]
    cases = [_case(catalog, *case) for case in chosen]
    # Every session forms groups, and a job can have some hundreds.
    jobs = [cases[start : start + 150] for start in range(0, len(cases), 150)]
    results = [found for job in jobs for found in run_program(max(RANKS), "streamed", tmp_path, job, timeout=1800)]
    for case, found in zip(chosen, results, strict=True):
        differences, largest = np.split(np.array(found["figures"]), 2)
        for name, difference, scale in zip(found["names"], differences, largest, strict=True):
            message = f"{case} {name}"
            if case[-1] == "bf16":
                # The order of the first layer's products differs, and each is rounded.
                assert difference <= 4 * BF16 * max(1.0, scale), message
            else:
                assert_close(difference / max(1.0, scale), 0.0, steps=3, dtype=np.dtype(case[-1]), message=message)
        assert found["report"]["on_disk"] == SHAPES[case[3]]["on_disk"]
    # Not even after an evaluation in which several ranks wrote files.
    for name in PROBLEMS:
        assert [path.name for path in catalog[name].path.iterdir() if path.is_file()] == ["zarr.json"]
