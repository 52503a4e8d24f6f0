"""The descriptor of a format, from which options, help and checks are derived; opens sources by names or files."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline import sources
from gnnloom.pipeline.sources.reading.coding import without_suffix
from gnnloom.pipeline.sources.reading.files import expand, is_local, open_files, shown_location
from gnnloom.pipeline.sources.reading.others.foreign import first_bytes, first_line_of, name_folder, refuse_foreign
from gnnloom.pipeline.sources.reading.others.other_rows import refuse_counts, refuse_wide
from gnnloom.pipeline.sources.source import EdgeSource, OfTwoTypes, VertexSource
from gnnloom.pipeline.sources.vertex_data.kind import vertex_kinds
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option
from gnnloom.storage.wording import shell_command

#: The option of every format that may store edge weights.
WEIGHTS: Final = Option("weights", bool, "Read edge weights (text and Parquet: the third column).")
#: The option of every format that may store when edges were made.
TIMES: Final = Option("times", bool, "Read exact edge times instead of weights; requires --merge.")
#: The option of every format whose files name their columns.
COLUMNS: Final = Option(
    "columns",
    str,
    "Names of the columns, or in text their numbers from 1.  [default: the first]",
    metavar="SRC,DST[,WEIGHT]",
)
#: The option of every format that may store several splits.
SPLIT_NAME: Final = Option("split", str, "Name of the split, if there are several.")


#: Files that a command in a message lists, at most.
_LISTED: Final = 20


def check_values(*, weights: bool, times: bool) -> None:
    """Check that the numbers of edges are not both weights and times.

    Raises:
        InputError: they are.
    """
    if weights and times:
        raise InputError(
            "weights and times: a graph has one number per edge; store the times as another graph of the dataset, with"
            " `--times --add`, and name it to `gnnloom links NAME random --by time --times KEY`"
        )


class OneColumn(tuple[str, ...]):
    """A column of ids, twice: a list of vertices is read as an edge from each vertex to itself."""

    __slots__ = ()

    @classmethod
    def of(cls, name: str) -> OneColumn:
        """Name the column."""
        return cls((name, name))


def column_names(columns: str | Sequence[str], *, weights: bool, times: bool = False) -> tuple[str, ...]:
    """The names of the columns that were chosen; none if none were.

    Args:
        columns: names of the source, target and optionally weight columns, which a text separates by commas; or the
            column of a list of vertices.
        weights: whether a third column is needed. Without it, naming three columns implies weights.
        times: whether the third column has times.

    Raises:
        InputError: there are too many or too few names.
    """
    named = columns.split(",") if isinstance(columns, str) else columns
    wanted = tuple(name.strip() for name in named)
    if not columns:
        return ()
    if held := next((name for name in wanted if " as " in name and len(wanted) not in {2, 3}), None):
        raise InputError(
            f"columns {held!r}: tables of relations say so what columns hold (`--relation`); name the columns of both"
            " ends first, as in src,dst,weight"
        )
    repeated = [name for name in wanted if wanted.count(name) > 1]
    if repeated and not isinstance(columns, OneColumn):
        raise InputError(
            f"columns {','.join(wanted)}: {repeated[0]} is there twice; sources and targets are two columns"
        )
    if len(wanted) not in ({3} if weights or times else {2, 3}):
        expected = "src,dst,time" if times else "src,dst,weight" if weights else "src,dst[,weight]"
        raise InputError(f"columns {','.join(wanted)!r}: expected {expected}")
    return wanted


def check_parts(named: Sequence[tuple[str, Sequence[str]]], remedy: str) -> None:
    """Check that files are parts of one table, whose columns have the same names in each.

    Args:
        named: location of each file with a header, and the columns of both ends.
        remedy: what to do with parts whose headers differ.

    Raises:
        InputError: a file has other columns than the first one, so edges of different vertices would be joined.
    """
    locations = [location for location, _ in named]
    for location, ends in named[1:]:
        first, expected = named[0]
        shown = locations if len(locations) <= _LISTED else (first, location)
        if [end.strip().casefold() for end in ends] != [end.strip().casefold() for end in expected]:
            raise InputError(
                f"{location}: the edges lead from {ends[0]} to {ends[-1]}, but in {first} from {expected[0]} to"
                f" {expected[-1]}, and several files are read as parts of one table; store tables of different"
                " relations with `--relation SOURCE,NAME,TARGET=FILE` each, as"
                f" `{shell_command('gnnloom', 'look', *shown)}` shows{remedy}"
            )


def check_headless(parts: Sequence[tuple[str, bool, tuple[int, int]]]) -> None:
    """Check that files without a header are read as the ones next to them, whose headers name the ends of edges.

    Args:
        parts: location of each file, whether it has a header, and the numbers of its columns of ends, from 0.

    Raises:
        InputError: the header of a file names other columns than the columns that are read without one.
    """
    headless = next(((location, ends) for location, has_header, ends in parts if not has_header), None)
    for location, has_header, ends in parts:
        if headless is not None and has_header and ends != headless[1]:
            source, target = (end + 1 for end in ends)
            raise InputError(
                f"{headless[0]}: has no header, and in {location} the edges lead from column {source} to column"
                f" {target}; add `{shell_command('--columns', f'{source},{target}')}` if both have the same columns"
            )


@dataclass(frozen=True)
class BundledVertices:
    """Vertex data that come along with the edges of a format.

    Attributes:
        open: takes the location or locations, as :attr:`Format.open_edges` does, and the options as keywords.
        exist: takes the location or locations; returns whether the source has any vertex data.
        options: options of ``open``. If they are options of the format, too, ``ingest`` takes them, and they are passed
            to ``open`` alone.
    """

    open: Callable[..., VertexSource]
    exist: Callable[[Any], bool]
    options: tuple[Option, ...] = ()


@dataclass(frozen=True)
class Format:
    """A format of edges, and perhaps of vertex data.

    Attributes:
        name: value of ``--format`` and of a recipe's key ``format``.
        order: position in lists of formats.
        help: what a source of this format holds, in one line.
        open_edges: takes a list of locations, or one location if ``one_location``, and the options as keywords.
        options: options of ``open_edges``.
        begins: first bytes of files, in lower case and after blanks, which decide before their names do.
        pattern: the same as a pattern, for what no fixed bytes begin.
        suffixes: endings of file names, without a dot, before ``.gz`` and the like.
        prefixes: beginnings of file names.
        is_folder: recognizes a local folder of this format.
        is_fallback: the format of files, or of folders if ``one_location``, that no format recognizes.
        one_location: a source is one folder, or one file, rather than a list of files.
        doubles: a file may stand for both directions of its edges; ``open_edges`` then takes the keyword
            ``undirected``, which is True if the graph will store both directions anyway.
        vertices: vertex data that come along with the edges; None if the format has none.
    """

    name: str
    order: int
    help: str
    open_edges: Callable[..., EdgeSource]
    options: tuple[Option, ...] = ()
    begins: tuple[bytes, ...] = ()
    pattern: bytes = b""
    suffixes: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    is_folder: Callable[[Path], bool] | None = None
    is_fallback: bool = False
    one_location: bool = False
    doubles: bool = False
    vertices: BundledVertices | None = None

    def is_begun_by(self, first: bytes) -> bool:
        """Whether a file that begins with these bytes, in lower case, has this format, whatever its name."""
        return first.startswith(self.begins) or bool(self.pattern and re.match(self.pattern, first))

    @property
    def is_guessed(self) -> bool:
        """Whether some files or folders are recognized as this format without ``--format``."""
        return bool(self.suffixes or self.prefixes or self.is_folder or self.is_fallback)

    @property
    def summary(self) -> str:
        """One line for ``--help``: the suffixes and what a source holds."""
        suffixes = ", ".join(f".{suffix}" for suffix in self.suffixes)
        return f"{suffixes}{': ' if suffixes else ''}{self.help}{'' if self.is_guessed else ' (give --format)'}"


@dataclass(frozen=True)
class SharedOption:
    """An option, and the names of all descriptors that have it."""

    option: Option
    owners: tuple[str, ...]


def merge_options(
    by_owner: Mapping[str, Sequence[Option]], key: Callable[[Option], str] = lambda option: option.name
) -> dict[str, SharedOption]:
    """The union of the options of several descriptors; options that every descriptor has come last.

    Args:
        by_owner: options by the descriptor's name.
        key: attribute by which options are merged.

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
        owner: owner of the options, for the message.
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


Options = Mapping[str, Any]


@cache
def formats() -> Mapping[str, Format]:
    """All formats by name, including formats of other packages."""
    return load_descriptors(sources, "FORMAT", "gnnloom.formats", Format)


def open_edges(
    format: str | None,  # noqa: A002
    locations: Sequence[str],
    options: Options | None = None,
    *,
    undirected: bool = False,
    two_types: bool = False,
) -> EdgeSource:
    """Open the edges in files or in a folder.

    Args:
        format: a key of :func:`formats`; None guesses it from the locations.
        locations: paths, URLs or globs; one folder for formats with ``one_location``.
        options: options of the format. None counts as not given, and so does False, unless the option is deniable.
        undirected: the graph will store both directions of every edge. A format that lists both directions then
            gives each edge once, so that their weights are not merged.
        two_types: sources and targets may be vertices of two types, with ids of their own.

    Raises:
        InputError: the format is unknown, or does not have one of the options; or the files say that their edges are
            between vertices of two types, and that was not asked for.
        NotFoundError: a file does not exist.
    """
    chosen = _format(format or guess_format(locations))
    given = checked_options(f"format {chosen.name!r}", chosen.options, options or {})
    of_vertices = {option.name for option in chosen.vertices.options} if chosen.vertices else set()
    given = {name: value for name, value in given.items() if name not in of_vertices}
    if chosen.doubles:
        given["undirected"] = undirected
    opened = chosen.open_edges(_source(chosen, locations), **given)
    if not two_types and isinstance(opened, OfTwoTypes) and opened.two_types:
        table = f"user,rates,item={shown_location(locations[0])}"
        raise InputError(
            f"{opened.two_types}: its edges are between vertices of two types; name the types and the relation, as in"
            f" `{shell_command('--relation', table)}`, instead of the file alone"
        )
    return opened


def open_vertices(
    format: str,  # noqa: A002
    locations: Sequence[str] = (),
    options: Options | None = None,
    graph: SourceIds | None = None,
) -> VertexSource:
    """Open features, labels and split.

    Args:
        format: a format that has vertex data, or a key of
            :func:`~gnnloom.pipeline.sources.vertex_data.kind.vertex_kinds`.
        locations: as for :func:`open_edges`; empty for kinds of vertex data, which name their files in options.
        options: options of the format or kind; None counts as not given.
        graph: the stored graph, or the ids of one type; required by kinds with ``needs_graph``.

    Raises:
        InputError: the format is unknown, does not have one of the options, or needs a graph.
        NotFoundError: a file does not exist, or the source holds no vertex data.
    """
    kind = vertex_kinds().get(format)
    if kind is not None and kind.needs_graph and graph is None:
        raise InputError(f"vertex data {format!r}: ingest a graph first")
    return _open_vertices(format, locations, options, graph)


def vertex_identity(format: str, locations: Sequence[str], options: Options | None = None) -> dict[str, Any]:  # noqa: A002
    """Identity of vertex data, which is known before the graph is; arguments as for :func:`open_vertices`.

    Raises:
        InputError, NotFoundError: as :func:`open_vertices`, except that no graph is needed.
    """
    return _open_vertices(format, locations, options, None).identity()


def _open_vertices(
    name: str, locations: Sequence[str], options: Options | None, graph: SourceIds | None
) -> VertexSource:
    kinds = vertex_kinds()
    bundled = {known.name: known.vertices for known in formats().values() if known.vertices}
    if name not in kinds and name not in bundled:
        raise InputError(f"vertex data {name!r}: expected one of {', '.join((*bundled, *kinds))}")
    opener = kinds[name] if name in kinds else bundled[name]
    given = checked_options(f"format {name!r}", opener.options, options or {})
    return opener.open(graph if name in kinds else _source(_format(name), locations), **given)


def bundled_vertices(
    format: str | None,  # noqa: A002
    locations: Sequence[str],
    options: Options | None = None,
) -> VertexSource | None:
    """Open the vertex data that come along with a source of edges; None if there are none.

    Args:
        options: options of the source; options of the edges alone are ignored.
    """
    chosen = _format(format or guess_format(locations))
    if chosen.vertices is None:
        return None
    source = _source(chosen, locations)
    own = {option.name for option in chosen.vertices.options} & {option.name for option in chosen.options}
    given = {name: value for name, value in (options or {}).items() if name in own and value is not None}
    if chosen.vertices.exist(source):
        return chosen.vertices.open(source, **given)
    if given:
        raise InputError(f"{', '.join(given)}: {', '.join(locations)} has no vertex data")
    return None


def guess_format(locations: Sequence[str]) -> str:
    """The format that the names of the files or folders suggest.

    Raises:
        InputError: the names suggest several formats.
    """
    found = guessed_formats(locations)
    if len(found) > 1:
        raise InputError(
            f"the sources look like several formats ({', '.join(found)}); choose one with --format, convert some of"
            " them, or give tables of a graph with types with --vertices and --relation, which `gnnloom look` proposes"
        )
    return found[0] if found else _fallback(is_folder=False)


def guessed_formats(locations: Sequence[str]) -> list[str]:
    """The distinct formats that the names of the files or folders suggest, ascending."""
    return sorted({_guess_one(location) for location in locations})


def _guess_one(location: str) -> str:
    path = user_path(shown_location(location).removeprefix("file://"))
    if is_local(location) and path.is_dir():
        return _guess_folder(location, path)
    # A location may stand for files that have other names.
    files = open_files(expand(location)[:1]) if is_local(location) and _exists(path) else ()
    begins = [first_bytes(file) for file in files]
    for first in begins:
        for known in formats().values():
            if known.is_begun_by(first.lower()):
                return known.name
    ending = without_suffix(path.name).rpartition(".")[2].lower()
    for known in formats().values():
        if path.name.startswith(known.prefixes):
            return known.name
    for known in formats().values():
        if ending in known.suffixes:
            return known.name
    for file, first in zip(files, begins, strict=True):
        refuse_foreign(file, first)
        refuse_wide(file, first_line_of(file))
        refuse_counts(file, first)
    return _fallback(is_folder=False)


def _guess_folder(location: str, path: Path) -> str:
    for known in formats().values():
        if known.is_folder is not None and known.is_folder(path):
            return known.name
    if foreign := name_folder(path):
        raise InputError(f"{location}: {foreign}")
    if not any(child.is_dir() for child in path.iterdir()):
        raise InputError(f"{location}: a folder; name its files, in quotes: '{path}/*'")
    return _fallback(is_folder=True)


def _exists(path: Path) -> bool:
    """Whether a path, which may be a glob, names a file."""
    return path.is_file() or bool(glob.has_magic(str(path)) and glob.glob(str(path), recursive=True))


def _fallback(*, is_folder: bool) -> str:
    return next(known.name for known in formats().values() if known.is_fallback and known.one_location == is_folder)


def _format(name: str) -> Format:
    if name not in formats():
        raise InputError(f"format {name!r}: expected one of {', '.join(formats())}")
    return formats()[name]


def _source(chosen: Format, locations: Sequence[str]) -> str | Sequence[str]:
    """Source argument for the functions of a format."""
    if not chosen.one_location:
        return locations
    if len(locations) != 1:
        raise InputError(f"format {chosen.name!r}: expected one folder, found {len(locations)}")
    return locations[0]
