"""The distinct names of a source in ascending order, on disk: the position of a name is the number of its vertex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.raw_files import read_bytes
from gnnloom.storage.format.artifact import TaskRecord
from gnnloom.storage.format.files import read_json, write_json


@dataclass(frozen=True)
class NameTable:
    """The files of consecutive ranges of names.

    Attributes:
        paths: (num_ranges) file of each range, relative to the work folder and without its suffix.
        first_name: (num_ranges + 1) number of the first name of each range, and the number of names.
        first_byte: (num_ranges + 1) first byte of each range in the text of all names, and the number of bytes.
    """

    paths: list[str]
    first_name: list[int]
    first_byte: list[int]

    @classmethod
    def of(cls, records: Sequence[TaskRecord]) -> NameTable:
        """The table of the ranges that :func:`gnnloom.pipeline.ingest.names.merge.merge_names` merged."""
        facts = [record.facts for record in records]
        names = list(accumulate((fact["names"] for fact in facts), initial=0))
        return cls(
            [fact["path"] for fact in facts],
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

    def read_offsets(self, work: Path, start: int, stop: int) -> NDArray[np.int64]:
        """(stop - start,) int64 byte at which each name begins in the text of all; name ``num_names`` is its end."""
        offsets = np.zeros(stop - start, np.int64)
        # The files hold where names end, and name k begins where name k - 1 ends.
        low, high = max(start, 1) - 1, stop - 1
        for number, (first, last) in enumerate(pairwise(self.first_name)):
            begin, end = max(first, low), min(last, high)
            if begin < end:
                ends = offsets[begin + 1 - start : end + 1 - start]
                read_bytes(work / f"{self.paths[number]}.end", 8 * (begin - first), ends)
                # Each file counts its bytes from 0, so that ranges could be merged without knowing each other's size.
                ends += self.first_byte[number]
        return offsets

    def read_text(self, work: Path, start: int, stop: int) -> NDArray[np.uint8]:
        """(stop - start,) uint8 bytes ``start`` to ``stop`` of the text of all names."""
        text = np.empty(stop - start, np.uint8)
        for number, (first, last) in enumerate(pairwise(self.first_byte)):
            begin, end = max(first, start), min(last, stop)
            if begin < end:
                read_bytes(work / f"{self.paths[number]}.text", begin - first, text[begin - start : end - start])
        return text
