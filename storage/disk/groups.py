"""Zarr groups, through which any Zarr tool walks from a dataset down to its arrays."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gnnloom.storage.disk.files import JsonObject, parse_json, read_file, read_json, write_json
from gnnloom.storage.errors import CorruptError

#: Name of the file with the metadata of a group or array.
METADATA: Final = "zarr.json"


def write_group(path: Path, attributes: JsonObject) -> None:
    """Make ``path`` a Zarr group with these attributes.

    Several tasks may make a group that they share at the same time. This is safe: the file appears whole, and all of
    them write the same. Zarr's own functions to open or make a group race with each other.
    """
    # Not synced here: tasks and the commit of the artifact sync many files at a time, which is cheaper.
    write_json(path / METADATA, group_metadata(attributes), durable=False, sealed=False)


def group_metadata(attributes: JsonObject) -> dict[str, Any]:
    """The metadata of a Zarr group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}


def group_indent(content: JsonObject) -> int | None:
    """The indent of the metadata of a group; see :func:`gnnloom.storage.disk.files.json_text`."""
    # A list has thousands of entries for programs to read, and is written at both ends of every run.
    return None if "consolidated_metadata" in content else 1


def read_group(path: Path) -> dict[str, Any]:
    """Read the metadata of a Zarr group, without the list of what is below it if gnnloom wrote the file.

    The list of a dataset of many parts takes megabytes, and every rank opens the dataset several times.

    Raises:
        CorruptError: the file is not a JSON object.
        OSError: the file does not exist or cannot be read.
    """
    raw = read_file(path / METADATA)
    # gnnloom sorts the keys of its files, so the list lies between the group's attributes and its node type; any
    # earlier node type belongs to the list.
    start, end = raw.find(b'"consolidated_metadata"'), raw.rfind(b'"node_type"')
    if 0 <= start < end:
        # Anything else is the file of another program, or damaged.
        with suppress(CorruptError):
            return parse_json(raw[:start] + raw[end:], str(path / METADATA))
    return read_json(path / METADATA, sealed=False)
