"""The ingest stage: edges of any source become the graph artifact of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gnnloom.pipeline.bucket_sort import BucketSort, SortOptions
from gnnloom.pipeline.cluster import Cluster
from gnnloom.pipeline.radix import MERGE_MODES
from gnnloom.pipeline.sources.base import EdgeSource
from gnnloom.storage.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import ExistsError, InputError
from gnnloom.storage.graph import Graph

_CHOICES: Final = {"self_loops": ("add", "keep", "remove"), "ids": ("keep", "compact"), "merge": tuple(MERGE_MODES)}


@dataclass(frozen=True)
class IngestOptions:
    """How edges become a graph.

    Attributes:
        undirected: store every edge in both directions.
        self_loops: ``add`` one to every vertex, ``keep`` those of the source, ``remove`` them.
        ids: ``keep`` the source's ids; or ``compact`` those that occur into 0, 1, ... in ascending order.
        merge: what becomes of the weights of equal edges: ``sum``, ``min``, ``max`` or ``first``.
    """

    undirected: bool = False
    self_loops: str = "add"
    ids: str = "keep"
    merge: str = "sum"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(f"{name}={getattr(self, name)!r}: expected one of {', '.join(choices)}")

    def parameters(self, source: EdgeSource) -> dict[str, Any]:
        """What decides the graph's bytes, besides the edges themselves."""
        chosen: dict[str, Any] = {"undirected": self.undirected, "self_loops": self.self_loops, "ids": self.ids}
        if self.merge != "sum":
            chosen["merge"] = self.merge
        return {**chosen, "source": source.identity()}


def ingest_graph(dataset: Dataset, source: EdgeSource, options: IngestOptions, cluster: Cluster) -> Graph:
    """Store a source's edges as the dataset's graph, or find it there, or finish it.

    The entry A[i, j] of the graph is the edge j -> i; rows are sorted and duplicates merged.

    Raises:
        ExistsError: the dataset has a graph of another source or with other options.
        InputError: the source holds something that is no edge, or no edges, or ids that need ``ids="compact"``.
        BudgetError: the cluster's memory per worker is too small.
    """
    parameters = options.parameters(source)
    key = artifact_key("graph", parameters, {})
    _refuse_others(dataset, key)
    with ArtifactWriter.begin(dataset.path, "graph", parameters, {}) as writer:
        if writer.is_complete:
            return Graph(Artifact(writer.path))
        sort_options = SortOptions(options.undirected, options.self_loops, options.merge, options.ids == "compact")
        sort = BucketSort(writer, source, sort_options, cluster)
        return Graph(sort.run(symmetric=options.undirected))


def _refuse_others(dataset: Dataset, key: str) -> None:
    for info in dataset.artifacts("graph"):
        if info.key != key:
            raise ExistsError(
                f"dataset {dataset.name} has a graph already ({info.key}, {info.state}), made from another source or"
                f" with other options; delete it with `gnnloom catalog rm {dataset.name}`, or choose another name"
            )
