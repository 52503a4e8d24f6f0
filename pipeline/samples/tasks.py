"""The tasks of the stage: the seeds and frequent vertices of each group of ranks, then segments of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.samples.inputs import PackedBatch, SampleInputs, chunk_rows
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.samples import ONLY_TYPE, PACKED, segment_path
from gnnloom.storage.artifacts.typed.typed_graph import type_folder
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.format.array_pieces import ArrayAppender, ArrayForm
from gnnloom.storage.format.arrays import ArrayReader, ArrayRecord, write_array
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.sampling.hot_rows import hot_vertices
from gnnloom.storage.sampling.layers.seeds import VertexSeeds


@dataclass(frozen=True)
class RankTask(Task):
    """Finds and writes the seeds of a group of ranks, and its frequent vertices with their features."""

    inputs: SampleInputs
    group: int

    def path(self, name: str, of_type: str = ONLY_TYPE) -> str:
        """Path of an array of the group."""
        return f"{self.inputs.groups[self.group]}{_folder(of_type)}{name}"

    def seeds(self, vertices: NDArray[np.int64]) -> VertexSeeds:
        """The batches of the group's seeds that training would have."""
        options = self.inputs.options
        return VertexSeeds(vertices, options.batch_size, options.seed, of_type=options.of_type)


def _folder(of_type: str) -> str:
    """Folder of the arrays of a type."""
    return "" if of_type == ONLY_TYPE else type_folder(of_type)


def prepare_rank(task: RankTask) -> int:
    """Write the arrays of one group; returns the number of its seeds."""
    root, inputs = task.writer.path, task.inputs
    sampling = inputs.open()
    with task.writer.task(task.name) as output:
        seeds = inputs.seeds(task.group)
        hot = hot_vertices(sampling.sampler, task.seeds(seeds), inputs.row_bytes, inputs.options.cache_memory)
        output.add(write_array(root, task.path("seed"), seeds, ("seed",)))
        for name, vertices in hot.items():
            output.add(write_array(root, task.path("hot_vertex", name), vertices, ("hot",)))
            path = task.path("hot_feature", name)
            output.add(_write_features(task.writer, path, ("hot", inputs.width), sampling.features[name], [vertices]))
        output.facts.update(inputs.facts_of(task.group))
        output.facts["num_seeds"] = len(seeds)
    return len(seeds)


@dataclass(frozen=True)
class SegmentTask(Task):
    """Draws consecutive batches of a rank, of one epoch, and packs their features.

    Attributes:
        number: of the segment in its epoch.
        batches: numbers of its batches among the batches of the group.
    """

    of: RankTask
    rank: int
    epoch: int
    number: int
    batches: range

    @property
    def path(self) -> str:
        return segment_path(self.rank, self.epoch, self.number)


def write_segment(task: SegmentTask) -> int:
    """Write one segment; returns the number of vertices in its batches."""
    of, inputs, writer = task.of, task.of.inputs, task.of.writer
    root, sampling = writer.path, inputs.open()
    stored = {record.path: record for record in writer.recorded_of([of.name])[of.name].arrays}
    # As the task of the group wrote them.
    seeds = of.seeds(ArrayReader(root, stored[of.path("seed")]).read())
    hot = {name: ArrayReader(root, stored[of.path("hot_vertex", name)]).read() for name in inputs.row_bytes}
    batches = [sampling.draw(seeds, task.epoch, number) for number in task.batches]
    with writer.task(task.name) as output:
        for name, (array, dims) in sampling.pack(batches).items():
            output.add(write_array(root, f"{task.path}/{name}", array, dims))
        packed = {}
        for name, own in hot.items():
            places = [_hot_places(own, batch.vertices[name]) for batch in batches]
            rows = np.concatenate(places)
            output.add(write_array(root, f"{task.path}/{_folder(name)}hot", rows, ("row",)))
            pairs = zip(batches, places, strict=True)
            packed[name] = [batch.vertices[name][place == PACKED] for batch, place in pairs]
        output.add(_write_labels(task, batches))
        for name, vertices in packed.items():
            path, feature = f"{task.path}/{_folder(name)}feature", sampling.features[name]
            output.add(_write_features(writer, path, ("packed", inputs.width), feature, vertices))
    return sum(len(vertices) for batch in batches for vertices in batch.vertices.values())


def _hot_places(hot: NDArray[np.int64], vertices: NDArray[np.int64]) -> NDArray[np.int32]:
    """(num_vertices,) int32 row of each vertex among the frequent ones, or ``PACKED``."""
    place = np.searchsorted(hot, vertices)
    found = np.append(hot, PACKED)[place] == vertices
    return np.where(found, place, PACKED).astype(np.int32)


def _write_labels(task: SegmentTask, batches: list[PackedBatch]) -> ArrayRecord:
    inputs = task.of.inputs
    name = inputs.label_name
    dims = inputs.labeled.artifact.records[name].dims
    label = map_vertices(inputs.labeled)[name][np.concatenate([batch.seeds for batch in batches])]
    return write_array(task.of.writer.path, f"{task.path}/{name}", label, ("seed", *dims[1:]))


def _write_features(
    writer: ArtifactWriter,
    path: str,
    dims: tuple[str, str],
    feature: NDArray[Any],
    vertices: list[NDArray[np.int64]],
) -> ArrayRecord:
    """Write the features of vertices in this order, a chunk in memory at a time."""
    shape = (sum(map(len, vertices)), feature.shape[1])
    appender = ArrayAppender(writer.path, ArrayForm(path, shape, feature.dtype.name, dims))
    step = chunk_rows(feature[:1].nbytes)
    for some in vertices:
        for start in range(0, len(some), step):
            appender.append(take_rows(feature, some[start : start + step]))
    return appender.close()
