"""The stage, and its plan: two passes of independent tasks, over the ranks and over the segments of their epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from gnnloom.pipeline.samples.inputs import SampleInputs, find_inputs
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.tasks import RankTask, SegmentTask, prepare_rank, write_segment
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, MIB
from gnnloom.pipeline.tasks.phase import Needs, Phase, repairing, run
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.samples import Samples
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import BudgetError, InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key
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
        RankTask(writer, f"rank/{rank}", needs, inputs, options, sizes.hot_rows, rank)
        for rank, count in enumerate(seeds)
        for needs in [Needs(0, hot + 8 * count, 0, sizes.rank_memory)]
    ]
    step, segments = sizes.segment_batches, []
    for task, count in zip(ranks, seeds, strict=True):
        batches = -(-count // options.batch_size)
        for epoch in range(options.epochs):
            for number, first in enumerate(range(0, batches, step)):
                stop = min(first + step, batches)
                name = f"segment/{task.rank}/{epoch}/{number}"
                needs = Needs(0, (stop - first) * sizes.batch_bytes, 0, sizes.segment_memory)
                segments.append(SegmentTask(writer, name, needs, task, epoch, number, first, stop))
    return [
        Phase("seeds", prepare_rank, ranks, "vertices", makes_arrays=True),
        Phase("samples", write_segment, segments, "vertices", makes_arrays=True),
    ]


@repairing
def write_samples(
    dataset: Dataset, graph: Graph, partition: Partition | None, options: SampleOptions, cluster: Cluster
) -> Samples:
    """Draw the batches of some epochs and pack what they read, or find them; resumes what an earlier run left.

    Args:
        partition: for several ranks, the one whose parts are theirs.

    Raises:
        InputError: the features, the labels or the split are missing, no vertex is for training, or the partition does
            not fit.
        BudgetError: one batch may need more memory than a worker has.
    """
    inputs = checked_inputs(dataset, graph, partition, options)
    sizes = SampleSizes.of(inputs, options)
    sizes.check_memory(cluster.memory)
    with ArtifactWriter.begin(dataset.path, "samples", options.parameters, inputs.keys, cluster.scratch) as writer:
        if writer.is_complete:
            return Samples(Artifact(writer.path))
        # Here, before the tasks: the first use of the uncompressed copies makes them, and would keep workers waiting.
        copies = inputs.map_all()
        cluster = for_few(cluster, sizes.rows * options.epochs * max(1, inputs.vertices.num_features))
        # How many segments there are depends on the seeds that the first phase finds.
        first = sample_phases(writer, inputs, options, sizes, [0] * options.ranks)[0]
        recorded = writer.recorded_of(run([first], cluster, writer))
        facts = [recorded[task.name].facts for task in first.tasks]
        seeds = [int(each["num_seeds"]) for each in facts]
        if not any(seeds):
            raise InputError(f"{inputs.vertices.artifact.path}: no vertex has a label and is in the training split")
        names = run(sample_phases(writer, inputs, options, sizes, seeds), cluster, writer)
        del copies
        dims = {"vertex": inputs.graph.num_vertices} | inputs.vertices.widths
        found = {
            "weighted": inputs.graph.weighted,
            "num_classes": inputs.vertices.num_classes,
            "num_targets": inputs.vertices.num_targets,
            "num_batches": [-(-count // options.batch_size) for count in seeds],
            "segment_batches": sizes.segment_batches,
            "has_negative_feature": any(each["has_negative_feature"] for each in facts),
        }
        return Samples(writer.commit(names, dims, found))


def samples_key(inputs: Mapping[str, str], options: SampleOptions) -> str:
    """Compute the key of the artifact that :func:`write_samples` makes or finds.

    Args:
        inputs: kind to key of the graph, the vertices and, for several ranks, the partition.
    """
    return artifact_key("samples", options.parameters, inputs)


def checked_inputs(dataset: Dataset, graph: Graph, partition: Partition | None, options: SampleOptions) -> SampleInputs:
    """Find and check the inputs to sample from with these options.

    Raises:
        InputError: the features, the labels or the split are missing, or the partition does not fit.
    """
    if partition is None and options.ranks > 1:
        raise InputError(f"samples for {options.ranks} ranks need a partition into {options.ranks} parts")
    if partition is not None and partition.num_parts != options.ranks:
        raise InputError(f"{partition.artifact.path}: {partition.num_parts} parts, but {options.ranks} ranks")
    return find_inputs(dataset, graph, partition if options.ranks > 1 else None)
