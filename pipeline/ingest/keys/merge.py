"""Second step: the keys of all files are cut into ranges and merged, and the numbers go back to the files.

A task merges one range of keys. It writes the distinct keys, ascending, and routes the place of every collected key
within the range to the file that has the key, by the number of the file
(:class:`~gnnloom.pipeline.shuffle.shuffle.Shuffle`). A range that does not fit in memory is halved at a key until it
does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet, OpenFiles, writable
from gnnloom.pipeline.ingest.keys.blocks import KeyBlock, KeyFile, OpenBlock
from gnnloom.pipeline.ingest.keys.collect import fact_names
from gnnloom.pipeline.ingest.keys.key_types import KEY_TYPES, KeyType, sort_memory
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.phase import Task, WorkFiles
from gnnloom.storage.disk.files import parsing, read_json, reading_work, write_json
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import TaskRecord
from gnnloom.storage.meters import Done

#: Bytes of a key's number, within its range and as it is routed, while the distinct keys are still in memory.
_NUMBER_BYTES = 24

#: Bits of a routed number that are the place of a key within its range; those above are the number of the range.
PLACE_BITS: Final = 40


def num_key_ranges(collected: int, num_files: int, scratch: Scratch) -> int:
    """Number of ranges of keys, small enough that a range takes enough bytes from each file.

    Args:
        collected: bytes of the keys in all files.
    """
    return max(1, collected // max(scratch.range_bytes, num_files * scratch.slice_bytes))


def number_shuffle(num_files: int, num_source_ranges: int, name: str) -> Shuffle:
    """The shuffle of the numbers from the ranges of keys to the files; its positions are the numbers of the files."""
    return Shuffle(name, num_files, (Column("number", "int64"),), num_source_ranges)


@dataclass(frozen=True)
class KeyRanges:
    """The collected keys, and how they are cut into ranges.

    Attributes:
        ids: type of the keys.
        collected: (num_source_ranges) lane, as JSON, and files of each range of the source.
        bounds: (num_ranges - 1) first key of each range of keys but the first, as in a sample.
        listed: number of source ranges that read lists of vertices. They come first; 0 if there are no lists, and
            every key is known.
        adds: keys that no list has get numbers too.
        kinds: kind of the keys of each file of the lists, if keys have several kinds, which are numbered apart.
        num_kinds: number of kinds.
        takes_first: the first kind of a key counts if the lists give it several; otherwise they are an error.
    """

    ids: str
    collected: list[list[Any]]
    bounds: list[Any]
    listed: int = 0
    adds: bool = True
    kinds: list[int] = field(default_factory=list)
    num_kinds: int = 1
    takes_first: bool = False

    @classmethod
    def of(
        cls,
        records: Sequence[tuple[TaskRecord, int]],
        ids: str,
        scratch: Scratch,
        listed: int = 0,
        *,
        adds: bool = True,
        kinds: Sequence[int] = (),
        num_kinds: int = 1,
        takes_first: bool = False,
    ) -> KeyRanges:
        """Cut the keys of these records by their samples.

        Args:
            records: of all ranges, each with the number of the table of keys.
            scratch: sizes of the ranges.
            listed, adds, kinds, num_kinds, takes_first: attributes.

        Raises:
            InputError: there are no keys.
        """
        names = [fact_names(table) for _, table in records]
        collected = [
            [record.facts["lane"], record.facts[files]] for (record, _), (files, _) in zip(records, names, strict=True)
        ]
        uncut = cls(ids, collected, [], listed, adds, list(kinds), num_kinds, takes_first)
        files, keys = list(chain.from_iterable(uncut.files())), uncut.keys
        if not files:
            raise InputError("the source has no edges")
        sizes = [file.keys.num_bytes for file in files]
        found = (sample for (record, _), (_, name) in zip(records, names, strict=True) for sample in record.facts[name])
        samples = sorted(found, key=keys.from_json)
        ranges = num_key_ranges(sum(sizes), len(sizes), scratch)
        cuts = {samples[number * len(samples) // ranges] for number in range(1, ranges)} - {samples[0]}
        return replace(uncut, bounds=sorted(cuts, key=keys.from_json))

    @property
    def keys(self) -> KeyType[Any]:
        return KEY_TYPES[self.ids]

    @property
    def num_ranges(self) -> int:
        return len(self.bounds) + 1

    def files(self, first: int = 0, stop: int | None = None) -> list[list[KeyFile]]:
        """The files of some ranges of the source, by default of all. They are numbered in this order."""
        return [
            [KeyFile.from_json(content, Lane.from_json(lane), self.keys.widths) for content in files]
            for lane, files in self.collected[first:stop]
        ]

    def num_files(self, stop: int) -> int:
        """Number of files that the first ranges of the source have."""
        return sum(len(files) for _, files in self.collected[:stop])

    @property
    def shuffle(self) -> Shuffle:
        num_files = sum(len(files) for _, files in self.collected)
        return number_shuffle(num_files, len(self.collected), f"numbers/{self.digest}")

    @property
    def digest(self) -> str:
        """Changes when a range of the source is collected again, so that an earlier merge is not used for it."""
        return xxhash.xxh3_64_hexdigest(json.dumps(self._to_json()).encode())

    def _to_json(self) -> dict[str, Any]:
        """The attributes as JSON; graphs without lists or kinds have the file that they had before there were any."""
        left_out = {*(() if self.listed else ("listed", "adds")), *(() if self.kinds else ("kinds", "num_kinds"))}
        left_out |= set() if self.takes_first else {"takes_first"}
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def save(self, work: Path) -> Path:
        """Write a file and return its path. Its content never changes, so that late tasks may still read it."""
        path = work / "keys" / f"ranges-{self.digest}.json"
        write_json(path, self._to_json())
        return path

    @classmethod
    def load(cls, path: Path) -> KeyRanges:
        """Read a file.

        Raises:
            DamagedWorkError: the file is damaged; without it, it is made again.
        """
        with reading_work(path), parsing(path, "the ranges of keys"):
            return cls(**read_json(path))

    def segments(self, number: int, opened: OpenFiles) -> Iterator[_Segment]:
        """The keys of range ``number`` in each file that has some."""
        bounds = [None, *map(self.keys.from_json, self.bounds), None][number : number + 2]
        for file_number, file in enumerate(chain.from_iterable(self.files())):
            block, num_keys = OpenBlock(file.keys, self.keys, opened), file.keys.num_keys
            start = 0 if bounds[0] is None else block.position(bounds[0], 0, num_keys)
            stop = num_keys if bounds[1] is None else block.position(bounds[1], start, num_keys)
            if start < stop:
                yield _Segment(file_number, block, start, stop)


@dataclass(frozen=True)
class MergeKeysTask(Task):
    """Merges range ``number`` of the keys.

    Attributes:
        ranges: file of the ranges of keys.
        memory: bytes that the worker may use.
        keys: where the distinct keys go, relative to the work folder.
        numbers: where the numbers for the files go.
    """

    number: int
    ranges: Path
    memory: int
    keys: Lane
    numbers: Lane


@dataclass(frozen=True, eq=False)
class KeyLanes(WorkFiles):
    """The lanes with collected or distinct keys. Records say where these are; they stay until the graph is complete."""

    work: Path
    lanes: LaneSet

    def create(self) -> None:
        self.lanes.touch(self.work)

    def is_intact(self, record: TaskRecord) -> bool:
        return Lane.from_json(record.facts["lane"]).is_intact(self.work, record.facts["bytes"])


def merge_range(task: MergeKeysTask) -> Done:
    """Write the distinct keys of a range, and their numbers for every file; returns how many were collected in it.

    The number of a key that gets none is -1. Keys of several kinds are stored and numbered by kind.

    Raises:
        InputError: lists give different kinds to a key.
    """
    ranges, work = KeyRanges.load(task.ranges), task.writer.work
    unknown, by_kind = _Unknown(ranges), _ByKind(ranges, task.number)
    with OpenFiles(work) as opened, task.writer.task(task.name) as output:
        segments = list(ranges.segments(task.number, opened))
        blocks: list[KeyBlock] = []
        kinds: list[int] = []
        first = task.number << PLACE_BITS
        with writable(work, task.keys) as lane, ranges.shuffle.routed(output, task.numbers) as numbers:
            for pieces in _fitting(segments, task.writer.scratch.merged_bytes or working_memory(task.memory)):
                # Pieces ascend and do not share a key, so their results follow each other without another merge.
                keys, positions = ranges.keys.distinct([piece.read() for piece in pieces])
                stop, places = blocks[-1].stop if blocks else 0, positions + np.int64(first)
                if ranges.kinds:
                    places = by_kind.places(keys, positions, pieces, unknown)
                    for kind, chosen in by_kind.chosen(keys):
                        blocks.append(KeyBlock.write(lane, task.keys, stop, ranges.keys.arrays(chosen)))
                        kinds, stop = [*kinds, kind], blocks[-1].stop
                    numbers.add(_index(pieces), {"number": places})
                    continue
                if ranges.listed:
                    keys, places = unknown.treat(keys, positions, pieces, first)
                blocks.append(KeyBlock.write(lane, task.keys, stop, ranges.keys.arrays(keys)))
                numbers.add(_index(pieces), {"number": places})
                first += blocks[-1].num_keys
        output.facts["lane"] = task.keys.to_json()
        output.facts["blocks"] = [[block.start, list(block.counts)] for block in blocks]
        output.facts |= {"kinds": kinds} if ranges.kinds else {}
        output.facts["bytes"] = blocks[-1].stop if blocks else 0
        if ranges.listed:
            output.facts |= {"unknown": unknown.count, "first_unknown": unknown.first}
    return Done(sum(map(len, segments)))


class _Unknown:
    """Keys that are in none of the lists of vertices.

    Attributes:
        count: distinct keys so far.
        first: number of a file with such a key, and the key as text; None if there is no such key.
    """

    def __init__(self, ranges: KeyRanges) -> None:
        self._ranges, self._listed = ranges, ranges.num_files(ranges.listed)
        self.count = 0
        self.first: tuple[int, str] | None = None

    def treat(
        self, keys: Any, positions: NDArray[np.int32], pieces: Sequence[_Segment], first: int
    ) -> tuple[Any, NDArray[np.int64]]:
        """Count the unknown keys of some pieces, and drop them unless they are added.

        Args:
            keys: the distinct keys.
            positions: (num_keys,) int32 position of the key of each piece among them.
            first: number of the first key.

        Returns:
            The keys that get numbers, and (num_keys,) int64 number of the key of each piece.
        """
        of_file = np.repeat([piece.file for piece in pieces], list(map(len, pieces)))
        is_known = np.zeros(int(positions.max(initial=-1)) + 1, np.bool_)
        is_known[positions[of_file < self._listed]] = True
        places: NDArray[np.int64] = positions + np.int64(first)
        if is_known.all():
            return keys, places
        self.note(keys, positions, of_file, is_known)
        if self._ranges.adds:
            return keys, places
        number = np.where(is_known, np.cumsum(is_known) - 1 + first, -1)
        return self._ranges.keys.chosen(keys, is_known), number[positions]

    def note(
        self, keys: Any, positions: NDArray[np.int32], of_file: NDArray[np.int64], is_known: NDArray[np.bool_]
    ) -> None:
        """Count the keys that are not known, and remember the first one."""
        self.count += int(np.count_nonzero(~is_known))
        if self.first is None and not is_known.all():
            at = int(np.argmin(is_known))
            self.first = int(of_file[np.argmax(positions == at)]), _text(self._ranges.keys.key(keys, at))


class _ByKind:
    """Keys of several kinds, which are numbered apart: a key has the kind of the list that it is in."""

    def __init__(self, ranges: KeyRanges, number: int) -> None:
        self._ranges, self._number = ranges, number
        self._next = [0] * ranges.num_kinds
        self._kind = np.empty(0, np.int64)

    def places(
        self, keys: Any, positions: NDArray[np.int32], pieces: Sequence[_Segment], unknown: _Unknown
    ) -> NDArray[np.int64]:
        """(num_keys,) int64 number of the key of each piece; -1 for keys that no list has.

        Args:
            keys: the distinct keys of the pieces.
            positions: (num_keys,) int32 position of the key of each piece among them.
            unknown: notes keys that no list has.

        Raises:
            InputError: lists give different kinds to a key.
        """
        ranges, listed = self._ranges, self._ranges.num_files(self._ranges.listed)
        of_file = np.repeat(np.array([piece.file for piece in pieces], np.int64), list(map(len, pieces)))
        self._kind = np.full(int(positions.max(initial=-1)) + 1, -1, np.int64)
        in_list = of_file < listed
        given, at = np.array(ranges.kinds, np.int64)[of_file[in_list]], positions[in_list]
        # The first list with a key counts, as its assignment comes last.
        self._kind[at[::-1]] = given[::-1]
        if not ranges.takes_first and (differs := self._kind[at] != given).any():
            row = int(np.argmax(differs))
            text = _text(ranges.keys.key(keys, int(at[row])))
            raise ConflictingKindsError(text, int(self._kind[at[row]]), int(given[row]))
        unknown.note(keys, positions, of_file, self._kind >= 0)
        number = np.full(len(self._kind), -1, np.int64)
        for kind, first in enumerate(self._next):
            own = self._kind == kind
            count = int(np.count_nonzero(own))
            number[own] = ((self._number * ranges.num_kinds + kind) << PLACE_BITS) + np.arange(first, first + count)
            self._next[kind] += count
        return number[positions]

    def chosen(self, keys: Any) -> Iterator[tuple[int, Any]]:
        """The keys that :meth:`places` numbered last, by kind; kinds without keys are left out."""
        for kind in np.unique(self._kind[self._kind >= 0]).tolist():
            yield kind, self._ranges.keys.chosen(keys, self._kind == kind)


class ConflictingKindsError(InputError):
    """A key is in lists of different kinds.

    Attributes:
        key: the key, as text.
        kinds: numbers of two of its kinds.
    """

    def __init__(self, key: str, first: int, second: int) -> None:
        # The arguments are the constructor's arguments, so that the error can be sent between processes.
        super().__init__(key, first, second)
        self.key, self.kinds = key, (first, second)


def _text(key: Any) -> str:
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)


@dataclass(frozen=True)
class _Segment:
    """Keys ``start`` to ``stop`` of a file."""

    file: int
    block: OpenBlock
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def memory(self) -> int:
        """Approximate bytes that merging these keys takes."""
        keys = self.block.keys
        sorting = sort_memory(keys, keys.counts(self.block.elements, self.start, self.stop))
        return sorting + _NUMBER_BYTES * len(self)

    def read(self) -> Any:
        return self.block.keys.read(self.block.elements, self.start, self.stop)

    def middle(self) -> Any:
        """The key in the middle."""
        keys, middle = self.block.keys, (self.start + self.stop) // 2
        return keys.key(keys.read(self.block.elements, middle, middle + 1), 0)

    def divided(self, bound: Any) -> tuple[_Segment, _Segment]:
        """The keys below ``bound``, and the others."""
        at = self.block.position(bound, self.start, self.stop)
        return _Segment(self.file, self.block, self.start, at), _Segment(self.file, self.block, at, self.stop)


def _fitting(segments: list[_Segment], memory: int) -> Iterator[list[_Segment]]:
    """Consecutive ranges of keys that fit in memory, or that cannot be divided further; ascending."""
    segments = [segment for segment in segments if len(segment)]
    needed = [segment.memory for segment in segments]
    longest = max(range(len(segments)), key=lambda k: (len(segments[k]) > 1, needed[k]), default=None)
    if longest is None:
        return
    if sum(needed) <= memory or len(segments[longest]) == 1:
        yield segments
        return
    # Halving every segment at the same key keeps all copies of a key in one half, so that no merge sees only some.
    bound = segments[longest].middle()
    halves = [segment.divided(bound) for segment in segments]
    yield from _fitting([half[0] for half in halves], memory)
    yield from _fitting([half[1] for half in halves], memory)


def _index(pieces: Sequence[_Segment]) -> Index:
    """The index of the numbers of some pieces, whose positions are the numbers of their files."""
    positions = np.array([piece.file for piece in pieces], np.int64)
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    return Index(int(offsets[-1]), int(positions[0]), len(positions), positions, offsets)
