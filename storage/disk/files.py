"""Small files that appear whole or not at all, and work on folders: sync, measure, remove."""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gnnloom.storage.disk.seal import is_sealed, open_object, seal_object
from gnnloom.storage.errors import CorruptError, DamagedWorkError, GnnloomError
from gnnloom.storage.faults import fault_point
from gnnloom.storage.system_errors import naming
from gnnloom.storage.wording import reason_of

JsonObject = Mapping[str, Any]

#: Folder below an unfinished artifact for plans, records and spill files.
WORK: Final = ".work"
#: Folder of the uncompressed copies in a dataset.
MAPPED: Final = ".mapped"

#: Files that are synced at a time.
_SYNCING: Final = 16


def write_json(
    path: Path, content: JsonObject, *, durable: bool = True, sealed: bool = True, indent: int | None = 1
) -> str:
    """Write ``content`` to a temporary file and rename it to ``path``.

    Args:
        sealed: add a checksum, which :func:`read_json` compares; false for files that other programs read.
        durable: return only after the file is on disk; if false, the caller syncs it later.
        indent: see :func:`json_text`.

    Returns:
        The text of ``content``, as :func:`json_text` gives it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json_text(content, indent=indent)
    with written_aside(path, durable=durable) as aside, aside.open("wb") as file:
        file.write(seal_object(text.removesuffix("\n")) if sealed else text.encode())
        file.flush()
        fault_point("json.write", aside)
    return text


def json_text(content: JsonObject, *, indent: int | None = 1) -> str:
    """A JSON object as :func:`write_json` writes it without a checksum: the same object gives the same text.

    Args:
        indent: spaces per level; None puts everything into one line, which Python writes ten times faster.
    """
    return json.dumps(content, indent=indent, sort_keys=True, allow_nan=False) + "\n"


@contextmanager
def written_aside(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A unique temporary name next to ``path``: renamed to ``path`` on success, deleted on failure.

    Args:
        durable: return only after the file is on disk.
    """
    # In the same folder, because a rename is atomic only within one file system. Unique, because a task that is
    # believed dead and its replacement may write the same file. Hidden, so that listings skip it.
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with naming(path):
            yield aside
        # Synced before the rename: after a crash, the name would otherwise refer to a file without its content.
        if durable:
            sync_file(aside)
        fault_point("file.rename", aside)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    fault_point("file.renamed", path)
    if durable:
        sync_folder(path.parent)


def read_file(path: Path) -> bytes:
    """The bytes of a file. A pipe or a device is not read: it may never end.

    Raises:
        CorruptError: ``path`` is such a file.
        OSError: the file does not exist or cannot be read.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise CorruptError(f"{path}: expected a regular file")
    return path.read_bytes()


def read_json(path: Path, *, sealed: bool = True) -> dict[str, Any]:
    """Read a JSON object, and compare it with its checksum.

    Args:
        sealed: it must have a checksum; false for files that other programs or users may have written.

    Raises:
        CorruptError: ``path`` is not a file, its content is not a JSON object, or the checksum is missing or wrong.
        FileNotFoundError: there is no such file.
    """
    try:
        raw = read_file(path)
    except (IsADirectoryError, NotADirectoryError) as error:
        raise CorruptError(f"{path}: expected a file ({error.strerror})") from error
    content = parse_json(raw, str(path))
    return open_object(raw, content, str(path)) if sealed or is_sealed(raw) else content


def parse_json(text: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object.

    Args:
        where: file and line of the text, for messages.

    Raises:
        CorruptError: the text is not a JSON object, or has numbers that cannot be written as JSON again.
    """
    try:
        content = json.loads(text.decode(), parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{where}: not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise CorruptError(f"{where}: expected a JSON object, found {type(content).__name__}")
    return content


def _finite(text: str) -> float:
    """A number of JSON; Python also reads NaN and Infinity, and takes numbers beyond its range for infinite."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


@contextmanager
def parsing(path: Path, what: str) -> Iterator[None]:
    """Report entries of a parsed file that are missing or have a wrong type as a damaged file.

    Args:
        what: what the file should be, for the message.

    Raises:
        CorruptError: in place of the LookupError, TypeError, ... that using the content raised.
    """
    try:
        yield
    except GnnloomError:
        raise
    # The errors that subscripting, converting and iterating raise if the content has another form than expected.
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise CorruptError(f"{path}: not {what} ({reason_of(error)})") from error


@contextmanager
def reading_work(path: Path) -> Iterator[None]:
    """Report a temporary file of a stage that is damaged as one that the stage makes again if it is removed.

    Raises:
        DamagedWorkError: in place of the CorruptError that reading or parsing the file raised.
    """
    try:
        yield
    except CorruptError as error:
        raise DamagedWorkError(path, str(error).removeprefix(f"{path}: ")) from error


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fault_point("folder.sync")
    # A rename is durable only when the folder that holds the name is synced, not the file.
    _fsync(path)


def sync_file(path: Path) -> None:
    """Make the content of a file durable, whichever thread or process of this machine wrote it."""
    # fsync applies to the file, not to the descriptor.
    _fsync(path)


def _fsync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_paths(paths: Iterable[Path]) -> None:
    """Make files and the names in folders durable, several at a time."""
    # The disk orders waiting requests, and file systems of clusters answer many requests at once.
    with ThreadPoolExecutor(_SYNCING) as pool:
        for _ in pool.map(_fsync, dict.fromkeys(paths)):
            pass


def sync_tree(path: Path) -> None:
    """Make every file below ``path`` durable."""
    for folder, _, names in os.walk(path):
        for name in names:
            _fsync(os.path.join(folder, name))  # noqa: PTH118 - checkpoints are many small files, and pathlib takes time
        sync_folder(Path(folder))


def refuse_link(path: Path) -> Path:
    """Return the path, which need not exist, unless it is a link: files written below a link would go elsewhere.

    Raises:
        CorruptError: it is a link.
    """
    if path.is_symlink():
        raise CorruptError(f"{path}: a link, which gnnloom never writes here and does not follow; remove it")
    return path


def existing_folder(folder: Path) -> Path:
    """The folder, or its nearest parent that exists: the place on whose file system it would be made."""
    whole = folder.absolute()
    return next(path for path in (whole, *whole.parents) if path.is_dir())


def user_path(text: str | Path) -> Path:
    """The path that a user gives, in which ``~`` or ``~NAME`` at the beginning stands for a user's home."""
    # Path.expanduser fails for a file that is named so, and Path takes `./` away, which says that it is a file.
    return Path(os.path.expanduser(text))  # noqa: PTH111


def tree_bytes(path: Path) -> int:
    """Total size of all files below ``path``, without the holes of temporary ones.

    Files that vanish during the walk count as 0.
    """
    total = 0
    for folder, _, names in os.walk(path):
        # Only files that tasks share while a stage runs have holes. For all others the length is the better measure:
        # some file systems compress blocks, or allocate them later.
        has_holes = WORK in Path(folder).parts
        for name in names:
            try:
                status = os.stat(os.path.join(folder, name))  # noqa: PTH116, PTH118 - pathlib takes most of the time
            except FileNotFoundError:
                continue
            total += min(status.st_size, 512 * status.st_blocks) if has_holes else status.st_size
    return total


def remove_tree(path: Path) -> None:
    """Delete a folder; it is renamed first, so that nobody ever sees half of it under its own name."""
    # A kill after the rename leaves a hidden folder, which garbage collection removes.
    doomed = path.with_name(f".removed-{path.name}")
    if doomed.exists():
        shutil.rmtree(doomed)
    fault_point("tree.remove")
    path.rename(doomed)
    fault_point("tree.removed")
    shutil.rmtree(doomed)
