"""Makes a source ready for tasks that share it: members of large archives, and formats that have to be surveyed.

A member that is stored without compression is mapped where it lies, which checks nothing, so tasks compare its checksum
first, a range each. A deflated member can only be read from its start: one task unpacks it into the work folder,
because its compression forces that. Members of small archives are streamed by one task, which checks them on the way.
For some formats, tasks first count the contents of their ranges, because the ranges cannot be read without the counts.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from gnnloom.pipeline.matrix_sort.scatter import range_name
from gnnloom.pipeline.sources.binary import stored_arrays
from gnnloom.pipeline.sources.binary.archive import combined_crc
from gnnloom.pipeline.sources.binary.stored_arrays import PackedSource, StoredArray, StoredMember, unpack_array
from gnnloom.pipeline.sources.reading.coding import SUFFIXES
from gnnloom.pipeline.sources.source import EdgeSource, SourceRange, Surveyed, SurveyedSource
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, WorkFiles, records_of, run
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord

Source = TypeVar("Source")

#: Bytes of a stored member whose checksum one task computes.
CHECK_BYTES = 256 << 20
#: Rounds of surveys that a format asks for, at most: METIS files have their lines counted, and then their edges.
_ROUNDS: Final = 2
#: The writer of plans that are counted and not run.
_NOWHERE: Final = ArtifactWriter(Path(), "", "")


def prepared_source(writer: ArtifactWriter, source: Source, cluster: Cluster, folder: str = "") -> Source:
    """The same source, which tasks can share: archives are checked or unpacked, and ranges are surveyed.

    Args:
        folder: beginning of the names of the tasks, if the artifact is made from several sources.

    Raises:
        InputError: an archive is damaged, or a file does not hold what it states.
    """
    run(_archive_phases(source, writer, folder), cluster, writer)
    source, number = as_unpacked(source, writer, folder), 0
    while isinstance(source, Surveyed) and source.surveys():
        survey = _survey_phase(source, writer, number, folder)
        run([survey], cluster, writer)
        source = source.with_surveys([record.facts["found"] for record in records_of(survey, writer)])
        number += 1
    return source


def preparation_phases(source: object) -> list[Phase]:
    """All phases of :func:`prepared_source`, to be counted; surveys with the largest number of rounds of any format."""
    return [*_archive_phases(source), _survey_phase(source)]


# Archives


@dataclass(frozen=True)
class UnpackTask(Task):
    """Unpacks one array."""

    array: StoredArray

    @property
    def path(self) -> Path:
        return self.writer.work / f"{self.name}.npy"


@dataclass(frozen=True)
class CheckTask(Task):
    """Computes the checksum of bytes ``start`` to ``stop`` of a file, in member ``number`` of all that are checked."""

    path: Path
    number: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class _Unpacked(WorkFiles):
    """The files into which arrays are unpacked, by the name of the task; they stay until the artifact is complete."""

    paths: Mapping[str, Path]

    def is_intact(self, record: TaskRecord) -> bool:
        return self.paths[record.task].exists()


@dataclass(frozen=True, eq=False)
class _Checksums(WorkFiles):
    """The checksums of the ranges of some members, which tasks record."""

    members: Sequence[tuple[StoredArray, StoredMember]]
    tasks: Sequence[CheckTask]

    def publish(self, records: Sequence[TaskRecord]) -> None:
        """Compare the checksums of all members.

        Raises:
            InputError: a file differs.
        """
        found = [0] * len(self.members)
        for task, record in zip(self.tasks, records, strict=True):
            found[task.number] = combined_crc(found[task.number], record.facts["checksum"], task.stop - task.start)
        for (array, stored), checksum in zip(self.members, found, strict=True):
            if checksum != stored.checksum:
                raise InputError(
                    f"{array}: {stored_arrays.FAULT} (its CRC-32 is {checksum:08x}, expected {stored.checksum:08x});"
                    " fetch or save it again"
                )


def _archive_phases(source: object, writer: ArtifactWriter = _NOWHERE, folder: str = "") -> list[Phase]:
    """The phases that check mapped members of large archives, and unpack compressed ones."""
    members = [(array, array.stored) for array in _members(source) if array.stored is not None]
    checks = [
        CheckTask(
            writer, f"{folder}check/{number:04d}/{start}", Needs(stop - start), array.file.path, number, start, stop
        )
        for number, (array, stored) in enumerate(members)
        for start in range(stored.start, stored.start + stored.size, CHECK_BYTES)
        for stop in [min(start + CHECK_BYTES, stored.start + stored.size)]
    ]
    packed = _unpack_tasks(source, writer, folder)
    check = Phase("check archives", _checksum, checks, "bytes", files=(_Checksums(members, checks),))
    unpack = Phase("unpack", _unpack, packed, "bytes", files=(_Unpacked({task.name: task.path for task in packed}),))
    return [phase for phase in (check, unpack) if phase.tasks]


def _members(source: object) -> list[StoredArray]:
    """The members of archives that a source reads, each once."""
    arrays = source.stored_arrays() if isinstance(source, PackedSource) else ()
    distinct = {(array.file.location, array.member): array for array in arrays if array.member is not None}
    return list(distinct.values())


def packed_arrays(source: object) -> list[StoredArray]:
    """The arrays of a source that are large and compressed, each once."""
    return [array for array in _members(source) if array.is_packed]


def _unpack_tasks(source: object, writer: ArtifactWriter, folder: str) -> list[UnpackTask]:
    return [
        UnpackTask(writer, f"{folder}unpack/{number:04d}", Needs(size, size, memory=array.unpack_memory), array)
        for number, array in enumerate(packed_arrays(source))
        for size in [array.data_end]
    ]


def as_unpacked(source: Source, writer: ArtifactWriter = _NOWHERE, folder: str = "") -> Source:
    """The source as it is when its large compressed arrays are unpacked."""
    tasks = _unpack_tasks(source, writer, folder)
    if not tasks or not isinstance(source, PackedSource):
        return source
    return source.with_unpacked({(task.array.file.location, task.array.member or ""): task.path for task in tasks})


def largest_compressed(source: EdgeSource) -> int:
    """Bytes of the largest compressed file or array that one task has to read alone; 0 if all are small."""
    arrays = [array.data_end for array in packed_arrays(source)]
    listed = source.identity().get("files", ())
    # Formats of other packages may list their files in another way.
    known = [file for file in listed if isinstance(file, dict) and {"name", "size"} <= file.keys()]
    files = [file["size"] or 0 for file in known if str(file["name"]).lower().endswith(SUFFIXES)]
    largest = max([*arrays, *files], default=0)
    return largest if largest >= stored_arrays.LARGE_BYTES else 0


def _checksum(task: CheckTask) -> int:
    checksum, rest = 0, task.stop - task.start
    with task.writer.task(task.name) as output, task.path.open("rb") as file:
        file.seek(task.start)
        while rest and (block := file.read(min(stored_arrays.BLOCK_BYTES, rest))):
            checksum, rest = zlib.crc32(block, checksum), rest - len(block)
        output.facts["checksum"] = checksum
    return task.stop - task.start


def _unpack(task: UnpackTask) -> int:
    with task.writer.task(task.name):
        return unpack_array(task.array, task.path)


# Surveys


@dataclass(frozen=True)
class SurveyTask(Task):
    """Counts what one range holds."""

    source: Surveyed
    range: SourceRange


def _survey_phase(source: object, writer: ArtifactWriter = _NOWHERE, number: int = 0, folder: str = "") -> Phase:
    """The phase that surveys the ranges of a source after ``number`` rounds; without tasks if it can be read."""
    tasks = []
    if isinstance(source, Surveyed):
        for at, span in enumerate(source.surveys()):
            name, needs = f"{folder}survey/{number}/{range_name(at, span)}", Needs(max(0, span.stop - span.start))
            tasks.append(SurveyTask(writer, name, needs, source, span))
    return Phase("survey", _survey, tasks, "ranges", files=(WorkFiles(),), repeats=_ROUNDS)


def planned_ranges(source: EdgeSource) -> int:
    """Number of ranges that tasks will read, surveyed or not."""
    return len((source.surveys() if isinstance(source, SurveyedSource) else ()) or source.ranges())


def _survey(task: SurveyTask) -> int:
    with task.writer.task(task.name) as output:
        output.facts["found"] = task.source.survey(task.range)
    return 1
