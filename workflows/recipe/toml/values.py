"""Values of a recipe and their conversion to the types of dataclass fields."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from gnnloom.storage.errors import InputError

#: Largest magnitude of a whole number that is read: it fits in a float, and Python can write it in messages.
_MOST = 10**300
#: Characters of a value that an error shows.
_SHOWN = 200
_NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}
_EXAMPLES = {int: "[16, 16]", str: '["one", "two"]'}


@dataclass(frozen=True)
class GivenValue:
    """A value, along with where it was given: file and line, or option."""

    value: Any
    where: str


@dataclass(frozen=True)
class Raw:
    """A value from the command line: text, read as the type of its key."""

    text: str


def convert(given: GivenValue, what: str, hint: Any) -> Any:
    """Convert a value to the type of its key.

    Args:
        what: section and key, for the error message.
        hint: type of the key: a type, a tuple of a type, or a union of types.

    Raises:
        InputError: the value has another type, or is a whole number of hundreds of digits.
    """
    kinds = [kind for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,)) if kind is not NoneType]
    values = _readings(given.value.text, kinds) if isinstance(given.value, Raw) else [given.value]
    for value in values:
        for kind in kinds:
            found = _as_kind(value, kind)
            if found is not None:
                return found
    expected = " or ".join(_noun(kind) for kind in kinds)
    raise InputError(f"{given.where}: {what} = {_shown(given.value)}: expected {expected}")


def _shown(value: Any) -> str:
    """The beginning of a value, for an error."""
    try:
        text = value.text if isinstance(value, Raw) else json.dumps(value, default=str)
    except ValueError:
        # Python refuses to write integers of thousands of digits.
        text = "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _readings(text: str, kinds: Sequence[Any]) -> list[Any]:
    """Return possible readings of text from the command line, the most likely one first."""
    found: list[Any] = []
    # A shell user writes train.hidden=16,16 without brackets.
    for candidate in (text, f"[{text}]"):
        try:
            found.append(tomllib.loads(f"value = {candidate}")["value"])
        except (ValueError, RecursionError):  # TOMLDecodeError, and numbers that Python refuses
            continue
    # A key that takes text gets 7 or true as text, unless the user quotes the value.
    return [text, *found] if kinds == [str] and not text.startswith(('"', "'")) else [*found, text]


def _as_kind(value: Any, kind: Any) -> Any:
    """Return ``value`` as ``kind``, or None if it has another type."""
    if get_origin(kind) is tuple:
        # A single value stands for a list of one, such as the path of one file.
        kinds, listed = get_args(kind), value if isinstance(value, list) else [value]
        items = [_as_kind(item, kinds[0]) for item in listed]
        return tuple(items) if None not in items and (kinds[-1] is Ellipsis or len(items) == len(kinds)) else None
    if type(value) is int and abs(value) > _MOST:
        return None
    # People write 1 for 1.0.
    if kind is float and type(value) is int:
        return float(value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    # Not isinstance: a bool is not a number here.
    return value if type(value) is kind else None


def _noun(kind: Any) -> str:
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return f"a list such as {_EXAMPLES.get(item, '[...]')}"
    return _NOUNS.get(kind, "a text in quotes")
