"""Names as ids: the rank of a distinct name becomes its number, and the edges are read by these numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.ingest.names.collect import collect_names
from gnnloom.pipeline.ingest.names.merge import NameRanges, merge_names
from gnnloom.pipeline.ingest.names.spill import SortedNames
from gnnloom.pipeline.ingest.names.table import NameTable
from gnnloom.pipeline.sources.names import NamedEdgeSource
from gnnloom.pipeline.sources.source import CHUNK_EDGES, EdgeChunk, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.format.artifact import ArtifactWriter

_FOLDER, _RANGES, _TABLE = "names", "plan.json", "table.json"


def name_folder(writer: ArtifactWriter) -> Path:
    """The folder in which the names of an artifact's source are numbered."""
    return writer.work / _FOLDER


def were_numbered(writer: ArtifactWriter) -> bool:
    """Whether an earlier run began to number the names of an artifact's source."""
    return name_folder(writer).exists()


def name_table_path(writer: ArtifactWriter) -> Path:
    """The table of the names of an artifact's vertices, which :func:`number_names` makes."""
    return name_folder(writer) / _TABLE


def number_names(writer: ArtifactWriter, source: NamedEdgeSource, cluster: Cluster) -> NumberedEdges:
    """Number the names of a source in ascending order, unless an earlier run has done so.

    Raises:
        InputError: the source cannot be read or has no edges.
    """
    folder = name_folder(writer)
    ranges = NameRanges.of(collect_names(writer, source, cluster))
    # A range that was collected again has another lane: its names must be merged again.
    is_merged = (folder / _TABLE).exists() and ranges.are_saved(folder / _RANGES)
    if not is_merged or not NameTable.load(folder / _TABLE).is_intact(writer.work):
        # The table goes before its ranges are replaced: a kill between these lines leaves no table of other ranges.
        (folder / _TABLE).unlink(missing_ok=True)
        ranges.save(folder / _RANGES)
        NameTable.of(merge_names(writer, folder / _RANGES, cluster)).save(folder / _TABLE)
    return NumberedEdges(writer.work)


@dataclass(frozen=True)
class NumberedEdges:
    """The edges of a source whose names were numbered; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Attributes:
        work: work folder of the artifact that is being made.
    """

    work: Path

    def identity(self) -> dict[str, Any]:
        return {"format": "numbered names"}

    def _ranges(self) -> NameRanges:
        return NameRanges.load(self.work / _FOLDER / _RANGES)

    def _table(self) -> NameTable:
        return NameTable.load(self.work / _FOLDER / _TABLE)

    def num_vertices(self) -> int | None:
        return self._table().num_names

    def ranges(self) -> Sequence[SourceRange]:
        groups = enumerate(self._ranges().collected)
        return [SourceRange(number, 0, sum(file.num_edges for file in files)) for number, files in groups]

    def spill_bytes(self) -> int:
        """Bytes of the temporary files of names and edges."""
        files = chain.from_iterable(self._ranges().collected)
        return sum(file.size for file in files) + self._table().size

    def read(self, source_range: SourceRange) -> Iterator[EdgeChunk]:
        ranges, table = self._ranges(), self._table()
        with OpenFiles(self.work) as opened:
            for file in ranges.collected[source_range.file]:
                numbers = _numbers(ranges, table, SortedNames(opened, file))
                for start in range(0, file.num_edges, CHUNK_EDGES):
                    stop = min(start + CHUNK_EDGES, file.num_edges)
                    source, target = file.read_ends(opened, start, stop)
                    yield EdgeChunk(numbers[source], numbers[target], file.read_weights(opened, start, stop))


def _numbers(ranges: NameRanges, table: NameTable, names: SortedNames) -> NDArray[np.int64]:
    """(num_names,) int64 numbers of a file's names: the number within the range, plus the range's first number."""
    numbers = names.file.read_numbers(names.files)
    # Names ascend within the file, so the names of one range are consecutive and share one offset.
    cuts = [ranges.cut(names, number) for number in range(len(table.first_name))]
    numbers += np.repeat(np.array(table.first_name[:-1], np.int64), np.diff(cuts))
    return numbers
