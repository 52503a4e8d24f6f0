"""Chooses the folder of numba's compiled kernels if neither the installation nor the home directory is writable.

Numba looks for such a folder when it decorates a function, and fails if there is none, as in a container, or on a
cluster whose shared modules and homes are read-only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, MutableMapping
from contextlib import suppress

#: Environment variable with the folder of numba's cache, for this process and the processes that it starts.
KERNEL_CACHE = "NUMBA_CACHE_DIR"

#: Settings that numba would take from a file ``.numba_config.yaml`` of the current folder, which may be a stranger's:
#: what numba finds in its cache, it runs, and a trace overwrites the file that it names. The environment goes first.
_NOT_FROM_FILES = (KERNEL_CACHE, "NUMBA_CACHE_LOCATOR_CLASSES", "NUMBA_CHROME_TRACE")

#: Packages with kernels, and the folder that they are in.
_ROOMS = ("storage", "pipeline", "trainer")
_ROOT = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - pathlib takes time


def choose_kernel_cache(environment: MutableMapping[str, str], root: str = _ROOT) -> None:
    """Name a folder below the temporary one where numba would find none; call this before anything imports numba.

    Numba keeps what it compiled in the folder that the environment names, or else beside the source file, or else in
    the home directory. It takes the first one in which it can make a file, anew for each function.

    Args:
        environment: of this process.
        root: the folder of the packages with kernels.
    """
    for name in _NOT_FROM_FILES:
        environment.setdefault(name, "")
    named = environment[KERNEL_CACHE]
    caches = environment.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))  # noqa: PTH111 - likewise
    home = os.path.join(caches, "numba")  # noqa: PTH118 - likewise
    rooms = [f"{root}/{room}" for room in _ROOMS]
    # What most installations allow is looked at first, because the rest takes time.
    if (_is_writable(home) and all(map(_is_writable, rooms))) or _has_room(named) or _has_room(home):
        return
    if not all(_is_writable(f"{folder}/__pycache__") for room in rooms for folder in _packages(room)):
        # Commands without kernels need no folder; in_one_line reports the others.
        with suppress(OSError):
            environment[KERNEL_CACHE] = _own_folder()


def _has_room(cache: str) -> bool:
    """Whether a cache takes files of all functions: numba makes a folder in it for each folder of source files."""
    if not _is_writable(cache):
        return False
    with suppress(OSError), os.scandir(cache) as entries:
        return all(_is_writable(entry.path) for entry in entries if entry.is_dir())
    return True


def _packages(folder: str) -> Iterator[str]:
    """A folder, and all folders with source files below it."""
    yield folder
    for inner, names, _ in os.walk(folder):
        names[:] = [name for name in names if name != "__pycache__"]
        yield inner


def _is_writable(folder: str) -> bool:
    """Whether a folder can be written to, or could be made.

    Not a relative path: it would name another folder in each current folder, which may belong to another user.
    """
    if not os.path.isabs(folder):  # noqa: PTH117 - likewise
        return False
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)  # noqa: PTH120 - likewise
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)  # noqa: PTH112 - likewise


def _own_folder() -> str:
    """A folder that nobody else can write to, because numba runs the code that it reads there."""
    import tempfile  # noqa: PLC0415 - takes time, and is rarely needed
    from pathlib import Path  # noqa: PLC0415

    folder = Path(tempfile.gettempdir(), f"gnnloom-kernels-{os.getuid()}")
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
        if is_own and _has_room(str(folder)):
            return str(folder)
    return tempfile.mkdtemp(prefix=f"{folder.name}-")
