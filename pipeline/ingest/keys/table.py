"""The distinct keys of a source in ascending order, on disk: the position of a key is the number of its vertex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.ingest.keys.blocks import KeyBlock, OpenBlock
from gnnloom.pipeline.ingest.keys.key_types import KEY_TYPES
from gnnloom.pipeline.ingest.keys.merge import merged_blocks
from gnnloom.storage.format.artifact import TaskRecord
from gnnloom.storage.format.files import parsing, read_json, reading_work, write_json


@dataclass(frozen=True)
class KeyTable:
    """The blocks of consecutive ranges of keys.

    Attributes:
        ids: type of the keys.
        blocks: lane, as JSON, first byte, and elements of each array, for each block, ascending.
        range_blocks: (num_ranges + 1) first block of each range, and the number of blocks.
    """

    ids: str
    blocks: list[list[Any]]
    range_blocks: list[int]

    @classmethod
    def of(cls, records: Sequence[TaskRecord], ids: str) -> KeyTable:
        """The table of the ranges that :func:`gnnloom.pipeline.ingest.keys.merge.merge_keys` merged."""
        merged = [merged_blocks(record, KEY_TYPES[ids]) for record in records]
        blocks = [[block.lane.to_json(), block.start, list(block.counts)] for each in merged for block in each]
        return cls(ids, blocks, list(accumulate(map(len, merged), initial=0)))

    def save(self, path: Path) -> None:
        write_json(path, self.__dict__)

    @classmethod
    def load(cls, path: Path) -> KeyTable:
        """Read a file.

        Raises:
            DamagedWorkError: the file is damaged; without it, it is made again.
        """
        with reading_work(path), parsing(path, "a table of keys"):
            return cls(**read_json(path))

    def firsts(self, array: int) -> list[int]:
        """(num_blocks + 1) first element of each block in an array of all keys, and the number of elements."""
        return list(accumulate((counts[array] for _, _, counts in self.blocks), initial=0))

    @property
    def range_firsts(self) -> NDArray[np.int64]:
        """(num_ranges,) int64 number of the first key of each range."""
        return np.array(self.firsts(0), np.int64)[self.range_blocks[:-1]]

    @property
    def num_bytes(self) -> int:
        """Bytes of all keys."""
        return sum(width * self.firsts(array)[-1] for array, width in enumerate(KEY_TYPES[self.ids].widths))

    def read(self, work: Path, array: int, start: int, stop: int) -> NDArray[Any]:
        """(stop - start,) elements of one of the arrays in which the keys are stored, as if there was one block."""
        keys, firsts = KEY_TYPES[self.ids], self.firsts(array)
        found = np.empty(stop - start, np.int64 if keys.widths[array] == 8 else np.uint8)
        # Ends count the text of a block from 0, so that ranges could be merged without knowing each other's size.
        before = self.firsts(1) if array == 0 and len(keys.widths) > 1 else None
        with OpenFiles(work) as files:
            for number, (first, last) in enumerate(pairwise(firsts)):
                begin, end = max(first, start), min(last, stop)
                if begin < end:
                    block = OpenBlock(self._block(number), keys, files)
                    elements = block.elements(array, begin - first, end - first)
                    found[begin - start : end - start] = elements + before[number] if before else elements
        return found

    def _block(self, number: int) -> KeyBlock:
        lane, start, counts = self.blocks[number]
        return KeyBlock(Lane.from_json(lane), start, tuple(counts), KEY_TYPES[self.ids].widths)
