"""Records of finished tasks, which let a killed stage continue where it stopped."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from gnnloom.storage.errors import FormatError
from gnnloom.storage.format.arrays import ArrayRecord, Piece
from gnnloom.storage.format.files import JsonObject


class Facts(dict[str, Any]):
    """What a task found, by name; JSON. A name that is not there means that the record does not fit the task."""

    task: str

    @classmethod
    def of(cls, task: str, content: JsonObject) -> Facts:
        """The facts of a task's record."""
        facts = cls(content)
        facts.task = task
        return facts

    def __missing__(self, name: str) -> NoReturn:
        raise FormatError(
            f"the record of the task {self.task} has no {name}: it was damaged, or left by another version; remove the"
            " unfinished artifact with `gnnloom catalog gc`, and run the command again"
        )


@dataclass(frozen=True)
class TaskRecord:
    """What one finished task left.

    Attributes:
        task: name of the task, PHASE/NUMBER or longer.
        arrays: the arrays, or pieces of arrays, that it wrote.
        facts: what it found; JSON.
        seconds: wall-clock time.
        peak_memory: peak resident memory of the process so far, in bytes.
        bytes_read, bytes_written: by system calls of the task's thread; 0 if unknown.
    """

    task: str
    arrays: tuple[ArrayRecord, ...]
    facts: Mapping[str, Any]
    seconds: float
    peak_memory: int
    bytes_read: int = 0
    bytes_written: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "arrays": {record.path: record.to_json() for record in self.arrays},
            "facts": self.facts,
            "seconds": self.seconds,
            "peak_memory": self.peak_memory,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
        }

    @classmethod
    def from_json(cls, content: JsonObject) -> TaskRecord:
        arrays = tuple(ArrayRecord.from_json(name, array) for name, array in content["arrays"].items())
        numbers = ("seconds", "peak_memory", "bytes_read", "bytes_written")
        task, facts, found = content["task"], content["facts"], [content[name] for name in numbers]
        if not (isinstance(task, str) and isinstance(facts, dict) and all(isinstance(n, int | float) for n in found)):
            raise TypeError("a task, facts or measurements of another type")
        return cls(task, arrays, Facts.of(task, facts), *found)


def merge_pieces(records: Iterable[ArrayRecord]) -> list[ArrayRecord]:
    """One record per array, by path, with the pieces of all its records in order."""
    merged: dict[str, ArrayRecord] = {}
    for record in records:
        before = merged.get(record.path)
        pieces: tuple[Piece, ...] = (before.pieces if before else ()) + record.pieces
        # Sorted by row, so that the manifest is the same for any order in which the tasks finished.
        merged[record.path] = replace(record, pieces=tuple(sorted(pieces, key=lambda piece: piece.start)))
    return [merged[path] for path in sorted(merged)]


def sum_measurements(records: Iterable[TaskRecord]) -> dict[str, Any]:
    """Seconds and bytes by phase (the task's name up to its first slash), the highest peak, and the current time."""
    sums: dict[str, dict[str, float]] = {"task_seconds": {}, "task_bytes_read": {}, "task_bytes_written": {}}
    peak = 0
    for record in records:
        # By phase, not by task: the measurements must not grow with the number of tasks.
        phase = record.task.partition("/")[0]
        numbers = (record.seconds, record.bytes_read, record.bytes_written)
        for by_phase, number in zip(sums.values(), numbers, strict=True):
            by_phase[phase] = round(by_phase.get(phase, 0) + number, 4)
        peak = max(peak, record.peak_memory)
    return {**sums, "peak_memory": peak, "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
