"""A TOML file of sections, read into frozen dataclasses; errors name the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.option import option_fields
from gnnloom.storage.system_errors import OF_PERMISSION, check_is_of_content
from gnnloom.storage.wording import counted, did_you_mean
from gnnloom.trainer.config.fields import Config
from gnnloom.workflows.recipe.toml.text import find_lines
from gnnloom.workflows.recipe.toml.values import GivenValue, Raw, convert

Section = TypeVar("Section")


class MistakesError(InputError):
    """Several mistakes of a file; the message has a line for each."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__("\n  ".join([f"{counted(len(messages), 'mistake')}:", *messages]))
        self.messages = messages


@dataclass
class Mistakes:
    """Collects the mistakes of a file, to report them all at once."""

    _messages: list[str] = field(default_factory=list)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Continue after the block if it finds a mistake."""
        try:
            yield
        except InputError as error:
            self._messages += error.messages if isinstance(error, MistakesError) else [str(error)]

    def check(self) -> None:
        """Report the mistakes so far.

        Raises:
            InputError: there are some.
        """
        if len(self._messages) > 1:
            raise MistakesError(self._messages)
        if self._messages:
            raise InputError(self._messages[0])


@dataclass(frozen=True)
class Document:
    """The values of a file by section and key, overridden by ``--set``.

    The entries of a list of sections, such as ``[[relations]]``, are sections ``relations.1``, ``relations.2`` and on.

    Attributes:
        section_lines: file and line of each section.
    """

    name: str
    sections: Mapping[str, Mapping[str, GivenValue]]
    section_lines: Mapping[str, str]

    @classmethod
    def read(cls, path: Path, settings: Sequence[str] = (), lists: Container[str] = ()) -> Document:
        """Read a TOML file.

        Args:
            settings: ``section.key=value`` each; they override the file.
            lists: names of sections that may be lists.

        Raises:
            NotFoundError: the file cannot be read.
            InputError: it is not TOML, has keys outside a section, or a setting does not have this form.
        """
        try:
            # Some editors begin a file with a byte order mark.
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            check_is_of_content(error, path, OF_PERMISSION)
            raise NotFoundError(f"{path}: the recipe cannot be read ({error})") from error
        try:
            content = tomllib.loads(text)
        # Python refuses numbers of thousands of digits with a plain ValueError, and deeply nested lists by recursion.
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not valid TOML: {error}; write `key = value`, with text in quotes") from error
        lines = find_lines(text)
        sections: dict[str, dict[str, GivenValue]] = {}
        section_lines: dict[str, str] = {}
        for section, values in _entries(content, lists):
            where = f"{path}, line {lines.get((section, ''), lines.get(('', section.partition('.')[0]), 1))}"
            section_lines[section] = where
            if not isinstance(values, dict):
                raise InputError(f"{where}: {_not_a_section(section, values)}")
            sections[section] = {
                key: GivenValue(value, f"{path}, line {lines[section, key]}" if (section, key) in lines else where)
                for key, value in values.items()
            }
        for setting in settings:
            # After the file, so that options override it.
            section, key, value = _split_setting(setting)
            if "." in section and section not in sections:
                raise InputError(f"--set {setting}: the recipe has no [[{section.replace('.', ']] number ')}")
            section_lines.setdefault(section, f"{path}, line 1")
            sections.setdefault(section, {})[key] = GivenValue(Raw(value), f"--set {setting}")
        return cls(str(path), sections, section_lines)

    def check_sections(self, known: Iterable[str]) -> None:
        """Refuse sections with other names.

        Raises:
            InputError: sections are unknown; names their lines and the closest known sections.
        """
        mistakes = Mistakes()
        for section, values in self.sections.items():
            if section.partition(".")[0] not in set(known):
                # A section that only --set mentions has no line, so name the place of one of its keys.
                where = next((given.where for given in values.values()), self.section_lines[section])
                with mistakes.noted():
                    meant = did_you_mean(section, known, "expected one of")
                    raise InputError(f"{where}: unknown section [{section}]; {meant}")
        mistakes.check()

    def entries(self, name: str) -> list[str]:
        """The sections of a list, in the order of the file."""
        return [section for section in self.sections if section.startswith(f"{name}.")]

    def where(self, section: str, key: str = "") -> str:
        """Return where a key was given, or else its section."""
        given = self.sections.get(section, {}).get(key)
        return given.where if given else self.section_lines.get(section, self.name)

    def is_set(self, section: str, key: str) -> bool:
        """Return whether a key was given by ``--set``."""
        given = self.sections.get(section, {}).get(key)
        return given is not None and isinstance(given.value, Raw)

    def refuse_unused(
        self, section: str, keys: Iterable[str], why: str, causes: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Refuse keys that change nothing.

        Args:
            why: why the keys have no effect, and what to do.
            causes: sections and keys that make them useless. If a cause was given by ``--set``, keys of the file are
                accepted, because options are how one tries another value without editing the file.

        Raises:
            InputError: some of the keys were given; names their lines.
        """
        is_tried, mistakes = any(self.is_set(*cause) for cause in causes), Mistakes()
        for key in keys:
            given = self.sections.get(section, {}).get(key)
            if given is not None and (self.is_set(section, key) or not is_tried):
                with mistakes.noted():
                    raise InputError(f"{given.where}: [{section}] {key} has no effect: {why}")
        mistakes.check()

    def build(self, section: str, kind: type[Section], **settled: Any) -> Section:
        """Build the dataclass of one section; keys that are not given take their defaults.

        Args:
            settled: values of fields that the section cannot set.

        Raises:
            InputError: keys are unknown or missing, or their values have another type or are refused by the dataclass.
        """
        names = [name for name in option_fields(kind) if name not in settled]
        values, mistakes = {}, Mistakes()
        for key, given in self.sections.get(section, {}).items():
            with mistakes.noted():
                if key not in names:
                    meant = did_you_mean(key, names, "expected one of")
                    raise InputError(f"{given.where}: [{section}] has no key {key!r}; {meant}")
                values[key] = convert(given, f"[{section}] {key}", option_fields(kind)[key].annotation)
        mistakes.check()
        # First, because the TypeError of a dataclass without a required value names neither file nor line.
        for name, each in option_fields(kind).items():
            if each.is_required and name not in settled and name not in values:
                raise InputError(f"{self.where(section)}: [{section}] needs a key {name!r}")
        with self.located(section):
            return kind.of(**settled, **values) if issubclass(kind, Config) else kind(**settled, **values)

    @contextmanager
    def located(self, section: str) -> Iterator[None]:
        """Begin errors about the values of a section with the line and the section."""
        try:
            yield
        except InputError as error:
            # Dataclasses raise errors such as "lr -1.0: expected ...", which do not know the line. The error is about
            # the first given key before the colon.
            words = re.findall(r"\w+", str(error).partition(":")[0])
            key = next((word for word in words if word in self.sections.get(section, {})), "")
            raise self.error(section, str(error), key) from error

    def error(self, section: str, text: str, key: str = "") -> InputError:
        """An error that begins with the line of a key, or else of its section, and the section."""
        return InputError(f"{self.where(section, key)}: [{section}]{text if text.startswith(':') else f' {text}'}")


def _entries(content: Mapping[str, Any], lists: Container[str]) -> Iterator[tuple[str, Any]]:
    """Each section of a file with its values; each entry of a list of sections under its number, from 1."""
    for section, values in content.items():
        if section in lists and isinstance(values, list) and all(isinstance(each, dict) for each in values):
            yield from ((f"{section}.{number}", each) for number, each in enumerate(values, 1))
        else:
            yield section, values


def _split_setting(setting: str) -> tuple[str, str, str]:
    match = re.fullmatch(r"([A-Za-z0-9_-]+(?:\.\d+)?)\.([A-Za-z0-9_-]+)=(.*)", setting, re.DOTALL)
    if not match:
        raise InputError(f"--set {setting}: expected section.key=value, such as train.epochs=10")
    return match[1], match[2], match[3]


def _not_a_section(name: str, value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return f"[[{name}]] begins a list of sections; write [{name}], as there is one section of each name"
    return f"the key {name!r} is outside a section; put it into one, such as [train]"
