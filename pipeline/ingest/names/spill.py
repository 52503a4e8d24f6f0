"""Spill files of named edges: the distinct names of some edges in ascending order, and the edges by position of name.

The files of a task follow each other in its lane (:mod:`gnnloom.pipeline.external_sort.lanes`):

    number    (num_names,) int64          number of each name within its range of names; a hole until that is merged
    offset    (num_names + 1,) int64      where each name begins in the text
    text      (text_bytes,) uint8
    source    (num_edges,) int32          positions of the edges' ends among the names
    target    (num_edges,) int32
    weight    (num_edges,) float32        if weighted

The numbers come first, so that a lane has its length as soon as the edges are written, and nothing has to be written in
place of the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.sources.names import Names


@dataclass(frozen=True)
class NameSpill:
    """Describes one spill file.

    Attributes:
        lane: the lane that it is a part of, relative to the work folder.
        start: byte of the lane at which it begins.
        num_names: number of distinct names.
        text_bytes: bytes of their text.
        num_edges: number of edges, at least one.
        weighted: whether weights follow the edges.
    """

    lane: Lane
    start: int
    num_names: int
    text_bytes: int
    num_edges: int
    weighted: bool

    @property
    def offset_at(self) -> int:
        """Byte of the lane at which the offsets begin."""
        return self.start + 8 * self.num_names

    @property
    def text_at(self) -> int:
        return self.offset_at + 8 * (self.num_names + 1)

    @property
    def source_at(self) -> int:
        return self.text_at + self.text_bytes

    @property
    def target_at(self) -> int:
        return self.source_at + 4 * self.num_edges

    @property
    def weight_at(self) -> int:
        return self.target_at + 4 * self.num_edges

    @property
    def stop(self) -> int:
        """Byte of the lane after the last one."""
        return self.weight_at + (4 * self.num_edges if self.weighted else 0)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.stop - self.start

    def to_json(self) -> list[int]:
        """All but the lane, which the files of a task share."""
        return [self.start, self.num_names, self.text_bytes, self.num_edges, int(self.weighted)]

    @classmethod
    def from_json(cls, lane: Lane, content: Sequence[int]) -> NameSpill:
        start, num_names, text_bytes, num_edges, weighted = content
        return cls(lane, start, num_names, text_bytes, num_edges, bool(weighted))

    def read_names(self, files: OpenFiles, start: int, stop: int) -> Names:
        """Read names ``start`` to ``stop``."""
        lane, offset = files.unsealed(self.lane), np.empty(stop - start + 1, np.int64)
        lane.read(self.offset_at + 8 * start, offset)
        text = np.empty(int(offset[-1] - offset[0]), np.uint8)
        lane.read(self.text_at + int(offset[0]), text)
        return Names(offset - offset[0], text)

    def read_numbers(self, files: OpenFiles) -> NDArray[np.int64]:
        """(num_names,) int64 number of each name within its range of names, once that range is merged."""
        numbers = np.empty(self.num_names, np.int64)
        files.unsealed(self.lane).read(self.start, numbers)
        return numbers

    def write_numbers(self, files: OpenFiles, start: int, numbers: NDArray[np.int64]) -> None:
        """Write the numbers of consecutive names, of which the first is name ``start``."""
        files.unsealed(self.lane).write(self.start + 8 * start, numbers)

    def read_ends(self, files: OpenFiles, start: int, stop: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """(num_edges,) int32 positions of the sources and of the targets of edges ``start`` to ``stop``."""
        ends = np.empty((2, stop - start), np.int32)
        for row, begin in zip(ends, (self.source_at, self.target_at), strict=True):
            files.unsealed(self.lane).read(begin + 4 * start, row)
        return ends[0], ends[1]

    def read_weights(self, files: OpenFiles, start: int, stop: int) -> NDArray[np.float32] | None:
        """(num_edges,) float32 weights of edges ``start`` to ``stop``; None if the file has none."""
        if not self.weighted:
            return None
        weights = np.empty(stop - start, np.float32)
        files.unsealed(self.lane).read(self.weight_at + 4 * start, weights)
        return weights


@dataclass(frozen=True)
class LaneNames:
    """The files of one task, as its record and the plan of the ranges hold them.

    Attributes:
        lane: the task's lane, as JSON.
        files: what :meth:`NameSpill.to_json` gives for each file.
    """

    lane: list[Any]
    files: list[list[int]]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> LaneNames:
        """Those of a record; the key "runs" is a name on disk, which stays."""
        return cls(facts["lane"], facts["runs"])

    def __iter__(self) -> Iterator[NameSpill]:
        lane = Lane.from_json(self.lane)
        return (NameSpill.from_json(lane, content) for content in self.files)

    def is_intact(self, work: Path) -> bool:
        """Whether the file of the lane exists and reaches to the end of the last of these."""
        lane = Lane.from_json(self.lane)
        return lane.is_intact(work, NameSpill.from_json(lane, self.files[-1]).stop if self.files else 0)


@dataclass(frozen=True)
class SortedNames:
    """The names of a file as a sequence that is read name by name, for binary searches."""

    files: OpenFiles
    file: NameSpill

    def __len__(self) -> int:
        return self.file.num_names

    def __getitem__(self, number: int) -> bytes:
        return self.read(number, number + 1).name(0)

    def read(self, start: int, stop: int) -> Names:
        """Read names ``start`` to ``stop``."""
        return self.file.read_names(self.files, start, stop)

    def text_bytes(self, start: int, stop: int) -> int:
        """Bytes of the text of names ``start`` to ``stop``."""
        ends = np.empty((2, 1), np.int64)
        for end, number in zip(ends, (start, stop), strict=True):
            self.files.unsealed(self.file.lane).read(self.file.offset_at + 8 * number, end)
        return int(ends[1, 0] - ends[0, 0])
