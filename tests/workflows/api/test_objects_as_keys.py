"""Objects that stages return are given where keys are, and a script that runs twice finds what it made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gnnloom
from gnnloom.workflows.api.loader import loader

pytest.importorskip("torch_geometric")
N = 60


@pytest.fixture
def dataset(tmp_path: Path) -> gnnloom.Dataset:
    edges = np.stack([np.arange(6 * N) % N, (np.arange(6 * N) * 7 + 3) % N], axis=1)
    found = gnnloom.ingest("web", edges, undirected=True, catalog=tmp_path, workers=0)
    split = np.array(["train", "valid", "test"])[np.arange(N) % 3]
    gnnloom.features(found, feature=np.eye(N, 8, dtype=np.float32), label=np.arange(N) % 2, split=split, workers=0)
    return found


def test_objects_of_stages_are_given_where_keys_are(dataset: gnnloom.Dataset) -> None:
    graph, data = dataset.graph(), dataset.vertices()
    parts = gnnloom.partition(dataset, 1, method="block", graph=graph, workers=0)
    shards = gnnloom.shard(dataset, 1, partition=parts, vertices=data, workers=0)
    samples = gnnloom.sample(dataset, graph=graph, fanout=(2,), batch_size=8, epochs=1, draw_once=True, workers=0)
    links = gnnloom.draw_links(dataset, graph=graph, valid=0.1, test=0.1, workers=0)
    hard = gnnloom.draw_hard_negatives(dataset, links=links, negatives=2, workers=0)
    others = gnnloom.partition(dataset, 1, method="block", links=links, workers=0)
    linked = gnnloom.shard(dataset, 1, partition=others, links=links, workers=0)
    run = gnnloom.train(dataset, shards=shards, hidden=4, epochs=1, run="classes")
    sampled = gnnloom.train(
        dataset, mode="neighbor", samples=samples, shards=shards, hidden=(), fanout=(2,), batch_size=8, epochs=1
    )
    pairs = gnnloom.train(dataset, task="link", links=hard, shards=linked, hidden=4, epochs=1, run="pairs")
    assert run.config()["shards"] == shards.artifact.key
    assert sampled.config()["samples"] == samples.artifact.key
    assert (pairs.config()["links"], pairs.config()["shards"]) == (hard.artifact.key, linked.artifact.key)
    drawn = next(iter(loader(dataset, graph=graph, vertex_data=data, fanout=(2,), batch_size=8)))
    assert drawn.x.shape[1] == 8
    assert next(iter(loader(dataset, links=links, fanout=(2,), batch_size=8))).edge_label.shape[0] >= 8
    assert len(list(loader(dataset, samples=samples))) == -(-(N // 3) // 8)
    exported = gnnloom.export(dataset, "pairs", key=links)
    assert isinstance(exported, pd.DataFrame)
    assert set(exported["split"]) == {"train", "valid", "test"}


def test_what_a_graph_without_held_out_links_has_does_not_hide_what_the_graph_has(dataset: gnnloom.Dataset) -> None:
    def script() -> list[str]:
        parts = gnnloom.partition(dataset, 2, method="block", workers=0)
        shards = gnnloom.shard(dataset, 2, workers=0)
        links = gnnloom.draw_links(dataset, valid=0.1, test=0.1, workers=0)
        others = gnnloom.partition(dataset, 2, method="block", links=links, workers=0)
        linked = gnnloom.shard(dataset, 2, links=links, workers=0)
        run = gnnloom.train(dataset, ranks=2, hidden=4, epochs=1, run="classes")
        found = [parts, shards, links, others, linked]
        return [*(each.artifact.key for each in found), run.config()["shards"]]

    first = script()
    assert script() == first
    assert first[1] != first[4]


def test_a_partition_of_a_graph_without_held_out_links_is_found_if_it_is_the_only_one(dataset: gnnloom.Dataset) -> None:
    links = gnnloom.draw_links(dataset, valid=0.1, test=0.1, workers=0)
    parts = gnnloom.partition(dataset, 2, method="block", links=links, workers=0)
    assert gnnloom.shard(dataset, 2, workers=0).artifact.inputs["partition"] == parts.artifact.key
