"""The lineage lists what everything was made from, and the disk usage adds up."""

from __future__ import annotations

from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.files import tree_bytes
from gnnloom.storage.upkeep.lineage import disk_usage, lineage
from support.graphs import random_adjacency, store_graph
from support.small_catalogs import begin_partition, store_small_dataset


def test_everything_knows_its_inputs_and_outputs(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    nodes = lineage(dataset)
    names = {info.kind: f"{info.kind}/{info.key}" for info in dataset.artifacts()}
    shards = nodes[names["shards"]]
    assert dict(shards.inputs) == {kind: names[kind] for kind in ("graph", "partition", "vertices")}
    assert shards.outputs == ("runs/first",)
    assert nodes["runs/first"].inputs == {"shards": names["shards"]}
    graph = nodes[names["graph"]]
    assert graph.inputs == {}
    assert list(graph.sources) == ["source"]
    assert set(graph.outputs) == {names[kind] for kind in ("transpose", "vertices", "partition", "shards")}
    assert all(node.state == "complete" for node in nodes.values())


def test_the_lineage_includes_missing_inputs_and_unfinished_artifacts(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    key = dataset.graph().artifact.key
    dataset.remove_artifact("graph", key, force=True)
    writer = begin_partition(dataset)
    nodes = lineage(dataset)
    assert nodes[f"graph/{key}"].state == "gone"
    assert len(nodes[f"graph/{key}"].outputs) == 4
    assert nodes[f"partition/{writer.key}"].state == "incomplete"


def test_disk_usage_adds_up_to_the_bytes_of_the_folder(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    writer = begin_partition(dataset)
    usage = {(item.kind, item.key): item for item in disk_usage(dataset)}
    assert sum(item.bytes for item in usage.values()) == tree_bytes(dataset.path)
    begun = usage["partition", writer.key]
    assert begun.scratch_bytes == tree_bytes(writer.work) >= 1000
    assert usage["runs", "first"].bytes == tree_bytes(dataset.run_path("first"))


def test_inputs_come_before_what_is_made_from_them_also_through_links(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    graph = store_graph(dataset, random_adjacency(40, 150, 1, symmetric=True), symmetric=True)
    made = [draw_links(dataset, graph, DrawOptions(valid=0.1, seed=seed), InProcessCluster()) for seed in range(3)]
    nodes = lineage(dataset)
    names = list(nodes)
    assert len(names) == 7
    for name, node in nodes.items():
        assert all(names.index(source) < names.index(name) for source in node.inputs.values())
    for links in made:
        own, message = f"links/{links.artifact.key}", f"graph/{links.message_graph}"
        assert nodes[own].outputs == (message,)
        assert nodes[message].inputs == {"graph": f"graph/{graph.artifact.key}", "links": own}
        assert message in nodes[f"graph/{graph.artifact.key}"].outputs
