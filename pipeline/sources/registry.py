"""Formats by name: which source reads what the user names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from gnnloom.pipeline.sources.base import EdgeSource, VertexSource
from gnnloom.pipeline.sources.files import is_local
from gnnloom.pipeline.sources.numpy_edges import NumpyEdges
from gnnloom.pipeline.sources.numpy_vertices import NumpyVertices
from gnnloom.pipeline.sources.ogb import OgbEdges, OgbVertices
from gnnloom.pipeline.sources.synthetic import SyntheticVertices
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.storage.errors import InputError
from gnnloom.storage.graph import Graph

Options = Mapping[str, Any]


def open_edges(format: str | None, locations: Sequence[str], options: Options | None = None) -> EdgeSource:  # noqa: A002
    """The edge source for files or a folder.

    Args:
        format: one of ``snap``, ``ogb``, ``npy`` and ``npz``; None chooses by the locations' names.
        locations: paths, URLs or globs; for ``ogb`` one folder.
        options: of the format: ``weights`` (snap, npz), ``header`` and ``extra_columns`` (snap); those
            that are false or None are as if not given.

    Raises:
        InputError: an unknown format, or an option that it does not have.
        NotFoundError: a file is not there.
    """
    name = format or guess_format(locations)
    if name not in _EDGE_FORMATS:
        raise InputError(f"format {name!r}: expected one of {', '.join(_EDGE_FORMATS)}")
    opener, known = _EDGE_FORMATS[name]
    return cast("EdgeSource", opener(locations, **_checked_options(name, known, options)))


def open_vertices(
    format: str,  # noqa: A002
    locations: Sequence[str] = (),
    options: Options | None = None,
    graph: Graph | None = None,
) -> VertexSource:
    """The source of features, labels and split.

    Args:
        format: ``ogb`` (one folder; option ``split`` names a folder below ``split/``), ``numpy`` (no locations;
            options ``feature``, ``label`` and ``split`` name files), ``random`` or ``degree-labels`` (no
            locations; options ``dim``, ``classes`` and ``seed``).
        graph: the stored graph, which ``random`` and ``degree-labels`` need.

    Raises:
        InputError: an unknown format, or an option that it does not have.
        NotFoundError: a file is not there.
    """
    if format == "ogb":
        return OgbVertices.open(_one_folder(locations), **_checked_options(format, ("split",), options))
    if format == "numpy":
        return NumpyVertices.open(**_checked_options(format, ("feature", "label", "split"), options))
    if format not in {"random", "degree-labels"}:
        raise InputError(f"vertex data {format!r}: expected one of ogb, numpy, random, degree-labels")
    if graph is None:
        raise InputError(f"vertex data {format!r}: ingest a graph first")
    given = _checked_options(format, ("dim", "classes", "seed"), options)
    return SyntheticVertices.open(graph, labels=format, **given)


def guess_format(locations: Sequence[str]) -> str:
    """The format by the names of the files: a folder is ``ogb``, other suffixes than NumPy's are ``snap``.

    Raises:
        InputError: the names speak for several formats.
    """
    found = sorted({_guess_one(location) for location in locations})
    if len(found) > 1:
        raise InputError(f"the sources look like several formats ({', '.join(found)}); give one with --format")
    return found[0] if found else "snap"


def _guess_one(location: str) -> str:
    if is_local(location) and Path(location.removeprefix("file://")).expanduser().is_dir():
        return "ogb"
    suffix = location.rpartition(".")[2]
    return suffix if suffix in {"npy", "npz"} else "snap"


def _open_ogb(locations: Sequence[str]) -> OgbEdges:
    return OgbEdges.open(_one_folder(locations))


def _one_folder(locations: Sequence[str]) -> str:
    if len(locations) != 1:
        raise InputError(f"format 'ogb': expected one folder, found {len(locations)}")
    return locations[0]


def _checked_options(name: str, known: Sequence[str], options: Options | None) -> dict[str, Any]:
    """Those given; numbers count even where they are 0."""
    given = {key: value for key, value in (options or {}).items() if value is not None and value is not False}
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise InputError(f"format {name!r} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    return given


_EDGE_FORMATS: Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "snap": (TextEdges.open, ("weights", "header", "extra_columns")),
    "ogb": (_open_ogb, ()),
    "npy": (NumpyEdges.open, ("weights",)),
    "npz": (NumpyEdges.open, ("weights",)),
}
