"""The input of models on rows: the features of some vertices and what was propagated of them, read from disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from gnnloom.storage.artifacts.propagated import block_columns
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ArrayReader, ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.memory_map import RecordedArray
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.communicator import Communicator, Reduction
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.open_shards import FEATURES, missing_features
from gnnloom.trainer.place.mapped_rows import UnbackedRows
from gnnloom.trainer.place.place import Place

#: dtype of rows in temporary files.
PACKED: Final = np.dtype(np.float32)


class StoredRows:
    """Matrices side by side that have a row for each vertex of a rank: the features, and their propagated steps.

    They are stored in the order of all vertices, so they are cheapest to read if the rank's vertices follow each other,
    as with a partition by ``block``. Communicates nothing, except :meth:`settled_norm`.

    Attributes:
        vertex: (num_own,) int64 ids of the rank's vertices, in the order of its rows.
        folder: for temporary files.
        steps: the matrices from left to right: 0 for the features, k for the k-th power of the adjacency times these.
        num_features: columns of each.
        stride: vertices whose rows are read at a time.
    """

    def __init__(
        self,
        dataset: Dataset,
        inputs: Mapping[str, str],
        steps: Sequence[int],
        vertex: NDArray[np.int64],
        counter: ReadCounter,
    ) -> None:
        """Open the arrays.

        Args:
            inputs: kind to key of the vertex data and, if there are any, of the propagated values.
            steps: steps to read; empty for the features and all stored steps.

        Raises:
            NotFoundError: the vertex data or the values were removed.
            InputError: there are no features, or not this step.
        """
        self.folder, self.vertex = dataset.path, vertex
        vertices = Vertices(Artifact(dataset.vertices(inputs["vertices"]).artifact.path, counter))
        key = inputs.get("propagated")
        propagated = None if key is None else dataset.propagated(key, counter)
        stored = () if propagated is None else propagated.steps
        self.steps = tuple(steps) or (FEATURES, *stored)
        where = vertices.artifact.path if propagated is None else propagated.artifact.path
        for step in self.steps:
            if step not in (FEATURES, *stored):
                raise InputError(f"steps {self.steps}: {where} has no step {step}, only {(FEATURES, *stored)}")
        if not vertices.has_feature:
            raise InputError(f"{vertices.artifact.path}: no features{missing_features(dataset.name)}")
        self.num_features = vertices.num_features if propagated is None else propagated.num_features
        if propagated is not None and propagated.num_features != vertices.num_features:
            raise InputError(
                f"{where}: {counted(propagated.num_features, 'column')} for {counted(vertices.num_features, 'feature')}"
            )
        self._feature = vertices.array("feature")
        #: The columns of the input that each array has.
        self._arrays: list[tuple[slice, ArrayReader]] = []
        for position, step in enumerate(self.steps):
            first = position * self.num_features
            if step == FEATURES:
                self._arrays.append((slice(first, first + self.num_features), self._feature))
            elif propagated is not None:
                for block in range(propagated.num_blocks):
                    columns = block_columns(block, self.num_features)
                    span = slice(first + columns.start, first + columns.stop)
                    self._arrays.append((span, propagated.array(step, block)))
        self.stride = max(array.chunk_rows for _, array in self._arrays)

    @property
    def num_inputs(self) -> int:
        """Matrices side by side."""
        return len(self.steps)

    @property
    def width(self) -> int:
        """Number of columns of all inputs together."""
        return self.num_inputs * self.num_features

    def settled_norm(self, norm: str, comm: Communicator, place: Place) -> str:
        """Resolve ``auto``: ``row`` if no feature of any vertex is negative, else ``none``. Collective."""
        if norm != "auto":
            return norm
        # Ranges of vertices, regardless of their owners: each feature is read once.
        start, stop = split_range(len(self._feature), comm.size, comm.rank)
        pieces = _pieces(start, stop, self._feature.chunk_rows)
        has_negative = any((self._feature.read(*piece) < 0).any() for piece in pieces)
        found = place.tensor([int(has_negative)], torch.int64)
        comm.all_reduce(found, Kind.SETUP, Reduction.MAX)
        return "none" if bool(found) else "row"

    def packed(self, rows: NDArray[np.int64]) -> RecordedArray | UnbackedRows:
        """Some rows in a temporary file.

        Args:
            rows: (num_rows,) int64 distinct rows of this rank.

        Returns:
            (num_rows, width) float32.

        Raises:
            InputError: a feature is not a finite number.
        """
        packed = RecordedArray(self.folder, "the input of vertices", (len(rows), self.width), PACKED)
        for places, vertices in self._by_range(rows):
            for columns, array in self._arrays:
                self._copy(array, vertices, places, packed, columns)
        return packed

    def ranges(self) -> Iterator[NDArray[np.int64]]:
        """All rows of this rank, in parts that are cheap to read and small enough to pack one after the other."""
        yield from (rows for rows, _ in self._by_range(np.arange(len(self.vertex))))

    def _by_range(self, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Positions among some rows and their vertices, ascending, in ranges of all vertices."""
        vertices = self.vertex[rows]
        order = np.argsort(vertices)
        vertices = vertices[order]
        starts = np.arange(0, len(self._feature), self.stride)
        bounds = [*np.searchsorted(vertices, starts).tolist(), len(vertices)]
        for first, last in pairwise(bounds):
            if first < last:
                yield order[first:last], vertices[first:last]

    def _copy(
        self,
        array: ArrayReader,
        vertices: NDArray[np.int64],
        places: NDArray[np.int64],
        out: RecordedArray,
        columns: slice,
    ) -> None:
        """Copy the rows of some ascending vertices to places and columns of the output, a chunk at a time."""
        for start, stop in _pieces(int(vertices[0]), int(vertices[-1]) + 1, array.chunk_rows):
            first, last = np.searchsorted(vertices, [start, stop])
            if first == last:
                continue
            begin = int(vertices[first])
            found = array.read(begin, int(vertices[last - 1]) + 1)[vertices[first:last] - begin]
            finite = np.isfinite(found).all(1)
            if not finite.all():
                vertex = int(vertices[first + int(np.flatnonzero(~finite)[0])])
                raise InputError(f"{array.where}: vertex {vertex} has a value that is not a finite number")
            out.write(places[first:last], found, columns)


def _pieces(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Ranges that cover one, and end where chunks do."""
    while start < stop:
        end = min(stop, (start // size + 1) * size)
        yield start, end
        start = end
