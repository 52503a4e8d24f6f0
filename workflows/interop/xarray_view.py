"""Vertex data, degrees and ids as one xarray Dataset with named dimensions (extra ``xarray``), loaded on access."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.artifact import Artifact


def to_xarray(dataset: Dataset, graph: str | None = None, vertices: str | None = None) -> xarray.Dataset:
    """Open the arrays over the vertices: ``feature``, ``label``, ``split``, ``degree``, ``original_id``.

    Args:
        graph: key, to choose between several graphs.
        vertices: key, to choose between several sets of vertex data.

    Returns:
        A Dataset over (vertex, feature). Accessing an array reads only the requested rows, and raises
        CorruptError if a chunk is missing or damaged. Attributes: the keys, and the number of classes.

    Raises:
        NotFoundError: the dataset has neither a graph nor vertices.
    """
    found: dict[str, Artifact] = {}
    for kind, key in (("graph", graph), ("vertices", vertices)):
        if key is not None or dataset.artifacts(kind):
            found[kind] = dataset.find(kind, key)
    if not found:
        raise NotFoundError(f"dataset {dataset.name} has neither a graph nor vertices")
    variables = {}
    for artifact in found.values():
        for name, record in artifact.records.items():
            # Arrays in groups are over edges.
            if "/" not in name:
                lazy = indexing.LazilyIndexedArray(_StoredArray(artifact.array(name)))
                variables[name] = xarray.Variable(record.dims, lazy)
    attributes: dict[str, Any] = {kind: artifact.key for kind, artifact in found.items()}
    if "vertices" in found:
        attributes["num_classes"] = found["vertices"].facts.get("num_classes", 0)
    return xarray.Dataset(variables, attrs=attributes)


class _StoredArray(BackendArray):
    """Adapts an array of an artifact to xarray's interface: indexing by slices and integers."""

    def __init__(self, reader: ArrayReader) -> None:
        self._reader = reader
        self.shape = reader.shape
        self.dtype = reader.dtype

    def __getitem__(self, key: Any) -> Any:
        # For any other index, xarray asks for the slices that contain it, and selects from these in memory.
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
