"""The nets that drawn batches have, of one row block, in runs of a shuffle for each group of batches.

A task restricts the nets of one row block, a *piece*, to the batches of one group. It leaves a run for each batch, with
the batch's nets, and a bit for each pin of the piece: whether any batch so far has it, from which the task of the next
group goes on. Its record has the figures of each batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.partition.model.hypergraph import block_nets, pin_hash
from gnnloom.pipeline.partition.stochastic.batch_drawer import BatchBits, BatchDrawer, draw_phase, is_drawn
from gnnloom.pipeline.partition.stochastic.uniform_batches import rows_with_others
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.plan import LevelFiles, ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Needs, Phase
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import index_dtype

#: Figures of a batch: its nets and their pins; the pins of the piece that lie in this or an earlier batch; and all pins
#: of the piece.
NUM_FIGURES = 4


@dataclass(frozen=True)
class Nets:
    """Some nets in memory.

    Attributes:
        offset: (num_nets + 1,) int64; net k has the pins pin[offset[k]:offset[k + 1]].
        pin: (num_pins,) int32 or int64.
        owner: (num_nets,) int64 the pin of each net that sends.
    """

    offset: NDArray[np.int64]
    pin: NDArray[Any]
    owner: NDArray[np.int64]


@dataclass(frozen=True)
class NetPiece:
    """The nets of a row block; small and picklable, so that tasks can hold it.

    Attributes:
        number: of the piece; pieces in ascending order have the nets of the whole hypergraph in their order.
        num_rows, nnz: rows and nonzeros of the block.
        entry_bytes: bytes of a nonzero in memory.
    """

    matrix_path: Path
    block: int
    number: int
    num_rows: int
    nnz: int
    entry_bytes: int

    def nets(self) -> Nets:
        """Make the nets with two or more pins."""
        block = Graph(Artifact(self.matrix_path)).block(self.block)
        owner = rows_with_others(block.row_offset, block.indptr, block.indices)
        return Nets(*block_nets(block), owner)

    @property
    def num_bytes(self) -> int:
        """Bytes of the block in memory."""
        return 8 * (self.num_rows + 1) + self.entry_bytes * self.nnz

    def expected_nets(self, rate: float, batches: int) -> int:
        """Nets of some batches, if every vertex is drawn alike: the owner has to be drawn, and another pin as well."""
        return int(rate * min(self.num_rows, rate * self.nnz) * batches)

    def expected_pins(self, rate: float, batches: int) -> int:
        """Expected number of pins, owners included."""
        return self.expected_nets(rate, batches) + int(rate**2 * self.nnz * batches)


def net_pieces(matrices: Sequence[tuple[Path, GraphSizes]]) -> list[NetPiece]:
    """Return the pieces of the hypergraph whose nets are the rows of ``matrices``."""
    blocks = [
        (path, block, *shape, sizes.entry_bytes)
        for path, sizes in matrices
        for block, shape in enumerate(zip(sizes.block_rows, sizes.block_nnz, strict=True))
    ]
    return [NetPiece(path, block, number, *sizes) for number, (path, block, *sizes) in enumerate(blocks)]


@dataclass(frozen=True)
class DrawnProblem:
    """A drawing problem: the graph that batches are drawn from, and the files to use.

    Attributes:
        writer: of the partition; keeps the records of the tasks.
        pieces: the nets of the full hypergraph.
    """

    writer: ArtifactWriter
    pieces: Sequence[NetPiece]
    drawer: BatchDrawer

    @property
    def dtype(self) -> str:
        """Type of the pins."""
        return index_dtype(self.drawer.num_vertices).name

    @property
    def rate(self) -> float:
        """Share of the vertices that is drawn."""
        return self.drawer.size / self.drawer.num_vertices


@dataclass(frozen=True)
class GroupShuffles:
    """Output of the tasks of a group of batches, by piece; each piece is read by its own tasks.

    Attributes:
        nets: sizes, hashes and pins of the nets; a run for each batch.
        met: bits of the pins that a batch so far has.
    """

    number: int
    nets: Shuffle
    met: Shuffle

    @classmethod
    def of(cls, number: int, num_pieces: int, dtype: str) -> GroupShuffles:
        """The shuffles of the group with a number.

        Args:
            dtype: of the pins.
        """
        columns = Column("size", "int64"), Column("hash", "uint64"), Column("pin", dtype, lengths="size")
        nets = Shuffle(f"drawn-nets/{number:02d}", num_pieces, columns, num_pieces)
        met = Shuffle(f"met-pins/{number:02d}", num_pieces, (Column("bits", "uint8"),), num_pieces)
        return cls(number, nets, met)

    def task_name(self, piece: int) -> str:
        """Name of the task that restricts a piece."""
        return f"restrict/{self.number:02d}/{piece:05d}"


@dataclass(frozen=True, eq=False)
class BatchGroup:
    """The plan of a group of batches that are drawn and restricted together.

    Attributes:
        numbers: of the batches.
        before: the group before this one; None if this is the first.
    """

    problem: DrawnProblem
    number: int
    numbers: range
    before: BatchGroup | None

    @cached_property
    def shuffles(self) -> GroupShuffles:
        return GroupShuffles.of(self.number, len(self.problem.pieces), self.problem.dtype)

    @cached_property
    def files(self) -> tuple[LevelFiles, LevelFiles]:
        """The nets, and the pins that were met."""
        writer, count = self.problem.writer, len(self.problem.pieces)
        plans = (ShufflePlan.unmerged(writer, each, count) for each in (self.shuffles.nets, self.shuffles.met))
        nets, met = (plan.files for plan in plans)
        return nets, met

    def phases(self) -> list[Phase]:
        """The phases that draw the batches and restrict the nets to them."""
        problem, before = self.problem, self.before
        draw, bits = draw_phase(problem.writer, problem.drawer, self.numbers)
        groups = self.shuffles, before.shuffles if before else None
        tasks = [
            RestrictTask(problem.writer, piece, *groups, bits, *self._lanes(piece), self._needs(piece))
            for piece in problem.pieces
        ]
        reads = (bits, before.files[1]) if before else (bits,)
        restrict = Phase("restrict nets", restrict_nets, tasks, "nets", reads, self.files, arrays=len(reads))
        return [draw, restrict]

    def _lanes(self, piece: NetPiece) -> tuple[Lane, Lane]:
        nets, met = (files.lanes.lane(piece.number) for files in self.files)
        return nets, met

    def _needs(self, piece: NetPiece) -> Needs:
        rate, batches, num_vertices = self.problem.rate, len(self.numbers), self.problem.drawer.num_vertices
        # The bits of all rows, and the bits of the columns of drawn rows.
        looks = batches * (piece.num_rows // 8 + int(rate * piece.nnz))
        num_pins = piece.num_rows + piece.nnz
        met, nets, pins = num_pins // 8, *(each(rate, batches) for each in (piece.expected_nets, piece.expected_pins))
        return Needs(
            reads=piece.num_bytes + looks + (met if self.before else 0),
            # Runs have headers.
            writes=16 * nets + piece.entry_bytes * pins + met,
            opens=1 if self.before is None else 2,
            # The block and its nets, the nets of a batch, and a byte for each pin that was met; and mapped batches.
            memory=piece.num_bytes + (2 * piece.entry_bytes + 1) * num_pins + 40 * piece.num_rows
            + batches * num_vertices // 8,
        )  # fmt: skip


@dataclass(frozen=True)
class RestrictTask:
    """Restricts the nets of a piece to the batches of a group.

    Attributes:
        before: the group before this one, which has been done; None if this is the first.
        bits: the batches.
        nets_lane, met_lane: where what the task leaves goes.
    """

    writer: ArtifactWriter
    piece: NetPiece
    group: GroupShuffles
    before: GroupShuffles | None
    bits: BatchBits
    nets_lane: Lane
    met_lane: Lane
    needs: Needs

    @property
    def name(self) -> str:
        return self.group.task_name(self.piece.number)

    def rows(self, count: int) -> Index:
        """The index of ``count`` rows of the piece."""
        return Index.of_offsets(np.array([0, count]), self.piece.number)

    def met_before(self, num_pins: int) -> NDArray[np.bool_]:
        """(num_pins,) whether a batch of the groups before this one has each pin."""
        if self.before is None:
            return np.zeros(num_pins, dtype=np.bool_)
        records = [*self.writer.recorded_of([self.before.task_name(self.piece.number)]).values()]
        with OpenFiles(self.writer.work) as files:
            (section,) = self.before.met.recorded_sections(files, records)
            return np.unpackbits(section.read("bits"), count=num_pins).view(np.bool_)


def restrict_nets(task: RestrictTask) -> int:
    """Write the nets that the batches of a group have of a piece; returns how many there are."""
    nets, figures = task.piece.nets(), []
    met = task.met_before(len(nets.pin))
    with task.writer.task(task.name) as output:
        with task.group.nets.routed(output, task.nets_lane) as out:
            # One batch at a time in memory, since a group may have several times the pins of the piece.
            for bits in task.bits.read(0, task.bits.num_batches):
                size, pin, hashed = _restricted(nets.offset, nets.pin, nets.owner, bits, met)
                out.add(task.rows(len(size)), {"size": size, "hash": hashed, "pin": pin})
                figures.append((len(size), len(pin), int(np.count_nonzero(met)), len(nets.pin)))
        with task.group.met.routed(output, task.met_lane) as out:
            packed = np.packbits(met)
            out.add(task.rows(len(packed)), {"bits": packed})
        output.facts["figures"] = figures
    return sum(num_nets for num_nets, *_ in figures)


@kernel
def _restricted(
    offset: NDArray[np.int64],
    pin: NDArray[Any],
    owner: NDArray[np.int64],
    bits: NDArray[np.uint8],
    met: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.uint64]]:
    """Return sizes, pins and hashes of the nets that a batch has, each with two or more pins.

    Args:
        bits: (num_bytes,) of the batch.
        met: (num_pins,) whether any batch so far contains each pin; changed.
    """
    size = np.empty(len(offset) - 1, np.int64)
    hashed = np.empty(len(offset) - 1, np.uint64)
    kept_pin = np.empty(len(pin), pin.dtype)
    nets, end = 0, 0
    # Pins are appended as they are found and taken back if the net turns out to have only one.
    for net in range(len(offset) - 1):
        if not is_drawn(bits, owner[net]):
            continue
        start, total = end, np.uint64(0)
        for position in range(offset[net], offset[net + 1]):
            if is_drawn(bits, pin[position]):
                # A pin counts even if its net is dropped below: this batch has shown that the net sends nothing.
                met[position] = True
                kept_pin[end] = pin[position]
                total += pin_hash(pin[position])
                end += 1
        # No other part can need the row within this batch.
        if end - start < 2:
            end = start
            continue
        size[nets], hashed[nets] = end - start, total
        nets += 1
    # Copies, so that the buffers for all nets and pins are released.
    return size[:nets].copy(), kept_pin[:end].copy(), hashed[:nets].copy()
