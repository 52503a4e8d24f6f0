"""Sections of plain values written as TOML, which Python's own library only reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def to_toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Write sections of plain values as TOML, without the keys whose value is None."""
    blocks = []
    for section, values in sections.items():
        lines = [f"{key} = {toml_value(value)}" for key, value in values.items() if value is not None]
        blocks.append("\n".join([f"[{section}]", *lines]))
    return "\n\n".join(blocks) + "\n"


def toml_value(value: Any) -> str:
    """Write a plain value as TOML."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str | Path):
        # TOML's strings are JSON's, except that DEL must be escaped.
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    # The repr of an int or a float is TOML, even 1e-05, inf and nan.
    return str(value).lower() if isinstance(value, bool) else repr(value)
