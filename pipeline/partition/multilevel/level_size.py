"""The size of a level of the multilevel method, from which the work of its rounds is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gnnloom.pipeline.external_sort.lanes import num_shared_files
from gnnloom.pipeline.partition.multilevel import disk_hypergraph
from gnnloom.pipeline.partition.multilevel.pieces import vertex_pieces
from gnnloom.pipeline.tasks.phase_counts import PhaseCount
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class LevelSize:
    """The size of a hypergraph on disk.

    Attributes:
        is_weighted: whether its nets have weights; those of the finest level have none.
    """

    num_vertices: int
    num_nets: int
    num_pins: int
    is_weighted: bool = False

    @property
    def label_bytes(self) -> int:
        """Bytes of a pin, and of the cluster of a vertex."""
        return int(index_dtype(self.num_vertices).itemsize)

    @property
    def net_bytes(self) -> int:
        """Bytes of a net in the lists of vertices."""
        return int(index_dtype(self.num_nets).itemsize)

    @property
    def bytes_of_nets(self) -> int:
        """Bytes of the pins of all nets, and where those of each begin."""
        return self.label_bytes * self.num_pins + 8 * self.num_nets

    @property
    def bytes_of_vertices(self) -> int:
        """Bytes of the nets of all vertices, and where those of each begin."""
        return self.net_bytes * self.num_pins + 8 * self.num_vertices

    @property
    def is_for_tasks(self) -> bool:
        """Whether tasks cluster, place and refine its vertices in rounds."""
        return disk_hypergraph.is_for_tasks(self.num_pins, self.num_vertices)


@dataclass(frozen=True)
class Setting:
    """What else the work of the rounds depends on.

    Attributes:
        parts: number of parts P.
        workers: tasks at a time.
        memory: bytes that a worker may use.
    """

    parts: int
    workers: int
    memory: int


def even_phase(
    name: str, tasks: int, files: int, read: int, written: int, *, lanes: Sequence[int] = (), repeats: int = 1
) -> PhaseCount:
    """Count a phase whose tasks are all alike.

    Args:
        files: arrays that each task reads from a file of their own.
        read, written: bytes of all tasks.
        lanes: for each further array that a task reads, the number of tasks that wrote it, each to a lane.
    """
    opens = files + sum(map(num_shared_files, lanes))
    return PhaseCount(
        name,
        tasks,
        opens=tasks * opens,
        most_opens=opens,
        arrays=files + len(lanes),
        bytes_read=read,
        bytes_written=written,
        largest_task=-(-read // tasks),
        repeats=repeats,
    )


def split_phase(
    name: str, tasks: int, files: int, lanes: int, read: int, written: int, *, repeats: int = 1
) -> PhaseCount:
    """Count a phase whose tasks split the rows of an array, which other tasks wrote, evenly among them.

    Args:
        files: further arrays that each task reads, from a file of their own.
        lanes: number of the tasks that wrote the array, each to a lane.
        read, written: bytes of all tasks.
    """
    shared = num_shared_files(lanes)
    return PhaseCount(
        name,
        tasks,
        # A lane that two tasks share is opened by both.
        opens=min(lanes + tasks - 1, shared * tasks) + files * tasks,
        most_opens=min(-(-lanes // tasks) + 1, shared) + files,
        arrays=files + 1,
        bytes_read=read,
        bytes_written=written,
        largest_task=-(-read // tasks),
        repeats=repeats,
    )


def piece_phase(
    name: str, num_vertices: int, files: int, read: int, written: int, *, repeats: int = 1, extra: int = 0
) -> PhaseCount:
    """Count a phase with a task for each piece of the vertices.

    Args:
        files: arrays that each task reads, each from a file of its own.
        read, written: bytes for each vertex.
        extra: bytes that a task writes besides.
    """
    pieces = vertex_pieces(num_vertices)
    return PhaseCount(
        name,
        len(pieces),
        opens=len(pieces) * files,
        most_opens=files,
        arrays=files,
        bytes_read=read * num_vertices,
        bytes_written=written * num_vertices + extra * len(pieces),
        largest_task=read * max(piece.stop - piece.start for piece in pieces),
        repeats=repeats,
    )
