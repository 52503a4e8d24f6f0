"""Stores a partition that another program made, and measures it like our own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.partition.quality import describe_quality, measure_load
from gnnloom.pipeline.partition.volume import count_exchange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage import Dataset, Graph, Partition
from gnnloom.storage.format.arrays import digest_bytes, write_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.memory_map import create_part_vector
from gnnloom.workflows.interop.metis import read_metis_part

#: The partition's ``method``, as no partitioner of ours made it.
METHOD = "file"


def store_metis_part(dataset: Dataset, graph: Graph, file: Path, parts: int | None, cluster: Cluster) -> Partition:
    """Store the partition in a METIS file, or find it if it was stored before.

    Args:
        parts: number of parts; by default the highest part in the file plus one.

    Raises:
        NotFoundError: the file does not exist.
        InputError: the file is not a partition of the graph.
    """
    part, num_parts = read_metis_part(file, graph.num_vertices, parts)
    # The key depends on the file's content: the same partition in another file is the same artifact.
    parameters = {"parts": num_parts, "method": METHOD, "digest": digest_bytes(part)}
    with ArtifactWriter.begin(dataset.path, "partition", parameters, {"graph": graph.artifact.key}) as writer:
        if writer.is_complete:
            return Partition(Artifact(writer.path))
        with writer.task("part/0") as output:
            output.add(write_array(writer.path, "part", part, ("vertex",)))
        # Measured by our own counter, whatever the other program reports.
        with writer.task("quality/0") as output:
            output.facts = _measure(dataset, graph, part, num_parts, writer.work, cluster)
            quality = output.facts
        sizes = {"vertex": graph.num_vertices}
        return Partition(writer.commit(["part/0", "quality/0"], sizes, {"quality": quality}))


def _measure(
    dataset: Dataset, graph: Graph, part: NDArray[np.int32], parts: int, work: Path, cluster: Cluster
) -> dict[str, object]:
    # The tasks of the counter map the parts from a file rather than receive a copy each.
    path = work / "part.npy"
    vector = create_part_vector(path, graph.num_vertices)
    vector[:] = part
    vector.flush()
    # Row j of the transpose lists the vertices that gather from j, whose parts need the row of j in a forward pass.
    transpose = transpose_graph(dataset, graph, cluster)
    forward = count_exchange(transpose, path, parts, work / "volume" / "forward", cluster)
    # An undirected graph sends the same rows in both directions.
    backward = None
    if not graph.symmetric:
        backward = count_exchange(graph, path, parts, work / "volume" / "backward", cluster)
    # 0.0: no imbalance was asked for.
    return describe_quality(METHOD, 0.0, measure_load(graph, part, parts), forward, backward)
