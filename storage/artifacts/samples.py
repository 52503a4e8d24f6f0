"""Samples on disk: the batches of some epochs, with the features packed in the order in which training reads them.

Batches are stored in *segments*, each of some consecutive batches of one rank and epoch; training reads segment after
segment. Features of frequent vertices are *hot*: stored once for a rank, and held in memory. Features of all other
vertices are stored with every batch that contains them.

Liu et al., "DiskGNN: Bridging I/O Efficiency and Model Accuracy for Out-of-Core GNN Training" (SIGMOD 2025), section 4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.row_buffers import RowBuffers
from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.format.arrays import ArrayReader, ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.format.vertex_arrays import LABELS, vertex_bounds
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.wording import counted

#: In ``hot``: the features of the vertex are packed with the batch.
PACKED: Final = -1
#: The type of all vertices in a graph without types.
ONLY_TYPE: Final = ""
#: Rows of features by the types of their vertices.
FeaturesByType = Mapping[str, NDArray[Any]]
#: Vertices and rows of a batch.
Structure = TypeVar("Structure")


@dataclass(frozen=True)
class StoredBatch(Generic[Structure]):
    """One batch.

    Attributes:
        batch: its vertices and rows.
        label: (num_seeds, ...) labels of the seeds, as in the vertex data.
        features: (num_vertices, num_features) features of its vertices, by type.
    """

    batch: Structure
    label: NDArray[Any]
    features: FeaturesByType

    @property
    def feature(self) -> NDArray[Any]:
        """(num_vertices, num_features) features of the vertices of a graph without types."""
        return self.features[ONLY_TYPE]


def rank_path(rank: int) -> str:
    """Path of what is stored for a rank in a samples artifact."""
    return f"rank/{rank:05d}"


def segment_path(rank: int, epoch: int, number: int) -> str:
    """Path of one segment of the batches of an epoch."""
    return f"{rank_path(rank)}/epoch/{epoch:05d}/segment/{number:06d}"


class StoredSamples(ABC, Generic[Structure]):
    """The stored batches of all ranks, of a graph with or without types.

    Attributes:
        num_batches: batches per epoch of every rank.
        segment_batches: batches of every segment but the last of an epoch.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.num_ranks: int = artifact.parameters["ranks"]
        self.num_epochs: int = artifact.parameters["epochs"]
        self.batch_size: int = artifact.parameters["batch_size"]
        self.replace: bool = artifact.parameters["replace"]
        self.neighbor_sampler: str = artifact.parameters.get("neighbor_sampler", "uniform")
        self.fanouts: tuple[int, ...] = tuple(artifact.parameters["fanout"])
        self.num_batches: list[int] = artifact.facts["num_batches"]
        self.segment_batches: int = artifact.facts["segment_batches"]

    def num_segments(self, rank: int) -> int:
        """Segments of each epoch of a rank."""
        return -(-self.num_batches[rank] // self.segment_batches)

    def last_segment(self, rank: int) -> str:
        """Path of the last segment of the first epoch of a rank that has batches."""
        return segment_path(rank, 0, self.num_segments(rank) - 1)

    def label_name(self, rank: int) -> str:
        """Name of the array of labels for the batches of a rank that has batches."""
        path = segment_path(rank, 0, 0)
        return next(name for name in LABELS if f"{path}/{name}" in self.artifact)

    def num_batches_for(self, rank: int) -> int:
        """Batches of an epoch, as :meth:`place` numbers the batches for a rank."""
        return self.num_batches[rank]

    def place(self, rank: int, number: int) -> tuple[int, int]:
        """The rank that a batch is stored for, and its number among the batches of that rank.

        Args:
            number: of a batch of an epoch. Ranks of a graph without types number the batches of their own seeds.
        """
        return rank, number

    @property
    @abstractmethod
    def drawn(self) -> dict[str, Any]:
        """Options of mode ``neighbor`` that the batches were drawn with, by name."""

    @abstractmethod
    def num_last_seeds(self, rank: int) -> int:
        """Seeds of the last batch of an epoch, as :meth:`place` numbers the batches for a rank; there is one."""

    @abstractmethod
    def hot_features(self, rank: int, counter: ReadCounter | None = None) -> FeaturesByType:
        """(num_hot, num_features) features of a rank's frequent vertices, of each type that has features."""

    @abstractmethod
    def read_segment(
        self,
        rank: int,
        epoch: int,
        number: int,
        hot_features: FeaturesByType,
        counter: ReadCounter | None = None,
        buffers: Mapping[str, RowBuffers] | None = None,
    ) -> Iterator[StoredBatch[Structure]]:
        """Read a segment; its structure, and one chunk of its packed features, are in memory meanwhile.

        Args:
            hot_features: see :meth:`hot_features`.
            buffers: memory for the features of batches, by type; give it back once a batch has been used.

        Raises:
            CorruptError: the arrays do not fit together.
        """


class Samples(StoredSamples[LayeredBatch]):
    """The stored batches of a graph without types.

    Attributes:
        fanouts: as for :class:`~gnnloom.storage.sampling.neighbor.NeighborSampler`.
        has_negative_feature: a feature of some vertex of the graph is negative.
    """

    def __init__(self, artifact: Artifact) -> None:
        """Read the facts from the manifest.

        Raises:
            InputError: the batches are batches of a graph with types.
        """
        if artifact.version == TYPED_VERSION:
            raise InputError(f"{artifact.path}: batches of a graph with types; Dataset.typed_samples reads them")
        super().__init__(artifact)
        self.num_vertices: int = artifact.sizes["vertex"]
        self.num_features: int = artifact.sizes["feature"]
        self.num_classes: int = artifact.facts["num_classes"]
        self.weighted: bool = artifact.facts["weighted"]
        self.has_negative_feature: bool = artifact.facts["has_negative_feature"]
        self.draw_once: bool = artifact.parameters.get("draw_once", False)

    def __repr__(self) -> str:
        return (
            f"Samples({counted(self.num_epochs, 'epoch')} of {counted(sum(self.num_batches), 'batch')} for"
            f" {counted(self.num_ranks, 'rank')})"
        )

    @property
    def drawn(self) -> dict[str, Any]:
        """Options of mode ``neighbor`` that the batches were drawn with, by name."""
        return {
            "fanout": self.fanouts,
            "batch_size": self.batch_size,
            "replace": self.replace,
            "draw_once": self.draw_once,
            "neighbor_sampler": self.neighbor_sampler,
        }

    @property
    def num_layers(self) -> int:
        return len(self.fanouts)

    def num_last_seeds(self, rank: int) -> int:
        """See :meth:`StoredSamples.num_last_seeds`."""
        return int(self.artifact.array(f"{self.last_segment(rank)}/layer_size").read()[-1, -1])

    def hot_features(self, rank: int, counter: ReadCounter | None = None) -> FeaturesByType:
        """See :meth:`StoredSamples.hot_features`."""
        return {ONLY_TYPE: self.artifact.array(f"{rank_path(rank)}/hot_feature", counter).read()}

    def read_segment(
        self,
        rank: int,
        epoch: int,
        number: int,
        hot_features: FeaturesByType,
        counter: ReadCounter | None = None,
        buffers: Mapping[str, RowBuffers] | None = None,
    ) -> Iterator[StoredBatch[LayeredBatch]]:
        """See :meth:`StoredSamples.read_segment`."""
        prefix, hot_feature = segment_path(rank, epoch, number), hot_features[ONLY_TYPE]

        def read(name: str) -> NDArray[Any]:
            return self.artifact.array(f"{prefix}/{name}", counter, self._bounds(name, len(hot_feature))).read()

        where = f"{self.artifact.path}/{prefix}"
        names = ["vertex", "row_nnz", "drawn", "indices", "hot", *(("degree", "data") if self.weighted else ())]
        arrays = Cursor(where, {name: read(name) for name in names})
        labels = Cursor(where, {"label": read(self.label_name(rank))})
        packed = PackedRows(self.artifact.array(f"{prefix}/feature", counter))
        memory = (buffers or {ONLY_TYPE: RowBuffers()})[ONLY_TYPE]
        for sizes in read("layer_size").tolist():
            if sizes != sorted(sizes, reverse=True):
                raise CorruptError(f"{where}/layer_size: {sizes}, but a layer has at most the rows of the one before")
            hot = arrays.take("hot", sizes[0])
            blocks = tuple(arrays.block(*pair) for pair in zip(sizes[1:], sizes[:-1], strict=True))
            row_nnz = arrays.take("row_nnz", sizes[0])
            degree = arrays.take("degree", sizes[0]) if self.weighted else row_nnz.astype(np.float64)
            batch = LayeredBatch(arrays.take("vertex", sizes[0]), blocks, row_nnz, degree)
            rows = packed.with_frequent(hot, hot_feature, memory)
            yield StoredBatch(batch, labels.take("label", batch.num_seeds), {ONLY_TYPE: rows})

    def _bounds(self, name: str, num_hot: int) -> tuple[int, int] | None:
        """The smallest value that an array of a segment may hold, and one more than the largest; None for any."""
        match name:
            case "vertex":
                return 0, self.num_vertices
            case "hot":
                return PACKED, num_hot
            case "layer_size" | "drawn" | "row_nnz":
                return 0, 1 << 62
        return vertex_bounds(name, self.artifact.facts)


def pack_structure(batches: Sequence[LayeredBatch], *, weighted: bool) -> dict[str, tuple[NDArray[Any], str]]:
    """The arrays of a segment's vertices and rows, by name, with their first dimension."""
    blocks = [block for batch in batches for block in batch.blocks]
    no_ids = np.empty(0, np.int64)
    arrays: dict[str, tuple[NDArray[Any], str]] = {
        "vertex": (np.concatenate([no_ids, *(batch.vertices for batch in batches)]), "row"),
        "row_nnz": (np.concatenate([no_ids, *(batch.row_nnz for batch in batches)]), "row"),
        **pack_blocks(blocks),
    }
    if weighted:
        data = [block.data for block in blocks if block.data is not None]
        arrays["degree"] = (np.concatenate([batch.degree for batch in batches]), "row")
        arrays["data"] = (np.concatenate(data), "nonzero")
    return arrays


def pack_blocks(blocks: Sequence[CSR]) -> dict[str, tuple[NDArray[Any], str]]:
    """The arrays of the patterns of some blocks, by name, with their dimension; :meth:`Cursor.block` reads them."""
    drawn = [np.empty(0, np.int64), *(np.diff(block.indptr) for block in blocks)]
    indices = [np.empty(0, np.int32), *(block.indices for block in blocks)]
    return {"drawn": (np.concatenate(drawn), "drawn_row"), "indices": (np.concatenate(indices), "nonzero")}


class PackedRows:
    """Takes the packed features of batches, one after the other, with one chunk in memory."""

    def __init__(self, array: ArrayReader) -> None:
        self._array, self._num_left = array, len(array)
        self._memory = np.empty((min(len(array), array.chunk_rows), *array.shape[1:]), array.dtype)
        self._chunk = self._memory[:0]

    def with_frequent(self, hot: NDArray[Any], hot_feature: NDArray[Any], buffers: RowBuffers) -> NDArray[Any]:
        """(num_vertices, num_features) features of the vertices of the next batch, in memory of ``buffers``.

        Args:
            hot: (num_vertices,) rows of frequent vertices in ``hot_feature``, or ``PACKED``.

        Raises:
            CorruptError: too few rows are left.
        """
        places = np.flatnonzero(hot == PACKED)
        if len(places) > self._num_left:
            raise CorruptError(f"{self._array.where}: fewer features or labels than its batches have")
        rows = buffers.take((len(hot), *self._array.shape[1:]), self._array.dtype)
        if len(hot_feature):
            # Fills every row, to save a copy of the frequent ones; packed rows are overwritten afterwards.
            np.take(hot_feature, hot, axis=0, out=rows, mode="clip")
        while len(places):
            if not len(self._chunk):
                first = len(self._array) - self._num_left
                self._chunk = self._memory[: self._num_left]
                self._array.read(first, first + len(self._chunk), out=self._chunk)
            taken = min(len(places), len(self._chunk))
            rows[places[:taken]] = self._chunk[:taken]
            self._chunk, places = self._chunk[taken:], places[taken:]
            self._num_left -= taken
        return rows


class Cursor:
    """Takes the rows of batches from the arrays of a segment, one batch after the other."""

    def __init__(self, where: str, arrays: dict[str, NDArray[Any]]) -> None:
        self._where, self._arrays, self._position = where, arrays, dict.fromkeys(arrays, 0)

    def take(self, name: str, count: int) -> NDArray[Any]:
        """The next rows of an array.

        Raises:
            CorruptError: it has fewer.
        """
        start = self._position[name]
        self._position[name] = start + count
        if start + count > len(self._arrays[name]):
            found = counted(len(self._arrays[name]), "entry")
            raise CorruptError(f"{self._where}/{name}: {found}, expected more")
        return self._arrays[name][start : start + count]

    def block(self, num_rows: int, num_columns: int) -> CSR:
        """The next block, from the arrays ``drawn``, ``indices`` and, if there is one, ``data``.

        Raises:
            CorruptError: the arrays are too short, or a column is out of range.
        """
        # Taken first, so that no more memory is allocated than the stored rows need.
        drawn = self.take("drawn", num_rows)
        indptr = np.zeros(num_rows + 1, np.int64)
        np.cumsum(drawn, out=indptr[1:])
        nnz = int(indptr[-1])
        data = self.take("data", nnz) if "data" in self._arrays else None
        indices = self.take("indices", nnz)
        if nnz and not 0 <= indices.min() <= indices.max() < num_columns:
            raise CorruptError(f"{self._where}/indices: a column outside its block of {num_columns}")
        return CSR(0, indptr, indices, data, num_columns)
