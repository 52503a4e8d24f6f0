"""Temporary files of an artifact can be elsewhere, and the artifact is the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.disk.work_folder import Scratch, remove_work_folder
from gnnloom.storage.faults import VARIABLE, InjectedError, forget_plans
from gnnloom.storage.format.artifact import ArtifactWriter


def begin(dataset: Path, scratch: Path | None) -> ArtifactWriter:
    """Begin an artifact, leave it unfinished with a temporary file."""
    with ArtifactWriter.begin(dataset, "partition", {}, {}, Scratch(scratch)) as writer:
        (writer.work / "spill").write_bytes(b"x")
    return writer


def test_temporary_files_are_in_scratch_space_and_are_removed_from_there(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    writer = begin(tmp_path / "set", scratch)
    assert [path.name for path in scratch.glob("*/spill")] == ["spill"]
    # What gets its final name by a rename has to be on the artifact's own file system.
    assert writer.new_aside().parent == writer.path
    remove_work_folder(writer.work)
    assert not list(scratch.iterdir())
    assert not writer.work.is_symlink()


def test_what_was_begun_stays_where_it_is(tmp_path: Path) -> None:
    begin(tmp_path / "set", tmp_path / "scratch")
    assert (begin(tmp_path / "set", tmp_path / "other").work / "spill").exists()
    assert not (tmp_path / "other").exists()
    begin(tmp_path / "second", None)
    assert not begin(tmp_path / "second", tmp_path / "other").work.is_symlink()


def test_an_artifact_begins_again_after_its_scratch_space_was_cleared(tmp_path: Path) -> None:
    begin(tmp_path / "set", tmp_path / "scratch")
    shutil.rmtree(tmp_path / "scratch")
    with ArtifactWriter.begin(tmp_path / "set", "partition", {}, {}, Scratch(tmp_path / "scratch")) as writer:
        assert writer.recorded() == {}
        assert not (writer.work / "spill").exists()


@pytest.mark.parametrize("point", ["tree.remove", "tree.removed"])
def test_a_removal_of_scratch_space_that_is_cut_short_leaves_all_of_it_or_a_new_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    catalog, scratch = Catalog(tmp_path / "catalog"), tmp_path / "scratch"
    dataset = catalog.create("web")
    writer = begin(dataset.path, scratch)
    for number in range(9):
        (writer.work / f"spill-{number}").write_bytes(b"x")
    monkeypatch.setenv(VARIABLE, f"{point}:raise")
    forget_plans()
    with pytest.raises(InjectedError):
        dataset.remove_artifact("partition", writer.key)
    monkeypatch.delenv(VARIABLE)
    forget_plans()
    # What a stage that resumes finds.
    kept = list(begin(dataset.path, scratch).work.glob("spill-*"))
    assert len(kept) == (9 if point == "tree.remove" else 0)
    assert len(list(scratch.iterdir())) == 1
    dataset.remove_artifact("partition", writer.key)
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("way", ["artifact", "dataset", "garbage", "discarded"])
def test_what_removes_an_unfinished_artifact_removes_its_scratch_space(tmp_path: Path, way: str) -> None:
    catalog, scratch = Catalog(tmp_path / "catalog"), tmp_path / "scratch"
    dataset = catalog.create("web")
    writer = begin(dataset.path, scratch)
    assert list(scratch.glob("*/spill"))
    removals: dict[str, Callable[[], Any]] = {
        "artifact": lambda: dataset.remove_artifact("partition", writer.key),
        "dataset": lambda: catalog.remove("web"),
        "garbage": dataset.collect_garbage,
        "discarded": writer.discard,
    }
    removals[way]()
    assert not writer.path.exists()
    assert not list(scratch.iterdir())
