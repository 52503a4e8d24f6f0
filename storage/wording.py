"""Wording of messages: counts with their nouns, and the name that was meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The end of a message about an unknown name: the known one that is most similar, or else all of them.

    Args:
        otherwise: what comes before all of them; without it, they are left out.

    Examples:
        >>> did_you_mean("hiden", ["hidden", "layers"]), did_you_mean("x", ["hidden", "layers"], "there are")
        ('did you mean hidden?', 'there are hidden, layers')
    """
    import difflib  # noqa: PLC0415 - only for these messages

    names = list(known)
    # Most mistakes are of case, which would count as other letters.
    close = [each for each in names if each.lower() == name.lower()] or difflib.get_close_matches(name, names, 1)
    if close:
        return f"did you mean {close[0]}?"
    return f"{otherwise} {', '.join(names)}" if otherwise else ""
