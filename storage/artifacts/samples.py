"""Samples on disk: the batches of some epochs, with the features packed in the order in which training reads them.

Batches are stored in *segments*, each of some consecutive batches of one rank and epoch; whoever trains reads segment
after segment. Features of frequent vertices are *hot*: stored once for a rank, and held in memory. Those of all other
vertices are stored with every batch that has them.

Liu et al., "DiskGNN: Bridging I/O Efficiency and Model Accuracy for Out-of-Core GNN Training" (SIGMOD 2025), section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.row_buffers import RowBuffers
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import ArrayReader, ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.vertex_arrays import LABELS, vertex_bounds
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.wording import counted

#: In ``hot``: the features of the vertex are packed with the batch.
PACKED: Final = -1


@dataclass(frozen=True)
class StoredBatch:
    """One batch.

    Attributes:
        batch: its vertices and rows.
        label: (num_seeds, ...) labels of the seeds, as in the vertex data.
        feature: (num_vertices, num_features) features of its vertices.
    """

    batch: LayeredBatch
    label: NDArray[Any]
    feature: NDArray[Any]


def rank_path(rank: int) -> str:
    """Path of what is stored for a rank in a samples artifact."""
    return f"rank/{rank:05d}"


def segment_path(rank: int, epoch: int, number: int) -> str:
    """Path of one segment of the batches of an epoch."""
    return f"{rank_path(rank)}/epoch/{epoch:05d}/segment/{number:06d}"


class Samples:
    """The stored batches of all ranks.

    Attributes:
        fanouts: as for :class:`~gnnloom.storage.sampling.neighbor.NeighborSampler`.
        num_batches: batches per epoch of every rank.
        segment_batches: batches of every segment but the last of an epoch.
        has_negative_feature: a feature of some vertex of the graph is negative.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.num_vertices: int = artifact.sizes["vertex"]
        self.num_features: int = artifact.sizes["feature"]
        self.num_classes: int = artifact.facts["num_classes"]
        self.weighted: bool = artifact.facts["weighted"]
        self.has_negative_feature: bool = artifact.facts["has_negative_feature"]
        self.num_ranks: int = artifact.parameters["ranks"]
        self.num_epochs: int = artifact.parameters["epochs"]
        self.batch_size: int = artifact.parameters["batch_size"]
        self.replace: bool = artifact.parameters["replace"]
        self.draw_once: bool = artifact.parameters.get("draw_once", False)
        self.neighbor_sampler: str = artifact.parameters.get("neighbor_sampler", "uniform")
        self.fanouts: tuple[int, ...] = tuple(artifact.parameters["fanout"])
        self.num_batches: list[int] = artifact.facts["num_batches"]
        self.segment_batches: int = artifact.facts["segment_batches"]

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

    def num_segments(self, rank: int) -> int:
        """Segments of each epoch of a rank."""
        return -(-self.num_batches[rank] // self.segment_batches)

    def label_name(self, rank: int) -> str:
        """Name of the array of labels for the batches of a rank that has batches."""
        path = segment_path(rank, 0, 0)
        return next(name for name in LABELS if f"{path}/{name}" in self.artifact)

    def hot_feature(self, rank: int, counter: ReadCounter | None = None) -> NDArray[Any]:
        """(num_hot, num_features) features of a rank's frequent vertices."""
        return self.artifact.array(f"{rank_path(rank)}/hot_feature", counter).read()

    def read_segment(
        self,
        rank: int,
        epoch: int,
        number: int,
        hot_feature: NDArray[Any],
        counter: ReadCounter | None = None,
        buffers: RowBuffers | None = None,
    ) -> Iterator[StoredBatch]:
        """Read a segment; its structure, and one chunk of its packed features, are in memory meanwhile.

        Args:
            hot_feature: see :meth:`hot_feature`.
            buffers: memory for the features of batches; give it back once a batch has been used.

        Raises:
            CorruptError: the arrays do not fit together.
        """
        prefix = segment_path(rank, epoch, number)

        def read(name: str) -> NDArray[Any]:
            return self.artifact.array(f"{prefix}/{name}", counter, self._bounds(name, len(hot_feature))).read()

        names = ["vertex", "row_nnz", "drawn", "indices", "hot", *(("degree", "data") if self.weighted else ())]
        reader = _Cursor(f"{self.artifact.path}/{prefix}", {name: read(name) for name in names}, read("layer_size"))
        label, packed = read(self.label_name(rank)), _PackedRows(self.artifact.array(f"{prefix}/feature", counter))
        buffers = buffers or RowBuffers()
        first_seed = 0
        for batch, hot in reader.batches():
            places = np.flatnonzero(hot == PACKED)
            stop_seed = first_seed + batch.num_seeds
            if len(places) > packed.num_left or stop_seed > len(label):
                raise CorruptError(f"{self.artifact.path}/{prefix}: fewer features or labels than its batches have")
            rows = buffers.take((len(hot), self.num_features), packed.dtype)
            if len(hot_feature):
                # Fills every row, which saves a copy of the frequent ones; packed rows are then overwritten.
                np.take(hot_feature, hot, axis=0, out=rows, mode="clip")
            packed.take(rows, places)
            yield StoredBatch(batch, label[first_seed:stop_seed], rows)
            first_seed = stop_seed

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
        "drawn": (np.concatenate([no_ids, *(np.diff(block.indptr) for block in blocks)]), "drawn_row"),
        "indices": (np.concatenate([np.empty(0, np.int32), *(block.indices for block in blocks)]), "nonzero"),
    }
    if weighted:
        data = [block.data for block in blocks if block.data is not None]
        arrays["degree"] = (np.concatenate([batch.degree for batch in batches]), "row")
        arrays["data"] = (np.concatenate(data), "nonzero")
    return arrays


class _PackedRows:
    """Takes the packed features of batches, one after the other, with one chunk of them in memory.

    Attributes:
        num_left: rows that are not taken yet.
    """

    def __init__(self, array: ArrayReader) -> None:
        self.dtype, self.num_left, self._array = array.dtype, len(array), array
        self._memory = np.empty((min(len(array), array.chunk_rows), *array.shape[1:]), array.dtype)
        self._chunk = self._memory[:0]

    def take(self, rows: NDArray[Any], places: NDArray[np.int64]) -> None:
        """Write the next rows to some places of ``rows``; at least as many must be left."""
        while len(places):
            if not len(self._chunk):
                first = len(self._array) - self.num_left
                self._chunk = self._memory[: self.num_left]
                self._array.read(first, first + len(self._chunk), out=self._chunk)
            taken = min(len(places), len(self._chunk))
            rows[places[:taken]] = self._chunk[:taken]
            self._chunk, places = self._chunk[taken:], places[taken:]
            self.num_left -= taken


class _Cursor:
    """Takes batches from the arrays of a segment, one after the other."""

    def __init__(self, where: str, arrays: dict[str, NDArray[Any]], layer_size: NDArray[np.int64]) -> None:
        self._where, self._arrays, self._layer_size = where, arrays, layer_size
        self._position = dict.fromkeys(arrays, 0)

    def batches(self) -> Iterator[tuple[LayeredBatch, NDArray[np.int32]]]:
        """Every batch, and the hot rows of its vertices."""
        for sizes in self._layer_size.tolist():
            hot = self._take("hot", sizes[0])
            blocks = tuple(self._block(*pair) for pair in zip(sizes[1:], sizes[:-1], strict=True))
            row_nnz = self._take("row_nnz", sizes[0])
            degree = self._take("degree", sizes[0]) if "degree" in self._arrays else row_nnz.astype(np.float64)
            yield LayeredBatch(self._take("vertex", sizes[0]), blocks, row_nnz, degree), hot

    def _block(self, num_rows: int, num_columns: int) -> CSR:
        # Taken first: only as many rows as there are get memory.
        drawn = self._take("drawn", num_rows)
        indptr = np.zeros(num_rows + 1, np.int64)
        np.cumsum(drawn, out=indptr[1:])
        nnz = int(indptr[-1])
        data = self._take("data", nnz) if "data" in self._arrays else None
        indices = self._take("indices", nnz)
        if num_rows > num_columns or (nnz and not 0 <= indices.min() <= indices.max() < num_columns):
            raise CorruptError(f"{self._where}/indices: a column outside its block of {num_columns}")
        return CSR(0, indptr, indices, data, num_columns)

    def _take(self, name: str, count: int) -> NDArray[Any]:
        start = self._position[name]
        self._position[name] = start + count
        if start + count > len(self._arrays[name]):
            raise CorruptError(f"{self._where}/{name}: {counted(len(self._arrays[name]), 'entry')}, expected more")
        return self._arrays[name][start : start + count]
