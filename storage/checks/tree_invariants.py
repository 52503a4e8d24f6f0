"""Checks that a folder of arrays has exactly the files in its records, and the metadata that gnnloom writes.

Metadata is compared as text with what gnnloom writes: JSON that another program reads the same may still be damaged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from gnnloom.storage.disk.files import json_text, parse_json, parsing
from gnnloom.storage.disk.groups import METADATA, group_indent, group_metadata
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.array_metadata import ArrayMetadata
from gnnloom.storage.format.arrays import ArrayRecord
from gnnloom.storage.format.artifact import WORK
from gnnloom.storage.format.listing import listed_nodes, nodes_below

#: Temporary names of files that were being written when a process was killed; garbage collection removes them.
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{32}")


def check_tree(folder: Path, records: Iterable[ArrayRecord], files: Collection[str]) -> None:
    """Check the names below a folder of arrays, and the text of their metadata.

    Args:
        records: all arrays below the folder.
        files: names of the other files that belong in the folder.

    Raises:
        CorruptError: there is a link or an unknown file, or the metadata is not what gnnloom writes.
    """
    wanted = {*files, METADATA}
    for record in records:
        wanted |= {f"{parent}/{METADATA}" for parent in PurePosixPath(record.path).parents}
        wanted |= _array_files(folder, record)
    wanted = {name.removeprefix("./") for name in wanted}
    for name in _names_below(folder):
        if name not in wanted:
            raise CorruptError(f"{folder / name}: gnnloom did not write this file; remove it")


def check_group(path: Path, attributes: Mapping[str, Any] | None = None) -> None:
    """Check the text of a group's metadata.

    Args:
        path: folder of the group.
        attributes: what they have to be, if known.

    Raises:
        CorruptError: the text or the content differs.
    """
    file = path / METADATA
    raw = file.read_bytes()
    content = parse_json(raw, str(file))
    if raw != json_text(content, indent=group_indent(content)).encode():
        raise CorruptError(f"{file}: not the text that gnnloom writes for its content")
    with parsing(file, "the metadata of a group"):
        wanted = group_metadata(content["attributes"] if attributes is None else attributes)
        listing = content.get("consolidated_metadata")
        if listing is not None:
            # Another check compares the lists with the files, which may be changing at this moment.
            nodes = listing["metadata"]
            wanted["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": nodes}
        if content != wanted:
            raise CorruptError(f"{file}: not the metadata of this group; `gnnloom catalog gc` writes lists again")


def check_list(folder: Path) -> None:
    """Check that a group lists what is below it, if it has a list.

    Raises:
        CorruptError: it lists something else.
    """
    listed = listed_nodes(folder)
    # Only large artifacts have lists of sections, and only small ones have a list of their own.
    if listed is not None and listed != nodes_below(folder):
        raise CorruptError(f"{folder / METADATA}: lists other groups and arrays than there are below it")


def _array_files(folder: Path, record: ArrayRecord) -> set[str]:
    """Names of the files of one array, whose metadata is checked."""
    file = folder / record.path / METADATA
    with parsing(file, "the metadata of an array"):
        metadata = ArrayMetadata.read(file.parent)
        if file.read_text(encoding="utf-8") != metadata.text():
            raise CorruptError(f"{file}: not the text that gnnloom writes for its content")
    rows = 0 if 0 in record.shape else record.shape[0]
    below = "/0" * (len(record.shape) - 1)
    chunks = {f"{record.path}/c/{number}{below}" for number in range(-(-rows // metadata.chunks[0]))}
    return {f"{record.path}/{METADATA}", *chunks}


def _names_below(folder: Path) -> Iterable[str]:
    """Names of all files and links below a folder, without what a killed process may have left."""
    for where, folders, names in os.walk(folder):
        here = Path(where)
        for name in (*folders, *names):
            path = here / name
            if path.is_symlink() and name != WORK:
                raise CorruptError(f"{path}: a link, which gnnloom never writes; remove it")
        folders[:] = [name for name in folders if name != WORK and not _LEFTOVER.fullmatch(name)]
        for name in names:
            if name != WORK and not _LEFTOVER.fullmatch(name):
                yield (here / name).relative_to(folder).as_posix()
