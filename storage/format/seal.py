"""Checksums inside small files: each says what its other bytes have to be, so that any flipped bit is found on reading.

A JSON object begins with its checksum, a line of JSON ends with it, and a text has it in a comment on its last line.
Files of earlier versions have none, and stay readable.
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


def open_object(raw: bytes, content: dict[str, Any], where: str) -> dict[str, Any]:
    """The content of a JSON object without its checksum.

    Args:
        raw: the bytes of the file.
        content: what they were parsed to.

    Raises:
        CorruptError: the checksum is not that of the other bytes.
    """
    stop = len(_HEAD) + _HEX
    if raw.startswith(_HEAD):
        if xxhash.xxh3_128_hexdigest(raw[stop:]).encode() != raw[len(_HEAD) : stop]:
            raise CorruptError(f"{where}: the checksum is wrong: the file was damaged, or changed by hand")
        return {name: value for name, value in content.items() if name != CHECKSUM}
    # A damaged head is still almost that of a file with a checksum, and nothing like that of one without.
    alike = sum(found == wanted for found, wanted in zip(raw, _HEAD, strict=False))
    if CHECKSUM in content or alike > len(_HEAD) - 3:
        raise CorruptError(f"{where}: the checksum is not in its place: the file was damaged, or changed by hand")
    return content


def seal_line(text: str) -> str:
    """Add the checksum to a JSON object on one line."""
    return f'{text[:-1]}, "{CHECKSUM}": "{xxhash.xxh3_64_hexdigest(text.encode())}"}}'


def open_line(line: bytes, where: str) -> bytes:
    """The line without its checksum; unchanged if it has none.

    Raises:
        CorruptError: the checksum is wrong.
    """
    found = _LINE.search(line)
    if found is None:
        return line
    body = line[: found.start()] + b"}"
    if xxhash.xxh3_64_hexdigest(body).encode() != found[1]:
        raise CorruptError(f"{where}: the checksum is wrong: the line was damaged, or changed by hand")
    return body


def seal_text(text: str) -> str:
    """Add the checksum to a text in which ``#`` begins a comment; it ends with a line feed."""
    return f"{text}{_COMMENT.decode()}{xxhash.xxh3_128_hexdigest(text.encode())}\n"


def check_text(raw: bytes, where: str) -> None:
    """Compare a text with its checksum, if it has one.

    Raises:
        CorruptError: they differ.
    """
    body, _, last = raw.removesuffix(b"\n").rpartition(b"\n")
    alike = sum(found == wanted for found, wanted in zip(last, _COMMENT, strict=False))
    # Almost the comment with the checksum: a damaged one.
    if alike < len(_COMMENT) - 2 or len(last) < len(_COMMENT) + _HEX:
        return
    body = body + b"\n" if body else body
    if raw != body + _COMMENT + xxhash.xxh3_128_hexdigest(body).encode() + b"\n":
        raise CorruptError(f"{where}: the checksum is wrong: the file was damaged, or changed by hand")
