"""The memory that this machine has left for this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class _GroupFiles:
    """The files in which a version of control groups reports the memory of a group.

    Attributes:
        mount: folder of the hierarchy.
        limit: file with the group's limit.
        used: file with the bytes in use.
        pages: counts in ``memory.stat`` of cached file pages and kernel objects that are freed when memory is needed.
    """

    mount: str
    limit: str
    used: str
    pages: tuple[str, ...]


#: By the controller that a line of ``/proc/self/cgroup`` names; version 2 names none.
_GROUP_FILES = {
    "": _GroupFiles("", "memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable")),
    "memory": _GroupFiles(
        "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
    ),
}


def memory_text(count: int) -> str:
    """Bytes of memory or disk space as text, in GiB from 1 GiB on, and in MiB, KiB or bytes below."""
    for size, unit in ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")):
        if size <= count < 1 << 30:
            return f"{count / size:,.0f} {unit}"
    return f"{count / (1 << 30):,.1f} GiB" if count else "0 bytes"


def available_memory(root: Path = Path("/")) -> int:
    """Bytes available without swapping, on this machine and in the control groups of this process.

    Args:
        root: folder in which ``proc`` and ``sys`` are mounted.
    """
    # A process may use only what both the machine and its control groups leave.
    return min([_free_memory(root), *_group_memory(root)])


def _free_memory(root: Path) -> int:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        # MemAvailable includes cached pages that the kernel can drop, which MemFree does not.
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        # Without /proc/meminfo only free pages are known, which underestimates what is available.
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_memory(root: Path) -> Iterator[int]:
    """The bytes left in each control group that has a limit; a container sees its own group at the top."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        own = PurePosixPath(path.lstrip("/"))
        for controller in set(controllers.split(",")) & _GROUP_FILES.keys():
            files = _GROUP_FILES[controller]
            # The limit of every ancestor applies as well.
            for group in (own, *own.parents):
                yield from _left_in(root / "sys/fs/cgroup" / files.mount / group, files)


def _left_in(folder: Path, files: _GroupFiles) -> Iterator[int]:
    """The bytes that a group may still allocate, if it has a limit."""
    try:
        limit = (folder / files.limit).read_text().strip()
        # Without a limit, version 1 reports a huge number, which is never the smallest.
        if limit == "max":
            return
        used = (folder / files.used).read_text().strip()
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return
    yield max(0, int(limit) - int(used) + sum(int(counts.get(name, 0)) for name in files.pages))
