"""The stage that stores features, labels and the split of a graph's vertices.

Every array is cut into ranges of whole pieces (a piece is a fixed number of chunks). If the source can be read from
anywhere, each range is a task; if not, each array is one. A task reads blocks and writes pieces, so it needs memory for
one piece and one block, whatever the number of vertices. The rows of a table that names their vertices are routed to
these tasks first (:mod:`gnnloom.pipeline.ingest.tables.routing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.archives import prepared_source
from gnnloom.pipeline.ingest.tables.routed_table import RoutedTable, RowCounts
from gnnloom.pipeline.ingest.tables.routing import route_table
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.sources.binary.edge_columns import rebatch
from gnnloom.pipeline.sources.source import KeyedSource, SeparableSource, VertexData, VertexSource
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.pipeline.tasks.repairs import repairing
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.differences import differences, in_words
from gnnloom.storage.errors import ExistsError, FormatError, InputError
from gnnloom.storage.format.arrays import create_array, default_chunk_rows, write_rows
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, TaskRecord, artifact_key
from gnnloom.storage.format.files import JsonObject
from gnnloom.storage.format.vertex_arrays import LABELS, VERTEX_ARRAYS

#: Chunks that are written and digested together.
PIECE_CHUNKS = 4
#: Pieces that one task writes, if tasks share an array.
TASK_PIECES = 16
#: Original ids that are read at a time: 8 MiB.
_ID_BLOCK = 1 << 20


@dataclass(frozen=True)
class VertexArrayTask:
    """Writes rows ``start`` to ``stop`` of one array.

    Attributes:
        piece_rows: rows of a piece.
        compacted: folder of the graph artifact, if the source's rows must be chosen by its original ids.
    """

    writer: ArtifactWriter
    source: VertexSource | RoutedTable
    array: str
    start: int
    stop: int
    piece_rows: int
    compacted: Path | None

    @property
    def name(self) -> str:
        return f"{self.array}/{self.start:012d}"


@repairing
def ingest_vertices(
    dataset: Dataset,
    source: VertexSource,
    cluster: Cluster,
    graph: Graph | None = None,
    *,
    allow_others: bool | None = None,
) -> Vertices:
    """Store features, labels and split for the vertices of the dataset's graph.

    If ingest compacted the ids, row k of the source belongs to the vertex whose original id is k. There are two
    exceptions: a source that is in the order of the stored graph, and ids that were names. Row k then belongs to vertex
    k (of the k-th name).

    Args:
        dataset: dataset of the graph.
        source: the rows.
        cluster: where the tasks run.
        graph: one of several graphs of the dataset; by default, the dataset's only graph.
        allow_others: allow the graph to have other vertex data; readers must then pass a key. By default, if ``graph``
            is given.

    Raises:
        InputError: the number of rows does not match the graph, or something in the source cannot be used; the message
            names file or array, and line or row.
        ExistsError: the dataset has vertex data made from something else, and others are not allowed.
        NotFoundError: the dataset has no graph.
    """
    owner = graph or dataset.graph()
    for array in source.arrays:
        _check_rows(owner, _source_of(source, array))
    if len({*LABELS} & {*source.arrays}) > 1:
        raise InputError("the vertex data has labels (classes) and targets (numbers to predict); give only one of them")
    identity, inputs = source.identity(), {"graph": owner.artifact.key}
    if not (graph is not None if allow_others is None else allow_others):
        _check_others(dataset, inputs["graph"], identity)
    with ArtifactWriter.begin(dataset.path, "vertices", _parameters(identity), inputs, cluster.scratch) as writer:
        if not writer.is_complete:
            _write(writer, prepared_source(writer, source, cluster), owner, cluster)
    return Vertices(Artifact(writer.path))


def vertices_key(identity: JsonObject, graph_key: str) -> str:
    """The key of the artifact that :func:`ingest_vertices` makes or finds.

    Args:
        identity: identity of the source.
        graph_key: key of the graph that the vertices belong to.
    """
    return artifact_key("vertices", _parameters(identity), {"graph": graph_key})


def _parameters(identity: JsonObject) -> dict[str, Any]:
    return {"source": identity}


def _check_rows(graph: Graph, source: VertexData) -> None:
    rows = source.num_vertices()
    if _selects(graph, source):
        last = int(graph.original_id(graph.num_vertices - 1)[0]) if graph.num_vertices else -1
        if rows <= last:
            raise InputError(
                f"the vertex data has {rows:,} rows, but vertex ids of the graph's source go up to {last:,};"
                " row k must belong to the vertex that the source of the edges calls k"
            )
    elif rows != graph.num_vertices:
        raise InputError(
            f"the vertex data has {rows:,} rows, the graph {graph.num_vertices:,} vertices; expected one row per"
            " vertex, or ids of the rows (`--by-id` or `--ids-file`)"
        )


def _selects(graph: Graph, source: VertexData) -> bool:
    return "original_id" in graph.artifact and not source.in_graph_order


def _check_others(dataset: Dataset, graph_key: str, identity: JsonObject) -> None:
    key = vertices_key(identity, graph_key)
    for info in dataset.artifacts("vertices"):
        if info.state == "complete" and info.key != key and info.inputs.get("graph") == graph_key:
            found, new = differences([info.parameters, _parameters(identity)])
            raise ExistsError(
                f"dataset {dataset.name} has vertex data from another source: {info.key} ({in_words(found)}). This"
                f" command stores other data ({in_words(new)}); to keep both, repeat it with `--add`, and choose with"
                " `--vertices KEY` when sharding"
            )


def _write(writer: ArtifactWriter, source: VertexSource, graph: Graph, cluster: Cluster) -> None:
    recorded = writer.recorded()
    widths = {dim: source.num_columns(array) for array in source.arrays for dim in VERTEX_ARRAYS[array].dims}
    sizes = {"vertex": graph.num_vertices, "feature": 0} | widths
    chosen = for_few(cluster, sizes["vertex"] * sum(map(source.num_columns, source.arrays)))
    tasks: list[VertexArrayTask] = []
    for array in source.arrays:
        dims = ("vertex", *VERTEX_ARRAYS[array].dims)
        shape = tuple(sizes[dim] for dim in dims)
        if not any(name.startswith(f"{array}/") for name in recorded):
            # Creating an array deletes its chunks, which is right only if no task has recorded any.
            create_array(writer.path, array, shape, VERTEX_ARRAYS[array].dtype, dims)
        rows = _rows_of(writer, source, array, shape, graph, chosen)
        compacted = isinstance(rows, VertexSource) and _selects(graph, rows)
        tasks += _tasks(writer, rows, array, shape, graph.artifact.path if compacted else None)
    records = run_missing("vertex data", chosen, writer, write_vertex_rows, tasks, "rows")
    of_tables = _table_facts(tasks, records)
    _check_placed(source, graph, of_tables)
    facts = _total_facts(records) | _left_out(graph, source, of_tables)
    writer.commit([task.name for task in tasks], sizes, facts)


def _source_of(source: VertexSource, array: str) -> VertexData:
    """The source of one array: arrays from different files may be in different orders."""
    return source.source_of(array) if isinstance(source, SeparableSource) else source


def _rows_of(
    writer: ArtifactWriter, source: VertexSource, array: str, shape: tuple[int, ...], graph: Graph, cluster: Cluster
) -> VertexSource | RoutedTable:
    """The rows of one array, in the order of the vertices."""
    one = _source_of(source, array)
    if isinstance(one, KeyedSource):
        values = Column("value", VERTEX_ARRAYS[array].dtype.name, shape[1:])
        return route_table(writer, one, array, values, graph, task_rows(array, shape), cluster)
    if isinstance(one, VertexSource):
        return one
    raise InputError(f"{array}: the rows of the source have neither ids nor the order of the vertices")


def _check_placed(source: VertexSource, graph: Graph, of_tables: Mapping[str, Mapping[str, int]]) -> None:
    """Refuse tables without any row of the graph's vertices, or with few if every vertex needs a row."""
    for array, facts in of_tables.items():
        one = _source_of(source, array)
        where = one.location if isinstance(one, KeyedSource) else array
        if not facts["placed"]:
            raise InputError(f"{where}: none of the ids is a vertex of the graph")
        if VERTEX_ARRAYS[array].fill is None and facts["missing"] >= 0:
            first, count = facts["missing"], graph.num_vertices - facts["placed"]
            name = graph.original_name(first, first + 1) if graph.has_names else graph.original_id(first, first + 1)
            raise InputError(f"{where}: {count:,} vertices have no {array}s; the first is {name[0]}")


def _table_facts(tasks: Iterable[VertexArrayTask], records: Iterable[TaskRecord]) -> dict[str, dict[str, int]]:
    """For each array from a table: rows placed, rows left out, and the first vertex without one (-1 if none)."""
    found: dict[str, dict[str, int]] = {}
    for task, record in zip(tasks, records, strict=True):
        if isinstance(task.source, RoutedTable):
            total = found.setdefault(task.array, {"placed": 0, "left_out": task.source.unknown, "missing": -1})
            total["placed"] += record.facts["placed"]
            total["left_out"] += record.facts["left_out"]
            # Tasks are in the order of the vertices.
            if total["missing"] < 0:
                total["missing"] = record.facts["missing"]
    return found


def _left_out(graph: Graph, source: VertexSource, of_tables: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """How many rows belong to vertices that the graph does not have, because they have no edge; empty if none do."""
    by_row = [
        one.num_vertices() - graph.num_vertices
        for one in (_source_of(source, array) for array in source.arrays)
        if _selects(graph, one)
    ]
    most = max([*by_row, *(facts["left_out"] for facts in of_tables.values())], default=0)
    return {"left_out": most} if most else {}


def _piece_rows(array: str, shape: tuple[int, ...]) -> int:
    return PIECE_CHUNKS * default_chunk_rows(shape, VERTEX_ARRAYS[array].dtype)


def task_rows(array: str, shape: tuple[int, ...]) -> int:
    """Rows that one task writes, if tasks share the array.

    Args:
        array: name of the array.
        shape: of the whole array.
    """
    return _piece_rows(array, shape) * TASK_PIECES


def _tasks(
    writer: ArtifactWriter,
    source: VertexSource | RoutedTable,
    array: str,
    shape: tuple[int, ...],
    compacted: Path | None,
) -> Iterator[VertexArrayTask]:
    num_rows, piece_rows = shape[0], _piece_rows(array, shape)
    # Tasks begin at whole pieces, which are whole chunks, so no two tasks write to one chunk.
    is_shared = isinstance(source, RoutedTable) or source.random_access
    step = task_rows(array, shape) if is_shared else max(1, num_rows)
    for start in range(0, max(1, num_rows), step):
        stop = min(start + step, num_rows)
        yield VertexArrayTask(writer, source, array, start, stop, piece_rows, compacted)


def write_vertex_rows(task: VertexArrayTask) -> Done:
    """Write the rows of one task; returns their number.

    Raises:
        InputError: the source has too few rows, or a row cannot be used.
    """
    with task.writer.task(task.name) as output:
        start, counts = task.start, RowCounts()
        for piece in rebatch(_rows(task, counts), task.piece_rows):
            output.add(write_rows(task.writer.path, task.array, start, np.ascontiguousarray(piece)))
            output.facts.update(_add_facts(output.facts, VERTEX_ARRAYS[task.array].facts_of(piece)))
            start += len(piece)
        if isinstance(task.source, RoutedTable):
            output.facts.update(counts.to_facts())
        if start != task.stop:
            raise InputError(
                f"{task.array}: the source ended after {start - task.start:,} rows, expected {task.stop - task.start:,}"
            )
    return Done(task.stop - task.start)


def _rows(task: VertexArrayTask, counts: RowCounts) -> Iterator[NDArray[Any]]:
    if isinstance(task.source, RoutedTable):
        yield from task.source.read(task.array, task.start, task.stop, counts)
        return
    if task.compacted is None or task.start == task.stop:
        yield from task.source.read_rows(task.array, task.start, task.stop)
        return
    graph = Graph(Artifact(task.compacted))
    # A source that reads files from their start checks them as a whole only if all of their rows are read.
    if task.source.random_access:
        row = int(graph.original_id(task.start, task.start + 1)[0])
        end = int(graph.original_id(task.stop - 1, task.stop)[0]) + 1
    else:
        row, end = 0, task.source.num_vertices()
    wanted = _AscendingIds(graph, task.start, task.stop)
    for block in task.source.read_rows(task.array, row, end):
        # Both the rows and the original ids ascend, so one pass over each selects the rows.
        ids = wanted.below(row + len(block))
        yield block[ids - row]
        row += len(block)


class _AscendingIds:
    """The original ids of vertices ``start`` to ``stop``, one block in memory at a time."""

    def __init__(self, graph: Graph, start: int, stop: int) -> None:
        self._blocks = (
            graph.original_id(first, min(first + _ID_BLOCK, stop)) for first in range(start, stop, _ID_BLOCK)
        )
        self._pending = np.empty(0, np.int64)
        self._path = graph.artifact.path / "original_id"

    def below(self, limit: int) -> NDArray[np.int64]:
        """The next ids that are below ``limit``, (num_ids,) int64, ascending.

        Raises:
            FormatError: the stored ids do not ascend.
        """
        taken = []
        block: NDArray[np.int64] | None = self._pending
        while block is not None:
            if np.any(np.diff(block) <= 0):
                raise FormatError(f"{self._path}: the ids do not ascend")
            count = int(np.searchsorted(block, limit))
            taken.append(block[:count])
            self._pending = block[count:]
            block = next(self._blocks, None) if count == len(block) else None
        return np.concatenate(taken)


def _add_facts(before: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    """Add counts up; numbers of classes and of targets are the maximum instead."""
    both = {
        name: max(before.get(name, 0), count) if name.startswith("num_") else before.get(name, 0) + count
        for name, count in more.items()
    }
    return {**before, **both}


def _total_facts(records: Iterable[TaskRecord]) -> dict[str, int]:
    total = {"num_classes": 0}
    of_tables = RowCounts().to_facts().keys()
    for record in records:
        total = _add_facts(total, {name: count for name, count in record.facts.items() if name not in of_tables})
    return total
