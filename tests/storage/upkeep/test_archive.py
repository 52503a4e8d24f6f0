"""An archive carries a dataset over unchanged; a hostile archive is refused and leaves nothing."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.checks.verify import verify_dataset
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.errors import BudgetError, CorruptError, ExistsError, FormatError, InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.run import Run
from gnnloom.storage.upkeep import archive, arrival
from gnnloom.storage.upkeep.archive import HEAD, TAIL, export_dataset
from gnnloom.storage.upkeep.archive_import import import_dataset
from support.damage import edit_manifest
from support.graphs import random_adjacency, store_graph
from support.small_catalogs import begin_partition, store_small_dataset


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exported")
    dataset = store_small_dataset(Catalog(root / "catalog"))
    begin_partition(dataset)
    export_dataset(dataset, root / "web.tar")
    return root


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("end", [".tar", ".tar.zst", ".tar.gz"])
def test_a_dataset_comes_back_byte_for_byte(exported: Path, tmp_path: Path, end: str) -> None:
    original = Catalog(exported / "catalog")["web"]
    result = export_dataset(original, tmp_path / f"web{end}")
    assert result["archive_bytes"] == (tmp_path / f"web{end}").stat().st_size
    other = Catalog(tmp_path / "other")
    dataset = import_dataset(other, tmp_path / f"web{end}")
    (begun,) = (info for info in original.artifacts() if info.state != "complete")
    expected = {
        name: data
        for name, data in contents(original.path).items()
        if not name.startswith((".locks", f"partition/{begun.key}"))
    }
    assert contents(dataset.path) == expected
    assert len(expected) == result["files"]
    assert Run.open(dataset, "first").predictions().label().shape == (30,)
    assert [path.name for path in other.root.iterdir()] == ["web"]


def test_the_same_dataset_gives_the_same_archive(exported: Path, tmp_path: Path) -> None:
    export_dataset(Catalog(exported / "catalog")["web"], tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == (exported / "web.tar").read_bytes()


def test_an_import_never_overwrites_and_can_use_another_name(exported: Path, catalog: Catalog) -> None:
    import_dataset(catalog, exported / "web.tar")
    with pytest.raises(ExistsError, match="--as"):
        import_dataset(catalog, exported / "web.tar")
    assert import_dataset(catalog, exported / "web.tar", "copy").name == "copy"
    with pytest.raises(InputError, match=r"name '\.\./out'"):
        import_dataset(catalog, exported / "web.tar", "../out")
    assert sorted(path.name for path in catalog.root.iterdir()) == ["copy", "web"]


def test_an_export_refuses_existing_files_and_unknown_endings(exported: Path, tmp_path: Path) -> None:
    dataset = Catalog(exported / "catalog")["web"]
    (tmp_path / "web.tar").write_text("mine")
    with pytest.raises(ExistsError):
        export_dataset(dataset, tmp_path / "web.tar")
    for name in ("web.zip", ".tar", "web"):
        with pytest.raises(InputError, match=r"\.tar\.zst"):
            export_dataset(dataset, tmp_path / name)
    with pytest.raises(InputError, match="no folder"):
        export_dataset(dataset, tmp_path / "absent" / "web.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["web.tar"]
    assert (tmp_path / "web.tar").read_text() == "mine"


@pytest.mark.parametrize("kind", ["file", "folder", "artifact"])
def test_an_export_follows_no_link(catalog: Catalog, tmp_path: Path, kind: str) -> None:
    dataset = store_small_dataset(catalog, "web")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    artifact = next(info.path for info in dataset.artifacts() if info.state == "complete")
    if kind == "artifact":
        artifact.rename(tmp_path / "moved")
        artifact.symlink_to(tmp_path / "moved")
    else:
        (artifact / "extra").symlink_to(tmp_path / "secret" / ("key" if kind == "file" else ""))
    with pytest.raises(CorruptError, match="a link, which gnnloom never"):
        export_dataset(dataset, tmp_path / "web.tar")
    assert not (tmp_path / "web.tar").exists()


def member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.type, made.linkname = size, kind, link
    return made


def hostile(path: Path, *members: tuple[tarfile.TarInfo, bytes], announced: int = 1 << 20, files: int = 9) -> Path:
    """An archive with a valid head and these members."""
    head = json.dumps({"format_version": 1, "dataset": "web", "files": files, "bytes": announced}).encode()
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(member(HEAD, len(head)), io.BytesIO(head))
        for made, data in members:
            tar.addfile(made, io.BytesIO(data))
    return path


def test_names_that_lead_elsewhere_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    names = ("../evil", "graph/../../evil", "/etc/evil", "graph//evil", "graph/./evil", ".locks/x", "graph/k/.work/x")
    for number, name in enumerate(
        (*names, "graph\\..\\evil", "graph/\nevil", "graph/" + "x" * 300, "graph/" * 300 + "x")
    ):
        archive = hostile(tmp_path / f"{number}.tar", (member(name, 3), b"bad"))
        with pytest.raises(InputError, match=r"not a plain name|not a regular file"):
            import_dataset(catalog, archive)
        assert list(catalog.root.iterdir()) == []
    with pytest.raises(InputError, match="is not part of a dataset"):
        import_dataset(catalog, hostile(tmp_path / "other.tar", (member("bin/evil", 3), b"bad")))
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CONTTYPE,
        tarfile.DIRTYPE,
        tarfile.GNUTYPE_SPARSE,
        tarfile.GNUTYPE_LONGLINK,
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        b"Z",
    ],
)
def test_members_that_are_not_plain_files_are_refused(catalog: Catalog, tmp_path: Path, kind: bytes) -> None:
    archive = hostile(tmp_path / "web.tar", (member("graph/evil", 0, kind, "/etc/passwd"), b""))
    with pytest.raises(InputError, match="not a regular file"):
        import_dataset(catalog, archive)
    assert list(catalog.root.iterdir()) == []


def test_huge_members_are_refused_before_they_are_read(catalog: Catalog, tmp_path: Path) -> None:
    cases: list[tuple[Path, type[Exception], str]] = []
    for number, kind in enumerate((tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE)):
        path = tmp_path / f"{number}.tar"
        hostile(path)
        with path.open("r+b") as file:
            file.seek(1024)  # after the head and its contents
            file.write(member("graph/huge", 1 << 40, kind).tobuf(tarfile.GNU_FORMAT))
        cases.append((path, InputError, "not a regular file"))
    larger = hostile(tmp_path / "larger.tar", (member("graph/x", 2000), b"x" * 2000), announced=1000)
    cases.append((larger, InputError, "larger than the 9 files"))
    many = hostile(tmp_path / "many.tar", *((member(f"graph/{n}"), b"") for n in range(3)), files=2)
    cases.append((many, InputError, "larger than the 2 files"))
    cases.append((hostile(tmp_path / "full.tar", announced=1 << 60), BudgetError, "the disk has"))
    for path, kind_of_error, message in cases:
        with pytest.raises(kind_of_error, match=message):
            import_dataset(catalog, path)
        assert list(catalog.root.iterdir()) == []


def test_many_long_names_in_a_row_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    path = hostile(tmp_path / "web.tar")
    block = member("x", 10, tarfile.GNUTYPE_LONGNAME).tobuf(tarfile.GNU_FORMAT) + b"graph/name".ljust(512, b"\0")
    with path.open("r+b") as file:
        file.seek(1024)
        file.write(block * 5000)
    with pytest.raises(InputError, match="cut short"):
        import_dataset(catalog, path)
    assert list(catalog.root.iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage" * 1000,
        b"\0" * 10240,
        b"\x28\xb5\x2f\xfdgarbage",
        b"\x1f\x8bgarbage",
        gzip.compress(b"x", mtime=0),
    ],
)
def test_files_that_are_not_archives_are_refused(catalog: Catalog, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "web.tar").write_bytes(data)
    with pytest.raises(InputError, match=r"web\.tar: "):
        import_dataset(catalog, tmp_path / "web.tar")
    assert list(catalog.root.iterdir()) == []


def test_lists_that_a_killed_process_left_outdated_are_written_by_the_import(tmp_path: Path, catalog: Catalog) -> None:
    original = store_small_dataset(Catalog(tmp_path / "original"))
    files = [
        original.path / folder / "zarr.json" for folder in (".", "partition", "runs/first", "runs/first/checkpoint")
    ]
    for file in files:
        content = read_json(file, sealed=False)
        content["consolidated_metadata"]["metadata"] = {}
        write_json(file, content, sealed=False, indent=None)
    export_dataset(original, tmp_path / "web.tar")
    dataset = import_dataset(catalog, tmp_path / "web.tar")
    assert not [finding for finding in verify_dataset(dataset, quick=True) if finding.problem]
    original.collect_garbage()
    for file in files:
        assert (dataset.path / file.relative_to(original.path)).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("end", [".tar", ".tar.zst", ".tar.gz"])
def test_an_archive_cut_short_anywhere_is_refused(exported: Path, catalog: Catalog, tmp_path: Path, end: str) -> None:
    whole = tmp_path / f"web{end}"
    export_dataset(Catalog(exported / "catalog")["web"], whole)
    data = whole.read_bytes()
    for share in (0.02, 0.3, 0.6, 0.9):
        whole.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(InputError, match="cut short"):
            import_dataset(catalog, whole)
        assert list(catalog.root.iterdir()) == []


def rewrite(source: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """A copy of the archive with changed contents, without the members for which ``change`` returns None."""
    with tarfile.open(source) as before, tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as after:
        for old in before:
            file = before.extractfile(old)
            assert file is not None
            data = change(old.name, file.read())
            if data is not None:
                after.addfile(member(old.name, len(data)), io.BytesIO(data))
    return target


def test_changed_missing_and_repeated_files_are_refused(exported: Path, catalog: Catalog, tmp_path: Path) -> None:
    source = exported / "web.tar"
    changed = rewrite(source, tmp_path / "a.tar", lambda n, d: d[:-1] + b"#" if n.endswith("part/c/0") else d)
    with pytest.raises(CorruptError, match="differs from what was exported"):
        import_dataset(catalog, changed)
    missing = rewrite(source, tmp_path / "b.tar", lambda n, d: None if n.endswith("part/c/0") else d)
    with pytest.raises(InputError, match="lacks 1 file, the first is"):
        import_dataset(catalog, missing)
    without_tail = rewrite(source, tmp_path / "c.tar", lambda n, d: None if n == TAIL else d)
    with pytest.raises(InputError, match="cut short after"):
        import_dataset(catalog, without_tail)
    twice = hostile(tmp_path / "d.tar", (member("zarr.json", 2), b"{}"), (member("zarr.json", 2), b"{}"))
    under = hostile(tmp_path / "e.tar", (member("zarr.json", 2), b"{}"), (member("zarr.json/x", 2), b"{}"))
    for blocked in (twice, under):
        with pytest.raises(InputError, match="has the name of another file"):
            import_dataset(catalog, blocked)
    for version, said in ((b'"format_version": 9', "format 9 is newer"), (b'"format": 1', "a development version")):

        def renumbered(name: str, content: bytes, version: bytes = version) -> bytes:
            return content.replace(b'"format_version": 1', version) if name == HEAD else content

        other = rewrite(source, tmp_path / "f.tar", renumbered)
        with pytest.raises(FormatError, match=said):
            import_dataset(catalog, other)
    assert list(catalog.root.iterdir()) == []


def test_a_damaged_dataset_is_refused_even_in_a_sound_archive(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = store_small_dataset(Catalog(tmp_path / "damaged"))
    artifact = dataset.partition(2).artifact
    chunk = artifact.path / "part" / "c" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"#")
    with pytest.raises(CorruptError, match=r"part/c/0: "):
        export_dataset(dataset, tmp_path / "web.tar")
    assert not list(tmp_path.glob("*web.tar*"))
    # Another program might write such an archive, or the damage might happen during an export.
    monkeypatch.setattr(archive, "refuse_damage", lambda dataset: None)
    export_dataset(dataset, tmp_path / "web.tar")
    with pytest.raises(CorruptError, match=r"/web\.tar: .*web\.tar/partition/"):
        import_dataset(catalog, tmp_path / "web.tar")
    edit_manifest(Artifact(artifact.path), digest="0" * 32)
    export_dataset(dataset, tmp_path / "again.tar")
    with pytest.raises(CorruptError, match=r"again\.tar"):
        import_dataset(catalog, tmp_path / "again.tar")
    assert list(catalog.root.iterdir()) == []


def test_an_error_names_the_archive_rather_than_a_temporary_folder(
    exported: Path, catalog: Catalog, tmp_path: Path
) -> None:
    def without_group(name: str, data: bytes) -> bytes | None:
        content = json.loads(data) if name in {HEAD, TAIL} else {}
        if name == HEAD:
            return json.dumps(content | {"files": content["files"] - 1}).encode()
        if name == TAIL:
            return json.dumps({"digests": {k: v for k, v in content["digests"].items() if k != "zarr.json"}}).encode()
        return None if name == "zarr.json" else data

    with pytest.raises(CorruptError, match=r"/a\.tar: "):
        import_dataset(catalog, rewrite(exported / "web.tar", tmp_path / "a.tar", without_group))


def test_an_existing_name_is_refused_before_anything_is_unpacked(
    exported: Path, catalog: Catalog, tmp_path: Path
) -> None:
    catalog.create("web")
    cut = tmp_path / "web.tar"
    cut.write_bytes((exported / "web.tar").read_bytes()[:4096])
    with pytest.raises(ExistsError, match="--as"):
        import_dataset(catalog, cut)


def test_simultaneous_exports_to_one_file_do_not_harm_each_other(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, write = Catalog(exported / "catalog")["web"], archive._write_members

    def interrupted(*arguments: Any) -> None:
        monkeypatch.setattr(archive, "_write_members", write)
        write(*arguments)
        export_dataset(dataset, tmp_path / "web.tar")

    monkeypatch.setattr(archive, "_write_members", interrupted)
    export_dataset(dataset, tmp_path / "web.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["web.tar"]
    assert (tmp_path / "web.tar").read_bytes() == (exported / "web.tar").read_bytes()


def test_a_failed_export_leaves_no_file(tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = store_small_dataset(catalog)
    before = sorted(tmp_path.iterdir())

    def full_disk(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space left"):
        export_dataset(dataset, tmp_path / "web.tar")
    assert sorted(tmp_path.iterdir()) == before


def test_an_import_whose_folder_is_collected_before_it_is_locked_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open
    removed: list[Path] = []

    def open_later(path: Path, *arguments: int) -> int:
        if not removed:
            removed.append(path)
            path.rmdir()
        return opened(path, *arguments)

    monkeypatch.setattr("os.open", open_later)
    folder, descriptor = arrival._locked_folder(tmp_path, None)
    os.close(descriptor)
    assert folder not in removed
    assert list(tmp_path.iterdir()) == [folder]


def test_links_and_the_graph_without_them_come_back(tmp_path: Path) -> None:
    dataset, adjacency = Catalog(tmp_path / "from").create("web"), random_adjacency(40, 150, 1, symmetric=True)
    graph = store_graph(dataset, adjacency, symmetric=True)
    links = draw_links(dataset, graph, DrawOptions(valid=0.1), InProcessCluster())
    export_dataset(dataset, tmp_path / "web.tar")
    found = import_dataset(Catalog(tmp_path / "into"), tmp_path / "web.tar")
    assert found.links().artifact.manifest == links.artifact.manifest
    assert found.graph(found.links().message_graph).nnz == graph.nnz - links.artifact.facts["held_out_entries"]
    assert [finding.problem for finding in Catalog(tmp_path / "into")["web"].verify()] == [None] * 3
