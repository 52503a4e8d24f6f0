"""Where numba keeps compiled kernels if neither the installation nor the home directory can be written to.

Numba looks for such a folder when it decorates a function, and fails if there is none, as in a container, or on a
cluster whose shared modules and homes are read-only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import MutableMapping
from contextlib import suppress

#: Names numba's cache, in this process and in those that it starts.
KERNEL_CACHE = "NUMBA_CACHE_DIR"


def choose_kernel_cache(environment: MutableMapping[str, str], package: str) -> None:
    """Name a folder below the temporary one where numba would find none; call this before anything imports numba.

    Args:
        environment: of this process.
        package: a folder with source files, beside which numba keeps what it compiled if it can.
    """
    home = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - pathlib takes time
    if KERNEL_CACHE not in environment and not _is_writable(package) and not _is_writable(home):
        environment[KERNEL_CACHE] = _own_folder()


def _is_writable(folder: str) -> bool:
    """Whether a folder can be written to, or could be made."""
    while not os.path.exists(folder):  # noqa: PTH110 - likewise
        folder = os.path.dirname(folder)  # noqa: PTH120
    return os.access(folder, os.W_OK | os.X_OK)


def _own_folder() -> str:
    """A folder that nobody else can write to: what numba reads there, it runs."""
    import tempfile  # noqa: PLC0415 - takes time, and is rarely needed
    from pathlib import Path  # noqa: PLC0415

    folder = Path(tempfile.gettempdir(), f"gnnloom-kernels-{os.getuid()}")
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
            return str(folder)
    return tempfile.mkdtemp(prefix=f"{folder.name}-")
