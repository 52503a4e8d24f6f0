"""Sizes that users write as text, in options and in recipes."""

from __future__ import annotations

import re

#: Characters of a text that an error shows.
_SHOWN = 40
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_bytes(text: str) -> int:
    """Read a number of bytes, written like ``512M``, ``1G`` or ``1.5GiB`` (powers of 1024).

    Raises:
        ValueError: ``text`` is not a size.
    """
    match = re.fullmatch(r"(\d{1,19}(?:\.\d{1,19})?)\s*([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if not match:
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise ValueError(f"{text!r} is not a size such as 512M or 1G")
    return int(float(match[1]) * 1024 ** _POWERS[match[2].upper()])
