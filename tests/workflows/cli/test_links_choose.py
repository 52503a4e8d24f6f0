"""Links choose the graph that is partitioned, sharded, planned for and trained on: no key is copied."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.errors import GnnloomError, InputError, NotFoundError
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.cli.main import cli
from support.graphs import random_adjacency, store_graph
from support.in_process import answer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    catalog = Catalog(tmp_path / "catalog")
    store_graph(catalog.create("web"), random_adjacency(60, 400, 1, symmetric=True), symmetric=True)
    gnnloom.features("web", feature=np.random.default_rng(0).random((60, 4), np.float32), catalog=catalog.root)
    return catalog.root


def call(root: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--catalog", str(root), *words])


def graph_of(root: Path, kind: str, key: str) -> str:
    return str(Catalog(root)["web"].find(kind, key).inputs["graph"])


HERE = ("--workers", "0")


@pytest.mark.slow
def test_the_message_graph_is_partitioned_and_sharded_beside_the_whole_graph(root: Path) -> None:
    links = gnnloom.draw_links("web", catalog=root, workers=0)
    for flags in ((), ("--links",)):
        parts = answer(root, "partition", "web", "--parts", "1", *flags, *HERE)
        shards = answer(root, "shard", "web", "--parts", "1", *(flags or ("--partition", parts["key"])), *HERE)
        assert graph_of(root, "partition", parts["key"]) == graph_of(root, "shards", shards["key"])
        assert (graph_of(root, "shards", shards["key"]) == links.message_graph) == bool(flags)
    run = gnnloom.train("web", ranks=1, catalog=root, task="link", epochs=1, hidden=(4,), link_batch=0)
    inputs = Run.open(Catalog(root)["web"], run.name).inputs()
    assert (inputs["graph"], inputs["shards"]) == (links.message_graph, shards["key"])


@pytest.mark.slow
@pytest.mark.parametrize("given", [True, "links", "key"])
def test_python_takes_links_or_their_key(root: Path, given: object) -> None:
    links = gnnloom.draw_links("web", catalog=root, workers=0)
    chosen: Any = {"links": links, "key": links.artifact.key}.get(str(given), given)
    assert (
        gnnloom.partition("web", 2, links=chosen, catalog=root, workers=0).artifact.inputs["graph"]
        == links.message_graph
    )
    shards = gnnloom.shard("web", 2, links=chosen, catalog=root, workers=0)
    assert shards.artifact.inputs["graph"] == links.message_graph
    grid = gnnloom.shard("web", grid=(2, 2), links=chosen, catalog=root, workers=0)
    assert grid.artifact.inputs["graph"] == links.message_graph


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("algorithm", ["p2p", "summa"])
def test_a_training_without_shards_names_the_commands_that_make_them(root: Path, several: bool, algorithm: str) -> None:
    links = gnnloom.draw_links("web", catalog=root, workers=0)
    gnnloom.partition("web", 1, catalog=root, workers=0)
    gnnloom.shard("web", 1, catalog=root, workers=0)
    if several:
        gnnloom.draw_links("web", seed=1, catalog=root, workers=0)
    words = ["train", "web", "--task", "link", "--links", links.artifact.key, "--algorithm", algorithm, "--plan"]
    refused = call(root, *words)
    assert isinstance(refused.exception, NotFoundError)
    commands = [
        shlex.split(each)
        for each in re.findall("`gnnloom (.*?)`", str(refused.exception))
        if not each.startswith("catalog")
    ]
    assert {each[0] for each in commands} == ({"partition", "shard"} if algorithm == "p2p" else {"shard"})
    for each in commands:
        answer(root, *each, *HERE)
    assert answer(root, *words)["peak_memory"]


def test_a_plan_is_for_the_message_graph(root: Path) -> None:
    links = gnnloom.draw_links("web", catalog=root, workers=0)
    options = ("plan", "web", "--task", "link", "--ranks", "2")
    assert answer(root, *options) == answer(root, *options, "--graph", links.message_graph)


def test_what_cannot_be_chosen_is_refused(root: Path) -> None:
    with pytest.raises(NotFoundError, match="no links"):
        gnnloom.partition("web", 2, links=True, catalog=root, workers=0)
    links = [gnnloom.draw_links("web", seed=seed, catalog=root, workers=0) for seed in (0, 1)]
    with pytest.raises(InputError, match="different edges") as several:
        gnnloom.partition("web", 2, links=True, catalog=root, workers=0)
    assert all(each.message_graph in str(several.value) for each in links)
    with pytest.raises(GnnloomError, match="both choose the graph"):
        gnnloom.partition("web", 2, links=links[0], graph=links[0].message_graph, catalog=root, workers=0)
    both = call(root, "partition", "web", "--parts", "2", "--links", "--graph", links[0].message_graph)
    assert isinstance(both.exception, InputError)
