"""Projects the tasks, memory per worker and disk of samples, before they are drawn."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.samples.inputs import SampleInputs
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import SampleSizes, checked_inputs, sample_phases, samples_key
from gnnloom.pipeline.tasks.phase import count, total_tasks
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.mapped_vertices import vertices_contents
from gnnloom.storage.artifacts.part_members import partition_contents
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.whole_graph import graph_contents
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.mapped_copy import copy_path
from gnnloom.storage.format.vertex_arrays import SPLIT

#: Vertices whose split is read together.
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class SampleProjection:
    """Expected needs of drawing samples.

    Attributes:
        key: key of the samples.
        is_done: the samples exist, so nothing will run.
        batches: of all ranks and epochs, at most: some training vertices may have no label.
        tasks: independent tasks.
        workers: tasks at a time.
        peak_memory: bytes of the largest worker process, at the most.
        train_memory: bytes that each rank of a training holds for its batches, at the most: frequent rows, and the
            segment in use and the next one.
        output_bytes: the samples on disk, at the most: as if every batch had as many different vertices as the
            fan-outs allow. Skewed graphs need far less.
        copy_bytes: uncompressed copies of the graph and the vertex data, which tasks map; 0 if they exist.
        disk_free_bytes: bytes free on the disk.
    """

    dataset: str
    key: str
    is_done: bool
    batches: int
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
    dataset: Dataset, graph: Graph, partition: Partition | None, options: SampleOptions, workers: int
) -> SampleProjection:
    """Project the samples of a graph.

    Raises:
        InputError: the features, the labels or the split are missing, or the partition does not fit.
    """
    inputs = checked_inputs(dataset, graph, partition, options)
    sizes = SampleSizes.of(inputs, options)
    key = samples_key(inputs.keys, options)
    # Vertices in the training split of every rank.
    training = np.zeros(options.ranks, np.int64)
    for part, split in _parts_and_splits(inputs):
        training += np.bincount(part[split == SPLIT["train"]], minlength=options.ranks)
    seeds = training.tolist()
    writer = ArtifactWriter(dataset.path / "samples" / key, "samples", key)
    counted = count(sample_phases(writer, inputs, options, sizes, seeds))
    hot = min(sizes.hot_rows, graph.num_vertices) * sizes.row_bytes
    is_done = writer.is_complete
    return SampleProjection(
        dataset=dataset.name,
        key=key,
        is_done=is_done,
        batches=sum(-(-number // options.batch_size) for number in seeds) * options.epochs,
        tasks=0 if is_done else total_tasks(counted),
        workers=workers,
        peak_memory=sizes.peak_memory,
        train_memory=hot + 3 * sizes.segment_batches * sizes.batch_bytes,
        output_bytes=0 if is_done else sum(phase.bytes_written for phase in counted),
        copy_bytes=0 if is_done else _copy_bytes(inputs),
        disk_free_bytes=shutil.disk_usage(dataset.path).free,
    )


def _parts_and_splits(inputs: SampleInputs) -> Iterator[tuple[NDArray[np.int32], NDArray[np.uint8]]]:
    n = inputs.graph.num_vertices
    for start in range(0, n, _CHUNK):
        stop = min(start + _CHUNK, n)
        part = np.zeros(stop - start, np.int32) if inputs.partition is None else inputs.partition.part(start, stop)
        yield part, inputs.vertices.split(start, stop)


def _copy_bytes(inputs: SampleInputs) -> int:
    contents = {
        inputs.graph.artifact: graph_contents(inputs.graph),
        inputs.vertices.artifact: vertices_contents(inputs.vertices),
    }
    if inputs.partition is not None:
        contents[inputs.partition.artifact] = partition_contents(inputs.partition)
    return sum(
        content.num_bytes
        for artifact, arrays in contents.items()
        for content in arrays.values()
        if not copy_path(artifact).is_dir()
    )
