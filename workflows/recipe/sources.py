"""The sections of a recipe for the sources of edges and vertex data, and the sources that they name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.sources.format import (
    bundled_vertices,
    formats,
    merge_options,
    open_edges,
    open_vertices,
    vertex_identity,
)
from gnnloom.pipeline.sources.generators.generator import Generator, generators
from gnnloom.pipeline.sources.reading.files import is_local, shown_location
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.pipeline.sources.vertex_data.kind import vertex_kinds
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option, option, option_field, options_of


@dataclass(frozen=True, kw_only=True)
class _Section(ABC):
    """Common base of both sections: a format, its files, and its options as further keys."""

    #: Keys that belong to no format.
    _own: ClassVar[Collection[str]] = frozenset({"format"})

    format: str | None = option(None, "Name of the format; guessed from the names of the files by default.")
    path: tuple[str, ...] = option(
        (), "One or more files, URLs or globs; one folder for formats that are folders.", kind=tuple[str, ...]
    )

    @abstractmethod
    def options(self) -> Sequence[Option]:
        """Options of the format; each option is a key."""

    @property
    def given(self) -> dict[str, Any]:
        """The keys of the format that were given, and their values."""
        # 0 and False count as given.
        return {key: value for key, value in asdict(self).items() if value not in (None, ()) and key not in self._own}

    def values(self) -> dict[str, Any]:
        """Return the options that were given, as keywords."""
        given = self.given
        return {option.name: given[option.name] for option in self.options() if option.name in given}

    def anywhere(self, place: Callable[[str], str] | None = None) -> Self:
        """Return this section with absolute paths, so that it works from any current folder.

        Args:
            place: writes a location; :func:`whole_path` by default.
        """
        place = place or whole_path
        # Only options that name files are paths: the split of an OGB folder is a plain name.
        files = {option.name for option in self.options() if option.kind is Path}
        absolute = {key: place(value) for key, value in self.given.items() if key in files}
        return replace(self, path=tuple(map(place, self.path)), **absolute)


Section = TypeVar("Section")


@dataclass(frozen=True, kw_only=True)
class SourceSection(_Section):
    """``[source]``: files in a format, or a generator and its options.

    ``read.py`` adds a key for every option of every format and generator.
    """

    def __post_init__(self) -> None:
        known = (*generators(), *formats())
        if self.format is not None and self.format not in known:
            raise InputError(f"format {self.format!r}: expected one of {', '.join(known)}")
        name, options = self.format or "of files", self.options()
        is_generated = self._generator is not None
        required = [option.name for option in options if option.required] if is_generated else ["path"]
        keys = [*([] if is_generated else ["path"]), *(option.name for option in options)]
        if self.format is None:
            by_owner = {known.name: [option.name for option in known.options] for known in generators().values()}
            _name_format(self.given, by_owner, {option.name for option in options})
        # A flag of another format that is False counts as not given.
        refused = {key: value for key, value in self.given.items() if is_generated or value is not False}
        _refuse_others(refused, name, keys)
        if missing := [key for key in required if key not in self.given]:
            raise InputError(f"format {name}: needs {', '.join(missing)}")
        if "" in self.path:
            raise InputError("path: expected the name of a file or folder, found an empty text")
        _check_ranges(options, self.given)

    @property
    def _generator(self) -> Generator | None:
        return generators().get(self.format or "")

    def options(self) -> Sequence[Option]:
        """Options of the format or generator; of all formats if none is named."""
        named = self._generator or formats().get(self.format or "")
        if named is not None:
            return named.options
        of_formats = {known.name: known.options for known in formats().values()}
        return [shared.option for shared in merge_options(of_formats).values()]

    def open(self, *, undirected: bool) -> EdgeSource:
        """Open the edges.

        Raises:
            InputError, NotFoundError: a number is out of range, or a file does not exist.
        """
        options, generator = self.values(), self._generator
        if generator is not None:
            return generator.open_edges(**options)
        return open_edges(self.format, self.path, options, undirected=undirected)

    def open_vertices(self) -> VertexSource | None:
        """Open the vertex data that come along with the edges; None if there are none."""
        options, generator = self.values(), self._generator
        if generator is None:
            return bundled_vertices(self.format, self.path, options)
        return None if generator.open_vertices is None else generator.open_vertices(**options)


@dataclass(frozen=True, kw_only=True)
class VerticesSection(_Section):
    """``[vertices]``: features, labels and split; without a format, the vertex data in the source of the edges.

    ``read.py`` adds a key for every option of every kind of vertex data.
    """

    format: str | None = option(
        None,
        "`files` has a row for each vertex, in order; `keyed` tables name the vertex in their first column. Needed if"
        " there are other keys than `store`; without it, the data come along with the edges.",
    )
    classes: int | None = option(
        None, "Number of synthetic classes; for other formats, the highest number of classes allowed.", kind=int
    )
    store: str = option_field(options_of(VertexOptions)["store"])

    _own: ClassVar = frozenset({"format", "store"})

    def __post_init__(self) -> None:
        known = (*vertex_kinds(), *_bundled_options())
        if self.format is not None and self.format not in known:
            raise InputError(f"format {self.format!r}: expected one of {', '.join(known)}")
        keys = [*(["path"] if self.format in _bundled_options() else []), *(option.name for option in self.options())]
        if self.format is None:
            owners = {name: [option.name for option in options] for name, options in vertices_options().items()}
            _name_format(
                self.given, owners | {name: ["path", *owners[name]] for name in _bundled_options()}, ["classes"]
            )
        name = self.format or "of the data that come along with the edges"
        _refuse_others(self.given, name, [*keys, *(["classes"] if "classes" not in keys else [])])
        if self.classes is not None and self.classes < 1:
            raise InputError(f"classes {self.classes}: expected at least 1")
        _check_ranges(self.options(), self.given)
        # Building the options checks them.
        self.storing()

    def storing(self) -> VertexOptions:
        """Options that decide how the data are stored."""
        return VertexOptions(self.store)

    def options(self) -> Sequence[Option]:
        kind = vertex_kinds().get(self.format or "")
        return _bundled_options().get(self.format or "", ()) if kind is None else kind.options

    @property
    def is_synthetic(self) -> bool:
        kind = vertex_kinds().get(self.format or "")
        return kind is not None and kind.is_synthetic

    @property
    def most_classes(self) -> int | None:
        """Highest number of classes that labels from files may have; None if the recipe does not set it."""
        return None if self.is_synthetic else self.classes

    def open(self, source: SourceSection, graph: Graph | None) -> VertexSource | None:
        """Open the vertex data; None if there are none.

        Args:
            graph: the stored graph; required if the data are synthetic or found by id.

        Raises:
            InputError, NotFoundError: a file does not exist or has the wrong contents.
        """
        if self.format is None:
            return source.open_vertices()
        return open_vertices(self.format, self.path, self.values(), graph)

    def identity(self, source: SourceSection) -> dict[str, Any] | None:
        """Return the identity of the vertex data, which does not depend on the graph; None if there are none."""
        if self.format is not None:
            return vertex_identity(self.format, self.path, self.values())
        opened = source.open_vertices()
        return opened.identity() if opened is not None else None


def with_keys(section: type[Section], by_owner: Mapping[str, Sequence[Option]]) -> type[Section]:
    """Make a subclass of a section with a field for each option; the section's own fields stay unchanged.

    Raises:
        InputError: two formats use one name for options of different types, or an option has the name of a method.
    """
    own = set(getattr(section, "__dataclass_fields__", ()))
    added = [shared.option for name, shared in merge_options(by_owner).items() if name not in own]
    if taken := [each.name for each in added if hasattr(section, each.name)]:
        raise InputError(f"option {', '.join(taken)}: recipes cannot have a key of this name; rename it")
    # None stands for a key that was not given, so the sources' own defaults apply.
    fields = [(each.name, each.value_type | None, field(default=None, metadata={"option": each})) for each in added]
    return make_dataclass(section.__name__, fields, bases=(section,), frozen=True, kw_only=True)


def source_options() -> dict[str, Sequence[Option]]:
    """The options of every format and generator, by its name."""
    of_formats = {known.name: known.options for known in formats().values()}
    return {**of_formats, **{known.name: known.options for known in generators().values()}}


def vertices_options() -> dict[str, Sequence[Option]]:
    """The options of every kind of vertex data, by its name."""
    return {**{kind.name: kind.options for kind in vertex_kinds().values()}, **_bundled_options()}


def _bundled_options() -> dict[str, Sequence[Option]]:
    """Options of the formats that have vertex data."""
    return {known.name: known.vertices.options for known in formats().values() if known.vertices}


def whole_path(location: str) -> str:
    """Make the path of a local file or folder absolute; a URL stays as it is."""
    return str(user_path(location.removeprefix("file://")).absolute()) if is_local(location) else location


def shown_path(location: str) -> str:
    """Make the path of a local file or folder absolute, and leave out the user, password and query of a URL."""
    return shown_location(whole_path(location))


def _name_format(given: Iterable[str], by_owner: Mapping[str, Collection[str]], known: Collection[str]) -> None:
    """Refuse options of some formats without a format: say which formats have them.

    Args:
        by_owner: names of the options by format.
        known: names of the options that need no format.
    """
    for key in given:
        owners = [name for name, options in by_owner.items() if key in options]
        if owners and key not in known:
            lines = " or ".join(f'format = "{name}"' for name in owners)
            raise InputError(f"{key}: the format is missing; add {lines}")


def _check_ranges(options: Iterable[Option], given: Mapping[str, Any]) -> None:
    """Refuse counts out of range; the sources themselves check all other numbers when they are opened."""
    for known in options:
        if known.least and known.name in given:
            known.check(given[known.name])


def _refuse_others(given: Mapping[str, Any], name: str, known: Sequence[str]) -> None:
    for key in given:
        if key not in known:
            raise InputError(f"{key}: format {name} has no such key; it has {', '.join(known) or 'none'}")
