"""Writing small files so that a reader sees the old one, the new one, or none; never half of one."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnloom.storage.errors import CorruptError

JsonObject = Mapping[str, Any]


def write_json(path: Path, content: JsonObject, *, durable: bool = True) -> None:
    """Write ``content`` to ``path`` through a temporary name and rename.

    Args:
        durable: return only when it is on the disk; else a later :func:`sync_tree` sees to that.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, sort_keys=True, allow_nan=False)
        file.write("\n")
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
    if durable:
        sync_folder(path.parent)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CorruptError: the file is not a JSON object.
        FileNotFoundError: there is no such file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise CorruptError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path, without: str = "") -> None:
    """Make every file below ``path`` durable, except those in the folder ``path / without``."""
    for folder, folders, names in os.walk(path):
        if without in folders and Path(folder) == path:
            folders.remove(without)
        for name in names:
            with Path(folder, name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(folder))


def tree_bytes(path: Path) -> int:
    """Bytes of all files below ``path``; files that vanish meanwhile count nothing."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += Path(folder, name).stat().st_size
            except FileNotFoundError:
                continue
    return total
