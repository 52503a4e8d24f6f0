"""The ingest stage: edges of any source become the graph artifact of a dataset."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeGuard

from gnnloom.pipeline.external_sort.radix import MERGE_MODES
from gnnloom.pipeline.ingest.calibration import calibrate
from gnnloom.pipeline.ingest.names.hashed import HashedNames
from gnnloom.pipeline.ingest.names.numbered import number_names, were_numbered
from gnnloom.pipeline.ingest.projection import IngestPlan, Resources, project_ingest
from gnnloom.pipeline.matrix_sort.bucket_sort import BucketSort, SortOptions
from gnnloom.pipeline.sources.names import NamedEdgeSource, NameFoundError
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.tasks.cluster import Cluster, ThreadedCluster, for_work
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import ExistsError, InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.format.chunks import CODECS, DEFAULT_CODEC

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
        ids: ``keep`` the source's ids; or ``compact`` those that occur into 0, 1, ... in ascending order, be they
            numbers or, where one of them is none, names.
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
    try:
        plan = _plan_numbers(source, options, resources, folder)
    except NameFoundError:
        if not _admits_names(source, options):
            raise
        plan = _plan_names(source, options, resources, folder)
    plan.check()
    return plan


def _plan_numbers(source: EdgeSource, options: IngestOptions, resources: Resources, folder: Path) -> IngestPlan:
    compact = options.ids == "compact"
    found = calibrate(source, options.undirected, compact, options.codec, folder)
    return project_ingest(found, options.undirected, compact, resources)


def _plan_names(source: NamedEdgeSource, options: IngestOptions, resources: Resources, folder: Path) -> IngestPlan:
    hashed = HashedNames(source)
    found = calibrate(hashed, options.undirected, True, options.codec, folder)
    return project_ingest(replace(found, name_bytes=hashed.name_bytes()), options.undirected, True, resources)


def _admits_names(source: EdgeSource, options: IngestOptions) -> TypeGuard[NamedEdgeSource]:
    return options.ids == "compact" and isinstance(source, NamedEdgeSource)


def ingest_graph(
    dataset: Dataset, source: EdgeSource, options: IngestOptions, cluster: Cluster, *, beside_others: bool = False
) -> Graph:
    """Store a source's edges as the dataset's graph, or find it there, or finish it.

    The entry A[i, j] of the graph is the edge j -> i; rows are sorted and duplicates merged.

    Args:
        beside_others: the dataset may have other graphs; who reads one then has to give its key.

    Raises:
        ExistsError: the dataset has a graph of another source or with other options, and must not.
        InputError: the source holds something that is no edge, or no edges, or ids that need ``ids="compact"``.
        BudgetError: the memory per worker, or the disk, is too small; found before the work begins.
    """
    if not beside_others:
        _refuse_others(dataset, graph_key(source, options))
    with ArtifactWriter.begin(dataset.path, "graph", options.parameters(source), {}) as writer:
        if writer.is_complete:
            return Graph(Artifact(writer.path))
        try:
            return Graph(_sort(writer, source, options, cluster))
        except InputError:
            # These files and options never make a graph, so that nothing is left to be finished.
            shutil.rmtree(writer.path, ignore_errors=True)
            raise


def graph_key(source: EdgeSource, options: IngestOptions) -> str:
    """The key of the artifact that :func:`ingest_graph` makes or finds."""
    return artifact_key("graph", options.parameters(source), {})


def _sort(writer: ArtifactWriter, source: EdgeSource, options: IngestOptions, cluster: Cluster) -> Artifact:
    if were_numbered(writer) and _admits_names(source, options):
        return _sort_names(writer, source, options, cluster)
    try:
        return _sort_numbers(writer, source, options, cluster)
    except NameFoundError:
        if not _admits_names(source, options):
            raise
    return _sort_names(writer, source, options, cluster)


def _sort_numbers(writer: ArtifactWriter, source: EdgeSource, options: IngestOptions, cluster: Cluster) -> Artifact:
    resources = Resources.at(writer.work, cluster.workers, cluster.memory)
    plan = _plan_numbers(source, options, resources, writer.work)
    plan.check()
    compact = options.ids == "compact"
    sort_options = SortOptions(options.undirected, options.self_loops, options.merge, compact, options.codec)
    place, plan = _placed(plan, cluster)
    return BucketSort(writer, source, sort_options, place, plan).run(symmetric=options.undirected)


def _sort_names(writer: ArtifactWriter, source: NamedEdgeSource, options: IngestOptions, cluster: Cluster) -> Artifact:
    """As :func:`_sort_numbers`, once the names have numbers."""
    started = time.perf_counter()
    resources = Resources.at(writer.work, cluster.workers, cluster.memory)
    plan = _plan_names(source, options, resources, writer.work)
    plan.check()
    place, plan = _placed(plan, cluster)
    numbered = number_names(writer, source, place)
    sort_options = SortOptions(options.undirected, options.self_loops, options.merge, codec=options.codec)
    return BucketSort(writer, numbered, sort_options, place, plan, started).run(symmetric=options.undirected)


def _placed(plan: IngestPlan, cluster: Cluster) -> tuple[Cluster, IngestPlan]:
    """Where to do the work, and the plan for that place."""
    place = for_work(cluster, plan.work)
    return place, plan.in_one_process() if isinstance(place, ThreadedCluster) else plan


def _refuse_others(dataset: Dataset, key: str) -> None:
    for info in dataset.artifacts("graph"):
        if info.key != key:
            raise ExistsError(
                f"dataset {dataset.name} has a graph already ({info.key}, {info.state}), made from another source or"
                f" with other options; delete it with `gnnloom catalog rm {dataset.name}`, or choose another name"
            )
