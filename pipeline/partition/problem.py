"""What the partition stage hands to a partitioner."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnloom.pipeline.partition.settings import PartitionSettings
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import ArtifactWriter


@dataclass(frozen=True)
class PartitionProblem:
    """What is partitioned, how, and where.

    Attributes:
        transpose: the transpose of ``graph``; ``graph`` itself if it is symmetric.
        options: the settings, with model and preset resolved.
        scratch: folder for temporary files, which is removed with the artifact's work folder.
        part_path: ``.npy`` file that backs the part vector, so that tasks can map it.
        cluster: runs the tasks of partitioners that have some.
        writer: of the partition; keeps the records of tasks whose results an interrupted run leaves for the next one.
    """

    graph: Graph
    transpose: Graph
    options: PartitionSettings
    scratch: Path
    part_path: Path
    cluster: Cluster
    writer: ArtifactWriter
