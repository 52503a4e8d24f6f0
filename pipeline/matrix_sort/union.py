"""Makes the union of the relations of a graph with types: one adjacency for partitioners and counters.

The rows of the relations are stored in order, so a block of the union is a merge, without a sort of all edges.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from gnnloom.pipeline.matrix_sort.blocks import CHUNK_VERTICES, ROW_MEMORY, TASK_VERTICES, block_aside
from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.matrix_sort.sort_plan import degree_phase
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import WRITING_BYTES
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, missing_tasks, repairing, run
from gnnloom.pipeline.tasks.sizes import TypedSizes
from gnnloom.storage.artifacts.block_matrix import BlockWriter, block_path
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.artifacts.typed.union import (
    FORWARD,
    TypedMatrices,
    UnionSpec,
    row_entries,
    union_rows,
)
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.arrays import create_array, write_rows
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.ranges import Span
from gnnloom.storage.meters import Done

#: Array with the entries of all relations in each row, which are the work of the row.
ENTRIES = "entries"
#: Bytes of an entry while rows are united: columns as read and widened, keys, their concatenation, and columns.
_STEP_BYTES = 48


@dataclass(frozen=True)
class UnionTask(Task):
    """Unites the rows of a range of vertices.

    Attributes:
        matrices: the matrices to unite.
        rows: first and last (exclusive) vertex.
        num_vertices: of the graph.
        number: of the block.
    """

    matrices: TypedMatrices
    rows: Span
    num_vertices: int
    number: int = 0


def unite_block(task: UnionTask) -> Done:
    """Write one row block of the union; returns its nonzeros."""
    with task.writer.task(task.name) as output, block_aside(task.writer, task.name) as aside:
        block = BlockWriter(aside, task.number, task.num_vertices, None)
        indptr, nnz = np.zeros(task.rows[1] - task.rows[0] + 1, np.int64), 0
        for rows in union_rows(task.matrices.united(), task.rows, task.num_vertices, task.writer.scratch):
            block.append(rows.indices, None)
            first = rows.first - task.rows[0]
            indptr[first + 1 : first + len(rows.indptr)] = nnz + rows.indptr[1:]
            nnz += len(rows.indices)
        for record in block.close(task.rows[0], indptr):
            output.add(record)
        output.facts["nnz"] = nnz
    return Done(nnz)


def write_entries(task: UnionTask) -> Done:
    """Write the entries of all relations in the rows of some vertices; returns the number of vertices."""
    with task.writer.task(task.name) as output:
        found = row_entries(task.matrices.opened(), *task.rows)
        output.add(write_rows(task.writer.path, ENTRIES, task.rows[0], found))
        output.facts["entries"] = int(found.sum())
    return Done(len(found))


@dataclass(frozen=True, eq=False)
class UnionPlan:
    """The phases that make a union; the defaults are for plans that are counted and not run.

    Attributes:
        sizes: of the graph with types.
        spec: which matrices are united.
        writer: of the union.
        matrices: the matrices to unite.
    """

    sizes: TypedSizes
    spec: UnionSpec = field(default_factory=UnionSpec)
    writer: ArtifactWriter = field(default_factory=lambda: ArtifactWriter(Path(), "transpose", ""))
    matrices: TypedMatrices = field(default_factory=lambda: TypedMatrices(Path(), None))

    def phases(self) -> list[Phase]:
        """All phases."""
        return [self.blocks, degree_phase(self.writer, self.bounds), self.entries]

    @property
    def bounds(self) -> Sequence[int]:
        """First row of each block, and the number of vertices."""
        return self.sizes.union_bounds(self.spec)

    @cached_property
    def blocks(self) -> Phase:
        """The phase that writes the blocks."""
        n, tasks, most = self.sizes.num_vertices, [], self.writer.scratch.step_entries
        for number, (rows, nnz) in enumerate(zip(pairwise(self.bounds), self.sizes.union_nnz(self.spec), strict=True)):
            num_rows = rows[1] - rows[0]
            step = _STEP_BYTES * min(nnz, 2 * most) + 16 * min(num_rows, most)
            size = index_dtype(n).itemsize * nnz + 8 * num_rows
            needs = Needs(size, size, memory=step + ROW_MEMORY * num_rows + WRITING_BYTES)
            tasks.append(UnionTask(self.writer, block_path(number), needs, self.matrices, rows, n, number))
        return Phase("unite relations", unite_block, tasks, makes_arrays=True, arrays=2)

    @cached_property
    def entries(self) -> Phase:
        """The phase that counts the entries of all relations in each row."""
        n, tasks = self.sizes.num_vertices, []
        for number, start in enumerate(range(0, n, TASK_VERTICES)):
            rows = start, min(start + TASK_VERTICES, n)
            size = 8 * (rows[1] - rows[0])
            name, needs = f"entries/{number:05d}", Needs(2 * size, size, memory=3 * size + WRITING_BYTES)
            tasks.append(UnionTask(self.writer, name, needs, self.matrices, rows, n))
        return Phase("entries", write_entries, tasks, "vertices", makes_arrays=True)


@repairing
def union_graph(dataset: Dataset, graph: TypedGraph, spec: UnionSpec, cluster: Cluster) -> Graph:
    """Make, finish or find the union of the relations of a graph with types.

    Args:
        spec: which matrices are united; reverses are stored first.

    Returns:
        The union: a pattern over the numbering of all vertices, symmetric if it has both directions of all relations.
        Its array ``entries`` has the entries that all matrices of the direction together have in each row.

    Raises:
        BudgetError: the cluster's memory per worker is too small.
    """
    reverses = None if spec.direction == FORWARD else reverse_relations(dataset, graph, cluster)
    inputs = {"graph": graph.artifact.key} | ({"transpose": reverses.artifact.key} if reverses else {})
    with ArtifactWriter.begin(dataset.path, "transpose", spec.parameters, inputs, cluster.scratch) as writer:
        if writer.is_complete:
            return Graph(Artifact(writer.path))
        matrices, sizes = TypedMatrices.of(graph, reverses, spec), TypedSizes.of(graph, reverses)
        plan = UnionPlan(sizes, spec, writer, matrices)
        for name in ("degree", ENTRIES):
            create_array(writer.path, name, (graph.num_vertices,), "int64", ("vertex",), CHUNK_VERTICES)
        # A block without a record may be complete, or damaged by a crash of the machine: it is made again.
        for task in missing_tasks(plan.blocks, writer):
            shutil.rmtree(writer.path / task.name, ignore_errors=True)
        names = run(plan.phases(), cluster, writer)
        recorded = writer.recorded_of(names)
        facts = {
            "symmetric": spec.is_symmetric,
            "weighted": False,
            "block_rows": list(plan.bounds),
            "block_nnz": [recorded[task.name].facts["nnz"] for task in plan.blocks.tasks],
            "entries": sum(recorded[task.name].facts["entries"] for task in plan.entries.tasks),
            "types": [{"name": each.name, "first": each.first, "count": each.count} for each in graph.types],
        }
        facts["nnz"] = sum(facts["block_nnz"])
        return Graph(writer.commit(names, {"vertex": graph.num_vertices}, facts))
