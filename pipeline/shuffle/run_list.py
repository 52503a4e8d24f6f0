"""Locates runs: in the records of the tasks that wrote them, and in a list for the tasks that read them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.runs import SortedRun
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.format.artifact import TaskRecord

#: Span, and number among the sources of the span.
At = tuple[int, int]


@dataclass(frozen=True)
class LaneRuns:
    """The runs in the lane of one task, as its record describes them or, without records, as the task returns them.

    They follow each other in the lane, so that this is as small for many runs as for one.

    Attributes:
        num_bytes: of all runs.
        num_rows: likewise.
    """

    lane: Lane
    num_bytes: int
    num_rows: int

    @classmethod
    def recorded(cls, record: TaskRecord, shuffle: str) -> LaneRuns | None:
        """The runs of a finished task; None if it wrote none of the shuffle."""
        facts = record.facts.get("runs", {}).get(shuffle)
        if facts is None:
            return None
        path, *rest = facts["lane"]
        # Lanes of one file share its path, so that a task that names many lanes is small to send.
        return cls(Lane(sys.intern(path), *rest), facts["bytes"], facts["rows"])

    def to_json(self) -> dict[str, Any]:
        """The value as JSON for a record."""
        return {"lane": self.lane.to_json(), "bytes": self.num_bytes, "rows": self.num_rows}

    def open(self, files: OpenFiles, columns: tuple[Column, ...]) -> Iterator[SortedRun]:
        """Open the runs, in the order in which they were written.

        Raises:
            DamagedWorkError: the lane is damaged.
        """
        start = 0
        while start < self.num_bytes:
            run = SortedRun(files.lane(self.lane), start, columns)
            yield run
            start = run.layout.stop

    def is_intact(self, work: Path) -> bool:
        """Whether the file with the lane is there and long enough."""
        return self.lane.is_intact(work, self.num_bytes)


def save_sources(path: Path, spans: int, found: Mapping[At, LaneRuns]) -> None:
    """Write the list of the runs of a level, by span and source; readers need it instead of all records.

    Args:
        spans: of the level.
    """
    files: dict[tuple[str, int, int], int] = {}
    sources = []
    for at, runs in sorted(found.items()):
        file = files.setdefault((runs.lane.path, runs.lane.lanes, runs.lane.page_bytes), len(files))
        sources.append([*at, file, runs.lane.number, runs.num_bytes, runs.num_rows])
    content = {"spans": spans, "files": list(map(list, files)), "sources": sources}
    write_json(path, content, durable=False, indent=None)


def save_unmerged(path: Path, lanes: Sequence[LaneRuns]) -> None:
    """Write the list of runs that are not merged, in the order of the tasks that wrote them."""
    save_sources(path, 1, {(0, source): runs for source, runs in enumerate(lanes)})


@dataclass(frozen=True)
class RunList:
    """The list of the runs of a level.

    Attributes:
        spans: of the level.
    """

    spans: int
    _content: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> RunList:
        content = read_json(path)
        return cls(content["spans"], content)

    def of(self, spans: range, group: range | None = None) -> dict[int, list[LaneRuns]]:
        """The runs of some spans, by span.

        Args:
            group: numbers of the sources of each span; by default all.
        """
        found: dict[int, list[LaneRuns]] = {span: [] for span in spans}
        for span, source, file, number, num_bytes, num_rows in self._content["sources"]:
            if span in spans and (group is None or source in group):
                path, *pages = self._content["files"][file]
                found[span].append(LaneRuns(Lane(path, number, *pages), num_bytes, num_rows))
        return found
