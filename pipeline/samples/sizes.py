"""The plan of samples: how large batches can become, and the phases that draw and pack them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from gnnloom.pipeline.samples.inputs import SampleInputs
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.tasks import RankTask, SegmentTask, prepare_rank, write_segment
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, MIB
from gnnloom.pipeline.tasks.phase import Needs, Phase
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.sampling.hot_rows import COUNTED_BATCHES

#: Bytes of a segment, at most, unless one batch has more.
SEGMENT_BYTES: Final = 64 * MIB
#: Bytes of a vertex of a batch on disk, without its features: ids, nonzeros, hot rows; of a row; of a nonzero.
_VERTEX_BYTES, _ROW_BYTES, _NONZERO_BYTES = 20, 8, 4
#: Bytes of a vertex and of a nonzero while a batch is drawn: tables, sorts, copies.
_DRAWN_VERTEX_BYTES, _DRAWN_NONZERO_BYTES = 112, 40


@dataclass(frozen=True)
class SampleSizes:
    """Bounds on a batch, whatever is drawn.

    Attributes:
        rows: vertices of a batch, at most.
        nonzeros: of its blocks, at most.
        row_bytes: bytes of the features of a vertex.
        hot_rows: frequent vertices of a rank, at most.
    """

    rows: int
    nonzeros: int
    row_bytes: int
    hot_rows: int

    @classmethod
    def of(cls, inputs: SampleInputs, options: SampleOptions) -> Self:
        n, nnz = inputs.graph.num_vertices, inputs.graph.nnz
        rows, nonzeros = min(n, options.batch_size), 0
        for fanout in options.fanout:
            drawn = nnz if fanout < 0 else rows * fanout
            # Without replacement, no row gives more than it has.
            nonzeros += drawn if options.replace else min(drawn, nnz)
            rows = min(n, rows + drawn)
        return cls(rows, nonzeros, inputs.row_bytes, options.cache_memory // max(1, inputs.row_bytes))

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch on disk, at most, uncompressed."""
        return self.rows * (self.row_bytes + _VERTEX_BYTES + _ROW_BYTES) + self.nonzeros * _NONZERO_BYTES

    @property
    def segment_batches(self) -> int:
        """Batches of a segment."""
        return max(1, SEGMENT_BYTES // max(1, self.batch_bytes))

    @property
    def _drawn_bytes(self) -> int:
        """Bytes of a batch while it is drawn."""
        return self.rows * _DRAWN_VERTEX_BYTES + self.nonzeros * _DRAWN_NONZERO_BYTES

    @property
    def rank_memory(self) -> int:
        """Bytes that counting the vertices of a rank's batches takes, at most."""
        return COUNTED_BATCHES * 3 * 8 * self.rows + self._drawn_bytes

    @property
    def segment_memory(self) -> int:
        """Bytes that a segment takes, at most; pages of mapped files are not counted, as the system takes them back."""
        structure = self.rows * (_VERTEX_BYTES + _ROW_BYTES) + self.nonzeros * (_NONZERO_BYTES + 8)
        return 2 * self.segment_batches * structure + self._drawn_bytes

    @property
    def peak_memory(self) -> int:
        """Bytes of a worker process, at most."""
        return BASE_MEMORY + max(self.segment_memory, self.rank_memory)

    def check_memory(self, memory: int) -> None:
        """Check that a worker with this memory can draw any batch.

        Raises:
            BudgetError: it may not.
        """
        if self.peak_memory > memory:
            raise BudgetError(
                f"a batch of up to {self.rows:,} vertices needs up to {self.peak_memory // MIB:,} MiB per worker, and"
                f" {memory // MIB:,} MiB are allowed: use smaller fan-outs or batches, or more --memory"
            )


def sample_phases(
    writer: ArtifactWriter, inputs: SampleInputs, options: SampleOptions, sizes: SampleSizes, seeds: Sequence[int]
) -> list[Phase]:
    """The phases that draw the batches of all ranks and pack what they read.

    Args:
        sizes: bounds on a batch.
        seeds: number of seeds of each rank: those that the first phase found or, before it runs, an upper bound.
    """
    hot = min(sizes.hot_rows, inputs.graph.num_vertices) * sizes.row_bytes
    ranks = [
        RankTask(writer, inputs, options, sizes.hot_rows, rank, Needs(0, hot + 8 * count, 0, sizes.rank_memory))
        for rank, count in enumerate(seeds)
    ]
    step, segments = sizes.segment_batches, []
    for task, count in zip(ranks, seeds, strict=True):
        batches = -(-count // options.batch_size)
        for epoch in range(options.epochs):
            for number, first in enumerate(range(0, batches, step)):
                stop = min(first + step, batches)
                needs = Needs(0, (stop - first) * sizes.batch_bytes, 0, sizes.segment_memory)
                segments.append(SegmentTask(task, epoch, number, first, stop, needs))
    return [
        Phase("seeds", prepare_rank, ranks, "vertices", makes_arrays=True),
        Phase("samples", write_segment, segments, "vertices", makes_arrays=True),
    ]
