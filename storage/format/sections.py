"""Sections: the arrays of one row block, shard or cell, listed in a file of their own.

The manifest of a large artifact would list tens of thousands of arrays, while a task or a rank reads a few. So the
manifest lists the arrays of the artifact's root only, and for each section the digest of the file that lists the
section's arrays. A reader parses the manifest and the sections of the arrays that it opens.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import xxhash

from gnnloom.storage.disk.files import parse_json, parsing, write_json
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.array_record import CHECKSUM_DIGITS
from gnnloom.storage.format.arrays import CHUNK_BYTES, ArrayRecord
from gnnloom.storage.format.schema import SCHEMAS
from gnnloom.storage.system_errors import check_is_of_content

#: Folder of the lists in an artifact. They are not in the folders of their arrays, because Zarr warns about every file
#: there that it does not know.
SECTIONS: Final = "sections"


#: Bytes, at most, of a manifest without its sections, of a section in it (a name and a digest), and of an array in the
#: list of a section, with the checksums of 12 chunks.
_MANIFEST_BYTES, _SECTION_BYTES, _ARRAY_BYTES = 3072, 64, 528


def planned_metadata(sections: int, arrays: int, data_bytes: int) -> int:
    """Upper bound of the bytes that a reader parses to open some arrays of an artifact.

    Args:
        sections: number of sections of the artifact.
        arrays: number of arrays that are opened.
        data_bytes: bytes of the arrays. Arrays of more than 12 chunks have chunks of the usual size.
    """
    checksums = CHECKSUM_DIGITS * (data_bytes // CHUNK_BYTES)
    return _MANIFEST_BYTES + _SECTION_BYTES * sections + _ARRAY_BYTES * arrays + checksums


def section_name(section: str) -> str:
    """Path of a section's list in the artifact."""
    return f"{SECTIONS}/{section.replace('/', '-')}.json"


def section_of(kind: str, path: str) -> str:
    """The folder whose section lists an array of an artifact of this kind; empty if the manifest lists it itself."""
    names = path.split("/")
    depth = _depths(kind).get(names[0], 0)
    # A relation has as many row blocks as a graph: each is a section, apart from the relation.
    if depth and names[depth : depth + 1] == ["block"] and len(names) > depth + 1:
        depth += 2
    return "/".join(names[:depth])


@cache
def _depths(kind: str) -> Mapping[str, int]:
    """For the first name of a path, how many names lead to its section: up to the first numbers in the pattern."""
    depths = {}
    for pattern in SCHEMAS[kind]:
        names = pattern.split("/")
        if "*" in names:
            first = names.index("*")
            depths[names[0]] = first + sum(1 for _ in itertools.takewhile(lambda name: name == "*", names[first:]))
    return depths


def split_sections(kind: str, records: Iterable[ArrayRecord]) -> dict[str, list[ArrayRecord]]:
    """Arrays by section, in their order."""
    sections: dict[str, list[ArrayRecord]] = {}
    for record in records:
        sections.setdefault(section_of(kind, record.path), []).append(record)
    return sections


def arrays_json(records: Iterable[ArrayRecord]) -> dict[str, Any]:
    """Arrays as a manifest or a section lists them: by path."""
    return {record.path: record.to_json() for record in records}


def parse_arrays(file: Path, arrays: Mapping[str, Any]) -> dict[str, ArrayRecord]:
    """Read what :func:`arrays_json` gave.

    Args:
        file: where it was read from, for messages.

    Raises:
        CorruptError: it is not a list of arrays.
    """
    with parsing(file, "a list of arrays"):
        return {name: ArrayRecord.from_json(name, content) for name, content in arrays.items()}


def write_section(artifact: Path, section: str, records: Iterable[ArrayRecord]) -> str:
    """Write the file of a section; returns its digest. Not synced: the commit syncs all files."""
    content = arrays_json(records)
    text = write_json(artifact / section_name(section), content, durable=False, sealed=False)
    return xxhash.xxh3_128_hexdigest(text.encode())


def read_section(artifact: Path, section: str, digest: str) -> dict[str, ArrayRecord]:
    """Read the file of a section.

    Args:
        digest: of its bytes, as the manifest lists it.

    Raises:
        CorruptError: the file is missing, or is not the one that was written.
    """
    return parse_arrays(artifact / section_name(section), listed_arrays(artifact, section, digest))


def listed_arrays(artifact: Path, section: str, digest: str) -> dict[str, Any]:
    """The entries of the file of a section, by the path of the array; arguments and errors as for `read_section`."""
    file = artifact / section_name(section)
    try:
        raw = file.read_bytes()
    except OSError as error:
        check_is_of_content(error, file)
        raise CorruptError(f"{file}: the list of arrays cannot be read ({error.strerror})") from error
    if xxhash.xxh3_128_hexdigest(raw) != digest:
        raise CorruptError(f"{file}: not the list of arrays that the manifest names: damaged, or changed by hand")
    return parse_json(raw, str(file))
