"""METIS partition files (``NAME.part.K``): line v holds the part of vertex v (METIS manual, section 4.1.2)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.partition.measure.quality import MeasurePlan, record_quality
from gnnloom.pipeline.shuffle.mapped_vectors import write_vector
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage import Dataset, Graph, Partition
from gnnloom.storage.disk.files import written_aside
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import ExistsError, InputError, NotFoundError
from gnnloom.storage.format.arrays import digest_bytes, write_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.format.memory_map import create_part_vector
from gnnloom.storage.wording import counted

#: Vertices written at a time: a few MB of text.
_CHUNK = 1 << 20
#: Characters read of a line: a part has at most ten digits, and blanks around it are allowed.
_LONGEST_LINE = 64


def write_metis_part(partition: Partition, file: Path) -> None:
    """Write a partition to a file, which appears only when it is complete.

    Raises:
        ExistsError: the file exists.
        InputError: its folder does not exist.
    """
    if file.exists():
        raise ExistsError(f"{file}: the file already exists; remove it, or choose another name")
    if not file.parent.is_dir():
        raise InputError(f"{file}: the folder {file.parent} does not exist")
    with written_aside(file, durable=True) as aside, aside.open("w", encoding="ascii") as out:
        for start in range(0, partition.num_vertices, _CHUNK):
            part = partition.part(start, min(start + _CHUNK, partition.num_vertices))
            out.write("\n".join(map(str, part.tolist())) + "\n")


def read_metis_part(file: Path, part: NDArray[np.int32], parts: int | None = None) -> int:
    """Read the part of every vertex.

    Args:
        part: (num_vertices,) int32; is filled.
        parts: number of parts; by default the highest part in the file plus one.

    Returns:
        The number of parts.

    Raises:
        NotFoundError: the file does not exist.
        InputError: a line is not a part, or the number of lines differs from the number of vertices; names the line.
    """
    if not file.is_file():
        raise NotFoundError(f"{file}: the file does not exist")
    num_vertices = len(part)
    # Without --parts, the number of parts is at most the number of vertices.
    highest = (parts if parts is not None else min(num_vertices, np.iinfo(np.int32).max)) - 1
    count = 0
    with file.open("rb") as lines:
        # A file without line ends, such as a binary one, would otherwise be read into memory whole.
        while line := lines.readline(_LONGEST_LINE):
            if count == num_vertices:
                raise InputError(f"{file}:{count + 1}: more lines than the {num_vertices:,} vertices of the graph")
            part[count] = _parse(file, count + 1, line, highest)
            count += 1
    if count != num_vertices:
        raise InputError(f"{file}: {counted(count, 'line')}, expected one for each of {num_vertices:,} vertices")
    return parts if parts is not None else int(part.max(initial=0)) + 1


def _parse(file: Path, number: int, line: bytes, highest: int) -> int:
    text = line.strip()
    # A line of full length may have been cut off. For bytes, isdigit accepts ASCII digits only.
    if not text.isdigit() or len(line) == _LONGEST_LINE or int(text) > highest:
        raise InputError(f"{file}:{number}: expected a part from 0 to {highest}, found {text[:40]!r}")
    return int(text)


#: The partition's ``method``, because no partitioner of gnnloom made it.
METHOD = "file"


def store_metis_part(dataset: Dataset, graph: Graph, file: Path, parts: int | None, cluster: Cluster) -> Partition:
    """Store the partition in a METIS file, or find it if it was stored before.

    Args:
        parts: number of parts; by default the highest part in the file plus one.

    Raises:
        NotFoundError: the file does not exist.
        InputError: the file is not a partition of the graph.
    """
    with own_folder() as folder:
        # Mapped from a file, because it may not fit in memory.
        part = create_part_vector(Path(folder, "part.npy"), graph.num_vertices)
        num_parts = read_metis_part(file, part, parts)
        # The key depends on the file's content: the same partition in another file is the same artifact.
        parameters = {"parts": num_parts, "method": METHOD, "digest": digest_bytes(part)}
        with ArtifactWriter.begin(dataset.path, "partition", parameters, {"graph": graph.artifact.key}) as writer:
            if writer.is_complete:
                return Partition(Artifact(writer.path))
            with writer.task("part/0") as output:
                output.add(write_array(writer.path, "part", part, ("vertex",)))
            # Measured by gnnloom's own counter, not taken from the other program; its tasks map the parts from a file.
            with writer.task("quality/0") as output:
                path, transpose = writer.work / "parts", transpose_graph(dataset, graph, cluster)
                write_vector(path, [part])
                plan = MeasurePlan.of(graph, transpose, num_parts, cluster.memory, "nonzeros", writer, path)
                # 0.0: no imbalance was requested.
                record_quality(output, plan, cluster, METHOD, 0.0)
            sizes = {"vertex": graph.num_vertices}
            return Partition(writer.commit(["part/0", "quality/0"], sizes, {"quality": output.facts}))
