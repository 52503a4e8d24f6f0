"""Rows that tasks wrote to several files, as one list that is split among other tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.pieces import range_pieces
from gnnloom.pipeline.partition.multilevel.vectors import map_vector


@dataclass(frozen=True)
class FileRows:
    """Consecutive rows of consecutive files.

    Attributes:
        pieces: file, first row, and row after the last.
    """

    pieces: tuple[tuple[Path, int, int], ...]

    @classmethod
    def all(cls, paths: Sequence[Path], counts: Sequence[int]) -> FileRows:
        """All rows of the files."""
        return cls(tuple((path, 0, count) for path, count in zip(paths, counts, strict=True) if count))

    def __len__(self) -> int:
        return sum(stop - start for _, start, stop in self.pieces)

    def split(self, count: int) -> list[FileRows]:
        """Split into at most ``count`` consecutive lists of about the same length."""
        wanted = range_pieces(range(len(self)), count)
        found: list[list[tuple[Path, int, int]]] = [[] for _ in wanted]
        number = first = 0
        for path, start, stop in self.pieces:
            at = start
            while at < stop:
                end = min(stop, at + wanted[number].stop - first)
                found[number].append((path, at, end))
                first, at = first + end - at, end
                number += first == wanted[number].stop
        return [FileRows(tuple(pieces)) for pieces in found]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        """Map the rows, file by file."""
        for path, start, stop in self.pieces:
            yield map_vector(path)[start:stop]


def numbered_paths(folder: Path, name: str, count: int) -> tuple[Path, ...]:
    """Paths of the files that as many tasks write."""
    return tuple(folder / f"{name}-{number:05d}.npy" for number in range(count))
