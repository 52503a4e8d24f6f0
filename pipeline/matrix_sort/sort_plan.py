"""What stands between the passes of the bucket sort: the runs that were written and the row blocks to make of them.

Blocks are cut where the entries say, never where ranges, workers or memory do, so that the same
edges give the same blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import grouped
from gnnloom.pipeline.external_sort.spill import Run, read_offsets, unit_shift
from gnnloom.storage.format.chunks import DEFAULT_CODEC
from gnnloom.storage.format.files import read_json, write_json

#: Entries (with added self loops) of a row block, unless a single unit has more. Part of the format.
BLOCK_ENTRIES = 1 << 23

#: Rows of a block, unless a single unit has more. Part of the format.
BLOCK_ROWS = 1 << 22


@dataclass(frozen=True)
class SortPlan:
    """Row blocks and the runs that hold their entries.

    Attributes:
        num_vertices: rows and columns of the matrix.
        block_units: (num_blocks + 1) first units of the blocks, each of 2^shift rows.
        block_entries: (num_blocks) entries in the runs.
        runs: in the order of the source.
        merge: how weights of equal edges are merged; None for a matrix without weights.
        add_loops: whether every row gets a self loop.
        edges_in: edges of the source.
        self_loops: edges of the source from a vertex to itself.
        codec: of the arrays.
    """

    num_vertices: int
    block_units: list[int]
    block_entries: list[int]
    runs: list[Run]
    merge: str | None
    add_loops: bool
    edges_in: int
    self_loops: int
    codec: str = DEFAULT_CODEC

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
        """(num_blocks + 1) first rows of the blocks, ending with the number of vertices."""
        return [min(unit << self.shift, self.num_vertices) for unit in self.block_units]

    @property
    def spill_bytes(self) -> int:
        return sum(run.size for run in self.runs)

    def save(self, path: Path) -> None:
        write_json(path, {**self.__dict__, "runs": [run.to_json() for run in self.runs]})

    @classmethod
    def load(cls, path: Path) -> SortPlan:
        content: Mapping[str, Any] = read_json(path)
        return cls(**{**content, "runs": [Run.from_json(run) for run in content["runs"]]})


def cut_blocks(work: Path, runs: Sequence[Run], num_vertices: int, add_loops: bool) -> tuple[list[int], list[int]]:
    """First units of the blocks (with the number of units at the end) and the entries of each block."""
    shift = unit_shift(num_vertices - 1)
    entries = _unit_entries(work, runs, num_vertices, shift)
    load = entries + (1 << shift if add_loops else 0)
    units = [0]
    for first, last in grouped(load, BLOCK_ENTRIES):
        step = max(1, BLOCK_ROWS >> shift)
        units.extend(range(first + step, last, step))
        units.append(last)
    sums = np.add.reduceat(entries, units[:-1])
    return units, sums.tolist()


def _unit_entries(work: Path, runs: Sequence[Run], num_vertices: int, shift: int) -> NDArray[np.int64]:
    """(num_units) entries of all runs; a run's buckets are never larger than the graph's units."""
    entries = np.zeros(((num_vertices - 1) >> shift) + 1, dtype=np.int64)
    for run in runs:
        offsets = read_offsets(work, run, 0, run.num_buckets)
        starts = offsets[:: 1 << (shift - run.shift)]
        if (len(offsets) - 1) % (1 << (shift - run.shift)):
            starts = np.append(starts, offsets[-1])
        entries[: len(starts) - 1] += np.diff(starts)
    return entries
