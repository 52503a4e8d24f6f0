"""Blocks of sampled rows: with unlimited fan-outs a batch has the gradient that the whole graph gives its seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.storage.matrix.layered import LayeredBatch, empty_batch
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.operators.layered import LayeredOperator
from gnnloom.trainer.place.place import Place
from support.dense import normalized
from support.dense_models import DenseModel
from support.graphs import random_adjacency
from support.lone import LoneCommunicator
from support.samples import in_memory, seeded
from support.tolerance import assert_close

DIMS = (5, 7, 7, 3)
NORMALIZATION = {"gcn": "symmetric", "sage": "mean", "gin": "none"}


def small_graph(*, weighted: bool = False) -> Any:
    adjacency = random_adjacency(90, 260, 3, symmetric=False)
    if weighted:
        adjacency.data[:] = np.random.default_rng(0).uniform(0.5, 2, adjacency.nnz).astype(np.float32)
    return adjacency


def all_neighbors(adjacency: Any, *, weighted: bool = False) -> LayeredBatch:
    """A batch of some seeds with everything that three layers gather."""
    graph = in_memory(adjacency, weighted=weighted)
    sampler = seeded(graph, 0, np.arange(0, 90, 2), [ALL] * 3, 12)
    return layered_batch(graph, sampler.sample(1, 2))


def build(kind: str, **options: Any) -> tuple[Model, LayeredOperator]:
    """A model over an operator that has no batch yet."""
    place = Place(torch.float64)
    normalization = NORMALIZATION[kind]
    operator = LayeredOperator(LoneCommunicator(), 3, normalization, place)
    given = ModelOptions(DIMS, **options)
    dropout = Dropout(0.0, 0, place)
    return MODELS[kind].load()(operator, given, dropout, 3), operator


@pytest.mark.parametrize("order", ["propagate-first", "transform-first"])
@pytest.mark.parametrize("kind", ["gcn", "sage", "gin"])
@pytest.mark.parametrize("extras", [{}, {"residual": True, "norm": "layer", "unit_embedding": True}])
def test_unlimited_fanouts_give_the_gradient_of_the_whole_graph_for_the_seeds(
    kind: str, order: str, extras: dict[str, Any]
) -> None:
    adjacency = small_graph()
    batch = all_neighbors(adjacency)
    assert batch.num_seeds < len(batch.vertices) < 90, "a batch that is not a part of the graph"
    feature = torch.tensor(np.random.default_rng(1).standard_normal((90, DIMS[0])))
    factor = torch.tensor(np.random.default_rng(2).standard_normal((batch.num_seeds, DIMS[-1])))
    model, operator = build(kind, product_order=order, **extras)
    operator.load(batch)
    (model(Inputs(feature[batch.vertices])) * factor).sum().backward()

    arrays = {f"parameter/{name}": tensor.detach().numpy() for name, tensor in model.named_parameters()}
    dense = DenseModel.from_arrays(kind, adjacency.toarray(), arrays, **extras)
    (dense.scores(feature)[batch.seeds] * factor).sum().backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        expected = dense[name].grad
        assert parameter.grad is not None
        assert expected is not None
        assert parameter.grad.abs().max() > 0
        assert_close(parameter.grad, expected, steps=9)


@pytest.mark.parametrize("normalization", ["symmetric", "mean", "none"])
def test_products_of_weighted_rows_are_those_of_the_whole_graph(normalization: str) -> None:
    adjacency = small_graph(weighted=True)
    batch = all_neighbors(adjacency, weighted=True)
    operator = LayeredOperator(LoneCommunicator(), 3, normalization, Place(torch.float64))
    operator.load(batch)
    whole = normalized(adjacency.toarray(), normalization)
    feature = np.random.default_rng(1).standard_normal((90, 4))
    hidden, expected = torch.tensor(feature[batch.vertices]), feature
    for layer in range(3):
        hidden, expected = operator.propagate(hidden, layer), whole @ expected
        assert_close(hidden, expected[operator.layout(layer + 1).vertex], steps=3)


@pytest.mark.slow
@pytest.mark.parametrize(("normalization", "replace"), [("symmetric", False), ("mean", True), ("none", False)])
def test_products_of_sampled_rows_are_unbiased(normalization: str, replace: bool) -> None:
    adjacency = random_adjacency(60, 1500, 3, symmetric=False)
    graph = in_memory(adjacency)
    sampler = seeded(graph, 0, np.arange(60), [4], 60, replace=replace)
    operator = LayeredOperator(LoneCommunicator(), 1, normalization, Place(torch.float64))
    feature = np.random.default_rng(1).random((60, 1))
    found = []
    for epoch in range(600):
        batch = layered_batch(graph, sampler.sample(epoch, 0))
        operator.load(batch)
        found.append(operator.propagate(torch.tensor(feature[batch.vertices]), 0).numpy()[:, 0])
    expected = (normalized(adjacency.toarray(), normalization) @ feature)[:, 0]
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert error.max() > 0
    assert (np.abs(np.mean(found, axis=0) - expected) / error).max() < 4.5


@pytest.mark.parametrize("kind", ["gcn", "sage", "gin"])
def test_a_batch_without_vertices_has_no_gradient(kind: str) -> None:
    model, operator = build(kind)
    operator.load(empty_batch(3))
    scores = model(Inputs(torch.empty((0, DIMS[0]), dtype=torch.float64)))
    assert scores.shape == (0, DIMS[-1])
    scores.sum().backward()
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in model.parameters())


def test_dropout_of_a_vertex_is_the_same_in_every_batch() -> None:
    """It depends on the vertex, not on where a batch has it."""
    model, operator = build("gcn")
    model.dropout = Dropout(0.5, 0, Place(torch.float64))
    graph = in_memory(small_graph())
    sampler = seeded(graph, 0, np.arange(90), [ALL] * 3, 12)
    dropped = np.full((90, 8), np.nan)
    for number in range(4):
        batch = layered_batch(graph, sampler.sample(0, number))
        operator.load(batch)
        found = model.after_dropout(Inputs(torch.ones((len(batch.vertices), 8), dtype=torch.float64)), 0).value.numpy()
        known = ~np.isnan(dropped[batch.vertices, 0])
        assert known.any() or not number
        np.testing.assert_array_equal(found[known], dropped[batch.vertices[known]])
        dropped[batch.vertices] = found
