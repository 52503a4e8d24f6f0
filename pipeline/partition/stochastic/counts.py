"""What the tasks of the stochastic model will do, counted without running them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from gnnloom.pipeline.partition.stochastic.batch_bits import batch_bytes
from gnnloom.pipeline.partition.stochastic.batch_drawer import batch_size, draw_tasks
from gnnloom.pipeline.partition.stochastic.batch_volume import PARTS_COMPARED, num_fresh, volume_tasks
from gnnloom.pipeline.partition.stochastic.drawn_batches import batch_groups, batches_needed
from gnnloom.pipeline.partition.stochastic.merged_nets import INDEX_COLUMNS, KEPT_COLUMNS, num_buckets
from gnnloom.pipeline.shuffle.columns import row_bytes
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import count as phases_counted
from gnnloom.pipeline.tasks.phase_counts import PhaseCount

#: Bytes of a part, of a number in the files of results, and of a mapped bit that is looked up.
_PART, _NUMBER, _LOOK = 4, 8, 1


@dataclass(frozen=True)
class BatchSizes:
    """The batches of a graph, and the row blocks of the matrices whose rows are the nets.

    Attributes:
        block_rows, block_nnz: rows and nonzeros of each block of one matrix; those of another are taken to be alike.
        entry_bytes: of a nonzero in memory.
        directions: matrices.
        rate: vertices drawn for a batch, as a share of all.
        count: batches whose nets are merged.
    """

    block_rows: Sequence[int]
    block_nnz: Sequence[int]
    entry_bytes: int
    directions: int
    rate: float
    count: int

    @classmethod
    def even(
        cls, block_rows: Sequence[int], block_nnz: Sequence[int], entry_bytes: int, rate: float, directions: int = 1
    ) -> Self:
        """The sizes if every vertex is drawn as often as any other."""
        return cls(block_rows, block_nnz, entry_bytes, directions, rate, batches_needed(rate))

    @property
    def num_vertices(self) -> int:
        return sum(self.block_rows)

    @property
    def groups(self) -> list[int]:
        """Batches of each group that is drawn."""
        return [len(numbers) for numbers in batch_groups() if numbers.start < self.count]

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """Rows and nonzeros of each row block of all matrices."""
        return list(zip(self.block_rows, self.block_nnz, strict=True)) * self.directions

    def nets(self, rows: int, nnz: int, batches: int) -> int:
        """Nets of some batches in a piece, at most: the owner has to be drawn, and another pin as well."""
        return int(self.rate * min(rows, self.rate * nnz) * batches)

    def pins(self, rows: int, nnz: int, batches: int) -> int:
        """Pins of these nets, owners included."""
        return self.nets(rows, nnz, batches) + int(self.rate**2 * nnz * batches)

    def block_bytes(self, rows: int, nnz: int) -> int:
        """Bytes of a row block in memory."""
        return _NUMBER * (rows + 1) + self.entry_bytes * nnz


def merging_counts(sizes: BatchSizes) -> list[PhaseCount]:
    """Count the phases that draw batches, restrict the nets of each piece to them, and merge equal ones."""
    pieces, groups = sizes.pieces, sizes.groups
    phases = []
    for number, batches in enumerate(groups):
        phases.append(_drawing("draw batches", sizes, batches))
        read, written = [], 0
        for rows, nnz in pieces:
            # The bits of all rows, and those of the columns of drawn rows.
            looks = batches * (batch_bytes(rows) + int(_LOOK * sizes.rate * nnz))
            met = batch_bytes(rows + nnz)
            read.append(sizes.block_bytes(rows, nnz) + looks + (met if number else 0))
            nets, pins = sizes.nets(rows, nnz, batches), sizes.pins(rows, nnz, batches)
            written += 2 * _NUMBER * nets + sizes.entry_bytes * pins + met
        # The batches; and what the groups before it met.
        opens = 1 + (number > 0)
        phases.append(_phase("restrict nets", read, written, opens=opens, arrays=opens))
    return phases + _merge_phases(sizes, pieces)


def _merge_phases(sizes: BatchSizes, pieces: Sequence[tuple[int, int]]) -> list[PhaseCount]:
    nets = [sizes.nets(rows, nnz, sizes.count) for rows, nnz in pieces]
    pins = [sizes.pins(rows, nnz, sizes.count) for rows, nnz in pieces]
    buckets, count, groups = num_buckets(sum(nets), len(pieces)), len(pieces), len(sizes.groups)
    # Rows, and where each range of hashes or each piece begins.
    offsets = _NUMBER * count * buckets
    indexed, chosen = (row_bytes(columns) * sum(nets) for columns in (INDEX_COLUMNS, KEPT_COLUMNS))
    shuffles = Shuffle("index", buckets, INDEX_COLUMNS, buckets), Shuffle("kept", count, KEPT_COLUMNS, count)
    index = ShufflePlan.stated(shuffles[0], count, indexed, count * buckets)
    kept = ShufflePlan.stated(shuffles[1], buckets, chosen, count * buckets)
    indexed, chosen = indexed + offsets, chosen + offsets
    read = [
        row_bytes(KEPT_COLUMNS) * each + _NUMBER * (each + buckets) + sizes.entry_bytes * pin
        for each, pin in zip(nets, pins, strict=True)
    ]
    output = 2 * _NUMBER * sum(nets) + sizes.entry_bytes * sum(pins)
    most = index.opens((0, 1)), kept.opens((0, 1))
    return [
        # A file of each group.
        _phase("index nets", [_NUMBER * each for each in nets], indexed, opens=groups, arrays=groups),
        *phases_counted(index.merges("merge index nets")),
        _phase("keep nets", [-(-indexed // buckets)] * buckets, chosen, opens=most[0]),
        *phases_counted(kept.merges("merge keep nets")),
        _phase("choose nets", read, output, opens=groups + most[1], arrays=groups + 1),
    ]


def measuring_counts(sizes: BatchSizes) -> list[PhaseCount]:
    """Count the phases that draw fresh batches, and count what each of the compared partitions sends for them."""
    batches = 2 * num_fresh(sum(sizes.block_nnz))
    read, written = [], 0
    for rows, nnz in sizes.pieces:
        tasks = volume_tasks(nnz, batches, PARTS_COMPARED)
        # The bits of all rows; bits and parts of drawn rows and of their columns.
        drawn = int((_LOOK + _PART) * sizes.rate * (rows + nnz))
        looked_up = PARTS_COMPARED * batches * (batch_bytes(rows) + drawn)
        read += [sizes.block_bytes(rows, nnz) + looked_up // tasks] * tasks
        written += _NUMBER * PARTS_COMPARED * batches
    # The batches and the parts.
    measured = _phase("measure batches", read, written, opens=1 + PARTS_COMPARED, arrays=1 + PARTS_COMPARED)
    return [_drawing("draw fresh batches", sizes, batches), measured]


def _drawing(phase: str, sizes: BatchSizes, batches: int) -> PhaseCount:
    size = batch_size(sizes.num_vertices, sizes.rate)
    tasks = draw_tasks(batches, size)
    # A step looks up the row of a vertex, and a neighbor in it; the mapped graph has three arrays.
    looked_up = (2 * _NUMBER + sizes.entry_bytes) * size * batches
    written = batches * batch_bytes(sizes.num_vertices)
    return _phase(phase, [-(-looked_up // tasks)] * tasks, written, opens=3, arrays=3)


def _phase(phase: str, read: Sequence[int], written: int, opens: int, arrays: int = 1) -> PhaseCount:
    """A phase whose tasks read so many bytes, each from ``opens`` files."""
    return PhaseCount(
        phase,
        len(read),
        opens=opens * len(read),
        most_opens=opens,
        arrays=arrays,
        bytes_read=sum(read),
        bytes_written=written,
        largest_task=max(read, default=0),
    )
