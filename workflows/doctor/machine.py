"""Checks of the machine: cores, memory, shared memory, and the disk of the catalog."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from pathlib import Path

import numpy as np

from gnnloom.storage.disk.files import existing_folder
from gnnloom.storage.machine_memory import memory_text
from gnnloom.workflows.doctor.finding import FAILED, OK, WARNING, Verdict

_GIB = 1 << 30
_MIB = 1 << 20
#: Less free memory than this is a warning.
_LOW_MEMORY = 2 * _GIB
#: Smaller shared memory than this is a warning: containers have 64 MiB by default.
_LOW_SHARED_MEMORY = 256 * _MIB
#: Bytes written and read to measure the disk: about a second's work for the slowest disk that passes.
_SPEED_BYTES = 64 * _MIB
#: MiB/s; slower writing is a warning.
_SLOW_DISK = 50


def check_cores() -> Verdict:
    """Check that the ranks have more than one core."""
    # A batch job may be bound to fewer cores than the machine has.
    count = len(os.sched_getaffinity(0))
    if count < 2:
        return Verdict("cores", WARNING, f"{count}", "all ranks share it; give the job more cores")
    return Verdict("cores", OK, f"{count}")


def check_memory() -> Verdict:
    """Check that some memory is free."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    # MemAvailable rather than MemFree: Linux gives up its page cache when programs need the memory.
    total, available = (int(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    found = f"{memory_text(available)} free of {memory_text(total)}"
    if available < _LOW_MEMORY:
        return Verdict("memory", WARNING, found, "use `--workers 1` and a small `--memory`, or close other programs")
    return Verdict("memory", OK, found)


def check_shared_memory() -> Verdict:
    """Check /dev/shm, through which the ranks of one machine exchange messages."""
    shared = Path("/dev/shm")  # noqa: S108 - where MPI puts it
    if not shared.is_dir():
        fix = "mount a tmpfs there: MPI on one machine needs it"
        return Verdict("shared memory", WARNING, f"{shared} does not exist", fix)
    size = shutil.disk_usage(shared).total
    if size < _LOW_SHARED_MEMORY:
        fix = "enlarge /dev/shm (in a container: --shm-size=1g), or ranks may end with a bus error"
        return Verdict("shared memory", WARNING, memory_text(size), fix)
    return Verdict("shared memory", OK, memory_text(size))


def check_catalog(folder: Path) -> Verdict:
    """Check that the catalog is a folder or can be created."""
    file = next((path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()), None)
    if file is not None:
        fix = "choose another folder with --catalog or GNNLOOM_CATALOG"
        return Verdict("catalog", FAILED, f"{folder} cannot be created: {file} is a file", fix)
    return Verdict("catalog", OK, f"{folder}" if folder.is_dir() else f"{folder}, not created yet")


def check_disk_space(folder: Path) -> Verdict:
    """Check that the catalog's file system has room."""
    free = shutil.disk_usage(existing_folder(folder)).free
    found = f"{memory_text(free)} free at {folder}"
    if free < _GIB:
        return Verdict("disk space", WARNING, found, "run `gnnloom catalog gc`, or choose another disk with --catalog")
    return Verdict("disk space", OK, found)


def check_disk_speed(folder: Path) -> Verdict:
    """Write and read a file on the catalog's file system, and measure how fast that is."""
    # Random bytes, because some file systems compress what they store.
    block = np.random.default_rng(0).bytes(_SPEED_BYTES)
    existing = existing_folder(folder)
    if not os.access(existing, os.W_OK):
        return Verdict("disk speed", FAILED, f"{existing} is not writable", "choose another folder with --catalog")
    file = existing / f".doctor-{uuid.uuid4().hex}"
    try:
        started = time.perf_counter()
        with file.open("wb") as out:
            out.write(block)
            out.flush()
            # Wait for the disk, or writing would measure memory.
            os.fsync(out.fileno())
            # Drop the pages from the cache, or reading would measure memory.
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
        return Verdict("disk speed", FAILED, "read different bytes than were written", "do not use this disk")
    if speeds[0] < _SLOW_DISK:
        return Verdict("disk speed", WARNING, found, "put the catalog on a faster disk with --catalog")
    return Verdict("disk speed", OK, found)
