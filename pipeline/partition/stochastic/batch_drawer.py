"""Draws the batches that a stochastic partition is made for, in tasks, by the samplers that training uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.stochastic.batch_bits import DrawnBatches
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.whole_graph import WholeGraph, map_whole_graph
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.sampling.kinds import SAMPLERS
from gnnloom.storage.sampling.vertex import members

if TYPE_CHECKING:
    from gnnloom.storage.sampling.sampler import Sampler

#: Draws of a task: a few seconds.
_TASK_DRAWS = 1 << 24


@dataclass(frozen=True)
class BatchDrawer:
    """Draws batches of a graph; small and picklable, so that tasks can hold it.

    Attributes:
        kind: one of :data:`gnnloom.storage.sampling.kinds.BATCHES`.
        size: vertices to draw for a batch, repeats included.
        seed: batches with other seeds are independent.
    """

    kind: str
    graph_path: Path
    num_vertices: int
    size: int
    seed: int

    @classmethod
    def of(cls, kind: str, graph: Graph, rate: float, seed: int) -> Self:
        """Draw batches of this share of the vertices."""
        return cls(kind, graph.artifact.path, graph.num_vertices, batch_size(graph.num_vertices, rate), seed)

    def vertices(self) -> Callable[[int], NDArray[np.int64]]:
        """Return the function from the number of a batch to its (num_drawn,) int64 vertices, ascending.

        Batches with other numbers are independent.  Uniform batches need no graph; for others this maps it.
        """
        # The first batch of an epoch of its own: those of one epoch can be disjoint.
        if self.kind == "vertex":
            return lambda number: members(self.num_vertices, self.size, self.seed, number, 0)
        graph = map_whole_graph(Graph(Artifact(self.graph_path)))
        # Samplers of these kinds take a graph, a seed and a size, and draw by its pattern.
        make = cast("Callable[[WholeGraph, int, int], Sampler]", SAMPLERS[self.kind].load())
        sampler = make(replace(graph, matrix=replace(graph.matrix, data=None)), self.seed, self.size)
        return lambda number: sampler.draw(number, 0)

    def draw(self, numbers: range, drawn: DrawnBatches, cluster: Cluster) -> None:
        """Draw the batches with these numbers into a file, by tasks."""
        drawn.create()
        count = draw_tasks(len(numbers), self.size)
        tasks = [
            _DrawTask(self, numbers.start, *split_range(len(numbers), count, task), drawn) for task in range(count)
        ]
        run_tasks(cluster, _draw_batches, tasks)


@dataclass(frozen=True)
class _DrawTask:
    """Draws the batches of some rows of a file.

    Attributes:
        first: number of the batch in row 0.
    """

    drawer: BatchDrawer
    first: int
    start: int
    stop: int
    drawn: DrawnBatches


def batch_size(num_vertices: int, rate: float) -> int:
    """Return the vertices to draw for a batch: a share of all, at least one."""
    return max(1, round(rate * num_vertices))


def draw_tasks(num_batches: int, size: int) -> int:
    """Return the number of tasks that draw so many batches."""
    return min(num_batches, -(-num_batches * size // _TASK_DRAWS))


def _draw_batches(task: _DrawTask) -> None:
    vertices = task.drawer.vertices()
    for row in range(task.start, task.stop):
        task.drawn.write(row, vertices(task.first + row))
