"""Finds the extensions of gnnloom: algorithms, partitioners, formats and others, each described by one object.

A *descriptor* is a module-level constant, such as ``ALGORITHM`` in ``gnnloom/trainer/algorithms/tensor3d.py``. Built-in
descriptors are found by importing every module of their room. Other packages register theirs as entry points whose
value names the constant:

    [project.entry-points."gnnloom.algorithms"]
    ring = "ringpack.ring:ALGORITHM"
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final, Protocol, Self, TypeVar

from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import did_you_mean, shell_command


class Descriptor(Protocol):
    """The attributes of every descriptor.

    Attributes:
        name: name on the command line.
        order: position in lists of choices; equal ones are sorted by name.
    """

    @property
    def name(self) -> str: ...

    @property
    def order(self) -> int: ...


Kind = TypeVar("Kind", bound=Descriptor)

#: Characters of a stored name that a message shows.
_SHOWN: Final = 200


@dataclass(frozen=True, kw_only=True)
class LazyClass:
    """The part of a descriptor whose class is imported only where it is used.

    Attributes:
        place: module and class.
    """

    place: tuple[str, str]

    def load(self) -> type[Any]:
        """Import the class."""
        found: type[Any] = getattr(importlib.import_module(self.place[0]), self.place[1])
        return found


def load_descriptors(room: ModuleType, constant: str, group: str, kind: type[Kind]) -> Mapping[str, Kind]:
    """Load all descriptors of one kind.

    Args:
        room: package whose modules may each hold a descriptor, or a tuple of them.
        constant: name of the constant in these modules; modules without it hold no descriptor.
        group: name of the entry points through which other packages add descriptors.
        kind: class of the descriptors.

    Returns:
        The descriptors by name, in the order of choices.

    Raises:
        InputError: two descriptors share a name, or a constant or entry point is not a descriptor of this kind.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - every command would wait for what this imports

    found = [(module.__name__, getattr(module, constant, ())) for module in _modules(room)]
    pairs = [(module, each) for module, held in found for each in (held if isinstance(held, tuple) else (held,))]
    pairs += [(point.value, point.load()) for point in sorted(entry_points(group=group))]
    by_name: dict[str, Kind] = {}
    for origin, descriptor in sorted(pairs, key=lambda pair: _position(pair[0], pair[1], kind)):
        if descriptor.name in by_name:
            raise InputError(f"{origin}: {group} has two entries named {descriptor.name!r}; uninstall one of them")
        by_name[descriptor.name] = descriptor
    return MappingProxyType(by_name)


def _modules(room: ModuleType) -> list[ModuleType]:
    names = sorted(info.name for info in pkgutil.iter_modules(room.__path__) if not info.ispkg)
    return [importlib.import_module(f"{room.__name__}.{name}") for name in names]


def _position(origin: str, descriptor: object, kind: type[Kind]) -> tuple[int, str]:
    if not isinstance(descriptor, kind):
        raise InputError(f"{origin}: expected a {kind.__name__}, found {type(descriptor).__name__}")
    return descriptor.order, descriptor.name


class UnconfirmedName(str):
    """Name ``package.module:NAME`` that a stored file gives and the command does not. It is never imported.

    It compares, hashes and prints as the plain text, so a configuration with such a name can be shown and compared.

    Attributes:
        file: the stored file.
        option: the option that confirms the name, with underscores.
    """

    __slots__ = ("file", "option")
    file: Path
    option: str

    def __new__(cls, text: str, file: Path, option: str) -> Self:
        found = super().__new__(cls, text)
        found.file, found.option = file, option
        return found

    # Attributes would be lost on the way to another process, and the name would be taken for one of the command.
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.file, self.option)


def load_named(option: str, text: str) -> object:
    """Import what a user names as ``package.module:NAME``, from the current folder or an installed package.

    The only place that imports by such a name.

    Args:
        option: name of the option, for messages.

    Raises:
        InputError: the text is not of this form, a stored file names it and the command does not, the module cannot be
            imported, or has no such name.
    """
    check_confirmed(text)
    module, colon, name = text.partition(":")
    if not (colon and module and name):
        raise InputError(f"{option} {text!r}: expected a name such as mypackage.mymodule:NAME")
    try:
        _look_in_current_folder(module)
        found = importlib.import_module(module)
    # The user has to fix any error of the module, such as a syntax error or a missing package: one line names it.
    except Exception as error:
        raise InputError(f"{option} {text}: {module} cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(found, name):
        meant = did_you_mean(name, vars(found))
        raise InputError(f"{option} {text}: {found.__file__ or module} has no {name}{'; ' if meant else ''}{meant}")
    return getattr(found, name)


def check_confirmed(*texts: object) -> None:
    """Check that no text is a name of code that only a stored file gives.

    Raises:
        InputError: some are; names them all, and says how the command confirms them.
    """
    found = [text for text in texts if isinstance(text, UnconfirmedName)]
    if not found:
        return
    *others, last = (text.option for text in found)
    options = " and ".join([*([", ".join(others)] if others else []), last])
    flags = [word for text in found for word in (f"--{text.option.replace('_', '-')}", text)]
    arguments = ", ".join(f"{text.option}=..." for text in found)
    names = "name" if len(found) > 1 else "names"
    raise InputError(
        f"{found[0].file}: {options} {names} code to import, {', '.join(repr(text[:_SHOWN]) for text in found)}, which"
        f" this command does not name; if you trust that code, add {shell_command(*flags)} (in Python, {arguments})"
    )


def load_class(option: str, text: str, base: type[Any]) -> type[Any]:
    """Import a class that a user names as ``package.module:Class``.

    Raises:
        InputError: there is no such class, it is not a subclass of ``base``, or it lacks methods.
    """
    found = load_named(option, text)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(
            f"{option} {text}: expected a subclass of {base.__module__}.{base.__qualname__}, found {found!r}"
        )
    missing: frozenset[str] = getattr(found, "__abstractmethods__", frozenset())
    if missing:
        raise InputError(f"{option} {text}: the class does not define {', '.join(sorted(missing))}")
    return found


def code_of_named(text: str) -> str | None:
    """Checksum of the file that defines what a user names as ``package.module:NAME``, for comparison between machines.

    Imports nothing, neither the module nor the packages above it.

    Returns:
        None if the text has another form or is not confirmed, or if there is no such file, which :func:`load_named`
        reports.
    """
    module, colon, name = text.partition(":")
    parts = module.split(".")
    if isinstance(text, UnconfirmedName) or not (colon and all(part.isidentifier() for part in (*parts, name))):
        return None
    _look_in_current_folder(module)
    spec, path = None, None
    # `importlib.util.find_spec` would import the packages above the module.
    for full in itertools.accumulate(parts, "{}.{}".format):
        found = (finder.find_spec(full, path) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((each for each in found if each is not None), None)
        if spec is None:
            return None
        path = spec.submodule_search_locations or ()
    file = None if spec is None or not spec.has_location else Path(str(spec.origin))
    if file is None or not file.is_file():
        return None
    import hashlib  # noqa: PLC0415 - likewise

    return hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()


def _look_in_current_folder(module: str) -> None:
    """Put the current folder at the end of the path from now on, unless the module's package is installed.

    The module may import others of its folder later, when its classes and functions are used. At the end of the path,
    no file of the folder replaces an installed module.
    """
    # A file that was written since the last look at its folder must be found.
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(module.partition(".")[0])
    folder = str(Path.cwd())
    # A package without a file may have other parts in the current folder.
    if (spec is None or spec.origin is None) and folder not in sys.path:
        sys.path.append(folder)
