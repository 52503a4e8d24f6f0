"""What making shards will need, before it runs: tasks, memory per worker, disk, and time if it is known.

Counts of vertices, nonzeros, halos and tasks are exact if the graph and the partition exist, because these are in their
manifests. Otherwise :func:`row_needs` and :func:`grid_needs` take estimated sizes.
Bytes on disk assume that the shards compress like the graph and the vertex data that they are made from.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from typing import Any

from gnnloom.pipeline.external_sort.lanes import num_shared_files
from gnnloom.pipeline.external_sort.merge_levels import count_merges, merge_levels
from gnnloom.pipeline.matrix_sort.degrees import TASK_VERTICES
from gnnloom.pipeline.matrix_sort.transpose import RANGE_EDGES
from gnnloom.pipeline.shards.find_vertices import find_vertices
from gnnloom.pipeline.shards.grid.grid_merge import most_runs
from gnnloom.pipeline.shards.grid.grid_options import GridOptions
from gnnloom.pipeline.shards.grid.grid_scatter import SCATTER_BYTES, run_entries
from gnnloom.pipeline.shards.grid.grid_stage import grid_shards_key
from gnnloom.pipeline.shards.grid.grid_vertex_plan import VertexPlan
from gnnloom.pipeline.shards.grid.grid_vertex_routing import vertex_types
from gnnloom.pipeline.shards.rows.row_halo import halo_shuffle
from gnnloom.pipeline.shards.rows.row_routed import SEGMENT_NONZEROS
from gnnloom.pipeline.shards.rows.row_routing import row_shuffle, vertex_shuffle
from gnnloom.pipeline.shards.rows.row_stage import routed_bytes, row_shards_key, vertex_ranges
from gnnloom.pipeline.shards.sizes import GraphSizes, PartSizes, VertexSizes
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, working_memory
from gnnloom.pipeline.tasks.phase_counts import PhaseCount, total_tasks
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.grid_variants import stored_variants
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.artifact import MANIFEST, Artifact

#: Bytes of a nonzero while a segment of rows is renumbered: masks, local columns, and the sort by row.
_SEGMENT_BYTES = 72
#: Bytes of a halo vertex while the halo is found: ids, owners, positions, and what the merge of segments copies.
_HALO_BYTES = 56
#: Bytes of a vertex while its rank is reordered: its order, local number, nonzeros, and where they begin and end.
_REORDER_BYTES = 160
#: Bytes of a row of a block while its rows are sorted by part.
_BLOCK_ROW_BYTES = 48
#: Bytes of an entry while a cell is sorted.
_SORT_BYTES = 32


@dataclass(frozen=True)
class ShardProjection:
    """What making shards is expected to need.

    Attributes:
        key: key of the shards.
        is_done: the shards exist, so nothing will run.
        tasks: independent tasks, including those of the transpose of a directed graph if it does not exist.
        workers: tasks at a time.
        peak_memory: bytes of the largest worker process, at most.
        read_bytes: stored graph and vertex data.
        spill_bytes: temporary files, at their peak.
        output_bytes: the shards on disk, an estimate.
        disk_free_bytes: bytes free on the disk.
        seconds: wall time, from shards of the same layout and graph that were made before; None if there are none.
        seconds_from: key of those shards.
    """

    dataset: str
    layout: str
    key: str
    is_done: bool
    tasks: int
    workers: int
    peak_memory: int
    read_bytes: int
    spill_bytes: int
    output_bytes: int
    disk_free_bytes: int
    seconds: float | None
    seconds_from: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ShardNeeds:
    """What making shards takes, whether or not their inputs exist yet; see :class:`ShardProjection`."""

    tasks: int
    peak_memory: int
    spill_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class ShardSource:
    """The sizes of what shards are made from.

    Attributes:
        stored_transpose: row blocks of the transpose of a directed graph, if that exists already.
    """

    graph: GraphSizes
    vertices: VertexSizes | None
    stored_transpose: int | None = None

    @property
    def matrices(self) -> int:
        """1 for an undirected graph, 2 with the transpose of a directed one."""
        return 1 if self.graph.symmetric else 2

    @property
    def transpose_blocks(self) -> int:
        """Row blocks of the transpose of a directed graph; estimated if it does not exist yet."""
        if self.graph.symmetric:
            return 0
        return self.graph.transpose_blocks if self.stored_transpose is None else self.stored_transpose

    @property
    def transpose_tasks(self) -> int:
        """Tasks that make the transpose of a directed graph."""
        if self.graph.symmetric or self.stored_transpose is not None:
            return 0
        scatter = sum(-(-nonzeros // RANGE_EDGES) for nonzeros in self.graph.block_nnz)
        return scatter + self.transpose_blocks + -(-self.graph.num_vertices // TASK_VERTICES)

    @property
    def vertex_bytes(self) -> int:
        """Bytes of all vertex data in memory."""
        return self.vertices.raw_bytes if self.vertices else 0

    @property
    def vertex_tasks(self) -> int:
        """Tasks that route vertex data to row shards."""
        if self.vertices is None:
            return 0
        return len(vertex_ranges(self.graph.num_vertices, self.vertices.chunk_rows)) - 1

    def compressed(self, matrix_bytes: float, vertex_bytes: float) -> int:
        """Bytes on disk of arrays that compress like those of the graph and of the vertex data."""
        size = matrix_bytes * min(1.0, self.graph.stored_bytes / max(1, self.graph.raw_bytes))
        stored = self.vertices.stored_bytes if self.vertices else 0
        return int(size + vertex_bytes * min(1.0, stored / max(1, self.vertex_bytes)))


@dataclass(frozen=True)
class _Inputs:
    """The artifacts that shards are made from."""

    dataset: Dataset
    graph: Graph
    vertices: Vertices | None

    @property
    def keys(self) -> dict[str, str]:
        return {"graph": self.graph.artifact.key} | ({"vertices": self.vertices.artifact.key} if self.vertices else {})

    @property
    def sizes(self) -> ShardSource:
        transpose = find_transpose(self.dataset, self.graph)
        vertices = VertexSizes.of(self.vertices) if self.vertices else None
        return ShardSource(GraphSizes.of(self.graph), vertices, transpose.num_blocks if transpose else None)


def find_transpose(dataset: Dataset, graph: Graph) -> Graph | None:
    """The transpose of a stored graph, if it exists already."""
    made = [Artifact(info.path) for info in dataset.artifacts("transpose") if info.state == "complete"]
    return next((Graph(each) for each in made if each.inputs.get("graph") == graph.artifact.key), None)


def project_row_shards(
    dataset: Dataset, partition: Partition, workers: int, vertices: Vertices | None = None, reorder: str = "none"
) -> ShardProjection:
    """Project the row shards of a partition.

    Args:
        reorder: order of a rank's rows.

    Raises:
        InputError: the dataset has several vertices artifacts to choose from.
    """
    inputs = _find_inputs(dataset, dataset.graph(partition.artifact.inputs["graph"]), vertices)
    keys = {**inputs.keys, "partition": partition.artifact.key}
    key = row_shards_key(partition.num_parts, partition.method, keys, reorder)
    needs = row_needs(inputs.sizes, PartSizes.of(partition), workers if reorder != "none" else 0)
    return _projection(inputs, "row", key, needs, workers)


def row_needs(source: ShardSource, parts: PartSizes, reordering: int = 0) -> ShardNeeds:
    """What making the row shards of these parts takes.

    Args:
        reordering: ranks whose rows are reordered at a time.
    """
    graph, n = source.graph, source.graph.num_vertices
    # The third pass looks up every row that is sent; their number is the connectivity cut.
    sent = sum(parts.sent) + sum(parts.sent_back)
    nonzeros = graph.nnz * source.matrices
    output = nonzeros * graph.entry_bytes + n * 8 * (1 + 2 * source.matrices) + 12 * sent
    phases = row_counts(source, parts)
    # Files stay until those that they are merged into are complete.
    copies = 2 if any(phase.phase == "merge rows" for phase in phases) else 1
    return ShardNeeds(
        tasks=total_tasks(phases) + source.transpose_tasks,
        peak_memory=BASE_MEMORY + _row_peak(source, parts) + (_reordered_peak(parts) if reordering else 0),
        spill_bytes=copies * (nonzeros * graph.entry_bytes + 16 * n * source.matrices + source.vertex_bytes)
        + 4 * n
        + 16 * sent
        + reordering * max(parts.nonzeros, default=0) * graph.entry_bytes,
        output_bytes=source.compressed(output, source.vertex_bytes),
    )


def row_counts(source: ShardSource, parts: PartSizes) -> list[PhaseCount]:
    """What making the row shards of these parts will do, after the transpose of a directed graph was made."""
    graph, ranks, matrices = source.graph, len(parts.vertices), source.matrices
    entry, blocks, vertices = graph.entry_bytes, graph.num_blocks + source.transpose_blocks, source.vertex_bytes
    rows = routed_bytes(graph.num_vertices, graph.nnz, entry)
    largest = routed_bytes(max(graph.block_rows, default=0), max(graph.block_nnz, default=0), entry)
    # Every file says where the rows of each part begin, in three columns or more.
    # A run says where the rows of each part begin.
    phases = [
        PhaseCount("route rows", blocks, 0, 0, 1, matrices * rows, matrices * rows + blocks * 8 * (ranks + 1), largest)
    ]
    files = 0
    for kind, tasks in (("forward", graph.num_blocks), ("backward", source.transpose_blocks)):
        if tasks:
            shuffle = row_shuffle(kind, ranks, graph.num_vertices, weighted=graph.weighted)
            phases += shuffle.merge_counts("merge rows", tasks, tasks, tasks * ranks, rows)
            files += shuffle.reader_files(tasks, tasks, rows)
    if source.vertices is not None:
        tasks, each = source.vertex_tasks, -(-vertices // source.vertex_tasks)
        shuffle = vertex_shuffle(source.vertices.types, ranks)
        phases.append(PhaseCount("route vertices", tasks, 0, 0, 1, vertices, vertices, each))
        phases += shuffle.merge_counts("merge vertices", tasks, tasks, tasks * ranks, vertices)
        files += shuffle.reader_files(tasks, tasks, vertices)
    # Ids first, then the rows twice: local numbers are known when the halo is complete.
    read = 3 * matrices * rows + vertices
    heaviest = 3 * matrices * routed_bytes(max(parts.vertices, default=0), max(parts.nonzeros, default=0), entry)
    rank_bytes = heaviest + -(-vertices // max(1, ranks))
    sent = sum(parts.sent) + sum(parts.sent_back)
    output = matrices * (graph.nnz * entry + 8 * graph.num_vertices) + vertices + 8 * sent
    phases.append(PhaseCount("write ranks", ranks, ranks * files, files, 3, read, output, rank_bytes))
    files = collected = 0
    for kind, of_kind in (("forward", sum(parts.sent)), ("backward", sum(parts.sent_back)))[:matrices]:
        # Two numbers and a key for each pair of ranks.
        halo, pairs = halo_shuffle(kind, ranks), min(of_kind, ranks**2)
        num_bytes = 8 * of_kind + 24 * pairs
        phases += halo.merge_counts("merge halos", ranks, ranks, pairs, num_bytes)
        files, collected = files + halo.reader_files(ranks, ranks, num_bytes), collected + num_bytes
    share = -(-collected // ranks)
    phases.append(PhaseCount("send lists", ranks, ranks * files, files, 2, collected, 12 * sent, share))
    return phases


def _reordered_peak(parts: PartSizes) -> int:
    """Bytes of the order of a rank's rows, and of one segment of its entries."""
    return _REORDER_BYTES * max(parts.vertices, default=0) + _SEGMENT_BYTES * SEGMENT_NONZEROS


def _row_peak(source: ShardSource, parts: PartSizes) -> int:
    """Bytes of the largest task: one that routes a block, routes vertex data, or writes a rank."""
    graph = source.graph
    block = max(graph.block_nnz, default=0)
    rank = max(
        8 * vertices
        + _HALO_BYTES * halo
        # Rows of several blocks are joined into a segment.
        + min(load, SEGMENT_NONZEROS) * (_SEGMENT_BYTES + graph.entry_bytes)
        # The rows of a rank in one block are read at once.
        + min(load, block) * graph.entry_bytes
        for vertices, halo, load in zip(parts.vertices, parts.received, parts.nonzeros, strict=True)
    )
    route = 2 * block * graph.entry_bytes + max(graph.block_rows, default=0) * _BLOCK_ROW_BYTES
    vertex_rows = 2 * source.vertex_bytes // max(1, source.vertex_tasks)
    # Parts are mapped from a file, whose pages count as the worker's own.
    return 4 * graph.num_vertices + max(rank, route, vertex_rows)


def project_grid_shards(
    dataset: Dataset,
    graph: Graph,
    options: GridOptions,
    partition: Partition | None,
    workers: int,
    memory: int,
    vertices: Vertices | None = None,
) -> ShardProjection:
    """Project the grid shards of a graph.

    Args:
        partition: for permutation ``partition``.
        memory: bytes per worker, which limit the buffers.

    Raises:
        InputError: the dataset has several vertices artifacts to choose from.
        BudgetError: a worker's memory is too small for any buffer.
    """
    inputs = _find_inputs(dataset, graph, vertices)
    parts = (partition.num_parts, partition.method) if partition else ()
    keys = inputs.keys | ({"partition": partition.artifact.key} if partition else {})
    needs = grid_needs(inputs.sizes, options, memory)
    return _projection(inputs, "grid", grid_shards_key(options, keys, *parts), needs, workers)


def grid_needs(source: ShardSource, options: GridOptions, memory: int) -> ShardNeeds:
    """What making grid shards takes.

    Args:
        memory: bytes per worker, which limit the buffers.

    Raises:
        BudgetError: a worker's memory is too small for any buffer.
    """
    graph, n, columns = source.graph, source.graph.num_vertices, options.grid[1]
    is_double, follows_parts = options.permutation == "double", options.permutation == "partition"
    stored = set(stored_variants(symmetric=graph.symmetric, double=is_double).values())
    variants, orders = len(stored), 2 if is_double else 1
    plan = grid_vertex_plan(source, options, memory)
    weight = 4 if graph.weighted else 0
    index = 4 if n // columns < 1 << 31 else 8
    output = variants * (graph.nnz * (index + weight) + 8 * n * columns) + 8 * orders * n
    peak = max(_grid_peak(graph, options, memory), plan.peak_memory())
    phases = grid_counts(source, options, memory)
    is_merged = any(phase.phase == "merge cells" for phase in phases)
    # A level is removed when the next one is complete.
    routed = 0 if plan.is_identity else min(2, len(plan.levels)) * orders * n * plan.routed_row_bytes
    return ShardNeeds(
        tasks=total_tasks(phases) + source.transpose_tasks,
        peak_memory=BASE_MEMORY + peak + (8 * n if follows_parts else 0),
        # Runs stay until those that they are merged into are complete.
        spill_bytes=(2 if is_merged else 1) * variants * graph.nnz * (8 + weight) + routed,
        output_bytes=source.compressed(output, orders * source.vertex_bytes),
    )


def grid_counts(source: ShardSource, options: GridOptions, memory: int) -> list[PhaseCount]:
    """What making grid shards will do, after the transpose of a directed graph was made.

    Raises:
        BudgetError: a worker's memory is too small for any buffer.
    """
    graph, (rows, columns) = source.graph, options.grid
    is_double = options.permutation == "double"
    stored = set(stored_variants(symmetric=graph.symmetric, double=is_double).values())
    variants, of_transpose = len(stored), sum(name.endswith("transposed") for name in stored)
    blocks = (variants - of_transpose) * graph.num_blocks + of_transpose * source.transpose_blocks
    cells, key_bytes = variants * rows * columns, 12 if graph.weighted else 8
    heaviest = max(graph.block_nnz, default=0)
    runs = max(1, -(-heaviest // run_entries(memory)))
    stored_bytes, keys = variants * graph.nnz * graph.entry_bytes, variants * graph.nnz * key_bytes
    # Offsets of all cells are in every run; a cell's task reads two of them.
    header = 8 * (rows * columns + 1)
    files = -(-blocks // variants) * runs
    phases = [
        PhaseCount(
            "scatter blocks",
            blocks,
            bytes_read=stored_bytes,
            bytes_written=keys + blocks * runs * header,
            largest_task=heaviest * graph.entry_bytes,
        )
    ]
    arrays = 3 if graph.weighted else 2
    levels = merge_levels(files, most_runs(graph.nnz, rows * columns))
    # Files with the lanes of the level before.
    shared = num_shared_files(-(-blocks // variants))
    for level in levels[1:]:
        count = count_merges(levels, level, rows * columns)
        tasks, opens, sources = variants * count.tasks, variants * count.opens(shared), variants * count.sources
        read = keys + sources * (header // count.spans + 16)
        largest, made = read * count.most_sources // sources, keys + tasks * header
        most = min(count.most_sources, shared)
        phases.append(PhaseCount("merge cells", tasks, opens, most, arrays, read, made, largest))
        shared = num_shared_files(count.tasks)
    read, most = keys + 16 * cells * levels[-1].sources, min(levels[-1].sources, shared)
    phases.append(PhaseCount("write cells", cells, cells * most, most, arrays, read, stored_bytes, -(-read // cells)))
    return [*phases, *grid_vertex_plan(source, options, memory).counts() * (2 if is_double else 1)]


def grid_vertex_plan(source: ShardSource, options: GridOptions, memory: int) -> VertexPlan:
    """How the vertex data of grid shards are routed, for each order.

    Raises:
        BudgetError: a worker's memory is too small for any buffer.
    """
    given = source.vertices.types if source.vertices else {}
    types = vertex_types(given, weighted=source.graph.weighted, with_ids=options.permutation == "partition")
    n, is_identity = source.graph.num_vertices, options.permutation == "none"
    return VertexPlan.of(n, options.grid[0], types, memory, is_identity=is_identity)


def _grid_peak(graph: GraphSizes, options: GridOptions, memory: int) -> int:
    """Bytes of the largest task that scatters a block or sorts a cell."""
    n, (rows, columns) = graph.num_vertices, options.grid
    heaviest, most_rows = (max(of_blocks, default=0) for of_blocks in (graph.block_nnz, graph.block_rows))
    cell = -(-graph.nnz // (rows * columns))
    return max(
        min(heaviest, run_entries(memory)) * SCATTER_BYTES + 8 * most_rows,
        min(cell, working_memory(memory) // _SORT_BYTES) * _SORT_BYTES + 16 * (n // rows),
    )


def _find_inputs(dataset: Dataset, graph: Graph, vertices: Vertices | None) -> _Inputs:
    return _Inputs(dataset, graph, vertices or find_vertices(dataset, graph.artifact.key))


def _projection(inputs: _Inputs, layout: str, key: str, needs: ShardNeeds, workers: int) -> ShardProjection:
    dataset, sizes = inputs.dataset, inputs.sizes
    is_done = (dataset.path / "shards" / key / MANIFEST).exists()
    work, known = known_work(dataset, layout, inputs.graph.artifact.key)
    seconds = None if work is None else round(work / max(1, workers), 2)
    return ShardProjection(
        dataset=dataset.name,
        layout=layout,
        key=key,
        is_done=is_done,
        tasks=0 if is_done else needs.tasks,
        workers=workers,
        peak_memory=needs.peak_memory,
        read_bytes=sizes.graph.stored_bytes + (sizes.vertices.stored_bytes if sizes.vertices else 0),
        spill_bytes=0 if is_done else needs.spill_bytes,
        output_bytes=0 if is_done else needs.output_bytes,
        disk_free_bytes=shutil.disk_usage(dataset.path).free,
        seconds=0.0 if is_done else seconds,
        seconds_from=known,
    )


def known_work(dataset: Dataset, layout: str, graph: str) -> tuple[float | None, str | None]:
    """The processor seconds of shards that were made before, and their key; None if there are none.

    Args:
        layout: ``row`` or ``grid``.
        graph: key of the graph.
    """
    for info in dataset.artifacts("shards"):
        if info.state == "complete" and info.parameters.get("layout") == layout:
            made = Artifact(info.path)
            if made.inputs.get("graph") == graph:
                return sum(made.measured["task_seconds"].values()), made.key
    return None, None
