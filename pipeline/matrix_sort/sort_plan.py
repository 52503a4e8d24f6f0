"""The work between the two passes of the bucket sort: which spill files exist, and which row blocks to make of them.

Blocks are cut by the entries alone, never by ranges, workers or memory, so that the same edges give the same blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import grouped
from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.external_sort.spill import SpillFile, unit_shift
from gnnloom.storage.format.array_metadata import DEFAULT_CODEC
from gnnloom.storage.format.files import parsing, read_json, reading_work, write_json
from gnnloom.storage.matrix.ranges import Span

#: Maximum number of entries (including added self loops) of a row block, unless a single unit has more. Sorting them
#: takes 128 MiB (224 MiB with weights), so a worker with the default memory sorts a block at once. Part of the format.
BLOCK_ENTRIES = 1 << 23

#: Maximum number of rows of a row block, unless a single unit has more: at ``blocks.ROW_MEMORY`` bytes each, they take
#: 192 MiB. Part of the format.
BLOCK_ROWS = 1 << 22


@dataclass(frozen=True)
class SortPlan:
    """The row blocks to make, and the spill files that hold their entries.

    Attributes:
        num_vertices: rows and columns of the matrix.
        block_units: (num_blocks + 1) first unit of each block, and the number of units; a unit has 2^shift rows.
        block_entries: (num_blocks) entries of each block in the spill files.
        files: spill files, in the order of the source.
        merge: how weights of equal edges are merged; None for a matrix without weights.
        add_loops: whether every row gets a self loop.
        edges_in: edges of the source.
        self_loops: edges of the source from a vertex to itself.
        codec: compression of the arrays.
        file_units: (num_files) first and last (exclusive) unit of which each file may have entries; empty if each may
            have entries of any unit.
    """

    num_vertices: int
    block_units: list[int]
    block_entries: list[int]
    files: list[SpillFile]
    merge: str | None
    add_loops: bool
    edges_in: int
    self_loops: int
    codec: str = DEFAULT_CODEC
    file_units: list[Span] = field(default_factory=list)

    @property
    def shift(self) -> int:
        return unit_shift(self.num_vertices - 1)

    @property
    def column_bits(self) -> int:
        return (self.num_vertices - 1).bit_length()

    @property
    def num_blocks(self) -> int:
        return len(self.block_entries)

    @property
    def block_rows(self) -> list[int]:
        """(num_blocks + 1) first row of each block, and the number of vertices."""
        return [min(unit << self.shift, self.num_vertices) for unit in self.block_units]

    @property
    def spill_bytes(self) -> int:
        return sum(file.size for file in self.files)

    def files_of(self, first: int, last: int) -> list[SpillFile]:
        """The files that may have entries of units ``first`` to ``last``, in the order of the source for each unit."""
        if not self.file_units:
            return self.files
        return [
            file
            for file, (start, stop) in zip(self.files, self.file_units, strict=True)
            if start < last and first < stop
        ]

    def save(self, path: Path) -> None:
        write_json(path, {**self.__dict__, "files": [file.to_json() for file in self.files]})

    @classmethod
    def load(cls, path: Path) -> SortPlan:
        """Read a plan.

        Raises:
            DamagedWorkError: the file is damaged; without it, the sort makes it again.
        """
        with reading_work(path), parsing(path, "the plan of a sort"):
            content: Mapping[str, Any] = read_json(path)
            return cls(**{**content, "files": [SpillFile.from_json(file) for file in content["files"]]})


def cut_blocks(
    work: Path, files: Sequence[SpillFile], num_vertices: int, add_loops: bool
) -> tuple[list[int], list[int]]:
    """Cut the rows into blocks of about ``BLOCK_ENTRIES`` entries and at most ``BLOCK_ROWS`` rows.

    Returns:
        (num_blocks + 1) first unit of each block, and the number of units; (num_blocks) entries of each block.
    """
    shift = unit_shift(num_vertices - 1)
    entries = _unit_entries(work, files, num_vertices, shift)
    load = entries + (1 << shift if add_loops else 0)
    units = [0]
    for first, last in grouped(load, BLOCK_ENTRIES):
        step = max(1, BLOCK_ROWS >> shift)
        # A range with few entries may have any number of rows, so it is cut once more by rows alone.
        units.extend(range(first + step, last, step))
        units.append(last)
    sums = np.add.reduceat(entries, units[:-1])
    return units, sums.tolist()


def _unit_entries(work: Path, files: Sequence[SpillFile], num_vertices: int, shift: int) -> NDArray[np.int64]:
    """(num_units) entries of each unit in all files.

    A file whose ids are all small has smaller buckets than the graph has units, and never larger ones.
    """
    entries = np.zeros(((num_vertices - 1) >> shift) + 1, dtype=np.int64)
    with OpenFiles(work) as opened:
        for file in files:
            offsets = file.offsets(opened, 0, file.num_buckets)
            starts = offsets[:: 1 << (shift - file.shift)]
            # The file may end within a unit, in which case the step missed the end of its last bucket.
            if (len(offsets) - 1) % (1 << (shift - file.shift)):
                starts = np.append(starts, offsets[-1])
            entries[: len(starts) - 1] += np.diff(starts)
    return entries
