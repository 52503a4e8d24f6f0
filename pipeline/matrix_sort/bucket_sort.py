"""The external two-pass bucket sort: from edges in any order to a stored matrix, in bounded memory.

Pass 1 reads every range of the source once and scatters its entries by row into spill files
(:mod:`gnnloom.pipeline.matrix_sort.scatter`).  A plan then cuts the rows into blocks of about equal size, and
pass 2 sorts, merges and stores each block (:mod:`gnnloom.pipeline.matrix_sort.blocks`).  Tasks exchange
files only.  Every part that is finished is recorded, so that a sort that was killed goes on where
it stood; its bytes depend on the edges alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.pipeline.external_sort.spill import MAX_VERTICES, Run
from gnnloom.pipeline.ingest.compact_ids import find_distinct_ids, id_folder
from gnnloom.pipeline.ingest.names.arrays import write_name_arrays
from gnnloom.pipeline.ingest.names.numbered import name_folder, name_table_path
from gnnloom.pipeline.ingest.projection import IngestPlan
from gnnloom.pipeline.matrix_sort.blocks import BlockTask, make_block
from gnnloom.pipeline.matrix_sort.degrees import VertexTask, create_vertex_arrays, vertex_names, write_vertices
from gnnloom.pipeline.matrix_sort.scatter import ScatterTask, scatter_name, scatter_range
from gnnloom.pipeline.matrix_sort.sort_plan import SortPlan, cut_blocks
from gnnloom.pipeline.sources.source import EdgeSource, SourceRange
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.progress import logged
from gnnloom.storage.artifacts.graph import block_path
from gnnloom.storage.errors import IncompleteError, InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, TaskRecord
from gnnloom.storage.format.chunks import DEFAULT_CODEC
from gnnloom.storage.format.files import tree_bytes


@dataclass(frozen=True)
class SortOptions:
    """What becomes of the edges.

    Attributes:
        undirected: store every edge in both directions.
        self_loops: ``add`` one to every row, ``keep`` those of the source, ``remove`` them.
        merge: what becomes of the weights of equal edges: ``sum``, ``min``, ``max`` or ``first``.
        compact: renumber the ids that occur as 0, 1, ... in ascending order.
        codec: of the arrays; see :data:`gnnloom.storage.format.chunks.CODECS`.
    """

    undirected: bool = False
    self_loops: str = "add"
    merge: str = "sum"
    compact: bool = False
    codec: str = DEFAULT_CODEC


class BucketSort:
    """Sorts the edges of a source into the row blocks of an artifact that is being written."""

    def __init__(
        self,
        writer: ArtifactWriter,
        source: EdgeSource,
        options: SortOptions,
        cluster: Cluster,
        projected: IngestPlan | None = None,
        started: float | None = None,
    ) -> None:
        """Prepare; ``started`` is when the work on the source began (``perf_counter``), if that was before."""
        working_memory(cluster.memory)
        self._projected = projected
        self._writer, self._source, self._options, self._cluster = writer, source, options, cluster
        self._plan_path = writer.work / "sort.json"
        self._started = time.perf_counter() if started is None else started

    def run(self, symmetric: bool) -> Artifact:
        """Do what is left to do and commit the artifact.

        Raises:
            InputError: the source's; or it has no edges, ids out of range, or far fewer vertices than ids.
            BudgetError: the cluster's memory per worker is too small.
        """
        plan = self._plan()
        self._make_blocks(plan)
        parts = self._write_vertices(plan)
        shutil.rmtree(self._writer.work / "spill", ignore_errors=True)
        return self._commit(plan, parts, symmetric)

    @property
    def _id_table(self) -> Path | None:
        return id_folder(self._writer) if self._options.compact else None

    # Pass 1

    def _plan(self) -> SortPlan:
        """The plan that a run before this one left, or a new one after pass 1."""
        if self._plan_path.exists():
            plan = SortPlan.load(self._plan_path)
            if not self._missing_blocks(plan) or all(run.is_intact(self._writer.work) for run in plan.runs):
                return plan
        if self._options.compact:
            find_distinct_ids(self._writer, self._source, self._cluster)
        plan = self._new_plan(self._scatter())
        plan.save(self._plan_path)
        return plan

    def _scatter(self) -> list[TaskRecord]:
        """Scatter the ranges that were not yet; returns the records of all, in the order of the source."""
        ranges = self._source.ranges()
        for _ in range(2):
            records, missing = self._scattered(ranges)
            if not missing:
                return records
            tasks = [self._scatter_task(number, ranges[number]) for number in missing]
            for _ in logged("scatter", self._cluster.map(scatter_range, tasks), len(tasks)):
                pass
        records, missing = self._scattered(ranges)
        if missing:
            raise IncompleteError(
                f"{self._writer.work}: spill files of {len(missing)} ranges vanished while being used"
            )
        return records

    def _scatter_task(self, number: int, part: SourceRange) -> ScatterTask:
        options = self._options
        drop_loops = options.self_loops == "remove"
        return ScatterTask(
            self._writer,
            number,
            self._source,
            part,
            options.undirected,
            drop_loops,
            self._cluster.memory,
            self._id_table,
        )

    def _scattered(self, ranges: Sequence[SourceRange]) -> tuple[list[TaskRecord], list[int]]:
        """Records of the ranges that are scattered, and the numbers of those that are not."""
        recorded = self._writer.recorded("scatter/")
        records, missing = [], []
        for number, part in enumerate(ranges):
            record = recorded.get(scatter_name(number))
            if record is not None and self._is_usable(record.facts, part):
                records.append(record)
            else:
                missing.append(number)
        return records, missing

    def _is_usable(self, facts: Mapping[str, Any], part: SourceRange) -> bool:
        """The record speaks of this range, and its spill files are whole."""
        runs = [Run.from_json(run) for run in facts["runs"]]
        return facts["range"] == [part.file, part.start, part.stop] and all(
            run.is_intact(self._writer.work) for run in runs
        )

    def _new_plan(self, records: Sequence[TaskRecord]) -> SortPlan:
        facts = [record.facts for record in records]
        edges_in = sum(fact["edges"] for fact in facts)
        num_vertices = self._count_vertices(max((fact["max_id"] for fact in facts), default=-1), edges_in)
        weighted = {fact["weighted"] for fact in facts} - {None}
        if len(weighted) > 1:
            raise InputError("some edges of the source have a weight and some have none")
        runs = [Run.from_json(run) for fact in facts for run in fact["runs"]]
        add_loops = self._options.self_loops == "add"
        units, entries = cut_blocks(self._writer.work, runs, num_vertices, add_loops)
        return SortPlan(
            num_vertices=num_vertices,
            block_units=units,
            block_entries=entries,
            runs=runs,
            merge=self._options.merge if True in weighted else None,
            add_loops=add_loops,
            edges_in=edges_in,
            self_loops=sum(fact["self_loops"] for fact in facts),
            codec=self._options.codec,
        )

    def _count_vertices(self, max_id: int, edges: int) -> int:
        stated = None if self._options.compact else self._source.num_vertices()
        if stated is None:
            if max_id < 0:
                raise InputError("the source has no edges")
            check_density(max_id, edges)
            return max_id + 1
        if not max_id < stated <= MAX_VERTICES or stated < 1:
            raise InputError(f"the source states {stated:,} vertices and has ids up to {max_id:,}")
        return stated

    # Pass 2

    def _missing_blocks(self, plan: SortPlan) -> list[int]:
        recorded = self._writer.recorded("block/")
        return [number for number in range(plan.num_blocks) if block_path(number) not in recorded]

    def _make_blocks(self, plan: SortPlan) -> None:
        """Make the blocks that are not recorded, large ones first."""
        missing = self._missing_blocks(plan)
        for number in missing:
            # What was left without a record is complete, or of before a crash of the machine: make it again.
            shutil.rmtree(self._writer.path / block_path(number), ignore_errors=True)
        missing.sort(key=lambda number: (-plan.block_entries[number], number))
        tasks = [BlockTask(self._writer, number, self._plan_path, self._cluster.memory) for number in missing]
        for _ in logged("sort", self._cluster.map(make_block, tasks), len(tasks), "entries"):
            pass

    def _write_vertices(self, plan: SortPlan) -> list[str]:
        """Write the degrees and original ids, or names, that are not recorded; returns the parts of all."""
        create_vertex_arrays(self._writer, plan, with_ids=self._options.compact)
        recorded = self._writer.recorded("vertex/")
        tasks = [
            VertexTask(self._writer, number, self._plan_path, self._id_table)
            for number, name in enumerate(vertex_names(plan))
            if name not in recorded
        ]
        for _ in logged("vertices", self._cluster.map(write_vertices, tasks), len(tasks), "vertices"):
            pass
        table = name_table_path(self._writer)
        names = write_name_arrays(self._writer, table, plan.codec, self._cluster) if table else []
        return [*vertex_names(plan), *names]

    def _commit(self, plan: SortPlan, vertex_parts: Sequence[str], symmetric: bool) -> Artifact:
        blocks = [block_path(number) for number in range(plan.num_blocks)]
        recorded = self._writer.recorded("block/")
        block_nnz = [recorded[block].facts["nnz"] for block in blocks]
        facts = {
            "nnz": sum(block_nnz),
            "symmetric": symmetric,
            "weighted": plan.merge is not None,
            "block_rows": plan.block_rows,
            "block_nnz": block_nnz,
            "edges_in": plan.edges_in,
            "self_loops": plan.self_loops,
            "duplicates": sum(recorded[block].facts["duplicates"] for block in blocks),
        }
        measured: dict[str, Any] = {
            "spill_bytes": self._spill_bytes(plan),
            "bytes_written": tree_bytes(self._writer.path) - tree_bytes(self._writer.work),
            "seconds": round(time.perf_counter() - self._started, 4),
        }
        if self._projected is not None:
            measured["plan"] = self._projected.against(self._outcome(plan, measured))
        return self._writer.commit([*blocks, *vertex_parts], {"vertex": plan.num_vertices}, facts, measured)

    def _spill_bytes(self, plan: SortPlan) -> int:
        """Of the runs, and of the names that became numbers before."""
        return plan.spill_bytes + tree_bytes(name_folder(self._writer))

    def _outcome(self, plan: SortPlan, measured: Mapping[str, Any]) -> dict[str, float]:
        """What became of the figures that were projected."""
        return {
            "edges": plan.edges_in,
            "vertices": plan.num_vertices,
            "entries": sum(plan.block_entries),
            "ranges": len(self._writer.recorded("scatter/")),
            "blocks": plan.num_blocks,
            "peak_memory": max(record.peak_memory for record in self._writer.recorded().values()),
            "spill_bytes": measured["spill_bytes"],
            "output_bytes": measured["bytes_written"],
            "seconds": measured["seconds"],
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
