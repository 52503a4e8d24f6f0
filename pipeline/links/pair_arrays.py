"""The arrays of a split: ranges of its routed pairs, in the order in which they were routed, or by their positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task
from gnnloom.storage.artifacts.links import PAIR, VALUE_DTYPES
from gnnloom.storage.format.arrays import create_array, default_chunk_rows, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.schema import LINK_SPLITS

#: Chunks that a task writes.
CHUNKS_PER_TASK: Final = 4


@dataclass(frozen=True)
class PairArray:
    """An array with a row for each pair of a split.

    Attributes:
        path: of the array.
        shape, dtype, dims: of the array.
        plan: how the pairs are routed.
        columns: the columns of the shuffle that are its columns; none for an array that is the same for all pairs.
        constant: the number that is the same for all pairs.
        is_placed: every number of the array has a position of its own, row after row, and the shuffle one column.
        is_sorted: the numbers of a row ascend.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    plan: ShufflePlan
    columns: tuple[str, ...]
    constant: int = 0
    is_placed: bool = False
    is_sorted: bool = False

    @property
    def task_rows(self) -> int:
        """Rows that a task writes: whole chunks."""
        return CHUNKS_PER_TASK * default_chunk_rows(self.shape, np.dtype(self.dtype))

    def create(self, writer: ArtifactWriter) -> None:
        """Create the array, which several tasks write."""
        create_array(writer.path, self.path, self.shape, self.dtype, self.dims)

    def tasks(self, writer: ArtifactWriter) -> list[PairRowsTask]:
        """The tasks that write the rows; one if there are none, which records the array."""
        step, total, width = self.task_rows, self.shape[0], np.dtype(self.dtype).itemsize * prod(self.shape[1:])
        tasks = []
        for number, start in enumerate(range(0, max(1, total), step)):
            stop = min(start + step, total)
            num_bytes = (stop - start) * width
            numbers = prod(self.shape[1:])
            positions = (start * numbers, stop * numbers) if self.is_placed else (0, 1)
            # By position, each number comes with it, and both are put into their order.
            memory = num_bytes * (6 if self.is_placed else 2)
            needs = Needs(num_bytes, num_bytes, self.plan.opens(positions), memory)
            how = self.path, self.dtype, self.shape[1:], self.plan.shuffle, self.columns, self.constant
            form = self.is_placed, self.is_sorted
            tasks.append(PairRowsTask(writer, f"{self.path}/{number:05d}", needs, *how, *form, start, stop))
        return tasks


@dataclass(frozen=True)
class PairRowsTask(Task):
    """Writes rows ``start`` to ``stop`` of an array; see :class:`PairArray`."""

    path: str
    dtype: str
    trailing: tuple[int, ...]
    pairs: Shuffle
    columns: tuple[str, ...]
    constant: int
    is_placed: bool
    is_sorted: bool
    start: int
    stop: int

    def rows(self) -> NDArray[Any]:
        """The rows, in memory."""
        if self.is_placed:
            rows = self._placed_rows()
            return np.sort(rows, axis=1) if self.is_sorted else rows
        rows = np.full((self.stop - self.start, *self.trailing), self.constant, self.dtype)
        with OpenFiles(self.writer.work) as files:
            for place, name in enumerate(self.columns):
                found = self.pairs.rows(self.writer.work, files).numbered(range(self.start, self.stop), name)
                column = rows[:, place] if len(self.columns) > 1 else rows
                done = 0
                for block in found:
                    column[done : done + len(block)] = block
                    done += len(block)
        return rows

    def _placed_rows(self) -> NDArray[Any]:
        width, (name,) = prod(self.trailing), self.columns
        with OpenFiles(self.writer.work) as files:
            found = self.pairs.rows(self.writer.work, files).read(self.start * width, self.stop * width)
            return found.column(name).astype(self.dtype, copy=False).reshape(-1, *self.trailing)


def array_phase(writer: ArtifactWriter, arrays: Iterable[PairArray]) -> Phase:
    """The phase that writes some arrays, which exist."""
    arrays = list(arrays)
    tasks = [task for array in arrays for task in array.tasks(writer)]
    files = {id(array.plan.read_files): array.plan.read_files for array in arrays}
    return Phase("write pairs", write_pair_rows, tasks, "pairs", tuple(files.values()), makes_arrays=True)


def write_pair_rows(task: PairRowsTask) -> int:
    """Write some rows; returns their number."""
    with task.writer.task(task.name) as output:
        output.add(write_rows(task.writer.path, task.path, task.start, task.rows()))
    return task.stop - task.start


def drawn_arrays(
    plans: Mapping[str, ShufflePlan],
    num_pairs: Mapping[str, int],
    weight_dtype: str | None,
    *,
    disjoint: bool,
    has_edges: bool = False,
    kind: str = PAIR,
) -> list[PairArray]:
    """The arrays of pairs that are drawn from a graph.

    Args:
        plans: how the pairs of each split are routed.
        weight_dtype: of the graph's weights; None if it has none.
        disjoint: whether the pairs for training are no edges of the graph that the model reads.
        has_edges: whether pairs have positions among the edges of a relation, in place of weights.
        kind: kind of the values of pairs; none for ``pair``.
    """
    ends, one = ("source", "target"), ("pair",)
    arrays = [
        PairArray(f"{split}/pair", (num_pairs[split], 2), "int64", ("pair", "end"), plans[split], ends)
        for split in LINK_SPLITS
        if split in plans
    ]
    if has_edges:
        carried = {"edge": "int64"} | ({} if kind == PAIR else {"value": VALUE_DTYPES[kind]})
        return arrays + [
            PairArray(f"{split}/{name}", (num_pairs[split],), dtype, one, plans[split], (name,))
            for name, dtype in carried.items()
            for split in plans
        ]
    # A pair that is an edge of an unweighted graph has the entry 1.
    columns = ("weight",) if weight_dtype and not disjoint else ()
    weight = (num_pairs["train"],), weight_dtype or "uint8", one, plans["train"], columns, 0 if disjoint else 1
    return [*arrays, PairArray("train/weight", *weight)]
