"""Projects the tasks, memory per worker and disk of samples, before they are drawn."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from gnnloom.pipeline.samples.options import SampleOptions, samples_key
from gnnloom.pipeline.samples.stage import SEGMENT_BYTES, SampleSizes, find_inputs, sample_phases
from gnnloom.pipeline.tasks.phase import count, total_tasks
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.mapped_copy import copy_path


@dataclass(frozen=True)
class SampleProjection:
    """Expected needs of drawing samples.

    Attributes:
        key: key of the samples.
        is_done: the samples exist, so nothing will run.
        batches: maximum number of batches of all ranks and epochs: some training vertices may have no label.
        batch_vertices, batch_edges: expected numbers of vertices of each type and of edges of each relation in a batch
            of a graph with types; empty for other graphs.
        tasks: independent tasks.
        workers: tasks at a time.
        peak_memory: bytes of the largest worker process, at the most.
        train_memory: maximum bytes that each rank of a training run holds for its batches: frequent rows, the segment
            in use, and the next one.
        output_bytes: maximum bytes of the samples on disk, as if every batch had the largest number of different
            vertices that the fan-outs allow. Samples of skewed graphs are far smaller.
        copy_bytes: uncompressed copies of the graph and the vertex data, which tasks map; 0 if they exist.
        disk_free_bytes: bytes free on the disk.
    """

    dataset: str
    key: str
    is_done: bool
    batches: int
    batch_vertices: Mapping[str, int]
    batch_edges: Mapping[str, int]
    tasks: int
    workers: int
    peak_memory: int
    train_memory: int
    output_bytes: int
    copy_bytes: int
    disk_free_bytes: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def project_samples(
    dataset: Dataset,
    graph: Graph | TypedGraph,
    partition: Partition | None,
    options: SampleOptions,
    workers: int,
    chosen: Mapping[str, str] = MappingProxyType({}),
    segment_bytes: int = SEGMENT_BYTES,
) -> SampleProjection:
    """Project the samples of a graph.

    Args:
        chosen: keys of vertex data by type, to choose between several.
        segment_bytes: maximum bytes of a segment, unless one batch has more.

    Raises:
        InputError: the features, the labels or the split are missing, or the partition does not fit.
    """
    inputs = find_inputs(dataset, graph, partition, options, chosen)
    sizes, seeds = SampleSizes.of(inputs, segment_bytes), inputs.possible_seeds()
    key = samples_key(inputs.keys, options)
    writer = ArtifactWriter(dataset.path / "samples" / key, "samples", key)
    counted = count(sample_phases(writer, inputs, sizes, seeds))
    is_done, expected = writer.is_complete, inputs.expected
    batches = sum(len(inputs.batches(rank, seeds[inputs.at(rank)[0]])) for rank in range(options.ranks))
    copies = sum(
        content.num_bytes
        for artifact, arrays in inputs.contents().items()
        for content in arrays.values()
        if not copy_path(artifact).is_dir()
    )
    return SampleProjection(
        dataset=dataset.name,
        key=key,
        is_done=is_done,
        batches=batches * options.epochs,
        batch_vertices={} if expected is None else _rounded(expected.vertices),
        batch_edges={} if expected is None else _rounded(expected.edges),
        tasks=0 if is_done else total_tasks(counted),
        workers=workers,
        peak_memory=sizes.peak_memory,
        train_memory=sizes.hot_bytes + 3 * sizes.segment_batches * sizes.batch_bytes,
        output_bytes=0 if is_done else sum(phase.bytes_written for phase in counted),
        copy_bytes=0 if is_done else copies,
        disk_free_bytes=shutil.disk_usage(dataset.path).free,
    )


def _rounded(counts: Mapping[str, float]) -> dict[str, int]:
    return {name: round(each) for name, each in counts.items()}
