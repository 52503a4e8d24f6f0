"""Vertex data in the ``.npz`` files of published benchmarks, next to the edges.

gnn-benchmark (Shchur et al., Pitfalls of Graph Neural Network Evaluation, 2018) stores features as a CSR matrix,
``attr_data``, ``attr_indices``, ``attr_indptr`` and ``attr_shape``, or dense as ``attr_matrix``, and ``labels``.
heterophilous-graphs (Platonov et al., A Critical Look at the Evaluation of GNNs under Heterophily, 2023) stores
``node_features``, ``node_labels``, and ``train_masks``, ``val_masks`` and ``test_masks`` (K, n) of K splits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray, member_names, open_array
from gnnloom.pipeline.sources.reading.files import open_files
from gnnloom.pipeline.sources.source import OneArray, VertexSource
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices, checked_arrays, checked_column, is_target
from gnnloom.pipeline.sources.vertex_data.splits import MaskSplit
from gnnloom.pipeline.sources.vertex_data.vertex_files import JoinedVertices
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS

#: Arrays of edges, and the arrays of features and labels that come with them.
_LAYOUTS: Final = {"adj_indptr": ("attr_matrix", "labels"), "edges": ("node_features", "node_labels")}
_CSR: Final = ("attr_data", "attr_indices", "attr_indptr", "attr_shape")
_MASKS: Final = {"train": "train_masks", "valid": "val_masks", "test": "test_masks"}
#: Number of dense features that are made at a time.
_BLOCK_VALUES: Final = 1 << 20


@dataclass(frozen=True)
class SparseFeatures(OneArray):
    """Features from a CSR matrix; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`.

    Attributes:
        data, indices, indptr: arrays of the matrix.
        num_rows, width: its shape.
    """

    data: StoredArray
    indices: StoredArray
    indptr: StoredArray
    num_rows: int
    width: int

    array = "feature"
    random_access = False

    @classmethod
    def open(cls, data: StoredArray, indices: StoredArray, indptr: StoredArray, shape: StoredArray) -> SparseFeatures:
        """Check shapes and dtypes.

        Raises:
            InputError: these are not the arrays of a CSR matrix of numbers.
        """
        checked_column(data, "iufb")
        for array in (indices, indptr, shape):
            checked_column(array, "iu")
        sizes = shape.read_all().reshape(-1).tolist()
        if len(sizes) != 2 or min(sizes) < 1 or indptr.size != sizes[0] + 1 or data.size != indices.size:
            raise InputError(f"{indptr}: {indptr.size:,} offsets of {data.size:,} entries; expected a matrix {sizes}")
        return cls(data, indices, indptr, *sizes)

    def identity(self) -> dict[str, Any]:
        return {"format": "csr", "file": self.data.file.identity(), "array": self.data.member}

    def num_vertices(self) -> int:
        return self.num_rows

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:  # noqa: ARG002 - there is only one
        rows = max(1, _BLOCK_VALUES // self.width)
        # SciPy takes a tenth of a second to import, and few commands read such a file.
        from scipy.sparse import csr_array  # noqa: PLC0415

        ends = _Cursor(self.indptr, start)
        before = ends.take(1).astype(np.int64)
        entries: tuple[_Cursor, ...] = ()
        for first in range(start, stop, rows):
            offsets = np.concatenate([before, ends.take(min(rows, stop - first)).astype(np.int64)])
            if offsets[0] < 0 or np.any(np.diff(offsets) < 0) or offsets[-1] > self.indices.size:
                raise InputError(f"{self.indptr}: the offsets near row {first:,} do not ascend from 0")
            entries = entries or tuple(_Cursor(array, int(offsets[0])) for array in (self.data, self.indices))
            values, columns = (each.take(int(offsets[-1] - offsets[0])) for each in entries)
            if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < self.width:
                raise InputError(f"{self.indices}: rows from {first:,}: expected columns below {self.width:,}")
            matrix = csr_array((values, columns, offsets - offsets[0]), (len(offsets) - 1, self.width))
            dense, wrong = VERTEX_ARRAYS["feature"].convert(matrix.toarray())
            if wrong is not None:
                expected = VERTEX_ARRAYS["feature"].expected
                raise InputError(f"{self.data}, row {first + wrong[0]:,}: expected {expected}")
            yield dense
            before = offsets[-1:]


class _Cursor:
    """Reads an array in pieces, starting at an element."""

    def __init__(self, array: StoredArray, start: int) -> None:
        self._blocks = array.read_flat(start, array.size)
        self._pending = np.empty(0, array.dtype)

    def take(self, count: int) -> NDArray[Any]:
        parts = [self._pending]
        while sum(map(len, parts)) < count:
            parts.append(next(self._blocks))
        found = np.concatenate(parts)
        self._pending = found[count:]
        return found[:count]


def benchmark_layout(names: Collection[str]) -> str:
    """The array with the edges of a benchmark's file; empty for any other ``.npz``.

    Args:
        names: arrays in the file.
    """
    if not {"format", "edge_index", "row"}.isdisjoint(names):
        return ""
    return next((name for name in _LAYOUTS if name in names), "")


def has_npz_vertices(locations: Sequence[str]) -> bool:
    """Whether a file has the layout of a benchmark, with features, labels or masks."""
    files = open_files(locations)
    if len(files) != 1 or not files[0].location.endswith(".npz"):
        return False
    names = member_names(files[0])
    layout = benchmark_layout(names)
    return bool(layout) and not {*_LAYOUTS[layout], *_CSR, *_MASKS.values()}.isdisjoint(names)


def open_npz_vertices(locations: Sequence[str], *, split_index: int | None = None) -> VertexSource:
    """Open the features, labels and masks in the file of a benchmark.

    Args:
        split_index: number of the split.

    Raises:
        NotFoundError: the file does not exist, or has no vertex data.
        InputError: an array has the wrong shape or dtype, or ``split_index`` is missing.
    """
    if not has_npz_vertices(locations):
        raise NotFoundError(f"{', '.join(locations)}: found no vertex data of gnn-benchmark or heterophilous-graphs")
    (file,) = open_files(locations)
    names = set(member_names(file))
    features, labels = _LAYOUTS[benchmark_layout(names)]
    sources: list[VertexSource] = []
    found = {"feature": open_array(file, features)} if features in names else {}
    if labels in names:
        label = open_array(file, labels)
        found["target" if is_target(label) else "label"] = label
    if found:
        given = checked_arrays(found)
        (first,) = next(iter(given.values()))
        for (array,) in given.values():
            if array.shape[0] != first.shape[0]:
                raise InputError(f"{array}: {array.shape[0]:,} rows, {first} has {first.shape[0]:,}")
        sources.append(NumpyVertices(given, first.shape[0]))
    if set(_CSR) <= names:
        sources.append(SparseFeatures.open(*(open_array(file, name) for name in _CSR)))
    masks = {part: [open_array(file, name)] for part, name in _MASKS.items() if name in names}
    if masks:
        sources.append(MaskSplit.open(masks, split_index, by_columns=False))
    elif split_index is not None:
        raise InputError(f"{file.location}: --split-index {split_index}: the file has no masks")
    return JoinedVertices(tuple(sources))
