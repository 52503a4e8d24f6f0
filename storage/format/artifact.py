"""Artifacts and their commit protocol: immutable, named by the key of what made them, complete or absent.

A stage calls :meth:`ArtifactWriter.begin`. Its tasks write arrays below the artifact's folder, and each finished task
leaves one small *record* (:meth:`ArtifactWriter.task`). :meth:`ArtifactWriter.commit` writes the manifest as its last
act. Readers refuse a folder without a manifest. If the stage is killed, the next run finds the tasks that were recorded
and redoes the others; because tasks are deterministic, the bytes equal those of a run that was never killed.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import xxhash

from gnnloom.storage.errors import CorruptError, FormatError, IncompleteError, NotFoundError
from gnnloom.storage.format.arrays import ArrayReader, ArrayRecord, Piece, ReadCounter
from gnnloom.storage.format.files import JsonObject, parsing, read_json, sync_tree, tree_bytes, write_json
from gnnloom.storage.format.locks import locked
from gnnloom.storage.format.schema import FORMAT_VERSION, SCHEMAS, check_records
from gnnloom.storage.meters import bytes_moved, peak_memory

MANIFEST = "manifest.json"
WORK = ".work"


def artifact_key(kind: str, parameters: JsonObject, inputs: JsonObject) -> str:
    """16 hexadecimal digits that name what a stage makes of these parameters and inputs."""
    content = {"format": FORMAT_VERSION, "kind": kind, "parameters": parameters, "inputs": inputs}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_group(path: Path, attributes: JsonObject) -> None:
    """Make ``path`` a Zarr group with these attributes, for other readers of Zarr.

    Tasks make groups that they share, and at the same time; Zarr's own way to open or make one is a race.
    """
    content = {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}
    write_json(path / "zarr.json", content, durable=False)


class Artifact:
    """A complete artifact, opened for reading."""

    def __init__(self, path: Path, counter: ReadCounter | None = None) -> None:
        """Read and check the manifest.

        Raises:
            NotFoundError: there is nothing at ``path``.
            IncompleteError: the artifact was begun and not finished.
            CorruptError: the manifest is damaged.
            FormatError: it is of a newer format, or its arrays break the registry of arrays.
        """
        self.path = path
        self.kind, self.key = path.parent.name, path.name
        self._counter = counter
        self.manifest = _read_manifest(path)
        self.parameters: dict[str, Any] = self.manifest["parameters"]
        self.inputs: dict[str, str] = self.manifest["inputs"]
        self.facts: dict[str, Any] = self.manifest["facts"]
        self.measured: dict[str, Any] = self.manifest["measured"]
        self.sizes: dict[str, int] = self.manifest["sizes"]
        self.digest: str = self.manifest["digest"]

    @cached_property
    def records(self) -> dict[str, ArrayRecord]:
        """The arrays by their path, checked against the registry."""
        arrays = self.manifest["arrays"]
        with parsing(self.path / MANIFEST, "a list of arrays"):
            records = {name: ArrayRecord.from_json(name, content) for name, content in arrays.items()}
            check_records(str(self.path), self.kind, records.values(), self.sizes)
        return records

    def __contains__(self, name: str) -> bool:
        return name in self.manifest["arrays"]

    def array(self, name: str, counter: ReadCounter | None = None) -> ArrayReader:
        """Open one array.

        Raises:
            NotFoundError: the artifact has no such array.
            CorruptError: what is stored is not what the manifest says.
        """
        if name not in self.records:
            raise NotFoundError(f"{self.path}: no array {name}; there are {', '.join(sorted(self.records)[:8])}")
        return ArrayReader(self.path, self.records[name], counter or self._counter)

    def verify(self) -> int:
        """Read everything against the digests; returns the number of arrays.

        Raises:
            CorruptError: the first thing found broken.
        """
        if _digest_of(self.records.values()) != self.digest:
            raise CorruptError(f"{self.path / MANIFEST}: the digest does not match the arrays listed")
        for record in self.records.values():
            ArrayReader(self.path, record).verify()
        return len(self.records)

    def stored_bytes(self) -> int:
        return tree_bytes(self.path)


#: What stands in a manifest, beside the version of the format.
_ENTRIES: Mapping[str, type] = {
    **dict.fromkeys(("kind", "key", "digest"), str),
    **dict.fromkeys(("parameters", "inputs", "facts", "measured", "sizes", "arrays"), dict),
}


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = read_json(path / MANIFEST)
    except FileNotFoundError:
        if not path.is_dir():
            raise NotFoundError(f"{path}: there is no such artifact") from None
        raise IncompleteError(
            f"{path}: begun and not finished (no {MANIFEST}); run the same command again to finish it"
        ) from None
    version = manifest.get("format")
    if not isinstance(version, int):
        raise FormatError(f"{path / MANIFEST}: not written by gnnloom (no format version)")
    if version > FORMAT_VERSION:
        raise FormatError(
            f"{path / MANIFEST}: format {version} is newer than {FORMAT_VERSION}, the newest this gnnloom reads"
        )
    wrong = sorted(name for name, wanted in _ENTRIES.items() if not isinstance(manifest.get(name), wanted))
    if wrong or manifest["kind"] not in SCHEMAS:
        raise FormatError(
            f"{path / MANIFEST}: lacks or mistypes {wrong} or has an unknown kind {manifest.get('kind')!r}"
        )
    return manifest


def _digest_of(records: Iterable[ArrayRecord]) -> str:
    """One digest of all arrays: names, shapes, dtypes and contents; nothing of how or when they were made."""
    state = xxhash.xxh3_128()
    for record in sorted(records, key=lambda record: record.path):
        line = json.dumps([record.path, record.to_json()], sort_keys=True, separators=(",", ":"))
        state.update(line.encode())
    return state.hexdigest()


@dataclass(frozen=True)
class TaskRecord:
    """What one finished task left: the arrays (or pieces) that it wrote and what it found."""

    task: str
    arrays: tuple[ArrayRecord, ...]
    facts: Mapping[str, Any]
    seconds: float
    peak_memory: int
    bytes_read: int = 0
    bytes_written: int = 0

    @classmethod
    def from_json(cls, content: JsonObject) -> TaskRecord:
        arrays = tuple(ArrayRecord.from_json(name, array) for name, array in content["arrays"].items())
        numbers = ("seconds", "peak_memory", "bytes_read", "bytes_written")
        return cls(content["part"], arrays, content["facts"], *(content.get(name, 0) for name in numbers))


@dataclass(frozen=True)
class ArtifactWriter:
    """A stage's output while it is made; small and picklable, so that tasks can hold it.

    ``path`` is the artifact's final folder, ``path / ".work"`` holds plans, records and spill files
    and goes away with the commit.
    """

    path: Path
    kind: str
    key: str

    @property
    def work(self) -> Path:
        return self.path / WORK

    @property
    def is_complete(self) -> bool:
        return (self.path / MANIFEST).exists()

    @classmethod
    @contextmanager
    def begin(cls, dataset: Path, kind: str, parameters: JsonObject, inputs: JsonObject) -> Iterator[ArtifactWriter]:
        """Take the artifact for writing, waiting (and saying so) while another process makes the same one.

        Look at :attr:`is_complete` first: the artifact may be there already, made earlier or by
        the process that was waited for.

        Args:
            dataset: folder of the dataset.
            parameters: all that decides the artifact's bytes besides its inputs.
            inputs: name to key (of an artifact) or fingerprint (of a source).
        """
        key = artifact_key(kind, parameters, inputs)
        path = dataset / kind / key
        with locked(dataset, kind, key):
            writer = cls(path, kind, key)
            if not writer.is_complete:
                writer._prepare(parameters, inputs)
            yield writer

    def _prepare(self, parameters: JsonObject, inputs: JsonObject) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        plan_path = self.work / "plan.json"
        if plan_path.exists() and _rebooted_since(read_json(plan_path)):
            self._drop_unsound_records()
        write_group(self.path.parent, {})
        write_group(self.path, {"encoding-type": f"gnnloom-{self.kind}", "encoding-version": str(FORMAT_VERSION)})
        write_json(plan_path, {"parameters": parameters, "inputs": inputs, **_boot()})

    def _drop_unsound_records(self) -> None:
        """After a crash of the machine a record may have outlived the data that it speaks of."""
        for record in self.recorded().values():
            try:
                for array in record.arrays:
                    ArrayReader(self.path, array).verify_pieces()
                sound = bool(record.arrays)
            except CorruptError:
                sound = False
            if not sound:
                self.forget(record.task)

    @contextmanager
    def task(self, name: str) -> Iterator[TaskOutput]:
        """Run one task: add its arrays and facts to the output; leaving the block records it."""
        output = TaskOutput(self, name)
        started, before = time.perf_counter(), bytes_moved()
        yield output
        moved = [now - then for now, then in zip(bytes_moved(), before, strict=True)]
        self._record(output, time.perf_counter() - started, *moved)

    def _record(self, output: TaskOutput, seconds: float, bytes_read: int, bytes_written: int) -> None:
        content = {
            "part": output.name,
            "arrays": {record.path: record.to_json() for record in _merge_pieces(output.arrays)},
            "facts": output.facts,
            "seconds": round(seconds, 4),
            "peak_memory": peak_memory(),
            "bytes_read": bytes_read,
            "bytes_written": bytes_written,
        }
        write_json(self._record_path(output.name), content)

    def _record_path(self, task: str) -> Path:
        # The folder and the key "part" are names on disk, which stay.
        return self.work / "parts" / f"{task.replace('/', '-')}.json"

    def recorded(self, prefix: str = "") -> dict[str, TaskRecord]:
        """The records of the finished tasks, by name."""
        records = {}
        for path in sorted((self.work / "parts").glob("*.json")):
            if path.name.startswith("."):
                continue
            content = read_json(path)
            with parsing(path, "the record of a task"):
                if content["part"].startswith(prefix):
                    records[content["part"]] = TaskRecord.from_json(content)
        return records

    def forget(self, task: str) -> None:
        """Drop a task's record, so that the task runs again."""
        self._record_path(task).unlink(missing_ok=True)

    def commit(
        self, tasks: Sequence[str], sizes: Mapping[str, int], facts: JsonObject, measured: JsonObject | None = None
    ) -> Artifact:
        """Publish the artifact: check that every task is recorded, write the manifest, drop the work folder.

        Args:
            tasks: names of all tasks that make up the artifact.
            sizes: sizes of the artifact's global dimensions (see :mod:`gnnloom.storage.format.schema`).
            facts: what was found; JSON, and the same for the same inputs.
            measured: what this run took, beside the tasks' seconds and peak memory; JSON.

        Raises:
            IncompleteError: tasks are missing; the message names them all.
            FormatError: the arrays break the registry.
        """
        recorded = self.recorded()
        missing = [task for task in tasks if task not in recorded]
        if missing:
            raise IncompleteError(
                f"{self.path}: {len(missing)} of {len(tasks)} tasks are missing: {', '.join(missing)}"
            )
        plan = read_json(self.work / "plan.json")
        records = _merge_pieces(record for task in tasks for record in recorded[task].arrays)
        check_records(str(self.path), self.kind, records, sizes)
        manifest = {
            "format": FORMAT_VERSION,
            "kind": self.kind,
            "key": self.key,
            "parameters": plan["parameters"],
            "inputs": plan["inputs"],
            "sizes": dict(sizes),
            "facts": dict(facts),
            "arrays": {record.path: record.to_json() for record in records},
            "digest": _digest_of(records),
            "measured": {**_measured(recorded.values()), **(measured or {})},
        }
        sync_tree(self.path, without=WORK)
        write_json(self.path / MANIFEST, manifest)
        shutil.rmtree(self.work, ignore_errors=True)
        return Artifact(self.path)


class TaskOutput:
    """Collects what a task wrote; made by :meth:`ArtifactWriter.task`."""

    def __init__(self, writer: ArtifactWriter, name: str) -> None:
        self.writer = writer
        self.name = name
        self.arrays: list[ArrayRecord] = []
        self.facts: dict[str, Any] = {}

    def add(self, record: ArrayRecord) -> None:
        self.arrays.append(record)


def _merge_pieces(records: Iterable[ArrayRecord]) -> list[ArrayRecord]:
    """One record per array, with the pieces of all its records in order."""
    merged: dict[str, ArrayRecord] = {}
    for record in records:
        before = merged.get(record.path)
        pieces: tuple[Piece, ...] = (before.pieces if before else ()) + record.pieces
        merged[record.path] = ArrayRecord(
            record.path,
            record.shape,
            record.dtype,
            record.dims,
            tuple(sorted(pieces, key=lambda piece: piece.start)),
        )
    return [merged[path] for path in sorted(merged)]


def _boot() -> dict[str, str]:
    """This machine and the moment since when what it wrote can have been lost only by a crash."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return {"host": platform.node(), "boot": path.read_text().strip() if path.exists() else ""}


def _rebooted_since(plan: Mapping[str, Any]) -> bool:
    now = _boot()
    return plan.get("host") == now["host"] and plan.get("boot") != now["boot"]


def _measured(records: Iterable[TaskRecord]) -> dict[str, Any]:
    """Seconds and bytes by phase (the task's name before its number), and the highest peak of any task."""
    sums: dict[str, dict[str, float]] = {"task_seconds": {}, "task_bytes_read": {}, "task_bytes_written": {}}
    peak = 0
    for record in records:
        phase = record.task.partition("/")[0]
        numbers = (record.seconds, record.bytes_read, record.bytes_written)
        for by_phase, number in zip(sums.values(), numbers, strict=True):
            by_phase[phase] = round(by_phase.get(phase, 0) + number, 4)
        peak = max(peak, record.peak_memory)
    return {**sums, "peak_memory": peak, "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
