"""On one rank every model gives the scores and gradients of PyG's layers with the same weights."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from mpi4py import MPI

from gnnloom.storage import Catalog
from gnnloom.trainer.comm.mpi import MpiCommunicator
from gnnloom.trainer.config.model_config import settled_normalization
from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.operators.p2p import PointToPoint
from gnnloom.trainer.place.place import Place
from support.problems import Problem, problem
from support.tolerance import assert_close as close

DIMS = (5, 8, 6, 3)
HEADS = 2
PROBLEMS = {
    "directed": problem("directed", 60, 240, symmetric=False),
    "no-loops": problem("no-loops", 50, 60, symmetric=False, loops=False),
    "undirected": problem("undirected", 40, 100, symmetric=True),
}


def _model(
    given: Problem,
    kind: str,
    folder: Path,
    threads: int = 1,
    *,
    dims: tuple[int, ...] = DIMS,
    heads: int = HEADS,
) -> Model:
    dataset = given.store(Catalog(folder / "catalog"), 1)
    shard = dataset.row_shards(parts=1).shard(0)
    place = Place(torch.float64, threads)
    normalization = settled_normalization(kind.removesuffix("v2"), "auto")
    operator = PointToPoint(MpiCommunicator(MPI.COMM_SELF), shard, normalization, place)
    own = {"heads": heads, "negative_slope": 0.2, "attention": "v2" if kind == "gatv2" else "v1"}
    kind = kind.removesuffix("v2")
    options = ModelOptions(dims=dims, own=own)
    model: Model = MODELS[kind].load()(operator, options, Dropout(0.0, 0, place), 5)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if not name.startswith("weights"):  # biases start at 0, which would hide mistakes
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


#: PyG's name of each parameter list. PyG's linear layers store their weights transposed.
NAMES = {
    "gcn": {"weights": "lin.weight", "biases": "bias"},
    "sage": {"weights": "lin_l.weight", "self_weights": "lin_r.weight", "biases": "lin_l.bias"},
    "gin": {
        "weights": "nn.0.weight",
        "biases": "nn.0.bias",
        "outer_weights": "nn.2.weight",
        "outer_biases": "nn.2.bias",
        "epsilons": "eps",
    },
    "gat": {
        "weights": "lin.weight",
        "biases": "bias",
        "source_attention": "att_src",
        "target_attention": "att_dst",
    },
    "gatv2": {
        "weights": "lin_l.weight",
        "source_biases": "lin_l.bias",
        "target_weights": "lin_r.weight",
        "target_biases": "lin_r.bias",
        "attention": "att",
        "biases": "bias",
    },
}


def _pyg_layer(kind: str, before: int, after: int, last: bool, heads: int) -> torch.nn.Module:
    # Here, as every process of a test run collects this module, and the import takes seconds.
    pyg = pytest.importorskip("torch_geometric.nn")
    layer: torch.nn.Module
    if kind == "gcn":
        layer = pyg.GCNConv(before, after, add_self_loops=False)
    elif kind == "sage":
        layer = pyg.SAGEConv(before, after)
    elif kind == "gin":
        width = before if last else after
        inner, outer = torch.nn.Linear(before, width), torch.nn.Linear(width, after)
        layer = pyg.GINConv(torch.nn.Sequential(inner, torch.nn.ReLU(), outer), train_eps=True)
    else:
        attention = pyg.GATv2Conv if kind == "gatv2" else pyg.GATConv
        layer = attention(before, after if last else after // heads, heads, concat=not last, add_self_loops=False)
    return layer


def _pyg_layers(model: Model, kind: str) -> list[torch.nn.Module]:
    """PyG's layers with the model's weights."""
    dims, heads = model.options.dims, model.options.own["heads"]
    layers = [_pyg_layer(kind, *pair, last=pair == dims[-2:], heads=heads).double() for pair in pairwise(dims)]
    with torch.no_grad():
        for ours, parameter in model.named_parameters():
            theirs = _theirs(layers, kind, ours)
            theirs.copy_(_as_ours(ours, parameter, theirs.shape))
    return layers


def _theirs(layers: list[torch.nn.Module], kind: str, ours: str) -> torch.nn.Parameter:
    """PyG's counterpart of a parameter."""
    kept, layer = ours.rsplit(".", 1)
    return dict(layers[int(layer)].named_parameters())[NAMES[kind][kept]]


def _as_ours(ours: str, tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    return tensor.T if "weights" in ours else tensor.reshape(shape)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("kind", NAMES)
def test_scores_and_gradients_equal_those_of_pyg(tmp_path: Path, name: str, kind: str) -> None:
    _compare(PROBLEMS[name], _model(PROBLEMS[name], kind, tmp_path), kind)


#: Neighbors of a hub.
HUB = 1_000_000


def _hubs() -> Problem:
    """A vertex with a million in-neighbors, which is that of nearly as many, and isolated vertices."""
    others = np.arange(10, HUB + 10)
    rows = np.concatenate([np.zeros(HUB, np.int64), others[:-5]])
    columns = np.concatenate([others, np.zeros(HUB - 5, np.int64)])
    n = HUB + 10
    adjacency = scipy.sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    adjacency.sort_indices()
    feature = np.random.default_rng(3).standard_normal((n, 3)).astype(np.float32)
    label = np.zeros(n, np.int64)
    return Problem("hubs", adjacency, False, feature, label, np.ones(n, np.int64))


# In float64, in which both sides agree to 1e-8; kernels/test_edge_softmax.py has the same sums in float32.
@pytest.mark.long
@pytest.mark.parametrize("heads", [1, 8])
@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_attention_over_a_million_neighbors_equals_that_of_pyg(tmp_path: Path, kind: str, heads: int) -> None:
    given = _hubs()
    model = _model(given, kind, tmp_path, threads=2, dims=(3, 8, 3), heads=heads)
    _compare(given, model, kind, tolerance=1e-8)


def _compare(given: Problem, model: Model, kind: str, tolerance: float | None = None) -> None:
    """Compare scores and all gradients with those of PyG's layers.

    Args:
        tolerance: relative to the largest number, or to 1; some units in the last place by default.
    """
    layers = _pyg_layers(model, kind)

    def assert_close(found: torch.Tensor, expected: torch.Tensor, message: str = "") -> None:
        if tolerance is None:
            close(found, expected, steps=len(layers), message=message)
        else:
            # Sums of a million numbers may cancel out.
            allowed = tolerance * max(1.0, float(expected.abs().max()))
            np.testing.assert_allclose(found, expected, rtol=0, atol=allowed, err_msg=message)

    matrix = given.adjacency.tocoo()
    edges = torch.from_numpy(np.stack([matrix.col, matrix.row]).astype(np.int64))
    feature = torch.tensor(given.feature).double()
    mine, theirs = feature.clone().requires_grad_(), feature.clone().requires_grad_()
    found, expected = model(Inputs(mine)), theirs
    for number, layer in enumerate(layers):
        expected = layer(expected, edges)
        if number < len(layers) - 1:
            expected = torch.nn.functional.elu(expected) if "gat" in kind else torch.relu(expected)
    assert_close(found.detach(), expected.detach())
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.autograd.backward([(found * weight).sum()])
    torch.autograd.backward([(expected * weight).sum()])
    assert mine.grad is not None
    assert theirs.grad is not None
    assert_close(mine.grad, theirs.grad)
    for ours, parameter in model.named_parameters():
        expected_gradient = _theirs(layers, kind, ours).grad
        assert expected_gradient is not None
        gradient = _as_ours(ours, expected_gradient, parameter.shape)
        assert parameter.grad is not None
        assert_close(parameter.grad, gradient, message=ours)


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_threads_do_not_change_a_bit_of_attention(tmp_path: Path, kind: str) -> None:
    results = []
    for threads in (1, 3):
        model = _model(PROBLEMS["directed"], kind, tmp_path / str(threads), threads)
        feature = torch.tensor(PROBLEMS["directed"].feature).double().requires_grad_()
        model(Inputs(feature)).square().sum().backward()
        results.append([feature.grad, *(parameter.grad for parameter in model.parameters())])
    assert all(torch.equal(one, three) for one, three in zip(*results, strict=True))
