"""Temporary folders that can be distinguished from folders that a killed process left behind."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from gnnloom.storage.system_errors import naming

#: Every temporary folder of gnnloom outside of catalogs has a name that begins so.
PREFIX: Final = "gnnloom-"
#: A file in every such folder: a user may have given a similar name to a folder of their own.
MARK: Final = ".gnnloom-temporary"


@contextmanager
def own_folder(prefix: str = PREFIX, within: Path | None = None) -> Iterator[Path]:
    """A new temporary folder, removed at the end; its lock is held for as long as this process uses it.

    Args:
        within: folder to make it in; by default the system's temporary folder.
    """
    with tempfile.TemporaryDirectory(prefix=prefix, dir=within) as name:
        descriptor = os.open(name, os.O_RDONLY)
        try:
            # The system drops the lock of a killed process. A file system without locks leaves the folder unlocked.
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            Path(name, MARK).touch()
            with naming(name):
                yield Path(name)
        finally:
            os.close(descriptor)
