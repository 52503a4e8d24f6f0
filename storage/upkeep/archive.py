"""Exports a dataset to one file: a tar archive, plain or compressed, that appears whole.

The first member states that this is an archive of a dataset, and its size. The last member lists the digest of every
file, so that a truncated archive is recognized. Between them are the files of the dataset's complete artifacts and of
its runs. Import (:mod:`gnnloom.storage.upkeep.archive_import`) accepts only regular files with plain names below the
kinds of artifacts: no links, devices, sparse files, or names that lead elsewhere.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import xxhash

from gnnloom.storage.catalog import Dataset
from gnnloom.storage.checks.verify import MAPPED_KIND, verify_dataset
from gnnloom.storage.disk.files import written_aside
from gnnloom.storage.errors import CorruptError, ExistsError, InputError
from gnnloom.storage.format.artifact import WORK
from gnnloom.storage.format.schema import FORMAT_VERSION, VERSION_ENTRY
from gnnloom.storage.meters import ProgressMeter
from gnnloom.storage.system_errors import check_is_of_content, naming

HEAD, TAIL = "gnnloom-archive.json", "gnnloom-digests.json"
#: Compression by the ending of the file name.
COMPRESSIONS = {".tar": None, ".tar.zst": "zstd", ".tar.gz": "gzip"}


def export_dataset(dataset: Dataset, file: Path) -> dict[str, Any]:
    """Write the complete artifacts and the runs of a dataset to one file, which appears when it is whole.

    Unfinished artifacts are left out. A run may continue during the export; its metrics are exported up to that time.

    Args:
        file: new file whose name ends in one of ``COMPRESSIONS``; since arrays are compressed already, a plain
            ``.tar`` is rarely much larger.

    Returns:
        ``files``: number of files; ``bytes``: their total size; ``archive_bytes``: size of the archive.

    Raises:
        InputError: the file name has another ending, its folder does not exist, or a file of the dataset vanished
            during the export.
        ExistsError: the file exists already.
        CorruptError: something in the dataset is damaged.
    """
    compression = _compression(file)
    if file.exists():
        raise ExistsError(f"{file}: the file exists already; remove it, or choose another name")
    if not file.parent.is_dir():
        raise InputError(f"{file}: there is no folder {file.parent}")
    refuse_damage(dataset)
    # Sizes are taken once: a file of metrics that grows during the export is cut at this size.
    members = [(path, path.stat().st_size) for path in files_of(dataset)]
    with written_aside(file, durable=True) as aside, aside.open("wb") as raw:
        _write_members(raw, compression, dataset, members)
    return {"files": len(members), "bytes": sum(size for _, size in members), "archive_bytes": file.stat().st_size}


def refuse_damage(dataset: Dataset) -> None:
    """Refuse to export damage now: the import would refuse it later, when the original may be gone."""
    findings = verify_dataset(dataset, quick=True)
    # Copies are not exported.
    damaged = [finding for finding in findings if finding.is_damaged and finding.kind != MAPPED_KIND]
    if damaged:
        raise CorruptError(
            f"dataset {dataset.name}: damaged artifacts or runs: {len(damaged)}; remove them or make them again:"
            f" {damaged[0].problem}"
        )


def _compression(file: Path) -> str | None:
    for end, compression in COMPRESSIONS.items():
        if file.name.endswith(end) and file.name != end:
            return compression
    raise InputError(f"{file}: expected a file name that ends in {', '.join(COMPRESSIONS)}")


def files_of(dataset: Dataset) -> Iterator[Path]:
    """The files of the complete artifacts and the runs of a dataset, and of the groups above them.

    Raises:
        CorruptError: there is a link, which could lead to a file outside of the dataset.
    """
    complete = [info.path for info in dataset.artifacts() if info.state == "complete"]
    yield dataset.path / "zarr.json"
    for kind in sorted({dataset.runs_path, *(path.parent for path in complete)}):
        if (kind / "zarr.json").exists():
            yield kind / "zarr.json"
    for folder in (*complete, *(dataset.run_path(run) for run in dataset.runs())):
        yield from _plain_files(folder)


def _plain_files(folder: Path) -> Iterator[Path]:
    """Files in a fixed order, without temporary files and scratch folders.

    Raises:
        CorruptError: there is a link, which could lead to a file outside of the dataset.
    """
    for where, folders, names in os.walk(folder):
        # Assigned in place: os.walk descends into what is left in this list.
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != WORK)
        paths = [Path(where, name) for name in sorted(names) if not name.startswith(".")]
        for path in (Path(where), *(Path(where, name) for name in folders), *paths):
            if path.is_symlink():
                raise CorruptError(f"{path}: a link, which gnnloom never makes here and does not follow; remove it")
        yield from paths


def _write_members(raw: IO[bytes], compression: str | None, dataset: Dataset, members: list[tuple[Path, int]]) -> None:
    head = {
        VERSION_ENTRY: FORMAT_VERSION,
        "dataset": dataset.name,
        "files": len(members),
        "bytes": sum(size for _, size in members),
    }
    digests = {}
    with (
        _compressed(raw, compression) as stream,
        # Written as a stream, since a compressed file cannot be sought in. GNU format, because it stores long names
        # without the extended headers that the import refuses.
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as tar,
    ):
        _add_json(tar, HEAD, head)
        # Hashed while it is copied, so every file is read once.
        meter = ProgressMeter("export", len(members), "bytes")
        for path, size in members:
            name = path.relative_to(dataset.path).as_posix()
            digests[name] = _add_file(tar, path, name, size)
            meter.advance(size)
        # Last, so that an archive that was cut short anywhere lacks it.
        _add_json(tar, TAIL, {"digests": digests})


@contextmanager
def _compressed(raw: IO[bytes], compression: str | None) -> Iterator[Any]:
    if compression is None:
        yield raw
        return
    # pyarrow is a dependency already and brings zstd, which the standard library of most Python versions lacks.
    with pa.CompressedOutputStream(pa.PythonFile(raw, mode="w"), compression) as stream:
        yield stream


def _add_json(tar: tarfile.TarFile, name: str, content: dict[str, Any]) -> None:
    text = json.dumps(content, sort_keys=True).encode()
    tar.addfile(_member(name, len(text)), io.BytesIO(text))


def _add_file(tar: tarfile.TarFile, path: Path, name: str, size: int) -> str:
    try:
        with path.open("rb") as file:
            reader = _HashedReader(path, file)
            tar.addfile(_member(name, size), reader)
            return reader.digest()
    except OSError as error:
        # Without a name: of a write to the archive.
        if error.errno is not None and error.filename is None:
            raise
        check_is_of_content(error, path)
        raise InputError(f"{path}: changed during the export ({error}); try again") from error


def _member(name: str, size: int) -> tarfile.TarInfo:
    """A member without owner and time, so that the same dataset gives the same archive."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member


class _HashedReader:
    """A file that hashes everything read from it."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file, self._state = path, file, xxhash.xxh3_128()

    def read(self, size: int = -1) -> bytes:
        with naming(self._path):
            block = self._file.read(size)
        self._state.update(block)
        return block

    def digest(self) -> str:
        return self._state.hexdigest()
