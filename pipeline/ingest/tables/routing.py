"""Brings the rows of a table to the tasks that write its array: buckets are cut, and rows are shuffled to them.

Tasks exchange files only, in the artifact's work folder. Each leaves a record, so a stage that was killed continues.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gnnloom.pipeline.external_sort.lanes import Lane
from gnnloom.pipeline.ingest.tables.buckets import VertexBuckets
from gnnloom.pipeline.ingest.tables.gathered_rows import GatheredRows, run_bytes
from gnnloom.pipeline.ingest.tables.lookup import BucketBounds, first_ids, id_bytes
from gnnloom.pipeline.ingest.tables.routed_table import RoutedTable
from gnnloom.pipeline.matrix_sort.scatter import range_facts
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.source import KeyedSource, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, run
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter

#: Buckets whose first ids one task looks up: a chunk of the stored ids is decompressed for each.
BOUNDS_PER_TASK = 256


@dataclass(frozen=True)
class CutIdsTask:
    """Finds the ids at which buckets ``start`` to ``stop`` begin."""

    writer: ArtifactWriter
    array: str
    graph: Path
    buckets: VertexBuckets
    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"cut/{self.array}/{self.start:08d}"


@dataclass(frozen=True)
class RouteRowsTask:
    """Routes the rows of range ``number`` of a table to their buckets.

    Attributes:
        bounds: file with the ids at which buckets begin.
        memory: bytes that the worker may use.
        lane: where the runs go, relative to the work folder.
    """

    writer: ArtifactWriter
    source: KeyedSource
    array: str
    bounds: Path
    shuffle: Shuffle
    number: int
    range: SourceRange
    memory: int
    lane: Lane
    needs: Needs = field(default_factory=Needs)

    @property
    def name(self) -> str:
        # A record of another range is not about this task.
        return f"route/{self.array}/{self.number:06d}-{'-'.join(map(str, range_facts(self.range)))}"


def route_table(
    writer: ArtifactWriter,
    source: KeyedSource,
    array: str,
    values: Column,
    graph: Graph,
    task_rows: int,
    cluster: Cluster,
) -> RoutedTable:
    """Bring the rows of a table into buckets of vertices, unless an earlier run has done so.

    Args:
        writer: the artifact that gets the array.
        source: the table.
        array: the array that the table is for.
        values: column with the values of a row.
        graph: the graph whose vertices the ids name.
        task_rows: vertices whose rows one task will write.
        cluster: where the tasks run.

    Raises:
        InputError: the table cannot be used.
    """
    buckets = VertexBuckets(graph.num_vertices, task_rows, values, id_bytes(graph))
    shuffle, bounds = buckets.shuffle(array), writer.work / "bounds" / f"{array}.json"
    _cut_ids(writer, array, graph, buckets, bounds, cluster)
    ranges = source.ranges()
    # At most one row of each vertex.
    plan = ShufflePlan(writer, shuffle, len(ranges), buckets.num_bytes, len(ranges) * buckets.num_buckets)
    tasks = [
        RouteRowsTask(writer, source, array, bounds, shuffle, number, span, cluster.memory, plan.lane(number))
        for number, span in enumerate(ranges)
    ]
    route = Phase("route rows", route_rows, tasks, "rows", files=(plan.files,))
    run([route, *plan.merges("merge rows")], cluster, writer)
    unknown = sum(record.facts["unknown"] for record in writer.recorded_of(task.name for task in tasks).values())
    return RoutedTable(source, graph.artifact.path, buckets, shuffle, writer.work, unknown)


def _cut_ids(
    writer: ArtifactWriter, array: str, graph: Graph, buckets: VertexBuckets, bounds: Path, cluster: Cluster
) -> None:
    tasks = [
        CutIdsTask(
            writer, array, graph.artifact.path, buckets, start, min(start + BOUNDS_PER_TASK, buckets.num_buckets)
        )
        for start in range(0, buckets.num_buckets, BOUNDS_PER_TASK)
    ]
    records = run_missing("cut ids", cluster, writer, cut_ids, tasks, "buckets")
    BucketBounds.save(bounds, [bound for record in records for bound in record.facts["bounds"]])


def cut_ids(task: CutIdsTask) -> int:
    """Record the ids at which some buckets begin; returns the number of buckets."""
    with task.writer.task(task.name) as output:
        graph = Graph(Artifact(task.graph))
        output.facts["bounds"] = first_ids(graph, task.buckets, range(task.start, task.stop))
    return task.stop - task.start


def route_rows(task: RouteRowsTask) -> int:
    """Route the rows of a range of the table, as many at a time as fit in memory; returns the rows read."""
    bounds, limit = BucketBounds.load(task.bounds), run_bytes(task.memory)
    rows = unknown = 0
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        gathered = GatheredRows(task.shuffle)
        for block in task.source.read_table(task.range):
            names = Names(block.id_offset, block.id_text)
            buckets = bounds.find(names)
            gathered.add(buckets, block.at, block.values, names)
            rows, unknown = rows + len(buckets), unknown + int((buckets < 0).sum())
            if gathered.num_bytes >= limit:
                gathered.route(out)
        if gathered.num_bytes:
            gathered.route(out)
        output.facts["unknown"] = unknown
    return rows
