"""Where runs are: in the records of the tasks that wrote them, and in a list for the tasks that read them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.shuffle.runs import Layout
from gnnloom.storage.format.artifact import TaskRecord
from gnnloom.storage.format.files import write_json
from gnnloom.storage.matrix.ranges import Span

#: Span, and number among the runs of the span.
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


def save_runs(path: Path, spans: int, found: Mapping[At, RunPlace]) -> None:
    """Write the list of the runs of the last level, which has so many spans; readers need it instead of all records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = sorted(found)
    files: dict[tuple[str, int], int] = {}
    rows = []
    for at in ordered:
        run = found[at]
        file = files.setdefault((run.lane.path, run.lane.lanes), len(files))
        rows.append([file, run.lane.number, run.start, run.num_rows])
    sizes = Counter(span for span, _ in ordered)
    content = {"spans": spans, "sizes": list(sizes.items()), "files": list(map(list, files)), "runs": rows}
    write_json(path, content, durable=False, indent=None)


def save_unmerged(path: Path, lanes: Sequence[LaneRuns]) -> None:
    """Write the list of runs that are not merged, in the order of the tasks that wrote them."""
    places = [place for each in lanes for place in each.places]
    save_runs(path, 1, {(0, source): place for source, place in enumerate(places)})


def runs_of_spans(content: Mapping[str, Any], spans: range) -> Iterator[tuple[int, list[RunPlace]]]:
    """Some consecutive spans of a list that was read, each with its runs; spans without runs are left out."""
    start = 0
    for span, size in content["sizes"]:
        if span in spans:
            rows = content["runs"][start : start + size]
            yield span, [RunPlace(_lane(content["files"][file], number), at, count) for file, number, at, count in rows]
        start += size


def _lane(file: Sequence[Any], number: int) -> Lane:
    path, lanes = file
    return Lane(path, number, lanes)
