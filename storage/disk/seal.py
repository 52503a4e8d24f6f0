"""Checksums inside small files: each says what its other bytes have to be, so that any flipped bit is found on reading.

A JSON object begins with its checksum, a line of JSON ends with it, and a text has it in a comment on its last line.
"""

from __future__ import annotations

import re
from typing import Any, Final

import xxhash

from gnnloom.storage.errors import CorruptError

#: Name of the entry with the checksum.
CHECKSUM: Final = "checksum"
_HEAD: Final = b'{\n "checksum": "'
_HEX: Final = 32
_LINE: Final = re.compile(rb', "checksum": "([0-9a-f]{16})"\}$')
_COMMENT: Final = b"# checksum "


def seal_object(text: str) -> bytes:
    """Add the checksum to a JSON object, as ``json.dumps(..., indent=1)`` writes it."""
    body = text.removeprefix("{")
    rest = f"{'' if body == '}' else ','}{body if body != '}' else chr(10) + body}\n".encode()
    return _HEAD + xxhash.xxh3_128_hexdigest(b'"' + rest).encode() + b'"' + rest


def is_sealed(raw: bytes) -> bool:
    """Whether the bytes of a JSON object begin with a checksum."""
    return raw.startswith(_HEAD)


def open_object(raw: bytes, content: dict[str, Any], where: str) -> dict[str, Any]:
    """The content of a JSON object without its checksum.

    Args:
        raw: the bytes of the file.
        content: what they were parsed to.

    Raises:
        CorruptError: there is no checksum, or it does not match the other bytes.
    """
    stop = len(_HEAD) + _HEX
    if not is_sealed(raw):
        raise CorruptError(f"{where}: the checksum is not in its place: the file was damaged, or changed by hand")
    if xxhash.xxh3_128_hexdigest(raw[stop:]).encode() != raw[len(_HEAD) : stop]:
        raise CorruptError(f"{where}: the checksum is wrong: the file was damaged, or changed by hand")
    return {name: value for name, value in content.items() if name != CHECKSUM}


def seal_line(text: str) -> str:
    """Add the checksum to a JSON object on one line."""
    return f'{text[:-1]}, "{CHECKSUM}": "{xxhash.xxh3_64_hexdigest(text.encode())}"}}'


def open_line(line: bytes, where: str) -> bytes:
    """The line without its checksum.

    Raises:
        CorruptError: the checksum is wrong or missing.
    """
    found = _LINE.search(line)
    body = line[: found.start()] + b"}" if found else line
    if found is None or xxhash.xxh3_64_hexdigest(body).encode() != found[1]:
        raise CorruptError(f"{where}: the checksum is wrong or missing: the line was damaged, or changed by hand")
    return body


def seal_text(text: str) -> str:
    """Add the checksum to a text in which ``#`` begins a comment; it ends with a line feed."""
    return f"{text}{_COMMENT.decode()}{xxhash.xxh3_128_hexdigest(text.encode())}\n"


def check_text(raw: bytes, where: str) -> None:
    """Compare a text with its checksum.

    Raises:
        CorruptError: the checksum is wrong or missing.
    """
    body, _, found = raw.rpartition(_COMMENT)
    if found != xxhash.xxh3_128_hexdigest(body).encode() + b"\n":
        raise CorruptError(f"{where}: the checksum is wrong or missing: the file was damaged, or changed by hand")
