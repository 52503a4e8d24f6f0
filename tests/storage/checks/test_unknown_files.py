"""`catalog verify` reports files that gnnloom did not write, and an import that finds one publishes nothing."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
import xxhash

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.checks.verify import verify_dataset
from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.upkeep.archive import HEAD, TAIL, export_dataset
from gnnloom.storage.upkeep.archive_import import import_dataset
from support.small_catalogs import begin_partition, store_small_dataset

#: Places for a file that nobody wrote; ``{graph}`` and others stand for keys of complete artifacts.
FOREIGN = (
    "evil.py",
    "evil/__init__.py",
    "graph/evil.py",
    "graph/{graph}/x.so",
    "graph/{graph}/block/x.py",
    "graph/{graph}/degree/c/evil.py",
    "graph/evil/evil.py",
    "graph/evil/degree/c/0.py",
    "vertices/{vertices}/__init__.py",
    "shards/{shards}/sections/evil.py",
    "runs/evil.py",
    "runs/__init__.py",
    "runs/first/evil.py",
    "runs/first/evil",
    "runs/first/evil.json",
    "runs/first/__pycache__/evil.cpython-311.pyc",
    "runs/first/tensorboard/evil.py",
    "runs/first/tensorboard/evil.SO",
    "runs/first/checkpoint/evil.py",
    "runs/first/checkpoint/best/evil.py",
    "runs/first/checkpoint/00000003/evil.py",
    "runs/first/checkpoint/00000003/layers/evil.py",
    "runs/first/predictions/evil.py",
    "runs/first/replaced-predictions/evil.py",
    "runs/unborn/evil.py",
)
#: Places in which gnnloom, its loggers and killed processes leave files.
OWN = (
    ".locks/graph-1",
    ".mapped/copy/array",
    "runs/first/tensorboard/events.out.tfevents.1.host.2.3",
    "runs/first/mlflow_run_id",
    "runs/first/other-logger/deep/log.bin",
    "runs/first/.waiting/rank-0.json",
    "runs/first/.writing-predictions/label/c/0",
    "runs/first/checkpoint/.writing-00000009/zarr.json",
    "runs/first/.result.json.0123456789abcdef0123456789abcdef",
    "graph/.removed-1/evil.py",
    "runs/unborn/metrics.jsonl",
)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    dataset = store_small_dataset(Catalog(tmp_path_factory.mktemp("original") / "catalog"))
    begin_partition(dataset)
    return dataset


def placed(dataset: Dataset, place: str) -> Path:
    """The path that a place stands for in a dataset."""
    keys = {info.kind: info.key for info in dataset.artifacts() if info.state == "complete"}
    return dataset.path / place.format(**keys)


def put(path: Path) -> list[Path]:
    """Write a file; returns what was made for it, the innermost first."""
    made = [path, *(parent for parent in path.parents if not parent.exists())]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return made


def damaged(dataset: Dataset) -> list[str]:
    return [str(finding.problem) for finding in verify_dataset(dataset, quick=True) if finding.is_damaged]


@pytest.mark.slow
def test_verification_reports_every_file_that_gnnloom_did_not_write(original: Dataset) -> None:
    assert not damaged(original)
    for place in FOREIGN:
        file = placed(original, place)
        made = put(file)
        (problem,) = damaged(original)
        assert str(file) in problem
        assert "gnnloom did not write this file" in problem
        for path in made:
            path.unlink() if path.is_file() else path.rmdir()
    assert not damaged(original)


def test_verification_accepts_the_files_of_writers_loggers_and_killed_processes(original: Dataset) -> None:
    for place in OWN:
        # A damaged copy, or an empty log, is no longer a question of names.
        if not place.startswith((".mapped", "runs/unborn")):
            made = put(placed(original, place))
            assert not damaged(original), place
            for path in made:
                path.unlink() if path.is_file() else path.rmdir()


def with_member(archive: Path, out: Path, name: str) -> None:
    """Copy an archive with one more file, listed with its right digest, as a stranger would write it."""
    with tarfile.open(archive) as tar:
        content = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}  # type: ignore[union-attr]
    head, tail = json.loads(content.pop(HEAD)), json.loads(content.pop(TAIL))
    content[name] = b"open('ran', 'w')\n"
    head |= {"files": head["files"] + 1, "bytes": head["bytes"] + len(content[name])}
    tail["digests"][name] = xxhash.xxh3_128_hexdigest(content[name])
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as tar:
        for each, data in {HEAD: json.dumps(head).encode(), **content, TAIL: json.dumps(tail).encode()}.items():
            member = tarfile.TarInfo(each)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


@pytest.mark.slow
def test_an_import_refuses_every_file_that_gnnloom_did_not_write(
    original: Dataset, tmp_path: Path, catalog: Catalog
) -> None:
    archive, hostile = tmp_path / "web.tar", tmp_path / "hostile.tar"
    export_dataset(original, archive)
    for place in FOREIGN:
        name = placed(original, place).relative_to(original.path).as_posix()
        with_member(archive, hostile, name)
        with pytest.raises((CorruptError, InputError)) as caught:
            import_dataset(catalog, hostile)
        # Of a folder without a manifest, the error may name only the folder.
        assert "/".join(name.split("/")[:2]) in str(caught.value)
        assert not list(catalog)
        assert not list(catalog.root.iterdir())
    with_member(archive, hostile, "runs/first/tensorboard/events.out.tfevents.1.host.2.3")
    assert import_dataset(catalog, hostile).runs() == ["first"]
