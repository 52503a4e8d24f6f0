"""Options that several formats, generators or kinds of vertex data share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option

#: Maximum number of columns or classes of data that are made: a row takes a few MiB.
MOST_COLUMNS = 1 << 20


@dataclass(frozen=True)
class SharedOption:
    """An option, and the names of all descriptors that have it."""

    option: Option
    owners: tuple[str, ...]


def merge_options(
    by_owner: Mapping[str, Sequence[Option]], key: Callable[[Option], str] = lambda option: option.name
) -> dict[str, SharedOption]:
    """The union of the options of several descriptors; those that every descriptor has come last.

    Args:
        by_owner: options by the descriptor's name.
        key: what options are merged by.

    Raises:
        InputError: two descriptors give one name to options of different types.
    """
    merged: dict[str, SharedOption] = {}
    for owner, options in by_owner.items():
        for option in options:
            known = merged.setdefault(key(option), SharedOption(option, ()))
            if known.option.value_type != option.value_type:
                raise InputError(f"{owner} and {known.owners[0]}: option {option.name!r} has two types; rename one")
            merged[key(option)] = SharedOption(known.option, (*known.owners, owner))
    return dict(sorted(merged.items(), key=lambda item: len(item[1].owners) == len(by_owner) > 1))


def checked_options(owner: str, known: Sequence[Option], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given, as keywords for the function that opens a source.

    Args:
        owner: what the options belong to, for the message.
        known: options that the owner has; False for an option that it does not have counts as not given.

    Raises:
        InputError: an option is given that the owner does not have.
    """
    by_name = {option.name: option for option in known}
    unknown = sorted(
        name for name, value in options.items() if name not in by_name and value is not None and value is not False
    )
    if unknown:
        raise InputError(f"{owner} has no option {', '.join(unknown)}; it has {', '.join(by_name) or 'none'}")
    return {name: value for name, value in options.items() if name in by_name and by_name[name].is_given(value)}
