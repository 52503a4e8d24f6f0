"""Common neighbors, Adamic-Adar and resource allocation are those of SciPy, for any number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.links.given.given_stage import GivenLinks, store_links
from gnnloom.pipeline.links.options import DrawOptions, FileOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import CorruptError, FormatError
from gnnloom.storage.format.artifact import Artifact
from support.covering import few_of
from support.graphs import random_adjacency, store_graph
from support.links import store_links as store_given_links
from support.scratch import small_chunks


def graph_of(*, symmetric: bool, weighted: bool, loops: bool) -> Any:
    """120 vertices, among them two with most others as neighbors, and one without any."""
    dense = random_adjacency(120, 400, 3, symmetric=symmetric, loops=loops).toarray() != 0
    if not loops:
        np.fill_diagonal(dense, np.arange(120) % 4 == 1)
    dense[5], dense[6, ::2] = True, True
    dense[:, 7] |= np.arange(120) % 3 == 0
    if symmetric:
        dense |= dense.T
    dense[8] = dense[:, 8] = False
    values = np.random.default_rng(1).uniform(0.5, 2, dense.shape).astype(np.float32)
    values = values * dense if weighted else dense.astype(np.float32)
    return scipy.sparse.csr_array(np.maximum(values, values.T) if symmetric else values)


def store(catalog: Catalog, *, symmetric: bool, weighted: bool = False, loops: bool = True) -> Dataset:
    dataset = catalog.create("web")
    adjacency = graph_of(symmetric=symmetric, weighted=weighted, loops=loops)
    store_graph(dataset, adjacency, symmetric=symmetric, weighted=weighted, num_blocks=3)
    return dataset


def reference(message: Any, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(num_pairs, 3) scores, by sparse products."""
    pattern = scipy.sparse.csr_array((message != 0).astype(np.float64))
    pattern = scipy.sparse.csr_array(((pattern + pattern.T) > 0).astype(np.float64))
    pattern.setdiag(0)
    pattern.eliminate_zeros()
    degree = np.asarray(pattern.sum(0)).ravel()
    with np.errstate(divide="ignore"):
        weights = [np.ones(len(degree)), 1 / np.log(degree), 1 / degree]
    # A vertex that has one neighbor is common to a vertex and itself only.
    weights = [weights[0], *(np.where(degree > 1, each, 0) for each in weights[1:])]
    found = [(pattern @ scipy.sparse.diags_array(each) @ pattern).toarray()[source, target] for each in weights]
    return np.stack(found, 1)


def check_scores(dataset: Dataset, links: Links, split: str, kind: str) -> None:
    pairs = getattr(links, kind)(split)
    source, target = pairs.T if kind != "negative" else (np.repeat(links.pair(split)[:, 0], pairs.shape[1]), pairs)
    found = links.baseline(f"{split}/{kind}")
    assert found.shape == (*(pairs.shape if kind == "negative" else pairs.shape[:1]), 3)
    expected = reference(dataset.graph(links.message_graph).to_scipy(), source, target.reshape(-1))
    found = found.reshape(-1, 3)
    assert found[:, 0].any()
    np.testing.assert_array_equal(found[:, 0], expected[:, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("symmetric", "weighted", "loops"), few_of(*[[False, True]] * 3, together=2))
def test_scores_are_those_of_scipy(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, symmetric: bool, weighted: bool, loops: bool
) -> None:
    small_chunks(monkeypatch, 500)
    monkeypatch.setattr("gnnloom.pipeline.links.baselines.STEP_ROWS", 7)
    dataset = store(catalog, symmetric=symmetric, weighted=weighted, loops=loops)
    (ingested,) = dataset.ingested_graphs()
    graph = dataset.graph(ingested.key)
    links = draw_links(dataset, graph, DrawOptions(valid=0.1, test=0.2, negatives=4), InProcessCluster())
    for split in ("valid", "test"):
        for kind in ("pair", "pool"):
            check_scores(dataset, links, split, kind)
    assert not links.has_baselines("train")
    for info in dataset.artifacts():
        check_artifact(dataset, Artifact(info.path))


@pytest.mark.parametrize("symmetric", [False, True])
def test_negatives_of_each_pair_are_scored_also_if_they_are_its_source(
    catalog: Catalog, tmp_path: Path, symmetric: bool
) -> None:
    dataset, rng = store(catalog, symmetric=symmetric), np.random.default_rng(2)
    graph = dataset.graph()
    target, source = graph.to_scipy().nonzero()
    edges = np.stack([source, target], 1)[source < target]
    edges = edges[rng.permutation(len(edges))[:60]]
    negative = rng.integers(0, 120, (40, 9))
    # The negatives of two pairs are these pairs' own sources, one of which has a neighbor that has no other.
    negative[:2, 0] = edges[:2, 0]
    names: dict[str, Any] = {name: str(tmp_path / f"{name}.npy") for name in ("test", "valid", "test_targets")}
    for name, array in (("test", edges[:40]), ("valid", edges[40:]), ("test_targets", negative)):
        np.save(names[name], array)
    links = store_links(dataset, graph, GivenLinks.of(FileOptions(negatives=0, **names)), InProcessCluster())
    np.testing.assert_array_equal(links.negative("test"), negative)
    check_scores(dataset, links, "test", "pair")
    check_scores(dataset, links, "test", "negative")
    # Nothing to compare these pairs with was given or drawn.
    assert not links.has_baselines("valid")
    check_artifact(dataset, links.artifact)


def test_links_with_values_are_not_scored(catalog: Catalog, tmp_path: Path) -> None:
    dataset = store(catalog, symmetric=True)
    target, source = dataset.graph().to_scipy().nonzero()
    edges = np.stack([source, target], 1)[source < target]
    for number, name in enumerate(("train", "valid", "test", "pool")):
        some = edges[20 * number : 20 * number + 20]
        lines = [
            f"{source} {target}" + (f" {k % 3}" if name != "pool" else "") for k, (source, target) in enumerate(some)
        ]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    files: dict[str, Any] = {name: str(tmp_path / f"{name}.txt") for name in ("train", "valid", "test")}
    options = FileOptions(**files, test_negatives=str(tmp_path / "pool.txt"), values="class")
    links = store_links(dataset, dataset.graph(), GivenLinks.of(options), InProcessCluster())
    assert links.num_pooled("test") == 20
    assert not links.has_baselines("test")


@pytest.mark.parametrize("wrong", [-1.0, np.inf, np.nan])
def test_scores_that_cannot_be_are_found(catalog: Catalog, wrong: float) -> None:
    dataset = store(catalog, symmetric=True)
    pairs = np.array([[0, 1], [2, 3]])
    arrays = {f"{split}/pair": pairs for split in ("train", "valid", "test")}
    arrays |= {"test/pool": pairs, "test/baseline": np.zeros((2, 3)), "test/pool_baseline": np.full((2, 3), wrong)}
    links = store_given_links(dataset, dataset.graph(), arrays)
    with pytest.raises(CorruptError, match="test/pool_baseline:"):
        check_artifact(dataset, links.artifact)


@pytest.mark.parametrize(
    ("path", "shape", "message"),
    [
        ("test/baseline", (2, 2), r"test/baseline: shape \(2, 2\), expected \(2, 3\)"),
        ("test/pool_baseline", (5, 3), r"test/pool_baseline: shape \(5, 3\), expected \(0, 3\)"),
        ("test/baseline", (5, 3), "array test/pair has 2 along pair, array test/baseline has 5"),
    ],
)
def test_scores_of_other_pairs_are_found(catalog: Catalog, path: str, shape: tuple[int, int], message: str) -> None:
    dataset = store(catalog, symmetric=True)
    pairs = np.array([[0, 1], [2, 3]])
    arrays = {f"{split}/pair": pairs for split in ("train", "valid", "test")} | {path: np.zeros(shape)}
    with pytest.raises((CorruptError, FormatError), match=message):
        check_artifact(dataset, store_given_links(dataset, dataset.graph(), arrays).artifact)
