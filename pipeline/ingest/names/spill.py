"""Spill files of named edges: the distinct names of some edges in ascending order, and the edges by position of name.

One task writes a file at once:

    offset    (num_names + 1,) int64      where each name begins in the text
    text      (text_bytes,) uint8
    source    (num_edges,) int32          positions of the edges' ends among the names
    target    (num_edges,) int32
    weight    (num_edges,) float32        if weighted

A second file of (num_names,) int64 accompanies it. Merging the names of all files fills it with the number of each name
within its range of names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.raw_files import read_bytes
from gnnloom.pipeline.sources.names import Names


@dataclass(frozen=True)
class NameSpill:
    """Describes one spill file.

    Attributes:
        path: path of the file, relative to the work folder.
        num_names: number of distinct names.
        text_bytes: bytes of their text.
        num_edges: number of edges.
        weighted: whether weights follow the edges.
    """

    path: str
    num_names: int
    text_bytes: int
    num_edges: int
    weighted: bool

    @property
    def numbers_path(self) -> str:
        """Path of the file of the names' numbers."""
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
    def from_json(cls, content: Mapping[str, Any]) -> NameSpill:
        return cls(**content)

    def is_intact(self, work: Path) -> bool:
        """Whether both files exist in their full length."""
        try:
            sizes = [(work / path).stat().st_size for path in (self.path, self.numbers_path)]
        except FileNotFoundError:
            return False
        return sizes == [self.size, 8 * self.num_names]

    def read_names(self, work: Path, start: int, stop: int) -> Names:
        """Read names ``start`` to ``stop``."""
        offset = np.empty(stop - start + 1, np.int64)
        read_bytes(work / self.path, 8 * start, offset)
        text = np.empty(int(offset[-1] - offset[0]), np.uint8)
        read_bytes(work / self.path, self.text_at + int(offset[0]), text)
        return Names(offset - offset[0], text)

    def read_numbers(self, work: Path) -> NDArray[np.int64]:
        """(num_names,) int64 number of each name within its range of names, once that range is merged."""
        numbers = np.empty(self.num_names, np.int64)
        read_bytes(work / self.numbers_path, 0, numbers)
        return numbers

    def read_ends(self, work: Path, start: int, stop: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """(num_edges,) int32 positions of the sources and of the targets of edges ``start`` to ``stop``."""
        ends = np.empty((2, stop - start), np.int32)
        for row, begin in zip(ends, (self.source_at, self.target_at), strict=True):
            read_bytes(work / self.path, begin + 4 * start, row)
        return ends[0], ends[1]

    def read_weights(self, work: Path, start: int, stop: int) -> NDArray[np.float32] | None:
        """(num_edges,) float32 weights of edges ``start`` to ``stop``; None if the file has none."""
        if not self.weighted:
            return None
        weights = np.empty(stop - start, np.float32)
        read_bytes(work / self.path, self.weight_at + 4 * start, weights)
        return weights


@dataclass(frozen=True)
class SortedNames:
    """The names of a file as a sequence that is read name by name, for binary searches."""

    work: Path
    file: NameSpill

    def __len__(self) -> int:
        return self.file.num_names

    def __getitem__(self, number: int) -> bytes:
        return self.file.read_names(self.work, number, number + 1).name(0)

    def text_bytes(self, start: int, stop: int) -> int:
        """Bytes of the text of names ``start`` to ``stop``."""
        ends = np.empty((2, 1), np.int64)
        for end, number in zip(ends, (start, stop), strict=True):
            read_bytes(self.work / self.file.path, 8 * number, end)
        return int(ends[1, 0] - ends[0, 0])
