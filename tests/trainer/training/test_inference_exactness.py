"""What an evaluation calls exact equals the module on the whole graph."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from gnnloom.storage import Catalog
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.trainer.models.networks.edge_model import EdgeModel
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.edge_zoo import GLOBAL, INWARD, OUTWARD, PYG_INWARD, PYG_OUTWARD, TAKES_WEIGHTS
from support.lone_training import lone_session
from support.problems import Problem
from support.sampled import sampled_config, store_for_sampling
from support.tolerance import assert_close

N: Final = 60
Edges = Iterable[tuple[int, int]]


def _problem(
    name: str, edges: Edges, *, symmetric: bool = False, weighted: bool = False, loops: Iterable[int] = ()
) -> Problem:
    """A problem with these edges (source, target) of :data:`N` vertices, whose numbers are shuffled."""
    rng = np.random.default_rng(5)
    source, target = rng.permutation(N)[np.array([*edges, *((each, each) for each in loops)]).T]
    matrix: Any = scipy.sparse.coo_array((np.ones(len(source)), (target, source)), shape=(N, N)).tocsr()
    matrix = (matrix + matrix.T if symmetric else matrix).tocsr()
    matrix.data[:] = rng.uniform(0.1, 2, matrix.nnz).astype(np.float32) if weighted else 1
    matrix.sort_indices()
    feature = rng.standard_normal((N, 5)).astype(np.float32)
    return Problem(name, matrix, symmetric, feature, rng.integers(0, 3, N), rng.integers(1, 4, N), weighted)


def _random(count: int, *, seed: int, within: int = N) -> list[tuple[int, int]]:
    ends = np.random.default_rng(seed).integers(0, within, (count, 2)).tolist()
    return sorted({(source, target) for source, target in ends if source != target})


#: The last vertices of some are isolated.
GRAPHS: Final[Mapping[str, Problem]] = {
    given.name: given
    for given in (
        _problem("random", _random(180, seed=0)),
        _problem("loops", _random(180, seed=1), loops=range(N)),
        _problem("acyclic", [(min(pair), max(pair)) for pair in _random(150, seed=2)]),
        _problem("stars", [*((leaf, 0) for leaf in range(2, 25)), *((1, leaf) for leaf in range(20, 50)), (0, 1)]),
        _problem(
            "cycle",
            [*((at, (at + 1) % 50) for at in range(50)), *_random(15, seed=3, within=50)],
            loops=range(0, 50, 2),
        ),
        _problem("bipartite", [(source, 25 + target) for source, target in _random(90, seed=4, within=25)]),
        _problem("weighted", _random(180, seed=6), weighted=True),
        _problem("undirected", _random(90, seed=7), symmetric=True),
    )
}
#: Every kind of the own modules on one graph, and some of PyG's.
QUICK: Final = {
    *zip((*INWARD, *OUTWARD, *GLOBAL), itertools.cycle(GRAPHS)),
    *zip(OUTWARD, itertools.cycle(["undirected", *GRAPHS])),
    ("GCNConv", "weighted"),
    ("GATv2Conv", "stars"),
    ("DirGNNConv", "random"),
    ("DirGNNConv", "undirected"),
}
CASES: Final = [*itertools.product((*INWARD, *OUTWARD, *GLOBAL, *PYG_INWARD, *PYG_OUTWARD), GRAPHS)]


@dataclass(frozen=True)
class Evaluated:
    """Scores of an evaluation, and what the module gives on the whole graph."""

    facts: Mapping[str, Any]
    found: list[Tensor]
    expected: Tensor


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("exact") / "catalog")
    for given in GRAPHS.values():
        store_for_sampling(catalog, given, 1)
    return catalog


def evaluate(catalog: Catalog, patch: pytest.MonkeyPatch, name: str, *model_options: str, **options: Any) -> Evaluated:
    """Evaluate a module in batches of one vertex, and of some."""
    given, hidden = GRAPHS[name], options.setdefault("hidden", (6,))
    fixed: dict[str, Any] = {"fanout": (ALL,) * (len(hidden) + 1), "feature_norm": "none", "eval_every": 0, "seed": 3}
    model = options.pop("model", f"support.edge_zoo:{'Weighted' * given.weighted}Zoo")
    config = sampled_config(
        catalog, name, "neighbor", "exact", model=model, model_options=model_options, **fixed, **options
    )
    session = lone_session(config)
    assert isinstance(session.model, EdgeModel)
    session.model.eval()
    inputs, found = session.take_inputs(), list[Tensor]()
    before = {key: value.clone() for key, value in session.model.module.state_dict().items()}
    with torch.no_grad():
        for carried, first in ((1, 1), (1 << 24, 7)):
            patch.setattr("gnnloom.trainer.passes.ranges.CARRIED", carried)
            patch.setattr("gnnloom.trainer.passes.ranges._FIRST", first)
            found.append(session.model.whole_scores(inputs))
        matrix, dtype = given.adjacency.tocoo(), session.model.dtype
        index = torch.tensor(np.stack([matrix.col, matrix.row]).astype(np.int64))
        weight = (torch.tensor(matrix.data, dtype=dtype),) if given.weighted else ()
        expected = session.model.module(torch.tensor(given.feature, dtype=dtype), index, *weight)
    after = session.model.module.state_dict()
    for key, value in before.items():
        assert after[key].dtype == value.dtype, key
        assert torch.equal(after[key], value), key
    return Evaluated(session.model.inference_facts, found, expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.long) for case in CASES],
)
def test_what_is_called_exact_equals_the_module_on_the_whole_graph(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, name: str
) -> None:
    if kind in PYG_INWARD or kind in PYG_OUTWARD:
        pytest.importorskip("torch_geometric")
        if GRAPHS[name].weighted and kind not in TAKES_WEIGHTS:
            pytest.skip("takes no weights of edges")
    caplog.set_level(logging.WARNING)
    evaluated = evaluate(catalog, monkeypatch, name, f"kind={kind}")
    is_outward = kind in OUTWARD or kind in PYG_OUTWARD
    is_exact = kind not in GLOBAL and not (is_outward and not GRAPHS[name].symmetric)
    assert evaluated.facts["inference_exact"] is is_exact
    assert ("scores differ from the scores on the whole graph" in caplog.text) is not is_exact
    if is_exact:
        for found in evaluated.found:
            assert_close(found, evaluated.expected, steps=3)


@pytest.mark.parametrize(
    ("kind", "hidden", "name", "hops"),
    [
        ("cyclic-triangles", (6, 6), "random", 5),
        ("cyclic-squares", (6,), "random", 5),
        ("transitive-triangles", (6, 6), "random", 4),
        ("both-directions-only", (6, 6), "loops", 4),
        ("reversed", (6, 6), "undirected", 4),
        ("sum", (1, 1), "random", 3),
    ],
)
def test_as_many_hops_are_read_as_layers_of_triangles_and_reversed_edges_need(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, kind: str, hidden: tuple[int, ...], name: str, hops: int
) -> None:
    evaluated = evaluate(catalog, monkeypatch, name, f"kind={kind}", hidden=hidden)
    assert (evaluated.facts["inference_exact"], evaluated.facts["inference_hops"]) == (True, hops)
    for found in evaluated.found:
        assert_close(found, evaluated.expected, steps=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("far-mean", "undirected"),
        ("far-mean", "cycle"),
        *(pytest.param(kind, "undirected", marks=pytest.mark.long) for kind in ("TAGConv", "SGConv", "ChebConv")),
    ],
)
def test_what_is_far_away_counts_in_float32_too(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    if kind in PYG_INWARD or kind in PYG_OUTWARD:
        pytest.importorskip("torch_geometric")
    single, double = (
        evaluate(catalog, monkeypatch, name, f"kind={kind}", hidden=(6, 6), precision=precision)
        for precision in ("float32", "float64")
    )
    assert single.facts == double.facts
    assert single.facts["inference_exact"]
    for found in single.found:
        torch.testing.assert_close(found, single.expected, rtol=1e-5, atol=1e-6 * float(single.expected.abs().max()))


def test_what_takes_float32_only_is_tried_in_float32(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, is_exact in (("float32-only", True), ("float32-reversed", False)):
        evaluated = evaluate(catalog, monkeypatch, "random", f"kind={kind}", precision="float32")
        assert evaluated.facts["inference_exact"] is is_exact
        assert evaluated.found[0].dtype == torch.float32


def test_what_fails_on_the_trial_graph_is_evaluated_and_not_called_exact(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No degree of the graph exceeds those that it knows.
    evaluated = evaluate(catalog, monkeypatch, "random", "kind=few-degrees")
    assert evaluated.facts["inference_exact"] is False
    for found in evaluated.found:
        assert_close(found, evaluated.expected, steps=3)


def test_values_that_are_not_numbers_on_vertices_without_neighbors_are_those_of_the_module(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 0 / 0 on the isolated vertices of the trial graph.
    evaluated = evaluate(catalog, monkeypatch, "undirected", "kind=unclamped-mean")
    assert evaluated.facts["inference_exact"]
    for found in evaluated.found:
        torch.testing.assert_close(found, evaluated.expected, equal_nan=True)


def test_jumping_knowledge_is_exact_where_its_layers_are(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, is_exact in (("sum", True), ("reversed", False)):
        evaluated = evaluate(catalog, monkeypatch, "acyclic", f"kind={kind}", "joins=true")
        assert evaluated.facts["inference_exact"] is is_exact
        if is_exact:
            assert_close(evaluated.found[0], evaluated.expected, steps=3)


def test_the_memory_of_a_module_that_reads_out_edges_is_planned(catalog: Catalog) -> None:
    config = sampled_config(
        catalog,
        "random",
        "neighbor",
        "planned",
        model="support.edge_zoo:Zoo",
        model_options=("kind=reversed",),
        fanout=(2, 2),
    )
    assert project_training(config).batch_memory > 0
