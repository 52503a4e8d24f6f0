"""Checks names of types and relations: their characters, and whether two names are too similar."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

from gnnloom.storage.errors import InputError

#: Prefix of the names of reverse relations.
REVERSE: Final = "rev_"
#: Names of folders and of keys in other libraries, which allow neither dots nor slashes. Without hyphens, a path whose
#: slashes became hyphens can be read in one way only.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]*")
_LONGEST: Final = 100
#: Letters of names, at least, that look alike if they differ in one.
_SHORTEST: Final = 4


def check_type_name(name: str, what: str) -> str:
    """Return the name of a type or relation, if it is valid.

    Args:
        what: ``type`` or ``relation``, for the message.

    Raises:
        InputError: it has other characters than letters, digits and ``_``, begins with ``_``, or is too long.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        proposed = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:_LONGEST]
        meant = f"; did you mean {proposed}?" if proposed else ""
        raise InputError(f"{what} {name!r}: use ASCII letters, digits and '_', and start with a letter or digit{meant}")
    return name


def valid_name(word: str) -> str:
    """A valid name of a type or relation that a table calls by any word, such as ``/people/person/nationality``."""
    # The last part of an IRI, whose beginning all relations share.
    word = re.split(r"[/#]", word.rstrip("/#>"))[-1] if "://" in word else word
    name = re.sub(r"[^A-Za-z0-9_]+", "_", word).strip("_")
    return name if _NAME.fullmatch(name) and len(name) <= _LONGEST else _shortened(name)


def _shortened(name: str) -> str:
    """The end of a name, which says more than its beginning; a name of other alphabets becomes its number."""
    return name[-_LONGEST:].lstrip("_") or "unnamed"


def distinct_names(words: Sequence[str]) -> dict[str, str]:
    """Valid names of some distinct words, which differ apart from case; a number tells equal ones apart."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for word in words:
        name, number = valid_name(word), 2
        while name.lower() in taken:
            end = f"_{number}"
            name, number = valid_name(word)[: _LONGEST - len(end)] + end, number + 1
        taken.add(name.lower())
        found[word] = name
    return found


def reverse_name(relation: str) -> str:
    """Name of the reverse of a relation; the reverse of a reverse relation is the relation."""
    return relation.removeprefix(REVERSE) if relation.startswith(REVERSE) else REVERSE + relation


def check_distinct(names: Sequence[str], what: str) -> None:
    """Check that no two names are meant to be one: ``movie``, ``Movie``, ``movies`` and ``moive``.

    Args:
        names: distinct names, in the order in which they were given.

    Raises:
        InputError: two names look alike.
    """
    for one, other in alike_names(names):
        raise InputError(f"{what} {other!r}: there is {what} {one!r} too; did you mean {one}?")


def alike_names(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The pairs of names that are likely to be meant to be one."""
    return ((one, other) for one, other in combinations(names, 2) if _is_alike(one, other))


def _is_alike(one: str, other: str) -> bool:
    one, other = one.lower(), other.lower()
    if one == other or one in _plurals(other) or other in _plurals(one):
        return True
    # Numbers, and letters at the end, tell names apart: venue1 and venue2, group_a and group_b, part and party.
    if min(len(one), len(other)) < _SHORTEST or re.findall(r"\d+", one) != re.findall(r"\d+", other):
        return False
    return one[-1] == other[-1] and _is_one_slip(*sorted((one, other), key=len))


def _is_one_slip(one: str, other: str) -> bool:
    """Whether one letter was mistyped, left out of the shorter name, or exchanged with the next one."""
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    rest, other_rest = one[same:], other[same:]
    if len(one) != len(other):
        return rest == other_rest[1:]
    return rest[1:] == other_rest[1:] or (rest[:2] == other_rest[1::-1] and rest[2:] == other_rest[2:])


def _plurals(name: str) -> set[str]:
    """Possible plurals of a name."""
    return {f"{name}s", f"{name}es", *([f"{name[:-1]}ies"] if name.endswith("y") else [])}


def check_relation_names(names: Iterable[str]) -> None:
    """Check that the names of relations differ from each other and from the names of reverse relations.

    Raises:
        InputError: two relations have one name, or one has the name of the reverse of another.
    """
    seen: dict[str, str] = {}
    for name in names:
        if (same := seen.get(name.lower())) is not None:
            also = "" if same == name else f" {same!r}, apart from case"
            raise InputError(f"relation {name!r}: two relations have this name{also}; rename one of them")
        seen[name.lower()] = name
    for name in seen.values():
        if name.startswith(REVERSE) and name.removeprefix(REVERSE) in seen.values():
            raise InputError(
                f"relation {name!r}: gnnloom derives the reverse of {name.removeprefix(REVERSE)!r} under this name;"
                " leave the relation out, or rename it"
            )


def vertex_choices(chosen: Sequence[str]) -> dict[str, str]:
    """Keys of vertex data by type.

    Raises:
        InputError: an item is not ``TYPE=KEY``.
    """
    found = dict[str, str]()
    for item in chosen:
        name, equals, key = item.partition("=")
        if not (name and equals and key):
            raise InputError(f"vertex_data {item!r}: expected TYPE=KEY, such as paper=4e7a3d07")
        found[name] = key
    return found
