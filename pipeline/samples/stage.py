"""The stage, and its plan: two passes of independent tasks, over the ranks and over the segments of their epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

from gnnloom.pipeline.samples.inputs import SampleInputs, graph_inputs
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.tasks import RankTask, SegmentTask, prepare_rank, write_segment
from gnnloom.pipeline.samples.typed_inputs import typed_inputs
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, MIB
from gnnloom.pipeline.tasks.phase import Needs, Phase, repairing, run
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.samples import StoredSamples
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import BudgetError, InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.sampling.hot_rows import COUNTED_BATCHES

#: Maximum bytes of a segment, unless one batch has more.
SEGMENT_BYTES: Final = 64 * MIB
#: Bytes of a vertex of a batch on disk, without its features: ids, nonzeros, hot rows; of a row; of a nonzero.
_VERTEX_BYTES, _ROW_BYTES, _NONZERO_BYTES = 20, 8, 4
#: Bytes of a vertex and of a nonzero while a batch is drawn: tables, sorts, copies.
_DRAWN_VERTEX_BYTES, _DRAWN_NONZERO_BYTES = 112, 40


@dataclass(frozen=True)
class SampleSizes:
    """Upper bounds on the size of a batch; an untyped graph has one type and one relation.

    Attributes:
        rows: vertices of each type in a batch, at most.
        row_bytes: bytes of the features of a vertex, of each type that has features.
        drawn_rows: rows of each relation, at most.
        nonzeros: entries of each relation in the blocks of a batch, at most; of joint relations, the division of their
            entries that takes the most bytes.
        edge_bytes: bytes of an edge of each relation on disk, besides its column.
        hot_bytes: bytes of the features of the frequent vertices of a group of ranks, at most.
        segment_bytes: maximum bytes of a segment, unless one batch has more.
    """

    rows: Mapping[str, int]
    row_bytes: Mapping[str, int]
    drawn_rows: Mapping[str, int]
    nonzeros: Mapping[str, int]
    edge_bytes: Mapping[str, int]
    hot_bytes: int
    segment_bytes: int = SEGMENT_BYTES

    @classmethod
    def of(cls, inputs: SampleInputs, segment_bytes: int = SEGMENT_BYTES) -> Self:
        options, types, relations = inputs.options, inputs.types, inputs.relations
        rows, nonzeros = dict.fromkeys(types, 0), dict.fromkeys(relations, 0)
        seeds = next(iter(types)) if options.of_type is None else options.of_type
        rows[seeds] = min(types[seeds], options.batch_size)
        for hop in range(max((len(each.fanouts) for each in relations.values()), default=0)):
            more, left = dict.fromkeys(types, 0), dict[str, int]()
            # Joint relations to one type share the draws of its rows: at worst, all draws are of the relations with the
            # largest edges.
            for name, each in sorted(relations.items(), key=lambda item: -item[1].edge_bytes):
                whole = rows[each.target] * each.fanouts[hop]
                if each.fanouts[hop] < 0:
                    drawn = each.nnz
                elif each.joint:
                    drawn = min(left.get(each.target, whole), whole if options.replace else each.nnz)
                    left[each.target] = left.get(each.target, whole) - drawn
                else:
                    drawn = whole
                # Without replacement, no row gives more than it has.
                nonzeros[name] += drawn if options.replace else min(drawn, each.nnz)
                more[each.source] += whole if each.joint and each.fanouts[hop] >= 0 else drawn
            rows = {name: min(count, rows[name] + more[name]) for name, count in types.items()}
        row_bytes = inputs.row_bytes
        return cls(
            rows=rows,
            row_bytes=row_bytes,
            drawn_rows={name: rows[each.target] for name, each in relations.items()},
            nonzeros=nonzeros,
            edge_bytes={name: each.edge_bytes for name, each in relations.items()},
            hot_bytes=min(options.cache_memory, sum(types[name] * each for name, each in row_bytes.items())),
            segment_bytes=segment_bytes,
        )

    @property
    def num_rows(self) -> int:
        """Vertices of a batch, at most."""
        return sum(self.rows.values())

    @property
    def _structure_bytes(self) -> int:
        """Bytes of the vertices and edges of a batch on disk, at most, uncompressed."""
        of_edges = sum(count * (_NONZERO_BYTES + self.edge_bytes[name]) for name, count in self.nonzeros.items())
        return self.num_rows * _VERTEX_BYTES + sum(self.drawn_rows.values()) * _ROW_BYTES + of_edges

    @property
    def batch_bytes(self) -> int:
        """Bytes of a batch on disk, at most, uncompressed."""
        return self._structure_bytes + sum(self.rows[name] * each for name, each in self.row_bytes.items())

    @property
    def segment_batches(self) -> int:
        """Batches of a segment."""
        return max(1, self.segment_bytes // max(1, self.batch_bytes))

    @property
    def _drawn_bytes(self) -> int:
        """Bytes of a batch while it is drawn."""
        return self.num_rows * _DRAWN_VERTEX_BYTES + sum(self.nonzeros.values()) * _DRAWN_NONZERO_BYTES

    @property
    def rank_memory(self) -> int:
        """Bytes that counting the vertices of some batches takes, at most."""
        return COUNTED_BATCHES * 3 * 8 * self.num_rows + self._drawn_bytes

    @property
    def segment_memory(self) -> int:
        """Bytes that a segment takes, at most; pages of mapped files are not counted, as the system takes them back."""
        structure = self._structure_bytes + 8 * sum(self.nonzeros.values())
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
                f"a batch of up to {self.num_rows:,} vertices needs up to {self.peak_memory // MIB:,} MiB per worker,"
                f" and {memory // MIB:,} MiB are allowed: use smaller fan-outs or batches, or more --memory"
            )


def sample_phases(
    writer: ArtifactWriter, inputs: SampleInputs, sizes: SampleSizes, seeds: Sequence[int]
) -> list[Phase]:
    """The phases that draw the batches of all ranks and pack their features.

    Args:
        sizes: bounds on a batch.
        seeds: number of seeds of each group, as the first phase found it; before that, an upper bound.
    """
    options, step = inputs.options, sizes.segment_batches
    groups = [
        RankTask(writer, name, needs, inputs, group)
        for group, (name, count) in enumerate(zip(inputs.group_names, seeds, strict=True))
        for needs in [Needs(0, sizes.hot_bytes + 8 * count, 0, sizes.rank_memory)]
    ]
    segments = []
    for rank in range(options.ranks):
        task = groups[inputs.at(rank)[0]]
        batches = inputs.batches(rank, seeds[task.group])
        for epoch in range(options.epochs):
            for number, first in enumerate(range(0, len(batches), step)):
                own = batches[first : first + step]
                name = f"segment/{rank}/{epoch}/{number}"
                needs = Needs(0, len(own) * sizes.batch_bytes, 0, sizes.segment_memory)
                segments.append(SegmentTask(writer, name, needs, task, rank, epoch, number, own))
    return [
        Phase("seeds", prepare_rank, groups, "vertices", makes_arrays=True),
        Phase("samples", write_segment, segments, "vertices", makes_arrays=True),
    ]


@repairing
def write_samples(
    dataset: Dataset,
    graph: Graph | TypedGraph,
    partition: Partition | None,
    options: SampleOptions,
    cluster: Cluster,
    chosen: Mapping[str, str] = MappingProxyType({}),
    segment_bytes: int = SEGMENT_BYTES,
) -> StoredSamples[Any]:
    """Draw the batches of some epochs and pack their features, or find them; resumes an interrupted run.

    Args:
        partition: for several ranks of a graph without types, the one whose parts are theirs.
        chosen: keys of vertex data by type, to choose between several.
        segment_bytes: maximum bytes of a segment, unless one batch has more.

    Raises:
        InputError: the features, the labels or the split are missing, no vertex is for training, or the partition does
            not fit.
        BudgetError: one batch may need more memory than a worker has.
    """
    inputs = find_inputs(dataset, graph, partition, options, chosen).prepared(dataset, cluster)
    sizes = SampleSizes.of(inputs, segment_bytes)
    sizes.check_memory(cluster.memory)
    begun = dataset.path, "samples", options.parameters, inputs.keys, cluster.scratch, inputs.version
    with ArtifactWriter.begin(*begun) as writer:
        if writer.is_complete:
            return inputs.open_samples(Artifact(writer.path))
        # Here, before the tasks: the first use of the uncompressed copies makes them, and would keep workers waiting.
        copies = inputs.open()
        widths = [max(1, each.num_features) for each in inputs.stored.values()]
        cluster = for_few(cluster, sizes.num_rows * options.epochs * max(widths, default=1))
        # How many segments there are depends on the seeds that the first phase finds.
        first = sample_phases(writer, inputs, sizes, [0] * len(inputs.groups))[0]
        recorded = writer.recorded_of(run([first], cluster, writer))
        facts = [recorded[task.name].facts for task in first.tasks]
        seeds = [int(each["num_seeds"]) for each in facts]
        if not any(seeds):
            raise InputError(f"{inputs.labeled.artifact.path}: no vertex has a label and is in the training split")
        names = run(sample_phases(writer, inputs, sizes, seeds), cluster, writer)
        del copies
        found = inputs.found(facts) | {
            "num_batches": [len(inputs.batches(rank, seeds[inputs.at(rank)[0]])) for rank in range(options.ranks)],
            "segment_batches": sizes.segment_batches,
        }
        return inputs.open_samples(writer.commit(names, inputs.sizes, found))


def find_inputs(
    dataset: Dataset,
    graph: Graph | TypedGraph,
    partition: Partition | None,
    options: SampleOptions,
    chosen: Mapping[str, str] = MappingProxyType({}),
) -> SampleInputs:
    """Find and check the inputs to sample from; arguments and errors as for :func:`write_samples`."""
    if isinstance(graph, TypedGraph):
        return typed_inputs(dataset, graph, options, chosen)
    return graph_inputs(dataset, graph, partition, options)
