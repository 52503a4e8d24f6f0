"""How vertices and nets are divided among tasks; the results of no step depend on it.

The rounds and their counts (``counts``) both take their numbers of tasks from here.
"""

from __future__ import annotations

from itertools import pairwise

from gnnloom.pipeline.external_sort.merge_levels import FEW_SOURCES, SOURCE_BYTES, most_sources

#: Vertices of a task that reads or writes a few numbers for each: 8 MiB of weights, 4 MiB of parts.
_TASK_VERTICES = 1 << 20
#: Tasks of a round for each worker: two, so that no worker waits long for the last.
_TASKS_PER_WORKER = 2
#: Fewest tasks that read all nets once: a few for each core of a usual machine, so that none waits long for the last.
NET_TASKS = 16
#: Pins of a task that reads all nets once, unless that makes fewer than ``NET_TASKS`` tasks: less than a minute's work.
_TASK_PINS = 1 << 25
#: Bytes that a task of a round writes for a vertex that chooses a cluster or a part, at most.
_CHOICE_BYTES = 24


def vertex_pieces(num_vertices: int) -> list[slice]:
    """Split all vertices into consecutive pieces of a fixed size, the last of which may be smaller."""
    starts = range(0, num_vertices, _TASK_VERTICES)
    return [slice(start, min(start + _TASK_VERTICES, num_vertices)) for start in starts]


def range_pieces(rows: range, count: int) -> list[range]:
    """Split a range into at most ``count`` consecutive ones of about the same length."""
    edges = sorted({rows.start + len(rows) * number // count for number in range(count)} | {rows.stop})
    return [range(a, b) for a, b in pairwise(edges)]


def net_tasks(num_pins: int) -> int:
    """Return the number of tasks that together read all nets once."""
    return max(NET_TASKS, -(-num_pins // _TASK_PINS))


def round_tasks(num_vertices: int, workers: int) -> int:
    """Return the number of tasks that visit the vertices of a round.

    As many as the workers need, but none holds the choices of more vertices than memory has room for.  If there are
    more than 16, each has 64 KiB of choices or more, so that the tasks of the next phase do not read many short lanes.
    """
    fewest = -(-num_vertices // _TASK_VERTICES)
    most = max(fewest, most_sources(_CHOICE_BYTES * num_vertices, 1))
    return min(max(_TASKS_PER_WORKER * workers, fewest), most)


def reading_tasks(wanted: int, num_bytes: int, num_lanes: int) -> int:
    """Return the number of tasks that each read a range of every lane: fewer than wanted if ranges would be too short.

    Lanes are in few files, but from a disk or over a network, a few bytes take about as long to read as 64 KiB.

    Args:
        num_bytes: of all lanes.
    """
    if num_lanes <= FEW_SOURCES:
        return wanted
    return max(1, min(wanted, num_bytes // num_lanes // SOURCE_BYTES))


def writing_tasks(wanted: int, num_bytes: int, readers: int) -> int:
    """Return the number of tasks that write lanes of which each reader reads a range: 16, or more if ranges are long.

    Args:
        num_bytes: of all lanes.
    """
    return max(1, min(wanted, most_sources(num_bytes, readers)))
