"""Garbage is what nothing needs and no process holds; everything else stays."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.files import tree_bytes
from gnnloom.storage.disk.locks import held, lock_path
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.upkeep.garbage import find_catalog_garbage, find_garbage, remove_garbage
from support.graphs import random_adjacency, store_graph
from support.small_catalogs import begin_partition, store_small_dataset


def without_locks(catalog: Catalog, name: str = "web") -> list[tuple[str, str]]:
    found = find_garbage(catalog[name])
    return [(item.reason, item.path.name) for item in found if "lock" not in item.reason]


def age(path: Path, seconds: float = 7200) -> None:
    for entry in (path, *path.rglob("*")):
        os.utime(entry, (time.time() - seconds, time.time() - seconds))


def test_a_sound_dataset_has_no_garbage_except_locks(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    assert without_locks(catalog) == []
    assert remove_garbage(find_garbage(dataset))
    assert list((dataset.path / ".locks").iterdir()) == []
    assert find_garbage(dataset) == []
    for info in dataset.artifacts():
        Artifact(info.path).verify()


def test_an_unfinished_artifact_is_removed(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    writer = begin_partition(dataset)
    (item,) = (item for item in find_garbage(dataset) if item.reason == "begun and not finished")
    assert (item.path, item.bytes) == (writer.path, tree_bytes(writer.path))
    remove_garbage([item])
    assert not writer.path.exists()
    assert without_locks(catalog) == []
    assert len(dataset.artifacts("partition")) == 1


def test_scratch_and_leftovers_are_removed_and_artifacts_stay(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    partition = dataset.partition(2).artifact.path
    (partition / ".work").mkdir()
    (partition / ".work" / "spill").write_bytes(b"x" * 500)
    (partition / f".manifest.json.{'0' * 32}").write_text("{")
    (dataset.path / "graph" / ".removed-abc").mkdir()
    (catalog.root / ".removed-old").mkdir()
    reasons = ["scratch of a finished artifact", "scratch of a finished artifact", "left by a removal"]
    assert [reason for reason, _ in without_locks(catalog)] == reasons
    assert sum(item.bytes for item in find_garbage(dataset)) == 501
    remove_garbage([*find_garbage(dataset), *find_catalog_garbage(catalog)])
    assert without_locks(catalog) == []
    assert find_catalog_garbage(catalog) == []
    Artifact(partition).verify()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("graph", ["transpose", "vertices", "partition", "shards"]),
        ("partition", ["shards"]),
        ("vertices", ["shards"]),
        ("transpose", []),
        ("shards", []),
    ],
)
def test_artifacts_whose_inputs_are_gone_are_removed(catalog: Catalog, kind: str, expected: list[str]) -> None:
    dataset = store_small_dataset(catalog)
    dataset.remove_artifact(kind, dataset.find(kind).key, force=True)
    items = [item for item in find_garbage(dataset) if "not there" in item.reason]
    assert [item.path.parent.name for item in items] == expected
    remove_garbage(items)
    assert without_locks(catalog) == []


HOLD = """
import sys, time
from pathlib import Path
from gnnloom.storage.format.artifact import ArtifactWriter
with ArtifactWriter.begin(Path(sys.argv[1]), "partition", {"parts": 9}, {"graph": "0"}):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_an_artifact_that_a_living_process_writes_is_left_alone(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    writer = begin_partition(dataset)
    before = find_garbage(dataset)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(dataset.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert without_locks(catalog) == []
        assert all("partition-" + writer.key not in str(item.path) for item in find_garbage(dataset))
        # It was found before the process locked it, and is checked again before it is removed.
        removed = remove_garbage([item for item in before if item.path == writer.path])
        assert removed == []
        assert (writer.path / "part").exists()
        process.communicate("")
    assert without_locks(catalog) == [("begun and not finished", writer.key)]


def test_an_artifact_that_was_finished_since_it_was_found_stays(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    begin_partition(dataset)
    before = find_garbage(dataset)
    graph = dataset.graph().artifact.key
    with ArtifactWriter.begin(dataset.path, "partition", {"parts": 9}, {"graph": "0"}) as writer:
        with writer.task("part/0") as output:
            output.add(write_array(writer.path, "part", np.zeros(30, np.int32), ("vertex",)))
        writer.commit(["part/0"], {"vertex": 30}, {"quality": {}})
    remove_garbage(before)
    assert Artifact(writer.path).verify() == 1
    assert dataset.graph().artifact.key == graph


def test_locks_of_missing_artifacts_are_removed_when_they_are_old(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    remove_garbage(find_garbage(dataset))
    lock = dataset.path / ".locks" / "partition-0123456789abcdef"
    lock.touch()
    assert find_garbage(dataset) == []
    age(lock)
    assert [item.path for item in find_garbage(dataset)] == [lock]


def test_only_old_leftovers_of_runs_are_removed(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    run = dataset.run_path("first")
    below = ("checkpoint/.writing-00000004", "checkpoint/best/.removed-00000004", ".writing-predictions", "../begun")
    for aside in ((run / name).resolve() for name in below):
        aside.mkdir(parents=True)
        (aside / "c").write_bytes(b"x")
        assert without_locks(catalog) == []
        age(aside)
        name = aside.relative_to(dataset.runs_path).parts[0]
        with held(lock_path(dataset.path, "runs", name)):
            assert without_locks(catalog) == []
        assert without_locks(catalog) == [("left by a run that was ended", aside.name)]
        remove_garbage(find_garbage(dataset))
        assert not aside.exists()
    assert dataset.runs() == ["first"]


def test_a_killed_import_is_removed_and_a_living_one_stays(catalog: Catalog) -> None:
    aside = catalog.root / ".importing-abc"
    aside.mkdir(parents=True)
    (aside / "x").write_bytes(b"12345")
    descriptor = os.open(aside, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert find_catalog_garbage(catalog) == []
    os.close(descriptor)
    (item,) = find_catalog_garbage(catalog)
    assert item.bytes == 5
    remove_garbage([item])
    assert not aside.exists()


def test_a_graph_without_held_out_links_goes_with_its_links_and_stays_with_them(catalog: Catalog) -> None:
    dataset, adjacency = catalog.create("web"), random_adjacency(40, 150, 1, symmetric=True)
    graph = store_graph(dataset, adjacency, symmetric=True)
    links = draw_links(dataset, graph, DrawOptions(valid=0.1, negatives=0), InProcessCluster())
    message = dataset.graph(links.message_graph)
    shutil.rmtree(dataset.path / ".locks")
    assert find_garbage(dataset) == []
    with pytest.raises(InputError, match=f"needed by graph/{message.artifact.key}"):
        dataset.remove_artifact("links", links.artifact.key)
    dataset.remove_artifact("links", links.artifact.key, force=True)
    reasons = {item.path: item.reason for item in find_garbage(dataset) if "lock" not in item.reason}
    assert reasons == {message.artifact.path: f"made from links/{links.artifact.key}, which is not there"}

    draw_links(dataset, graph, DrawOptions(valid=0.1, negatives=0), InProcessCluster())
    dataset.remove_artifact("graph", graph.artifact.key, force=True)
    # The links lack their graph, and the graph without them lacks both.
    gone = [item.path for item in find_garbage(dataset) if "lock" not in item.reason]
    assert set(gone) == {links.artifact.path, message.artifact.path}
    remove_garbage(find_garbage(dataset))
    assert dataset.artifacts() == []
