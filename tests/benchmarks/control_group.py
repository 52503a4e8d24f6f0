"""A control group of Linux: limits the memory of processes and the pages of the files that they read and write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Folder of the groups, and files of the limit and of the peak, in both versions of control groups.
_VERSIONS: Final = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max", "memory.peak"),
)


@dataclass(frozen=True)
class Group:
    """A control group.

    Attributes:
        folder: of its files.
        peak_file: with the most bytes that it had.
    """

    folder: Path
    peak_file: str

    def enter(self) -> None:
        """Move this process into the group; its children will be there, too."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def forget_peak(self) -> None:
        """Begin to measure the peak anew, where the system can."""
        with suppress(OSError):
            (self.folder / self.peak_file).write_text("0")

    @property
    def peak(self) -> int:
        """Most bytes of the group, pages of files included, since the last :meth:`forget_peak`."""
        return int((self.folder / self.peak_file).read_text())


@contextmanager
def memory_group(name: str, limit: int) -> Iterator[Group | None]:
    """A group with a limit of memory inside the block; None where this process may not make one.

    Args:
        limit: bytes for the processes and the pages of files together.
    """
    group = _made(name, limit)
    try:
        yield group
    finally:
        if group is not None:
            # Pages that are left belong to the group above from now on.
            group.folder.rmdir()


def _made(name: str, limit: int) -> Group | None:
    for root, limit_file, peak_file in _VERSIONS:
        if not (root / "cgroup.procs").exists():
            continue
        folder = root / name
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit_file).write_text(str(limit))
        except OSError:
            # A file system, or a system that gives this group no memory to limit.
            folder.rmdir()
            continue
        return Group(folder, peak_file)
    return None
