"""A link in a catalog of others leads nowhere: nothing is read, written or removed through it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.disk.locks import held, is_held, is_shared, lock_path, locked, share
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.runs.run import sole_writer
from gnnloom.storage.upkeep import garbage
from gnnloom.storage.upkeep.garbage import collect_garbage
from support.small_catalogs import begin_partition, store_run, store_small_dataset


@pytest.fixture
def web(tmp_path: Path) -> Dataset:
    return store_small_dataset(Catalog(tmp_path / "catalog"))


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder outside of the catalog, with a file that a removal would take."""
    folder = tmp_path / "mine"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "file").write_text("precious")
    return folder


def contents(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("name", ["graph", "propagated", "runs", ".locks", ".mapped"])
def test_a_folder_of_a_dataset_that_is_a_link_is_refused(web: Dataset, mine: Path, name: str) -> None:
    if (web.path / name).exists():
        (web.path / name).rename(web.path / f"{name}-before")
    (web.path / name).symlink_to(mine)
    with pytest.raises(CorruptError, match=f"{name}: a link"):
        Dataset(web.path)
    assert contents(mine) == ["below", "below/file"]


def test_an_artifact_or_a_run_that_is_a_link_is_refused(web: Dataset, mine: Path) -> None:
    key = begin_partition(web).path
    key.rename(key.with_name("before"))
    key.symlink_to(mine)
    with (
        pytest.raises(CorruptError, match="a link"),
        ArtifactWriter.begin(web.path, "partition", {"parts": 9}, {"graph": "0"}),
    ):
        pass
    (web.runs_path / "linked").symlink_to(mine)
    with pytest.raises(CorruptError, match="linked: a link"):
        web.run_path("linked")
    assert contents(mine) == ["below", "below/file"]


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "checkpoint", "checkpoint/best", "predictions", ".writing-predictions"]
)
def test_a_run_with_a_link_in_it_is_not_written(web: Dataset, mine: Path, name: str) -> None:
    run = store_run(web)
    path = run.path / name
    if path.exists():
        path.rename(run.path.parents[1] / ".before")
    path.symlink_to(mine / "below" / "file" if "." in name[1:] else mine)
    with pytest.raises(CorruptError, match=f"{name}: a link"), sole_writer(run):
        pass
    assert contents(mine) == ["below", "below/file"]


def test_a_work_folder_that_leads_elsewhere_is_neither_used_nor_removed(
    web: Dataset, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "QUIET_SECONDS", 0)
    for place in (
        "partition/stranger",
        f"graph/{web.graph().artifact.key}",
        f"partition/{begin_partition(web).path.name}",
    ):
        work = web.path / place / ".work"
        if work.is_dir():
            work.rename(web.path / ".before")
        work.parent.mkdir(exist_ok=True)
        work.symlink_to(mine)
    with ArtifactWriter.begin(web.path, "partition", {"parts": 9}, {"graph": "0"}) as writer:
        assert not writer.work.is_symlink()
    collect_garbage(web)
    Catalog(web.path.parent).remove("web")
    assert contents(mine) == ["below", "below/file"]
    assert not web.path.exists()


@pytest.mark.parametrize("leads_to", ["file", "nowhere", "folder", "pipe"])
def test_a_lock_that_is_a_link_is_not_opened(web: Dataset, mine: Path, leads_to: str) -> None:
    run = store_run(web)
    target = {"file": mine / "below" / "file", "folder": mine / "below"}.get(leads_to, mine / leads_to)
    if leads_to == "pipe":
        os.mkfifo(target)
    before = contents(mine)
    key = begin_partition(web).path.name
    for kind, name in (("runs", run.name), ("partition", key), ("partition", "other")):
        lock = lock_path(web.path, kind, name)
        lock.parent.mkdir(exist_ok=True)
        lock.unlink(missing_ok=True)
        lock.symlink_to(target)
        assert not is_held(lock)
        assert not is_shared(lock)
        with pytest.raises(CorruptError, match=f"{lock.name}: a link"), held(lock):
            pass
        with pytest.raises(CorruptError, match=f"{lock.name}: a link"):
            share(lock)
        with pytest.raises(CorruptError, match=f"{lock.name}: a link"), locked(web.path, kind, name):
            pass
    with pytest.raises(CorruptError, match=f"runs-{run.name}: a link"), sole_writer(run):
        pass
    with pytest.raises(CorruptError, match=f"partition-{key}: a link"):
        begin_partition(web)
    assert contents(mine) == before
    # Neither a look at the dataset nor its removal needs the locks.
    assert not [finding for finding in web.verify() if finding.kind == "graph" and finding.is_damaged]
    Catalog(web.path.parent).remove("web")
    assert contents(mine) == before
