"""Vertex data, degrees and ids as one xarray Dataset with named dimensions (extra ``xarray``), loaded on access."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from gnnloom.storage import TypedGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.wording import did_you_mean


def to_xarray(
    dataset: Dataset, graph: str | None = None, vertices: str | None = None, of_type: str | None = None
) -> xarray.Dataset:
    """Open the arrays over the vertices: ``feature``, ``label``, ``split``, ``degree``, ``original_id``.

    Args:
        graph: key, to choose between several graphs.
        vertices: key, to choose between several sets of vertex data.
        of_type: of a graph with types, the type whose vertices to open. They have a degree in each relation, so that
            ``degree`` is left out.

    Returns:
        A Dataset over (vertex, feature). Accessing an array reads only the requested rows, and raises
        CorruptError if a chunk is missing or damaged. Attributes: the keys, the type, and the number of classes.

    Raises:
        NotFoundError: the dataset has neither a graph nor vertices, or the graph has no such type.
        InputError: the graph has types, and none is chosen; or it has no types, and a type is chosen.
    """
    found: dict[str, Artifact] = {}
    if graph is not None or dataset.artifacts("graph"):
        stored = dataset.any_graph(graph)
        if isinstance(stored, TypedGraph):
            return _of_type(dataset, stored, of_type, vertices)
        found["graph"] = stored.artifact
    if of_type is not None:
        raise InputError(f"of_type {of_type!r}: the graph of dataset {dataset.name} has no types; leave it out")
    if vertices is not None or dataset.artifacts("vertices"):
        found["vertices"] = dataset.vertices(vertices).artifact
    if not found:
        raise NotFoundError(f"dataset {dataset.name} has neither a graph nor vertices")
    # Arrays in groups are over edges.
    return _view({name: (each, name) for each in found.values() for name in each.records if "/" not in name}, found)


def _of_type(dataset: Dataset, graph: TypedGraph, of_type: str | None, key: str | None) -> xarray.Dataset:
    """The arrays over the vertices of a type; for errors see :func:`to_xarray`."""
    names = [each.name for each in graph.types]
    if of_type is None:
        raise InputError(f"dataset {dataset.name} has a graph with types; choose one with of_type: {', '.join(names)}")
    if of_type not in names:
        meant = did_you_mean(of_type, names, "it has")
        raise NotFoundError(f"of_type {of_type!r}: the graph has no such type; {meant}")
    found, ids = {"graph": graph.artifact}, f"type/{of_type}/original_id"
    arrays = {"original_id": (graph.artifact, ids)} if ids in graph.artifact.records else {}
    data = dataset.vertices_of_types(graph.artifact.key, None if key is None else {of_type: key}).get(of_type)
    if data is not None:
        found["vertices"] = data.artifact
        arrays |= {name: (data.artifact, name) for name in data.artifact.records if "/" not in name}
    return _view(arrays, found).assign_attrs(type=of_type)


def _view(arrays: Mapping[str, tuple[Artifact, str]], found: Mapping[str, Artifact]) -> xarray.Dataset:
    """A Dataset of arrays over the same vertices.

    Args:
        arrays: artifact and path of each array, by the name of the variable.
        found: artifacts by kind.
    """
    variables = {}
    for name, (artifact, path) in arrays.items():
        # The ids of a type are over its members, which are the vertices of its data.
        dims = tuple("vertex" if dim == "member" else dim for dim in artifact.records[path].dims)
        variables[name] = xarray.Variable(dims, indexing.LazilyIndexedArray(_StoredArray(artifact.array(path))))
    attributes: dict[str, Any] = {kind: artifact.key for kind, artifact in found.items()}
    if "vertices" in found:
        attributes["num_classes"] = found["vertices"].facts.get("num_classes", 0)
    # xarray takes an array that has the name of a dimension for a coordinate.
    return xarray.Dataset(variables, attrs=attributes).reset_coords()


class _StoredArray(BackendArray):
    """Adapts an array of an artifact to xarray's interface: indexing by slices and integers."""

    def __init__(self, reader: ArrayReader) -> None:
        self._reader = reader
        self.shape = reader.shape
        self.dtype = reader.dtype

    def __getitem__(self, key: Any) -> Any:
        # For any other index, xarray reads the slices that contain it, and selects from them in memory.
        support = indexing.IndexingSupport.BASIC
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        """Read the range of rows that the first index spans, and select from it."""
        first, *others = key
        if not isinstance(first, slice):
            number = range(len(self._reader))[first]
            return np.asarray(self._reader.read(number, number + 1)[(0, *others)])
        # The reader takes ranges only; a slice may have any step, also a negative one.
        rows = range(len(self._reader))[first]
        low, high = (min(rows[0], rows[-1]), max(rows[0], rows[-1]) + 1) if rows else (0, 0)
        selected = np.asarray(rows, dtype=np.int64) - low
        return np.asarray(self._reader.read(low, high)[(selected, *others)])
