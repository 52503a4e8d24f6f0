"""The external two-pass bucket sort: from edges in any order to a stored matrix, in bounded memory.

Pass 1 reads every range of the source once and scatters its entries by row into spill files
(:mod:`gnnloom.pipeline.matrix_sort.scatter`). If these are many, they are merged
(:mod:`gnnloom.pipeline.matrix_sort.merge_runs`). A plan then cuts the rows into blocks of about equal size, and pass 2
sorts, merges and stores each block (:mod:`gnnloom.pipeline.matrix_sort.blocks`). Tasks exchange files only. Every
finished task leaves a record, so a sort that was killed continues where it stopped. The bytes depend on the edges only.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnnloom.pipeline.external_sort.lanes import LaneSet
from gnnloom.pipeline.external_sort.spill import MAX_VERTICES
from gnnloom.pipeline.matrix_sort.blocks import BlockTask, make_block
from gnnloom.pipeline.matrix_sort.degrees import DegreeTask, create_degree_array, num_degree_tasks, write_degrees
from gnnloom.pipeline.matrix_sort.merge_runs import merge_runs, remove_merged_runs
from gnnloom.pipeline.matrix_sort.scatter import ScatterRangeTask, is_scattered, scatter_range, spill_files
from gnnloom.pipeline.matrix_sort.sort_plan import SortPlan, cut_blocks
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.run_missing import missing_tasks, run_missing
from gnnloom.storage.artifacts.graph import block_path
from gnnloom.storage.errors import IncompleteError, InputError
from gnnloom.storage.format.array_metadata import DEFAULT_CODEC
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, TaskRecord
from gnnloom.storage.format.files import JsonObject, tree_bytes


@dataclass(frozen=True)
class SortOptions:
    """How the edges become a matrix.

    Attributes:
        undirected: store every edge in both directions.
        self_loops: ``add`` one to every row, ``keep`` those of the source, or ``remove`` them.
        merge: how the weights of equal edges are merged: ``sum``, ``min``, ``max`` or ``first``.
        codec: compression of the arrays; see :data:`gnnloom.storage.format.chunks.CODECS`.
    """

    undirected: bool = False
    self_loops: str = "add"
    merge: str = "sum"
    codec: str = DEFAULT_CODEC


class BucketSort:
    """Sorts the edges of a source into the row blocks of an artifact that is being written."""

    def __init__(self, writer: ArtifactWriter, source: EdgeSource, options: SortOptions, cluster: Cluster) -> None:
        """Prepare the sort; nothing runs yet.

        Args:
            writer: the artifact to write.
            source: edges of the matrix.
            options: how they become a matrix.
            cluster: where the tasks run.

        Raises:
            BudgetError: the cluster's memory per worker is too small.
        """
        working_memory(cluster.memory)
        self._writer, self._source, self._options, self._cluster = writer, source, options, cluster
        self._plan_path = writer.work / "sort.json"

    def run(self) -> SortedMatrix:
        """Run the tasks that have not finished, and remove the spill files.

        Raises:
            InputError: the source cannot be read, has no edges or ids out of range, or has far fewer edges than ids.
            BudgetError: a row block does not fit the cluster's memory per worker.
            IncompleteError: spill files keep disappearing.
        """
        started = time.perf_counter()
        plan = self._find_or_make_plan()
        blocks = self._make_blocks(plan)
        # The degrees come from the row pointers of the blocks, so all blocks have to be in place.
        degrees = self._write_degrees(plan)
        # From here on the recorded blocks suffice: a later run finds none of them missing and needs no spill files.
        shutil.rmtree(self._writer.work / "spill", ignore_errors=True)
        return SortedMatrix(self._writer, plan, blocks, degrees, started)

    # Pass 1

    def _find_or_make_plan(self) -> SortPlan:
        """The plan that an earlier run left, unless its spill files are needed and damaged; else a new one."""
        if self._plan_path.exists():
            plan = SortPlan.load(self._plan_path)
            is_sorted = not missing_tasks(self._writer, self._block_tasks(plan))
            if is_sorted or all(file.is_intact(self._writer.work) for file in plan.files):
                return plan
        records = self._scatter()
        plan = self._make_plan(records)
        # The plan names the spill files and is saved after all of them exist: after a kill from here on, only the
        # blocks without a record are made again.
        plan.save(self._plan_path)
        scattered = [file for record in records for file in spill_files(record)]
        remove_merged_runs(self._writer.work, scattered, plan.files)
        return plan

    def _scatter(self) -> list[TaskRecord]:
        """Scatter the ranges that have no usable record; returns the records of all, in the order of the source."""
        # Twice, because a spill file may be lost between the check of its record and the end of the other tasks.
        for _ in range(2):
            tasks = self._scatter_tasks()
            records = run_missing("scatter", self._cluster, self._writer, scatter_range, tasks, is_usable=is_scattered)
            if all(is_scattered(task, record) for task, record in zip(tasks, records, strict=True)):
                return records
        raise IncompleteError(
            f"{self._writer.work / 'spill'}: files disappeared while they were in use; make sure that nothing else"
            " deletes files there, and run the same command again"
        )

    def _scatter_tasks(self) -> list[ScatterRangeTask]:
        options, ranges = self._options, self._source.ranges()
        lanes = LaneSet.create(self._writer.work, "spill/scattered", len(ranges))
        return [
            ScatterRangeTask(
                self._writer,
                number,
                self._source,
                source_range,
                options.undirected,
                options.self_loops == "remove",
                self._cluster.memory,
                lanes.lane(number),
            )
            for number, source_range in enumerate(ranges)
        ]

    def _make_plan(self, records: Sequence[TaskRecord]) -> SortPlan:
        facts = [record.facts for record in records]
        edges_in = sum(fact["edges"] for fact in facts)
        num_vertices = self._count_vertices(max((fact["max_id"] for fact in facts), default=-1), edges_in)
        weighted = {fact["weighted"] for fact in facts} - {None}
        if len(weighted) > 1:
            raise InputError("some edges of the source have a weight and some have none")
        files = [file for record in records for file in spill_files(record)]
        add_loops = self._options.self_loops == "add"
        merged = merge_runs(self._writer, files, num_vertices, self._cluster)
        units, entries = cut_blocks(self._writer.work, merged.files, num_vertices, add_loops)
        return SortPlan(
            num_vertices=num_vertices,
            block_units=units,
            block_entries=entries,
            files=merged.files,
            merge=self._options.merge if True in weighted else None,
            add_loops=add_loops,
            edges_in=edges_in,
            self_loops=sum(fact["self_loops"] for fact in facts),
            codec=self._options.codec,
            file_units=merged.units,
        )

    def _count_vertices(self, max_id: int, edges: int) -> int:
        stated = self._source.num_vertices()
        if stated is None:
            if max_id < 0:
                raise InputError("the source has no edges")
            check_density(max_id, edges)
            return max_id + 1
        if not max_id < stated <= MAX_VERTICES or stated < 1:
            raise InputError(f"the source states {stated:,} vertices and has ids up to {max_id:,}")
        return stated

    # Pass 2

    def _block_tasks(self, plan: SortPlan) -> list[BlockTask]:
        """One task per block, large blocks first: a large one that starts last would delay the end."""
        order = sorted(range(plan.num_blocks), key=lambda number: (-plan.block_entries[number], number))
        return [BlockTask(self._writer, number, self._plan_path, self._cluster.memory) for number in order]

    def _make_blocks(self, plan: SortPlan) -> list[TaskRecord]:
        """Make the blocks that are not recorded; returns the records of all, by block number."""
        # A block without a record may be complete, or damaged by a crash of the machine: remove it and make it again.
        records = run_missing(
            "sort",
            self._cluster,
            self._writer,
            make_block,
            self._block_tasks(plan),
            "entries",
            prepare=lambda task: shutil.rmtree(self._writer.path / block_path(task.number), ignore_errors=True),
        )
        by_name = {record.task: record for record in records}
        return [by_name[block_path(number)] for number in range(plan.num_blocks)]

    def _write_degrees(self, plan: SortPlan) -> list[TaskRecord]:
        """Write the degrees that are not recorded; returns the records of all."""
        create_degree_array(self._writer, plan)
        tasks = [DegreeTask(self._writer, number, self._plan_path) for number in range(num_degree_tasks(plan))]
        return run_missing("vertices", self._cluster, self._writer, write_degrees, tasks, "vertices")


@dataclass(frozen=True)
class SortOutcome:
    """Measurements of a sort, with the names that a projection uses.

    Attributes:
        edges: edges of the source.
        vertices: rows of the matrix.
        entries: entries of the matrix before equal ones were merged.
        ranges: tasks of pass 1.
        blocks: tasks of pass 2.
        peak_memory: largest peak of any process, in bytes.
        spill_bytes: bytes of temporary files between the passes.
        output_bytes: bytes of the artifact's arrays.
        seconds: wall time since the work on the source began.
    """

    edges: int
    vertices: int
    entries: int
    ranges: int
    blocks: int
    peak_memory: int
    spill_bytes: int
    output_bytes: int
    seconds: float


@dataclass(frozen=True)
class SortedMatrix:
    """A matrix whose blocks and degrees are written but not yet published.

    The caller may write further arrays into the artifact before it calls :meth:`commit`.
    """

    writer: ArtifactWriter
    plan: SortPlan
    blocks: Sequence[TaskRecord]
    degrees: Sequence[TaskRecord]
    started: float

    @property
    def num_vertices(self) -> int:
        return self.plan.num_vertices

    def outcome(self, *, started: float | None = None, more_spill_bytes: int = 0) -> SortOutcome:
        """Measurements of the sort so far.

        Args:
            started: when the work on the source began (``time.perf_counter``), if that was before the sort.
            more_spill_bytes: bytes of the caller's own temporary files.
        """
        recorded = self.writer.recorded()
        return SortOutcome(
            edges=self.plan.edges_in,
            vertices=self.plan.num_vertices,
            entries=sum(self.plan.block_entries),
            ranges=sum(name.startswith("scatter/") for name in recorded),
            blocks=self.plan.num_blocks,
            peak_memory=max(record.peak_memory for record in recorded.values()),
            spill_bytes=self.plan.spill_bytes + more_spill_bytes,
            output_bytes=tree_bytes(self.writer.path) - tree_bytes(self.writer.work),
            seconds=round(time.perf_counter() - (self.started if started is None else started), 4),
        )

    def commit(
        self,
        *,
        symmetric: bool,
        outcome: SortOutcome | None = None,
        more_tasks: Sequence[TaskRecord] = (),
        measured: JsonObject | None = None,
    ) -> Artifact:
        """Publish the artifact.

        Args:
            symmetric: whether the matrix equals its transpose.
            outcome: measurements by the caller; by default those of :meth:`outcome`.
            more_tasks: records of the tasks that wrote the caller's own arrays.
            measured: further measurements to store; JSON.

        Raises:
            IncompleteError: a task has no record.
            FormatError: the arrays break the schema of the artifact.
        """
        outcome = outcome or self.outcome()
        records = [*self.blocks, *self.degrees, *more_tasks]
        return self.writer.commit(
            [record.task for record in records],
            {"vertex": self.num_vertices},
            self._facts(symmetric),
            {
                "spill_bytes": outcome.spill_bytes,
                "bytes_written": outcome.output_bytes,
                "seconds": outcome.seconds,
                **(measured or {}),
            },
        )

    def _facts(self, symmetric: bool) -> Mapping[str, Any]:
        block_nnz = [record.facts["nnz"] for record in self.blocks]
        return {
            "nnz": sum(block_nnz),
            "symmetric": symmetric,
            "weighted": self.plan.merge is not None,
            "block_rows": self.plan.block_rows,
            "block_nnz": block_nnz,
            "edges_in": self.plan.edges_in,
            "self_loops": self.plan.self_loops,
            "duplicates": sum(record.facts["duplicates"] for record in self.blocks),
        }


def check_density(max_id: int, edges: int) -> None:
    """Refuse ids that leave nearly all vertices without edges: they are names, not numbers.

    Raises:
        InputError: there would be more than 2^24 vertices and more than 64 for each edge.
    """
    if max_id >= 64 * edges + (1 << 24):
        raise InputError(
            f"{edges:,} edges with vertex ids up to {max_id:,} would make {max_id + 1:,} vertices, nearly all of them"
            " without edges; renumber the ids with `--ids compact`"
        )
