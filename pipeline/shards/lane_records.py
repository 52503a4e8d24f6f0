"""What is stored about lanes: in the records of the tasks that wrote them, and in lists for tasks that read them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord


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


def _has_lane(work: Path, record: TaskRecord) -> bool:
    # Earlier versions wrote a file for each task, under a name that is not in its record.
    return "lane" in record.facts and recorded_lane(record).is_intact(work, record.facts["bytes"])


def lanes_to_json(lanes: Sequence[Lane]) -> dict[str, Any]:
    """A list of many lanes of few files; JSON."""
    files: dict[tuple[str, int], int] = {}
    chosen = [files.setdefault((lane.path, lane.lanes), len(files)) for lane in lanes]
    return {"files": list(map(list, files)), "file": chosen, "number": [lane.number for lane in lanes]}


def lanes_from_json(content: Mapping[str, Any], start: int, stop: int) -> list[Lane]:
    """Lanes ``start`` to ``stop`` (exclusive) of a list."""
    chosen = zip(content["file"][start:stop], content["number"][start:stop], strict=True)
    return [Lane(path, number, lanes) for file, number in chosen for path, lanes in [content["files"][file]]]
