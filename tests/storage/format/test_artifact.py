"""Artifacts are complete or absent, found by their key, and refused if anything about them is wrong."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle  # noqa: TID251 - tasks are pickled
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import zarr

from gnnloom.storage import Catalog
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.disk.groups import write_group
from gnnloom.storage.disk.work_folder import Scratch, open_work_folder
from gnnloom.storage.errors import CorruptError, DamagedWorkError, FormatError, IncompleteError, NotFoundError
from gnnloom.storage.faults import VARIABLE, forget_plans
from gnnloom.storage.format import task_record
from gnnloom.storage.format.arrays import create_array, write_array, write_rows
from gnnloom.storage.format.artifact import MANIFEST, WORK, Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.format.listing import are_lists_current

PART = np.arange(100, dtype=np.int32) % 4


def write_partition(dataset: Path, seed: int = 0) -> Artifact:
    with ArtifactWriter.begin(dataset, "partition", {"seed": seed}, {"graph": "g"}) as writer:
        if writer.is_complete:
            return Artifact(writer.path)
        with writer.task("part/0") as output:
            output.add(write_array(writer.path, "part", PART, ("vertex",)))
            output.facts["moved"] = 3
        return writer.commit(["part/0"], {"vertex": 100}, {"quality": {}})


def edit_manifest(artifact: Artifact, **changes: Any) -> None:
    path = artifact.path / MANIFEST
    write_json(path, read_json(path) | changes)


def test_committed_artifact_reads_back_and_leaves_no_work_folder(tmp_path: Path) -> None:
    artifact = write_partition(tmp_path)
    np.testing.assert_array_equal(artifact.array("part").read(), PART)
    assert artifact.verify() == 1
    assert not (artifact.path / ".work").exists()
    assert artifact.measured["peak_memory"] > 0


def test_same_parameters_name_the_same_artifact(tmp_path: Path) -> None:
    assert write_partition(tmp_path).path == write_partition(tmp_path).path
    assert write_partition(tmp_path, seed=1).path != write_partition(tmp_path).path
    assert artifact_key("graph", {"a": 1, "b": 2}, {}) == artifact_key("graph", {"b": 2, "a": 1}, {})
    assert artifact_key("graph", {"a": 1}, {}) != artifact_key("graph", {"a": 2}, {})


@pytest.mark.parametrize("scratch", [False, True])
def test_a_disk_that_is_full_at_any_moment_of_a_commit_leaves_nothing_behind_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scratch: bool
) -> None:
    dataset, space = Catalog(tmp_path / "catalog").create("web"), tmp_path / "scratch"
    seed, published, failed = 0, 0, True
    while failed:
        seed, failed = seed + 1, False
        with ArtifactWriter.begin(
            dataset.path, "partition", {"seed": seed}, {"graph": "g"}, Scratch(space if scratch else None)
        ) as writer:
            with writer.task("part/0") as output:
                output.add(write_array(writer.path, "part", PART, ("vertex",)))
            # The disk is full at the next point of the program that writes, in turn.
            monkeypatch.setenv(VARIABLE, f"*:ENOSPC:nth={seed}")
            forget_plans()
            try:
                writer.commit(["part/0"], {"vertex": 100}, {"quality": {}})
            except OSError:
                failed = True
            monkeypatch.delenv(VARIABLE)
            forget_plans()
        published += failed and writer.is_complete
        # What is not published can be resumed; the same command ends it, or removes what is left.
        assert os.path.lexists(writer.work) or writer.is_complete
        assert write_partition(dataset.path, seed).verify() == 1
        assert not os.path.lexists(writer.work)
        assert not list(space.glob("*"))
    assert seed > published > 1
    dataset.collect_garbage()
    assert are_lists_current(dataset.path)


@pytest.mark.parametrize("scratch", [False, True])
def test_the_next_command_removes_what_a_killed_commit_left(tmp_path: Path, scratch: bool) -> None:
    dataset, space = Catalog(tmp_path / "catalog").create("web"), tmp_path / "scratch"
    artifact = write_partition(dataset.path)
    # A kill between the manifest and the removal.
    open_work_folder(artifact.path / WORK, space if scratch else None)
    (artifact.path / WORK / "spill").write_bytes(b"x")
    assert write_partition(dataset.path).verify() == 1
    assert not os.path.lexists(artifact.path / WORK)
    assert not list(space.glob("*"))
    assert are_lists_current(dataset.path)


def test_the_digest_depends_on_the_contents_only(tmp_path: Path) -> None:
    first = write_partition(tmp_path / "one")
    again = write_partition(tmp_path / "two", seed=5)
    assert first.digest == again.digest


def test_a_half_written_artifact_is_refused(tmp_path: Path) -> None:
    with ArtifactWriter.begin(tmp_path, "partition", {}, {}) as writer:
        write_array(writer.path, "part", PART, ("vertex",))
    with pytest.raises(IncompleteError, match="run the same command again"):
        Artifact(writer.path)
    with pytest.raises(NotFoundError, match="no such artifact"):
        Artifact(tmp_path / "partition" / "absent")


def test_commit_names_all_missing_tasks(tmp_path: Path) -> None:
    with ArtifactWriter.begin(tmp_path, "partition", {}, {}) as writer:
        with writer.task("part/1"):
            pass
        with pytest.raises(IncompleteError, match="part/0, part/2"):
            writer.commit(["part/0", "part/1", "part/2"], {"vertex": 1}, {})
        assert not writer.is_complete


def test_recorded_tasks_survive_for_the_next_run(tmp_path: Path) -> None:
    with ArtifactWriter.begin(tmp_path, "partition", {}, {}) as writer:
        create_array(writer.path, "part", (100,), np.int32, ("vertex",), chunk_rows=50)
        with writer.task("part/0") as output:
            output.add(write_rows(writer.path, "part", 0, PART[:50]))
    with ArtifactWriter.begin(tmp_path, "partition", {}, {}) as writer:
        assert list(writer.recorded("part/")) == ["part/0"]
        with writer.task("part/1") as output:
            output.add(write_rows(writer.path, "part", 50, PART[50:]))
        artifact = writer.commit(["part/0", "part/1"], {"vertex": 100}, {"quality": {}})
    assert artifact.verify() == 1
    np.testing.assert_array_equal(artifact.array("part").read(), PART)


def test_a_task_that_raises_is_not_recorded(tmp_path: Path) -> None:
    with ArtifactWriter.begin(tmp_path, "partition", {}, {}) as writer:
        with pytest.raises(ZeroDivisionError), writer.task("part/0"):
            raise ZeroDivisionError
        assert writer.recorded() == {}


def test_records_that_outlived_their_data_are_dropped_after_a_crash(tmp_path: Path) -> None:
    with ArtifactWriter.begin(tmp_path, "partition", {}, {}) as writer:
        create_array(writer.path, "part", (100,), np.int32, ("vertex",), chunk_rows=50)
        for number in (0, 1):
            with writer.task(f"part/{number}") as output:
                output.add(write_rows(writer.path, "part", 50 * number, PART[50 * number : 50 * number + 50]))
        with writer.task("scatter/0"):
            pass
    plan = writer.work / "plan.json"
    write_json(plan, read_json(plan) | {"boot": "another"})
    (writer.path / "part" / "c" / "1").write_bytes(b"")
    with ArtifactWriter.begin(tmp_path, "partition", {}, {}) as writer:
        assert list(writer.recorded()) == ["part/0"]


def record_facts(writer: ArtifactWriter, task: str, **facts: int) -> None:
    with writer.task(task) as output:
        output.facts.update(facts)


def test_a_record_is_read_once_by_whoever_holds_the_writer(tmp_path: Path) -> None:
    with ArtifactWriter.begin(tmp_path, "partition", {}, {}) as writer:
        small = len(pickle.dumps(writer))
        for number in range(3):
            record_facts(writer, f"part/{number}", found=number)
        with patch.object(task_record, "read_json", wraps=read_json) as reading:
            assert len(writer.recorded("part/")) == len(writer.recorded()) == 3
            assert writer.recorded_of(["part/1", "part/3"])["part/1"].facts["found"] == 1
        assert sorted(Path(call.args[0]).name for call in reading.call_args_list) == [
            f"part-{number}.json" for number in range(3)
        ]
        # What is sent with every task does not grow with the records.
        assert len(pickle.dumps(writer)) == small
        assert pickle.loads(pickle.dumps(writer)) == writer


def test_few_records_are_found_without_a_list_of_all(tmp_path: Path) -> None:
    """A graph of thousands of relations has phases of one task each, which would read the list thousands of times."""
    with ArtifactWriter.begin(tmp_path, "partition", {}, {}) as writer:
        names = [f"part/{number}" for number in range(100)]
        for name in names[::2]:
            record_facts(writer, name, found=1)
        with patch.object(os, "listdir", wraps=os.listdir) as listing:
            assert list(writer.recorded_of(names[:10])) == names[:10:2]
            assert not listing.called
            assert len(writer.recorded_of(names)) == 50
            assert listing.call_count == 1


@pytest.mark.parametrize("by_this_process", [False, True])
def test_a_record_that_has_changed_is_read_again(tmp_path: Path, by_this_process: bool) -> None:
    with ArtifactWriter.begin(tmp_path, "partition", {}, {}) as writer:
        other = writer if by_this_process else pickle.loads(pickle.dumps(writer))
        # Files of one length, made and removed within a tick of the clock, may look the same.
        for found in range(100, 200):
            record_facts(other, "part/0", found=found)
            assert writer.recorded()["part/0"].facts["found"] == found
            assert writer.recorded_of(["part/0"])["part/0"].facts["found"] == found
        other.forget("part/0")
        assert writer.recorded() == writer.recorded_of(["part/0"]) == {}


def test_a_record_that_is_damaged_after_it_was_read_is_not_believed(tmp_path: Path) -> None:
    with ArtifactWriter.begin(tmp_path, "partition", {}, {}) as writer:
        record_facts(writer, "part/0", found=1234)
        assert writer.recorded()["part/0"].facts["found"] == 1234
        path = writer.work / "records" / "part-0.json"
        damaged = path.read_bytes().replace(b"1234", b"1235")
        # Later than the clock that stamps files can tell apart.
        written = path.stat().st_mtime_ns
        path.write_bytes(damaged)
        os.utime(path, ns=(written, written + 10**7))
        with pytest.raises(DamagedWorkError):
            writer.recorded()


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    artifact = write_partition(tmp_path)
    edit_manifest(artifact, format_version=99)
    with pytest.raises(FormatError, match="format 99 is newer"):
        Artifact(artifact.path)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', '{"a": 1}', '{"format": "1"}', "\x00\xff", "[" * 100_000])
def test_garbage_in_the_manifest_is_one_clear_error(tmp_path: Path, text: str) -> None:
    artifact = write_partition(tmp_path)
    (artifact.path / MANIFEST).write_text(text)
    with pytest.raises((CorruptError, FormatError), match=MANIFEST):
        Artifact(artifact.path)


def test_arrays_that_break_the_registry_are_refused(tmp_path: Path) -> None:
    for shape, dtype, dims, message in (
        ((100,), np.int64, ("vertex",), "is int64"),
        ((100, 1), np.int32, ("vertex", "x"), "2 dimensions"),
        ((99,), np.int32, ("vertex",), "has 99 along vertex, expected 100"),
    ):
        with ArtifactWriter.begin(tmp_path, "partition", {"case": message}, {}) as writer:
            with writer.task("part/0") as output:
                output.add(write_array(writer.path, "part", np.zeros(shape, dtype), dims))
            with pytest.raises(FormatError, match=message):
                writer.commit(["part/0"], {"vertex": 100}, {})


def test_missing_and_unknown_arrays_are_refused(tmp_path: Path) -> None:
    with ArtifactWriter.begin(tmp_path, "partition", {}, {}) as writer:
        with writer.task("part/0"):
            pass
        with pytest.raises(FormatError, match="lacks part"):
            writer.commit(["part/0"], {"vertex": 100}, {})
        with writer.task("part/0") as output:
            output.add(write_array(writer.path, "other", PART, ("vertex",)))
        with pytest.raises(FormatError, match="other is not part of an artifact"):
            writer.commit(["part/0"], {"vertex": 100}, {})


def _hold_then_commit(dataset: Path, holding: Any) -> None:
    with ArtifactWriter.begin(dataset, "partition", {"seed": 0}, {"graph": "g"}) as writer:
        holding.set()
        time.sleep(0.5)
        with writer.task("part/0") as output:
            output.add(write_array(writer.path, "part", PART, ("vertex",)))
        writer.commit(["part/0"], {"vertex": 100}, {"quality": {}})


@pytest.mark.slow
def test_the_second_of_two_writers_finds_the_artifact_complete(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    holding = context.Event()
    first = context.Process(target=_hold_then_commit, args=(tmp_path, holding))
    first.start()
    assert holding.wait(30)
    with ArtifactWriter.begin(tmp_path, "partition", {"seed": 0}, {"graph": "g"}) as writer:
        assert writer.is_complete
    first.join(30)
    assert first.exitcode == 0


def test_verify_finds_a_changed_entry_of_the_manifest(tmp_path: Path) -> None:
    artifact = write_partition(tmp_path)
    arrays = json.loads((artifact.path / MANIFEST).read_text())["arrays"]
    arrays["part"]["pieces"][0][2] = "0" * 32
    edit_manifest(artifact, arrays=arrays)
    with pytest.raises(CorruptError, match="digest"):
        Artifact(artifact.path).verify()


def _make_group_often(path: Path) -> None:
    for _ in range(200):
        write_group(path, {"row_offset": 5})


@pytest.mark.slow
def test_a_group_made_by_many_tasks_at_once_is_whole_at_any_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    task = context.Process(target=_make_group_often, args=(tmp_path / "order",))
    task.start()
    _make_group_often(tmp_path / "order")
    task.join(60)
    assert task.exitcode == 0
    assert dict(zarr.open_group(str(tmp_path / "order"), mode="r").attrs) == {"row_offset": 5}
