"""Contents of a dataset as tables for other programs, with the vertex ids that the source used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage import Dataset, Graph
from gnnloom.storage.artifacts.block_matrix import BlockMatrix, block_path
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import GnnloomError, NotFoundError
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.memory_map import RecordedArray, map_copy
from gnnloom.storage.format.vertex_arrays import NO_LABEL, VERTEX_ARRAYS, widened
from gnnloom.storage.runs.figures import shown_epoch, shown_figures
from gnnloom.storage.runs.predictions import SMOOTHED
from gnnloom.storage.runs.run import Run
from gnnloom.storage.runs.transfer import Transfer, links_of_run
from gnnloom.trainer.tasks.registry import task_of_run
from gnnloom.workflows.interop.graph_libraries import source_ids
from gnnloom.workflows.interop.tables import ExportedColumn, Table, write_table
from gnnloom.workflows.interop.transfer_checks import renumbered

#: Tables of vertex data.
VERTEX_TABLES = tuple(dict.fromkeys(array.export for array in VERTEX_ARRAYS.values()))
#: Approximate number of values in memory at once: 16 MiB as int64, enough for long sequential reads.
_NUMBERS_AT_ONCE = 1 << 21
#: Approximate memory of one vertex name, in units of 8 bytes: a Python string and its pointer.
_NAME_NUMBERS = 16

_INT64 = np.dtype(np.int64)


def write_predictions(
    dataset: Dataset, run: Run, path: Path, *, smoothed: bool = False, safe_csv: bool = False
) -> None:
    """Write the predictions of the run for every vertex, such as its class; or the smoothed classes."""
    table = run_table(dataset, run, "smoothed-predictions" if smoothed else "predictions")
    write_table(table, path, safe_csv=safe_csv)


#: Tables of a run, and of a dataset.
RUN_TABLES = ("predictions", "scores", "smoothed-predictions", "smoothed-scores", "embeddings", "metrics")
#: Table of the pairs of links.
PAIRS = "pairs"
DATASET_TABLES = ("edges", *VERTEX_TABLES, "partition", PAIRS)


def run_table(dataset: Dataset, run: Run, what: str) -> Table:
    """Return one of the tables of a run: predictions (such as classes), scores, embeddings, or its metrics by epoch.

    Args:
        what: one of ``RUN_TABLES``.

    Raises:
        NotFoundError: the run has no predictions, or none of this kind. A run on pairs has no scores of vertices.
    """
    if what == "metrics":
        return metrics_table(run)
    predictions = run.predictions()
    task = task_of_run(run.config(), predictions)
    if what == "scores" and task.on_pairs:
        raise NotFoundError(f"{run.path}: the run has scores only for pairs; run `gnnloom predict --pairs FILE`")
    stored, name = {
        "predictions": (task.prediction, task.column),
        "scores": ("score", "score"),
        "smoothed-predictions": (f"{SMOOTHED}{task.prediction}", task.column),
        "smoothed-scores": (f"{SMOOTHED}score", "score"),
        "embeddings": ("embedding", "embedding"),
    }[what]
    names = _class_names_of_run(dataset, run) if what.endswith("predictions") else ()
    return vertex_table(ids_of_run(dataset, run), {name: predictions.array(stored)}, names)


def run_frame_table(dataset: Dataset, run: Run, *, smoothed: bool = False) -> Table:
    """Return the prediction and scores of each vertex, together with its label and split.

    Args:
        smoothed: the predictions and scores that were smoothed over the edges.

    Raises:
        NotFoundError: the run has no predictions, or none of this kind.
    """
    predictions, prefix = run.predictions(), SMOOTHED if smoothed else ""
    task = task_of_run(run.config(), predictions)
    arrays: dict[str, VertexRows] = {task.column: predictions.array(prefix + task.prediction)}
    if not task.on_pairs and f"{prefix}score" in predictions:
        arrays["score"] = predictions.array(f"{prefix}score")
    key, transfer = run.inputs().get("vertices"), Transfer.of(run)
    # They may have been removed.
    with suppress(NotFoundError):
        if key is not None:
            vertices = dataset.vertices(key)
            labels = [name for name in vertices.names if VERTEX_ARRAYS[name].export == "labels"]
            arrays |= {name: vertices.array(name) for name in labels}
            if transfer is not None and "label" in arrays:
                numbers = renumbered(transfer, vertices)
                arrays["label"] = RenumberedLabels(vertices.array("label"), np.array([*numbers, NO_LABEL], np.int32))
    return vertex_table(ids_of_run(dataset, run), arrays, _class_names_of_run(dataset, run))


def ids_of_run(dataset: Dataset, run: Run) -> tuple[SourceIds, ...]:
    """Ids of the vertices that a run predicts: all vertices, the vertices of one type, or of the types of its pairs.

    Raises:
        NotFoundError: the graph was removed.
    """
    if run.config().get("relation") is not None:
        source, target = dataset.end_ids(links_of_run(dataset, run))
        return (source,) if source.folder == target.folder else (source, target)
    return (source_ids(dataset, run.inputs().get("graph"), run.config().get("of_type")),)


def vertices_table(dataset: Dataset, what: str, key: str | None = None) -> Table:
    """Return the ``features``, or the ``labels`` along with the split, one row per vertex.

    Args:
        what: one of ``VERTEX_TABLES``.

    Raises:
        NotFoundError: the dataset has no such data.
    """
    vertices = dataset.vertices(key)
    there = {name: vertices.array(name) for name in vertices.names if VERTEX_ARRAYS[name].export == what}
    if not there:
        raise NotFoundError(f"{vertices.artifact.path}: this vertex data has no {what}")
    names = _class_names(dataset, vertices.artifact.key) if "label" in there else ()
    artifact = vertices.artifact
    ids = source_ids(dataset, artifact.inputs["graph"], artifact.parameters.get("type"))
    return vertex_table((ids,), there, names)


def _class_names_of_run(dataset: Dataset, run: Run) -> tuple[str, ...]:
    """Names of the classes that a run predicts, if the labels that it was trained on were names."""
    transfer = Transfer.of(run)
    return _class_names(dataset, run.inputs().get("vertices")) if transfer is None else transfer.class_names


def _class_names(dataset: Dataset, vertices: str | None) -> tuple[str, ...]:
    """Names of the classes, if the labels of the vertex data were names and still exist."""
    try:
        return dataset.vertices(vertices).class_names
    except GnnloomError:
        return ()


class VertexRows(Protocol):
    """An array with a row for each vertex."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def read(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """(stop - start, ...) rows of some vertices."""
        ...


@dataclass(frozen=True)
class RenumberedLabels:
    """Stored labels, converted to the class numbers of a run.

    Attributes:
        labels: the stored labels.
        numbers: (num_classes + 1,) int32 number for each class, and for a missing label at the end.
    """

    labels: ArrayReader
    numbers: NDArray[np.int32]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.numbers.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.labels.shape

    def read(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """(stop - start,) int32 classes; -1 for a missing label."""
        found: NDArray[Any] = self.numbers[self.labels.read(start, stop)]
        return found


def vertex_table(ids: Sequence[SourceIds], arrays: Mapping[str, VertexRows], class_names: Sequence[str] = ()) -> Table:
    """Return arrays over the vertices after a column of source ids or names; ``.npy`` holds the first array.

    Args:
        ids: ids of the vertices; for several types, one after the other, with the names of the types in another column.
        class_names: names of the classes in the first array, for a column at the end; empty for no such column.
    """
    columns = [
        ExportedColumn(name, widened(array.dtype), array.shape[1] if len(array.shape) > 1 else None)
        for name, array in arrays.items()
    ]
    width = sum(column.width or 1 for column in columns)
    step = max(1, _NUMBERS_AT_ONCE // max(1, width))

    def pieces() -> Iterator[tuple[Any, ...]]:
        first = 0
        for each in ids:
            for start in range(0, each.num_vertices, step):
                stop = min(start + step, each.num_vertices)
                rows = slice(first + start, first + stop)
                read = [
                    array.read(rows.start, rows.stop).astype(widened(array.dtype), copy=False)
                    for array in arrays.values()
                ]
                named = [[(*class_names, "")[number] for number in read[0].tolist()]] if class_names else []
                types = [[each.type] * (stop - start)] if len(ids) > 1 else []
                yield (*types, _ids(each, start, stop, has_names=has_names), *read, *named)
            first += each.num_vertices

    has_names = any(each.has_names for each in ids)
    types = [ExportedColumn("type", None)] if len(ids) > 1 else []
    named = [ExportedColumn(f"{columns[0].name}_name", None)] if class_names else []
    vertex = ExportedColumn("vertex", None if has_names else _INT64)
    total = sum(each.num_vertices for each in ids)
    return Table((*types, vertex, *columns, *named), total, pieces, (columns[0].name,))


def _ids(ids: SourceIds, start: int, stop: int, *, has_names: bool) -> Any:
    """The names of some vertices, or their ids, as text if other vertices have names."""
    if ids.has_names:
        return ids.original_name(start, stop)
    found = ids.original_id(start, stop)
    return list(map(str, found.tolist())) if has_names else found


def edge_table(graph: Graph) -> Table:
    """Return the stored edges, ordered by target, then source, with self loops and both directions as stored.

    The columns hold the vertex ids of the source. If the ids are names, NumPy's files hold vertex numbers.
    """
    columns = end_columns(graph, graph)
    if graph.weighted:
        data = graph.artifact.array(f"{block_path(0)}/data")
        columns.append(ExportedColumn("weight", data.dtype))
    return Table(tuple(columns), graph.nnz, lambda: _edges(graph), ("source", "target"))


def _edges(graph: Graph) -> Iterator[tuple[Any, ...]]:
    step = entries_at_once(has_names=graph.has_names)
    with mapped_ends(graph, graph) as columns:
        for number in range(graph.num_blocks):
            weights = graph.weights(number)
            for start, stop, row, column in block_entries(graph, number, step):
                yield (*columns(column, row), *([] if weights is None else [weights.read(start, stop)]))


def end_columns(sources: SourceIds, targets: SourceIds) -> list[ExportedColumn]:
    """The columns of the ends of edges or pairs: numbers, and names if the source has names."""
    ends = {"source": sources.has_names, "target": targets.has_names}
    numbers = [ExportedColumn(end, _INT64, stands_for_text=has_names) for end, has_names in ends.items()]
    return [*numbers, *(ExportedColumn(end, None) for end, has_names in ends.items() if has_names)]


@contextmanager
def mapped_ends(sources: SourceIds, targets: SourceIds) -> Iterator[Callable[..., list[Any]]]:
    """Map the ids of sources and targets for look-ups inside the block.

    Yields:
        A function from (count,) sources and (count,) targets to the values of :func:`end_columns`.

    Raises:
        DamagedWorkError: the copy of an id has changed.
    """
    with ExitStack() as stack:
        ends = sources, targets
        kinds = {each.folder: each for each in ends}
        copies = {key: VertexIds.of(each, stack.enter_context(own_folder())) for key, each in kinds.items()}
        found = [copies[each.folder] for each in ends]

        def columns(*ends: NDArray[Any]) -> list[Any]:
            shown = [ids.columns(each) for ids, each in zip(found, ends, strict=True)]
            return [*(each[0] for each in shown), *(each[1] for each in shown if len(each) > 1)]

        yield columns
        for ids in copies.values():
            ids.check()


@dataclass(frozen=True)
class VertexIds:
    """Ids of vertices in the source, for look-ups in any order.

    Attributes:
        ids: (num_vertices,) int64; None if vertices have the same numbers as in the source, or names.
        offset, text: names, as in the graph; None if the source has numbers.
        copies: the files from which they are mapped.
    """

    ids: NDArray[Any] | None
    offset: NDArray[Any] | None
    text: NDArray[Any] | None
    copies: Sequence[RecordedArray]

    @classmethod
    def of(cls, ids: SourceIds, folder: Path) -> VertexIds:
        """Copy the ids of a graph or of a type to uncompressed files in a folder, and map the files.

        A look-up in a stored array would decompress a whole chunk.
        """
        copies = list[RecordedArray]()

        def mapped(name: str) -> NDArray[Any] | None:
            path = f"{ids.prefix}{name}"
            if path not in ids.artifact:
                return None
            copies.append(map_copy(ids.artifact.array(path), folder))
            return copies[-1].values

        return cls(mapped("original_id"), mapped("original_name_offset"), mapped("original_name"), copies)

    def check(self) -> None:
        """Compare the files with the checksums of the copied ids; call it after reading the ids.

        Raises:
            DamagedWorkError: one has changed.
        """
        for copy in self.copies:
            copy.check()

    def columns(self, vertices: NDArray[Any]) -> list[Any]:
        """The ids of vertices; if vertices have names, their numbers and then their names."""
        found: list[Any] = [vertices if self.ids is None else self.ids[vertices]]
        if self.offset is not None and self.text is not None:
            try:
                found.append(_names_of(vertices, self.offset, self.text))
            except UnicodeDecodeError:
                self.check()
                raise
        return found


def _names_of(vertices: NDArray[Any], offset: NDArray[Any], text: NDArray[Any]) -> list[str]:
    bounds = zip(offset[vertices].tolist(), offset[vertices + 1].tolist(), strict=True)
    return [text[start:stop].tobytes().decode() for start, stop in bounds]


def entries_at_once(*, has_names: bool) -> int:
    """Number of entries in memory at once, given that their ends may have names."""
    return max(1, _NUMBERS_AT_ONCE // (_NAME_NUMBERS if has_names else 1))


def block_entries(
    matrix: BlockMatrix, number: int, step: int
) -> Iterator[tuple[int, int, NDArray[np.int64], NDArray[Any]]]:
    """Read the rows and columns of one block's entries, some at a time, after the range of the entries."""
    indptr, columns = matrix.pointers(number), matrix.columns(number)
    for start in range(0, int(indptr[-1]), step):
        stop = min(start + step, int(indptr[-1]))
        # A piece may begin and end inside a row. side="right" skips empty rows, whose pointers are equal.
        row = np.searchsorted(indptr, np.arange(start, stop), side="right") - 1 + matrix.block_rows[number]
        yield start, stop, row, columns.read(start, stop)


_EPOCH = "epoch"


def metrics_table(run: Run) -> Table:
    """Return the epochs, counted from 1, and every measured figure, with gaps in epochs without the figure.

    A ``.npy`` file holds the losses.

    Raises:
        NotFoundError: the run has not finished an epoch.
    """
    rows = metrics_rows(run)
    if not rows:
        raise NotFoundError(f"{run.path}: no epoch has finished yet, so there are no metrics")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = tuple(ExportedColumn(name, np.dtype(np.int64 if name == _EPOCH else np.float64)) for name in names)

    def pieces() -> Iterator[tuple[Any, ...]]:
        yield tuple([row.get(name) for row in rows] for name in names)

    return Table(columns, len(rows), pieces, ("loss",))


def metrics_rows(run: Run) -> list[dict[str, float]]:
    """Return ``epoch``, counted from 1, and every figure that was measured in it, for each finished epoch.

    Bytes and messages have a figure for their sum and one for each kind. Profiles are left out.

    Raises:
        CorruptError: the file of the metrics is damaged.
    """
    return [{_EPOCH: shown_epoch(line), **_figures(line)} for line in run.metrics()]


def _figures(line: Mapping[str, Any]) -> dict[str, float]:
    return {f"{name}_{kind.replace(' ', '_')}" if kind else name: number for name, kind, number in shown_figures(line)}
