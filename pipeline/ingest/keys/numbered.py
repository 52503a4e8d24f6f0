"""The edges of a source by the numbers of their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.ingest.keys.collect import collect_keys
from gnnloom.pipeline.ingest.keys.merge import PLACE_BITS, KeyRanges, merge_keys
from gnnloom.pipeline.ingest.keys.table import KeyTable
from gnnloom.pipeline.sources.source import CHUNK_EDGES, EdgeChunk, EdgeSource, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.format.artifact import ArtifactWriter


def number_keys(writer: ArtifactWriter, source: EdgeSource, ids: str, cluster: Cluster) -> NumberedEdges:
    """Number the distinct ids or names of a source in ascending order, except for what an earlier run has done.

    Args:
        ids: ``compact`` for numbers, or ``names``.

    Raises:
        InputError: the source cannot be read, has no edges or a negative id, or only some of its edges have a weight.
    """
    ranges = KeyRanges.of(collect_keys(writer, source, ids, cluster), ids)
    path = ranges.save(writer.work)
    table = KeyTable.of(merge_keys(writer, path, cluster), ids)
    numbered = NumberedEdges(writer.work, path)
    table.save(numbered.table_path)
    return numbered


@dataclass(frozen=True)
class NumberedEdges:
    """Edges whose keys were numbered; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Attributes:
        work: work folder of the artifact that is being made.
        ranges_path: file of the ranges of keys.
    """

    work: Path
    ranges_path: Path

    @property
    def table_path(self) -> Path:
        """File of the table of the keys."""
        return self.ranges_path.with_suffix(".table.json")

    def identity(self) -> dict[str, Any]:
        return {"format": "numbered"}

    def num_vertices(self) -> int | None:
        return KeyTable.load(self.table_path).firsts(0)[-1]

    def ranges(self) -> Sequence[SourceRange]:
        groups = enumerate(KeyRanges.load(self.ranges_path).files())
        return [SourceRange(number, 0, sum(file.num_edges for file in files)) for number, files in groups]

    def spill_bytes(self) -> int:
        """Bytes of the temporary files of keys, numbers and edges."""
        files = chain.from_iterable(KeyRanges.load(self.ranges_path).files())
        collected = sum(file.stop - file.keys.start + 8 * file.keys.num_keys for file in files)
        return collected + KeyTable.load(self.table_path).num_bytes

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        ranges, firsts = KeyRanges.load(self.ranges_path), KeyTable.load(self.table_path).range_firsts
        files = ranges.files()
        first = sum(map(len, files[: span.file]))
        with OpenFiles(self.work) as opened:
            rows = ranges.shuffle.rows(self.work, opened)
            for number, file in enumerate(files[span.file], start=first):
                # Ranges and keys ascend, so the numbers come in the order of the file's keys.
                numbers = _whole(rows.read(number, number + 1).column("number"), firsts)
                for start in range(0, file.num_edges, CHUNK_EDGES):
                    stop = min(start + CHUNK_EDGES, file.num_edges)
                    source, target = file.read_ends(opened, start, stop)
                    yield EdgeChunk(numbers[source], numbers[target], file.read_weights(opened, start, stop))


def _whole(routed: NDArray[np.int64], firsts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers within all keys, from routed numbers; ``firsts`` are the numbers of the first keys of the ranges."""
    numbers: NDArray[np.int64] = firsts[routed >> PLACE_BITS]
    numbers += routed & ((1 << PLACE_BITS) - 1)
    return numbers
