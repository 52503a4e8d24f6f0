"""One option of a configuration or of an algorithm: its default, its help text and its check."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gnnloom.storage.errors import InputError

#: The largest integer that NumPy, torch and MPI counts can hold.
LARGEST_INTEGER = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Option:
    """Everything about an option except its name.

    Attributes:
        default: value if none is given; its type is the option's type.
        help: line for ``--help``.
        choices: all allowed values, for an option that has a few.
        words: texts that stand for a value.
        least, most: smallest and largest value of an integer, or of each item of a tuple of integers.
        below: upper bound of a number that is at least 0, itself excluded.
        importable: also takes ``package.module:NAME`` of something that the user wrote.
    """

    default: Any
    help: str
    choices: tuple[str, ...] = ()
    words: Mapping[str, Any] = field(default_factory=dict)
    least: int | None = None
    most: int = LARGEST_INTEGER
    below: float | None = None
    importable: bool = False

    def settle(self, name: str, value: Any) -> Any:
        """The value to use for ``value``, which has the option's type.

        Raises:
            InputError: the value is not allowed.
        """
        value = self.current(value)
        if self.choices and not self.allows(value):
            own = ", or package.module:NAME" if self.importable else ""
            raise InputError(f"{name} {value!r}: expected one of {', '.join(self.choices)}{own}")
        if self.least is not None and value is not None:
            for item in value if isinstance(value, tuple) else (value,):
                self._check_range(name, item, self.least)
        if self.below is not None and not (math.isfinite(value) and 0 <= value < self.below):
            end = "upwards" if math.isinf(self.below) else f"to below {self.below}"
            raise InputError(f"{name} {value}: expected a number from 0 {end}")
        return value

    def allows(self, value: Any) -> bool:
        """Whether a value is one of the choices, or has the form of something to import if that is allowed."""
        return value in self.choices or (self.importable and isinstance(value, str) and ":" in value)

    def explained(self, text: str) -> Option:
        """This option with another help text."""
        return replace(self, help=text)

    def current(self, value: Any) -> Any:
        """What a word stands for; any other value unchanged."""
        return self.words.get(value, value) if isinstance(value, str) else value

    def parse(self, name: str, text: str) -> Any:
        """The value that a text stands for, checked.

        Raises:
            InputError: the text is not of the option's type, or the value is not allowed.
        """
        kind = type(self.default)
        try:
            # bool() of any non-empty text is True.
            value = {"true": True, "false": False}[text] if kind is bool else kind(text)
        except (KeyError, ValueError) as error:
            raise InputError(f"{name} {text!r}: expected {_NOUNS.get(kind, kind.__name__)}") from error
        return self.settle(name, value)

    def _check_range(self, name: str, value: int, least: int) -> None:
        if value < least:
            raise InputError(f"{name} {value}: expected at least {least}")
        if value > self.most:
            most = "2^63 - 1" if self.most == LARGEST_INTEGER else self.most
            raise InputError(f"{name} {value}: expected at most {most}")


_NOUNS = {bool: "true or false", int: "an integer", float: "a number"}
