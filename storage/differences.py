"""Compares artifacts: names the parameters and inputs whose values differ, in words for messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Entries that say only that a file changed; shown if nothing else differs.
_OF_CONTENT = ("fingerprint", "size")
#: Entry with the names of several files.
_FILES = ".files"
#: Characters of a value that a message shows, and names of files.
_SHOWN = 40
_SHOWN_FILES = 3


def differences(contents: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """For each of several JSON objects, the entries whose values differ between the objects.

    Entries of nested objects are named by their last key; several files are one entry, with their number and the first
    names. An entry that an object lacks is ``default``, because artifacts leave out parameters that were added later
    and have their default value. Entries that only one source has are left out if the formats of the sources differ.
    """
    flat = [_flat(content) for content in contents]
    names = list(dict.fromkeys(name for each in flat for name in each))
    differing = [name for name in names if any(each.get(name) != flat[0].get(name) for each in flat)]
    formats = tuple(name.removesuffix("format") for name in differing if name.endswith(".format"))
    of_one = {name for name in differing if name.startswith(formats) and any(name not in each for each in flat)}
    unclear = {name for name in of_one if not name.endswith(_FILES)}
    clear = [name for name in differing if not name.endswith(_OF_CONTENT) and name not in unclear]
    return [
        {_short(name): _shown(name, each[name]) if name in each else _absent(name) for name in clear or differing}
        for each in flat
    ]


def is_of_content(pairs: Mapping[str, str]) -> bool:
    """Whether only the contents of files differ: the files are the same, but have changed."""
    return all(name in _OF_CONTENT for name in pairs)


def in_words(pairs: Mapping[str, str]) -> str:
    """Entries as ``name=value, ...``."""
    return ", ".join(f"{name}={value}" for name, value in pairs.items())


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {key: found for below in value for key, found in _flat(value[below], f"{name}.{below}").items()}
    if isinstance(value, list) and not any(item is not None for item in value):
        return {}
    if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        found = {key: text for item, each in enumerate(value) for key, text in _flat(each, f"{name}.{item}").items()}
        names = [found.pop(f"{name}.{item}.name", None) for item, _ in enumerate(value)]
        return found if None in names else {name: names, **found}
    return {name: value}


def _shown(name: str, value: Any) -> str:
    if name.endswith(_FILES):
        return f"{len(value)} ({', '.join(value[:_SHOWN_FILES])}{', ...' if len(value) > _SHOWN_FILES else ''})"
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _absent(name: str) -> str:
    # An artifact without files was made from none, which is not a default.
    return "none" if name.endswith((".name", _FILES)) else "default"


def _short(name: str) -> str:
    *above, last = name.strip(".").split(".")
    # The name of a file is called by what the file is, such as feature.
    return above[-1] if last == "name" and above else last
