"""Figures of stored scores are those of the formulas, and the same on any number of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.links import BASELINES, Links
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.links.baselines import baseline_figures
from gnnloom.trainer.place.place import Place
from support.graphs import random_adjacency, store_graph
from support.links import store_links
from support.thread_ranks import on_thread_ranks
from support.tolerance import assert_close

PLACE, N, PAIRS, POOLED, NEGATIVES = Place(), 50, 37, 120, 9


def stored(catalog: Catalog, kind: str) -> tuple[Links, np.ndarray, np.ndarray]:
    """Links with scores, and these scores of the test pairs and their negatives."""
    dataset, rng = catalog.create("web"), np.random.default_rng(3)
    graph = store_graph(dataset, random_adjacency(N, 100, 1, symmetric=False), symmetric=False)
    arrays = {f"{split}/pair": np.array([[0, 1], [2, 3]]) for split in ("train", "valid")}
    arrays["test/pair"] = rng.integers(0, N, (PAIRS, 2))
    shape = {"pool": (POOLED, 2), "negative": (PAIRS, NEGATIVES)}.get(kind)
    scores = rng.integers(0, 6, (PAIRS, 3)).astype(np.float64) / 4
    if shape is None:
        return store_links(dataset, graph, arrays), scores, scores
    arrays[f"test/{kind}"] = rng.integers(0, N, shape)
    others = rng.integers(0, 5, (*(shape if kind == "negative" else shape[:1]), 3)).astype(np.float64) / 4
    # What float32 cannot tell apart.
    others[0] = scores[0] + 1e-12
    arrays |= {"test/baseline": scores, f"test/{kind}_baseline": others}
    return store_links(dataset, graph, arrays), scores, others


def on_ranks(links: Links, split: str = "test") -> Any:
    """The figures of a split, which every rank of 1 to 4 must have."""

    def measure(comm: Communicator) -> dict[str, dict[str, float | None]]:
        counter = ReadCounter()
        found = baseline_figures(links, split, comm, PLACE, counter)
        assert (counter.bytes > 0) == bool(found)
        return found

    found = [each for ranks in (1, 2, 3, 4) for each in on_thread_ranks(ranks, measure)]
    assert all(each == found[0] for each in found)
    return found[0]


@pytest.mark.parametrize("step", [4, 1 << 20])
def test_pairs_of_a_pool(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr("gnnloom.trainer.links.baselines._SCORES", step)
    links, scores, others = stored(catalog, "pool")
    found = on_ranks(links)
    assert list(found) == list(BASELINES)
    for place, name in enumerate(BASELINES):
        positive, negative = scores[:, place], others[:, place]
        wins = (positive[:, None] > negative).sum() + (positive[:, None] == negative).sum() / 2
        hits = {f"hits_{k}": float((positive > np.sort(negative)[-k]).mean()) for k in (20, 50, 100)}
        assert {key: found[name][key] for key in hits} == hits
        assert_close(found[name]["auc"], wins / (PAIRS * POOLED))
        precision = [
            (positive >= score).sum() / ((positive >= score).sum() + (negative >= score).sum()) for score in positive
        ]
        assert_close(found[name]["ap"], np.mean(precision))


@pytest.mark.parametrize("step", [4, 2 * NEGATIVES, 1 << 20])
def test_pairs_with_negatives_of_their_own(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr("gnnloom.trainer.links.baselines._SCORES", step)
    links, scores, others = stored(catalog, "negative")
    found = on_ranks(links)
    for place, name in enumerate(BASELINES):
        column, negative = torch.from_numpy(scores[:, place : place + 1]), torch.from_numpy(others[..., place])
        rank = 0.5 * ((negative > column).sum(1) + (negative >= column).sum(1)) + 1
        assert_close(found[name]["mrr"], float((1 / rank.double()).mean()))
        assert found[name]["hits_20"] == float((rank <= 20).double().mean())
        assert set(found[name]) == {"mrr", "hits_20", "hits_50", "hits_100"}


def test_links_without_scores_have_no_figures(catalog: Catalog) -> None:
    links, *_ = stored(catalog, "none")
    assert on_ranks(links) == {}
    links, *_ = stored(Catalog(catalog.root / "other"), "pool")
    assert on_ranks(links, "valid") == {}
