"""Between the passes of the bucket sort: spill files of pass 1 are merged, so that a block reads from few files.

A row block needs the entries of its rows from every spill file. The number of blocks grows like the number of files F,
so about F^2 reads would each give fewer bytes as F grows. The files of groups of tasks are therefore merged by span of
units of rows, as any rows that are shuffled; only the entries are packed. Merged files keep the order of the source
within each unit, so the matrix does not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import Encoding, Segment, grouped
from gnnloom.pipeline.external_sort.lanes import LaneWriter, OpenFiles, OpenLane, writable
from gnnloom.pipeline.external_sort.merge_levels import Level, merge_levels
from gnnloom.pipeline.external_sort.spill import KeyForm, SpillFile, value_dtype
from gnnloom.pipeline.shuffle.merges import MergeTask
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.run_list import LaneRuns
from gnnloom.pipeline.tasks.phase import Phase, PlannedTask
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.matrix.ranges import Span

#: Bytes of an entry that a merge holds: its key, where its encoded bits are read to, and the entry (8 each), two times
#: (8 each; weights take half of that), and the low or high bits as they are written (4).
_ENTRY_BYTES = 44


@dataclass(frozen=True, eq=False)
class SpillPlan(ShufflePlan):
    """Plan that brings entries from pass 1 to pass 2. Positions are units of rows.

    Attributes:
        num_files: spill files in all lanes.
        form: of the keys of the matrix.
    """

    num_files: int
    form: KeyForm

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        # A merge reads whole lanes: where a task wrote its files again, with other memory, these may be others.
        first, *more = merge_levels(self.num_files, self.writer.scratch.spill_files)
        fewer = (replace(level, sources=min(level.sources, self.num_tasks)) for level in more)
        return replace(first, sources=self.num_tasks), *fewer

    def merges(self, name: str) -> list[Phase]:
        return [
            replace(
                phase,
                function=merge_spilled,
                tasks=[MergeSpilledTask.of(task, self.form, self.writer.scratch) for task in phase.tasks],
                unit="entries",
                arrays=4,
            )
            for phase in super().merges(name)
        ]


@dataclass(frozen=True)
class MergeSpilledTask(MergeTask):
    """Merges the spill files of some lanes, for a span of units of rows."""

    form: KeyForm

    @classmethod
    def of(cls, task: PlannedTask, form: KeyForm, scratch: Scratch) -> Self:
        """The same as a merge of any rows, except for the memory that it takes."""
        needs = replace(task.needs, memory=scratch.merge_entries * _ENTRY_BYTES)
        return cls(**vars(task) | {"needs": needs, "form": form})


class UnitRows:
    """The entries of units ``first_unit`` to ``last_unit`` in a spill file."""

    def __init__(self, lane: OpenLane, file: SpillFile, form: KeyForm, units: Span) -> None:
        """Read the offsets of the file."""
        self._lane, self._file = lane, file
        self._column_bits = form.column_bits
        #: Buckets of the file per unit of the graph.
        self._per_unit = 1 << (form.shift - file.shift)
        self._offsets = file.offsets(lane, *(unit * self._per_unit for unit in units))
        bounds = np.arange(units[1] - units[0] + 1) * self._per_unit
        #: (num_units + 1) first entry of each unit.
        # The file ends with its last bucket that is not empty; the units after it have no entries in it.
        self._unit_offsets = self._offsets[np.minimum(bounds, len(self._offsets) - 1)]
        self.unit_entries = np.diff(self._unit_offsets)

    @property
    def value_bytes(self) -> int:
        return self._file.value_bytes

    def segment(self, start: int, stop: int) -> Segment:
        """The entries of units ``start`` to ``stop``, counted from the first unit."""
        file = self._file
        bucket = min(start * self._per_unit, len(self._offsets) - 1)
        encoding = Encoding(
            file.high_at,
            file.high_dtype,
            self._offsets[bucket:],
            bucket << file.shift,
            file.shift,
            file.column_bits,
            self._column_bits,
        )
        first, last = int(self._unit_offsets[start]), int(self._unit_offsets[stop])
        return Segment(self._lane, first, last, file.low_at, file.values_at, encoding)


def unit_rows(
    files: OpenFiles, lanes: Iterable[LaneRuns], form: KeyForm, units: Span
) -> tuple[list[UnitRows], NDArray[np.int64]]:
    """Open all spill files in some lanes.

    Returns:
        Sections of the units in each lane, in the order of the lanes; (num_units,) entries of each unit in all lanes.
    """
    found = [
        UnitRows(lane, file, form, units)
        for runs in lanes
        for lane in [files.lane(runs.lane)]
        for file in SpillFile.read_all(lane, runs.num_bytes)
    ]
    sizes = np.zeros(units[1] - units[0], np.int64)
    for rows in found:
        sizes += rows.unit_entries
    return found, sizes


def merge_spilled(task: MergeSpilledTask) -> int:
    """Write one merged file; returns its number of entries."""
    work = task.writer.work
    with task.writer.task(task.name) as output, OpenFiles(work) as files, writable(work, task.lane) as lane:
        rows, sizes = unit_rows(files, task.lanes(), task.form, task.positions)
        merged = _write(lane, task, rows, sizes)
        task.record(output, merged.stop, merged.entries)
    return merged.entries


def _write(lane: LaneWriter, task: MergeSpilledTask, rows: Sequence[UnitRows], sizes: NDArray[np.int64]) -> SpillFile:
    shift, bits = task.form.shift, task.form.column_bits
    first, last = task.positions
    # Offsets of all units, including those before the span: the file is an ordinary spill file.
    offsets = np.zeros(last + 1, np.int64)
    np.cumsum(sizes, out=offsets[first + 1 :])
    merged = SpillFile(0, int(offsets[-1]), shift, bits, last, max((each.value_bytes for each in rows), default=0))
    merged.begin(lane, offsets)
    done = 0
    for keys, weights in _entries(rows, sizes, shift, merged.value_bytes, task.writer.scratch.merge_entries):
        # A key counts its row from the first unit of the span; an entry from its own unit.
        entries = keys & np.uint64((1 << (shift + bits)) - 1)
        lane.write(merged.low_at + 4 * done, entries.astype(np.uint32))
        if merged.high_dtype is not None:
            high = (entries >> np.uint64(32)).astype(merged.high_dtype)
            lane.write(merged.high_at + merged.high_dtype.itemsize * done, high)
        if merged.value_bytes:
            lane.write(merged.values_at + merged.value_bytes * done, weights)
        done += len(entries)
    return merged


def _entries(
    rows: Sequence[UnitRows], sizes: NDArray[np.int64], shift: int, value_bytes: int, most: int
) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.floating[Any]]]]:
    """The keys of all units and their values, in consecutive blocks of at most ``most``: unit by unit."""
    capacity = max(1, min(most, int(sizes.sum())))
    keys, spare = np.empty(capacity, np.uint64), np.empty(capacity, np.uint64)
    weights, spare_weights = (np.empty(capacity if value_bytes else 0, value_dtype(value_bytes)) for _ in range(2))
    for start, stop in grouped(sizes, capacity):
        count = int(sizes[start:stop].sum())
        segments = [each.segment(start, stop) for each in rows]
        if count <= capacity:
            position = np.cumsum(sizes[start:stop]) - sizes[start:stop]
            for segment in segments:
                segment.gather(shift, position, keys[:count], weights[:count], (spare, spare_weights))
            yield keys[:count], weights[:count]
            continue
        # A single unit with more entries than fit: one file after another.
        for segment in segments:
            for begin in range(segment.start, segment.stop, capacity):
                part = replace(segment, start=begin, stop=min(begin + capacity, segment.stop))
                part.read(keys[: len(part)], weights[: len(part)], spare)
                yield keys[: len(part)], weights[: len(part)]
