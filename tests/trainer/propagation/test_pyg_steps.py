"""The steps that are stored are those of PyTorch Geometric's own classes: SIGN, SGConv, APPNP and a mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gnnloom.storage import Catalog
from support.mpi import run_program
from support.problems import Problem, problem
from support.propagated import reference_steps

STEPS, ALPHA, RANKS = 3, 0.15, 3
PROBLEMS = [
    problem("directed", 60, 240, symmetric=False),
    problem("undirected", 61, 150, symmetric=True),
    problem("weighted", 45, 200, symmetric=False, weighted=True),
    problem("isolated", 50, 40, symmetric=False, loops=False),
]
#: Options of the propagations, by what they are compared with.
WAYS: dict[str, dict[str, Any]] = {
    "powers": {"normalization": "symmetric"},
    "appnp": {"normalization": "symmetric", "ppr": ALPHA},
    "mean": {"normalization": "mean"},
}


def _edges(given: Problem, *, loops: bool) -> tuple[Tensor, Tensor]:
    """Sources and targets, and weights."""
    adjacency = given.adjacency.tocoo()
    kept = adjacency.row != adjacency.col if not loops else slice(None)
    ends = np.stack([adjacency.col[kept], adjacency.row[kept]]).astype(np.int64)
    return torch.from_numpy(ends), torch.from_numpy(adjacency.data[kept].astype(np.float64))


def _steps_of_pyg(given: Problem, way: str) -> Iterator[tuple[int, Tensor]]:
    """Steps of a propagation by number, from whichever classes compute them."""
    # Here, as every process of a test run collects this module, and the import takes seconds.
    data, nn, transforms = (pytest.importorskip(f"torch_geometric.{name}") for name in ("data", "nn", "transforms"))
    features = torch.from_numpy(given.feature).double()
    edges, weights = _edges(given, loops=True)
    # As users call the classes: they add the loops that an ingest has added. Those have a weight of 1.
    adds = not given.weighted and bool((given.adjacency.diagonal() == 1).all())
    bare, bare_weights = _edges(given, loops=not adds)
    if way == "powers":
        sign = transforms.SIGN(STEPS)(data.Data(x=features, edge_index=edges, edge_weight=weights))
        for step in range(1, STEPS + 1):
            yield step, sign[f"x{step}"]
            conv = nn.SGConv(features.shape[1], features.shape[1], step, bias=False, add_self_loops=adds).double()
            with torch.no_grad():
                conv.lin.weight.copy_(torch.eye(features.shape[1]))
                yield step, conv(features, bare, bare_weights)
    elif way == "appnp":
        yield STEPS, nn.APPNP(STEPS, ALPHA, add_self_loops=adds)(features, bare, bare_weights)
    else:
        # A mean by weights is a sum of shares.
        total = torch.zeros(len(features), dtype=torch.float64).index_add(0, edges[1], weights)
        for step in range(1, STEPS + 1):
            features = nn.SimpleConv("sum")(features, edges, weights / total[edges[1]])
            yield step, features


# SIGN makes a sparse matrix of torch, which warns that it does not check itself.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sparse")
def test_steps_equal_those_of_pyg(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    cases = [(given, way, ranks) for given in PROBLEMS for way in WAYS for ranks in (1, RANKS)]
    for given in PROBLEMS:
        given.store(catalog, 1, RANKS)
    fixed = {"catalog": str(catalog.root), "steps": STEPS, "threads": 1, "memory": 1 << 40}
    jobs = [{**fixed, "dataset": given.name, "ranks": ranks, **WAYS[way]} for given, way, ranks in cases]
    results = run_program(RANKS, "propagate_all", tmp_path, jobs)
    for (given, way, ranks), result in zip(cases, results, strict=True):
        found, where = catalog[given.name].propagated(result["key"]), f"{given.name} {way} on {ranks}"
        # A float32 sum is exact relative to the sum of the absolute values.
        scales = reference_steps(given.adjacency, np.abs(given.feature), STEPS, found.normalization, found.ppr)
        most = int(np.diff(given.adjacency.indptr).max())
        compared = set[int]()
        for step, expected in _steps_of_pyg(given, way):
            limit = 4 * step * float(np.finfo(np.float32).eps) * np.sqrt(most) * scales[step - 1]
            assert (np.abs(found.read(step) - expected.numpy()) <= limit).all(), (where, step)
            compared.add(step)
        assert compared == set(found.steps), where
