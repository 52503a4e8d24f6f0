"""The tasks of the stage: each rank's seeds and frequent vertices, then segments of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.samples.inputs import SampleInputs
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.tasks.phase import Task
from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.samples import PACKED, pack_structure, rank_path, segment_path
from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.disk.mapped_rows import take_rows
from gnnloom.storage.format.array_pieces import ArrayAppender, ArrayForm
from gnnloom.storage.format.arrays import ArrayReader, ArrayRecord, write_array
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.sampling.hot_rows import hot_vertices
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.storage.sampling.layers.options import SAMPLER_OPTIONS
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.neighbor import NeighborSampler


@dataclass(frozen=True)
class RankTask(Task):
    """Finds the seeds of a rank, and its frequent vertices; writes both, and the features of these.

    Attributes:
        hot_rows: most frequent vertices to keep the features of.
    """

    inputs: SampleInputs
    options: SampleOptions
    hot_rows: int
    rank: int

    def path(self, name: str) -> str:
        return f"{rank_path(self.rank)}/{name}"

    def sampler(self, graph: WholeGraph) -> NeighborSampler:
        """The sampler that training would use."""
        options = self.options
        drawn = {name: getattr(options, name) for name in SAMPLER_OPTIONS}
        return NeighborSampler(graph, options.seed, options.fanout, **drawn)

    def seeds(self, vertices: NDArray[np.int64]) -> VertexSeeds:
        """The batches of the rank's seeds that training would have."""
        return VertexSeeds(vertices, self.options.batch_size, self.options.seed)


def prepare_rank(task: RankTask) -> int:
    """Write the arrays of one rank; returns the number of its seeds."""
    root, inputs = task.writer.path, task.inputs
    with task.writer.task(task.name) as output:
        seeds = inputs.seeds(task.rank)
        hot = hot_vertices(task.sampler(inputs.map_graph()), task.seeds(seeds), task.hot_rows)
        output.add(write_array(root, task.path("seed"), seeds, ("seed",)))
        output.add(write_array(root, task.path("hot_vertex"), hot, ("hot",)))
        output.add(_write_features(task.writer, task.path("hot_feature"), "hot", inputs, [hot]))
        output.facts["has_negative_feature"] = inputs.has_negative_feature(task.rank)
        output.facts["num_seeds"] = len(seeds)
    return len(seeds)


@dataclass(frozen=True)
class SegmentTask(Task):
    """Draws consecutive batches of one epoch of a rank, and packs what they read.

    Attributes:
        number: of the segment in its epoch.
        first, stop: its batches.
    """

    of: RankTask
    epoch: int
    number: int
    first: int
    stop: int

    @property
    def path(self) -> str:
        return segment_path(self.of.rank, self.epoch, self.number)


def write_segment(task: SegmentTask) -> int:
    """Write one segment; returns the number of vertices in its batches."""
    writer, inputs = task.of.writer, task.of.inputs
    root = writer.path
    graph = inputs.map_graph()
    stored = {record.path: record for record in writer.recorded_of([task.of.name])[task.of.name].arrays}
    # As the task of the rank wrote them.
    vertices, hot = (ArrayReader(root, stored[task.of.path(name)]).read() for name in ("seed", "hot_vertex"))
    sampler, seeds = task.of.sampler(graph), task.of.seeds(vertices)
    numbers = range(task.first, task.stop)
    drawn = (sampler.sample_of(seeds.of(task.epoch, number), task.epoch, number) for number in numbers)
    batches = [layered_batch(graph, sample) for sample in drawn]
    places = [_hot_places(hot, batch.vertices) for batch in batches]
    packed = [batch.vertices[place == PACKED] for batch, place in zip(batches, places, strict=True)]
    with writer.task(task.name) as output:
        sizes = np.array([batch.layer_sizes for batch in batches], np.int64)
        output.add(write_array(root, f"{task.path}/layer_size", sizes, ("batch", "layer+1")))
        for name, (array, dim) in pack_structure(batches, weighted=inputs.graph.weighted).items():
            output.add(write_array(root, f"{task.path}/{name}", array, (dim,)))
        output.add(write_array(root, f"{task.path}/hot", np.concatenate(places), ("row",)))
        output.add(_write_labels(task, batches))
        output.add(_write_features(writer, f"{task.path}/feature", "packed", inputs, packed))
    return sum(len(batch.vertices) for batch in batches)


def _hot_places(hot: NDArray[np.int64], vertices: NDArray[np.int64]) -> NDArray[np.int32]:
    """(num_vertices,) int32 row of each vertex among the frequent ones, or ``PACKED``."""
    place = np.searchsorted(hot, vertices)
    found = np.append(hot, PACKED)[place] == vertices
    return np.where(found, place, PACKED).astype(np.int32)


def _write_labels(task: SegmentTask, batches: list[LayeredBatch]) -> ArrayRecord:
    inputs = task.of.inputs
    name = inputs.label_name
    dims = inputs.vertices.artifact.records[name].dims
    label = map_vertices(inputs.vertices)[name][np.concatenate([batch.seeds for batch in batches])]
    return write_array(task.of.writer.path, f"{task.path}/{name}", label, ("seed", *dims[1:]))


def _write_features(
    writer: ArtifactWriter, path: str, dim: str, inputs: SampleInputs, vertices: list[NDArray[np.int64]]
) -> ArrayRecord:
    """Write the features of vertices in this order, a chunk in memory at a time."""
    feature: NDArray[Any] = map_vertices(inputs.vertices)["feature"]
    shape = (sum(map(len, vertices)), feature.shape[1])
    appender = ArrayAppender(writer.path, ArrayForm(path, shape, feature.dtype.name, (dim, "feature")))
    step = inputs.chunk_rows
    for some in vertices:
        for start in range(0, len(some), step):
            appender.append(take_rows(feature, some[start : start + step]))
    return appender.close()
