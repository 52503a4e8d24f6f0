"""What storing the hypergraph of a graph will do, counted from the graph's row blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnnloom.pipeline.partition.multilevel.level_size import LevelSize
from gnnloom.pipeline.tasks.phase_counts import PhaseCount

#: Bytes of a weight or an offset.
_NUMBER = 8


def finest_level(num_vertices: int, nnz: int, directions: int) -> LevelSize:
    """The size of the hypergraph of a graph, if no row has an entry of its own vertex, which is the most."""
    return LevelSize(num_vertices, directions * num_vertices, directions * (nnz + num_vertices))


def store_counts(
    block_rows: Sequence[int], block_nnz: Sequence[int], *, symmetric: bool, directions: int
) -> Iterator[PhaseCount]:
    """Count the phases of ``store_hypergraph``; blocks are chunks of a stored array, not files that a task opens.

    Args:
        block_rows, block_nnz: rows and nonzeros of each row block; those of the transpose are taken to be alike.
        symmetric: whether the graph is undirected, so that the pins of nets are the nets of vertices.
        directions: products whose nets there are, 1 or 2.
    """
    num_vertices = sum(block_rows)
    level = finest_level(num_vertices, sum(block_nnz), directions)
    pointers = [_NUMBER * (rows + 1) for rows in block_rows]
    yield PhaseCount(
        "store weights",
        len(block_rows),
        bytes_read=sum(pointers),
        bytes_written=_NUMBER * num_vertices,
        largest_task=max(pointers),
    )
    whole = [up + level.label_bytes * nnz for up, nnz in zip(pointers, block_nnz, strict=True)]
    yield from _lists("nets", whole, directions, level.bytes_of_nets)
    if not symmetric:
        # A task writes the nets of its rows for both directions.
        both = [directions * num_bytes for num_bytes in whole]
        yield from _lists("vertices", both, 1, level.bytes_of_vertices)


def _lists(name: str, read: Sequence[int], times: int, num_bytes: int) -> Iterator[PhaseCount]:
    """Count the phases that write lists from blocks and join them.

    Args:
        read: bytes of each task.
        times: matrices with such blocks.
    """
    tasks, most = times * len(read), max(read)
    yield PhaseCount(f"store {name}", tasks, bytes_read=times * sum(read), bytes_written=num_bytes, largest_task=most)
    largest = max(most * num_bytes // max(1, times * sum(read)), 1)
    yield PhaseCount(
        f"join {name}",
        tasks,
        opens=2 * tasks,
        most_opens=2,
        arrays=2,
        bytes_read=num_bytes,
        bytes_written=num_bytes,
        largest_task=largest,
    )
