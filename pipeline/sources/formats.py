"""Opens sources by the name of their format, or by the names of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gnnloom.pipeline import sources
from gnnloom.pipeline.sources.format import Format, checked_options
from gnnloom.pipeline.sources.reading.compressed import SUFFIXES
from gnnloom.pipeline.sources.reading.files import is_local
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.pipeline.sources.vertex_data.kind import vertex_kinds
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.errors import InputError

Options = Mapping[str, Any]


@cache
def formats() -> Mapping[str, Format]:
    """All formats by name, including those of other packages."""
    return load_descriptors(sources, "FORMAT", "gnnloom.formats", Format)


def open_edges(
    format: str | None,  # noqa: A002
    locations: Sequence[str],
    options: Options | None = None,
    *,
    undirected: bool = False,
) -> EdgeSource:
    """Open the edges in files or in a folder.

    Args:
        format: a key of :func:`formats`; None guesses it from the locations.
        locations: paths, URLs or globs; one folder for formats with ``one_location``.
        options: options of the format. None counts as not given, and so does False, unless the option is deniable.
        undirected: the graph will store both directions of every edge. A format that lists both directions then
            gives each edge once, so that their weights are not merged.

    Raises:
        InputError: the format is unknown, or does not have one of the options.
        NotFoundError: a file does not exist.
    """
    chosen = _format(format or guess_format(locations))
    given = checked_options(f"format {chosen.name!r}", chosen.options, options or {})
    if chosen.doubles:
        given["undirected"] = undirected
    return chosen.open_edges(_source(chosen, locations), **given)


def open_vertices(
    format: str,  # noqa: A002
    locations: Sequence[str] = (),
    options: Options | None = None,
    graph: Graph | None = None,
) -> VertexSource:
    """Open features, labels and split.

    Args:
        format: a format that has vertex data, or a key of
            :func:`~gnnloom.pipeline.sources.vertex_data.kind.vertex_kinds`.
        locations: as for :func:`open_edges`; empty for kinds of vertex data, which name their files in options.
        options: options of the format or kind; None counts as not given.
        graph: the stored graph; required by kinds with ``needs_graph``.

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


def _open_vertices(name: str, locations: Sequence[str], options: Options | None, graph: Graph | None) -> VertexSource:
    kinds = vertex_kinds()
    bundled = {known.name: known.vertices for known in formats().values() if known.vertices}
    if name not in kinds and name not in bundled:
        raise InputError(f"vertex data {name!r}: expected one of {', '.join((*bundled, *kinds))}")
    opener = kinds[name] if name in kinds else bundled[name]
    given = checked_options(f"format {name!r}", opener.options, options or {})
    return opener.open(graph if name in kinds else _source(_format(name), locations), **given)


def bundled_vertices(format: str | None, locations: Sequence[str]) -> VertexSource | None:  # noqa: A002
    """Open the vertex data that come along with a source of edges; None if there are none."""
    chosen = _format(format or guess_format(locations))
    if chosen.vertices is None:
        return None
    source = _source(chosen, locations)
    return chosen.vertices.open(source) if chosen.vertices.exist(source) else None


def guess_format(locations: Sequence[str]) -> str:
    """The format that the names of the files or folders suggest.

    Raises:
        InputError: the names suggest several formats.
    """
    found = sorted({_guess_one(location) for location in locations})
    if len(found) > 1:
        raise InputError(f"the sources look like several formats ({', '.join(found)}); choose one with --format")
    return found[0] if found else _fallback(is_folder=False)


def _guess_one(location: str) -> str:
    path = Path(location.removeprefix("file://")).expanduser()
    if is_local(location) and path.is_dir():
        for known in formats().values():
            if known.is_folder is not None and known.is_folder(path):
                return known.name
        return _fallback(is_folder=True)
    name = path.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    ending = name.rpartition(".")[2]
    for known in formats().values():
        if path.name.startswith(known.prefixes):
            return known.name
    for known in formats().values():
        if ending in known.suffixes:
            return known.name
    return _fallback(is_folder=False)


def _fallback(*, is_folder: bool) -> str:
    return next(known.name for known in formats().values() if known.is_fallback and known.one_location == is_folder)


def _format(name: str) -> Format:
    if name not in formats():
        raise InputError(f"format {name!r}: expected one of {', '.join(formats())}")
    return formats()[name]


def _source(chosen: Format, locations: Sequence[str]) -> str | Sequence[str]:
    """What the functions of a format get."""
    if not chosen.one_location:
        return locations
    if len(locations) != 1:
        raise InputError(f"format {chosen.name!r}: expected one folder, found {len(locations)}")
    return locations[0]
