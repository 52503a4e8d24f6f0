"""A table whose rows were brought into buckets of vertices, read in the order of the vertices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.merge_levels import Level
from gnnloom.pipeline.ingest.tables.lookup import VertexLookup
from gnnloom.pipeline.ingest.tables.plan import TablePlan
from gnnloom.pipeline.ingest.tables.row_file import RowFile, RowType, opened
from gnnloom.pipeline.sources.source import KeyedSource
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.matrix.ranges import Span


@dataclass
class RowCounts:
    """What was found while a range of vertices was filled.

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
    """The files of a table after all merges; small and picklable, so that tasks can hold it.

    Attributes:
        source: the table, for errors.
        values: type of a row.
        graph: folder of the graph artifact.
        plan: the buckets.
        folder: folder of the merged files.
        paths: the files, in the order of the table; empty if they were merged.
        levels: levels of merges.
        unknown: rows whose ids do not belong to any vertex and that were not put into a bucket.
    """

    source: KeyedSource
    values: RowType
    graph: Path
    plan: TablePlan
    folder: Path
    paths: tuple[Path, ...]
    levels: tuple[Level, ...]
    unknown: int

    def read(self, array: str, start: int, stop: int, counts: RowCounts) -> Iterator[NDArray[Any]]:
        """The rows of the vertices that one task writes, in consecutive blocks, one for each bucket.

        Args:
            array: name of the array.
            start, stop: the task's vertices.
            counts: counts to update.

        Raises:
            InputError: a vertex has two rows.
        """
        graph, last = Graph(Artifact(self.graph)), self.levels[-1]
        buckets = self.plan.buckets_of(start, stop)
        for number in sorted({self.plan.span_of(last, bucket) for bucket in buckets}):
            span = self.plan.span(last, number)
            with opened(self._files(number), self.values, span[1] - span[0]) as files:
                for bucket in range(max(span[0], buckets.start), min(span[1], buckets.stop)):
                    vertices = self.plan.vertices_of(bucket)
                    yield self._filled(array, graph, files, bucket - span[0], vertices, counts)

    def _files(self, span: int) -> Sequence[Path]:
        last = self.levels[-1]
        if not last.number:
            return self.paths
        return [merged_path(self.folder, last, span, source) for source in range(last.sources)]

    def _filled(
        self, array: str, graph: Graph, files: Sequence[RowFile], bucket: int, vertices: Span, counts: RowCounts
    ) -> NDArray[Any]:
        """The rows of one bucket's vertices."""
        num_rows = vertices[1] - vertices[0]
        lookup, rows = VertexLookup(graph, *vertices), self.values.empty(num_rows)
        rows[:] = VERTEX_ARRAYS[array].fill or 0
        # Flags, because rows come in any order and no value of an array can stand for "not yet filled".
        taken = np.zeros(num_rows, bool)
        for file in files:
            for names, at, values in file.blocks(bucket):
                found = lookup.find(names)
                known = np.flatnonzero(found >= 0)
                places = found[known]
                # Flags from earlier blocks do not show a vertex that occurs twice within this one.
                again = taken[places] | _repeated(places)
                if again.any():
                    raise self.source.row_error(int(at[known[np.argmax(again)]]), "the vertex already has a row")
                taken[places], rows[places] = True, values[known]
                counts.placed += len(known)
                counts.unknown += len(found) - len(known)
        if counts.missing < 0 and not taken.all():
            counts.missing = vertices[0] + int(np.argmin(taken))
        return rows


def merged_path(folder: Path, level: Level, span: int, source: int) -> Path:
    """One merged file."""
    return folder / str(level.number) / f"{span:06d}" / f"{source:06d}"


def _repeated(vertices: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(num_vertices,) bool; whether a vertex occurs earlier in the array."""
    repeated = np.ones(len(vertices), bool)
    repeated[np.unique(vertices, return_index=True)[1]] = False
    return repeated
