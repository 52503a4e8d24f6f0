"""Spill files of named edges: the distinct names of some edges in ascending order, and the edges by their places.

A *run* is one file that one task wrote at once:

    offset    (num_names + 1,) int64      where the names lie in the text
    text      (text_bytes,) uint8
    source    (num_edges,) int32          places of the edges' ends among the names
    target    (num_edges,) int32
    weight    (num_edges,) float32        if weighted

Beside it stands a file of (num_names,) int64, which whoever merges the names of all runs fills with each name's
number among those of the same range of names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.spill import read_bytes
from gnnloom.pipeline.sources.names import Names


@dataclass(frozen=True)
class NameRun:
    """One spill file.

    Attributes:
        path: of the file, within the work folder.
    """

    path: str
    num_names: int
    text_bytes: int
    num_edges: int
    weighted: bool

    @property
    def numbers_path(self) -> str:
        """Of the file of the names' numbers."""
        return f"{self.path}.numbers"

    @property
    def text_at(self) -> int:
        return 8 * (self.num_names + 1)

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
    def size(self) -> int:
        """Bytes of the file."""
        return self.weight_at + (4 * self.num_edges if self.weighted else 0)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> NameRun:
        return cls(**content)

    def is_intact(self, work: Path) -> bool:
        """Whether both files are there in their full length."""
        try:
            sizes = [(work / path).stat().st_size for path in (self.path, self.numbers_path)]
        except FileNotFoundError:
            return False
        return sizes == [self.size, 8 * self.num_names]

    def read_names(self, work: Path, start: int, stop: int) -> Names:
        """Names ``start`` to ``stop``."""
        offset = np.empty(stop - start + 1, np.int64)
        read_bytes(work / self.path, 8 * start, offset)
        text = np.empty(int(offset[-1] - offset[0]), np.uint8)
        read_bytes(work / self.path, self.text_at + int(offset[0]), text)
        return Names(offset - offset[0], text)

    def read_numbers(self, work: Path) -> NDArray[np.int64]:
        """(num_names,) what the merging task wrote beside the run."""
        numbers = np.empty(self.num_names, np.int64)
        read_bytes(work / self.numbers_path, 0, numbers)
        return numbers

    def read_ends(self, work: Path, start: int, stop: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Places of the sources and targets of edges ``start`` to ``stop``."""
        ends = np.empty((2, stop - start), np.int32)
        for row, begin in zip(ends, (self.source_at, self.target_at), strict=True):
            read_bytes(work / self.path, begin + 4 * start, row)
        return ends[0], ends[1]

    def read_weights(self, work: Path, start: int, stop: int) -> NDArray[np.float32] | None:
        """Weights of edges ``start`` to ``stop``; None where there are none."""
        if not self.weighted:
            return None
        weights = np.empty(stop - start, np.float32)
        read_bytes(work / self.path, self.weight_at + 4 * start, weights)
        return weights


@dataclass(frozen=True)
class SortedNames:
    """The names of a run as a sequence that is read name by name, for searching."""

    work: Path
    run: NameRun

    def __len__(self) -> int:
        return self.run.num_names

    def __getitem__(self, number: int) -> bytes:
        return self.run.read_names(self.work, number, number + 1).name(0)

    def text_bytes(self, start: int, stop: int) -> int:
        """Bytes of the names ``start`` to ``stop``."""
        ends = np.empty((2, 1), np.int64)
        for end, number in zip(ends, (start, stop), strict=True):
            read_bytes(self.work / self.run.path, 8 * number, end)
        return int(ends[1, 0] - ends[0, 0])
