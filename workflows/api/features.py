"""Stores vertex data: features, labels and splits, from files, from arrays in memory, or synthetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.ingest.alike import stored_like
from gnnloom.pipeline.ingest.notes import log_notes, vertex_notes
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.ingest.vertex_rows import stated_vertex_phases
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.format import (
    open_vertices,
)
from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.pipeline.sources.understood import Legible, Understood
from gnnloom.pipeline.sources.vertex_data.kind import FILE_OPTIONS, VertexKind, vertex_kinds
from gnnloom.pipeline.sources.vertex_data.table_columns import split_location
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.pipeline.tasks.phase import count, temporary_bytes, total_tasks
from gnnloom.storage import Dataset as StoredDataset
from gnnloom.storage import Vertices
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.option import options_of
from gnnloom.workflows.api.arrays import (
    in_memory,
    stored_vertices,
)
from gnnloom.workflows.api.catalog import CatalogLike, Dataset, DatasetLike, as_dataset
from gnnloom.workflows.api.cluster import CLUSTER, choose_cluster, on_cluster, once_per_job
from gnnloom.workflows.api.options.keywords import (
    ArtifactLike,
    check_known,
    key_of,
    plain_values,
    split_fields,
    with_options,
)
from gnnloom.workflows.api.options.python_messages import named_as, python_text
from gnnloom.workflows.interop.graph_libraries import source_ids

if TYPE_CHECKING:
    from gnnloom.workflows.api.options.option_types import FeaturesKeywords


@with_options({**options_of(VertexOptions), **CLUSTER})
def features(
    dataset: DatasetLike,
    synthetic: str | None = None,
    *,
    feature: Any = None,
    label: Any = None,
    split: Any = None,
    target: Any = None,
    ids_file: Any = None,
    by_id: bool | None = None,
    graph: ArtifactLike | None = None,
    of_type: str | None = None,
    add: bool = False,
    like: DatasetLike | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[FeaturesKeywords],
) -> Dataset:
    """Store features, labels and a split for the vertices of a dataset: from files, arrays in memory, or synthetic.

    Row k belongs to vertex k; in a graph that was ingested with ``ids="compact"``, to the vertex with id k or with the
    k-th name.

    >>> triangle = gnnloom.ingest("triangle", [[0, 1], [1, 2], [2, 0]], undirected=True)
    >>> split = ["train", "train", "test"]
    >>> triangle = gnnloom.features(triangle, feature=np.eye(3), label=[0, 1, 1], split=split)
    >>> triangle.vertices().label()
    array([0, 1, 1], dtype=int32)

    Args:
        dataset: the dataset or its name.
        synthetic: kind of synthetic data, ``random`` or ``degree-labels``, instead of the three arrays.
        feature: (n, F) numbers; a data frame (pandas, polars, Arrow), or a tuple of a frame and its columns,
            ``(frame, ["age", "income"])``; or the name of a file, perhaps with columns, ``"people.csv:age,income"``.
        label: (n,) classes, -1 for none, or their names; or (n, C) zeros and ones; or as for ``feature``.
        split: (n,) codes 0 (none), 1 (train), 2 (valid), 3 (test), or these words; or a mapping with arrays ``train``,
            ``valid`` (or ``val``) and ``test`` of row numbers, or (n,) masks, or (n, K) masks, one chosen by
            ``split_index``; or as for ``feature``.
        target: (n,) or (n, C) numbers to predict instead of labels, NaN for unknown; or as for ``feature``.
        ids_file: (n,) id of the vertex of each row, as in the edges; or the name of a file;
            or a frame and its column of ids, ``(frame, "id")``.
        by_id: files and frames: whether the first column, or the index of a pandas frame, has the ids of the vertices;
            by default not, and a table that seems to have ids is refused.
        graph: the graph or its key, to choose between several.
        of_type: type of the vertices, in a graph with types.
        add: store another set of vertex data for a graph that has one.
        like: another dataset, or ``DATASET/KEY`` of its vertex data, whose encoding of columns to reuse: the same
            categories, means in place of missing values and numbers of classes, so that a model trained there can
            predict here.
        catalog: as for :func:`gnnloom.ingest`, as are the options of the workers.
        options: how features are stored (``store``), how missing features are filled (``missing``,
            ``missing_indicator``), the maximum number of words of a column (``categories``), and options of the
            synthetic data: ``dim``, ``classes``, ``seed``.

    Raises:
        InputError: the number of rows is wrong, or a value cannot be used; the message names the array and row.
        NotFoundError: a file, the dataset or its graph does not exist.
        ExistsError: the graph has other vertex data, and ``add`` is not given.
    """
    is_keyed = bool(by_id) or ids_file is not None
    found, kind = as_dataset(dataset, catalog), vertex_kind(synthetic, by_id=is_keyed)
    arrays = {"feature": feature, "label": label, "split": split, "target": target, "ids_file": ids_file}
    cluster, others = choose_cluster(options)
    chosen, others = split_fields(others, VertexOptions)
    of_kinds = [option.name for each in vertex_kinds().values() for option in each.options]
    check_known("features", others, [*of_kinds, *options_of(VertexOptions), *CLUSTER])
    storing = VertexOptions(**chosen)
    arrays |= {option.name: others.pop(option.name) for option in FILE_OPTIONS if option.name in others}

    def store() -> Dataset:
        with stored_vertices(arrays, by_id=is_keyed) as files, named_as(_temporary(arrays, files)):
            values = files | plain_values(others)
            owner = source_ids(found, key_of(graph), of_type)
            opened = open_vertex_data(kind, values, owner, asks=by_id is not False)
            opened = opened if like is None else stored_like(opened, vertices_like(found, like, of_type))
            add_vertices = partial(ingest_vertices, options=storing, allow_others=add)
            stored = on_cluster(cluster, lambda workers: add_vertices(found, opened, workers, owner))
            notes = vertex_notes(stored, owner if kind.by_position else None)
            log_notes(python_text(note, {}) for note in notes)
        return found

    return once_per_job(store)


def vertices_like(dataset: StoredDataset, like: DatasetLike, of_type: str | None) -> Vertices:
    """Find the vertex data of a dataset, or with ``DATASET/KEY``, in the catalog of another dataset.

    Args:
        of_type: type of the vertices, in a graph with types.

    Raises:
        NotFoundError: there is no vertex data.
        InputError: there are several, and no key chooses one.
    """
    if not isinstance(like, str):
        return like.vertices(of_type=of_type)
    name, _, key = like.partition("/")
    return as_dataset(name, dataset.path.parent).vertices(key or None, of_type=of_type)


def _temporary(arrays: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, str]:
    """Names of arrays by temporary file; arrays of one frame share a file."""
    found: dict[str, str] = {}
    for name, value in arrays.items():
        if name in files and in_memory(value):
            location = split_location(files[name])[0]
            found[location] = "the frame" if location in found else name
    return found


def open_vertex_data(
    kind: VertexKind,
    values: Mapping[str, Any],
    owner: SourceIds,
    shown: Callable[[Sequence[Understood]], None] | None = None,
    *,
    asks: bool,
) -> VertexSource:
    """Open vertex data.

    Args:
        values: options of the kind.
        owner: the vertices, of a graph or of a type.
        shown: called with the reading of the files.
        asks: refuse an ambiguous table.

    Raises:
        InputError, NotFoundError: the source cannot be opened, or is ambiguous.
    """
    if owner.type and kind.is_synthetic:
        raise InputError(f"{kind.name}: vertices of a type get data from files only; give feature, label or split")
    source = open_vertices(kind.name, (), values, owner)
    understood = source.understood() if isinstance(source, Legible) and (shown or asks) else ()
    if shown is not None:
        shown(understood)
    if asks and (open_question := next((each for each in understood if each.question), None)):
        raise InputError(f"{open_question.location}: {open_question.question}")
    return source


def plan_vertices(
    source: VertexSource, owner: SourceIds, cluster: ClusterOptions, storing: VertexOptions, *, by_id: bool
) -> dict[str, int]:
    """Upper bounds of the memory and disk space for storing vertex data.

    Args:
        owner: the vertices, of a graph or of a type.
        by_id: the rows have the ids of the vertices.
    """
    types = {}
    for array in source.arrays:
        trailing = (source.num_columns(array),) if VERTEX_ARRAYS[array].dims else ()
        types[array] = storing.dtype(array).name, trailing
    phases = stated_vertex_phases(owner.num_vertices, types, cluster.memory, by_id=by_id)
    counted = count(phases)
    return {
        "vertices": owner.num_vertices,
        "tasks": total_tasks(counted),
        "peak_memory": BASE_MEMORY + max(phase.most_memory for phase in counted),
        "temporary_bytes": temporary_bytes(phases),
        "bytes_written": storing.num_bytes(source),
    }


def vertex_kind(synthetic: str | None, *, by_id: bool) -> VertexKind:
    """Kind of the vertex data: synthetic, by id, or one row per vertex.

    Raises:
        InputError: there is no such synthetic data.
    """
    kinds = [kind.name for kind in vertex_kinds().values() if kind.is_synthetic]
    if synthetic is not None and synthetic not in kinds:
        raise InputError(f"synthetic {synthetic!r}: expected one of {', '.join(kinds)}")
    return vertex_kinds()[synthetic or ("keyed" if by_id else "files")]
