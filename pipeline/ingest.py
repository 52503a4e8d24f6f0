"""The ingest stage: edges of any source become the graph artifact of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.bucket_sort import BucketSort, SortOptions
from gnnloom.pipeline.calibration import calibrate
from gnnloom.pipeline.cluster import Cluster, for_work
from gnnloom.pipeline.ingest_plan import IngestPlan, Resources, project_ingest
from gnnloom.pipeline.radix import MERGE_MODES
from gnnloom.pipeline.sources.base import EdgeSource
from gnnloom.storage.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.chunks import CODECS, DEFAULT_CODEC
from gnnloom.storage.errors import ExistsError, InputError
from gnnloom.storage.graph import Graph

_CHOICES: Final = {
    "self_loops": ("add", "keep", "remove"),
    "ids": ("keep", "compact"),
    "merge": tuple(MERGE_MODES),
    "codec": CODECS,
}


@dataclass(frozen=True)
class IngestOptions:
    """How edges become a graph.

    Attributes:
        undirected: store every edge in both directions.
        self_loops: ``add`` one to every vertex, ``keep`` those of the source, ``remove`` them.
        ids: ``keep`` the source's ids; or ``compact`` those that occur into 0, 1, ... in ascending order.
        merge: what becomes of the weights of equal edges: ``sum``, ``min``, ``max`` or ``first``.
        codec: ``none``, ``fast`` or ``small``: how the arrays are compressed; their digests do not depend on it.
    """

    undirected: bool = False
    self_loops: str = "add"
    ids: str = "keep"
    merge: str = "sum"
    codec: str = DEFAULT_CODEC

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(f"{name}={getattr(self, name)!r}: expected one of {', '.join(choices)}")

    def parameters(self, source: EdgeSource) -> dict[str, Any]:
        """What decides the graph's bytes, besides the edges themselves."""
        chosen: dict[str, Any] = {"undirected": self.undirected, "self_loops": self.self_loops, "ids": self.ids}
        if self.merge != "sum":
            chosen["merge"] = self.merge
        if self.codec != DEFAULT_CODEC:
            chosen["codec"] = self.codec
        return {**chosen, "source": source.identity()}


def plan_ingest(source: EdgeSource, options: IngestOptions, folder: Path, workers: int, memory: int) -> IngestPlan:
    """Project an ingest from a short calibration, without running it; files go below ``folder`` for a moment.

    Raises:
        InputError: the source's, for what the sample holds.
        BudgetError: the memory per worker is too small, or what is needed exceeds memory or disk.
    """
    resources = Resources.at(folder, workers, memory)
    compact = options.ids == "compact"
    found = calibrate(source, options.undirected, compact, options.codec, folder)
    plan = project_ingest(found, options.undirected, compact, resources)
    plan.check()
    return plan


def ingest_graph(dataset: Dataset, source: EdgeSource, options: IngestOptions, cluster: Cluster) -> Graph:
    """Store a source's edges as the dataset's graph, or find it there, or finish it.

    The entry A[i, j] of the graph is the edge j -> i; rows are sorted and duplicates merged.

    Raises:
        ExistsError: the dataset has a graph of another source or with other options.
        InputError: the source holds something that is no edge, or no edges, or ids that need ``ids="compact"``.
        BudgetError: the memory per worker, or the disk, is too small; found before the work begins.
    """
    parameters = options.parameters(source)
    key = artifact_key("graph", parameters, {})
    _refuse_others(dataset, key)
    with ArtifactWriter.begin(dataset.path, "graph", parameters, {}) as writer:
        if writer.is_complete:
            return Graph(Artifact(writer.path))
        compact = options.ids == "compact"
        sort_options = SortOptions(options.undirected, options.self_loops, options.merge, compact, options.codec)
        plan = plan_ingest(source, options, writer.work, cluster.workers, cluster.memory)
        place = for_work(cluster, plan.seconds * plan.workers)
        sort = BucketSort(writer, source, sort_options, place, plan)
        return Graph(sort.run(symmetric=options.undirected))


def _refuse_others(dataset: Dataset, key: str) -> None:
    for info in dataset.artifacts("graph"):
        if info.key != key:
            raise ExistsError(
                f"dataset {dataset.name} has a graph already ({info.key}, {info.state}), made from another source or"
                f" with other options; delete it with `gnnloom catalog rm {dataset.name}`, or choose another name"
            )
