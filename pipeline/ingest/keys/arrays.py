"""The distinct keys of a source, ascending, and their arrays in the graph: original ids, or names and their offsets.

The position of a key is the number of its vertex.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, LaneSet, OpenFiles
from gnnloom.pipeline.ingest.keys.blocks import KeyBlock, OpenBlock
from gnnloom.pipeline.ingest.keys.key_types import KEY_TYPES
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, run
from gnnloom.storage.disk.files import parsing, read_json, reading_work, write_json
from gnnloom.storage.format.arrays import CHUNK_BYTES, create_array, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.meters import Done

#: Bytes of a chunk, and chunks that one task writes.
_CHUNK_BYTES, _TASK_CHUNKS = CHUNK_BYTES, 4


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
    def of(cls, records: Sequence[TaskRecord], ids: str, kind: int | None = None) -> KeyTable:
        """The table of the ranges that :func:`gnnloom.pipeline.ingest.keys.merge.merge_range` merged.

        Args:
            kind: of the keys, if they have several.
        """
        merged = [
            [
                [record.facts["lane"], *block]
                for number, block in enumerate(record.facts["blocks"])
                if kind is None or record.facts["kinds"][number] == kind
            ]
            for record in records
        ]
        return cls(ids, list(chain.from_iterable(merged)), list(accumulate(map(len, merged), initial=0)))

    @classmethod
    def stated(cls, ids: str, counts: Sequence[int], num_ranges: int) -> KeyTable:
        """A table that is only counted, of ranges of equal size: tasks open the largest number of files.

        Args:
            counts: elements of each array in which the keys are stored.
        """
        lanes = LaneSet.named("keys/merged", num_ranges)
        inner = ([1 + total * number // num_ranges for total in counts] for number in range(1, num_ranges))
        ends = [[0] * len(counts), *inner, list(counts)]
        blocks = [
            [lanes.lane(number).to_json(), 0, [stop - start for start, stop in zip(*pair, strict=True)]]
            for number, pair in enumerate(pairwise(ends))
        ]
        return cls(ids, blocks, list(range(num_ranges + 1)))

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

    def num_files(self, firsts: Sequence[int], start: int, stop: int) -> int:
        """Files with elements ``start`` to ``stop`` of an array whose blocks have these :meth:`firsts`."""
        last = bisect_left(firsts, stop)
        return len({self.blocks[number][0][0] for number in range(bisect_right(firsts, start) - 1, last)})

    def _block(self, number: int) -> KeyBlock:
        lane, start, counts = self.blocks[number]
        return KeyBlock(Lane.from_json(lane), start, tuple(counts), KEY_TYPES[self.ids].widths)


@dataclass(frozen=True)
class KeyArray:
    """One of the arrays.

    Attributes:
        name: name in the artifact.
        dtype: of its elements.
        dim: name of its dimension.
        stored: number of the array in which the keys are stored that it is made of.
        before: whether it has a 0 in front of the stored elements: it holds where names begin, and not where they end.
    """

    name: str
    dtype: str
    dim: str
    stored: int
    before: bool = False

    @property
    def chunk(self) -> int:
        """Elements of a chunk."""
        return _CHUNK_BYTES // np.dtype(self.dtype).itemsize

    @property
    def task_elements(self) -> int:
        """Elements that one task writes: whole chunks, so that no two tasks write the same one."""
        return _TASK_CHUNKS * self.chunk

    def size(self, table: KeyTable) -> int:
        return table.firsts(self.stored)[-1] + self.before

    def read(self, table: KeyTable, work: Path, start: int, stop: int) -> NDArray[np.int64] | NDArray[np.uint8]:
        """(stop - start,) elements."""
        if not self.before:
            return table.read(work, self.stored, start, stop)
        found = table.read(work, self.stored, max(start - 1, 0), stop - 1)
        return found if start else np.concatenate([[0], found])


#: The arrays of a graph by the type of the keys.
_KEY_ARRAYS: Final[Mapping[str, tuple[KeyArray, ...]]] = {
    "compact": (KeyArray("original_id", "int64", "vertex", 0),),
    "names": (
        KeyArray("original_name_offset", "int64", "vertex+1", 0, before=True),
        KeyArray("original_name", "uint8", "byte", 1),
    ),
}


def key_arrays(ids: str, folder: str = "") -> list[KeyArray]:
    """The arrays by the type of the keys.

    Args:
        folder: what the paths of the arrays begin with: empty, or the folder of a type of vertices.
    """
    arrays = _KEY_ARRAYS[ids]
    if not folder:
        return list(arrays)
    return [replace(each, name=folder + each.name, dim=each.dim.replace("vertex", "member")) for each in arrays]


@dataclass(frozen=True)
class KeyArrayTask(Task):
    """Writes elements ``start`` to ``stop`` of one array.

    Attributes:
        table: file of the table of the keys.
    """

    table: Path
    array: KeyArray
    start: int
    stop: int


def write_key_arrays(
    writer: ArtifactWriter, table_path: Path, codec: str, cluster: Cluster, folder: str = ""
) -> list[str]:
    """Write the elements that are not recorded; returns the names of all tasks.

    Args:
        writer: artifact of the graph.
        table_path: file of the table of the keys.
        codec: compression of the arrays.
        cluster: where the tasks run.
        folder: what the paths of the arrays begin with.
    """
    table = KeyTable.load(table_path)
    for array in key_arrays(table.ids, folder):
        create_array(writer.path, array.name, (array.size(table),), array.dtype, (array.dim,), array.chunk, codec)
    return run(array_phases(writer, table, table_path, folder), cluster, writer)


def array_phases(writer: ArtifactWriter, table: KeyTable, table_path: Path, folder: str = "") -> list[Phase]:
    """The phases that write the arrays.

    Args:
        table_path: file of the table.
        folder: what the paths of the arrays begin with.
    """
    phases = []
    for array in key_arrays(table.ids, folder):
        size, step, tasks = array.size(table), array.task_elements, []
        firsts = table.firsts(array.stored)
        for start in range(0, size, step):
            stop = min(start + step, size)
            num_bytes = np.dtype(array.dtype).itemsize * (stop - start)
            opens = table.num_files(firsts, max(start - array.before, 0), stop - array.before)
            needs = Needs(num_bytes, num_bytes, opens, 2 * num_bytes)
            tasks.append(KeyArrayTask(writer, f"{array.name}/{start:015d}", needs, table_path, array, start, stop))
        phases.append(Phase(f"write {array.name}", write_key_array, tasks, "elements", makes_arrays=True))
    return phases


def write_key_array(task: KeyArrayTask) -> Done:
    """Write the elements of one task; returns their number."""
    table = KeyTable.load(task.table)
    with task.writer.task(task.name) as output:
        found = task.array.read(table, task.writer.work, task.start, task.stop)
        output.add(write_rows(task.writer.path, task.array.name, task.start, found))
    return Done(task.stop - task.start)
