"""The options of every stage: commands, keys of recipes, keywords of functions and reference pages derive from them."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from gnnloom.storage.errors import InputError

#: The largest integer that NumPy, torch and MPI counts can hold.
LARGEST_INTEGER = 2**63 - 1
#: Characters of a text that an error shows.
_SHOWN = 40
_LENGTH = re.compile(r"[1-9]\d{0,8}")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_NOUNS: Final[Mapping[Any, str]] = {bool: "true or false", int: "an integer", float: "a number"}
#: Types whose values have no limits.
_UNLIMITED: Final = (bool, str, Path, tuple[str, ...])
_TRUTH: Final = {"true": True, "false": False}


#: Heading of the most used options.
MOST_USED: Final = "Most used"


class Group(StrEnum):
    """Headings under which help and reference pages list options, in this order."""

    INPUT = "Input"
    STAGES = "Stages"
    GRAPH = "Graph"
    PARTITION = "Partition"
    SHARDS = "Shards"
    DATA = "Data"
    DISTRIBUTION = "Distribution"
    MODEL = "Model"
    TASK = "Task"
    OPTIMIZATION = "Optimization"
    SAMPLING = "Sampling"
    CHECKPOINTS = "Checkpoints"
    SMOOTHING = "Smoothing"
    LOGGING = "Logging"
    OUTPUT = "Output"
    EXECUTION = "Execution"
    OTHER = "Other"


@dataclass(frozen=True)
class Option:
    """One option: everything that its command, its key in recipes and its keyword in Python need to know.

    Attributes:
        name: keyword and key in a recipe. Empty in a mapping by name, and for a field that has the same name.
        kind: bool, int, float, str, Path (the name of a file), ``tuple[int, ...]`` or ``tuple[str, ...]``; by default
            the type of ``default``, or text.
        help: a noun phrase or an imperative.
        default: value if none is given.
        group: heading in help.
        is_common: among the few most used options of its command, which help shows first.
        needs: values of other options that the option requires, such as ``{"mode": ("neighbor",)}``.
        choices: all allowed values, for an option that has a few.
        words: texts that stand for a value.
        least, most: smallest and largest value of a number, or of each item of a tuple.
        above: a number must be greater than this.
        below: a number must be finite, at least 0 or ``least``, and less than this.
        also: allowed values outside of these limits.
        importable: also takes ``package.module:NAME`` of something that the user wrote.
        is_size: bytes, which a text may give as ``512M``.
        separator: what separates the items of a tuple on the command line.
        example: a value for messages about a list.
        lengths: fewest and most items of a tuple of sizes, such as 2 and 3; None for any number of any integers.
        required: must be given; on the command line of a generator, the default serves as an example.
        deniable: True and False both differ from "not given", so the command line has ``--NAME/--no-NAME``.
        flag_name: name on the command line, if it is another one. A bool that is on by default has the name of the flag
            that switches it off.
        metavar: placeholder of the value in help.
        default_text: the default in words, if the value does not say what happens.
        variable: environment variable with the default of the command line.
    """

    name: str = ""
    kind: Any = None
    help: str = ""
    default: Any = None
    _: KW_ONLY
    group: Group = Group.OTHER
    is_common: bool = False
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    words: Mapping[str, Any] = field(default_factory=dict)
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    also: tuple[Any, ...] = ()
    importable: bool = False
    is_size: bool = False
    separator: str = ","
    example: str = ""
    lengths: tuple[int, int] | None = None
    required: bool = False
    deniable: bool = False
    flag_name: str = ""
    metavar: str | None = None
    default_text: str = ""
    variable: str | None = None

    def __post_init__(self) -> None:
        if self.kind is None:
            # Options are frozen, which this bypasses.
            object.__setattr__(self, "kind", _kind_of(self.default))

    @property
    def flag(self) -> str:
        """Name on the command line, with underscores and without the leading dashes."""
        return self.flag_name or self.name

    @property
    def sentence(self) -> str:
        """The help text, with a period at its end unless it ends with a remark in brackets."""
        return self.help if self.help.endswith((".", "]")) or not self.help else f"{self.help}."

    @property
    def heading(self) -> str:
        """Heading of the option's group in help."""
        return MOST_USED if self.is_common else self.group

    @property
    def value_type(self) -> Any:
        """Type of the value in a recipe."""
        return str if self.kind is Path else self.kind

    @property
    def is_list(self) -> bool:
        """The value is a tuple."""
        return bool(get_args(self.kind))

    def is_given(self, value: Any) -> bool:
        """Whether a value differs from "not given": 0 does, False does only if the option is deniable."""
        return value is not None and (value is not False or self.deniable)

    def allows(self, value: Any) -> bool:
        """Whether a value is the default, one of the choices, or has the form of something to import if that may be."""
        return value in (self.default, *self.choices) or (self.importable and isinstance(value, str) and ":" in value)

    def current(self, value: Any) -> Any:
        """Current meaning of a word that an earlier version used; any other value unchanged."""
        return self.words.get(value, value) if isinstance(value, str) else value

    def check(self, value: Any) -> Any:
        """Return the value to use for ``value``, which has the option's type; None stands for "not given".

        Raises:
            InputError: the value is not allowed; names the option and what is expected.
        """
        value = self.current(value)
        if self.choices and not self.allows(value):
            own = ", or package.module:NAME" if self.importable else ""
            raise self._refused(repr(value), f"one of {', '.join(self.choices)}{own}")
        if self.kind in _UNLIMITED:
            return value
        for item in value if isinstance(value, tuple | list) else (value,):
            expected = self._violated(item)
            if expected:
                raise self._refused(item, expected + self._such_as)
        return value

    def read(self, text: str) -> Any:
        """Convert a text of the command line to the option's type; its value is not checked.

        Raises:
            InputError: the text is not of the option's type.
        """
        if text in self.words or self.choices:
            return self.current(text)
        try:
            return self._convert(text)
        except (KeyError, ValueError) as error:
            raise self._refused(repr(text), self._noun() + self._such_as) from error

    def parse(self, text: str) -> Any:
        """The value that a text stands for, checked.

        Raises:
            InputError: the text is not of the option's type, or the value is not allowed.
        """
        return self.check(self.read(text))

    def shown(self, value: Any) -> str:
        """A value as one writes it on the command line."""
        word = next((word for word, meant in self.words.items() if meant == value), None)
        if word is None and self.is_size and isinstance(value, int):
            word = _size_text(value)
        if isinstance(value, bool):
            word = str(value).lower()
        items = value if isinstance(value, tuple | list) else (value,)
        return word or self.separator.join(map(str, items))

    def _convert(self, text: str) -> Any:
        if self.kind is bool:
            return _TRUTH[text]
        if self.is_size:
            return parse_bytes(text)
        if not self.is_list:
            return self.kind(text)
        # An empty text stands for no items.
        items = [item.strip() for item in text.split(self.separator) if item.strip() or self.lengths]
        if self.lengths is not None and not (
            self.lengths[0] <= len(items) <= self.lengths[1] and all(map(_LENGTH.fullmatch, items))
        ):
            raise ValueError
        return tuple(map(get_args(self.kind)[0], items))

    @property
    def _such_as(self) -> str:
        return f", such as {self.example}" if self.example else ""

    def _noun(self) -> str:
        if self.is_size:
            return "a size such as 512M or 1G"
        if not self.is_list:
            return ", or ".join([_NOUNS.get(self.kind, self.kind.__name__), *self.words])
        if self.lengths is None:
            return "integers separated by commas"
        fewest, most = self.lengths
        number = str(fewest) if fewest == most else f"{fewest} to {most}"
        example = self.separator.join(["4"] * most)
        return f"{number} sizes with {self.separator} between them, such as {example}"

    def _violated(self, value: Any) -> str:
        """Description of the expected values if a value is out of range, or is text instead of a number; else empty."""
        if isinstance(value, str):
            return self._noun()
        if value in self.also or isinstance(value, bool) or not isinstance(value, int | float):
            return ""
        others = "".join(f", or {other}" for other in self.also)
        if self.below is not None:
            least = self.least or 0
            if not (math.isfinite(value) and least <= value < self.below):
                end = "upwards" if math.isinf(self.below) else f"to below {self.below}"
                return f"a number from {least} {end}{others}"
        if self.above is not None and not value > self.above:
            return f"more than {self.above}{others}"
        if self.least is not None and not value >= self.least:
            return f"at least {self.least}{others}"
        most = LARGEST_INTEGER if self.most is None and isinstance(value, int) else self.most
        if most is not None and value > most:
            return f"at most {'2^63 - 1' if most == LARGEST_INTEGER else most}{others}"
        return ""

    def _refused(self, value: object, expected: str) -> InputError:
        return InputError(f"{self.name} {value}: expected {expected}")


def option(default: Any = dataclasses.MISSING, text: str = "", **details: Any) -> Any:
    """A field of a dataclass that is an option.

    Args:
        default: none makes the field required.
        text: the option's help.
        details: further attributes of the :class:`Option`.
    """
    return option_field(Option(default=default, help=text, required=default is dataclasses.MISSING, **details))


def option_field(given: Option, **metadata: Any) -> Any:
    """A field of a dataclass from a complete option."""
    return field(default=given.default, metadata={"option": given, **metadata})


def part(kind: type[Any]) -> Any:
    """A field of a dataclass that holds another dataclass, whose options are options of the whole.

    Args:
        kind: class of the part. The field may be left out unless the part has a required option.
    """
    is_required = any(each.is_required for each in option_fields(kind).values())
    return field(default_factory=dataclasses.MISSING if is_required else kind, metadata={"part": kind})


@dataclass(frozen=True)
class OptionField:
    """A field that is an option: of a dataclass, or of one of its parts.

    Attributes:
        owner: the dataclass that has the field.
        path: names of the fields that lead from the whole to the value, such as ``model.hidden``.
    """

    option: Option
    field: dataclasses.Field[Any]
    owner: type[Any]
    path: str

    @property
    def is_required(self) -> bool:
        """The field has no default."""
        return self.field.default is dataclasses.MISSING and self.field.default_factory is dataclasses.MISSING

    @property
    def annotation(self) -> Any:
        """Type of the field."""
        return get_type_hints(self.owner)[self.field.name]

    def value(self, whole: Any) -> Any:
        """The value of the option in an object of the whole dataclass."""
        return attrgetter(self.path)(whole)


def option_fields(kind: type[Any]) -> Mapping[str, OptionField]:
    """The fields of a dataclass and of its parts that are options, by the name of the option, in the order of fields.

    An option has the name of its field unless it declares another one.
    """
    # Mypy takes a dataclass for not hashable, although only its objects may be.
    hashable: Any = kind
    return _option_fields(hashable)


@cache
def _option_fields(kind: Any) -> Mapping[str, OptionField]:
    found = dict[str, OptionField]()
    for each in dataclasses.fields(kind):
        if "option" in each.metadata:
            named = replace(each.metadata["option"], name=each.metadata["option"].name or each.name)
            found[named.name] = OptionField(named, each, kind, each.name)
        elif "part" in each.metadata:
            own = option_fields(each.metadata["part"])
            found |= {name: replace(one, path=f"{each.name}.{one.path}") for name, one in own.items()}
    return found


def options_of(kind: type[Any]) -> Mapping[str, Option]:
    """The options of a dataclass and of its parts, by name."""
    return {name: each.option for name, each in option_fields(kind).items()}


def check_options(checked: Any) -> None:
    """Check every field of an object that is an option.

    Raises:
        InputError: a value is not allowed.
    """
    for each in option_fields(type(checked)).values():
        each.option.check(each.value(checked))


def parse_named(field: str, given: Iterable[str], options: Mapping[str, Option], else_expected: str) -> dict[str, Any]:
    """Name to checked value of options that are given as ``name=value``.

    Args:
        field: name of the field that holds the texts, for messages.
        options: the options that are allowed.
        else_expected: what to expect, for the message if no option is allowed.

    Raises:
        InputError: an item is not ``name=value``, there is no such option, or its value is not allowed.
    """
    found = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals or name not in options:
            known = f"name=value with the names {', '.join(options)}" if options else else_expected
            raise InputError(f"{field} {item!r}: expected {known}")
        found[name] = replace(options[name], name=name).parse(text)
    return found


def parse_bytes(text: str) -> int:
    """Read a number of bytes, written like ``512M``, ``1G`` or ``1.5GiB`` (powers of 1024).

    Raises:
        ValueError: ``text`` is not a size.
    """
    match = re.fullmatch(r"(\d{1,19}(?:\.\d{1,19})?)\s*([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if not match:
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise ValueError(f"{text!r} is not a size such as 512M or 1G")
    return int(float(match[1]) * 1024 ** _POWERS[match[2].upper()])


def parse_memory(text: str) -> int:
    """The bytes of an option ``memory``.

    Raises:
        InputError: ``text`` is not a size.
    """
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise InputError(f"memory: {error}") from error


def _size_text(size: int) -> str:
    """``268435456`` as ``256M``; a size that is no whole number of a unit stays in bytes."""
    unit = [unit for unit, power in _POWERS.items() if size % 1024**power == 0][-1] if size else ""
    return f"{size // 1024 ** _POWERS[unit]}{unit}"


def _kind_of(default: Any) -> Any:
    if isinstance(default, tuple):
        return tuple[str, ...] if default and isinstance(default[0], str) else tuple[int, ...]
    return str if default is None or default is dataclasses.MISSING else type(default)
