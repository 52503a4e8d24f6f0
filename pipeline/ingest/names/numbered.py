"""Names as ids: every distinct name of a source gets its rank as its number, and the edges are read by number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.names.collect import collect_names
from gnnloom.pipeline.ingest.names.merge import NamePlan, merge_names
from gnnloom.pipeline.ingest.names.sorted_runs import NameRun, SortedNames
from gnnloom.pipeline.ingest.names.table import NameTable
from gnnloom.pipeline.sources.names import NamedEdgeSource
from gnnloom.pipeline.sources.source import CHUNK_EDGES, EdgeChunk, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.format.artifact import ArtifactWriter

_FOLDER, _PLAN, _TABLE = "names", "plan.json", "table.json"


def name_folder(writer: ArtifactWriter) -> Path:
    """Where the names of an artifact's source are numbered."""
    return writer.work / _FOLDER


def were_numbered(writer: ArtifactWriter) -> bool:
    """Whether an earlier run began to number the names of an artifact's source."""
    return name_folder(writer).exists()


def name_table_path(writer: ArtifactWriter) -> Path | None:
    """The table of the names of an artifact's vertices; None where their ids are numbers."""
    path = name_folder(writer) / _TABLE
    return path if path.exists() else None


def number_names(writer: ArtifactWriter, source: NamedEdgeSource, cluster: Cluster) -> NumberedEdges:
    """Number the names of a source in ascending order, or find that done.

    Raises:
        InputError: the source's; or it has no edges.
    """
    folder = name_folder(writer)
    plan = NamePlan.of(collect_names(writer, source, cluster))
    if not (folder / _TABLE).exists() or NamePlan.load(folder / _PLAN) != plan:
        (folder / _TABLE).unlink(missing_ok=True)
        plan.save(folder / _PLAN)
        NameTable.of(merge_names(writer, folder / _PLAN, cluster)).save(folder / _TABLE)
    return NumberedEdges(writer.work)


@dataclass(frozen=True)
class NumberedEdges:
    """The edges of a source whose names were numbered; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Attributes:
        work: folder of the artifact that is being made.
    """

    work: Path

    def identity(self) -> dict[str, Any]:
        return {"format": "numbered names"}

    def _plan(self) -> NamePlan:
        return NamePlan.load(self.work / _FOLDER / _PLAN)

    def num_vertices(self) -> int | None:
        return NameTable.load(self.work / _FOLDER / _TABLE).num_names

    def ranges(self) -> Sequence[SourceRange]:
        groups = enumerate(self._plan().runs)
        return [SourceRange(number, 0, sum(run.num_edges for run in runs)) for number, runs in groups]

    def read(self, part: SourceRange) -> Iterator[EdgeChunk]:
        plan, table = self._plan(), NameTable.load(self.work / _FOLDER / _TABLE)
        for run in plan.runs[part.file]:
            numbers = self._numbers(plan, table, run)
            for start in range(0, run.num_edges, CHUNK_EDGES):
                stop = min(start + CHUNK_EDGES, run.num_edges)
                source, target = run.read_ends(self.work, start, stop)
                yield EdgeChunk(numbers[source], numbers[target], run.read_weights(self.work, start, stop))

    def _numbers(self, plan: NamePlan, table: NameTable, run: NameRun) -> NDArray[np.int64]:
        """(num_names,) the numbers of a run's names: those within their range of names, and the range's first."""
        numbers = run.read_numbers(self.work)
        names = SortedNames(self.work, run)
        cuts = [plan.cut(names, number) for number in range(len(table.paths) + 1)]
        numbers += np.repeat(np.array(table.first_name[:-1], np.int64), np.diff(cuts))
        return numbers
