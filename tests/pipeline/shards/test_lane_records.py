"""What is stored about lanes: records that hold only as long as the files do, and short lists."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet, write_arrays
from gnnloom.pipeline.shards.lane_records import (
    has_lane,
    kept_records,
    lane_facts,
    lanes_from_json,
    lanes_to_json,
    recorded_lane,
)
from gnnloom.storage.format.artifact import ArtifactWriter


@dataclass(frozen=True)
class WritingTask:
    """Writes a number to its lane."""

    writer: ArtifactWriter
    name: str
    lane: Lane

    def run(self) -> None:
        with self.writer.task(self.name) as output:
            size = write_arrays(self.writer.work, self.lane, [np.array([7])])
            output.facts = lane_facts(self.lane, size)


@pytest.fixture
def tasks(tmp_path: Path) -> list[WritingTask]:
    """Three tasks that have run."""
    writer = ArtifactWriter(tmp_path, "shards", "key")
    lanes = LaneSet.create(writer.work, "folder/lanes", 3)
    tasks = [WritingTask(writer, f"write/{number}", lanes.lane(number)) for number in range(3)]
    for task in tasks:
        task.run()
    return tasks


def test_records_hold_while_all_files_are_there(tasks: list[WritingTask]) -> None:
    writer, names = tasks[0].writer, [task.name for task in tasks]
    records = kept_records(writer, names)
    assert records is not None
    assert [recorded_lane(record) for record in records] == [task.lane for task in tasks]
    assert all(map(has_lane, tasks, records))
    assert kept_records(writer, [*names, "write/3"]) is None
    (writer.work / tasks[1].lane.path).write_bytes(bytes(7))
    assert [has_lane(task, record) for task, record in zip(tasks, records, strict=True)] == [True, False, True]
    assert kept_records(writer, names) is None


def test_a_record_of_an_earlier_version_has_no_lane(tasks: list[WritingTask]) -> None:
    with tasks[0].writer.task("write/0") as output:
        output.facts = {"entries": [1]}
    (record,) = tasks[0].writer.recorded_of(["write/0"]).values()
    assert not has_lane(tasks[0], record)
    assert kept_records(tasks[0].writer, ["write/0"]) is None


def test_a_list_names_every_file_once_and_gives_any_part_of_it() -> None:
    # As after two kills: the tasks of three commands.
    sets = [LaneSet(f"folder/{letter}", count) for letter, count in (("a", 5000), ("b", 5000), ("c", 40))]
    lanes = [sets[number % 3].lane(number % 40) for number in range(3000)]
    content = lanes_to_json(lanes)
    text = json.dumps(content)
    assert all(text.count(path) == 1 for path in {lane.path for lane in lanes})
    assert lanes_from_json(json.loads(text), 0, 3000) == lanes
    assert lanes_from_json(json.loads(text), 17, 33) == lanes[17:33]
    assert lanes_from_json(lanes_to_json([]), 0, 0) == []
