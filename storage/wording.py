"""Wording of messages: counts with their nouns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Plurals of nouns that take more than an s.
PLURALS: Final[Mapping[str, str]] = {
    "batch": "batches",
    "class": "classes",
    "entry": "entries",
    "pass": "passes",
    "process": "processes",
    "vertex": "vertices",
}


def counted(count: int, noun: str) -> str:
    """A count before its noun, in the singular or the plural of the noun's last word.

    Examples:
        >>> counted(1, "vertex"), counted(2000, "vertex"), counted(0, "row block")
        ('1 vertex', '2,000 vertices', '0 row blocks')
    """
    if count == 1:
        return f"1 {noun}"
    *first, last = noun.split(" ")
    return " ".join([f"{count:,}", *first, PLURALS.get(last, f"{last}s")])
