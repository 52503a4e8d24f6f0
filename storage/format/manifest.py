"""The manifest of an artifact: the file that makes it complete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import xxhash

from gnnloom.storage.disk.files import read_json
from gnnloom.storage.errors import CorruptError, FormatError, IncompleteError, NotFoundError
from gnnloom.storage.format.arrays import ArrayRecord
from gnnloom.storage.format.schema import SCHEMAS, check_version, newest_version
from gnnloom.storage.format.sections import section_of

MANIFEST = "manifest.json"

#: Entries of every manifest and their types, in addition to the version of the format.
_ENTRIES: Mapping[str, type] = {
    **dict.fromkeys(("kind", "key", "digest"), str),
    **dict.fromkeys(("parameters", "inputs", "facts", "measured", "sizes", "arrays", "sections"), dict),
}


def read_manifest(artifact: Path) -> dict[str, Any]:
    """Read the manifest of the artifact in this folder.

    Raises:
        NotFoundError: there is nothing at ``artifact``.
        IncompleteError: the artifact was begun and not finished.
        CorruptError: the manifest is not a JSON object, or names a section that its kind of artifact does not have.
        FormatError: the manifest is of a newer format, lacks an entry, or has one of another type.
    """
    path = artifact / MANIFEST
    try:
        manifest = read_json(path)
    except FileNotFoundError:
        if not artifact.is_dir():
            raise NotFoundError(f"{artifact}: there is no such artifact") from None
        raise IncompleteError(
            f"{artifact}: begun and not finished (no {MANIFEST}); run the same command again to finish it"
        ) from None
    # Before the entries, which another format may name otherwise.
    check_version(path, manifest, newest_version(manifest.get("kind")))
    wrong = sorted(name for name, wanted in _ENTRIES.items() if not isinstance(manifest.get(name), wanted))
    if wrong or manifest["kind"] not in SCHEMAS:
        raise FormatError(f"{path}: lacks or mistypes {wrong} or has an unknown kind {manifest.get('kind')!r}")
    for section in manifest["sections"]:
        # A name must not lead out of the artifact.
        if section_of(manifest["kind"], section) != section or any(
            name[:1] in ("", ".") for name in section.split("/")
        ):
            raise CorruptError(f"{path}: {section} cannot be a section of an artifact of kind {manifest['kind']}")
    return manifest


def digest_arrays(records: Iterable[ArrayRecord]) -> str:
    """One digest of all arrays: names, shapes, dtypes and contents, but nothing of how or when they were made."""
    state = xxhash.xxh3_128()
    # Sorted by path: the digest must not depend on the order in which tasks finished.
    for record in sorted(records, key=lambda record: record.path):
        line = json.dumps([record.path, record.content_json()], sort_keys=True, separators=(",", ":"))
        state.update(line.encode())
    return state.hexdigest()
