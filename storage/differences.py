"""What distinguishes artifacts: the parameters and inputs whose values differ, in words for messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Entries that say only that a file changed; shown if nothing else differs.
_OF_CONTENT = ("fingerprint", "size")
#: Characters of a value that a message shows.
_SHOWN = 40


def differences(contents: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """For each of several JSON objects, the entries whose values are not the same in all of them.

    Entries of nested objects are named by their last key. An entry that an object lacks is ``default``, because
    artifacts leave out parameters that were added later and have their default value.
    """
    flat = [_flat(content) for content in contents]
    names = list(dict.fromkeys(name for each in flat for name in each))
    differing = [name for name in names if len({each.get(name) for each in flat}) > 1]
    clear = [name for name in differing if not name.endswith(_OF_CONTENT)]
    return [{_short(name): each.get(name, _absent(name)) for name in clear or differing} for each in flat]


def is_of_content(pairs: Mapping[str, str]) -> bool:
    """Whether all that differs is what files contain: they are the same files, which have changed."""
    return all(name in _OF_CONTENT for name in pairs)


def in_words(pairs: Mapping[str, str]) -> str:
    """Entries as ``name=value, ...``."""
    return ", ".join(f"{name}={value}" for name, value in pairs.items())


def _flat(value: Any, name: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        return {key: text for below in value for key, text in _flat(value[below], f"{name}.{below}").items()}
    if isinstance(value, list) and not any(item is not None for item in value):
        return {}
    if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        return {key: text for item, each in enumerate(value) for key, text in _flat(each, f"{name}.{item}").items()}
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return {name: text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."}


def _absent(name: str) -> str:
    # An artifact that lacks a file was made without it, which is no default.
    return "none" if name.endswith(".name") else "default"


def _short(name: str) -> str:
    *above, last = name.strip(".").split(".")
    # The name of a file is called by what the file is, such as feature.
    if last == "name" and above:
        return "file" if "files" in above else above[-1]
    return last
