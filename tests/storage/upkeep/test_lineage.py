"""The lineage lists what everything was made from, and the disk usage adds up."""

from __future__ import annotations

from gnnloom.storage import Catalog
from gnnloom.storage.format.files import tree_bytes
from gnnloom.storage.upkeep.lineage import disk_usage, lineage
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
