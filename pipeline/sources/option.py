"""Options of formats, generators and vertex data, from which the command line and recipes derive theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.storage.errors import InputError

#: Maximum number of columns or classes of data that are made: a row takes a few MiB.
MOST_COLUMNS = 1 << 20


@dataclass(frozen=True)
class Option:
    """One option of a source.

    Attributes:
        name: keyword of the function that opens the source, and key in a recipe.
        kind: bool, int, float, str, Path (the name of a file) or tuple (sizes, such as ``1000x1000``).
        help: a noun phrase or an imperative, for ``--help``.
        default: value that the function takes if the option is not given.
        minimum, maximum: lowest and highest value of a number.
        below: a number must be less than this.
        required: a recipe must give the option; on the command line, the default serves as an example.
        deniable: True and False both differ from "not given", so the command line has ``--NAME/--no-NAME``.
        off_flag: name of the command line's flag that switches off an option that is on by default.
        metavar: placeholder of the value in ``--help``.
    """

    name: str
    kind: type[Any]
    help: str
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    below: float | None = None
    required: bool = False
    deniable: bool = False
    off_flag: str | None = None
    metavar: str | None = None

    @property
    def flag(self) -> str:
        """Name on the command line, with underscores and without the leading dashes."""
        return self.off_flag or self.name

    @property
    def value_type(self) -> Any:
        """Type of the value in a recipe."""
        if self.kind is tuple:
            return tuple[int, ...]
        return str if self.kind is Path else self.kind

    def is_given(self, value: Any) -> bool:
        """Whether a value differs from "not given": 0 does, False does only if the option is deniable."""
        return value is not None and (value is not False or self.deniable)

    def check(self, value: Any) -> None:
        """Refuse a number outside of the range.

        Raises:
            InputError: the number is outside of the range; the message names the option and the range.
        """
        fits = (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.below is None or value < self.below)
        )
        if not fits:
            raise InputError(f"{self.name} {value}: expected {self._range()}")

    def _range(self) -> str:
        limits = [
            f"at least {self.minimum}" if self.minimum is not None else "",
            f"at most {self.maximum}" if self.maximum is not None else "",
            f"less than {self.below}" if self.below is not None else "",
        ]
        return " and ".join(limit for limit in limits if limit)


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
