"""Corrects the checksums of damaged stored files, so that readers reach the structure behind the checksums."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import xxhash

from gnnloom.storage.disk.copy_checksums import CHECKSUMS, ChecksumFile, write_checksums
from gnnloom.storage.disk.seal import _HEAD, _HEX, CHECKSUM, seal_line, seal_object
from gnnloom.storage.format.manifest import MANIFEST
from gnnloom.storage.format.sections import SECTIONS, section_name
from support.strangers import HOSTILE_NAMES

#: Values of JSON on which readers of structure stumble.
_NASTY: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**400, 0.5, float("nan"), "", "x", "..", "../../x", "a/b", "\0", "²",
    "strangers_package.inner:Evil", [], [[]], {}, {"": 0}, [1, 2, 3], ["x"] * 50,
    *HOSTILE_NAMES, ["wandb"],
)  # fmt: skip


def change_values(path: Path, chosen: random.Random) -> bool:
    """Replace, remove or add one to three values of a file of JSON; false if it is no JSON object."""
    raw = path.read_bytes()
    try:
        content = json.loads(raw)
    except ValueError:
        return False
    if not isinstance(content, dict):
        return False
    content.pop(CHECKSUM, None)
    for _ in range(chosen.randint(1, 3)):
        _change(content, chosen)
    text = json.dumps(content, indent=1, sort_keys=True)
    path.write_bytes(seal_object(text) if raw.startswith(_HEAD) else text.encode() + b"\n")
    return True


def _change(content: Any, chosen: random.Random) -> None:
    """Change a value at any depth."""
    while True:
        names = list(content) if isinstance(content, dict) else list(range(len(content)))
        if not names:
            return
        name = chosen.choice(names)
        if isinstance(content[name], dict | list) and chosen.random() < 0.8:
            content = content[name]
        elif chosen.random() < 0.15:
            del content[name]
            return
        elif isinstance(content, dict) and chosen.random() < 0.15:
            content[str(chosen.choice(_NASTY))] = content[name]
            return
        else:
            # A copy: a later change may be of what is inside.
            content[name] = copy.deepcopy(chosen.choice(_NASTY))
            return


def seal_again(folder: Path, file: Path) -> None:
    """Make every checksum right that covers a damaged file of a dataset.

    Args:
        folder: that ``file`` is relative to.
    """
    path = folder / file
    raw = path.read_bytes()
    if path.suffix == ".json" and raw.startswith(_HEAD):
        body = raw[len(_HEAD) + _HEX :]
        path.write_bytes(_HEAD + xxhash.xxh3_128_hexdigest(body).encode() + body)
    elif path.suffix == ".jsonl":
        path.write_bytes(b"\n".join(map(_sealed_line, raw.split(b"\n"))))
    elif "c" in file.parts and len(raw) > 4:
        path.write_bytes(raw[:-4] + google_crc32c.value(raw[:-4]).to_bytes(4, "little"))
    elif path.parent.name == SECTIONS:
        _list_again(path)


def _sealed_line(line: bytes) -> bytes:
    """A line of metrics with the right checksum, whatever else is in it."""
    content, found, _ = line.partition(b', "' + CHECKSUM.encode())
    try:
        return seal_line(content.decode() + "}").encode() if found else line
    except UnicodeDecodeError:
        return line


def _list_again(section: Path) -> None:
    """Put the digest of a section's file into the manifest."""
    manifest = section.parents[1] / MANIFEST
    content = json.loads(manifest.read_bytes())
    content.pop(CHECKSUM, None)
    for name in content["sections"]:
        if section_name(name) == f"{SECTIONS}/{section.name}":
            content["sections"][name] = xxhash.xxh3_128_hexdigest(section.read_bytes())
    manifest.write_bytes(seal_object(json.dumps(content, indent=1, sort_keys=True)))


def seal_copy(folder: Path) -> None:
    """Make the checksums of an uncompressed copy right, whatever its files hold."""
    written = {}
    for path in sorted(folder.glob("*.npy")):
        content = path.read_bytes()
        with ChecksumFile(path) as file:
            file.write(content)
            written[path.name] = file.content()
    (folder / CHECKSUMS).unlink(missing_ok=True)
    write_checksums(folder, written)


def wrong_numbers(chosen: random.Random, path: Path) -> str:
    """Put wrong numbers into a ``.npy`` file that is not empty, most of which no kernel may use as positions."""
    before = path.read_bytes()
    while True:
        what = _change_numbers(chosen, path)
        if path.read_bytes() != before:
            return what


def _change_numbers(chosen: random.Random, path: Path) -> str:
    array = np.load(path)
    flat = array.reshape(-1).view(np.uint8 if array.dtype == np.bool_ else array.dtype)
    place, other = chosen.randrange(len(flat)), chosen.randrange(len(flat))
    kind = chosen.choice(["number", "exchange", "shift", "reverse", "end", "shape"])
    with np.errstate(over="ignore"):
        if kind == "number":
            limits = np.iinfo(flat.dtype) if flat.dtype.kind in "iu" else np.finfo(flat.dtype)
            near = [len(flat), len(flat) + 1, flat.max() // 1 + 1]
            flat[place] = chosen.choice([limits.min, limits.max, *(each for each in near if each <= limits.max)])
        elif kind == "exchange":
            flat[[place, other]] = flat[[other, place]]
        elif kind == "shift":
            flat[place:] += flat.dtype.type(chosen.choice([1, 100]))
        elif kind == "reverse":
            flat[:] = flat[::-1].copy()
        elif kind == "end":
            flat[-1] = flat[-1] // 2
        else:
            array = array.reshape(-1)[:place]
    np.save(path, array)
    return f"{kind} at {place}"
