"""`[links]` holds edges out of the graph that the later stages of a recipe read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gnnloom
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.workflows.recipe.read import read_recipe
from gnnloom.workflows.recipe.stages.all_stages import find_stages
from support.in_process import answer

RECIPE = """
[dataset]
name = "net"
undirected = true

[source]
format = "sbm"
vertices = 200
edges = 900
classes = 4

[links]
valid = 0.1
test = 0.2
disjoint = 0.25
seed = 3

[partition]
parts = 2
method = "random"

[cluster]
workers = 0
"""


def write(folder: Path, text: str = RECIPE) -> Path:
    path = folder / "net.toml"
    path.write_text(text)
    return path


def run(path: Path, root: Path, *words: str) -> dict[str, Any]:
    return answer(root, "run", str(path), *words)


def plan(path: Path, root: Path) -> dict[str, Any]:
    return {stage["stage"]: stage for stage in run(path, root, "--plan")["stages"]}


@pytest.mark.slow
def test_later_stages_read_the_graph_without_held_out_edges(tmp_path: Path) -> None:
    path, root = write(tmp_path), tmp_path / "catalog"
    workload = find_stages(read_recipe(path, root), ClusterOptions())
    assert [stage.name for stage in workload.stages] == ["graph", "vertices", "links", "partition", "shards"]
    planned = plan(path, root)
    phases = {phase["phase"]: phase for phase in planned["links"]["phases"]}
    assert {"choose edges", "split edges", "write pairs", "message graph"} <= phases.keys()
    assert planned["links"]["memory"] > 0
    assert planned["links"]["disk"] > 0

    run(path, root)
    dataset = Catalog(root)["net"]
    links = dataset.links()
    assert links.artifact.key == workload.found.keys["links"]
    for artifact in (dataset.partition(2).artifact, dataset.row_shards(2).artifact):
        assert artifact.inputs["graph"] == links.message_graph
    assert dataset.vertices().artifact.inputs["graph"] == links.graph
    message, graph = dataset.graph(links.message_graph), dataset.graph(links.graph)
    edges = (graph.nnz - graph.num_vertices) // 2
    assert links.num_pairs["test"] == edges // 5
    assert graph.nnz - message.nnz == 2 * sum(links.num_pairs.values())

    again = find_stages(read_recipe(path, root), ClusterOptions())
    assert all(stage.is_done for stage in again.stages)
    assert all(stage["done"] for stage in plan(path, root).values())
    # Another seed makes other links, another graph and other shards, of the same source and vertex data.
    run(path, root, "--set", "links.seed=4")
    assert len(dataset.artifacts("links")) == 2
    assert len(dataset.ingested_graphs()) == 1
    assert len(dataset.artifacts("graph")) == 3
    assert len(dataset.artifacts("vertices")) == 1
    # Without a section, the graph is read as it is.
    run(write(tmp_path, RECIPE.partition("[links]")[0] + "[cluster]\nworkers = 0\n"), root, "--until", "partition")
    assert dataset.find("partition", made_from={"graph": links.graph}).parameters["parts"] == 1


@pytest.mark.slow
def test_the_plan_of_a_training_on_links_has_the_messages_of_its_steps(tmp_path: Path) -> None:
    training = '[train]\ntask = "link"\nhidden = [8]\noutput_dim = 8\nepochs = 1\nranks = 2\nrun = "on-links"\n'
    path, root = write(tmp_path, f"{RECIPE}\n{training}"), tmp_path / "catalog"
    before = plan(path, root)["train"]
    larger = run(path, root, "--plan", "--set", "train.link_batch=1000000")["stages"]
    (in_one_step,) = [stage for stage in larger if stage["stage"] == "train"]
    assert before["rank"]["messages"] > 5 * in_one_step["rank"]["messages"]
    run(path, root)
    measured = gnnloom.Run.open("net/on-links", root).metrics()
    messages, sent = (
        sum(column[0] for name, column in measured.items() if name.startswith(f"{what}_sent_")) / 2
        for what in ("messages", "bytes")
    )
    # Two ranks, each of which has vertices that the other one needs in every step.
    assert before["rank"]["messages"] == messages
    assert before["rank"]["bytes_sent"] == pytest.approx(sent, rel=0.25)


def test_links_are_made_again_if_their_graph_is_gone(tmp_path: Path) -> None:
    path, root = write(tmp_path), tmp_path / "catalog"
    run(path, root, "--until", "links")
    dataset = Catalog(root)["net"]
    links: Links = dataset.links()
    before = Artifact(dataset.path / "graph" / links.message_graph).digest
    dataset.remove_artifact("graph", links.message_graph)
    first = find_stages(read_recipe(path, root), ClusterOptions()).stages[:3]
    assert [stage.name for stage in first if not stage.is_done] == ["links"]
    run(path, root, "--until", "links")
    assert Artifact(dataset.path / "graph" / links.message_graph).digest == before


def test_a_recipe_that_trains_nothing_gives_no_run(tmp_path: Path) -> None:
    path, root = write(tmp_path), tmp_path / "catalog"
    assert gnnloom.run(path, catalog=root) is None
    dataset = Catalog(root)["net"]
    assert dataset.row_shards(2).artifact.inputs["graph"] == dataset.links().message_graph
    assert gnnloom.run(path, catalog=root) is None
    assert dataset.runs() == []


def test_an_empty_section_makes_the_links_of_the_command(tmp_path: Path) -> None:
    head, _, tail = RECIPE.partition("[links]")
    path, root = write(tmp_path, f"{head}[links]\n{tail[tail.index('[partition]') :]}"), tmp_path / "catalog"
    assert gnnloom.run(path, catalog=root, until="links") is None
    of_recipe = Catalog(root)["net"].links().artifact.key
    assert gnnloom.draw_links("net", catalog=root, workers=0).artifact.key == of_recipe


def test_the_latest_edges_are_held_out(tmp_path: Path) -> None:
    source = tmp_path / "calls.csv"
    source.write_text("\n".join(f"{vertex},{vertex + 1},{vertex // 2}" for vertex in range(41)))
    head = f'[dataset]\nname = "net"\nundirected = true\nmerge = "max"\n[source]\nformat = "snap"\npath = "{source}"\n'
    tail = '[links]\nby = "time"\nvalid = 0.2\ntest = 0.2\n[cluster]\nworkers = 0\n'
    tail = f'[vertices]\nformat = "random"\ndim = 4\nclasses = 2\n{tail}'
    path, root = write(tmp_path, f"{head}times = true\n{tail}"), tmp_path / "catalog"
    planned = plan(path, root)
    run(path, root, "--until", "links")
    dataset = Catalog(root)["net"]
    assert dataset.links().artifact.key == find_stages(read_recipe(path, root), ClusterOptions()).found.keys["links"]
    assert dataset.links().pair("test").min() == 33
    assert not dataset.graph(dataset.links().message_graph).weighted
    assert planned["links"]["disk"] > 0
    with pytest.raises(InputError, match="by time, but the edges have no times"):
        plan(write(tmp_path, f"{head}extra_columns = true\n{tail}"), tmp_path / "other")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("valid = 0.1", "valid = 0", r"net.toml, line \d+: \[links\] valid 0.*: expected more than 0"),
        ("test = 0.2", "test = 0.95", r"\[links\] valid 0.1 and test 0.95: expected a sum below 1"),
        ("seed = 3", "sed = 3", "did you mean seed"),
    ],
)
def test_wrong_keys_are_refused(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in RECIPE
    with pytest.raises(InputError, match=message):
        read_recipe(write(tmp_path, RECIPE.replace(before, after)), tmp_path)
