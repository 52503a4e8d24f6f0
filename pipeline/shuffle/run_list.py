"""Where runs are: in the records of the tasks that wrote them, and in a list for the tasks that read them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.shuffle.runs import Layout
from gnnloom.storage.format.artifact import TaskRecord
from gnnloom.storage.format.files import read_json, write_json
from gnnloom.storage.matrix.ranges import Span

#: Span, and number among the sources of the span.
At = tuple[int, int]


@dataclass(frozen=True)
class RunPlace:
    """A run.

    Attributes:
        lane: that it is in, relative to the work folder.
        start: byte of the lane at which it begins.
        num_rows: its rows.
    """

    lane: Lane
    start: int
    num_rows: int


@dataclass(frozen=True)
class LaneRuns:
    """The runs in the lane of one task: what its record says about them, or, without records, what the task returns.

    Attributes:
        num_bytes: of the lane.
        runs: first byte, and number of rows, of each run.
    """

    lane: Lane
    num_bytes: int
    runs: tuple[Span, ...]

    @classmethod
    def of(cls, lane: Lane, layouts: Sequence[Layout]) -> LaneRuns:
        """The runs that were written with these layouts."""
        num_bytes = layouts[-1].stop if layouts else 0
        return cls(lane, num_bytes, tuple((layout.start, layout.num_rows) for layout in layouts))

    @classmethod
    def recorded(cls, record: TaskRecord, shuffle: str) -> LaneRuns | None:
        """The runs of a finished task; None if it wrote none of the shuffle."""
        facts = record.facts.get("runs", {}).get(shuffle)
        if facts is None:
            return None
        path, *rest = facts["lane"]
        # Lanes of one file share its path, so that a task that names many of them is small to send.
        return cls(Lane(sys.intern(path), *rest), facts["bytes"], tuple(map(tuple, facts["runs"])))

    def to_json(self) -> dict[str, Any]:
        """As it is in a record."""
        return {"lane": self.lane.to_json(), "bytes": self.num_bytes, "runs": list(map(list, self.runs))}

    @property
    def num_rows(self) -> int:
        """Rows of all runs."""
        return sum(num_rows for _, num_rows in self.runs)

    @property
    def places(self) -> list[RunPlace]:
        """The runs, in their order."""
        return [RunPlace(self.lane, start, num_rows) for start, num_rows in self.runs]

    def is_intact(self, work: Path) -> bool:
        """Whether the file with the lane is there and long enough."""
        return self.lane.is_intact(work, self.num_bytes)


def save_sources(path: Path, spans: int, found: Mapping[At, Sequence[RunPlace]]) -> None:
    """Write the list of the runs of a level, by span and source; readers need it instead of all records.

    Args:
        spans: of the level.
    """
    files: dict[tuple[str, int], int] = {}
    sources, runs = [], []
    for at in sorted(found):
        sources.append([*at, len(found[at])])
        for run in found[at]:
            file = files.setdefault((run.lane.path, run.lane.lanes), len(files))
            runs.append([file, run.lane.number, run.start, run.num_rows])
    content = {"spans": spans, "files": list(map(list, files)), "sources": sources, "runs": runs}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content, durable=False, indent=None)


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

    def of(self, spans: range, group: range | None = None) -> dict[int, list[RunPlace]]:
        """The runs of some spans, by span.

        Args:
            group: numbers of the sources of each span; by default all.
        """
        found: dict[int, list[RunPlace]] = {span: [] for span in spans}
        start = 0
        for span, source, count in self._content["sources"]:
            if span in spans and (group is None or source in group):
                found[span] += map(self._place, self._content["runs"][start : start + count])
            start += count
        return found

    def _place(self, run: Sequence[int]) -> RunPlace:
        file, number, start, num_rows = run
        path, lanes = self._content["files"][file]
        return RunPlace(Lane(path, number, lanes), start, num_rows)
