"""Stores graphs, with the vertex data in their sources: from files, from arrays in memory, or generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.ingest.notes import graph_notes, id_notes, log_notes, vertex_notes
from gnnloom.pipeline.ingest.row_meaning import Rows
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.typed.declared import DeclaredTables
from gnnloom.pipeline.ingest.typed.end_types import notes_on_ratings, relation_of_types
from gnnloom.pipeline.ingest.typed.folders.layouts import described_tables
from gnnloom.pipeline.ingest.typed.notes import typed_notes
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph
from gnnloom.pipeline.ingest.typed.table import Ends, Table
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.ingest.typed.triples import TRIPLES, statement_tables, triples_tables
from gnnloom.pipeline.ingest.typed.type_vertices import ingest_type_vertices
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.ingest.vertex_tables import (
    check_rows,
    check_tables,
    read_as_vertices,
    rows_question,
)
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.format import (
    COLUMNS,
    bundled_vertices,
    formats,
    guess_format,
    open_edges,
)
from gnnloom.pipeline.sources.generators.generator import generators
from gnnloom.pipeline.sources.ntriples import NTRIPLES
from gnnloom.pipeline.sources.source import EdgeSource, VertexSource
from gnnloom.pipeline.sources.understood import Understood, understood_of
from gnnloom.pipeline.sources.vertex_data.table_columns import is_numpy, is_parquet
from gnnloom.storage import Catalog as StoredCatalog
from gnnloom.storage import Dataset as StoredDataset
from gnnloom.storage import Graph, TypedGraph, Vertices
from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.option import options_of
from gnnloom.storage.wording import shell_command
from gnnloom.workflows.api.arrays import (
    as_texts,
    is_hetero,
    is_location,
    stored_edges,
    stored_hetero,
    stored_tables,
)
from gnnloom.workflows.api.catalog import CatalogLike, Dataset, as_catalog, as_dataset
from gnnloom.workflows.api.cluster import CLUSTER, choose_cluster, once_per_job
from gnnloom.workflows.api.options.keywords import (
    check_known,
    plain_values,
    split_fields,
    with_options,
)
from gnnloom.workflows.api.options.python_messages import IN_MEMORY, named_as, python_text

if TYPE_CHECKING:
    from gnnloom.workflows.api.options.option_types import GenerateKeywords, IngestKeywords


_UNTYPED: Final = TypedOptions()
_STORED: Final = VertexOptions()


_INGEST = {**options_of(IngestOptions), **options_of(TypedOptions), **options_of(VertexOptions), **CLUSTER}


@with_options(_INGEST)
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
    """Store edges as the graph of a dataset, along with vertex data that the source contains.

    A repeated call continues an interrupted one. If the graph exists, the call returns it.

    >>> triangle = gnnloom.ingest("triangle", [[0, 1], [1, 2], [2, 0]], undirected=True)
    >>> triangle.graph()
    Graph(3 vertices, 9 nonzeros, symmetric, 1 row block)

    Args:
        name: name of the dataset, which is created if it does not exist.
        source: files, URLs or globs; one folder; or edges in memory: (2, m) or (m, 2) ids ``u, v`` of edges u -> v
            (NumPy, torch, lists); a data frame (pandas, polars, Arrow), with its columns named by ``columns``; a sparse
            matrix of SciPy or torch, whose entry (u, v) is the edge u -> v; a ``Data`` of PyG, or a dataset with one,
            with its features, labels and masks; a ``HeteroData``, which becomes a graph with types, with the features,
            labels and masks of each type; or a graph of networkx or igraph, with the attribute ``weight`` as weights;
            an undirected one implies ``undirected``. Edges in memory are written to a temporary file first.
        relations: instead of a source, the tables of a graph with types, by source type, name of the relation and
            target type, such as ``{("user", "buys", "item"): "clicks.csv:user_id,item_id"}``: the name of a file,
            optionally with its columns, where a column after the ends of edges has a role, as in ``amount as weight``
            or ``fee as feature else 0``; a frame, or a tuple of a frame and its columns; or edges in memory.
        vertices: tables of the vertices of some types, by type: the name of one or several files, optionally with the
            column of ids, ``"users.csv:id"``; a frame, or a tuple of a frame and its columns; or an array of ids.
            Columns after the ids may be followed by ``as feature``, ``as label``, ``as target`` or ``as split``.
        format: format of the files; by default guessed from their names.
        add: store another graph in a dataset that has one; other functions then choose with ``graph``.
        catalog: the catalog or its directory; by default ``$GNNLOOM_CATALOG``, or else ``./catalog``.
        options: how edges become a graph (``undirected``, ``self_loops``, ``ids``, ``merge``, ``codec``); how features
            are stored (``store``); options of the format, as in ``gnnloom ingest --help-all``; and where tasks run:
            ``workers`` processes (0 for none; by default small graphs are sorted by threads of this process, and others
            by one process per core), ``memory`` per worker in bytes or such as ``"512M"``, the address of a Dask
            ``scheduler`` to use instead, and folder and file ``scratch`` and ``performance_report``.

    Raises:
        InputError: the source has no edges or an invalid edge, an option is unknown, or an id is not a number and
            ``ids`` is not ``compact`` or ``names``.
        NotFoundError: a file does not exist.
        ExistsError: the dataset has a graph from another source or with other options, and ``add`` is not given.
        BudgetError: the memory per worker or the disk is too small; raised before any work starts.
    """
    cluster, given = choose_cluster(options)
    of_graph, of_types, of_vertices, others = split_fields(given, IngestOptions, TypedOptions, VertexOptions)
    for each in sorted(others.keys() & VERTEX_ARRAYS.keys()):
        raise InputError(f"ingest: no option {each}; gnnloom.features stores it, after ingest")
    check_known("ingest", others, [*_INGEST, *(option.name for each in formats().values() for option in each.options)])
    graph, how, values = IngestOptions(**of_graph), VertexOptions(**of_vertices), plain_values(others)
    storing = Storing(as_catalog(catalog), name, cluster, graph, TypedOptions(**of_types), how, add)
    locations = as_texts(source) if source is not None and is_location(source) else []

    def store() -> Dataset:
        to, files, called = storing, locations, dict[str, str]()
        with ExitStack() as stack:
            if is_hetero(source):
                files = [stack.enter_context(stored_hetero(source))]
                called = {files[0]: IN_MEMORY}
            elif source is not None and not files:
                file = stack.enter_context(stored_edges(source))
                files, called = [file.location], {file.location: IN_MEMORY}
                if file.undirected and of_graph.get("undirected") is False:
                    raise InputError("undirected=False: the source is an undirected graph; pass graph.to_directed()")
                to = replace(storing, graph=replace(graph, undirected=graph.undirected or file.undirected))
            of_relations, listed = stack.enter_context(stored_tables(relations or {}, vertices or {}))
            for table in chain(of_relations.values(), *listed.values()):
                if table.shown:
                    called[table.locations[0]] = table.shown
            renamed = stack.enter_context(named_as(called))
            opened = to.open(GivenSource(files, format, values, of_relations, listed))
            _, _, notes = to.store(opened)
            # Notes name the keywords of functions instead of flags.
            log_notes(python_text(renamed(note), options_of(IngestOptions)) for note in notes)
        return as_dataset(name, catalog)

    return once_per_job(store)


def typed_source(locations: Sequence[str], format_name: str | None, values: Mapping[str, Any]) -> DeclaredTables | None:
    """The tables of a graph with types, if the format or the headers define types; None for other sources.

    Args:
        values: options of the format.

    Raises:
        NotFoundError: a file does not exist.
        InputError: a header is incomplete.
    """
    if format_name == TRIPLES:
        return triples_tables(locations, values)
    if len(locations) == 1 and (found := described_tables(locations[0], format_name, values)) is not None:
        return found
    chosen = format_name or guess_format(locations)
    if chosen == NTRIPLES and not values.get("columns"):
        return statement_tables(locations, values)
    return DeclaredTables.of(locations, values) if chosen == "snap" else None


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

    >>> gnnloom.generate("grid", "lattice", size=(20, 30)).graph().num_vertices
    600

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
    graph = IngestOptions(undirected=not directed, codec=codec)
    storing = Storing(as_catalog(catalog), name, cluster, graph, add=add)

    def store() -> Dataset:
        storing.store(OpenedSource(edges, vertices))
        return as_dataset(name, catalog)

    return once_per_job(store)


@dataclass(frozen=True)
class GivenSource:
    """Source of a graph: files of edges or, for a graph with types, tables of its relations.

    Attributes:
        locations: files, URLs or globs; none with relations.
        format: format of the files; None to guess it.
        values: options of the format.
        relations, vertices: tables of a graph with types.
    """

    locations: Sequence[str]
    format: str | None
    values: Mapping[str, Any]
    relations: Mapping[Ends, Table]
    vertices: Mapping[str, Sequence[Table]]

    def declared(self, typed: TypedOptions) -> DeclaredTables | None:
        """The tables of a graph with types that the files themselves define; None if they define none.

        Args:
            typed: options of graphs with types.

        Raises:
            InputError: both files and relations are given, or neither; or something does not go with the files.
        """
        if self.relations:
            if self.locations:
                raise InputError("relations: a graph has either a source of edges or relations; leave one of them out")
            return None
        if not self.locations:
            raise InputError("source: expected edges, found NoneType; pass edges, or the tables of relations")
        found = typed_source(self.locations, self.format, self.values)
        if found is not None and self.vertices:
            raise InputError("vertices: the files define their vertices; leave the option out")
        changed = [name for name, value in vars(typed).items() if value != getattr(_UNTYPED, name)]
        if found is None and (given := [*(["vertices"] if self.vertices else []), *changed]):
            raise InputError(f"{given[0]}: only graphs with types have it; give their relations (`--relation`)")
        return found


@dataclass(frozen=True)
class OpenedSource:
    """Edges and the vertex data that come along with them, before they are stored.

    Attributes:
        vertices: vertex data in the source; None if there is none.
        understood: how the files are read.
        notes: notes on the files to print when the graph is stored.
    """

    edges: EdgeSource
    vertices: VertexSource | None
    understood: Sequence[Understood] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Storing:
    """The place of a graph and its vertex data in a catalog, and how they are stored.

    Attributes:
        name: name of the dataset.
        cluster: runs the tasks.
        graph: how edges become a graph.
        typed: options of graphs with types.
        vertices: how vertex data are stored.
        add: allow the dataset to have other graphs.
    """

    catalog: StoredCatalog
    name: str
    cluster: ClusterOptions
    graph: IngestOptions
    typed: TypedOptions = _UNTYPED
    vertices: VertexOptions = _STORED
    add: bool = False

    def open(
        self, given: GivenSource, shown: Callable[[Sequence[Understood]], None] | None = None
    ) -> OpenedSource | TypedTables:
        """Open the source of a graph, and find out how its files are read.

        Args:
            shown: called with the reading of the files, before the reading of edges is checked.

        Returns:
            Edges with vertex data, or the tables of a graph with types.

        Raises:
            GnnloomError: as :func:`~gnnloom.pipeline.sources.format.open_edges` and :meth:`TypedTables.open`. The
                message says so if a table can only be a table of vertices.
        """
        declared, any_name = given.declared(self.typed), self.graph.ids == "names"
        if declared is not None:
            tables = declared.open(given.values, any_name=any_name, unknown=self.typed.unknown)
        elif given.relations:
            named = given.relations, given.vertices, given.values, given.format
            tables = TypedTables.open(*named, any_name=any_name)
        else:
            return self._open_edges(given.locations, given.format, given.values, shown)
        if self.vertices != _STORED and not tables.data:
            store = self.vertices.store
            raise InputError(f"store {store}: no table of vertices has a column with a feature, label or split")
        if shown is not None:
            shown(tables.understood())
        return tables

    def _open_edges(
        self,
        locations: Sequence[str],
        format_name: str | None,
        values: Mapping[str, Any],
        shown: Callable[[Sequence[Understood]], None] | None,
    ) -> OpenedSource:
        chosen = format_name or guess_format(locations)
        try:
            edges = open_edges(chosen, locations, values, undirected=self.graph.undirected)
        except InputError as error:
            # Text files are opened whatever they contain.
            is_table = len(locations) == 1 and (is_parquet(locations[0]) or is_numpy(locations[0]))
            reading = read_as_vertices(locations[0]) if is_table and not values.get("columns") else None
            if reading is None or reading.has_edges or reading.rows is not Rows.VERTEX:
                raise
            raise rows_question(reading, self.name) from error
        if COLUMNS in formats()[chosen].options:
            check_tables(locations, values)
        understood = understood_of(edges, locations, chosen)
        if shown is not None:
            shown(understood)
        if not values.get("columns") and (typed := relation_of_types(understood[0], locations[0], "edges")):
            raise InputError(
                f"{locations[0]}: the rows have the types of both ends; `{shell_command('--relation', typed)}` instead"
                " of the file stores a graph with types, and `--columns` with the columns of both ends one without"
            )
        bundled = bundled_vertices(format_name, locations, values)
        notes = check_rows(understood, self.name, values, stores_data=bundled is not None)
        notes += [*id_notes(understood), *notes_on_ratings(understood, self.name, format_name)]
        return OpenedSource(edges, bundled, understood, notes)

    def store(self, source: OpenedSource | TypedTables) -> tuple[Graph | TypedGraph, list[Vertices], list[str]]:
        """Store a graph and its vertex data, and return them with notes about them.

        Raises:
            GnnloomError: as the stages of :mod:`gnnloom.pipeline.ingest`.
        """
        # One cluster for both stages, because starting workers takes seconds.
        with self._dataset() as dataset, open_cluster(self.cluster) as opened:
            if isinstance(source, TypedTables):
                typed = ingest_typed_graph(dataset, source, self.graph, self.typed, opened, allow_others=self.add)
                data = ingest_type_vertices(dataset, typed, source.data, opened, self.vertices, allow_others=self.add)
                return typed, data, [*typed_notes(typed), *(note for each in data for note in vertex_notes(each))]
            graph = ingest_graph(dataset, source.edges, self.graph, opened, allow_others=self.add)
            data, owner = [], graph if self.add else None
            if source.vertices is not None:
                data = [ingest_vertices(dataset, source.vertices, opened, owner, options=self.vertices)]
        notes = [*graph_notes(graph, source.edges, self.graph), *source.notes]
        return graph, data, [*(note for each in data for note in vertex_notes(each)), *notes]

    @contextmanager
    def _dataset(self) -> Iterator[StoredDataset]:
        """Make or find the dataset; if the block fails, remove a new dataset that holds nothing to finish."""
        had_catalog, is_new = self.catalog.root.exists(), self.name not in self.catalog
        dataset = self.catalog.create(self.name)
        try:
            yield dataset
        except GnnloomError:
            # The work of an interrupted command is kept: the same command finishes it.
            if is_new and not dataset.artifacts():
                # Another process may have begun to write there.
                with suppress(GnnloomError, OSError):
                    self.catalog.remove(self.name)
                    if not had_catalog:
                        self.catalog.root.rmdir()
            raise
