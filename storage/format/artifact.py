"""Artifacts and their commit protocol: immutable, named by the key of what made them, complete or absent.

A stage calls :meth:`ArtifactWriter.begin`. Its tasks write arrays below the artifact's folder, and each finished task
leaves one small *record* (:meth:`ArtifactWriter.task`). :meth:`ArtifactWriter.commit` writes the manifest as its last
act. Readers refuse a folder without a manifest. If the stage is killed, the next run finds the tasks that were recorded
and redoes the others; because tasks are deterministic, the bytes equal the bytes of a run that was never killed.

Stages and readers import the whole protocol from here; manifests and task records have files of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from gnnloom.storage.disk.files import (
    WORK,
    JsonObject,
    parsing,
    read_json,
    refuse_link,
    sync_folder,
    sync_paths,
    tree_bytes,
    write_json,
)
from gnnloom.storage.disk.groups import METADATA, write_group
from gnnloom.storage.disk.locks import held, lock_path, locked
from gnnloom.storage.disk.work_folder import (
    BESIDE,
    Scratch,
    open_work_folder,
    remove_tree_and_scratch,
    remove_work_folder,
)
from gnnloom.storage.errors import CorruptError, IncompleteError, NotFoundError
from gnnloom.storage.faults import fault_point
from gnnloom.storage.format.arrays import ArrayReader, ArrayRecord, ReadCounter, stored_files
from gnnloom.storage.format.listing import complete_groups, list_artifact, refresh_list
from gnnloom.storage.format.manifest import MANIFEST, digest_arrays, read_manifest
from gnnloom.storage.format.schema import FORMAT_VERSION, VERSION_ENTRY, check_records, check_required
from gnnloom.storage.format.sections import (
    SECTIONS,
    arrays_json,
    listed_arrays,
    parse_arrays,
    read_section,
    section_name,
    section_of,
    split_sections,
    write_section,
)
from gnnloom.storage.format.task_record import RecordFolder, TaskRecord, merge_pieces, record_name, sum_measurements
from gnnloom.storage.machine_boot import this_boot
from gnnloom.storage.meters import bytes_moved, peak_memory
from gnnloom.storage.wording import counted

__all__ = ["MANIFEST", "WORK", "Artifact", "ArtifactWriter", "TaskOutput", "TaskRecord", "artifact_key"]


def artifact_key(kind: str, parameters: JsonObject, inputs: JsonObject, version: int = FORMAT_VERSION) -> str:
    """16 hex digits that name the artifact of a stage with these parameters and inputs, in this format version."""
    content = {"format": version, "kind": kind, "parameters": parameters, "inputs": inputs}
    # Sorted keys and no spaces: equal parameters must give equal text. NaN is refused, since it is not JSON.
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    # 64 bits: a dataset holds far too few artifacts for two keys to collide.
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Artifact:
    """A complete artifact, opened for reading."""

    def __init__(self, path: Path, counter: ReadCounter | None = None) -> None:
        """Read and check the manifest.

        Args:
            path: folder of the artifact, DATASET/KIND/KEY.
            counter: counts the bytes that its arrays read.

        Raises:
            NotFoundError: there is nothing at ``path``.
            IncompleteError: the artifact was begun and not finished.
            CorruptError: the manifest is damaged.
            FormatError: the artifact is of a newer format, or its manifest lacks entries.
        """
        self.path = path
        self.kind, self.key = path.parent.name, path.name
        self._counter = counter
        self.manifest = read_manifest(refuse_link(path))
        # A whole folder may come from elsewhere, and everything in it then agrees with its own manifest.
        found = (self.manifest["kind"], self.manifest["key"])
        if found != (self.kind, self.key):
            raise CorruptError(
                f"{path / MANIFEST}: the manifest of {'/'.join(found)}, not of {self.kind}/{self.key}; restore the"
                " folder, or remove it and run the command again that made it"
            )
        #: Version of the artifact's format.
        self.version: int = self.manifest[VERSION_ENTRY]
        self.parameters: dict[str, Any] = self.manifest["parameters"]
        self.inputs: dict[str, str] = self.manifest["inputs"]
        self.facts: dict[str, Any] = self.manifest["facts"]
        self.measured: dict[str, Any] = self.manifest["measured"]
        self.sizes: dict[str, int] = self.manifest["sizes"]
        self.digest: str = self.manifest["digest"]
        #: Digests of the lists of arrays that are not in the manifest, by section.
        self.sections: dict[str, str] = self.manifest["sections"]
        self._lists: dict[str, dict[str, ArrayRecord]] = {}

    @property
    def num_listed(self) -> int:
        """Number of arrays in the lists, which are read and not checked.

        Raises:
            CorruptError: the list of a section is damaged.
        """
        found = (listed_arrays(self.path, section, digest) for section, digest in self.sections.items())
        return len(self.manifest["arrays"]) + sum(map(len, found))

    @property
    def records(self) -> dict[str, ArrayRecord]:
        """All arrays by path, checked against the registry of arrays; reads the lists of all sections.

        Raises:
            CorruptError: the manifest or a section does not hold a list of arrays.
            FormatError: an array breaks the registry.
        """
        lists = [self._root_arrays, *(self._section_arrays(section) for section in self.sections)]
        return {name: record for arrays in lists for name, record in arrays.items()}

    @cached_property
    def _root_arrays(self) -> dict[str, ArrayRecord]:
        """The arrays that the manifest itself lists."""
        records = self._checked(parse_arrays(self.path / MANIFEST, self.manifest["arrays"]))
        check_required(str(self.path), self.kind, records, self.version)
        return records

    def _section_arrays(self, section: str) -> dict[str, ArrayRecord]:
        if section not in self._lists:
            found = self._checked(read_section(self.path, section, self.sections[section]))
            # The name of a section is not in the digest of its list, and must not lead out of the artifact.
            if not found or any(section_of(self.kind, name) != section for name in found):
                raise CorruptError(f"{self.path / MANIFEST}: {section} is not a section of the arrays in its list")
            self._lists[section] = found
        return self._lists[section]

    def _checked(self, records: dict[str, ArrayRecord]) -> dict[str, ArrayRecord]:
        with parsing(self.path / MANIFEST, "a list of arrays"):
            check_records(str(self.path), self.kind, records.values(), self.sizes)
        return records

    def _listed_with(self, name: str) -> dict[str, ArrayRecord]:
        """The list that has an array of this path, if the artifact has it."""
        section = section_of(self.kind, name)
        return self._section_arrays(section) if section in self.sections else self._root_arrays

    def __contains__(self, name: str) -> bool:
        return name in self._listed_with(name)

    def record(self, name: str) -> ArrayRecord:
        """The record of one array; reads no more than the list of its section.

        Raises:
            NotFoundError: the artifact has no such array.
            CorruptError, FormatError: as :attr:`records`.
        """
        found = self._listed_with(name)
        if name not in found:
            raise NotFoundError(f"{self.path}: no array {name}; there are {', '.join(sorted(found)[:8])}")
        return found[name]

    def array(
        self, name: str, counter: ReadCounter | None = None, bounds: tuple[int, int] | None = None
    ) -> ArrayReader:
        """Open one array.

        Args:
            bounds: the smallest value that it may hold, and one more than the largest; see :class:`ArrayReader`.

        Raises:
            NotFoundError: the artifact has no such array.
            CorruptError: the stored array does not match the manifest.
        """
        return ArrayReader(self.path, self.record(name), counter or self._counter, bounds)

    def verify(self, each: Callable[[], None] = lambda: None) -> int:
        """Read everything and compare it with the digests.

        Args:
            each: called when an array has been read.

        Returns:
            The number of arrays.

        Raises:
            CorruptError: the first damage found.
        """
        records = self.records
        if digest_arrays(records.values()) != self.digest:
            raise CorruptError(f"{self.path / MANIFEST}: the digest does not match the arrays listed")
        for record in records.values():
            ArrayReader(self.path, record).verify()
            each()
        return len(records)

    def stored_bytes(self) -> int:
        return tree_bytes(self.path)


@dataclass(frozen=True)
class ArtifactWriter:
    """An artifact while a stage makes it; small and picklable, so that tasks can hold it.

    ``path`` is the artifact's final folder. ``path / ".work"`` holds plans, records and spill files, and is removed by
    the commit. It is a link if these are in scratch space.
    """

    path: Path
    kind: str
    key: str
    version: int = FORMAT_VERSION
    scratch: Scratch = BESIDE

    @property
    def work(self) -> Path:
        return self.path / WORK

    def new_aside(self) -> Path:
        """Return a new path on the artifact's own file system, for a file or folder that is renamed later.

        The name is random, so that two workers that make the same piece never write to one file.
        """
        folder = self.path if self.work.is_symlink() else self.work
        # Garbage collection knows names of this form.
        return folder / f".aside.{uuid.uuid4().hex}"

    def discard(self) -> None:
        """Remove the unfinished artifact; called by the process that holds the lock."""
        remove_tree_and_scratch(self.path, WORK)

    @property
    def is_complete(self) -> bool:
        return (self.path / MANIFEST).exists()

    @classmethod
    @contextmanager
    def begin(
        cls,
        dataset: Path,
        kind: str,
        parameters: JsonObject,
        inputs: JsonObject,
        scratch: Scratch = BESIDE,
        version: int = FORMAT_VERSION,
    ) -> Iterator[ArtifactWriter]:
        """Lock the artifact for writing; if another process is making the same one, log that and wait for it.

        Check :attr:`is_complete` first: the artifact may exist already, made earlier or by the other process. If it is
        complete, it is not locked, and the catalog need not be writable.

        Args:
            dataset: folder of the dataset.
            parameters: everything that determines the artifact's bytes, except its inputs.
            inputs: name of each input to its key (an artifact) or its fingerprint (a source).
            scratch: folder and sizes of temporary files; by default they are in the folder of the artifact.
            version: of the artifact's format.
        """
        key = artifact_key(kind, parameters, inputs, version)
        path = refuse_link(dataset / kind / key)
        writer = cls(path, kind, key, version, scratch)
        if writer.is_complete:
            writer._clean_up()
            yield writer
            return
        # Completeness is checked again under the lock: the process that held it before may just have finished it.
        with locked(dataset, kind, key):
            if not writer.is_complete:
                writer._prepare(parameters, inputs)
            yield writer

    def _clean_up(self) -> None:
        """Remove the work folder that a commit left which failed after the manifest was written."""
        if not os.path.lexists(self.work):
            return
        # In a catalog that cannot be written, the folder stays.
        with suppress(OSError), held(lock_path(self.path.parents[1], self.kind, self.key)) as is_ours:
            # Another process that holds the lock is committing the artifact, and removes the folder itself.
            if is_ours:
                self._end_commit()

    def _end_commit(self) -> None:
        """Steps after the manifest is written. Frees the disk first: the lists may need the space."""
        remove_work_folder(self.work)
        refresh_list(self.path.parents[1])

    def _prepare(self, parameters: JsonObject, inputs: JsonObject) -> None:
        fault_point(f"stage.begin.{self.kind}")
        open_work_folder(self.work, self.scratch.folder)
        plan_path = self.work / "plan.json"
        # The plan gets the new boot only after the check of the records, so a kill during the check repeats it.
        if plan_path.exists() and _may_have_rebooted_since(plan_path):
            self._drop_unsound_records()
        # Written once: the group of a kind lists the artifacts that are complete.
        if not (self.path.parent / METADATA).exists():
            write_group(self.path.parent, {})
        write_group(self.path, {"encoding-type": f"gnnloom-{self.kind}", "encoding-version": str(self.version)})
        write_json(plan_path, {"parameters": parameters, "inputs": inputs, **this_boot()})

    def _drop_unsound_records(self) -> None:
        """Forget records that outlived their data after the machine crashed."""
        # Arrays are on disk before their record. Spill files are not: a kill loses none, since the kernel keeps what
        # was written, but a crash of the machine can. A record without arrays cannot be checked, so it is dropped.
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
        """Run one task: the block adds arrays and facts to the output; leaving it without an error records the task.

        Args:
            name: name of the task, PHASE/NUMBER or longer.
        """
        # No ``finally``: a task that raises must leave no record.
        output = TaskOutput(self, name)
        started, before = time.perf_counter(), bytes_moved()
        fault_point(f"task.begin.{self.kind}")
        yield output
        fault_point(f"task.end.{self.kind}")
        bytes_read, bytes_written = (now - then for now, then in zip(bytes_moved(), before, strict=True))
        seconds = round(time.perf_counter() - started, 4)
        # The record is written last, when all chunks are in place under their final names. A kill before this line
        # makes the task run again, and it then writes the same bytes.
        arrays = tuple(merge_pieces(output.arrays))
        # By the task, on the machine that wrote: the machines of a cluster sync at the same time, and only they hold
        # what has not reached the file system.
        sync_paths(self._written_by(arrays))
        numbers = (seconds, peak_memory(), bytes_read, bytes_written)
        self._records.write(TaskRecord(name, arrays, output.facts, *numbers))

    def _written_by(self, arrays: Iterable[ArrayRecord]) -> Iterator[Path]:
        """The files of arrays, and the groups above them."""
        above = dict[Path, None]()
        for record in arrays:
            yield from stored_files(self.path, record)
            above |= dict.fromkeys(self._folders_above(record.path))
        for folder in above:
            yield from (path for path in (folder / METADATA, folder) if path.exists())

    def _folders_above(self, path: str) -> list[Path]:
        """The folders between an array or a section and the artifact, and the artifact's own."""
        return [self.path / parent for parent in PurePosixPath(path).parents]

    @cached_property
    def _records(self) -> RecordFolder:
        """The records of the tasks; caches the files that this process has read."""
        return RecordFolder(self.work / "records")

    def __reduce__(self) -> tuple[type[ArtifactWriter], tuple[Path, str, str, int, Scratch]]:
        # Tasks hold the writer: they are sent without the records that the client has read.
        return ArtifactWriter, (self.path, self.kind, self.key, self.version, self.scratch)

    def has_records(self) -> bool:
        """Whether any task has finished."""
        return bool(self._records.names())

    def recorded(self, prefix: str = "") -> dict[str, TaskRecord]:
        """The records of the finished tasks whose names start with ``prefix``, by name; reads no others.

        Raises:
            DamagedWorkError: a record is damaged.
        """
        return self._records.read(self._records.names(prefix), lambda task: task.startswith(prefix))

    def recorded_of(self, tasks: Iterable[str]) -> dict[str, TaskRecord]:
        """The records of the named tasks that have finished, by name; reads no others.

        Raises:
            DamagedWorkError: a record is damaged.
        """
        wanted = set(tasks)
        return self._records.read(self._records.present(map(record_name, wanted)), wanted.__contains__)

    def forget(self, task: str) -> None:
        """Drop a task's record, so that the task runs again."""
        self._records.forget(task)

    def commit(
        self, tasks: Sequence[str], sizes: Mapping[str, int], facts: JsonObject, measured: JsonObject | None = None
    ) -> Artifact:
        """Publish the artifact: check that every task is recorded, write the manifest, drop the work folder.

        Called by one process, after all tasks have finished.

        Args:
            tasks: names of all tasks that make up the artifact.
            sizes: sizes of the artifact's global dimensions (see :mod:`gnnloom.storage.format.schema`).
            facts: JSON facts about the artifact, equal for equal inputs.
            measured: measurements of this run, in addition to the tasks' seconds and peak memory; JSON.

        Raises:
            IncompleteError: tasks are missing; the message names them all.
            FormatError: the arrays break the registry.
        """
        # Records, not the results that the scheduler returned: tasks of an earlier, killed run count as well.
        recorded = self.recorded()
        missing = [task for task in tasks if task not in recorded]
        if missing:
            raise IncompleteError(
                f"{self.path}: missing {len(missing)} of {counted(len(tasks), 'task')}: {', '.join(missing)}"
            )
        plan = read_json(self.work / "plan.json")
        # Only the named tasks: intermediate phases leave records whose arrays are not part of the artifact.
        records = merge_pieces(record for task in tasks for record in recorded[task].arrays)
        check_records(str(self.path), self.kind, records, sizes)
        check_required(str(self.path), self.kind, {record.path for record in records}, self.version)
        complete_groups(self.path, (record.path for record in records))
        lists = split_sections(self.kind, records)
        root_arrays = lists.pop("", [])
        sections = {section: write_section(self.path, section, found) for section, found in lists.items()}
        manifest = {
            VERSION_ENTRY: self.version,
            "kind": self.kind,
            "key": self.key,
            "parameters": plan["parameters"],
            "inputs": plan["inputs"],
            "sizes": dict(sizes),
            "facts": dict(facts),
            "arrays": arrays_json(root_arrays),
            "sections": sections,
            "digest": digest_arrays(records),
            "measured": {**sum_measurements(recorded.values()), **(measured or {})},
        }
        list_artifact(self.path, sections, len(records))
        # Data first, then the manifest: a manifest on disk means that everything it lists is there, too.
        sync_paths(self._written_by_commit(sections, records))
        # The names of the artifact and of its kind are in the folders above.
        for folder in self.path.parents[:2]:
            sync_folder(folder)
        fault_point(f"manifest.write.{self.kind}")
        try:
            write_json(self.path / MANIFEST, manifest)
            fault_point(f"manifest.written.{self.kind}")
        except Exception:
            # The manifest may be in place, although not certainly on disk: nothing uses the work folder again then.
            if self.is_complete:
                remove_work_folder(self.work)
            raise
        # A kill before this line leaves a complete artifact with its work folder, which the next command that asks for
        # the artifact removes, as garbage collection does.
        self._end_commit()
        return Artifact(self.path)

    def _written_by_commit(self, sections: Iterable[str], records: Iterable[ArrayRecord]) -> Iterator[Path]:
        """The files that the commit wrote, and the folders with their names."""
        for section in sections:
            yield self.path / section_name(section)
            yield self.path / SECTIONS
        # Each folder once; there are many more arrays.
        for folder in dict.fromkeys(parent for record in records for parent in self._folders_above(record.path)):
            yield from (folder / METADATA, folder)
        yield from (self.path / METADATA, self.path)


class TaskOutput:
    """Collects what a task writes; made by :meth:`ArtifactWriter.task`."""

    def __init__(self, writer: ArtifactWriter, name: str) -> None:
        self.writer = writer
        self.name = name
        self.arrays: list[ArrayRecord] = []
        self.facts: dict[str, Any] = {}

    def add(self, record: ArrayRecord) -> None:
        self.arrays.append(record)


def _may_have_rebooted_since(plan: Path) -> bool:
    """Whether the machine has rebooted since a plan was written, as far as is known."""
    now = this_boot()
    try:
        then = read_json(plan)
    except CorruptError:
        # It is written anew.
        return True
    # Boots of different machines cannot be compared, so a plan of another host counts as not rebooted.
    return then.get("host") == now["host"] and then.get("boot") != now["boot"]
