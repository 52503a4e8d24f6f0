"""Scores of pairs that need no training: common neighbors, Adamic-Adar, resource allocation.

Neighbors of a vertex are the vertices that an edge of the message graph connects it with, in either direction; loops
and weights do not count. Of the common neighbors w of both ends of a pair, with d(w) neighbors of their own:

* common neighbors: their number (Newman, Phys. Rev. E 64, 2001);
* Adamic-Adar: the sum of 1 / log d(w) (Adamic, Adar, Social Networks 25(3), 2003);
* resource allocation: the sum of 1 / d(w) (Zhou, Lü, Zhang, Eur. Phys. J. B 71(4), 2009).

A common neighbor of a vertex with itself may have no other neighbors; its terms of the last two are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.mapped_vectors import map_vector, write_vector
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import WRITING_BYTES
from gnnloom.pipeline.tasks.phase import Needs, Phase, Task, run
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.links import BASELINES, OWN_NEGATIVES, baseline_path
from gnnloom.storage.artifacts.typed.mapped_graph import map_pattern, map_reverse_pattern
from gnnloom.storage.artifacts.typed.reverses import reverses_of
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.artifacts.whole_graph import map_whole_graph
from gnnloom.storage.format.array_record import ArrayRecord
from gnnloom.storage.format.arrays import ArrayReader, create_array, default_chunk_rows, write_rows
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.kernels import count_below, kernel, read_only
from gnnloom.storage.matrix.csr import CSR

#: The phase whose result is not part of the links.
COUNTING: Final = "count neighbors"
#: Splits whose pairs are compared with negatives.
_JUDGED: Final = ("valid", "test")
#: Chunks that a task writes.
CHUNKS_PER_TASK: Final = 4
#: Sources of a relation between two types whose neighbors a task counts.
COUNTED_SOURCES: Final = 1 << 22
#: Bytes of the numbers of a pair.
_SCORES_BYTES: Final = 8 * len(BASELINES)


class NeighborLists(NamedTuple):
    """The neighbors of all vertices, mapped, as kernels take them.

    The vertices of a relation between two types have one numbering: first all sources, then all targets.

    Attributes:
        indptr, indices: rows of the message graph, or of the relation.
        other_indptr, other_indices: rows of its transpose; empty for a symmetric graph, whose rows have all neighbors.
        counts: (num_vertices,) int64 neighbors of each vertex of a directed graph; empty for a symmetric one.
        loop: (num_vertices,) bool, whether each vertex of a symmetric graph is in its own row.
        first_target: number of the first target of a relation between two types; 0 if sources are targets as well.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    other_indptr: NDArray[np.int64]
    other_indices: NDArray[Any]
    counts: NDArray[np.int64]
    loop: NDArray[np.bool_]
    first_target: int

    @property
    def num_vertices(self) -> int:
        """Number of vertices in the numbering of the lists."""
        return self.first_target + len(self.indptr) - 1


@dataclass(frozen=True)
class Neighbors:
    """Location of the neighbors of all vertices; small and picklable.

    Attributes:
        graph: folder of the message graph.
        transpose: folder of its transpose; None for a symmetric graph.
        counts: file with the numbers of neighbors in a directed graph.
        relation: name of the relation whose edges connect neighbors, in a graph with types; ``transpose`` then is the
            folder of the reverses.
        first_target: as for :class:`NeighborLists`.
    """

    graph: Path
    transpose: Path | None
    counts: Path
    relation: str = ""
    first_target: int = 0

    def open(self, *, counted: bool = True) -> NeighborLists:
        """Map the neighbors; the first call of all processes makes the uncompressed copies of the graphs.

        Args:
            counted: the numbers of neighbors exist.

        Raises:
            BudgetError, InputError: the copies cannot be made.
            DamagedWorkError: the file with the numbers of neighbors is damaged.
        """
        matrix, nothing = map_matrix(self.graph, self.relation), read_only(np.empty(0, np.int64))
        loop = read_only(np.empty(0, np.bool_))
        if self.transpose is None:
            other = nothing, read_only(np.empty(0, matrix.indices.dtype))
            loop = map_whole_graph(Graph(Artifact(self.graph))).loop
        else:
            reversed_matrix = map_transpose(self.transpose, self.relation)
            other = reversed_matrix.indptr, reversed_matrix.indices
        count = map_vector(self.counts, np.int64) if self.transpose is not None and counted else nothing
        return NeighborLists(matrix.indptr, matrix.indices, *other, read_only(count), loop, self.first_target)


def map_matrix(graph: Path, relation: str) -> CSR:
    """Map the pattern of a graph, or of a relation of a graph with types, by the folder of the graph artifact."""
    artifact = Artifact(graph)
    return map_pattern(TypedGraph(artifact), relation) if relation else map_whole_graph(Graph(artifact)).matrix


def map_transpose(transpose: Path, relation: str) -> CSR:
    """Map the transpose of a matrix of :func:`map_matrix`, by the folder of its artifact."""
    artifact = Artifact(transpose)
    if relation:
        return map_reverse_pattern(reverses_of(artifact), relation)
    return map_whole_graph(Graph(artifact)).matrix


@dataclass(frozen=True)
class CountNeighborsTask(Task):
    """Counts the neighbors of rows ``start`` to ``stop`` of a directed graph."""

    neighbors: Neighbors
    start: int
    stop: int
    counts: Shuffle
    lane: Lane


def count_neighbors(task: CountNeighborsTask) -> int:
    """Count the neighbors of some vertices; returns the number of vertices."""
    with task.writer.task(task.name) as output, task.counts.routed(output, task.lane) as out:
        lists = task.neighbors.open(counted=False)
        step = task.writer.scratch.step_entries
        for start in range(task.start, task.stop, step):
            found = np.empty(min(step, task.stop - start), np.int64)
            _count(start, lists, found)
            out.add(Index.of_offsets(np.array([0, len(found)], np.int64)), {"count": found})
    return task.stop - task.start


@dataclass(frozen=True)
class BaselineTask(Task):
    """Scores rows ``start`` to ``stop`` of an array of pairs or of negatives.

    Attributes:
        path: of the array that gets the scores.
        pairs: pairs, whose rows are scored; or, if there are ``others``, the pairs that these are for.
        others: vertices that replace an end of each pair.
        replaces: which end, 0 for the source.
    """

    path: str
    neighbors: Neighbors
    pairs: ArrayRecord
    others: ArrayRecord | None
    replaces: int
    start: int
    stop: int


def write_baseline(task: BaselineTask) -> int:
    """Write the scores of some pairs; returns their number."""
    with task.writer.task(task.name) as output:
        root, lists = task.writer.path, task.neighbors.open()
        pairs = ArrayReader(root, task.pairs).read(task.start, task.stop)
        shape: tuple[int, ...] = (len(pairs), len(BASELINES))
        if task.others is not None:
            others = ArrayReader(root, task.others).read(task.start, task.stop)
            shape = (*others.shape, len(BASELINES))
            pairs = np.repeat(pairs, others.shape[1], axis=0)
            pairs[:, task.replaces] = others.reshape(-1)
        source, target = pairs[:, 0], pairs[:, 1]
        found = np.zeros((len(source), len(BASELINES)), np.float64)
        _score(np.ascontiguousarray(source), np.ascontiguousarray(target), lists, found)
        output.add(write_rows(root, task.path, task.start, found.reshape(shape)))
    return len(source)


@dataclass(frozen=True, eq=False)
class BaselinePlan:
    """The phases that score the pairs and negatives of the splits that have negatives.

    Attributes:
        writer: of the links.
        neighbors: of all vertices.
        sizes: of the message graph.
        arrays: of pairs, pools and negatives, by path; they need not be published.
    """

    writer: ArtifactWriter
    neighbors: Neighbors
    sizes: GraphSizes
    arrays: Mapping[str, ArrayRecord]

    @classmethod
    def of(
        cls,
        writer: ArtifactWriter,
        message: Path,
        transpose: Path | None,
        sizes: GraphSizes,
        arrays: Any,
        relation: str = "",
        first_target: int = 0,
    ) -> BaselinePlan:
        """Plan for a message graph and, if it is directed, its transpose; for the others see :class:`Neighbors`."""
        where = message, transpose, writer.work / "neighbors", relation, first_target
        return cls(writer, Neighbors(*where), sizes, arrays)

    @property
    def scored(self) -> list[ArrayRecord]:
        """The arrays that are scored: of splits with negatives."""
        found = []
        for split in _JUDGED:
            others = [
                self.arrays[name]
                for name in (f"{split}/pool", *(f"{split}/{kind}" for kind in OWN_NEGATIVES))
                if name in self.arrays
            ]
            found += [self.arrays[f"{split}/pair"], *others] if others else []
        return found

    @property
    def _counted(self) -> list[tuple[int, int]]:
        """Vertices whose neighbors a task counts, and their entries, about: some sources, or the rows of a block."""
        sources = self.neighbors.first_target
        steps = [min(COUNTED_SOURCES, sources - start) for start in range(0, sources, COUNTED_SOURCES)]
        entries = [self.sizes.nnz * step // sources for step in steps]
        blocks = zip(self.sizes.block_rows, self.sizes.block_nnz, strict=True)
        return [*zip(steps, entries, strict=True), *blocks]

    def counting(self) -> tuple[Phase, ShufflePlan]:
        """The phase that counts neighbors in a directed graph, and where it leaves the counts."""
        shuffle = Shuffle("neighbors", 1, (Column("count", "int64"),), 1)
        plan = ShufflePlan.unmerged(self.writer, shuffle, len(self._counted))
        tasks, first = [], 0
        for number, (rows, nnz) in enumerate(self._counted):
            held = 8 * min(rows, self.writer.scratch.step_entries) + WRITING_BYTES
            needs = Needs(2 * self.sizes.entry_bytes * nnz, 8 * rows, memory=held)
            how = self.neighbors, first, first + rows, shuffle, plan.lane(number)
            tasks.append(CountNeighborsTask(self.writer, f"neighbors/{number:05d}", needs, *how))
            first += rows
        return Phase(COUNTING, count_neighbors, tasks, "vertices", files=(plan.files,)), plan

    def scoring(self) -> Phase:
        """The phase that scores."""
        tasks = []
        for record in self.scored:
            split, _, kind = record.path.partition("/")
            path, shape = baseline_path(record.path), self._shape(record)
            pairs, others = record, None
            if kind in OWN_NEGATIVES:
                pairs, others = self.arrays[f"{split}/pair"], record
            step = CHUNKS_PER_TASK * default_chunk_rows(shape, np.dtype(np.float64))
            for number, start in enumerate(range(0, max(1, shape[0]), step)):
                stop = min(start + step, shape[0])
                scored = (stop - start) * math.prod(shape[1:-1])
                read, written = 24 * scored, _SCORES_BYTES * scored
                needs = Needs(read, written, memory=2 * read + 2 * written + WRITING_BYTES)
                how = (
                    path,
                    self.neighbors,
                    _part(pairs, start, stop),
                    None if others is None else _part(others, start, stop),
                    OWN_NEGATIVES.get(kind, 0),
                )
                tasks.append(BaselineTask(self.writer, f"{path}/{number:05d}", needs, *how, start, stop))
        return Phase("baselines", write_baseline, tasks, "pairs", makes_arrays=True)

    def _shape(self, record: ArrayRecord) -> tuple[int, ...]:
        pairs = record.shape if _has_own(record) else record.shape[:1]
        return (*pairs, len(BASELINES))

    def phases(self) -> list[Phase]:
        """All phases; none if nothing is scored."""
        if not self.scored:
            return []
        counting = [] if self.sizes.symmetric else [self.counting()[0]]
        return [*counting, self.scoring()]

    def run(self, cluster: Cluster) -> list[str]:
        """Score everything, as far as no earlier command has; returns the names of the tasks that make arrays."""
        scoring = self.scoring()
        copies = self.prepare(cluster)
        for record in self.scored:
            self._create(record)
        names = run([scoring], cluster, self.writer)
        del copies
        return names

    def prepare(self, cluster: Cluster) -> NeighborLists:
        """Make what tasks map, and count the neighbors in a directed graph; both stay as long as the result does."""
        # Here, before the tasks: the first use of the uncompressed copies makes them, and would keep workers waiting.
        copies = self.neighbors.open(counted=False)
        if not self.sizes.symmetric and not self.neighbors.counts.exists():
            counting, plan = self.counting()
            run([counting], cluster, self.writer)
            with OpenFiles(self.writer.work) as files:
                rows, total = plan.shuffle.rows(self.writer.work, files), sum(each for each, _ in self._counted)
                write_vector(self.neighbors.counts, rows.numbered(range(total), "count"))
            plan.shuffle.remove(self.writer.work)
        return copies

    def _create(self, record: ArrayRecord) -> None:
        """Create the array of scores, which several tasks write."""
        path, dims = baseline_path(record.path), record.dims if _has_own(record) else record.dims[:1]
        create_array(self.writer.path, path, self._shape(record), "float64", (*dims, "baseline"))


def _has_own(record: ArrayRecord) -> bool:
    """Whether an array has negatives of each pair."""
    return record.path.partition("/")[2] in OWN_NEGATIVES


def copied_bytes(sizes: GraphSizes) -> int:
    """Bytes of the uncompressed copies of a message graph and, if it is directed, its transpose, at most."""
    # Of a row, its pointer and whether it has a loop.
    matrix = 9 * sizes.num_vertices + 8 + sizes.entry_bytes * sizes.nnz
    return matrix if sizes.symmetric else 2 * matrix


def _part(record: ArrayRecord, start: int, stop: int) -> ArrayRecord:
    """The record of an array with the pieces that some of its rows are in."""
    pieces = tuple(piece for piece in record.pieces if piece.start < stop and piece.stop > start)
    return ArrayRecord(record.path, record.shape, record.dtype, record.dims, pieces)


@kernel
def entries_of(indptr: NDArray[np.int64], row: int) -> tuple[int, int]:
    """First and last (exclusive) position of a row's entries; none of a row that a matrix does not have."""
    return (indptr[row], indptr[row + 1]) if 0 <= row < len(indptr) - 1 else (0, 0)


@kernel
def near(lists: NeighborLists, vertex: int) -> tuple[int, int, int, int]:
    """First and last (exclusive) position of a vertex's entries in both matrices, as :func:`next_entry` takes them."""
    at, end = entries_of(lists.indptr, vertex - lists.first_target)
    other, other_end = entries_of(lists.other_indptr, vertex)
    return at, end, other, other_end


@kernel
def num_neighbors(lists: NeighborLists, vertex: int) -> int:
    """Neighbors of a vertex."""
    if len(lists.counts):
        return int(lists.counts[vertex])
    return int(lists.indptr[vertex + 1] - lists.indptr[vertex] - lists.loop[vertex])


@kernel
def next_entry(lists: NeighborLists, at: int, end: int, other: int, other_end: int) -> tuple[int, int, int]:
    """The smallest id of a range of each matrix, and the positions after it; one of the ranges is not empty."""
    indices, other_indices, first = lists.indices, lists.other_indices, lists.first_target
    if other == other_end or (at < end and indices[at] <= first + other_indices[other]):
        vertex = int(indices[at])
    else:
        vertex = first + int(other_indices[other])
    # Parallel edges are one.
    while at < end and indices[at] == vertex:
        at += 1
    while other < other_end and first + other_indices[other] == vertex:
        other += 1
    return vertex, at, other


@kernel
def _count(first: int, lists: NeighborLists, out: NDArray[np.int64]) -> None:
    """Count the different vertices in a row of a matrix and of its transpose, without the row's own."""
    for k in range(len(out)):
        row, count = first + k, 0
        at, end, other, other_end = near(lists, row)
        while at < end or other < other_end:
            vertex, at, other = next_entry(lists, at, end, other, other_end)
            count += vertex != row
        out[k] = count


@kernel
def _score(
    source: NDArray[np.int64], target: NDArray[np.int64], lists: NeighborLists, out: NDArray[np.float64]
) -> None:
    """Score pairs of a graph without types.

    Args:
        source, target: (num_pairs,) int64.
        out: (num_pairs, 3), of zeros.
    """
    indices, other_indices = lists.indices, lists.other_indices
    for k in range(len(source)):
        at, end, other, other_end = near(lists, source[k])
        low, high, other_low, other_high = near(lists, target[k])
        if high - low + other_high - other_low < end - at + other_end - other:
            at, end, low, high = low, high, at, end
            other, other_end, other_low, other_high = other_low, other_high, other, other_end
        # The neighbors of the end with fewer neighbors, ascending; each is looked up among the neighbors of the other
        # end.
        while at < end or other < other_end:
            vertex, at, other = next_entry(lists, at, end, other, other_end)
            low += count_below(indices[low:high], vertex)
            other_low += count_below(other_indices[other_low:other_high], vertex)
            is_found = (low < high and indices[low] == vertex) or (
                other_low < other_high and other_indices[other_low] == vertex
            )
            # An end may be in its own row.
            if not is_found or vertex in (source[k], target[k]):
                continue
            degree = num_neighbors(lists, vertex)
            out[k, 0] += 1
            if degree > 1:
                out[k, 1] += 1 / math.log(degree)
                out[k, 2] += 1 / degree
