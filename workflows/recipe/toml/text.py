"""Finds the lines of sections and keys in TOML text, which Python's reader does not report, and writes TOML."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# These patterns find the common forms; other forms get the line of their section, or line 1.
_HEADER = re.compile(r"""\s*\[\[?\s*["']?([A-Za-z0-9_-]+)["']?\s*(?:\.\s*["']?([A-Za-z0-9_-]+)["']?\s*)?\]""")
_KEY = re.compile(r"""\s*["']?([A-Za-z0-9_.-]+)["']?\s*=""")
#: Tokens that affect where a statement ends: a comment, the beginning of a string, or a bracket.
_TOKEN = re.compile(r"""#.*|\"{3}|'{3}|"(?:\\.|[^"\\])*"|'[^']*'|[\[\]{}]""")
#: Ends of multi-line strings; up to two quotes before the end belong to the string.
_ENDS = {'"""': re.compile(r'(?:\\.|[^"\\]|"{1,2}(?!"))*?"{3,5}'), "'''": re.compile(r"(?:[^']|'{1,2}(?!'))*?'{3,5}")}


def find_lines(text: str) -> dict[tuple[str, str], int]:
    """Find the line of every section (with an empty key) and of every key of a valid TOML text.

    A key outside a section is listed under the section ``""`` too. The entries of a list of sections are sections with
    their numbers, such as ``relations.2``.
    """
    lines: dict[tuple[str, str], int] = {}
    section, entries = "", Counter[str]()
    for number, line in _statements(text):
        if header := _HEADER.match(line):
            section = header[1]
            if line.lstrip().startswith("[["):
                lines.setdefault(("", section), number)
                entries[section] += 1
                section = f"{section}.{entries[section]}"
            lines.setdefault((section, header[2] or ""), number)
        elif key := _KEY.match(line):
            # `train.lr = 1` outside a section is the key `lr` of the section `train`.
            first, _, rest = key[1].partition(".") if not section else (section, "", key[1])
            lines.setdefault((first, rest), number)
            if not section:
                lines.setdefault(("", first), number)
    return lines


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that begin a statement; lines inside a multi-line string or list are left out."""
    opened, depth = "", 0
    # Not splitlines(), which also splits at characters that end no line in TOML.
    for number, line in enumerate(text.split("\n"), 1):
        if not opened and depth == 0:
            yield number, line
        opened, depth = _after(line, opened, depth)


def _after(line: str, opened: str, depth: int) -> tuple[str, int]:
    """Return the delimiter of the string that is open after a line, if any, and the number of open brackets."""
    position = 0
    while True:
        if opened:
            end = _ENDS[opened].match(line, position)
            if end is None:
                return opened, depth
            opened, position = "", end.end()
        token = _TOKEN.search(line, position)
        if token is None:
            return "", depth
        position = token.end()
        if token[0] in _ENDS:
            opened = token[0]
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1


def to_toml(sections: Mapping[str, Mapping[str, Any]], lists: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Write sections, and lists of sections, of plain values as TOML, without the keys whose value is None."""
    named = [(f"[{section}]", values) for section, values in sections.items()]
    named += [(f"[[{section}]]", values) for section, entries in lists.items() for values in entries]
    blocks = []
    for header, values in named:
        lines = [f"{key} = {toml_value(value)}" for key, value in values.items() if value is not None]
        blocks.append("\n".join([header, *lines]))
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
