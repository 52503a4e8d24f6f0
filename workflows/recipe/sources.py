"""The sections of a recipe that say where edges and vertex data come from, and the sources they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gnnloom.pipeline.sources.formats import EDGE_FORMATS, open_edges, open_vertices, vertices_beside
from gnnloom.pipeline.sources.generators.lattice import LatticeEdges
from gnnloom.pipeline.sources.generators.rmat import RmatEdges
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.sources.generators.synthetic import SyntheticVertices
from gnnloom.pipeline.sources.keyed_vertices import open_keyed_vertices
from gnnloom.pipeline.sources.reading.files import is_local
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.errors import InputError

#: The keys of each generator, and what its model calls them.
_GENERATORS: Mapping[str, Mapping[str, str]] = {
    "sbm": {
        "vertices": "num_vertices",
        "edges": "num_edges",
        "classes": "num_blocks",
        "homophily": "homophily",
        "skew": "skew",
        "dim": "num_features",
        "noise": "noise",
        "seed": "seed",
    },
    "rmat": {"scale": "scale", "edge_factor": "edge_factor", "scramble": "scramble", "seed": "seed"},
    "lattice": {"size": "sizes", "shortcuts": "shortcuts", "scramble": "scramble", "seed": "seed"},
}
_REQUIRED = {"sbm": ("vertices", "edges"), "rmat": ("scale",), "lattice": ("size",)}
_MODELS: Mapping[str, Callable[..., Any]] = {"sbm": StochasticBlockModel, "rmat": RmatEdges, "lattice": LatticeEdges}
_FILE_KEYS = ("path", "weights", "header", "extra_columns", "columns", "packed")
_SYNTHETIC = ("random", "degree-labels")
_SYNTHETIC_DEFAULTS: Mapping[str, int] = {"dim": 128, "classes": 32, "seed": 0}
_TABLES = ("feature", "label", "split")
#: Keys of vertex data by format.
_VERTEX_KEYS: Mapping[str, tuple[str, ...]] = {
    "files": _TABLES,
    "keyed": _TABLES,
    "ogb": ("path", "split"),
    "ogb-binary": ("path", "split"),
    "planetoid": ("path",),
    "pyg": ("path",),
    **dict.fromkeys(_SYNTHETIC, tuple(_SYNTHETIC_DEFAULTS)),
}


@dataclass(frozen=True, kw_only=True)
class SourceSection:
    """``[source]``: files in a format, or a generator (``sbm``, ``rmat``, ``lattice``) and its numbers."""

    format: str | None = None
    path: tuple[str, ...] = ()
    weights: bool | None = None
    header: bool | None = None
    extra_columns: bool | None = None
    columns: str | None = None
    packed: bool | None = None
    vertices: int | None = None
    edges: int | None = None
    classes: int | None = None
    homophily: float | None = None
    skew: float | None = None
    dim: int | None = None
    noise: float | None = None
    scale: int | None = None
    edge_factor: int | None = None
    size: tuple[int, ...] | None = None
    shortcuts: float | None = None
    scramble: bool | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        formats = (*_GENERATORS, *EDGE_FORMATS)
        if self.format is not None and self.format not in formats:
            raise InputError(f"format {self.format!r}: expected one of {', '.join(formats)}")
        known = _GENERATORS.get(self.format or "", _FILE_KEYS)
        _refuse_others(_given(self), self.format or "of files", known)
        required = _REQUIRED.get(self.format or "", ("path",))
        if missing := [key for key in required if getattr(self, key) in {None, ()}]:
            raise InputError(f"format {self.format or 'of files'}: needs {', '.join(missing)}")
        if "" in self.path:
            raise InputError("path: expected the name of a file or folder, found an empty text")
        _check_at_least_one(self, "vertices", "edges", "classes", "dim", "scale", "edge_factor")

    def open(self, *, undirected: bool) -> EdgeSource:
        """The edges.

        Raises:
            InputError, NotFoundError: a number makes no sense, or a file is not there.
        """
        if self.format in _GENERATORS:
            model = self._model()
            return model.edges() if isinstance(model, StochasticBlockModel) else model
        options = {key: getattr(self, key) for key in _FILE_KEYS if key != "path"}
        return open_edges(self.format, self.path, options, undirected=undirected)

    def anywhere(self) -> SourceSection:
        """The same files, whatever the current folder is."""
        return replace(self, path=tuple(map(whole_path, self.path)))

    def open_vertices(self) -> VertexSource | None:
        """Vertex data that lie beside the edges; None where there are none."""
        if self.format in _GENERATORS:
            model = self._model()
            return model.vertices() if isinstance(model, StochasticBlockModel) else None
        return vertices_beside(self.format, self.path)

    def _model(self) -> Any:
        name = self.format or ""
        chosen = {field: getattr(self, key) for key, field in _GENERATORS[name].items()}
        return _MODELS[name](**{field: value for field, value in chosen.items() if value is not None})


@dataclass(frozen=True, kw_only=True)
class VerticesSection:
    """``[vertices]``: features, labels and split; without a format those that lie beside the edges.

    Attributes:
        format: ``files`` has a row for each vertex, in order; ``keyed`` tables name the vertex in their first column.
        classes: of synthetic labels; of others how many there must be at most.
    """

    format: str | None = None
    path: tuple[str, ...] = ()
    feature: str | None = None
    label: str | None = None
    split: str | None = None
    dim: int | None = None
    classes: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in _VERTEX_KEYS:
            raise InputError(f"format {self.format!r}: expected one of {', '.join(_VERTEX_KEYS)}")
        known = _VERTEX_KEYS[self.format] if self.format else ()
        _refuse_others(_given(self), self.format or "of what lies beside the edges", (*known, "classes"))
        _check_at_least_one(self, "dim", "classes")

    @property
    def is_synthetic(self) -> bool:
        return self.format in _SYNTHETIC

    @property
    def most_classes(self) -> int | None:
        """Classes that labels from files may have; None where it was not said."""
        return None if self.is_synthetic else self.classes

    def open(self, source: SourceSection, graph: Graph | None) -> VertexSource | None:
        """The vertex data, for a stored graph if they are synthetic; None where there are none.

        Raises:
            InputError, NotFoundError: a file is not there, or not what it should be.
        """
        if self.format is None:
            return source.open_vertices()
        options = {key: getattr(self, key) for key in _VERTEX_KEYS[self.format] if key != "path"}
        return open_vertices(self.format, self.path, self._numbers() if self.is_synthetic else options, graph)

    def anywhere(self) -> VerticesSection:
        """The same files, whatever the current folder is."""
        # The split of other formats is no file but a name.
        names = _TABLES if self.format in {"files", "keyed"} else ()
        tables: dict[str, Any] = {key: whole_path(name) for key, name in _given(self).items() if key in names}
        return replace(self, path=tuple(map(whole_path, self.path)), **tables)

    def identity(self, source: SourceSection) -> dict[str, Any] | None:
        """Identity of the vertex data, known before the graph is; None where there are none."""
        if self.is_synthetic:
            dim, classes, seed = self._numbers().values()
            # Which classes the degrees have is no part of it, only that they make them.
            boundaries = () if self.format == "degree-labels" else None
            return SyntheticVertices(Path(), 0, dim, classes, seed, boundaries).identity()
        if self.format == "keyed":
            return open_keyed_vertices(None, feature=self.feature, label=self.label, split=self.split).identity()
        opened = self.open(source, None)
        return opened.identity() if opened is not None else None

    def _numbers(self) -> dict[str, int]:
        chosen = {key: getattr(self, key) for key in _SYNTHETIC_DEFAULTS}
        return {key: _SYNTHETIC_DEFAULTS[key] if value is None else value for key, value in chosen.items()}


def whole_path(location: str) -> str:
    """A local file or folder from the root on; a URL as it is."""
    return str(Path(location.removeprefix("file://")).expanduser().absolute()) if is_local(location) else location


def _check_at_least_one(section: Any, *keys: str) -> None:
    """Refuse numbers of things below 1."""
    for key in keys:
        value = getattr(section, key)
        if value is not None and value < 1:
            raise InputError(f"{key} {value}: expected at least 1")


def _given(section: Any) -> dict[str, Any]:
    return {key: value for key, value in asdict(section).items() if value not in (None, ()) and key != "format"}


def _refuse_others(given: Mapping[str, Any], name: str, known: tuple[str, ...] | Mapping[str, str]) -> None:
    for key in given:
        if key not in known:
            raise InputError(f"{key}: format {name} has no such key; it has {', '.join(known) or 'none'}")
