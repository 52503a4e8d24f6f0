"""Stores graphs and vertex data: from files, from arrays in memory, or generated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.ingest.alike import stored_like
from gnnloom.pipeline.ingest.notes import graph_notes, log_notes, vertex_notes
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.typed.declared import DeclaredTables
from gnnloom.pipeline.ingest.typed.folders.layouts import described_tables
from gnnloom.pipeline.ingest.typed.notes import typed_notes
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.ingest.typed.triples import TRIPLES, statement_tables, triples_tables
from gnnloom.pipeline.ingest.typed.type_vertices import ingest_type_vertices
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.ingest.vertex_rows import stated_vertex_phases
from gnnloom.pipeline.ingest.vertex_tables import Rows, check_rows, read_as_vertices, rows_question
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.format import Format, bundled_vertices, formats, guess_format, open_edges, open_vertices
from gnnloom.pipeline.sources.generators.generator import generators
from gnnloom.pipeline.sources.ntriples import NTRIPLES
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.pipeline.sources.understood import Legible, Understood, understood_of
from gnnloom.pipeline.sources.vertex_data.kind import FILE_OPTIONS, VertexKind, vertex_kinds
from gnnloom.pipeline.sources.vertex_data.table_columns import is_parquet, split_location
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.pipeline.tasks.phase import count, temporary_bytes, total_tasks
from gnnloom.storage import Catalog as StoredCatalog
from gnnloom.storage import Dataset as StoredDataset
from gnnloom.storage import Graph, TypedGraph, Vertices
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.option import options_of
from gnnloom.workflows.api.arrays import (
    as_texts,
    in_memory,
    is_location,
    stored_edges,
    stored_tables,
    stored_vertices,
)
from gnnloom.workflows.api.catalog import CatalogLike, Dataset, DatasetLike, as_catalog, as_dataset
from gnnloom.workflows.api.cluster import CLUSTER, choose_cluster, once_per_job
from gnnloom.workflows.api.options.keywords import check_known, plain_values, split_fields, with_options
from gnnloom.workflows.api.options.python_messages import IN_MEMORY, named_as, python_text
from gnnloom.workflows.interop.hetero_tables import hetero_tables

if TYPE_CHECKING:
    from gnnloom.workflows.api.options.option_types import FeaturesKeywords, GenerateKeywords, IngestKeywords


#: How vertex data are stored unless options say otherwise.
STORING: Final = VertexOptions()


@with_options({**options_of(IngestOptions), **options_of(TypedOptions), **options_of(VertexOptions), **CLUSTER})
def ingest(
    name: str,
    source: str | Path | Sequence[str | Path] | Any = None,
    *,
    relations: Mapping[tuple[str, str, str], Any] | None = None,
    vertices: Mapping[str, Any] | None = None,
    format: str | None = None,  # noqa: A002 - the name of the option of the command
    add: bool = False,
    catalog: CatalogLike = None,
    **options: Unpack[IngestKeywords],
) -> Dataset:
    """Store edges as the graph of a dataset, along with the vertex data that come with them.

    A call that was interrupted continues where it stopped. If the graph exists, nothing is done.

    Args:
        name: name of the dataset, which is created if it does not exist.
        source: files, URLs or globs; one folder; or edges in memory: (2, m) or (m, 2) ids ``u, v`` of edges u -> v
            (NumPy, torch, lists); a data frame (pandas, polars, Arrow), with its columns named by ``columns``; a sparse
            matrix of SciPy or torch, whose entry (u, v) is the edge u -> v; a ``Data`` of PyG, or a dataset with one,
            with its features, labels and masks; a ``HeteroData``, which becomes a graph with types without its vertex
            data; or a graph of networkx or igraph, with the attribute ``weight`` as
            weights; an undirected one implies ``undirected``. Edges in memory are written to a temporary file first.
        relations: instead of a source, the tables of a graph with types, by source type, name of the relation and
            target type, such as ``{("user", "buys", "item"): "clicks.csv:user_id,item_id"}``: the name of a file,
            perhaps with its columns, of which further ones say what they hold, as in ``amount as weight`` or ``fee as
            feature else 0``; a frame, or a tuple of a frame and its columns; or edges in memory.
        vertices: tables of the vertices of some types, by type: the name of a file or several, perhaps with the column
            of ids, ``"users.csv:id"``; a frame, or a tuple of a frame and its columns; or an array of ids. Columns
            after the ids may be followed by ``as feature``, ``as label``, ``as target`` or ``as split``.
        format: format of the files; by default guessed from their names.
        add: store another graph in a dataset that has one; other functions then choose with ``graph``.
        catalog: the catalog or its directory; by default ``$GNNLOOM_CATALOG``, or else ``./catalog``.
        options: how edges become a graph (``undirected``, ``self_loops``, ``ids``, ``merge``, ``codec``); how features
            are stored (``store``); options of the format, as in ``gnnloom ingest --help-all``; and where tasks run:
            ``workers`` processes (0 for none; by default small graphs are sorted by threads of this process, and others
            by one process per core), ``memory`` per worker in bytes or such as ``"512M"``, the address of a Dask
            ``scheduler`` to use instead, and folder and file ``scratch`` and ``performance_report``.

    Raises:
        InputError: the source has no edges or something that is not one, an option is unknown, or an id is not a number
            where numbers are expected; ``ids="names"`` expects none.
        NotFoundError: a file does not exist.
        ExistsError: the dataset has a graph from another source or with other options, and ``add`` is not given.
        BudgetError: the memory per worker or the disk is too small; raised before the work begins.
    """
    cluster, others = choose_cluster(options)
    chosen, others = split_fields(IngestOptions, others)
    typed, others = split_fields(TypedOptions, others)
    stored, others = split_fields(VertexOptions, others)
    own = [*options_of(IngestOptions), *options_of(TypedOptions), *options_of(VertexOptions), *CLUSTER]
    check_known("ingest", others, [*own, *_source_options(formats())])
    given_options, vertex_options = IngestOptions(**chosen), VertexOptions(**stored)
    if relations is None and (hetero := hetero_tables(source)) is not None:
        (relations, vertices), source = hetero, None
    any_name, declared = given_options.ids == "names", None
    if relations is None and source is not None and is_location(source):
        declared = typed_source(as_texts(source), format, plain_values(others))
    if declared is None:
        check_typed(source, relations, [*(["vertices"] if vertices else []), *typed])
    else:
        check_typed(None, declared, (), ["vertices"] if vertices else [])

    def store_opened(tables: TypedTables) -> Dataset:
        found, how = as_catalog(catalog), (given_options, TypedOptions(**typed), cluster)
        graph, data = store_typed(found, name, tables, *how, storing=vertex_options, add=add)
        _log([*typed_notes(graph), *(note for each in data for note in vertex_notes(each))])
        return as_dataset(name, catalog)

    def store_tables() -> Dataset:
        if declared is not None:
            return store_opened(
                declared.open(plain_values(others), any_name=any_name, unknown=TypedOptions(**typed).unknown)
            )
        with stored_tables(relations or {}, vertices or {}) as (of_relations, of_vertices):
            shown = [table for each in ([*of_relations.values()], *of_vertices.values()) for table in each]
            with named_as({table.locations[0]: table.shown for table in shown if table.shown}):
                how = plain_values(others), format
                return store_opened(TypedTables.open(of_relations, of_vertices, *how, any_name=any_name))

    def store() -> Dataset:
        with ExitStack() as stack:
            undirected = False
            if is_location(source):
                locations = as_texts(source)
            else:
                file = stack.enter_context(stored_edges(source))
                locations, undirected = [file.location], file.undirected
                stack.enter_context(named_as({file.location: IN_MEMORY}))
            if undirected and chosen.get("undirected") is False:
                raise InputError("undirected=False: the source is an undirected graph; pass graph.to_directed()")
            graph_options = replace(given_options, undirected=given_options.undirected or undirected)
            values = plain_values(others)
            undirects = graph_options.undirected
            edges, understood = open_source(name, locations, format, values, undirected=undirects)
            of_rows = check_rows(understood, name, values)
            vertices = bundled_vertices(format, locations, values)
            found = as_catalog(catalog)
            how = graph_options, cluster
            graph, stored = store_source(found, name, edges, vertices, *how, storing=vertex_options, add=add)
            notes = [*([] if stored is None else vertex_notes(stored)), *graph_notes(graph, edges, graph_options)]
            notes += of_rows
            _log(notes if is_location(source) else [note.replace(locations[0], IN_MEMORY) for note in notes])
        return as_dataset(name, catalog)

    return once_per_job(store if relations is None and declared is None else store_tables)


def typed_source(locations: Sequence[str], format_name: str | None, values: Mapping[str, Any]) -> DeclaredTables | None:
    """The tables of a graph with types, if the format or the headers of a source say so; None for other sources.

    Args:
        values: options of the format.

    Raises:
        NotFoundError: a file does not exist.
        InputError: a header is not complete.
    """
    if format_name == TRIPLES:
        return triples_tables(locations, values)
    if len(locations) == 1 and (found := described_tables(locations[0], format_name)) is not None:
        return found
    chosen = format_name or guess_format(locations)
    if chosen == NTRIPLES and not values.get("columns"):
        return statement_tables(locations, values)
    return DeclaredTables.of(locations, values) if chosen == "snap" else None


def check_typed(source: Any, relations: Any, of_types: Iterable[str], others: Iterable[str] = ()) -> None:
    """Check that a graph with types is given by relations, and any other by a source.

    Args:
        of_types: names of the options of graphs with types that are given.
        others: names of what is given and does not go with relations.

    Raises:
        InputError: both are given, or neither.
    """
    if relations is None:
        if source is None:
            raise InputError("source: expected edges, found NoneType; pass edges, or the tables of relations")
        if given := next(iter(of_types), None):
            raise InputError(f"{given}: only graphs with types have it; give their relations (`--relation`)")
        return
    if source is not None:
        raise InputError("relations: a graph has either a source of edges or relations; leave one of them out")
    if given := next(iter(others), None):
        raise InputError(f"{given}: the files say themselves which vertices they have; leave it out")


def check_storing(tables: TypedTables, storing: VertexOptions) -> None:
    """Check that options of vertex data are only given for tables that have some.

    Raises:
        InputError: they are given, and no table of vertices has any.
    """
    if storing != STORING and not tables.data:
        raise InputError(f"store {storing.store}: no table of vertices has a column with a feature, label or split")


@with_options(CLUSTER)
def generate(
    name: str,
    model: str,
    *,
    directed: bool = False,
    add: bool = False,
    codec: str = IngestOptions.codec,
    catalog: CatalogLike = None,
    **options: Unpack[GenerateKeywords],
) -> Dataset:
    """Generate a graph from a seed as a dataset, without an intermediate file.

    Args:
        name: name of the dataset, which is created if it does not exist.
        model: generator: ``sbm``, ``rmat`` or ``lattice``.
        directed: store every edge in its direction only.
        codec: compression of the graph: ``none``, ``fast`` or ``small``.
        add, catalog: as for :func:`ingest`, as are the options of the workers.
        options: options of the generator, as in ``gnnloom generate --help``, such as ``vertices``, ``edges``, ``seed``.

    Raises:
        InputError: there is no such generator or option, or a number is out of range.
        ExistsError, BudgetError: as :func:`ingest`.
    """
    if model not in generators():
        raise InputError(f"generate: no model {model!r}; there are {', '.join(generators())}")
    generator, (cluster, given) = generators()[model], choose_cluster(options)
    check_known(f"generate {model}", given, [option.name for option in generator.options])
    for option in generator.options:
        if option.name in given:
            option.check(given[option.name])
    values = {option.name: option.default for option in generator.options} | plain_values(given)
    edges = generator.open_edges(**values)
    vertices = generator.open_vertices(**values) if generator.open_vertices is not None else None
    chosen = IngestOptions(undirected=not directed, codec=codec)

    def store() -> Dataset:
        store_source(as_catalog(catalog), name, edges, vertices, chosen, cluster, add=add)
        return as_dataset(name, catalog)

    return once_per_job(store)


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
    graph: str | None = None,
    of_type: str | None = None,
    add: bool = False,
    like: DatasetLike | None = None,
    catalog: CatalogLike = None,
    **options: Unpack[FeaturesKeywords],
) -> Dataset:
    """Store features, labels and a split for the vertices of a dataset: from files, arrays in memory, or synthetic.

    Row k belongs to vertex k; with ``ids="compact"``, to the vertex whose id was k, or to the k-th name.

    Args:
        dataset: the dataset or its name.
        synthetic: kind of synthetic data, ``random`` or ``degree-labels``, instead of the three arrays.
        feature: (n, F) numbers; a data frame (pandas, polars, Arrow), or a tuple of a frame and its columns,
            ``(frame, ["age", "income"])``; or the name of a file, perhaps with columns, ``"people.csv:age,income"``.
        label: (n,) classes, -1 for none, or their names; or (n, C) zeros and ones; or as for ``feature``.
        split: (n,) codes 0 none, 1 train, 2 valid, 3 test, or these words; or a mapping with arrays ``train``,
            ``valid`` (or ``val``) and ``test`` of row numbers, or (n,) masks, or (n, K) masks of which ``split_index``
            chooses one; or as for ``feature``.
        target: (n,) or (n, C) numbers to predict instead of labels, NaN for unknown; or as for ``feature``.
        ids_file: (n,) ids of the vertices that the rows of arrays belong to, as in the edges; or the name of a file;
            or a frame and its column of ids, ``(frame, "id")``.
        by_id: files and frames: whether the first column, or the index of a frame of pandas, has the ids of the
            vertices; by default no, and a table that seems to have some is refused.
        graph: key, to choose between several graphs.
        of_type: type of the vertices, in a graph with types.
        add: store other vertex data next to those that the graph has.
        like: another dataset, or ``DATASET/KEY`` of its vertex data, like which columns are stored: with the same
            categories, means in place of missing values and numbers of classes, so that a model trained there can
            predict here.
        catalog: as for :func:`ingest`, as are the options of the workers.
        options: how features are stored (``store``); what missing ones become (``missing``, ``missing_indicator``), and
            the most words of a column (``categories``); options of the synthetic data: ``dim``, ``classes``, ``seed``.

    Raises:
        InputError: the number of rows is wrong, or a value cannot be used; the message names the array and row.
        NotFoundError: a file, the dataset or its graph does not exist.
        ExistsError: the dataset has other vertex data, and ``add`` is not given.
    """
    is_keyed = bool(by_id) or ids_file is not None
    found, kind = as_dataset(dataset, catalog), vertex_kind(synthetic, by_id=is_keyed)
    arrays = {"feature": feature, "label": label, "split": split, "target": target, "ids_file": ids_file}
    cluster, others = choose_cluster(options)
    chosen, others = split_fields(VertexOptions, others)
    check_known("features", others, [*_source_options(vertex_kinds()), *options_of(VertexOptions), *CLUSTER])
    storing = VertexOptions(**chosen)
    arrays |= {option.name: others.pop(option.name) for option in FILE_OPTIONS if option.name in others}

    def store() -> Dataset:
        with stored_vertices(arrays, by_id=is_keyed) as files, named_as(_temporary(arrays, files)):
            values = files | plain_values(others)
            owner, asks = vertex_owner(found, graph, of_type), by_id is not False
            pattern = None if like is None else vertices_like(found, like)
            stored = store_vertices(
                found, kind, values, cluster, owner, storing=storing, add=add, like=pattern, asks=asks
            )
            _log(vertex_notes(stored))
        return found

    return once_per_job(store)


def vertex_owner(dataset: StoredDataset, graph: str | None, of_type: str | None) -> SourceIds:
    """The vertices that vertex data are for: of a graph, or of one type of a graph with types.

    Raises:
        NotFoundError, InputError: there is no such graph or type, or there are several graphs.
    """
    return dataset.graph(graph) if of_type is None else dataset.typed_graph(graph).ids(of_type)


def vertices_like(dataset: StoredDataset, like: DatasetLike) -> Vertices:
    """The vertex data that an argument names: of a dataset, or ``DATASET/KEY`` in the catalog of another one.

    Raises:
        NotFoundError: there are none.
        InputError: there are several.
    """
    if not isinstance(like, str):
        return like.vertices()
    name, _, key = like.partition("/")
    return as_dataset(name, dataset.path.parent).vertices(key or None)


def _log(notes: Iterable[str]) -> None:
    """Log notes, which name the keywords of functions instead of flags."""
    log_notes(python_text(note, options_of(IngestOptions)) for note in notes)


def _source_options(owners: Mapping[str, Format] | Mapping[str, VertexKind]) -> list[str]:
    """Names of the options of all formats, or of all kinds of vertex data."""
    return [option.name for owner in owners.values() for option in owner.options]


def _temporary(arrays: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, str]:
    """Names of the arrays in memory by the files that hold them; arrays of one frame share a file."""
    found: dict[str, str] = {}
    for name, value in arrays.items():
        if name in files and in_memory(value):
            location = split_location(files[name])[0]
            found[location] = "the frame" if location in found else name
    return found


def open_source(
    name: str,
    locations: Sequence[str],
    format_name: str | None,
    values: Mapping[str, Any],
    *,
    undirected: bool = False,
) -> tuple[EdgeSource, list[Understood]]:
    """Open edges, and find out how their files are read.

    Args:
        name: name of the dataset, for a message.
        values: options of the format.

    Raises:
        GnnloomError: as :func:`~gnnloom.pipeline.sources.format.open_edges`. A table that only can be one of vertices
            is named as such.
    """
    chosen = format_name or guess_format(locations)
    try:
        edges = open_edges(chosen, locations, values, undirected=undirected)
    except InputError as error:
        # Texts are opened whatever they have.
        is_table = len(locations) == 1 and is_parquet(locations[0]) and not values.get("columns")
        reading = read_as_vertices(locations[0]) if is_table else None
        if reading is None or reading.rows is not Rows.VERTEX:
            raise
        raise rows_question(reading, name) from error
    return edges, understood_of(edges, locations, chosen)


def store_source(
    catalog: StoredCatalog,
    name: str,
    edges: EdgeSource,
    vertices: VertexSource | None,
    options: IngestOptions,
    cluster: ClusterOptions,
    *,
    storing: VertexOptions = STORING,
    add: bool = False,
) -> tuple[Graph, Vertices | None]:
    """Store the edges and vertex data of a source as a dataset; a new dataset that stays empty is removed again.

    Args:
        storing: how the vertex data are stored.
        add: allow the dataset to have other graphs.

    Raises:
        GnnloomError: as :func:`~gnnloom.pipeline.ingest.stage.ingest_graph` and
            :func:`~gnnloom.pipeline.ingest.vertices.ingest_vertices`.
    """
    # One cluster for both stages, as starting workers takes seconds.
    with _made_or_found(catalog, name) as dataset, open_cluster(cluster) as opened:
        graph = ingest_graph(dataset, edges, options, opened, allow_others=add)
        owner = graph if add else None
        if vertices is None:
            return graph, None
        return graph, ingest_vertices(dataset, vertices, opened, owner, options=storing)


def store_typed(
    catalog: StoredCatalog,
    name: str,
    tables: TypedTables,
    options: IngestOptions,
    typed: TypedOptions,
    cluster: ClusterOptions,
    *,
    storing: VertexOptions = STORING,
    add: bool = False,
) -> tuple[TypedGraph, list[Vertices]]:
    """Store tables as a graph with types and its vertex data; a new dataset that stays empty is removed again.

    Raises:
        GnnloomError: as :func:`~gnnloom.pipeline.ingest.typed.stage.ingest_typed_graph` and
            :func:`~gnnloom.pipeline.ingest.vertices.ingest_vertices`.
    """
    check_storing(tables, storing)
    with _made_or_found(catalog, name) as dataset, open_cluster(cluster) as opened:
        graph = ingest_typed_graph(dataset, tables, options, typed, opened, allow_others=add)
        return graph, ingest_type_vertices(dataset, graph, tables.data, opened, storing, allow_others=add)


@contextmanager
def _made_or_found(catalog: StoredCatalog, name: str) -> Iterator[StoredDataset]:
    """Make or find a dataset; if the block fails and leaves nothing to finish in a new dataset, remove that again."""
    had_catalog, is_new = catalog.root.exists(), name not in catalog
    dataset = catalog.create(name)
    try:
        yield dataset
    except GnnloomError:
        # What an interrupted command began stays: the same command finishes it.
        if is_new and not dataset.artifacts():
            # Another process may have begun to write there.
            with suppress(GnnloomError, OSError):
                catalog.remove(name)
                if not had_catalog:
                    catalog.root.rmdir()
        raise


def store_vertices(
    dataset: StoredDataset,
    kind: VertexKind,
    values: dict[str, Any],
    cluster: ClusterOptions,
    graph: SourceIds | None = None,
    *,
    storing: VertexOptions = STORING,
    add: bool = False,
    like: Vertices | None = None,
    shown: Callable[[Sequence[Understood]], None] | None = None,
    asks: bool = False,
) -> Vertices:
    """Store vertex data for the graph of a dataset.

    Args:
        values: options of the kind.
        graph: one of several graphs of the dataset, or the ids of a type; by default its only graph.
        storing: how the vertex data are stored.
        add: allow the graph to have other vertex data.
        like: other vertex data, like which features and labels are stored.
        shown: called with how the files are read, before anything is stored.
        asks: refuse a table that leaves open what it is.

    Raises:
        GnnloomError: as :func:`~gnnloom.pipeline.ingest.vertices.ingest_vertices`.
    """
    owner = graph or dataset.graph()
    source = _opened(kind, values, owner, shown, asks=asks)
    if like is not None:
        source = stored_like(source, like)
    with open_cluster(cluster) as opened:
        return ingest_vertices(dataset, source, opened, owner, options=storing, allow_others=add)


def plan_vertices(
    kind: VertexKind,
    values: dict[str, Any],
    cluster: ClusterOptions,
    graph: SourceIds,
    *,
    storing: VertexOptions = STORING,
    shown: Callable[[Sequence[Understood]], None] | None = None,
    asks: bool = False,
) -> dict[str, int]:
    """Maximum needs of storing vertex data; arguments as for :func:`store_vertices`.

    Raises:
        InputError, NotFoundError: the source cannot be opened, or leaves open what it is.
    """
    source = _opened(kind, values, graph, shown, asks=asks)
    types = {}
    for array in source.arrays:
        trailing = (source.num_columns(array),) if VERTEX_ARRAYS[array].dims else ()
        types[array] = storing.dtype(array).name, trailing
    phases = stated_vertex_phases(graph.num_vertices, types, cluster.memory, by_id=kind.name == "keyed")
    counted = count(phases)
    return {
        "vertices": graph.num_vertices,
        "tasks": total_tasks(counted),
        "peak_memory": BASE_MEMORY + max(phase.most_memory for phase in counted),
        "temporary_bytes": temporary_bytes(phases),
        "bytes_written": storing.num_bytes(source),
    }


def _opened(
    kind: VertexKind,
    values: dict[str, Any],
    graph: SourceIds,
    shown: Callable[[Sequence[Understood]], None] | None,
    *,
    asks: bool,
) -> VertexSource:
    if graph.type and kind.is_synthetic:
        raise InputError(f"{kind.name}: vertices of a type get data from files only; give feature, label or split")
    source = open_vertices(kind.name, (), values, graph)
    understood = source.understood() if isinstance(source, Legible) and (shown or asks) else ()
    if shown is not None:
        shown(understood)
    if asks and (open_question := next((each for each in understood if each.question), None)):
        raise InputError(f"{open_question.location}: {open_question.question}")
    return source


def vertex_kind(synthetic: str | None, *, by_id: bool) -> VertexKind:
    """The kind of vertex data that was asked for: synthetic, by id, or one row per vertex.

    Raises:
        InputError: there is no such synthetic data.
    """
    kinds = [kind.name for kind in vertex_kinds().values() if kind.is_synthetic]
    if synthetic is not None and synthetic not in kinds:
        raise InputError(f"synthetic {synthetic!r}: expected one of {', '.join(kinds)}")
    return vertex_kinds()[synthetic or ("keyed" if by_id else "files")]
