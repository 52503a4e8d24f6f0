"""The external two-pass bucket sort: from edges in any order to a stored matrix, in bounded memory.

:mod:`gnnloom.pipeline.matrix_sort.sort_plan` has the phases. The number of merged files depends on the results of pass
1, and the blocks depend on the contents of the merged files, so these run first. The bytes depend on the edges only.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.external_sort.spill import MAX_VERTICES
from gnnloom.pipeline.matrix_sort.blocks import CHUNK_VERTICES
from gnnloom.pipeline.matrix_sort.sort_plan import SortOptions, SortPlan, SortSizes, cut_blocks
from gnnloom.pipeline.matrix_sort.spilled import unit_rows
from gnnloom.pipeline.shuffle.run_list import RunList
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.phase import missing_tasks, records_of, run
from gnnloom.storage.artifacts.block_matrix import block_path
from gnnloom.storage.disk.files import JsonObject, tree_bytes
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import create_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.matrix.csr import TIME_BYTES, WEIGHT_BYTES
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.wording import counted


def sort_edges(
    writer: ArtifactWriter,
    source: EdgeSource,
    options: SortOptions,
    cluster: Cluster,
    shape: tuple[int, int] | None = None,
    folder: str = "",
) -> SortedMatrix:
    """Sort the edges of a source into the row blocks of an artifact; runs the tasks that have not finished.

    Args:
        writer: the artifact to write.
        source: edges of the matrix.
        options: how they become a matrix.
        cluster: where the tasks run.
        shape: rows and columns of the matrix, if these are numbered apart; the ids of the source are below them.
        folder: beginning of the paths of the matrix's arrays: empty, or ending in a slash.

    Raises:
        InputError: the source cannot be read, has no edges or ids out of range, or has far fewer edges than ids.
        BudgetError: the cluster's memory per worker is too small, or a row block does not fit it.
        IncompleteError: temporary files disappeared while they were in use.
    """
    working_memory(cluster.memory)
    started, path = time.perf_counter(), writer.work / folder / "sort.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Facts that are unknown before pass 1 are only counted.
        rows, columns = shape or (1, None)
        unknown = SortSizes(rows, 0, 0, options.undirected, value_bytes=0, other_columns=columns)
        _found(SortPlan(unknown, options, cluster.memory, (), writer, source, folder), cluster).save(path)
    # Saved after all spill files exist: after a kill from here on, they are made again only if they are needed.
    sizes = SortSizes.load(path)
    phases = SortPlan(sizes, options, cluster.memory, (), writer, source, folder).phases()
    dim = "vertex" if shape is None else "row"
    create_array(writer.path, f"{folder}degree", (sizes.num_vertices,), "int64", (dim,), CHUNK_VERTICES, options.codec)
    # A block without a record may be complete, or damaged by a crash of the machine: it is made again.
    for task in missing_tasks(phases[-2], writer):
        shutil.rmtree(writer.path / task.name, ignore_errors=True)
    run(phases, cluster, writer)
    blocks = [f"{folder}{block_path(number)}" for number in range(sizes.num_blocks)]
    return SortedMatrix(writer, sizes, blocks, [task.name for task in phases[-1].tasks], started)


def _found(plan: SortPlan, cluster: Cluster) -> SortSizes:
    """Run pass 1 and the merges of its files; returns their results."""
    # The records are enough to plan the merges. After a kill, files may be missing because they have been merged.
    if missing_tasks(plan.scatter, plan.writer):
        run([plan.scatter], cluster, plan.writer)
    records = records_of(plan.scatter, plan.writer)
    facts = [record.facts for record in records]
    value_bytes = {fact["value_bytes"] for fact in facts} - {None}
    if len(value_bytes) > 1:
        raise InputError("some edges of the source have a weight and some have none")
    edges = sum(fact["edges"] for fact in facts)
    num_vertices = plan.sizes.num_vertices
    if plan.sizes.other_columns is None:
        num_vertices = _count_vertices(plan.source, max((fact["max_id"] for fact in facts), default=-1), edges)
    sizes = replace(
        plan.sizes,
        num_vertices=num_vertices,
        edges=edges,
        num_ranges=len(records),
        value_bytes=max(value_bytes, default=0),
        num_files=sum(fact["num_files"] for fact in facts),
        spill_bytes=sum(runs.num_bytes for runs in plan.spilled.shuffle.recorded(records)),
        self_loops=sum(fact["self_loops"] for fact in facts),
        # Directions of undirected graphs are not compared, and earlier versions compared none.
        min_id=min((low for fact in facts if (low := fact.get("min_id")) is not None), default=0),
    )
    merged = replace(plan, sizes=sizes)
    # The merges do not depend on the blocks, which this process cuts by the few merged files rather than by all files.
    run([merged.scatter, *merged.spilled.merges("merge")], cluster, plan.writer)
    add_loops = plan.options.self_loops == "add"
    units, block_entries = cut_blocks(_unit_entries(merged), sizes.shift, plan.writer.scratch, add_loops=add_loops)
    return replace(sizes, block_units=units, block_entries=block_entries)


def _unit_entries(plan: SortPlan) -> NDArray[np.int64]:
    """(num_units,) entries of each unit of rows in the spill files that blocks read."""
    work, num_units = plan.writer.work, plan.sizes.num_units
    listed, entries = RunList.read(work / plan.spilled.shuffle.list_path), np.zeros(num_units, np.int64)
    with OpenFiles(work) as files:
        for span, lanes in listed.of(range(listed.spans)).items():
            units = split_range(num_units, listed.spans, span)
            entries[slice(*units)] = unit_rows(files, lanes, plan.keys, units)[1]
    return entries


def _count_vertices(source: EdgeSource, max_id: int, edges: int) -> int:
    stated = source.num_vertices()
    if stated is None:
        if max_id < 0:
            raise InputError("the source has no edges")
        # Ids that leave nearly all vertices without edges are names, not numbers.
        if max_id >= 64 * edges + (1 << 24):
            raise InputError(
                f"{counted(edges, 'edge')} with vertex ids up to {max_id:,} would make"
                f" {counted(max_id + 1, 'vertex')}, nearly all of"
                " them without edges; renumber the ids with `--ids compact`"
            )
        return max_id + 1
    if not max_id < stated <= MAX_VERTICES or stated < 1:
        raise InputError(f"the source states {counted(stated, 'vertex')} and has ids up to {max_id:,}")
    return stated


@dataclass(frozen=True)
class SortedMatrix:
    """A matrix whose blocks and degrees are written but not yet published.

    The caller may write further arrays into the artifact before it calls :meth:`commit`.

    Attributes:
        blocks, degrees: names of the tasks that wrote them.
        started: when the sort began (``time.perf_counter``).
    """

    writer: ArtifactWriter
    sizes: SortSizes
    blocks: Sequence[str]
    degrees: Sequence[str]
    started: float

    def outcome(self, *, started: float | None = None, more_spill_bytes: int = 0) -> dict[str, float]:
        """Measurements of the sort so far, with the names that a projection uses.

        Args:
            started: when the work on the source began, if that was before the sort.
            more_spill_bytes: bytes of the caller's own temporary files.

        Returns:
            Edges of the source, rows and entries of the matrix before equal ones were merged, tasks of both passes, the
            largest peak of any process, bytes of temporary files between the passes, bytes of the artifact's arrays,
            and wall time.
        """
        return {
            "edges": self.sizes.edges,
            "vertices": self.sizes.num_vertices,
            "entries": self.sizes.entries,
            "ranges": self.sizes.num_ranges,
            "blocks": self.sizes.num_blocks,
            "peak_memory": max(record.peak_memory for record in self.writer.recorded().values()),
            "spill_bytes": self.sizes.spill_bytes + more_spill_bytes,
            "output_bytes": tree_bytes(self.writer.path) - tree_bytes(self.writer.work),
            "seconds": round(time.perf_counter() - (self.started if started is None else started), 4),
        }

    def commit(
        self,
        *,
        symmetric: bool,
        outcome: Mapping[str, float] | None = None,
        more_tasks: Sequence[str] = (),
        measured: JsonObject | None = None,
        time_unit: str = "",
    ) -> Artifact:
        """Publish the artifact.

        Args:
            symmetric: whether the matrix equals its transpose.
            outcome: measurements by the caller; by default the result of :meth:`outcome`.
            more_tasks: names of the tasks that wrote the caller's own arrays.
            measured: further measurements to store; JSON.
            time_unit: unit of times that are whole numbers; empty for others.

        Raises:
            IncompleteError: a task has no record.
            FormatError: the arrays break the schema of the artifact.
        """
        outcome, facts = outcome or self.outcome(), self.facts(symmetric=symmetric, time_unit=time_unit)
        of_sort = {
            "spill_bytes": outcome["spill_bytes"],
            "bytes_written": outcome["output_bytes"],
            "seconds": outcome["seconds"],
        }
        names = [*self.tasks, *more_tasks]
        return self.writer.commit(names, {"vertex": self.sizes.num_vertices}, facts, of_sort | dict(measured or {}))

    @property
    def tasks(self) -> list[str]:
        """Names of all tasks that wrote arrays."""
        return [*self.blocks, *self.degrees]

    def facts(self, *, symmetric: bool, time_unit: str = "") -> dict[str, Any]:
        """Facts for the manifest.

        Args:
            symmetric: whether the matrix equals its transpose.
            time_unit: unit of times that are whole numbers; empty for others.
        """
        sizes = self.sizes
        recorded = self.writer.recorded_of(self.blocks)
        block_nnz = [recorded[name].facts["nnz"] for name in self.blocks]
        # Only if there are any: other graphs have the manifests that they had before these were counted.
        joined, negative, parallel = (
            sum(recorded[name].facts.get(fact, 0) for name in self.blocks)
            for fact in ("joined", "negative_weights", "parallel")
        )
        # Directions of undirected graphs are not compared, and earlier versions compared none.
        compared = [facts for name in self.blocks if "asymmetry" in (facts := recorded[name].facts)]
        excess = sum(int(facts["asymmetry"]) for facts in compared)
        is_reciprocal = len(compared) == len(self.blocks) and excess % (1 << 64) == 0
        reciprocal = sum(int(facts["edges"]) for facts in compared) if is_reciprocal else 0
        return {
            "nnz": sum(block_nnz),
            "symmetric": symmetric,
            "weighted": sizes.value_bytes == WEIGHT_BYTES,
            # Graphs without times have the manifests that they had before there were any.
            **({"has_times": True} if sizes.value_bytes == TIME_BYTES else {}),
            **({"time_unit": time_unit} if time_unit else {}),
            "block_rows": sizes.block_rows,
            "block_nnz": block_nnz,
            "edges_in": sizes.edges,
            "self_loops": sizes.self_loops,
            "duplicates": sum(recorded[name].facts["duplicates"] for name in self.blocks),
            **({"joined": joined} if joined else {}),
            **({"negative_weights": negative} if negative else {}),
            **({"parallel": parallel} if parallel else {}),
            **({"min_id": sizes.min_id} if sizes.min_id else {}),
            **({"reciprocal_edges": reciprocal} if reciprocal else {}),
        }
