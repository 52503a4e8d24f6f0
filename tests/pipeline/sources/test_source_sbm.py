"""The block model is the same for any division into ranges, has the stated structure, and can be learned."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.sources.generators.sbm import BlockModelEdges, StochasticBlockModel
from gnnloom.pipeline.sources.source import SourceRange
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.random_numbers import normal, stream_key, uniform


def edges_of(source: BlockModelEdges) -> np.ndarray:
    chunks = [chunk for span in source.ranges() for chunk in source.read(span)]
    return np.concatenate([np.stack([chunk.source, chunk.target]) for chunk in chunks], axis=1)


def rows_of(model: StochasticBlockModel, array: str) -> np.ndarray:
    return np.concatenate(list(model.vertices().read_rows(array, 0, model.num_vertices)))


def test_any_range_equals_that_range_of_the_whole() -> None:
    model = StochasticBlockModel(1003, 5000, num_features=7, seed=5)
    whole = edges_of(model.edges())
    assert whole.shape == (2, 5000)
    assert np.array_equal(edges_of(BlockModelEdges(model, range_edges=333)), whole)
    chunk = next(model.edges().read(SourceRange(0, 77, 99)))
    assert np.array_equal(chunk.source, whole[0, 77:99])
    for array in ("feature", "label", "split"):
        rows = rows_of(model, array)
        assert np.array_equal(next(model.vertices().read_rows(array, 501, 777)), rows[501:777])


def test_equal_seeds_give_equal_graphs_and_different_seeds_different_ones() -> None:
    first, again, other = (StochasticBlockModel(100, 400, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(edges_of(first.edges()), edges_of(again.edges()))
    assert not np.array_equal(edges_of(first.edges()), edges_of(other.edges()))
    assert first.identity() == again.identity() != other.identity()


@pytest.mark.parametrize("skew", [0.0, 0.3, 0.6])
def test_homophily_is_the_fraction_of_edges_within_communities(skew: float) -> None:
    model = StochasticBlockModel(5000, 200_000, num_blocks=10, homophily=0.7, skew=skew)
    source, target = edges_of(model.edges())
    assert 0 <= min(source.min(), target.min()) <= max(source.max(), target.max()) < 5000
    label = rows_of(model, "label")
    within = (label[source] == label[target]).mean()
    assert within == pytest.approx(0.7 + 0.3 / 10, abs=5 * np.sqrt(0.25 / 200_000))
    degree = np.bincount(np.concatenate([source, target]), minlength=5000)
    first_tenth = model.scatter().forward(np.arange(500))
    assert degree[first_tenth].sum() / 400_000 == pytest.approx(0.1 ** (1 - skew), abs=0.005)


def test_communities_are_scattered_and_even() -> None:
    label = rows_of(StochasticBlockModel(10_007, 10, num_blocks=13), "label")
    counts = np.bincount(label, minlength=13)
    assert counts.max() - counts.min() <= 1
    runs = np.count_nonzero(np.diff(label) == 0) / len(label)
    assert runs == pytest.approx(1 / 13, abs=0.02)


def test_the_split_has_the_requested_fractions() -> None:
    split = rows_of(StochasticBlockModel(50_000, 10, train=0.3, valid=0.2), "split")
    assert np.bincount(split, minlength=4) / 50_000 == pytest.approx([0, 0.3, 0.2, 0.5], abs=0.01)


def test_neighbors_predict_the_class_better_than_features_alone() -> None:
    """Compare linear discriminants, which need no training, of the features and of their two-hop averages."""
    model = StochasticBlockModel(20_000, 200_000)
    source, target = edges_of(model.edges())
    ones = np.ones(len(source), np.float32)
    adjacency = scipy.sparse.coo_array((ones, (target, source)), shape=(20_000, 20_000)).tocsr()
    adjacency = adjacency + adjacency.T + scipy.sparse.eye_array(20_000)
    average = scipy.sparse.diags_array(1 / adjacency.sum(axis=1)) @ adjacency
    feature, label = rows_of(model, "feature"), rows_of(model, "label")
    train, test = rows_of(model, "split") == 1, rows_of(model, "split") == 3
    alone = discriminant_accuracy(feature, label, train, test)
    averaged = discriminant_accuracy(average @ (average @ feature), label, train, test)
    assert alone < 0.5
    assert averaged > 0.95


def discriminant_accuracy(feature: np.ndarray, label: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    means = np.stack([feature[train & (label == number)].mean(axis=0) for number in range(label.max() + 1)])
    inverse = np.linalg.inv(np.cov((feature - means[label])[train].T))
    score = feature[test] @ inverse @ means.T - 0.5 * np.einsum("kf,fg,kg->k", means, inverse, means)
    return float((score.argmax(axis=1) == label[test]).mean())


@pytest.mark.parametrize(
    "change",
    [
        {"num_blocks": 0},
        {"num_blocks": 11},
        {"homophily": 1.5},
        {"skew": 1.0},
        {"train": 0.7, "valid": 0.4},
        {"num_edges": 0},
        {"num_edges": 1 << 62},
        {"num_features": 0},
        {"noise": -1.0},
    ],
)
def test_parameters_out_of_range_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(InputError, match="stochastic block model: "):
        StochasticBlockModel(**{"num_vertices": 10, "num_edges": 5, "num_blocks": 2, **change})  # type: ignore[arg-type]


def test_random_numbers_have_their_distribution_from_any_start() -> None:
    key = stream_key(3, "test")
    draws = normal(key, 0, 200_001)
    assert abs(float(draws.mean())) < 0.01
    assert float(draws.std()) == pytest.approx(1, abs=0.01)
    assert np.mean(np.abs(draws) < 1.96) == pytest.approx(0.95, abs=0.003)
    for start, stop in ((0, 1), (1, 2), (1, 8), (100_001, 100_001), (99_999, 100_004)):
        assert np.array_equal(normal(key, start, stop), draws[start:stop])
    flat = uniform(key, 0, 100_000)
    assert flat.min() >= 0
    assert flat.max() < 1
    assert np.histogram(flat, 10, (0, 1))[0] == pytest.approx(10_000, rel=0.05)
    assert abs(np.corrcoef(flat[:-1], flat[1:])[0, 1]) < 0.02
