"""Damages artifacts in ways that keep every digest right, so that only invariants can find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.storage.format.manifest import digest_arrays
from gnnloom.storage.format.sections import arrays_json, split_sections, write_section


def edit_manifest(artifact: Artifact, **changes: Any) -> Artifact:
    """Replace entries of the manifest."""
    path = artifact.path / MANIFEST
    write_json(path, read_json(path) | changes)
    return Artifact(artifact.path)


def replace_array(artifact: Artifact, name: str, change: Callable[[np.ndarray], Any]) -> Artifact:
    """Change an array, and update the digests in the manifest to match."""
    record = artifact.record(name)
    changed = np.asarray(change(artifact.array(name).read()), dtype=record.dtype)
    records = artifact.records | {name: write_array(artifact.path, name, changed, record.dims)}
    lists = split_sections(artifact.kind, records.values())
    arrays = arrays_json(lists.pop("", []))
    sections = {section: write_section(artifact.path, section, found) for section, found in lists.items()}
    return edit_manifest(artifact, arrays=arrays, sections=sections, digest=digest_arrays(records.values()))
