"""Draws the batches that a stochastic partition is made for, in tasks, by the samplers that training uses.

Batches lie in a file with one bit for each vertex, which tasks map and look up. The record of a task that draws has the
checksum of each of its batches, and a process compares a batch when it first reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.tasks.phase import Needs, Phase, WorkFiles
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.whole_graph import WholeGraph, map_whole_graph
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.errors import DamagedWorkError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, TaskRecord
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.samplers.registry import SAMPLERS
from gnnloom.storage.sampling.vertex import members
from gnnloom.storage.system_errors import naming

if TYPE_CHECKING:
    from gnnloom.storage.sampling.sampler import SubgraphSampler

#: Draws of a task: a few seconds.
_TASK_DRAWS = 1 << 24


@dataclass(frozen=True)
class BatchBits(WorkFiles):
    """Batches in a file; small and picklable, so that tasks can hold it.

    Attributes:
        path: file of (num_batches, num_bytes) uint8; bit v % 8 of byte v // 8 of a row says whether vertex v is drawn.
    """

    path: Path
    num_batches: int
    num_vertices: int

    def write(self, row: int, vertices: NDArray[np.int64]) -> int:
        """Store the vertices of one batch; returns a checksum of its row.

        Args:
            row: of the file; every row has one writer.
            vertices: (num_drawn,) int64.
        """
        drawn = np.zeros(self.num_vertices, dtype=np.bool_)
        drawn[vertices] = True
        packed = np.packbits(drawn, bitorder="little")
        # Not through a map: workers on several machines would write back whole pages, with the rows of others.
        with naming(self.path), self.path.open("r+b") as file:
            file.seek(row * self.row_bytes)
            file.write(packed.data)
        return int(google_crc32c.value(packed))

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Map the (stop - start, num_bytes) bits of some batches.

        Raises:
            DamagedWorkError: the file is damaged.
        """
        found = self.path.stat() if self.path.exists() else None
        if found is None or found.st_size != self.num_bytes:
            raise DamagedWorkError(self.path, "is missing, or has another size")
        bits = np.memmap(self.path, np.uint8, "r", shape=(self.num_batches, self.row_bytes))
        sums = read_json(self._sums_path)["sums"]
        for row in range(start, stop):
            if _row_checksum(self, row, found.st_ino, found.st_mtime_ns) != sums[row]:
                raise DamagedWorkError(self.path, f"batch {row} is damaged")
        return np.asarray(bits[start:stop])

    def create(self) -> None:
        """Make the file, empty, unless an earlier command did; its rows have checksums elsewhere."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.truncate(self.num_bytes)

    def is_intact(self, _: TaskRecord) -> bool:
        return self.path.exists() and self.path.stat().st_size == self.num_bytes

    def publish(self, records: Sequence[TaskRecord]) -> None:
        sums = [checksum for record in records for checksum in record.facts["sums"]]
        write_json(self._sums_path, {"sums": sums}, durable=False, indent=None)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    @property
    def row_bytes(self) -> int:
        """Bytes of a batch."""
        return -(-self.num_vertices // 8)

    @property
    def num_bytes(self) -> int:
        return self.num_batches * self.row_bytes

    @property
    def _sums_path(self) -> Path:
        return self.path.with_suffix(".json")


@lru_cache(maxsize=1 << 14)
def _row_checksum(bits: BatchBits, row: int, _: int, __: int) -> int:
    """The checksum of a row of a file, which the numbers of its inode and its last change tell from others."""
    row_bytes = np.fromfile(bits.path, np.uint8, bits.row_bytes, offset=row * bits.row_bytes)
    return int(google_crc32c.value(row_bytes))


@kernel(inline="always")
def is_drawn(bits: NDArray[np.uint8], vertex: int) -> bool:
    """Return whether a vertex is in the batch with these (num_bytes,) bits."""
    return bool((bits[vertex >> 3] >> (vertex & 7)) & 1)


@dataclass(frozen=True)
class BatchDrawer:
    """Draws batches of a graph; small and picklable, so that tasks can hold it.

    Attributes:
        kind: one of :data:`gnnloom.storage.samplers.kind.BATCHES`.
        size: vertices to draw for a batch, repeats included.
        seed: batches with other seeds are independent.
    """

    kind: str
    graph_path: Path
    num_vertices: int
    size: int
    seed: int

    @classmethod
    def of(cls, kind: str, graph_path: Path, num_vertices: int, rate: float, seed: int) -> Self:
        """Draw batches of this share of the vertices, and of at least one."""
        return cls(kind, graph_path, num_vertices, max(1, round(rate * num_vertices)), seed)

    def vertices(self) -> Callable[[int], NDArray[np.int64]]:
        """Return the function from the number of a batch to its (num_drawn,) int64 vertices, ascending.

        Batches with other numbers are independent. Uniform batches need no graph; for others this maps it.
        """
        # The first batch of an epoch of its own: batches of one epoch can be disjoint.
        if self.kind == "vertex":
            return lambda number: members(self.num_vertices, self.size, self.seed, number, 0)
        graph = map_whole_graph(Graph(Artifact(self.graph_path)))
        # Samplers of these kinds take a graph, a seed and a size, and draw by its pattern.
        make = cast("Callable[[WholeGraph, int, int], SubgraphSampler]", SAMPLERS[self.kind].load())
        sampler = make(replace(graph, matrix=replace(graph.matrix, data=None)), self.seed, self.size)
        return lambda number: sampler.draw(number, 0)


@dataclass(frozen=True)
class _DrawTask:
    """Draws the batches of some rows of a file.

    Attributes:
        first: number of the batch in row 0.
    """

    writer: ArtifactWriter
    drawer: BatchDrawer
    bits: BatchBits
    first: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"draw/{self.first + self.start:06d}"

    @property
    def needs(self) -> Needs:
        count, row_bytes = self.stop - self.start, self.bits.row_bytes
        # A step of a walk looks up the row of a vertex, and a neighbor in it; both bools and bits of a batch are held.
        read = 0 if self.drawer.kind == "vertex" else 24 * self.drawer.size * count
        return Needs(read, count * row_bytes, memory=9 * row_bytes + 16 * self.drawer.size)


def draw_phase(
    writer: ArtifactWriter, drawer: BatchDrawer, numbers: range, name: str = "draw batches"
) -> tuple[Phase, BatchBits]:
    """The phase that draws the batches with these numbers, and their file."""
    bits = BatchBits(writer.work / "batches" / f"{numbers.start:06d}", len(numbers), drawer.num_vertices)
    count = min(len(numbers), -(-len(numbers) * drawer.size // _TASK_DRAWS))
    spans = (split_range(len(numbers), count, task) for task in range(count))
    tasks = [_DrawTask(writer, drawer, bits, numbers.start, *span) for span in spans]
    return Phase(name, draw_batches, tasks, "batches", files=(bits,)), bits


def draw_batches(task: _DrawTask) -> int:
    """Draw the batches of a task; returns their number."""
    vertices, rows = task.drawer.vertices(), range(task.start, task.stop)
    with task.writer.task(task.name) as output:
        output.facts["sums"] = [task.bits.write(row, vertices(task.first + row)) for row in rows]
    return len(rows)
