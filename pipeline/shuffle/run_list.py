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
from gnnloom.storage.format.files import read_json, write_json

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


def run_facts(lane: Lane, layouts: Sequence[Layout]) -> dict[str, Any]:
    """What the record of a task says about the runs in its lane."""
    return {
        "lane": lane.to_json(),
        "bytes": layouts[-1].stop if layouts else 0,
        "runs": [[layout.start, layout.num_rows] for layout in layouts],
    }


def recorded_runs(record: TaskRecord, shuffle: str) -> list[RunPlace]:
    """The runs that a finished task wrote."""
    facts = record.facts["runs"][shuffle]
    path, *rest = facts["lane"]
    # Lanes of one file share its path, so that a task that names many of them is small to send.
    lane = Lane(sys.intern(path), *rest)
    return [RunPlace(lane, start, num_rows) for start, num_rows in facts["runs"]]


def has_runs(work: Path, record: TaskRecord, shuffle: str) -> bool:
    """Whether a record names the runs of a shuffle, and the file with their lane is there and long enough."""
    facts = record.facts.get("runs", {}).get(shuffle)
    return facts is not None and Lane.from_json(facts["lane"]).is_intact(work, facts["bytes"])


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


def num_spans(path: Path) -> int:
    """Spans of the last level."""
    return int(read_json(path)["spans"])


def runs_of_spans(path: Path, spans: range) -> Iterator[tuple[int, list[RunPlace]]]:
    """Some consecutive spans of a list, each with its runs; spans without runs are left out."""
    content = read_json(path)
    start = 0
    for span, size in content["sizes"]:
        if span in spans:
            rows = content["runs"][start : start + size]
            yield span, [RunPlace(_lane(content["files"][file], number), at, count) for file, number, at, count in rows]
        start += size


def _lane(file: Sequence[Any], number: int) -> Lane:
    path, lanes = file
    return Lane(path, number, lanes)
