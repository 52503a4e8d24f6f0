"""Makes a source ready for tasks that share it: members of large archives, and formats that have to be surveyed.

A member that is stored without compression is mapped where it lies, which checks nothing, so tasks compare its checksum
first, a range each. A deflated member can only be read from its start: one task unpacks it into the work folder,
because its compression forces that. Members of small archives are streamed by one task, which checks them on the way.
Of some formats, tasks count what their ranges hold before they are read, as these can be read in no other way.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gnnloom.pipeline.matrix_sort.scatter import range_name
from gnnloom.pipeline.sources.binary import stored_arrays
from gnnloom.pipeline.sources.binary.archive import combined_crc
from gnnloom.pipeline.sources.binary.stored_arrays import PackedSource, StoredArray, unpack_array
from gnnloom.pipeline.sources.reading.compressed import SUFFIXES
from gnnloom.pipeline.sources.source import EdgeSource, SourceRange, SurveyedSource
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord

Source = TypeVar("Source")

#: Bytes of a stored member whose checksum one task computes.
CHECK_BYTES = 256 << 20


@dataclass(frozen=True)
class UnpackTask:
    """Unpacks one array."""

    writer: ArtifactWriter
    array: StoredArray
    number: int

    @property
    def name(self) -> str:
        return f"unpack/{self.number:04d}"

    @property
    def path(self) -> Path:
        return self.writer.work / "unpacked" / f"{self.number:04d}.npy"


@dataclass(frozen=True)
class CheckTask:
    """Computes the checksum of bytes ``start`` to ``stop`` of a file."""

    writer: ArtifactWriter
    path: Path
    number: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"check/{self.number:04d}/{self.start}"


def packed_arrays(source: object) -> list[StoredArray]:
    """The arrays of a source that are large and compressed, each once."""
    return [array for array in _members(source) if array.is_packed]


def _members(source: object) -> list[StoredArray]:
    """The members of archives that a source reads, each once."""
    arrays = source.stored_arrays() if isinstance(source, PackedSource) else ()
    distinct = {(array.file.location, array.member): array for array in arrays if array.member is not None}
    return list(distinct.values())


def as_unpacked(source: Source) -> Source:
    """The source as it will be when its large compressed arrays are unpacked; for planning only."""
    arrays = packed_arrays(source)
    if not arrays or not isinstance(source, PackedSource):
        return source
    return source.with_unpacked({(array.file.location, array.member or ""): Path() for array in arrays})


def largest_compressed(source: EdgeSource) -> int:
    """Bytes of the largest compressed file or array that one task has to read alone; 0 if all are small."""
    arrays = [array.data_end for array in packed_arrays(source)]
    listed = source.identity().get("files", ())
    # Formats of other packages may list their files in another way.
    known = [file for file in listed if isinstance(file, dict) and {"name", "size"} <= file.keys()]
    files = [file["size"] or 0 for file in known if str(file["name"]).endswith(SUFFIXES)]
    largest = max([*arrays, *files], default=0)
    return largest if largest >= stored_arrays.LARGE_BYTES else 0


def prepared_source(writer: ArtifactWriter, source: Source, cluster: Cluster) -> Source:
    """The same source, after its large members of archives have been checked or unpacked into the work folder.

    Raises:
        InputError: an archive is damaged.
    """
    _check_stored(writer, source, cluster)
    arrays = packed_arrays(source)
    if not arrays or not isinstance(source, PackedSource):
        return source
    tasks = [UnpackTask(writer, array, number) for number, array in enumerate(arrays)]
    run_missing("unpack", cluster, writer, _unpack, tasks, "bytes", is_usable=_is_there)
    return source.with_unpacked({(task.array.file.location, task.array.member or ""): task.path for task in tasks})


def _check_stored(writer: ArtifactWriter, source: object, cluster: Cluster) -> None:
    """Compare the checksums of the members that are mapped."""
    members = [(array, array.stored) for array in _members(source) if array.stored is not None]
    tasks = [
        CheckTask(writer, array.file.path, number, start, min(start + CHECK_BYTES, stored.start + stored.size))
        for number, (array, stored) in enumerate(members)
        for start in range(stored.start, stored.start + stored.size, CHECK_BYTES)
    ]
    if not tasks:
        return
    records = run_missing("check archives", cluster, writer, _checksum, tasks, "bytes")
    found = dict.fromkeys(range(len(members)), 0)
    for task, record in zip(tasks, records, strict=True):
        found[task.number] = combined_crc(found[task.number], record.facts["checksum"], task.stop - task.start)
    for number, (array, stored) in enumerate(members):
        if found[number] != stored.checksum:
            raise InputError(
                f"{array}: {stored_arrays.FAULT} (its CRC-32 is {found[number]:08x}, expected {stored.checksum:08x});"
                " fetch or save it again"
            )


def _checksum(task: CheckTask) -> int:
    checksum, rest = 0, task.stop - task.start
    with task.writer.task(task.name) as output, task.path.open("rb") as file:
        file.seek(task.start)
        while rest and (block := file.read(min(stored_arrays.BLOCK_BYTES, rest))):
            checksum, rest = zlib.crc32(block, checksum), rest - len(block)
        output.facts["checksum"] = checksum
    return task.stop - task.start


def _is_there(task: UnpackTask, _: TaskRecord) -> bool:
    return task.path.exists()


def _unpack(task: UnpackTask) -> int:
    with task.writer.task(task.name):
        return unpack_array(task.array, task.path)


@dataclass(frozen=True)
class SurveyTask:
    """Counts what one range holds."""

    writer: ArtifactWriter
    source: SurveyedSource
    round: int
    number: int
    range: SourceRange

    @property
    def name(self) -> str:
        return f"survey/{self.round}/{range_name(self.number, self.range)}"


def surveyed_source(writer: ArtifactWriter, source: EdgeSource, cluster: Cluster) -> EdgeSource:
    """The same source, able to be read in ranges.

    Raises:
        InputError: a file does not hold what it states.
    """
    done = 0
    while isinstance(source, SurveyedSource) and (spans := source.surveys()):
        tasks = [SurveyTask(writer, source, done, number, span) for number, span in enumerate(spans)]
        records = run_missing("survey", cluster, writer, _survey, tasks, "ranges")
        source = source.with_surveys([record.facts["found"] for record in records])
        done += 1
    return source


def planned_ranges(source: EdgeSource) -> int:
    """Number of ranges that tasks will read, surveyed or not."""
    return len((source.surveys() if isinstance(source, SurveyedSource) else ()) or source.ranges())


def _survey(task: SurveyTask) -> int:
    with task.writer.task(task.name) as output:
        output.facts["found"] = task.source.survey(task.range)
    return 1
