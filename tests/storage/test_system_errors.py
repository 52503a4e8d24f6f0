"""Limits of a process and failing disks are never taken for damage; what they are about, and the remedy, is named."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.external_sort.lanes import Lane, write_arrays
from gnnloom.pipeline.partition.multilevel.pieces import create_vector, store_vector
from gnnloom.pipeline.sources.reading.files import open_file
from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.whole_graph import map_whole_graph
from gnnloom.storage.checks.verify import verify_dataset
from gnnloom.storage.disk.files import write_json
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import in_one_line
from gnnloom.storage.format.arrays import ArrayReader, ArrayRecord, write_array
from gnnloom.storage.format.mapped_copy import copy_path
from gnnloom.storage.format.memory_map import map_copy
from gnnloom.storage.system_errors import check_is_of_content
from support.small_catalogs import store_small_dataset


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("errors") / "catalog")
    store_small_dataset(catalog)
    return catalog


@contextmanager
def limited(kind: int, most: int) -> Iterator[None]:
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def _descriptors(left: int) -> int:
    """The limit with which this process may open so many more files, given none between those that are open."""
    opened = [os.dup(0) for _ in range(left + 1)]
    for each in opened:
        os.close(each)
    return opened[left]


READERS: dict[str, Callable[[Catalog, Path, ArrayRecord], object]] = {
    "dataset": lambda catalog, *_: catalog.dataset("web"),
    "graph": lambda catalog, *_: catalog["web"].graph().block(0),
    "copy": lambda catalog, *_: map_whole_graph(catalog["web"].graph()),
    "verify": lambda catalog, *_: [each.problem for each in verify_dataset(catalog["web"]) if each.is_damaged],
    "source": lambda _, folder, *rest: open_file(str(folder / "edges.txt")),
    "array": lambda _, folder, record: ArrayReader(folder, record).read(),
}


@pytest.mark.parametrize("left", [0, 1, 2])
@pytest.mark.parametrize("name", READERS)
def test_too_few_descriptors_are_never_damage(catalog: Catalog, tmp_path: Path, name: str, left: int) -> None:
    (tmp_path / "edges.txt").write_text("0 1\n")
    record = write_array(tmp_path, "a", np.arange(9), ("row",))
    reader = partial(READERS[name], catalog, tmp_path, record)
    # Imports what the reader needs.
    usual = reader()
    try:
        with limited(resource.RLIMIT_NOFILE, _descriptors(left)):
            found = reader()
    except OSError as error:
        number, said = error.errno, in_one_line(error)
    else:
        assert name != "verify" or found == usual
        return
    assert number == errno.EMFILE
    assert said is not None
    assert "ulimit -n" in said[0]


#: Numbers of errors of a process's limits.
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.EFBIG, errno.ENOMEM)


def _write_lane(folder: Path) -> None:
    (folder / "lane").touch()
    write_arrays(folder, Lane("lane"), [np.ones(1 << 18)])


def _copy_to_map(folder: Path) -> None:
    stored = ArrayReader(folder, write_array(folder, "stored", np.zeros(1 << 18), ("row",)))
    map_copy(stored, folder)


def _write_temporary(folder: Path) -> None:
    with own_folder(within=folder) as own:
        (own / "text").write_text("1" * (1 << 21))


#: Ways to write 2 MiB, the name of the file or folder that an error names, and what it advises on a full disk.
WRITERS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "json": (lambda folder: write_json(folder / "a.json", {"a": "1" * (1 << 21)}), "a.json", "another disk"),
    "chunk": (
        lambda folder: write_array(folder, "x", np.random.default_rng(0).random(1 << 18), ("row",)),
        "x/c/0",
        "--catalog",
    ),
    "lane": (_write_lane, "lane", "another disk"),
    "array": (lambda folder: store_vector(folder / ".work" / "v.npy", np.ones(1 << 18)), "v.npy", "--scratch"),
    "created": (lambda folder: create_vector(folder / "v.npy", (1 << 18,), np.dtype(float)), "v.npy", "another disk"),
    "map": (_copy_to_map, "", "another disk"),
    "temporary": (_write_temporary, "gnnloom-", "TMPDIR"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_limit_of_the_size_of_files_is_named_with_the_file(tmp_path: Path, name: str) -> None:
    write, file, _ = WRITERS[name]
    with limited(resource.RLIMIT_FSIZE, 1 << 20), pytest.raises(OSError, match="File too large") as raised:
        write(tmp_path)
    with limited(resource.RLIMIT_FSIZE, 1 << 20):
        said = in_one_line(raised.value)
    assert said is not None
    assert said[0].startswith(str(tmp_path))
    assert file in said[0]
    assert "1 MiB (ulimit -f)" in said[0].replace("1.0", "1").replace("1,024 KiB", "1 MiB")


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk of 1 MiB."""
    folder = tmp_path_factory.mktemp("disk")
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("mounts need the rights of root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_named_with_the_file_and_the_remedy(full_disk: Path, name: str) -> None:
    write, file, remedy = WRITERS[name]
    folder = full_disk / name
    folder.mkdir()
    if remedy == "--catalog":
        (folder / "zarr.json").touch()
    try:
        with pytest.raises(OSError, match="No space left") as raised:
            write(folder)
    finally:
        shutil.rmtree(folder)
    said = in_one_line(raised.value)
    assert said is not None
    assert said[0].startswith(str(folder))
    assert file in said[0]
    assert f"the disk of {full_disk} has " in said[0]
    if remedy != "--catalog":
        assert remedy in said[0]


@pytest.mark.parametrize("number", [*_LIMITS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.ESTALE, errno.EIO])
def test_what_is_not_about_a_file_is_raised_with_its_name(number: int) -> None:
    error = OSError(number, os.strerror(number))
    with pytest.raises(OSError, match=os.strerror(number)) as raised:
        check_is_of_content(error, "catalog/web")
    assert number == errno.ENOMEM or raised.value.filename == "catalog/web"
    assert number == errno.ESTALE or in_one_line(error) is not None


@pytest.mark.parametrize(
    "error", [OSError(errno.EISDIR, "x"), FileNotFoundError("x"), ValueError("x"), OSError("a library's sentence")]
)
def test_what_is_about_a_file_is_left_to_its_reader(error: Exception) -> None:
    check_is_of_content(error, "catalog/web")


def test_an_artifact_that_cannot_be_listed_for_want_of_descriptors_is_not_missing(catalog: Catalog) -> None:
    dataset = catalog["web"]
    with limited(resource.RLIMIT_NOFILE, _descriptors(0)), pytest.raises(OSError, match="Too many open files"):
        dataset.partition(parts=2)
    assert copy_path(dataset.graph().artifact).name.startswith("graph")
