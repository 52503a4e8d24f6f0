"""Damages temporary files."""

from __future__ import annotations

from pathlib import Path


def flip_bit(path: Path, place: int = 100) -> Path:
    """Flip one bit of a file, by default near its beginning; returns the path."""
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)
    return path
