"""Brings the rows of a table to the tasks that write its array: buckets are cut, rows routed, and their files merged.

Tasks exchange files only, in the artifact's work folder. Each leaves a record, so a stage that was killed continues.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from gnnloom.pipeline.external_sort.merge_levels import Level, merge_levels, merges
from gnnloom.pipeline.ingest.tables.lookup import BucketBounds, first_ids, id_bytes
from gnnloom.pipeline.ingest.tables.plan import BOUNDS_PER_TASK, FAN_IN, TablePlan, file_bytes
from gnnloom.pipeline.ingest.tables.routed_table import RoutedTable, merged_path
from gnnloom.pipeline.ingest.tables.row_file import RowGroup, RowType, merge_files
from gnnloom.pipeline.matrix_sort.scatter import range_facts
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.source import KeyedSource, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, TaskRecord
from gnnloom.storage.matrix.ranges import Span

_FOLDER = "tables"


@dataclass(frozen=True)
class CutIdsTask:
    """Finds the ids at which buckets ``start`` to ``stop`` begin."""

    writer: ArtifactWriter
    array: str
    graph: Path
    plan: TablePlan
    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"cut/{self.array}/{self.start:08d}"


@dataclass(frozen=True)
class RouteRowsTask:
    """Reads range ``number`` of a table and leaves files of its rows, grouped by bucket."""

    writer: ArtifactWriter
    source: KeyedSource
    array: str
    values: RowType
    num_buckets: int
    number: int
    range: SourceRange
    memory: int

    @property
    def name(self) -> str:
        return f"route/{self.array}/{self.number:06d}"


@dataclass(frozen=True)
class MergeRowsTask:
    """Merges the rows of some buckets from several files into one file.

    Attributes:
        paths: the files, of ``num_buckets`` buckets each, in the order of the table.
        span: first and last (exclusive) of the buckets, counted from the first in the files.
        merged: the file to write.
    """

    writer: ArtifactWriter
    array: str
    values: RowType
    paths: tuple[Path, ...]
    num_buckets: int
    span: Span
    merged: Path

    @property
    def name(self) -> str:
        # The digest is in the path: files of a table that was read again are merged again.
        return f"merge/{self.array}/{'/'.join(self.merged.parts[-4:])}"


def route_table(
    writer: ArtifactWriter,
    source: KeyedSource,
    array: str,
    values: RowType,
    graph: Graph,
    task_rows: int,
    cluster: Cluster,
) -> RoutedTable:
    """Bring the rows of a table into buckets of vertices, unless an earlier run has done so.

    Args:
        writer: the artifact that gets the array.
        source: the table.
        array: the array that the table is for.
        values: type of a row.
        graph: the graph whose vertices the ids name.
        task_rows: vertices whose rows one task will write.
        cluster: where the tasks run.

    Raises:
        InputError: the table cannot be used.
    """
    plan = TablePlan(graph.num_vertices, task_rows, values.num_bytes, id_bytes(graph))
    _cut_ids(writer, array, graph, plan, cluster)
    tasks = [
        RouteRowsTask(writer, source, array, values, plan.num_buckets, number, span, cluster.memory)
        for number, span in enumerate(source.ranges())
    ]
    records = run_missing("route rows", cluster, writer, route_rows, tasks, "rows", is_usable=_is_of_range)
    paths = [writer.work / path for record in records for path in record.facts["files"]]
    unknown = sum(record.facts["unknown"] for record in records)
    digest = xxhash.xxh3_64_hexdigest(json.dumps([path.name for path in paths]).encode())
    levels = merge_levels(len(paths), FAN_IN)
    folder = _table_folder(writer, array) / digest
    # Every task that writes rows holds the table, so the table leaves out files that nothing reads any more.
    unmerged = tuple(paths) if len(levels) == 1 else ()
    table = RoutedTable(source, values, graph.artifact.path, plan, folder, unmerged, levels, unknown)
    for level in levels[1:]:
        _merge(writer, array, table, level, paths, cluster)
    return table


def remove_tables(writer: ArtifactWriter) -> None:
    """Remove the files of all tables, whose rows have been written."""
    shutil.rmtree(writer.work / _FOLDER, ignore_errors=True)


def _table_folder(writer: ArtifactWriter, array: str) -> Path:
    """Folder of all files of a table."""
    return writer.work / _FOLDER / array


def _read_folder(writer: ArtifactWriter, array: str) -> Path:
    """Folder of the files that the table is read into."""
    return _table_folder(writer, array) / "read"


def _bounds_path(writer: ArtifactWriter, array: str) -> Path:
    return _table_folder(writer, array) / "bounds.json"


def _is_of_range(task: RouteRowsTask, record: TaskRecord) -> bool:
    return bool(record.facts["range"] == range_facts(task.range))


def _cut_ids(writer: ArtifactWriter, array: str, graph: Graph, plan: TablePlan, cluster: Cluster) -> None:
    tasks = [
        CutIdsTask(writer, array, graph.artifact.path, plan, start, min(start + BOUNDS_PER_TASK, plan.num_buckets))
        for start in range(0, plan.num_buckets, BOUNDS_PER_TASK)
    ]
    records = run_missing("cut ids", cluster, writer, cut_ids, tasks, "buckets")
    found = [bound for record in records for bound in record.facts["bounds"]]
    BucketBounds.save(_bounds_path(writer, array), found)


def cut_ids(task: CutIdsTask) -> int:
    """Record the ids at which some buckets begin; returns the number of buckets."""
    with task.writer.task(task.name) as output:
        graph = Graph(Artifact(task.graph))
        output.facts["bounds"] = first_ids(graph, task.plan, range(task.start, task.stop))
    return task.stop - task.start


def route_rows(task: RouteRowsTask) -> int:
    """Write the rows of a range of the table, as many at a time as fit in memory; returns the rows read."""
    bounds, limit = BucketBounds.load(_bounds_path(task.writer, task.array)), file_bytes(task.memory)
    files: list[str] = []
    rows = unknown = 0
    with task.writer.task(task.name) as output:
        group = RowGroup(task.values, task.num_buckets)
        for block in task.source.read_table(task.range):
            names = Names(block.id_offset, block.id_text)
            buckets = bounds.find(names)
            group.add(buckets, names, block.at, block.values)
            rows, unknown = rows + len(buckets), unknown + int((buckets < 0).sum())
            if group.num_bytes >= limit:
                files.append(_write(task, group))
                group = RowGroup(task.values, task.num_buckets)
        if group.num_bytes:
            files.append(_write(task, group))
        output.facts = {"range": range_facts(task.range), "files": files, "unknown": unknown}
    return rows


def _write(task: RouteRowsTask, group: RowGroup) -> str:
    """Write a file; returns its path in the work folder."""
    # A random name: a worker that was taken for dead may still be writing the same range.
    path = _read_folder(task.writer, task.array) / f"{task.number:06d}-{uuid.uuid4().hex}"
    group.write(path)
    return str(path.relative_to(task.writer.work))


def _merge(
    writer: ArtifactWriter, array: str, table: RoutedTable, level: Level, paths: Sequence[Path], cluster: Cluster
) -> None:
    """Make the files of one level, and remove those of the level before."""
    before, plan = table.levels[level.number - 1], table.plan
    tasks = []
    for merge in merges(table.levels, level, plan.num_buckets):
        start, stop = plan.span(before, merge.span_before)
        span = (merge.positions[0] - start, merge.positions[1] - start)
        files = tuple(
            merged_path(table.folder, before, merge.span_before, source) if before.number else paths[source]
            for source in merge.group
        )
        merged = merged_path(table.folder, level, merge.span, merge.source)
        tasks.append(MergeRowsTask(writer, array, table.values, files, stop - start, span, merged))
    run_missing("merge rows", cluster, writer, merge_rows, tasks, "rows")
    done = table.folder / str(before.number) if before.number else _read_folder(writer, array)
    shutil.rmtree(done, ignore_errors=True)


def merge_rows(task: MergeRowsTask) -> int:
    """Write one merged file; returns its rows."""
    with task.writer.task(task.name):
        return merge_files(task.paths, task.values, task.num_buckets, task.span, task.merged)
