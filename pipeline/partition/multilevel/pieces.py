"""How vertices and nets are divided among tasks; the results of no step depend on it."""

from __future__ import annotations

from itertools import pairwise

from gnnloom.pipeline.tasks.cluster import Cluster

#: Vertices of a task that reads or writes a few numbers for each: 8 MiB of weights, 4 MiB of parts.
_TASK_VERTICES = 1 << 20
#: Tasks of a round for each worker: two, so that no worker waits long for the last.
_TASKS_PER_WORKER = 2
#: Tasks that read all nets once: a few for each core of a usual machine, so that none waits long for the last.
NET_TASKS = 16


def vertex_pieces(num_vertices: int) -> list[slice]:
    """Split all vertices into consecutive pieces of a fixed size, the last of which may be smaller."""
    starts = range(0, num_vertices, _TASK_VERTICES)
    return [slice(start, min(start + _TASK_VERTICES, num_vertices)) for start in starts]


def range_pieces(rows: range, count: int) -> list[range]:
    """Split a range into at most ``count`` consecutive ones of about the same length."""
    edges = sorted({rows.start + len(rows) * number // count for number in range(count)} | {rows.stop})
    return [range(a, b) for a, b in pairwise(edges)]


def tasks_per_round(cluster: Cluster) -> int:
    """Return the number of tasks that share the work of a round."""
    return _TASKS_PER_WORKER * cluster.workers
