"""What making shards will need, before it runs: tasks, memory per worker, disk, and time if it is known.

Counts of vertices, nonzeros, halos and tasks are exact: they are in the manifests of the graph and the partition.
Bytes on disk assume that the shards compress like the graph and the vertex data that they are made from.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gnnloom.pipeline.matrix_sort.degrees import TASK_VERTICES
from gnnloom.pipeline.matrix_sort.sort_plan import BLOCK_ENTRIES, BLOCK_ROWS
from gnnloom.pipeline.matrix_sort.transpose import RANGE_EDGES
from gnnloom.pipeline.shards.find_vertices import find_vertices
from gnnloom.pipeline.shards.grid_options import GridOptions
from gnnloom.pipeline.shards.grid_scatter import MAX_RUN_ENTRIES
from gnnloom.pipeline.shards.grid_stage import grid_shards_key
from gnnloom.pipeline.shards.grid_vertex_routing import BUFFER_BYTES, vertex_table
from gnnloom.pipeline.shards.row_routed import SEGMENT_NONZEROS
from gnnloom.pipeline.shards.row_stage import row_shards_key, vertex_ranges
from gnnloom.pipeline.shards.vertex_arrays import VERTEX_ARRAYS
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, working_memory
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.grid_shards import stored_variants
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.arrays import ArrayRecord
from gnnloom.storage.format.artifact import MANIFEST, Artifact

#: Bytes of a nonzero while a segment of rows is renumbered: masks, local columns, and the sort by row.
_SEGMENT_BYTES = 72
#: Bytes of a halo vertex while the halo is found: ids, owners, positions, and what the merge of segments copies.
_HALO_BYTES = 56
#: Bytes of a row of a block while its rows are sorted by part.
_BLOCK_ROW_BYTES = 48
#: Bytes of an entry while it is scattered into cells, and while a cell is sorted.
_SCATTER_BYTES, _SORT_BYTES = 64, 32


@dataclass(frozen=True)
class ShardProjection:
    """What making shards is expected to need.

    Attributes:
        key: key of the shards.
        is_done: the shards exist, so nothing will run.
        tasks: independent tasks, including those of the transpose of a directed graph if it does not exist.
        workers: tasks at a time.
        peak_memory: bytes of the largest worker process, at the most.
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
class _Source:
    """The artifacts that shards are made from."""

    dataset: Dataset
    graph: Graph
    vertices: Vertices | None

    @property
    def matrices(self) -> int:
        """1 for an undirected graph, 2 with the transpose of a directed one."""
        return 1 if self.graph.symmetric else 2

    @cached_property
    def transpose(self) -> Graph | None:
        """The transpose of a directed graph, if it exists already."""
        made = [Artifact(info.path) for info in self.dataset.artifacts("transpose") if info.state == "complete"]
        found = [each for each in made if each.inputs.get("graph") == self.graph.artifact.key]
        return Graph(found[0]) if found else None

    @property
    def transpose_blocks(self) -> int:
        """Row blocks of the transpose of a directed graph; estimated if it has still to be made."""
        if self.graph.symmetric:
            return 0
        if self.transpose is not None:
            return self.transpose.num_blocks
        return max(-(-self.graph.nnz // BLOCK_ENTRIES), -(-self.graph.num_vertices // BLOCK_ROWS))

    @property
    def entry_bytes(self) -> int:
        """Bytes of a nonzero in memory: the column id and, if there is one, the weight."""
        block = self.graph.artifact.records["block/00000/indices"]
        return int(np.dtype(block.dtype).itemsize) + (4 if self.graph.weighted else 0)

    @property
    def vertex_bytes(self) -> int:
        """Bytes of all vertex data in memory."""
        if self.vertices is None:
            return 0
        records = self.vertices.artifact.records
        return sum(_raw_bytes(records[name]) for name in VERTEX_ARRAYS if name in records)

    @property
    def inputs(self) -> dict[str, str]:
        return {"graph": self.graph.artifact.key} | ({"vertices": self.vertices.artifact.key} if self.vertices else {})

    def stored(self) -> tuple[int, int]:
        """Bytes on disk of the graph and of the vertex data."""
        return self.graph.artifact.stored_bytes(), self.vertices.artifact.stored_bytes() if self.vertices else 0

    def compressed(self, matrix_bytes: float, vertex_bytes: float) -> int:
        """Bytes on disk of arrays that compress like those of the graph and of the vertex data."""
        graph, vertices = self.stored()
        raw = sum(_raw_bytes(record) for record in self.graph.artifact.records.values())
        size = matrix_bytes * min(1.0, graph / max(1, raw))
        return int(size + vertex_bytes * min(1.0, vertices / max(1, self.vertex_bytes)))


def _raw_bytes(record: ArrayRecord) -> int:
    return math.prod(record.shape) * np.dtype(record.dtype).itemsize


def project_row_shards(
    dataset: Dataset, partition: Partition, workers: int, vertices: Vertices | None = None
) -> ShardProjection:
    """Project the row shards of a partition.

    Raises:
        InputError: the dataset has several vertices artifacts to choose from.
    """
    source = _source(dataset, dataset.graph(partition.artifact.inputs["graph"]), vertices)
    graph, quality, n = source.graph, partition.quality, source.graph.num_vertices
    key = row_shards_key(partition.num_parts, partition.method, {**source.inputs, "partition": partition.artifact.key})
    # The third pass looks up every row that is sent; the number is the connectivity cut.
    sent = sum(quality["volume_per_part"]) + sum(quality.get("volume_backward_per_part", ()))
    nonzeros = graph.nnz * source.matrices
    ranges = _num_ranges(source)
    tasks = graph.num_blocks + source.transpose_blocks + _transpose_tasks(source) + ranges + 2 * partition.num_parts
    output = nonzeros * source.entry_bytes + n * 8 * (1 + 2 * source.matrices) + 12 * sent
    spill = nonzeros * source.entry_bytes + 16 * n * source.matrices + source.vertex_bytes + 4 * n + 16 * sent
    return _projection(
        source,
        "row",
        key,
        tasks,
        workers,
        peak=_row_peak(source, partition),
        spill=spill,
        output=source.compressed(output, source.vertex_bytes),
    )


def _row_peak(source: _Source, partition: Partition) -> int:
    """Bytes of the largest task: one that routes a block, routes vertex data, or writes a rank."""
    graph, quality, n = source.graph, partition.quality, source.graph.num_vertices
    rows = _most_rows(graph)
    block = max(graph.block_nnz, default=0)
    halos = quality.get("receive_volume_per_part", quality["volume_per_part"])
    loads, owned = quality["load_per_part"], quality["vertices_per_part"]
    rank: int = max(
        8 * vertices
        + _HALO_BYTES * halo
        + min(load, SEGMENT_NONZEROS) * _SEGMENT_BYTES
        # The rows of a rank in one block are read at once.
        + min(load, block) * source.entry_bytes
        for vertices, halo, load in zip(owned, halos, loads, strict=True)
    )
    route = 2 * block * source.entry_bytes + rows * _BLOCK_ROW_BYTES
    vertex_rows = 2 * source.vertex_bytes // max(1, _num_ranges(source))
    # Parts are mapped from a file, whose pages count as the worker's own.
    return 4 * n + max(rank, route, vertex_rows)


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
    source, n = _source(dataset, graph, vertices), graph.num_vertices
    parts = (partition.num_parts, partition.method) if partition else ()
    inputs = source.inputs | ({"partition": partition.artifact.key} if partition else {})
    stored = set(stored_variants(symmetric=graph.symmetric, double=options.permutation == "double").values())
    variants, of_transpose = len(stored), sum(name.endswith("transposed") for name in stored)
    orders = 2 if options.permutation == "double" else 1
    data = source.vertices.artifact if source.vertices else None
    table = vertex_table(graph, data, with_ids=options.permutation == "partition")
    rows, columns = options.grid
    row_bytes = sum(map(table.row_bytes, table.types))
    blocks = (variants - of_transpose) * graph.num_blocks + of_transpose * source.transpose_blocks
    tasks = blocks + variants * rows * columns + orders * (table.num_ranges + rows) + _transpose_tasks(source)
    weight = 4 if graph.weighted else 0
    index = 4 if n // columns < 1 << 31 else 8
    working = working_memory(memory)
    heaviest = max(graph.block_nnz, default=0)
    cell = -(-graph.nnz // (rows * columns))
    peak = max(
        min(MAX_RUN_ENTRIES, heaviest, working // _SCATTER_BYTES) * _SCATTER_BYTES + 8 * _most_rows(graph),
        min(cell, working // _SORT_BYTES) * _SORT_BYTES + 16 * (n // rows),
        3 * min(BUFFER_BYTES, n * row_bytes),
    )
    return _projection(
        source,
        "grid",
        grid_shards_key(options, inputs, *parts),
        tasks,
        workers,
        peak=peak + (8 * n if partition else 0),
        spill=variants * graph.nnz * (8 + weight) + orders * n * (row_bytes + 8),
        output=source.compressed(
            variants * (graph.nnz * (index + weight) + 8 * n * columns) + 8 * orders * n, orders * source.vertex_bytes
        ),
    )


def _most_rows(graph: Graph) -> int:
    """Rows of the largest block."""
    return int(np.diff(graph.block_rows).max(initial=0))


def _source(dataset: Dataset, graph: Graph, vertices: Vertices | None) -> _Source:
    return _Source(dataset, graph, vertices or find_vertices(dataset, graph.artifact.key))


def _num_ranges(source: _Source) -> int:
    """Tasks that route vertex data."""
    if source.vertices is None:
        return 0
    artifact = source.vertices.artifact
    readers = {name: artifact.array(name) for name in VERTEX_ARRAYS if name in artifact}
    return len(vertex_ranges(source.graph.num_vertices, readers)) - 1


def _transpose_tasks(source: _Source) -> int:
    """Tasks that make the transpose of a directed graph."""
    if source.graph.symmetric or source.transpose is not None:
        return 0
    scatter = sum(-(-nonzeros // RANGE_EDGES) for nonzeros in source.graph.block_nnz)
    return scatter + source.transpose_blocks + -(-source.graph.num_vertices // TASK_VERTICES)


def _projection(
    source: _Source, layout: str, key: str, tasks: int, workers: int, *, peak: int, spill: int, output: int
) -> ShardProjection:
    dataset = source.dataset
    is_done = (dataset.path / "shards" / key / MANIFEST).exists()
    seconds, known = _known_seconds(source, layout, workers)
    return ShardProjection(
        dataset=dataset.name,
        layout=layout,
        key=key,
        is_done=is_done,
        tasks=0 if is_done else tasks,
        workers=workers,
        peak_memory=BASE_MEMORY + peak,
        read_bytes=sum(source.stored()),
        spill_bytes=0 if is_done else spill,
        output_bytes=0 if is_done else output,
        disk_free_bytes=shutil.disk_usage(dataset.path).free,
        seconds=0.0 if is_done else seconds,
        seconds_from=known,
    )


def _known_seconds(source: _Source, layout: str, workers: int) -> tuple[float | None, str | None]:
    """The time that these workers would have needed for shards that were made before, and the key of those."""
    infos = source.dataset.artifacts("shards")
    for made in _complete(infos, layout):
        if made.inputs.get("graph") == source.graph.artifact.key:
            return round(sum(made.measured["task_seconds"].values()) / max(1, workers), 2), made.key
    return None, None


def _complete(infos: Sequence[Any], layout: str) -> list[Artifact]:
    return [
        Artifact(info.path) for info in infos if info.state == "complete" and info.parameters.get("layout") == layout
    ]
