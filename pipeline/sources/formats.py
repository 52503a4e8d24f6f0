"""Formats by name: which source reads what the user names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gnnloom.pipeline.sources import ogb, ogb_binary, planetoid, pyg
from gnnloom.pipeline.sources.generators.synthetic import SyntheticVertices
from gnnloom.pipeline.sources.graph500 import Graph500Edges
from gnnloom.pipeline.sources.keyed_vertices import open_keyed_vertices
from gnnloom.pipeline.sources.matrix_market import MatrixMarketEdges
from gnnloom.pipeline.sources.metis import MetisEdges
from gnnloom.pipeline.sources.numpy_edges import NumpyEdges
from gnnloom.pipeline.sources.parquet_edges import ParquetEdges
from gnnloom.pipeline.sources.reading.compressed import SUFFIXES
from gnnloom.pipeline.sources.reading.files import is_local
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.sources.vertex_files import open_vertex_files
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.errors import InputError

Options = Mapping[str, Any]


@dataclass(frozen=True)
class EdgeFormat:
    """How a format is opened.

    Attributes:
        options: that :func:`open_edges` passes on; others are refused.
        one_location: the source is one folder or file, no list.
        doubles: a file may stand for both directions of its edges.
    """

    open: Callable[..., Any]
    options: tuple[str, ...] = ()
    one_location: bool = False
    doubles: bool = False


EDGE_FORMATS: Mapping[str, EdgeFormat] = {
    "snap": EdgeFormat(TextEdges.open, ("weights", "header", "extra_columns")),
    "parquet": EdgeFormat(ParquetEdges.open, ("weights", "columns")),
    "npy": EdgeFormat(NumpyEdges.open, ("weights",)),
    "npz": EdgeFormat(NumpyEdges.open, ("weights",)),
    "mtx": EdgeFormat(MatrixMarketEdges.open, ("weights",), doubles=True),
    "metis": EdgeFormat(MetisEdges.open, ("weights",), doubles=True),
    "graph500": EdgeFormat(Graph500Edges.open, ("packed",)),
    "ogb": EdgeFormat(ogb.OgbEdges.open, one_location=True),
    "ogb-binary": EdgeFormat(ogb_binary.open_binary_edges, one_location=True),
    "pyg": EdgeFormat(pyg.open_pyg_edges, ("weights",)),
    "planetoid": EdgeFormat(planetoid.PlanetoidEdges.open, one_location=True),
}

#: Formats by the end of a file's name, before ``.gz`` or ``.zst``; all others are text.
_SUFFIXES = {
    "npy": "npy",
    "npz": "npz",
    "parquet": "parquet",
    "pq": "parquet",
    "mtx": "mtx",
    "graph": "metis",
    "metis": "metis",
    "pt": "pyg",
}
#: Vertex data that only a stored graph makes sense of.
_OF_GRAPH = ("keyed", "random", "degree-labels")


def open_edges(
    format: str | None,  # noqa: A002
    locations: Sequence[str],
    options: Options | None = None,
    *,
    undirected: bool = False,
) -> EdgeSource:
    """The edge source for files or a folder.

    Args:
        format: one of ``EDGE_FORMATS``; None chooses by the locations' names.
        locations: paths, URLs or globs; for ``ogb``, ``ogb-binary`` and ``planetoid`` one folder.
        options: of the format: ``weights``, ``header`` and ``extra_columns`` (text), ``columns`` (Parquet),
            ``packed`` (Graph500); those that are None, and all but ``header`` that are false, are as if not given.
        undirected: the graph will store both directions of every edge, so that a format which states both need
            not give both (their weights would be merged).

    Raises:
        InputError: an unknown format, or an option that it does not have.
        NotFoundError: a file is not there.
    """
    name = format or guess_format(locations)
    if name not in EDGE_FORMATS:
        raise InputError(f"format {name!r}: expected one of {', '.join(EDGE_FORMATS)}")
    chosen = EDGE_FORMATS[name]
    given = _checked_options(name, chosen.options, options)
    if chosen.doubles:
        given["undirected"] = undirected
    source = _one_location(name, locations) if chosen.one_location else locations
    return cast("EdgeSource", chosen.open(source, **given))


def open_vertices(
    format: str,  # noqa: A002
    locations: Sequence[str] = (),
    options: Options | None = None,
    graph: Graph | None = None,
) -> VertexSource:
    """The source of features, labels and split.

    Args:
        format: ``ogb`` or ``ogb-binary`` (one folder; option ``split`` names a folder below ``split/``), ``planetoid``
            (one folder), ``pyg`` (one file), ``files`` (no locations; options ``feature``, ``label`` and ``split``
            name NumPy, Parquet or text files), ``keyed`` (the same, of text or Parquet files whose first column is the
            id of the vertex), ``random`` or ``degree-labels`` (no locations; options ``dim``,
            ``classes`` and ``seed``).
        graph: the stored graph, which ``keyed``, ``random`` and ``degree-labels`` need.

    Raises:
        InputError: an unknown format, or an option that it does not have.
        NotFoundError: a file is not there.
    """
    if format in _OF_GRAPH:
        if graph is None:
            raise InputError(f"vertex data {format!r}: ingest a graph first")
        if format == "keyed":
            return open_keyed_vertices(graph, **_checked_options(format, ("feature", "label", "split"), options))
        given = _checked_options(format, ("dim", "classes", "seed"), options)
        return SyntheticVertices.open(graph, labels=format, **given)
    if format not in _VERTEX_FORMATS:
        raise InputError(f"vertex data {format!r}: expected one of {', '.join((*_VERTEX_FORMATS, *_OF_GRAPH))}")
    opener, known = _VERTEX_FORMATS[format]
    return opener(locations, **_checked_options(format, known, options))


def vertices_beside(format: str | None, locations: Sequence[str]) -> VertexSource | None:  # noqa: A002
    """The vertex data that a source of edges holds too; None where there are none."""
    name = format or guess_format(locations)
    there: Mapping[str, Callable[[], bool]] = {
        "ogb": lambda: ogb.has_vertices(_one_location(name, locations)),
        "ogb-binary": lambda: ogb_binary.has_vertices(_one_location(name, locations)),
        "pyg": lambda: pyg.has_vertices(locations),
        "planetoid": lambda: True,
    }
    return open_vertices(name, locations) if name in there and there[name]() else None


def guess_format(locations: Sequence[str]) -> str:
    """The format by the names of the files and folders; files of other names are ``snap``.

    Raises:
        InputError: the names speak for several formats.
    """
    found = sorted({_guess_one(location) for location in locations})
    if len(found) > 1:
        raise InputError(f"the sources look like several formats ({', '.join(found)}); give one with --format")
    return found[0] if found else "snap"


def _guess_one(location: str) -> str:
    path = Path(location.removeprefix("file://")).expanduser()
    if is_local(location) and path.is_dir():
        if ogb_binary.is_binary(location):
            return "ogb-binary"
        return "planetoid" if planetoid.dataset_names(path) else "ogb"
    if path.name.startswith("ind."):
        return "planetoid"
    name = path.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return _SUFFIXES.get(name.rpartition(".")[2], "snap")


def _one_location(name: str, locations: Sequence[str]) -> str:
    if len(locations) != 1:
        raise InputError(f"format {name!r}: expected one folder, found {len(locations)}")
    return locations[0]


def _checked_options(name: str, known: Sequence[str], options: Options | None) -> dict[str, Any]:
    """Those given; numbers count even where they are 0, and a header that is denied."""
    given = {
        key: value
        for key, value in (options or {}).items()
        if value is not None and (value is not False or key == "header")
    }
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise InputError(f"format {name!r} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    return given


def _open_ogb(locations: Sequence[str], **options: Any) -> VertexSource:
    return ogb.OgbVertices.open(_one_location("ogb", locations), **options)


def _open_ogb_binary(locations: Sequence[str], **options: Any) -> VertexSource:
    return ogb_binary.open_binary_vertices(_one_location("ogb-binary", locations), **options)


def _open_planetoid(locations: Sequence[str]) -> VertexSource:
    return planetoid.PlanetoidVertices.open(_one_location("planetoid", locations))


def _open_files(_: Sequence[str], **options: Any) -> VertexSource:
    return open_vertex_files(**options)


_VERTEX_FORMATS: Mapping[str, tuple[Callable[..., VertexSource], tuple[str, ...]]] = {
    "ogb": (_open_ogb, ("split",)),
    "ogb-binary": (_open_ogb_binary, ("split",)),
    "planetoid": (_open_planetoid, ()),
    "pyg": (pyg.open_pyg_vertices, ()),
    "files": (_open_files, ("feature", "label", "split")),
}
