"""Stores a partition that another program made, and measures it like our own."""

from __future__ import annotations

from pathlib import Path

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.partition.measure.measurement import MeasurePlan, record_quality
from gnnloom.pipeline.shuffle.mapped_vectors import write_vector
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage import Dataset, Graph, Partition
from gnnloom.storage.format.arrays import digest_bytes, write_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
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
        # Measured by our own counter, whatever the other program reports; its tasks map the parts from a file.
        with writer.task("quality/0") as output:
            path, transpose = writer.work / "parts", transpose_graph(dataset, graph, cluster)
            write_vector(path, [part])
            plan = MeasurePlan.of(graph, transpose, num_parts, cluster.memory, "nonzeros", writer, path)
            # 0.0: no imbalance was asked for.
            record_quality(output, plan, cluster, METHOD, 0.0)
        sizes = {"vertex": graph.num_vertices}
        return Partition(writer.commit(["part/0", "quality/0"], sizes, {"quality": output.facts}))
