"""Counts phrases that avoid a noun, per room: a change may lower a count, and never raise it.

``python tests/support/english.py`` (part of ``make lint``) compares the docstrings, comments and messages of every room
and the pages of the manual with the counts in english_counts.json, and exits with 1 if a count has grown.
``python tests/support/english.py --write`` stores counts that have fallen.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COUNTS = Path(__file__).with_name("english_counts.json")
#: Rooms of the package, and documents.
_FILES = ("storage/**/*.py", "pipeline/**/*.py", "trainer/**/*.py", "workflows/**/*.py", "docs/**/*.md", "*.md")
_AVOIDS_A_NOUN = re.compile(
    r"\b(?:those|that) of\b|\bof (?:which|them|these)\b|\b(?:so|as) many\b|\bthose that\b|\bwhoever\b"
    r"|\bwhat (?:was|were)\b|\"\"\"(?:What|How|Which|Where|Those|Of)\b",
    re.IGNORECASE,
)


def counts() -> dict[str, int]:
    """Number of such phrases by room, without rooms that have none."""
    found: Counter[str] = Counter()
    for pattern in _FILES:
        for path in ROOT.glob(pattern):
            room = path.parent.relative_to(ROOT).as_posix()
            found[room] += len(_AVOIDS_A_NOUN.findall(path.read_text()))
    return {room: number for room, number in sorted(found.items()) if number}


def main(arguments: list[str]) -> int:
    """Compare the counts with the stored ones; returns the exit code."""
    now, stored = counts(), json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    grown = {room: number for room, number in now.items() if number > stored.get(room, 0)}
    if arguments == ["--write"] and (not stored or not grown):
        COUNTS.write_text(json.dumps(now, indent=1) + "\n")
        return 0
    for room, number in grown.items():
        sys.stderr.write(
            f"{room}: {number} phrases avoid a noun, such as 'those of' or 'so many', {stored.get(room, 0)} before;"
            " repeat the noun\n"
        )
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
