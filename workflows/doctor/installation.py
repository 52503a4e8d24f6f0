"""Checks of the machine and of what is installed, each with how to mend what is wrong."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from gnnloom.storage.errors import GnnloomError

OK, WARNING, FAILED = "ok", "warning", "failed"
_PACKAGES = ("numpy", "scipy", "numba", "zarr", "numcodecs", "pyarrow", "dask", "distributed", "torch", "mpi4py")
_GIB = 1 << 30
_MIB = 1 << 20
_MPI_SECONDS = 60
_SPEED_BYTES = 64 * _MIB
_RANK_PROGRAM = (
    "from mpi4py import MPI; c = MPI.COMM_WORLD; s = c.allreduce(c.rank + 1);"
    " print(f'sum {s}', flush=True) if c.rank == 0 else None"
)


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: what was checked, ``ok``, ``warning`` or ``failed``, what was found, and what to do."""

    check: str
    state: str
    found: str
    mend: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def examine(folder: Path) -> Iterator[Finding]:
    """Run every check, each as it is asked for.

    Args:
        folder: of the catalog, existing or not: its file system is measured.
    """
    checks: tuple[tuple[str, Callable[[], Finding]], ...] = (
        ("python", check_python),
        ("packages", check_packages),
        ("cores", check_cores),
        ("memory", check_memory),
        ("shared memory", check_shared_memory),
        ("kernels", check_kernels),
        ("mpi", check_mpi),
        ("catalog", lambda: check_catalog(folder)),
        ("disk space", lambda: check_disk_space(folder)),
        ("disk speed", lambda: check_disk_speed(folder)),
    )
    for name, check in checks:
        yield _guarded(name, check)
    yield from check_partitioners()


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - whatever is broken is the finding
        return Finding(name, FAILED, f"{type(error).__name__}: {error}", "install gnnloom again: `pip install gnnloom`")


def check_python() -> Finding:
    """Python counts with 64 bits; pip sees to its version."""
    found = f"{sys.version.split(maxsplit=1)[0]} at {sys.executable}"
    if sys.maxsize < 1 << 40:
        return Finding("python", FAILED, f"{found}, with 32 bits", "use a Python for 64 bits")
    return Finding("python", OK, found)


def check_packages() -> Finding:
    """What gnnloom is made of is installed and can be imported."""
    versions, missing = [], []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
            importlib.import_module(package)
        except (PackageNotFoundError, ImportError, OSError, RuntimeError) as error:
            missing.append(f"{package} ({error})")
    if missing:
        return Finding("packages", FAILED, f"cannot import {', '.join(missing)}", "`pip install gnnloom` again")
    return Finding("packages", OK, ", ".join(versions))


def check_cores() -> Finding:
    """There is more than one core for the ranks."""
    count = len(os.sched_getaffinity(0))
    if count < 2:
        return Finding("cores", WARNING, f"{count}", "ranks will share it; give the job more cores")
    return Finding("cores", OK, f"{count}")


def check_memory() -> Finding:
    """Some memory is free."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    found = f"{available / _GIB:.1f} GiB free of {total / _GIB:.1f}"
    if available < 2 * _GIB:
        return Finding("memory", WARNING, found, "use `--workers 1` and a small `--memory`, or end other programs")
    return Finding("memory", OK, found)


def check_shared_memory() -> Finding:
    """Ranks of one machine exchange through /dev/shm."""
    shared = Path("/dev/shm")  # noqa: S108 - where MPI puts it
    if not shared.is_dir():
        return Finding("shared memory", WARNING, "no /dev/shm", "mount a tmpfs there: MPI on one machine needs it")
    size = shutil.disk_usage(shared).total
    if size < 256 * _MIB:
        mend = "make /dev/shm larger (in a container: --shm-size=1g), or ranks may end with a bus error"
        return Finding("shared memory", WARNING, f"{size / _MIB:.0f} MiB", mend)
    return Finding("shared memory", OK, f"{size / _GIB:.1f} GiB")


def check_kernels() -> Finding:
    """The compiled kernels compile here and multiply rightly."""
    from gnnloom.storage.matrix.fingerprint import scan_rows

    matrix = np.random.default_rng(0).random((40, 40)) < 0.2
    columns, indptr = np.nonzero(matrix)[1], np.concatenate([[0], np.cumsum(matrix.sum(axis=1))]).astype(np.int64)
    symmetric = matrix | matrix.T
    values = np.empty(0, np.uint32)
    started = time.perf_counter()
    wrong = scan_rows(indptr, 0, columns, values, 0, -1, 40)[3]
    symmetric_indptr = np.concatenate([[0], np.cumsum(symmetric.sum(axis=1))]).astype(np.int64)
    forward, backward, _, _ = scan_rows(symmetric_indptr, 0, np.nonzero(symmetric)[1], values, 0, -1, 40)
    if wrong != -1 or forward != backward:
        return Finding("kernels", FAILED, "a compiled kernel gives a wrong result", "install another version of numba")
    return Finding("kernels", OK, f"compiled and right in {time.perf_counter() - started:.1f} s")


def check_mpi() -> Finding:
    """Two ranks start and add their numbers."""
    from gnnloom.trainer.job.launch import find_mpiexec, rank_environment

    try:
        launcher = find_mpiexec()
    except GnnloomError as error:
        return Finding("mpi", FAILED, str(error), "`pip install mpich mpi4py`")
    command = [launcher, "-n", "2", sys.executable, "-m", "mpi4py", "-c", _RANK_PROGRAM]
    started = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            env=rank_environment(2),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_MPI_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding(
            "mpi", FAILED, f"2 ranks did not end within {_MPI_SECONDS} s", f"try `{' '.join(command[:3])} hostname`"
        )
    if done.returncode != 0 or "sum 3" not in done.stdout:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or [f"exit code {done.returncode}"]
        mend = f"mpi4py and {launcher} must be of one MPI: `pip install mpich mpi4py` brings both"
        return Finding("mpi", FAILED, f"2 ranks did not add their numbers: {said[0]}", mend)
    return Finding("mpi", OK, f"2 ranks in {time.perf_counter() - started:.1f} s with {launcher}")


def check_catalog(folder: Path) -> Finding:
    """The catalog is a folder, or can become one."""
    file = next((place for place in (folder, *folder.parents) if place.exists() and not place.is_dir()), None)
    if file is not None:
        mend = "choose another place with --catalog or GNNLOOM_CATALOG"
        return Finding("catalog", FAILED, f"{folder} cannot be made: {file} is a file", mend)
    return Finding("catalog", OK, f"{folder}" if folder.is_dir() else f"{folder}, which will be made")


def check_disk_space(folder: Path) -> Finding:
    """The catalog's file system has room."""
    free = shutil.disk_usage(_existing(folder)).free
    found = f"{free / _GIB:.1f} GiB free at {folder}"
    if free < _GIB:
        return Finding("disk space", WARNING, found, "`gnnloom catalog gc`, or another place with --catalog")
    return Finding("disk space", OK, found)


def check_disk_speed(folder: Path) -> Finding:
    """The catalog's file system can be written and read; measures how fast."""
    block = np.random.default_rng(0).bytes(_SPEED_BYTES)
    place = _existing(folder)
    if not os.access(place, os.W_OK):
        return Finding("disk speed", FAILED, f"{place} cannot be written", "choose another place with --catalog")
    file = place / f".doctor-{uuid.uuid4().hex}"
    try:
        started = time.perf_counter()
        with file.open("wb") as out:
            out.write(block)
            out.flush()
            os.fsync(out.fileno())
            # Else the read would measure memory.
            os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        written = time.perf_counter()
        same = file.read_bytes() == block
        speeds = [
            _SPEED_BYTES / _MIB / max(seconds, 1e-9) for seconds in (written - started, time.perf_counter() - written)
        ]
    finally:
        file.unlink(missing_ok=True)
    found = f"writes {speeds[0]:,.0f} MiB/s, reads {speeds[1]:,.0f} MiB/s"
    if not same:
        return Finding("disk speed", FAILED, "what was read is not what was written", "do not trust this disk")
    if speeds[0] < 50:
        return Finding("disk speed", WARNING, found, "put the catalog on a faster disk with --catalog")
    return Finding("disk speed", OK, found)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    return next(place for place in (folder, *folder.parents) if place.is_dir())


def check_partitioners() -> Iterator[Finding]:
    """Every partitioner splits a tiny graph, native ones in their child process; optional ones may be missing."""
    from gnnloom.pipeline.partition.stage import METHODS

    with tempfile.TemporaryDirectory(prefix="gnnloom-doctor-") as folder:
        for name in METHODS:
            yield _guarded(f"partitioner {name}", partial(_check_partitioner, Path(folder), name))


def _check_partitioner(folder: Path, name: str) -> Finding:
    from gnnloom.pipeline.partition.stage import METHODS, PartitionOptions

    package = METHODS[name].package
    try:
        installed = f", {package} {version(package)}" if package else ""
    except PackageNotFoundError:
        state = FAILED if name == PartitionOptions(2).method else WARNING
        return Finding(f"partitioner {name}", state, "not installed", f"`pip install {package}`, or another --method")
    return _partition(folder, name, installed)


def _partition(folder: Path, name: str, installed: str) -> Finding:
    from gnnloom.pipeline.partition.stage import METHODS, PartitionOptions, partition_graph
    from gnnloom.pipeline.tasks.cluster import InProcessCluster
    from gnnloom.storage import Catalog
    from gnnloom.workflows.doctor.tiny_example import store_tiny_graph

    dataset = Catalog(folder / "catalog").create("tiny")
    graph = store_tiny_graph(dataset)
    started = time.perf_counter()
    try:
        options = PartitionOptions(2, name, imbalance=0.1, time_limit=_MPI_SECONDS)
        partition = partition_graph(dataset, graph, options, InProcessCluster())
    except GnnloomError as error:
        said = str(error).splitlines()[0]
        mend = f"`pip install --force-reinstall {METHODS[name].package}`" if installed else "install gnnloom again"
        return Finding(f"partitioner {name}", FAILED, said, mend)
    sizes = np.bincount(partition.part(), minlength=2)
    if len(sizes) != 2 or sizes.min() == 0:
        return Finding(f"partitioner {name}", FAILED, f"parts of {sizes.tolist()} vertices", "use another method")
    return Finding(f"partitioner {name}", OK, f"{time.perf_counter() - started:.1f} s{installed}")
