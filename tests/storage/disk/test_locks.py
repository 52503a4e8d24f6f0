"""A writer holds the lock of its artifact: others log that they wait, and cannot remove it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.whole_graph import map_whole_graph
from gnnloom.storage.disk.locks import JOB, held, is_held, lock_path, locked
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter, artifact_key
from support.small_catalogs import store_small_dataset

_PROGRAM = """
import sys, time
from pathlib import Path
from gnnloom.storage.disk.locks import locked
with locked(Path(sys.argv[1]), sys.argv[2], sys.argv[3], common=sys.argv[5]):
    print("held", flush=True)
    time.sleep(float(sys.argv[4]))
"""


@contextmanager
def other_process(
    dataset: Dataset, kind: str, key: str, seconds: float = 60, *, common: str = "", job: str = ""
) -> Iterator[None]:
    """Hold the lock of an artifact in another process, which belongs to a job."""
    command = [sys.executable, "-c", _PROGRAM, str(dataset.path), kind, key, str(seconds), common]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, JOB: job})
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield
    process.kill()
    process.communicate()


def test_a_second_writer_waits_and_logs_it(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    dataset = catalog.create("web")
    parameters = {"parts": 2}
    key = artifact_key("partition", parameters, {})
    with other_process(dataset, "partition", key, seconds=1):
        with ArtifactWriter.begin(dataset.path, "partition", parameters, {}) as writer:
            assert writer.key == key
        assert f"waiting for another process that makes partition/{key}" in caplog.text
    caplog.clear()
    with ArtifactWriter.begin(dataset.path, "partition", parameters, {}):
        assert caplog.text == ""


@pytest.mark.slow
def test_a_rank_waits_for_another_that_makes_a_copy_without_a_warning(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = store_small_dataset(catalog)
    graph = dataset.graph()
    name = f"graph-{graph.artifact.key}"
    with caplog.at_level(logging.INFO), other_process(dataset, "mapped-check", name, seconds=1):
        map_whole_graph(graph)
    (waited,) = [record for record in caplog.records if "waiting" in record.message]
    assert waited.levelno == logging.INFO
    assert waited.message == f"waiting for another process that makes the uncompressed copy of {name}"


@pytest.mark.parametrize(("own", "other", "level"), [("a", "a", 0), ("a", "b", 30), ("a", "", 30), ("", "", 20)])
def test_only_waiting_for_another_job_is_a_warning(
    catalog: Catalog,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    own: str,
    other: str,
    level: int,
) -> None:
    dataset = catalog.create("web")
    # What an earlier job left in the file does not count.
    monkeypatch.setenv(JOB, "of an earlier job, with a long name")
    with locked(dataset.path, "mapped-check", "graph", common="the copy"):
        pass
    monkeypatch.setenv(JOB, own)
    with (
        caplog.at_level(logging.INFO),
        other_process(dataset, "mapped-check", "graph", seconds=0.2, common="the copy", job=other),
        locked(dataset.path, "mapped-check", "graph", common="the copy"),
    ):
        pass
    assert [record.levelno for record in caplog.records if "waiting" in record.message] == ([level] if level else [])


def test_an_artifact_is_not_removed_while_it_is_written(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    shards = dataset.find("shards")
    with other_process(dataset, "shards", shards.key):
        started = time.perf_counter()
        with pytest.raises(InputError, match="is being written by another process"):
            dataset.remove_artifact("shards", shards.key, force=True)
        with pytest.raises(InputError, match=f"shards/{shards.key} is being written"):
            catalog.remove("web")
        assert time.perf_counter() - started < 10
    assert shards.verify() == 1
    catalog.remove("web")
    assert list(catalog) == []


def test_a_lock_whose_file_was_deleted_does_not_count(catalog: Catalog) -> None:
    lock = lock_path(catalog.create("web").path, "graph", "0")
    with held(lock) as is_ours:
        assert is_ours
        assert is_held(lock)
        lock.unlink()
        assert not is_held(lock)
        with held(lock) as again:
            assert again
