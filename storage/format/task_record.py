"""Records of finished tasks, which let a killed stage continue where it stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from gnnloom.storage.disk.files import JsonObject, parsing, read_json, reading_work, write_json
from gnnloom.storage.errors import CorruptError, FormatError
from gnnloom.storage.format.arrays import ArrayRecord, Piece

#: Records that are looked for one by one; for more, all names are listed.
_FEW: Final = 64


class Facts(dict[str, Any]):
    """Facts that a task found, by name, as JSON. A missing name means that the record does not fit the task."""

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
    """Record of one finished task.

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


class RecordFolder:
    """The records of one artifact's tasks: each file is read once, and again if it is not the same file any more.

    Several threads may use it. It holds what it has read: as much as the commit needs, which reads all records.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        #: Records read so far, with the identity of their files.
        self._read: dict[str, tuple[tuple[int, ...], TaskRecord]] = {}

    def names(self, prefix: str = "") -> list[str]:
        """The names of the files of all tasks whose names may start with ``prefix``, in order."""
        start = record_name(prefix).removesuffix(".json")
        try:
            found = os.listdir(self._path)  # noqa: PTH208 - thousands of names, and no path is needed
        except FileNotFoundError:
            return []
        return sorted(name for name in found if name.startswith(start) and _is_record(name))

    def present(self, names: Iterable[str]) -> list[str]:
        """The names among ``names`` that are names of files, in order."""
        wanted = set(names)
        # A graph with types has phases of one task and records of thousands: a list of all would be read for each.
        if len(wanted) <= _FEW:
            return sorted(name for name in wanted if (self._path / name).exists())
        return sorted(wanted.intersection(self.names()))

    def read(self, names: Iterable[str], is_wanted: Callable[[str], bool]) -> dict[str, TaskRecord]:
        """The records in some files, by the name of the task.

        Args:
            is_wanted: whether a task is; several can have one file name, or one start of it.

        Raises:
            DamagedWorkError: a record is damaged.
        """
        records = {}
        for name in names:
            record = self._record(name)
            if is_wanted(record.task):
                records[record.task] = record
        return records

    def _record(self, name: str) -> TaskRecord:
        path = self._path / name
        # Before the file is read: one that is replaced meanwhile is read again next time.
        found = path.stat()
        file = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        if name not in self._read or self._read[name][0] != file:
            self._read[name] = file, self._load(path)
        return self._read[name][1]

    def _load(self, path: Path) -> TaskRecord:
        with reading_work(path), parsing(path, "the record of a task"):
            record = TaskRecord.from_json(read_json(path))
            if record_name(record.task) != path.name:
                raise CorruptError(f"{path}: the record of another task, {record.task}")
        return record

    def write(self, record: TaskRecord) -> None:
        """Record a task; replaces an earlier record."""
        name = record_name(record.task)
        # On one line: there are thousands of records, and Python writes lines ten times faster.
        write_json(self._path / name, record.to_json(), indent=None)
        self._read.pop(name, None)

    def forget(self, task: str) -> None:
        """Drop a task's record."""
        name = record_name(task)
        (self._path / name).unlink(missing_ok=True)
        # A file that is made soon may get the number and the time of the dropped one.
        self._read.pop(name, None)


def record_name(task: str) -> str:
    """Name of the file with the record of a task."""
    return f"{task.replace('/', '-')}.json"


def _is_record(name: str) -> bool:
    # A record that is being written has a temporary name, which starts with a dot.
    return name.endswith(".json") and not name.startswith(".")


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
