"""Views of the input features of any vertices, which hide from a step where the features are stored.

Rows that a step changes, or that other ranks have, are read in the step; all other rows are read by the threads that
prepare batches.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.disk.converted_rows import fill_rows
from gnnloom.storage.disk.mapped_rows import READERS, fit_in_pages, read_single_pages, read_whole, take_rows
from gnnloom.storage.disk.row_buffers import RowBuffers
from gnnloom.storage.disk.row_windows import NUMBER_BYTES, RowWindow, RowWindows, read_blocks
from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.data.vertex_data import as_features, check_finite, normalize_feature
from gnnloom.trainer.layout.partial_parameters import PartialParameter, RowGradient
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place


class FeatureView(ABC):
    """The input features of any vertices. By default, any thread may ask for rows, and no message is sent.

    Attributes:
        row_bytes: bytes of a row on disk; 0 if rows are not on disk.
    """

    @property
    def row_bytes(self) -> int:
        return 0

    @abstractmethod
    def rows(self, vertices: NDArray[np.int64]) -> Tensor:
        """(num_vertices, width) scaled features of some vertices.

        Args:
            vertices: (num_vertices,) int64, each at most once; ranks may ask for different numbers of vertices.
        """

    def ahead(self, vertices: NDArray[np.int64]) -> Tensor:
        """The rows of a batch, for the thread that prepares it; empty if the step reads the rows."""
        return self.rows(vertices)

    def in_step(self, vertices: NDArray[np.int64], ahead: Tensor) -> Tensor:  # noqa: ARG002 - read ahead
        """The rows of a batch, for its step. Collective: every rank calls it in every step, also for no vertices.

        Args:
            ahead: what :meth:`ahead` returned.
        """
        return ahead

    def give_back(self, vertices: NDArray[np.int64], rows: Tensor) -> None:  # noqa: B027 - only learned features change
        """Send the gradient of rows to their owners after the backward pass of a step. Collective.

        Args:
            rows: what :meth:`in_step` returned for these vertices.
        """

    def num_kept(self, memory: int) -> int:  # noqa: ARG002 - of views that keep rows
        """Maximum number of rows worth keeping in ``memory`` bytes."""
        return 0

    def kept_bytes(self, count: int) -> int:  # noqa: ARG002 - of views that keep rows of a file
        """Bytes of a number of rows that are kept."""
        return 0

    def is_far(self, vertices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(num_vertices,) bool, whether the row of each vertex is worth keeping: this rank does not have it."""
        return np.ones(len(vertices), np.bool_)

    def keep(self, vertices: NDArray[np.int64]) -> None:  # noqa: B027 - of views that keep rows
        """Keep the rows of some vertices in memory from now on. Collective.

        Args:
            vertices: (num_kept,) int64, ascending.
        """

    def windows(self, memory: int) -> FeatureWindows | None:  # noqa: ARG002 - of views that read from disk
        """A reader of the rows of many batches at once; None if reading a batch alone costs as little.

        Args:
            memory: bytes for the rows of two windows, and for the numbers of the rows of two more.
        """
        return None


class FeatureWindows(ABC):
    """Reads the rows of many batches at once. Only the current and the previous window may be in use.

    Attributes:
        most: maximum number of rows of a window.
        row_bytes: bytes of a row.
    """

    most: int
    row_bytes: int

    @abstractmethod
    def needed(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_needed,) int64 vertices whose rows are not in memory."""

    @abstractmethod
    def read(self, vertices: NDArray[np.int64]) -> FeatureView:
        """A view that has the rows of some vertices, equal to their rows in the whole view.

        Args:
            vertices: (num_read,) int64 vertices that need to be read, ascending; at most ``most``.
        """


class PackedFeatures(FeatureView):
    """Rows that are stored in batches and nowhere else."""

    def __init__(self, nothing: Tensor) -> None:
        """Communicates nothing.

        Args:
            nothing: (0, width) matrix without rows, of the dtype of features.
        """
        self._nothing = nothing

    def rows(self, vertices: NDArray[np.int64]) -> Tensor:
        """See :meth:`FeatureView.rows`.

        Raises:
            ValueError: rows of vertices are asked for.
        """
        if len(vertices):
            raise ValueError("only batches that were drawn before have these features")
        return self._nothing


class _ExchangedFeatures(FeatureView):
    """Rows of a matrix that is spread over the ranks by vertices: read in the step, from other ranks by an exchange."""

    def __init__(self, exchange: RowExchange) -> None:
        self._exchange = exchange

    def rows(self, vertices: NDArray[np.int64]) -> Tensor:
        """See :meth:`FeatureView.rows`. Collective."""
        return self._exchange.fetch(vertices)

    def ahead(self, vertices: NDArray[np.int64]) -> Tensor:  # noqa: ARG002 - none of them
        return self._exchange.nothing

    def in_step(self, vertices: NDArray[np.int64], ahead: Tensor) -> Tensor:  # noqa: ARG002 - without rows
        return self.rows(vertices)


class OwnFeatures(_ExchangedFeatures):
    """Rows that do not change. Frequent rows of other ranks are kept."""

    def num_kept(self, memory: int) -> int:
        return memory // max(1, self._exchange.row_bytes)

    def is_far(self, vertices: NDArray[np.int64]) -> NDArray[np.bool_]:
        return self._exchange.is_remote(vertices)

    def keep(self, vertices: NDArray[np.int64]) -> None:
        self._exchange.cache(vertices)


class LearnedFeatures(_ExchangedFeatures):
    """Current rows of a parameter. No rank keeps rows of other ranks, because these rows change."""

    def __init__(self, parameter: PartialParameter, exchange: RowExchange, place: Place) -> None:
        """Communicates nothing.

        Args:
            parameter: this rank's rows.
            exchange: fetches rows of the parameter from their owners.
        """
        super().__init__(exchange)
        self._parameter, self._place = parameter, place

    def rows(self, vertices: NDArray[np.int64]) -> Tensor:
        """See :meth:`FeatureView.rows`; a backward pass forms the gradient of the rows. Collective."""
        return super().rows(vertices).requires_grad_()

    def give_back(self, vertices: NDArray[np.int64], rows: Tensor) -> None:
        """Send gradients to the owners of the rows; each owner adds them up in the order of ranks. Collective."""
        numbers, values = self._exchange.give_back(vertices, gradient_of(rows, self._place))
        self._parameter.row_gradient = RowGradient.summed(numbers, values, self._place)


def gradient_of(rows: Tensor, place: Place) -> Tensor:
    """The gradient of fetched rows; zeros if the loss did not need them, as on a rank whose batch is empty."""
    return place.zeros(rows.shape, rows.dtype) if rows.grad is None else rows.grad


class MappedFeatures(FeatureView):
    """The features of all vertices in a file that is mapped, and copies of frequent rows in memory.

    A page of the file has the rows of many vertices, few of them frequent, so packed rows take a fraction of the memory
    of their pages.
    """

    def __init__(
        self,
        stored: NDArray[Any],
        norm: str,
        place: Place,
        where: str | None = None,
        buffers: RowBuffers | None = None,
        beside: Sequence[NDArray[Any]] = (),
    ) -> None:
        """Read nothing yet.

        Args:
            stored: (num_vertices, num_features) in memory or mapped, of any dtype in which features are stored.
            norm: ``row`` or ``none``; see :func:`gnnloom.trainer.data.vertex_data.normalize_feature`.
            where: name of the array, for messages about features that are not finite numbers; None to check no
                features.
            buffers: memory for rows, reused as soon as nothing refers to the rows.
            beside: mapped arrays that batches read as well.
        """
        self._stored, self._norm, self._place, self._where, self._buffers = stored, norm, place, where, buffers
        #: Whether rows come from the disk once only, since the system keeps all pages.
        self._fits = fit_in_pages([stored, *beside])
        if not self._fits:
            # The system forgets these pages first. Batches need most pages of the graph, which it should keep.
            read_single_pages([stored])
            if fit_in_pages(beside):
                read_whole(beside)
        #: Vertices whose rows are in memory, ascending, after a -1 that stands for no vertex; and their stored rows.
        self._kept, self._kept_rows = np.array([-1]), stored[:0]
        self._threads = os.getpid(), ThreadPoolExecutor(READERS, thread_name_prefix="reader")
        #: The rows of a window, if this view is limited to a window.
        self.window: RowWindow | None = None

    @classmethod
    def of(cls, vertices: Vertices, norm: str, place: Place, beside: Sequence[NDArray[Any]] = ()) -> Self:
        """The features of vertex data; all must be finite numbers."""
        where = str(vertices.artifact.path / "feature")
        return cls(map_vertices(vertices)["feature"], norm, place, where, beside=beside)

    def rows(self, vertices: NDArray[np.int64]) -> Tensor:
        """See :meth:`FeatureView.rows`; in the dtype of sums.

        Raises:
            InputError: a feature is not a finite number.
        """
        feature = as_features(self._taken(vertices), "none", self._place)
        if self._where is not None:
            check_finite(feature, self._where, lambda: vertices, self._place)
        return normalize_feature(feature, self._norm, self._place)

    @property
    def row_bytes(self) -> int:
        return self._stored[:1].nbytes

    def num_kept(self, memory: int) -> int:
        return 0 if self._fits else memory // self.kept_bytes(1)

    def kept_bytes(self, count: int) -> int:
        return count * (self.row_bytes + NUMBER_BYTES)

    def keep(self, vertices: NDArray[np.int64]) -> None:
        rows = np.empty((len(vertices), *self._stored.shape[1:]), self._stored.dtype)
        read_blocks(self._stored, vertices, np.arange(len(vertices)), rows, self._readers())
        self._kept, self._kept_rows = np.append(vertices, -1), rows

    def windows(self, memory: int) -> FeatureWindows | None:
        # One window is in use while the next one is read. Of the window after it, and of the batches that are drawn for
        # another one, only the numbers of the rows are in memory.
        most = memory // (2 * self.row_bytes + 4 * NUMBER_BYTES)
        return None if not most or self._fits else MappedWindows(self, most)

    def missing(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_missing,) int64 vertices without rows in memory."""
        known = self._kept[np.searchsorted(self._kept[:-1], vertices)]
        missing: NDArray[np.int64] = vertices[known != vertices]
        return missing

    def of_window(self, window: RowWindow) -> Self:
        """A view that takes the rows of a window from memory."""
        found = copy(self)
        found.window = window
        return found

    def row_windows(self, most: int) -> RowWindows:
        """A reader of windows of at most ``most`` rows."""
        return RowWindows(self._stored, most, self._readers())

    def _taken(self, vertices: NDArray[np.int64]) -> NDArray[Any]:
        """(num_taken, num_features) rows in the dtype of sums."""
        shape, dtype = (len(vertices), *self._stored.shape[1:]), array_dtype(self._place.sum_dtype)
        rows = np.empty(shape, dtype) if self._buffers is None else self._buffers.take(shape, dtype)
        if self._buffers is not None:
            give_back_unused(rows, self._buffers)
        if len(self._kept) == 1:
            self._read(vertices, rows)
            return rows
        found = np.searchsorted(self._kept[:-1], vertices)
        known = self._kept[found] == vertices
        kept, others = np.flatnonzero(known), np.flatnonzero(~known)
        fill_rows(self._kept_rows, found[kept], rows, kept)
        self._read(vertices[others], rows, others)
        return rows

    def _read(self, vertices: NDArray[np.int64], out: NDArray[Any], place: NDArray[np.int64] | None = None) -> None:
        """Read rows that are not kept; for ``out`` and ``place`` see :func:`fill_rows`."""
        if self.window is None:
            take_rows(self._stored, vertices, out, self._readers(), place)
        else:
            self.window.take(vertices, out, place)

    def _readers(self) -> ThreadPoolExecutor:
        """Threads of this process that read rows: a forked process has none of its parent's threads."""
        process, found = self._threads
        if process != os.getpid():
            found = ThreadPoolExecutor(READERS, thread_name_prefix="reader")
            self._threads = os.getpid(), found
        return found


class MappedWindows(FeatureWindows):
    """Windows of a mapped file."""

    def __init__(self, features: MappedFeatures, most: int) -> None:
        self.most, self.row_bytes = most, features.row_bytes
        self._features, self._windows = features, features.row_windows(most)

    def needed(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._features.missing(vertices)

    def read(self, vertices: NDArray[np.int64]) -> FeatureView:
        return self._features.of_window(self._windows.read(vertices))


def give_back_unused(rows: NDArray[Any], buffers: RowBuffers) -> None:
    """Return rows to their buffers as soon as nothing refers to a tensor made from them.

    The array itself must not be sliced, as a slice would refer to its memory only.
    """
    memory = rows.base
    if memory is not None:
        # A tensor made from an array refers to it, so the array is freed when the tensor and all its views are.
        weakref.finalize(rows, buffers.give_back, memory).atexit = False


class PropagatedFeatures(FeatureView):
    """Propagated features, side by side, for some vertices of this rank, in a temporary file."""

    def __init__(
        self, values: NDArray[np.float32], vertex: NDArray[np.int64], num_features: int, norm: str, place: Place
    ) -> None:
        """Read nothing yet.

        Args:
            values: (num_rows, width) the file.
            vertex: (num_rows,) int64 distinct ids of the vertices of its rows.
            num_features: columns of each matrix; every vertex is scaled within each matrix.
            norm: ``row`` or ``none``; see :func:`gnnloom.trainer.data.vertex_data.normalize_feature`.
        """
        self._values, self._row, self._num_features = values, LocalNumbers.of(vertex), num_features
        self._norm, self._place = norm, place

    def rows(self, vertices: NDArray[np.int64]) -> Tensor:
        """See :meth:`FeatureView.rows`; in the dtype of sums."""
        taken = take_rows(self._values, self._row(vertices))
        width = taken.shape[1]
        return as_features(taken.reshape(-1, self._num_features), self._norm, self._place).view(-1, width)
