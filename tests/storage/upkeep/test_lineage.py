"""The lineage tells what everything was made from, and the usage adds up to what is on disk."""

from __future__ import annotations

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.files import tree_bytes
from gnnloom.storage.upkeep.lineage import disk_usage, lineage
from gnnloom.workflows.interop.metis import read_metis_part, write_metis_part
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
    assert set(graph.outputs) == {names["transpose"], names["partition"], names["shards"]}
    assert all(node.state == "complete" for node in nodes.values())


def test_inputs_that_are_gone_and_what_is_unfinished_are_told(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    key = dataset.graph().artifact.key
    dataset.remove_artifact("graph", key, force=True)
    writer = begin_partition(dataset)
    nodes = lineage(dataset)
    assert nodes[f"graph/{key}"].state == "gone"
    assert len(nodes[f"graph/{key}"].outputs) == 3
    assert nodes[f"partition/{writer.key}"].state == "incomplete"


def test_usage_adds_up_to_what_is_on_disk(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    writer = begin_partition(dataset)
    usage = {(item.kind, item.key): item for item in disk_usage(dataset)}
    assert sum(item.bytes for item in usage.values()) == tree_bytes(dataset.path)
    begun = usage["partition", writer.key]
    assert begun.scratch_bytes == tree_bytes(writer.work) >= 1000
    assert usage["runs", "first"].bytes == tree_bytes(dataset.run_path("first"))


def test_partitions_go_to_metis_files_and_come_back(catalog: Catalog) -> None:
    partition = store_small_dataset(catalog).partition(2)
    file = catalog.root / "web.part.2"
    write_metis_part(partition, file)
    np.testing.assert_array_equal(np.loadtxt(file, dtype=np.int32), partition.part())
    part, parts = read_metis_part(file, 30)
    np.testing.assert_array_equal(part, partition.part())
    assert parts == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n1\n", "2 lines, expected one for each of 3"),
        ("0\n1\n0\n1\n", ":4: more lines"),
        ("0\nx\n0\n", r":2: expected a part from 0 to 1, found b'x'"),
        ("0\n-1\n0\n", ":2: expected a part"),
        ("0\n2\n0\n", ":2: expected a part"),
        ("0\n1.0\n0\n", ":2: expected a part"),
        ("0\n\n0\n", ":2: expected a part"),
        ("0\n" + "1" * 10_000, ":2: expected a part"),
        ("0\n\u0662\n1\n", ":2: expected a part"),
    ],
)
def test_files_that_are_no_partitions_are_refused_with_their_line(catalog: Catalog, text: str, message: str) -> None:
    catalog.root.mkdir()
    file = catalog.root / "web.part.2"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_metis_part(file, 3, 2)
    with pytest.raises(NotFoundError):
        read_metis_part(catalog.root / "absent", 3)
