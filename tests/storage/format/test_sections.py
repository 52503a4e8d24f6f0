"""A reader of one shard parses the list of that shard, and what is written is on disk before it is announced."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage.disk import files
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.disk.groups import METADATA
from gnnloom.storage.errors import CorruptError, FormatError, NotFoundError
from gnnloom.storage.format import artifact as artifact_file
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import MANIFEST, Artifact, ArtifactWriter
from gnnloom.storage.format.schema import SCHEMAS, check_records
from gnnloom.storage.format.sections import read_section, section_of, write_section

BLOCKS = 40
#: Taken before the tests skip it.
_FSYNC = os.fsync


def write_graph(dataset: Path) -> Artifact:
    """A graph of one vertex per block, each with a self loop."""
    names = [f"block/{number:05d}" for number in range(BLOCKS)]
    with ArtifactWriter.begin(dataset, "graph", {"blocks": BLOCKS}, {}) as writer:
        for number, name in enumerate(names):
            with writer.task(name) as output:
                output.add(write_array(writer.path, f"{name}/indptr", np.array([0, 1]), ("row+1",)))
                output.add(write_array(writer.path, f"{name}/indices", np.array([number]), ("nonzero",)))
        with writer.task("degree") as output:
            output.add(write_array(writer.path, "degree", np.ones(BLOCKS, np.int64), ("vertex",)))
        return writer.commit([*names, "degree"], {"vertex": BLOCKS}, {})


def test_opening_an_array_reads_the_list_of_its_section_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = write_graph(tmp_path).path, []

    def counted(artifact: Path, section: str, digest: str) -> object:
        read.append(section)
        return read_section(artifact, section, digest)

    monkeypatch.setattr(artifact_file, "read_section", counted)
    graph = Artifact(path)
    assert graph.array("degree").shape == (BLOCKS,)
    assert read == []
    for _ in range(2):
        assert graph.array("block/00007/indices").read().tolist() == [7]
        assert "block/00007/data" not in graph
    assert read == ["block/00007"]
    with pytest.raises(NotFoundError, match="no array block/00040/indices"):
        graph.array(f"block/{BLOCKS:05d}/indices")
    # One line per section: what every reader parses grows with their number and not with that of the arrays.
    assert (path / MANIFEST).stat().st_size < 1500 + 60 * BLOCKS
    assert len(graph.records) == 2 * BLOCKS + 1
    assert len(read) == BLOCKS


def test_a_list_that_is_missing_damaged_or_another_ones_is_refused(tmp_path: Path) -> None:
    path = write_graph(tmp_path).path
    lists = path / "sections"
    one, other = lists / "block-00001.json", lists / "block-00002.json"
    texts = one.read_bytes(), other.read_bytes()
    for change in (one.unlink, lambda: one.write_bytes(texts[1]), lambda: one.write_bytes(texts[0] + b" ")):
        change()
        with pytest.raises(CorruptError, match=r"block-00001\.json"):
            Artifact(path).array("block/00001/indices")
        with pytest.raises(CorruptError, match=r"block-00001\.json"):
            Artifact(path).verify()
        assert Artifact(path).array("block/00002/indices").read().tolist() == [2]
        one.write_bytes(texts[0])
    assert Artifact(path).verify() == 2 * BLOCKS + 1


def test_everything_is_synced_before_the_manifest_and_arrays_by_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        _FSYNC(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(artifact_file, "sync_paths", files.sync_paths)
    path = write_graph(tmp_path).path
    # The manifest is synced under its temporary name, and then its folder.
    manifest = next(at for at, each in enumerate(synced) if each.name.startswith(f".{MANIFEST}"))
    before, everything = set(synced[:manifest]), {each for each in path.rglob("*") if each.name != MANIFEST}
    assert everything <= before
    records = [at for at, each in enumerate(synced) if each.name.startswith(".block-00007.json")]
    chunk = synced.index(path / "block" / "00007" / "indices" / "c" / "0")
    assert chunk < records[0]


def test_the_commit_syncs_every_group_above_an_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[Path] = set()
    sync = files.sync_paths

    def noted(paths: Iterable[Path]) -> None:
        listed = list(paths)
        synced.update(listed)
        sync(listed)

    segment = "rank/00000/epoch/00000/segment/00000"
    with ArtifactWriter.begin(tmp_path, "samples", {}, {}) as writer:
        with writer.task("draw") as output:
            output.add(write_array(writer.path, f"{segment}/vertex", np.arange(3), ("row",)))
        monkeypatch.setattr(artifact_file, "sync_paths", noted)
        path = writer.commit(["draw"], {"vertex": 3}, {}).path
    groups = [path, *(path / parent for parent in Path(f"{segment}/vertex").parents)]
    assert {each for group in groups for each in (group, group / METADATA)} <= synced


@pytest.mark.parametrize("section", ["../../outside", "block/..", "block/00007/", "other/00007"])
def test_a_section_that_is_no_folder_of_the_kind_is_refused(tmp_path: Path, section: str) -> None:
    path = write_graph(tmp_path).path
    manifest = read_json(path / MANIFEST)
    write_json(path / MANIFEST, {**manifest, "sections": {**manifest["sections"], section: "0" * 32}})
    with pytest.raises(CorruptError, match="cannot be a section"):
        Artifact(path)


def test_a_list_of_other_arrays_or_none_is_refused(tmp_path: Path) -> None:
    path = write_graph(tmp_path).path
    manifest = read_json(path / MANIFEST)
    records = Artifact(path).records
    for wrong in ([records["block/00002/indices"]], []):
        digest = write_section(path, "block/00001", wrong)
        sections = {**manifest["sections"], "block/00001": digest}
        write_json(path / MANIFEST, {**manifest, "sections": sections})
        with pytest.raises(CorruptError, match="block/00001 is not a section"):
            Artifact(path).array("block/00001/indices")


def test_a_path_of_an_array_leads_nowhere_else(tmp_path: Path) -> None:
    path = write_graph(tmp_path).path
    record = replace(Artifact(path).record("block/00001/indices"), path="block/../indices")
    with pytest.raises(FormatError, match=r"block/\.\./indices"):
        check_records("here", "graph", [record], {"vertex": BLOCKS})


def test_every_array_with_a_number_in_its_path_belongs_to_a_section() -> None:
    for kind, schema in SCHEMAS.items():
        for pattern in schema:
            section = section_of(kind, pattern)
            assert bool(section) == ("*" in pattern)
            assert pattern.startswith(section)
    assert section_of("shards", "grid/even/000/001/indptr") == "grid/even/000/001"
    assert section_of("shards", "row/00003/transpose/own/data") == "row/00003"
    assert section_of("samples", "rank/00001/epoch/00002/segment/00003/seed") == "rank/00001"
