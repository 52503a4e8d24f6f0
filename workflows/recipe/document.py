"""A TOML file of sections read into frozen dataclasses, with the line of whatever is wrong in it."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from gnnloom.storage.errors import InputError, NotFoundError

Section = TypeVar("Section")

_HEADER = re.compile(r"""\s*\[\[?\s*["']?([A-Za-z0-9_-]+)["']?\s*(?:\.\s*["']?([A-Za-z0-9_-]+)["']?\s*)?\]""")
_KEY = re.compile(r"""\s*["']?([A-Za-z0-9_.-]+)["']?\s*=""")
_NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}
_EXAMPLES = {int: "[16, 16]", str: '["one", "two"]'}


@dataclass(frozen=True)
class Given:
    """A value and where it was given: file and line, or option."""

    value: Any
    where: str


@dataclass(frozen=True)
class Document:
    """The values of a file, by section and key, after those that options set."""

    name: str
    sections: Mapping[str, Mapping[str, Given]]
    places: Mapping[str, str]

    @classmethod
    def read(cls, path: Path, settings: Sequence[str] = ()) -> Document:
        """Read a TOML file; each of ``settings`` is ``section.key=value`` and wins over the file.

        Raises:
            NotFoundError: there is no such file.
            InputError: it is not TOML, has keys outside of a section, or a setting is not of this form.
        """
        try:
            # Editors of some systems begin a file with a mark of its encoding.
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise NotFoundError(f"{path}: the recipe cannot be read ({error})") from error
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path}: not valid TOML: {error}; texts need quotes, keys need `key = value`") from error
        lines = _lines(text)
        sections: dict[str, dict[str, Given]] = {}
        for section, values in content.items():
            where = f"{path}, line {lines.get((section, ''), lines.get(('', section), 1))}"
            if not isinstance(values, dict):
                raise InputError(f"{where}: {_not_a_section(section, values)}")
            sections[section] = {
                key: Given(value, f"{path}, line {lines[section, key]}" if (section, key) in lines else where)
                for key, value in values.items()
            }
        for setting in settings:
            section, key, value = _split_setting(setting)
            sections.setdefault(section, {})[key] = Given(_Raw(value), f"--set {setting}")
        places = {section: f"{path}, line {lines.get((section, ''), 1)}" for section in sections}
        return cls(str(path), sections, places)

    def check_sections(self, known: Iterable[str]) -> None:
        """Refuse sections of other names.

        Raises:
            InputError: with the place and the nearest right name.
        """
        for section, values in self.sections.items():
            if section not in set(known):
                where = next((given.where for given in values.values()), self.places[section])
                raise InputError(f"{where}: there is no section [{section}]{_nearest(section, known)}")

    def where(self, section: str, key: str = "") -> str:
        """Where a key, or its section, was given."""
        given = self.sections.get(section, {}).get(key)
        return given.where if given else self.places.get(section, self.name)

    def build(self, section: str, kind: type[Section], **settled: Any) -> Section:
        """The dataclass of one section; what is not given takes its default.

        Args:
            settled: fields that are not the section's to say.

        Raises:
            InputError: a key is unknown, missing, or has a value of another type, or one that the dataclass refuses.
        """
        hints = {name: hint for name, hint in get_type_hints(kind).items() if name not in settled}
        fields = [field for field in dataclasses.fields(kind) if field.name in hints]  # type: ignore[arg-type]
        names = [field.name for field in fields]
        former = {field.metadata.get("former"): field.name for field in fields}
        values = {}
        for written, given in self.sections.get(section, {}).items():
            key = former.get(written, written)
            if key not in names:
                raise InputError(f"{given.where}: [{section}] has no key {key!r}{_nearest(key, names)}")
            values[key] = convert(given, f"[{section}] {key}", hints[key])
        self._check_required(section, kind, {**settled, **values})
        try:
            return kind(**settled, **values)
        except InputError as error:
            raise InputError(f"{self.where(section, self._blamed(section, error))}: [{section}] {error}") from error

    def _blamed(self, section: str, error: InputError) -> str:
        """The key that an error speaks of: the first one given that it names before it says what it expected."""
        words = re.findall(r"\w+", str(error).partition(":")[0])
        return next((word for word in words if word in self.sections.get(section, {})), "")

    def _check_required(self, section: str, kind: type[Any], values: Mapping[str, Any]) -> None:
        for field in dataclasses.fields(kind):
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if required and field.name not in values:
                raise InputError(f"{self.where(section)}: [{section}] needs a key {field.name!r}")


@dataclass(frozen=True)
class _Raw:
    """A value as text, whose type the key tells."""

    text: str


def _split_setting(setting: str) -> tuple[str, str, str]:
    match = re.fullmatch(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)=(.*)", setting, re.DOTALL)
    if not match:
        raise InputError(f"--set {setting}: expected section.key=value, such as train.epochs=10")
    return match[1], match[2], match[3]


def _lines(text: str) -> dict[tuple[str, str], int]:
    """Line of every section (with an empty key) and of every key."""
    lines: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = header[1]
            lines.setdefault((section, header[2] or ""), number)
        elif key := _KEY.match(line):
            # `train.lr = 1` outside of a section is the key `lr` of the section `train`.
            first, _, rest = key[1].partition(".") if not section else (section, "", key[1])
            lines.setdefault((first, rest), number)
            if not section:
                lines.setdefault(("", first), number)
    return lines


def _not_a_section(name: str, value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return f"[[{name}]] begins a list of sections; there is one of each: write [{name}]"
    return f"the key {name!r} is in no section; put it below one, such as [train]"


def _nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name."""
    names = list(known)
    close = difflib.get_close_matches(name, names, 1, 0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; it may be one of {', '.join(names)}"


def convert(given: Given, what: str, hint: Any) -> Any:
    """A value as the type that its key has.

    Raises:
        InputError: it is of another type.
    """
    kinds = [kind for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,)) if kind is not NoneType]
    values = _readings(given.value.text, kinds) if isinstance(given.value, _Raw) else [given.value]
    for value in values:
        for kind in kinds:
            found = _as_kind(value, kind)
            if found is not None:
                return found
    expected = " or ".join(_noun(kind) for kind in kinds)
    shown = given.value.text if isinstance(given.value, _Raw) else json.dumps(given.value, default=str)
    raise InputError(f"{given.where}: {what} = {shown}: expected {expected}")


def _readings(text: str, kinds: Sequence[Any]) -> list[Any]:
    """What a text from the command line may mean, the likeliest first."""
    found: list[Any] = []
    for candidate in (text, f"[{text}]"):
        try:
            found.append(tomllib.loads(f"value = {candidate}")["value"])
        except tomllib.TOMLDecodeError:
            continue
    return [text, *found] if kinds == [str] and not text.startswith(('"', "'")) else [*found, text]


def _as_kind(value: Any, kind: Any) -> Any:
    """``value`` as ``kind``; None if it is not of it."""
    if get_origin(kind) is tuple:
        return _as_tuple(value, get_args(kind))
    if kind is float and type(value) is int:
        return float(value)
    # Paths are texts; a truth value is no number.
    if kind is Path and isinstance(value, str):
        return Path(value)
    return value if type(value) is kind else None


def _as_tuple(value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...] | None:
    items = [_as_kind(item, kinds[0]) for item in (value if isinstance(value, list) else [value])]
    fits = None not in items and (kinds[-1] is Ellipsis or len(items) == len(kinds))
    return tuple(items) if fits else None


def _noun(kind: Any) -> str:
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return f"a list such as {_EXAMPLES.get(item, '[...]')}"
    return _NOUNS.get(kind, "a text in quotes")


def to_toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Sections of plain values as TOML; keys that are None are left out."""
    blocks = []
    for section, values in sections.items():
        lines = [f"{key} = {_toml_value(value)}" for key, value in values.items() if value is not None]
        blocks.append("\n".join([f"[{section}]", *lines]))
    return "\n\n".join(blocks) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
