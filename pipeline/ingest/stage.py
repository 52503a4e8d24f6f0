"""The ingest stage: edges of any source become the graph artifact of a dataset."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.external_sort.radix import KEEP, MERGE_MODES
from gnnloom.pipeline.ingest.calibration import calibrate
from gnnloom.pipeline.ingest.keys.arrays import write_key_arrays
from gnnloom.pipeline.ingest.keys.numbered import number_keys
from gnnloom.pipeline.ingest.preparation import (
    as_unpacked,
    largest_compressed,
    planned_ranges,
    preparation_phases,
    prepared_source,
)
from gnnloom.pipeline.ingest.projection import IngestProjection, Resources, extrapolate
from gnnloom.pipeline.matrix_sort.blocks import UnequalWeightsError
from gnnloom.pipeline.matrix_sort.bucket_sort import sort_edges
from gnnloom.pipeline.matrix_sort.sort_plan import SortOptions
from gnnloom.pipeline.sources.names import NamedEdgeSource
from gnnloom.pipeline.sources.reading.files import UnreachableError
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.tasks.cluster import Cluster, ThreadedCluster, for_work
from gnnloom.pipeline.tasks.phase import repairing, temporary_bytes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.differences import differences, in_words, is_of_content
from gnnloom.storage.errors import BudgetError, ExistsError, InputError, NotFoundError
from gnnloom.storage.format.array_metadata import CODECS, DEFAULT_CODEC
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.option import Group, check_options, option
from gnnloom.storage.wording import shell_command

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Allowed values of the options that are texts.
CHOICES: Final = {
    "self_loops": ("add", "keep", "remove"),
    "ids": ("keep", "compact", "names"),
    "merge": (*MERGE_MODES, KEEP),
    "codec": CODECS,
}


@dataclass(frozen=True)
class IngestOptions:
    """Options that decide how edges become a graph."""

    undirected: bool = option(False, "Store every edge in both directions.", group=Group.GRAPH, is_common=True)
    self_loops: str = option(
        "add",
        "Add a loop to every vertex, keep the loops of the source, or remove them.",
        group=Group.GRAPH,
        choices=CHOICES["self_loops"],
    )
    ids: str = option(
        "keep",
        "How to number the vertices: keep: by their ids; compact: 0, 1, ... in ascending order of the ids that occur,"
        " which may be numbers or names; names: the same, but treat all ids as names.",
        group=Group.GRAPH,
        is_common=True,
        choices=CHOICES["ids"],
    )
    merge: str | None = option(
        None,
        "How to combine the weights or times of equal edges (of both directions, if undirected). first depends on the"
        " order of the files; keep, for relations only, stores equal edges separately.",
        group=Group.GRAPH,
        choices=CHOICES["merge"],
        default_text="sum; both directions of an edge must agree",
    )
    # The digests of the arrays do not depend on it.
    codec: str = option(
        DEFAULT_CODEC,
        "Compression of the graph: none, fast (costs almost no time), or small (smallest files).",
        group=Group.OUTPUT,
        choices=CHOICES["codec"],
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def sort(self) -> SortOptions:
        """The same as options of the sort."""
        compares = not self.undirected
        return SortOptions(self.undirected, self.self_loops, self.merge, self.codec, compares_directions=compares)

    def parameters(self, source: EdgeSource) -> dict[str, Any]:
        """Parameters that decide the graph's bytes."""
        parameters = {**asdict(self), "source": source.identity()}
        if self.merge is None:
            # Without a merge, undirected weights are not summed over both directions, as they are with ``sum``. Other
            # graphs have the key that they had when ``sum`` was the default.
            del parameters["merge"]
            if not (self.undirected and parameters["source"].get("weights")):
                parameters["merge"] = "sum"
        return parameters


def project_ingest(
    source: EdgeSource, options: IngestOptions, folder: Path, workers: int, memory: int
) -> IngestProjection:
    """Project an ingest from a short calibration, without running it.

    Args:
        source: edges to ingest.
        options: how they would become a graph.
        folder: where the files would go; the calibration writes some here and removes them.
        workers: tasks at a time.
        memory: bytes that one worker may use.

    Raises:
        InputError: the sample cannot be read.
        BudgetError: the memory per worker is too small, or the ingest needs more memory or disk than there is.
    """
    if options.ids == "names" and isinstance(source, NamedEdgeSource):
        source = source.as_named()
    return _project(source, options, Resources.at(folder, workers, memory), folder)[1]


def _project(
    source: EdgeSource, options: IngestOptions, resources: Resources, folder: Path
) -> tuple[IngestOptions, IngestProjection]:
    """Decide whether ids are names, project an ingest, and refuse what does not fit.

    Returns:
        The options, in which ``compact`` has become ``names`` if the first ids of the source are not numbers; and the
        projection.

    Raises:
        InputError: the ids of the source are always numbers and were called names, its first line may be a header, or
            times would be added up.
        BudgetError: it does not fit.
    """
    if options.merge == KEEP:
        raise InputError("merge 'keep': only relations of graphs with types may have equal edges (`--relation`)")
    if getattr(source, "times", False) and options.merge in {None, "sum"}:
        raise InputError(
            "merge 'sum': times of parallel edges cannot be added; use --merge max for the latest time, min for the"
            " earliest, or first for the first in the files"
        )
    if (location := getattr(source, "says_undirected", "")) and not options.undirected:
        raise InputError(f"{location}: the file says that its edges have no direction; add `--undirected`")
    if not isinstance(source, NamedEdgeSource):
        if options.ids == "names":
            raise InputError(f"format {source.identity()['format']!r}: ids are always numbers (`--ids compact`)")
    # Ids that were called names are looked at too, because the first line may be a header.
    elif options.ids != "keep" and source.begins_with_names():
        options = replace(options, ids="names")
    found = calibrate(source, options.undirected, options.ids, options.codec, folder)
    projection = extrapolate(found, options.undirected, resources, options.merge)
    unpacked = temporary_bytes(preparation_phases(source))
    projection = replace(
        projection,
        ranges=planned_ranges(as_unpacked(source)),
        spill_bytes=projection.spill_bytes + unpacked,
        compressed_bytes=largest_compressed(source),
    )
    projection.check()
    return options, projection


@repairing
def ingest_graph(
    dataset: Dataset, source: EdgeSource, options: IngestOptions, cluster: Cluster, *, allow_others: bool = False
) -> Graph:
    """Store a source's edges as a graph of the dataset, finish one that was begun, or find one that is complete.

    The entry A[i, j] of the graph is the edge j -> i. Rows are sorted and duplicates merged.

    Args:
        dataset: dataset that gets the graph.
        source: edges of the graph.
        options: how they become a graph.
        cluster: where the tasks run.
        allow_others: allow the dataset to have other graphs; readers must then pass a key.

    Raises:
        ExistsError: the dataset has a graph from another source or with other options, and others are not allowed.
        InputError: the source has no edges or something that is not one, or an id that is not a number where numbers
            are expected.
        BudgetError: the memory per worker or the disk is too small; raised before the work begins.
    """
    parameters = options.parameters(source)
    check_others(dataset, artifact_key("graph", parameters, {}), parameters, allowed=allow_others)
    with ArtifactWriter.begin(dataset.path, "graph", parameters, {}, cluster.scratch) as writer:
        if writer.is_complete:
            return Graph(Artifact(writer.path))
        with discarding(writer):
            source = prepared_source(writer, source, cluster)
            if options.ids == "names" and isinstance(source, NamedEdgeSource):
                source = source.as_named()
            resources = Resources.at(writer.work, cluster.workers, cluster.memory)
            options, projection = _project(source, options, resources, writer.work)
            # Threads, if that is faster than starting workers.
            cluster = for_work(cluster, projection.work)
            if isinstance(cluster, ThreadedCluster):
                projection = projection.in_one_process()
            started = time.perf_counter()
            # Of times that are dates.
            unit = getattr(source, "time_unit", "")
            numbered = None if options.ids == "keep" else number_keys(writer, source, options.ids, cluster)
            try:
                sorting = replace(options.sort, has_ticks=bool(unit))
                matrix = sort_edges(writer, numbered or source, sorting, cluster)
            except UnequalWeightsError as error:
                # Vertices have the names that the source gives them.
                first, second = [numbered.key(int(end)) for end in error.ends] if numbered else error.ends
                raise UnequalWeightsError(first, second, *error.weights) from None
            keys = write_key_arrays(writer, numbered.table_path, options.codec, cluster) if numbered else []
            more_spill_bytes = numbered.spill_bytes() if numbered else 0
            outcome = matrix.outcome(started=started, more_spill_bytes=more_spill_bytes)
            # The projected figures next to the measured ones.
            measured = {"plan": projection.against(outcome)}
            return Graph(
                matrix.commit(
                    symmetric=options.undirected,
                    outcome=outcome,
                    more_tasks=keys,
                    measured=measured,
                    time_unit=unit,
                )
            )


@contextmanager
def discarding(writer: ArtifactWriter) -> Iterator[None]:
    """Leave nothing of an artifact if an error says that there is nothing to finish."""
    try:
        yield
    except UnreachableError:
        # The server may answer later, and finished reads are kept.
        raise
    except InputError:
        # These files with these options never make the artifact.
        writer.discard()
        raise
    except (BudgetError, NotFoundError):
        # Refused before the work began, unless an earlier run left some.
        if not writer.has_records():
            writer.discard()
        raise


def graph_key(source: EdgeSource, options: IngestOptions) -> str:
    """The key of the artifact that :func:`ingest_graph` makes or finds."""
    return artifact_key("graph", options.parameters(source), {})


def check_others(dataset: Dataset, key: str, parameters: Mapping[str, Any], *, allowed: bool) -> None:
    """Refuse to add a graph to others, or say so: a changed option makes another graph and never replaces one.

    A complete graph is found again even if other graphs were added.
    """
    infos = {info.key: info for info in dataset.ingested_graphs()}
    others = [info for info in infos.values() if info.key != key and (info.state == "complete" or not allowed)]
    if not others or (key in infos and infos[key].state == "complete"):
        return
    *found, new = differences([*(info.parameters for info in others), parameters])
    there = "; ".join(f"{info.key}, {info.state} ({in_words(it)})" for info, it in zip(others, found, strict=True))
    if not allowed:
        old = ["--artifact", f"graph/{others[0].key}"] if len(others) == 1 else []
        first = f"remove it with `{shell_command('gnnloom', 'catalog', 'rm', dataset.name, *old)}`"
        if is_of_content(new):
            found_there = "from these files already, and the files have changed since"
        else:
            found_there = f"already: {there}. This command makes another one ({in_words(new)})"
            if "files" not in new:
                first = "give the options of the first"
        raise ExistsError(
            f"dataset {dataset.name} has a graph {found_there}; {first}, add the new graph to the dataset (`--add`), or"
            " choose another dataset name"
        )
    LOGGER.warning(
        "dataset %s gets another graph, %s (%s), next to %s; choose one with `--graph KEY`",
        dataset.name,
        key,
        in_words(new),
        there,
    )
