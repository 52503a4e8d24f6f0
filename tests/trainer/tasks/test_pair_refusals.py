"""What a task on pairs cannot train with is found before ranks are started; runs go on with their own links only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.runs.run import Run
from gnnloom.storage.upkeep.lineage import lineage
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch, launch_prediction, prepare_launch
from gnnloom.trainer.tasks.open_links import check_step
from gnnloom.trainer.training.loop import train
from support.edge_files import write_edges
from support.links import store_links
from support.lone import LoneCommunicator
from support.lone_training import install
from support.mpi import predicting
from support.pair_problems import link_arrays, pair_config, store_pairs
from support.partitions import store_partition
from support.problems import Problem, problem
from support.sampled import store_for_sampling

GIVEN = problem("undirected", 61, 150, symmetric=True)


def drawn(dataset: Dataset, given: Problem, **options: Any) -> Links:
    """Links that hold out edges, and shards of the graph without them."""
    links = draw_links(
        dataset, dataset.graph(dataset.ingested_graphs()[0].key), DrawOptions(**options), InProcessCluster()
    )
    partition = store_partition(dataset, dataset.graph(links.message_graph), given.part(1), 1)
    shard_rows(dataset, partition, InProcessCluster())
    return links


def shards_of(dataset: Dataset, graph: str) -> str:
    """Key of the shards of a graph."""
    (key,) = (info.key for info in dataset.artifacts("shards") if info.inputs["graph"] == graph)
    return key


def refused(config: TrainConfig) -> str:
    """What is said of a training for which no rank is started."""
    with pytest.raises((InputError, NotFoundError)) as raised:
        prepare_launch(config)
    # Ranks that another launcher starts say the same.
    with pytest.raises(CollectiveError) as found:
        train(LoneCommunicator(), config)
    assert str(raised.value) in str(found.value)
    return str(raised.value)


def test_shards_of_the_graph_that_has_the_held_out_edges_are_refused(catalog: Catalog) -> None:
    dataset = store_for_sampling(catalog, GIVEN, 1)
    assert "`gnnloom links undirected random`" in refused(pair_config(catalog, "undirected", "first"))
    whole = shards_of(dataset, dataset.graph().artifact.key)
    links = drawn(dataset, GIVEN)
    said = refused(pair_config(catalog, "undirected", "first", shards=whole))
    assert said.endswith(f"partition and shard the graph without them, with `--graph {links.message_graph}`")
    shards = shards_of(dataset, links.message_graph)
    assert train(LoneCommunicator(), pair_config(catalog, "undirected", "first", shards=shards))["epochs"] == 2


@pytest.mark.slow
def test_of_several_links_of_a_graph_one_is_chosen(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    given = replace(GIVEN, name="several")
    dataset, first = store_pairs(catalog, given, 1)
    launcher = install(monkeypatch)
    result = launch(pair_config(catalog, "several", "run"))
    arrays = link_arrays(given)
    arrays["test/pair"] = arrays["test/pair"][:9]
    second = store_links(dataset, dataset.graph(), arrays, held_out_entries=0)
    said = refused(pair_config(catalog, "several", "other"))
    keys = {first.artifact.key, second.artifact.key}
    assert said.startswith("links: dataset several has several of graph ")
    assert set(said.rpartition(" one of ")[2].split(", ")) == keys
    assert "no-such" in refused(pair_config(catalog, "several", "other", links="no-such"))
    chosen = {key: launch(pair_config(catalog, "several", f"on-{key}", links=key))["loss"] for key in keys}
    assert chosen[first.artifact.key] == result["loss"]
    # The run knows which links it was trained on, also where several are there now.
    run = Run.open(dataset, "run")
    assert run.inputs()["links"] == first.artifact.key
    assert lineage(dataset)["runs/run"].inputs["links"] == f"links/{first.artifact.key}"
    assert launcher.jobs == 3
    launch_prediction(predicting(dataset, "run"))
    assert run.predictions().array("vector").read().shape == (61, 6)


def test_a_run_does_not_go_on_with_other_links(catalog: Catalog) -> None:
    given = replace(GIVEN, name="changed")
    dataset, links = store_pairs(catalog, given, 1)
    train(LoneCommunicator(), pair_config(catalog, "changed", "run"))
    arrays = link_arrays(given)
    arrays["test/pair"] = arrays["test/pair"][:9]
    store_links(dataset, dataset.graph(), arrays, held_out_entries=0)
    links.artifact.path.rename(catalog.root / "aside")
    said = refused(pair_config(catalog, "changed", "run", epochs=5))
    assert "trained on other links" in said


@pytest.mark.parametrize(("task", "what"), [("edge-class", "class"), ("edge-number", "number")])
def test_tasks_on_values_need_pairs_that_have_them(catalog: Catalog, task: str, what: str) -> None:
    if "bare" not in list(catalog):
        store_pairs(catalog, replace(GIVEN, name="bare"), 1)
    config = pair_config(catalog, "bare", "first", task=task)
    said = refused(config)
    assert said.endswith(f"task {task} predicts a {what}, but the pairs have no values")
    said = refused(config.with_options(task="link", class_weights="balanced"))
    assert said.startswith("class_weights 'balanced': task link ")


def test_a_step_that_would_exclude_all_edges_is_refused(catalog: Catalog) -> None:
    given = replace(GIVEN, name="everything")
    dataset = store_for_sampling(catalog, given)
    links = drawn(dataset, given)
    pairs = links.num_pairs["train"]
    said = refused(pair_config(catalog, "everything", "first", link_batch=pairs))
    assert f"all {pairs} training pairs" in said
    assert all(option in said for option in ("--disjoint", "--link-batch", "--no-exclude-targets"))
    few: dict[str, Any] = {"epochs": 1, "eval_every": 0}
    kept: list[dict[str, Any]] = [{"link_batch": pairs - 1}, {"link_batch": pairs, "exclude_targets": False}]
    for number, options in enumerate(kept):
        train(LoneCommunicator(), pair_config(catalog, "everything", f"run-{number}", **few, **options))
    disjoint = drawn(dataset, given, disjoint=0.5)
    options = {"link_batch": 1000, "links": disjoint.artifact.key}
    shards = shards_of(dataset, disjoint.message_graph)
    result = train(LoneCommunicator(), pair_config(catalog, "everything", "disjoint", **few, **options, shards=shards))
    assert np.isfinite(result["loss"][0])


@pytest.mark.parametrize(("given", "is_refused"), [(20, True), (19, False)])
def test_pairs_that_were_given_may_be_all_edges_too(
    catalog: Catalog, tmp_path: Path, given: int, is_refused: bool
) -> None:
    # A ring, to which loops are added.
    source, dataset = np.arange(20), catalog.create("ring")
    edges = write_edges(tmp_path / "ring", source, (source + 1) % 20, vertices=20)
    graph = ingest_graph(dataset, edges, IngestOptions(), InProcessCluster())
    pairs = np.stack([source, (source + 1) % 20], 1)
    arrays = {"train/pair": pairs[:given], "valid/pair": pairs[:, ::-1], "test/pair": pairs[:, ::-1]}
    links = store_links(dataset, graph, arrays, held_out_entries=0, edges={"train/pair": given})
    if is_refused:
        with pytest.raises(InputError, match="20 training pairs"):
            check_step(dataset, links, 20)
    for pairs_of_step in (0, given - 1) if is_refused else (0, given - 1, given, 1000):
        check_step(dataset, links, pairs_of_step)


#: Options that do not go together, and what is said of them.
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"mode": "minibatch"}, "task 'link': mode minibatch does not train on pairs of vertices; choose --mode full"),
    ({"mode": "subgraph"}, "task 'link': mode subgraph does not train on pairs of vertices; choose --mode full"),
    ({"task": "edge-class", "negatives": 3}, "negatives: task edge-class has no such option, only link"),
    (
        {"task": "class", "link_batch": 3},
        "link_batch: task class has no such option, only link, edge-class, edge-number",
    ),
    ({"task": "class", "loss": "bpr"}, "loss 'bpr': a loss of task link, not of task class"),
    ({"task": "edge-number", "loss": "bce"}, "loss 'bce': a loss of task link, not of task edge-number"),
    ({"loss": "mine:f"}, "loss 'mine:f': task link takes no function of your own"),
    ({"metric": "mine:f"}, "metric 'mine:f': task link takes no function of your own"),
    ({"decoder": "dot", "decoder_hidden": (3,)}, "decoder_hidden: decoder dot has no such option, only mlp"),
    ({"decoder": "dots"}, "decoder 'dots': expected"),
    ({"negative_sampler": "any"}, "negative_sampler 'any': expected"),
]


@pytest.mark.parametrize(("options", "message"), MISTAKES)
def test_options_that_would_do_nothing_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        TrainConfig.of(**{"catalog": str(tmp_path), "dataset": "web", "task": "link", **options})


def test_a_decoder_with_one_score_is_none_for_several_classes(catalog: Catalog) -> None:
    store_pairs(catalog, replace(GIVEN, name="classes"), 1, kind="class")
    with pytest.raises(CollectiveError, match="decoder Dot:"):
        train(LoneCommunicator(), pair_config(catalog, "classes", "run", task="edge-class", decoder="dot"))
