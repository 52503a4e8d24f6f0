"""A table whose rows were shuffled into buckets of vertices, read in the order of the vertices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.ingest.tables.lookup import VertexBuckets, VertexLookup
from gnnloom.pipeline.shuffle.columns import row_bytes
from gnnloom.pipeline.shuffle.runs import BLOCK_BYTES, Section
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.source import KeyedSource
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.matrix.ranges import Span


@dataclass
class RowCounts:
    """Counts of the rows that were found while a range of vertices was filled.

    Attributes:
        placed: rows of the table that belong to these vertices.
        unknown: rows with ids in this range that do not belong to any vertex.
        missing: the first vertex without a row; -1 if there is none.
    """

    placed: int = 0
    unknown: int = 0
    missing: int = -1

    def to_facts(self) -> dict[str, int]:
        return {"placed": self.placed, "left_out": self.unknown, "missing": self.missing}


@dataclass(frozen=True)
class RoutedTable:
    """The rows of a table after all merges; small and picklable, so that tasks can hold it.

    Attributes:
        source: the table, for errors.
        ids: folder of the ids of the vertices.
        buckets: of the vertices.
        shuffle: of the rows, by bucket.
        work: folder of the shuffle's files.
    """

    source: KeyedSource
    ids: Path
    buckets: VertexBuckets
    shuffle: Shuffle
    work: Path

    def read(self, array: str, start: int, stop: int, counts: RowCounts) -> Iterator[NDArray[Any]]:
        """The rows of the vertices that one task writes, in consecutive blocks, one for each bucket.

        Args:
            array: name of the array.
            start, stop: the task's vertices.
            counts: counts to update.

        Raises:
            InputError: a vertex has two rows.
            DamagedWorkError: a file is damaged.
        """
        ids = SourceIds.at(self.ids)
        with OpenFiles(self.work) as files:
            rows = self.shuffle.rows(self.work, files)
            for bucket in self.buckets.buckets_of(start, stop):
                sections = rows.sections(bucket, bucket + 1)
                yield self._filled(array, ids, sections, self.buckets.vertices_of(bucket), counts)

    def _filled(
        self, array: str, ids: SourceIds, sections: Sequence[Section], vertices: Span, counts: RowCounts
    ) -> NDArray[Any]:
        """The rows of one bucket's vertices."""
        num_rows = vertices[1] - vertices[0]
        lookup, rows = VertexLookup(ids, *vertices), self.buckets.values.empty(num_rows)
        rows[:] = VERTEX_ARRAYS[array].fill or 0
        # Flags, because rows come in any order and no value of an array can stand for "not yet filled".
        taken, placed = np.zeros(num_rows, bool), 0
        for section in sections:
            for names, at, values in _blocks(section):
                found = lookup.find(names)
                known = np.flatnonzero(found >= 0)
                places = found[known]
                again = taken[places]
                taken[places], rows[places] = True, values[known]
                placed += len(known)
                # Fewer if a vertex has a row from an earlier block, or two from this one.
                if np.count_nonzero(taken) < placed:
                    again |= _repeated(places)
                    raise self.source.row_error(int(at[known[np.argmax(again)]]), "the vertex already has a row")
                counts.unknown += len(found) - len(known)
        counts.placed += placed
        if counts.missing < 0 and not taken.all():
            counts.missing = vertices[0] + int(np.argmin(taken))
        return rows


def _blocks(section: Section) -> Iterator[tuple[Names, NDArray[np.int64], NDArray[Any]]]:
    """Ids, places and values of the rows of a section, a few MiB at a time."""
    columns = section.run.layout.columns
    step = max(1, BLOCK_BYTES // row_bytes(columns))
    for start in range(*section.rows, step):
        rows = (start, min(start + step, section.rows[1]))
        length, at, values, text = (section.run.read(column.name, rows) for column in columns)
        yield Names(np.append(0, np.cumsum(length)), text), at, values


def _repeated(vertices: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(num_vertices,) bool; whether a vertex occurs earlier in the array."""
    repeated = np.ones(len(vertices), bool)
    repeated[np.unique(vertices, return_index=True)[1]] = False
    return repeated
