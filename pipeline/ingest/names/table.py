"""The distinct names of a source in ascending order, on disk: the position of a name is the number of its vertex."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles, OpenLane
from gnnloom.storage.format.artifact import TaskRecord
from gnnloom.storage.format.files import read_json, write_json


@dataclass(frozen=True)
class NameTable:
    """The lanes of consecutive ranges of names.

    Attributes:
        ends: (num_ranges) lane with the ends of the names of each range, relative to the work folder; as JSON.
        text: (num_ranges) lane with their text.
        first_name: (num_ranges + 1) number of the first name of each range, and the number of names.
        first_byte: (num_ranges + 1) first byte of each range in the text of all names, and the number of bytes.
    """

    ends: list[list[Any]]
    text: list[list[Any]]
    first_name: list[int]
    first_byte: list[int]

    @classmethod
    def of(cls, records: Sequence[TaskRecord]) -> NameTable:
        """The table of the ranges that :func:`gnnloom.pipeline.ingest.names.merge.merge_names` merged."""
        facts = [record.facts for record in records]
        names = list(accumulate((fact["names"] for fact in facts), initial=0))
        return cls(
            [fact["ends"] for fact in facts],
            [fact["text"] for fact in facts],
            names,
            list(accumulate((fact["text_bytes"] for fact in facts), initial=0)),
        )

    def save(self, path: Path) -> None:
        write_json(path, self.__dict__)

    @classmethod
    def load(cls, path: Path) -> NameTable:
        return cls(**read_json(path))

    @property
    def num_names(self) -> int:
        return self.first_name[-1]

    @property
    def num_bytes(self) -> int:
        return self.first_byte[-1]

    @property
    def size(self) -> int:
        """Bytes of all lanes."""
        return 8 * self.num_names + self.num_bytes

    def is_intact(self, work: Path) -> bool:
        """Whether the files of all lanes exist and are long enough."""
        widths = ((self.ends, self.first_name, 8), (self.text, self.first_byte, 1))
        return all(
            Lane.from_json(lane).is_intact(work, width * (last - first))
            for lanes, firsts, width in widths
            for lane, (first, last) in zip(lanes, pairwise(firsts), strict=True)
        )

    def read_offsets(self, work: Path, start: int, stop: int) -> NDArray[np.int64]:
        """(stop - start,) int64 byte at which each name begins in the text of all; name ``num_names`` is its end."""
        offsets = np.zeros(stop - start, np.int64)
        # The lanes hold where names end, and name k begins where name k - 1 ends.
        low, high = max(start, 1) - 1, stop - 1
        for lane, number, begin, end in self._pieces(work, self.ends, self.first_name, low, high):
            ends = offsets[begin + 1 - start : end + 1 - start]
            lane.read(8 * (begin - self.first_name[number]), ends)
            # Each lane counts its bytes from 0, so that ranges could be merged without knowing each other's size.
            ends += self.first_byte[number]
        return offsets

    def read_text(self, work: Path, start: int, stop: int) -> NDArray[np.uint8]:
        """(stop - start,) uint8 bytes ``start`` to ``stop`` of the text of all names."""
        text = np.empty(stop - start, np.uint8)
        for lane, number, begin, end in self._pieces(work, self.text, self.first_byte, start, stop):
            lane.read(begin - self.first_byte[number], text[begin - start : end - start])
        return text

    @staticmethod
    def _pieces(
        work: Path, lanes: list[list[Any]], firsts: list[int], start: int, stop: int
    ) -> Iterator[tuple[OpenLane, int, int, int]]:
        """Elements ``start`` to ``stop`` range by range: the open lane, its number, and first and last element."""
        with OpenFiles(work) as files:
            for number, (first, last) in enumerate(pairwise(firsts)):
                begin, end = max(first, start), min(last, stop)
                if begin < end:
                    yield files.lane(Lane.from_json(lanes[number])), number, begin, end
