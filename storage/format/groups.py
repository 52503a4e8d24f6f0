"""Zarr groups: what lets any Zarr tool walk from a dataset down to its arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from gnnloom.storage.format.files import JsonObject, write_json

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
