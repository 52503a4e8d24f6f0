"""Stored batches of a graph with types before they are read: a batch of the largest size, without values."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import product
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.samples import StoredBatch, segment_path
from gnnloom.storage.artifacts.typed.typed_graph import relation_folder, type_folder
from gnnloom.storage.artifacts.typed.typed_samples import HeteroBatch, PackedRelation, SampledEdges, TypedSamples
from gnnloom.storage.format.arrays import ArrayRecord
from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.feed.batches import Batches
from gnnloom.trainer.kernels.dispatch import Unwritten, even_offsets

Made = TypeVar("Made")

#: Segments whose batches are compared: the largest ones.
_COMPARED: Final = 16


class StatedStoredBatches(Batches[Made]):
    """One batch of an epoch, with the memory of the segments that are read and of the frequent features.

    A segment is in use while a thread reads the next one; all batches of a segment have their features. The batch has
    the largest numbers of vertices of each type and hop, and of edges of each relation, in the largest segments.
    """

    def __init__(
        self,
        samples: TypedSamples,
        rank: int,
        make: Callable[[StoredBatch[HeteroBatch]], Made],
        memory: Unwritten,
        most_kept: int,
    ) -> None:
        """Read the lists of the arrays of all segments of the rank.

        Args:
            most_kept: arrays of features of each type that are kept when they are not in use.
        """
        self._most_kept = most_kept
        self._samples, self._make, self._memory = samples, make, memory
        self.num_batches, self.batch_size = samples.num_batches_for(rank), samples.batch_size
        # They stay for the whole run.
        frequent = [samples.artifact.record(f"{type_folder(name)}hot_feature") for name in samples.widths]
        self._kept = [memory.array(each.shape, np.dtype(each.dtype)) for each in frequent]
        numbers = product(range(samples.num_epochs), range(samples.num_segments(rank)))
        paths = sorted((segment_path(rank, *each) for each in numbers), key=self._num_bytes, reverse=True)
        self._num_segments, self._segments = samples.num_segments(rank), paths[:_COMPARED]
        self._unused: NDArray[np.uint8] | None = None

    def prepare(self, epoch: int, number: int) -> Made:  # noqa: ARG002 - all are alike
        samples, (vertices, entries) = self._samples, self._sizes()
        totals = {name: sum(counts) for name, counts in vertices.items()}
        numbers = {name: np.arange(totals[name]) * samples.types[name] // max(1, totals[name]) for name in totals}
        edges = {each.name: self._edges(each, vertices, entries[each.name]) for each in samples.relations}
        features = {name: self._rows(name, totals[name]) for name in samples.widths}
        record = self._record(samples.label_name(0))
        label = np.zeros((vertices[samples.of_type][0], *record.shape[1:]), record.dtype)
        return self._make(StoredBatch(HeteroBatch(numbers, vertices, edges), label, features))

    def of_epoch(self, epoch: int, numbers: Sequence[int], threads: int, pool: int) -> Generator[Made, None, None]:  # noqa: ARG002 - see StoredBatches
        if not self._segments:
            return
        samples, largest = self._samples, self._segments[0]
        in_memory = min(self._num_segments, 2 if threads else 1)
        vertices, _ = self._sizes()
        features = sum(self._rows(name, sum(vertices[name])).nbytes for name in samples.widths)
        chunks = [self._chunk_bytes(f"{largest}/{type_folder(name)}feature") for name in samples.widths]
        num_bytes = in_memory * self._num_bytes(largest) + sum(chunks) + 2 * max(chunks, default=0)
        num_bytes += (in_memory * min(samples.segment_batches, len(numbers)) - 1) * features
        # The buffers of the epoch before are used again.
        self._unused = None
        others = self._memory.array((num_bytes,), np.dtype(np.uint8))
        try:
            yield self.prepare(epoch, numbers[0])
        finally:
            del others
            self._unused = self._memory.array((self._most_kept * features,), np.dtype(np.uint8))

    def _sizes(self) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """Numbers of vertices that each hop adds, by type, and of entries that it draws, by relation."""
        samples = self._samples

        def most(path: str) -> list[int]:
            read = [samples.artifact.array(f"{segment}/{path}size").read().max(0) for segment in self._segments]
            found: list[int] = np.max(read, 0).tolist()
            return found

        entries = {each.name: most(relation_folder(each.name)) for each in samples.relations}
        return {name: most(type_folder(name)) for name in samples.types}, entries

    def _edges(self, relation: PackedRelation, vertices: dict[str, list[int]], entries: list[int]) -> SampledEdges:
        """The edges of a relation: each hop spreads its entries evenly over its rows and over all vertices so far."""
        targets, sources = vertices[relation.target], np.cumsum(vertices[relation.source])
        rng, drawn, columns = np.random.default_rng(0), [np.zeros(1, np.int64)], [np.empty(0, np.int64)]
        for count, bound, rows in zip(entries, sources[1:], targets, strict=False):
            drawn.append(np.diff(even_offsets(rows + 1, count)))
            columns.append(rng.integers(0, max(1, int(bound)), count))
        indptr, folder = np.cumsum(np.concatenate(drawn)), relation_folder(relation.name)
        stored = self._record(f"{folder}indices").dtype
        matrix = CSR(0, indptr, np.concatenate(columns).astype(stored), None, int(sources[-1]))
        values = {name: self._values(f"{folder}{name}", matrix.nnz) for name in relation.columns}
        return SampledEdges(matrix, np.arange(matrix.nnz), values, entries)

    def _values(self, path: str, count: int) -> NDArray[Any]:
        """Rows of an array, without values."""
        record = self._record(path)
        return self._memory.array((count, *record.shape[1:]), np.dtype(record.dtype))

    def _rows(self, name: str, count: int) -> NDArray[Any]:
        """Rows of features of a type, without values."""
        return self._values(f"{type_folder(name)}feature", count)

    def _record(self, path: str) -> ArrayRecord:
        """Record of an array of the largest segment."""
        return self._samples.artifact.record(f"{self._segments[0]}/{path}")

    def _num_bytes(self, segment: str) -> int:
        """Bytes of the structure of the batches of a segment."""
        samples = self._samples
        paths = [f"{type_folder(name)}vertex" for name in samples.types]
        paths += [f"{type_folder(name)}hot" for name in samples.widths]
        for each in samples.relations:
            paths += [f"{relation_folder(each.name)}{name}" for name in ("drawn", "indices", "edge", *each.columns)]
        records = [samples.artifact.record(f"{segment}/{path}") for path in paths]
        return sum(int(np.prod(each.shape)) * np.dtype(each.dtype).itemsize for each in records)

    def _chunk_bytes(self, path: str) -> int:
        """Bytes of a chunk of features."""
        array = self._samples.artifact.array(path)
        return int(array.chunk_rows * np.prod(array.shape[1:])) * array.dtype.itemsize
