"""The files of a catalog by kind, and random damage to one of them: bits, zeros, cut ends, content from elsewhere."""

from __future__ import annotations

import random
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from gnnloom.storage.format.artifact import WORK

#: Kinds of damage by weight: a flipped bit, zeros, a cut end, another chunk, another array.
_DAMAGES = {"bit": 60, "zeros": 10, "cut": 10, "chunk": 12, "array": 8}


def stored_files(catalog: Path) -> list[str]:
    """All files of a catalog that are not empty, except locks and what tasks left; relative to it."""
    files = (path for path in catalog.rglob("*") if path.is_file() and path.stat().st_size)
    return sorted(str(path.relative_to(catalog)) for path in files if not {".locks", WORK} & {*path.parts})


def files_by_kind(catalog: Path, datasets: Iterable[str]) -> dict[str, list[str]]:
    """The files of some datasets, by :func:`kind_of`."""
    found, wanted = defaultdict(list), set(datasets)
    for file in stored_files(catalog):
        if file.split("/")[0] in wanted:
            found[kind_of(file)].append(file)
    return dict(found)


def kind_of(file: str) -> str:
    """Kind of a stored file: the artifact, or the part of a run, and whether it is a chunk."""
    _, kind, *rest = [*file.split("/"), ""]
    if kind == "zarr.json":
        return "dataset zarr.json"
    if kind == "shards" and rest[1] in {"row", "grid", "order"}:
        kind = f"shards {rest[1]}"
    elif kind == "runs":
        return f"run {rest[1].strip('.').split('.')[0] if len(rest) > 1 else 'group'}"
    elif kind.startswith("."):
        return kind.removeprefix(".")
    name = "chunk" if "/c/" in file else "section" if "/sections/" in file else file.rpartition("/")[2]
    return f"{kind} {name}"


def damage_file(chosen: random.Random, catalog: Path, file: str, whole: Path) -> str:
    """Damage a file so that it differs from what it was; returns how.

    Args:
        whole: an undamaged catalog, from whose datasets other content of the same layout is taken.
    """
    path = catalog / file
    before = path.read_bytes()
    while True:
        damage = chosen.choices(list(_DAMAGES), list(_DAMAGES.values()))[0]
        if damage in {"chunk", "array"}:
            what = _exchange(chosen, catalog, file, whole, array=damage == "array")
        else:
            path.write_bytes(_changed(chosen, before, damage))
            what = damage
        if not path.exists() or path.read_bytes() != before:
            return what


def _changed(chosen: random.Random, content: bytes, damage: str) -> bytes:
    changed = bytearray(content)
    place = chosen.randrange(len(changed))
    if damage == "bit":
        changed[place] ^= 1 << chosen.randrange(8)
    elif damage == "zeros":
        length = chosen.choice([1, 8, 64, len(changed)])
        changed[place : place + length] = bytes(len(changed[place : place + length]))
    else:
        del changed[place:]
    return bytes(changed)


def _exchange(chosen: random.Random, catalog: Path, file: str, whole: Path, *, array: bool) -> str:
    """Exchange a chunk, or replace an array, by another one of the same layout; empty if there is none."""
    others = [path for path in stored_files(whole) if _layout(path) == _layout(file) and path != file]
    if not others or "/c/" not in file:
        return ""
    other = chosen.choice(others)
    if array:
        return _replace_array(chosen, catalog, file, whole, other)
    shutil.copy(whole / other, catalog / file)
    # Both ways if they are of one dataset, as misdirected writes would do.
    if other.split("/")[0] == file.split("/", maxsplit=1)[0]:
        shutil.copy(whole / file, catalog / other)
    return f"exchanged with {other}"


def _replace_array(chosen: random.Random, catalog: Path, file: str, whole: Path, other: str) -> str:
    mine, others = (name[: name.index("/c/")] for name in (file, other))
    shutil.rmtree(catalog / mine)
    shutil.copytree(whole / others, catalog / mine)
    # Its metadata stays, and with it its shape, in every other case.
    if chosen.random() < 0.5:
        shutil.copy(whole / mine / "zarr.json", catalog / mine / "zarr.json")
    return f"replaced by {others}"


def _layout(file: str) -> str:
    """Path of a file without the names of its dataset and artifacts, and without numbers."""
    return re.sub(r"\d+", "0", re.sub(r"[0-9a-f]{12,}", "key", file.partition("/")[2]))
