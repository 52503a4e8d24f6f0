"""What is stored about lanes: in the records of the tasks that wrote them, and in lists for tasks that read them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.external_sort.merge_levels import Level
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.format.files import read_json, write_json

#: Span and number of a file within its level.
At = tuple[int, int]


class LaneTask(Protocol):
    """A task that writes a lane, and records :func:`lane_facts`."""

    @property
    def writer(self) -> ArtifactWriter: ...


def lane_facts(lane: Lane, num_bytes: int) -> dict[str, Any]:
    """What the record of a task says about its lane.

    Args:
        lane: the lane, whose path is relative to the work folder.
        num_bytes: bytes that were written to it.
    """
    return {"lane": lane.to_json(), "bytes": num_bytes}


def recorded_lane(record: TaskRecord) -> Lane:
    """The lane that a finished task wrote."""
    lane = Lane.from_json(record.facts["lane"])
    # Lanes of one file share its path, so that a task that names many of them is small to send.
    return Lane(sys.intern(lane.path), lane.number, lane.lanes)


def has_lane(task: LaneTask, record: TaskRecord) -> bool:
    """Whether a record names a lane, and its file is there and long enough."""
    return _has_lane(task.writer.work, record)


def kept_records(writer: ArtifactWriter, tasks: Sequence[str]) -> list[TaskRecord] | None:
    """The records of the named tasks, if all have finished and their lanes are still there; else None."""
    recorded = writer.recorded_of(tasks)
    if all(task in recorded and _has_lane(writer.work, recorded[task]) for task in tasks):
        return [recorded[task] for task in tasks]
    return None


def kept_level(
    writer: ArtifactWriter, levels: Sequence[Level], names: Callable[[Level], Mapping[At, str]]
) -> tuple[int, dict[At, TaskRecord]]:
    """The last level of merges that an earlier run completed and whose lanes are still there; 0 if there is none.

    Args:
        names: the names of the tasks of a level, by span and number.

    Returns:
        Number of the level, and the records of its tasks by span and number.
    """
    for level in reversed(levels[1:]):
        tasks = names(level)
        records = kept_records(writer, list(tasks.values()))
        if records is not None:
            return level.number, dict(zip(tasks, records, strict=True))
    return 0, {}


def _has_lane(work: Path, record: TaskRecord) -> bool:
    # Earlier versions wrote a file for each task, under a name that is not in its record.
    return "lane" in record.facts and recorded_lane(record).is_intact(work, record.facts["bytes"])


def save_lanes(path: Path, found: Mapping[At, Lane]) -> None:
    """Write the list of the lanes of the last level, which readers need instead of all records.

    Args:
        found: the lanes by span and number.
    """
    # The lanes of a span follow each other, in the order of their numbers.
    ordered = sorted(found)
    sizes = Counter(span for span, _ in ordered)
    content = {"sizes": list(sizes.items()), "lanes": lanes_to_json([found[at] for at in ordered])}
    write_json(path, content, durable=False, indent=None)


def lanes_of_spans(path: Path, spans: Sequence[int]) -> dict[int, list[Lane]]:
    """The lanes of some spans in a list, by span; spans without positions have none."""
    content = read_json(path)
    found, start = {}, 0
    for span, size in content["sizes"]:
        if span in spans:
            found[span] = lanes_from_json(content["lanes"], start, start + size)
        start += size
    return found


def lanes_to_json(lanes: Sequence[Lane]) -> dict[str, Any]:
    """A list of many lanes of few files; JSON."""
    files: dict[tuple[str, int], int] = {}
    chosen = [files.setdefault((lane.path, lane.lanes), len(files)) for lane in lanes]
    return {"files": list(map(list, files)), "file": chosen, "number": [lane.number for lane in lanes]}


def lanes_from_json(content: Mapping[str, Any], start: int, stop: int) -> list[Lane]:
    """Lanes ``start`` to ``stop`` (exclusive) of a list."""
    chosen = zip(content["file"][start:stop], content["number"][start:stop], strict=True)
    return [Lane(path, number, lanes) for file, number in chosen for path, lanes in [content["files"][file]]]
