"""The ingest stage of graphs with types: tables of vertices and relations become one graph artifact."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.ingest.calibration import calibrate
from gnnloom.pipeline.ingest.keys.arrays import write_key_arrays
from gnnloom.pipeline.ingest.preparation import as_unpacked, prepared_source
from gnnloom.pipeline.ingest.projection import IngestProjection, Resources, extrapolate
from gnnloom.pipeline.ingest.stage import IngestOptions, check_others, discarding
from gnnloom.pipeline.ingest.typed.divide import DividePlan, Division
from gnnloom.pipeline.ingest.typed.edge_columns import ColumnsPlan, TableRows, store_columns, value_facts
from gnnloom.pipeline.ingest.typed.numbering import KeyInput, NumberedType, collect_keys, inputs_of, number_spaces
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.relations import NumberedRelation, NumberedRelations, number_relations
from gnnloom.pipeline.ingest.typed.tables import RelationTable, TypedTables
from gnnloom.pipeline.ingest.vertex_rows import stated_vertex_phases
from gnnloom.pipeline.matrix_sort.bucket_sort import SortedMatrix, sort_edges
from gnnloom.pipeline.matrix_sort.sort_plan import SortOptions
from gnnloom.pipeline.shuffle.columns import row_bytes
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.tasks.cluster import Cluster, ThreadedCluster, for_work
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.pipeline.tasks.phase import count, repairing, temporary_bytes
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph, relation_folder, type_folder
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.files import tree_bytes
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, artifact_key
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS
from gnnloom.storage.matrix.csr import TIME_BYTES, WEIGHT_BYTES

#: Figures of a projection that are taken from the largest table; other figures are added up.
_LARGEST: Final = ("workers", "processes", "peak_memory", "memory_limit_bytes", "disk_free_bytes", "compressed_bytes")


def project_typed_ingest(
    tables: TypedTables, options: IngestOptions, folder: Path, workers: int, memory: int
) -> IngestProjection:
    """Project an ingest from short calibrations, without running it.

    Args:
        tables: what would be ingested.
        options: how the tables would become a graph.
        folder: where the files would go; the calibrations write some here and remove them.
        workers: tasks at a time.
        memory: bytes that one worker may use.

    Raises:
        InputError: a sample cannot be read, or an option does not apply.
        BudgetError: the memory per worker is too small, or the ingest needs more memory or disk than there is.
    """
    _check_options(tables, options)
    projection, vertices = _project(tables, tables.ids, options, Resources.at(folder, workers, memory), folder)
    return _with_vertex_data(projection, tables, vertices, memory)


def _check_options(tables: TypedTables, options: IngestOptions) -> None:
    """Refuse what relations cannot have.

    Raises:
        InputError: an option does not apply, or times would be added up.
    """
    if options.undirected:
        raise InputError("undirected: relations have a direction; their reverses are derived, under the name rev_NAME")
    for relation in tables.relations:
        if relation.columns and options.merge not in {"keep", "first"}:
            raise InputError(
                f"{relation.location}, relation {relation.name}: edges with several values cannot be merged; use"
                " --merge keep to keep every edge, or first for the first edge in the file"
            )
        if getattr(relation.edges, "times", False) and options.merge in {None, "sum"}:
            raise InputError(
                f"{relation.location}, relation {relation.name}: times of parallel edges cannot be added; use --merge"
                " keep to keep every edge, max for the latest time, min for the earliest, or first for the first"
            )


def _project(
    tables: TypedTables, ids: Mapping[str, str], options: IngestOptions, resources: Resources, folder: Path
) -> tuple[IngestProjection, dict[str, int]]:
    """Add up the needs of the tables, each on its own; returns them, and the number of vertices by id space."""
    vertices = dict.fromkeys(ids, 0)
    found: list[IngestProjection] = []
    relations = {KeyInput.of_relation(each).name: each for each in tables.relations}
    for table in inputs_of(tables):
        kind = "names" if "names" in (ids[each] for each in table.spaces) else "compact"
        calibrated = calibrate(as_unpacked(table.source), False, kind, options.codec, folder)
        if not table.is_list and relations[table.name].columns is not None:
            # The number of its row moves with an edge, as a time would.
            calibrated = replace(calibrated, value_bytes=TIME_BYTES)
        projection = extrapolate(calibrated, False, resources, options.merge)
        if table.is_list:
            # Only its keys are sorted and stored.
            projection = replace(projection, edges=0, edges_low=0, edges_high=0, entries=0, blocks=0, output_bytes=0)
        else:
            projection = _with_values(_divided(projection, tables, relations[table.name]), relations[table.name])
        found.append(projection)
        for each in table.spaces:
            vertices[each] = max(vertices[each], projection.vertices // len(table.spaces))
    summed = {
        name: (max if name in _LARGEST else sum)(getattr(each, name) for each in found)
        for name, value in found[0].to_json().items()
        if not isinstance(value, bool)
    }
    whole = replace(
        found[0],
        **{name: type(value)(summed[name]) for name, value in found[0].to_json().items() if name in summed},
    )
    name_bytes = max(each.name_bytes for each in found)
    whole = replace(whole, vertices=sum(vertices.values()), name_bytes=name_bytes, seconds=round(whole.seconds, 2))
    whole.check()
    return whole, vertices


def _divided(projection: IngestProjection, tables: TypedTables, table: RelationTable) -> IngestProjection:
    """A projection with the division of the table's edges among its relations, if it has several."""
    words = _known_words(table)
    division = Division(words, len(tables.types_of(table.source)), len(tables.types_of(table.target)))
    if table.kinds is None and division.num_positions == 1:
        return projection
    values = TIME_BYTES if projection.has_times or table.columns else WEIGHT_BYTES if projection.weighted else 0
    phases = DividePlan.stated(projection.edges, projection.ranges, division, values).phases
    memory = BASE_MEMORY + max((each.most_memory for each in count(phases)), default=0)
    return replace(
        projection,
        # Every relation has a task of each pass at least.
        ranges=max(projection.ranges, words),
        blocks=max(projection.blocks, words),
        # Next to its ends, each edge has its word until it is divided.
        spill_bytes=projection.spill_bytes + temporary_bytes(phases) + 4 * projection.edges * (words > 1),
        peak_memory=max(projection.peak_memory, memory),
    )


def _known_words(table: RelationTable) -> int:
    """Words for relations in a table; one before they are counted, when the work begins."""
    return 1 if table.kinds is None else len(table.kinds.names or ()) or 1


def _with_values(projection: IngestProjection, table: RelationTable) -> IngestProjection:
    """A projection with the values that are stored next to the edges of the table."""
    if table.columns is None:
        return projection
    columns = tuple(table.columns.arrays.values())
    counts = projection.edges, projection.entries, projection.ranges, projection.blocks
    phases = ColumnsPlan.stated(*counts, columns, _known_words(table)).phases
    return replace(
        projection,
        # Each entry also has the number of its row.
        output_bytes=projection.output_bytes + projection.entries * (8 + row_bytes(columns)),
        spill_bytes=projection.spill_bytes + temporary_bytes(phases),
        peak_memory=max(projection.peak_memory, BASE_MEMORY + max(each.most_memory for each in count(phases))),
        has_times=False,
    )


def _with_vertex_data(
    projection: IngestProjection, tables: TypedTables, vertices: Mapping[str, int], memory: int
) -> IngestProjection:
    """A projection with the data of vertices, which are stored after the graph, one type after another.

    Args:
        vertices: number of vertices by id space.
        memory: bytes that a worker may use.

    Raises:
        BudgetError: they do not fit.
    """
    stored, temporary, held = 0, 0, 0
    for each in tables.data:
        source = each.open(None)
        # Words are counted before they are read; until then, a column of words is one feature.
        widths = {array: (source.num_columns(array),) if VERTEX_ARRAYS[array].dims else () for array in source.arrays}
        types = {array: (VERTEX_ARRAYS[array].dtype.name, width) for array, width in widths.items()}
        spaces = {tables.vertices[number].space for number in each.tables} or {each.type}
        phases = stated_vertex_phases(sum(vertices[space] for space in spaces), types, memory, by_id=each.has_ids)
        counted = count(phases)
        stored += sum(task.needs.writes for phase in phases if phase.makes_arrays for task in phase.tasks)
        temporary = max(temporary, temporary_bytes(phases))
        held = max(held, BASE_MEMORY + max(found.most_memory for found in counted))
    whole = replace(
        projection,
        spill_bytes=max(projection.spill_bytes, temporary),
        vertex_bytes=projection.vertex_bytes + stored,
        peak_memory=max(projection.peak_memory, held),
    )
    whole.check()
    return whole


def typed_graph_key(tables: TypedTables, options: IngestOptions, typed: TypedOptions) -> str:
    """The key of the artifact that :func:`ingest_typed_graph` makes or finds.

    Raises:
        InputError: an option does not apply, so that there is no such artifact.
    """
    _check_options(tables, options)
    return artifact_key("graph", tables.parameters(options, typed), {}, TYPED_VERSION)


@repairing
def ingest_typed_graph(
    dataset: Dataset,
    tables: TypedTables,
    options: IngestOptions,
    typed: TypedOptions,
    cluster: Cluster,
    *,
    allow_others: bool = False,
) -> TypedGraph:
    """Store tables as a graph with types, finish one that was begun, or find one that is complete.

    The entry A[i, j] of a relation is the edge from vertex j of the source type to vertex i of the target type. Rows
    are sorted and duplicates merged. Vertices of each type are numbered in ascending order of their ids.

    Args:
        dataset: dataset that gets the graph.
        tables: tables of relations and vertices.
        options: how they become a graph; ``undirected`` must not be set, and no self loops are added.
        typed: further options.
        cluster: where the tasks run.
        allow_others: allow the dataset to have other graphs.

    Raises:
        ExistsError: the dataset has another graph, and others are not allowed.
        InputError: a table has no rows or something that is not an id, or an edge has an end that no table lists.
        BudgetError: the memory per worker or the disk is too small; raised before the work begins.
    """
    key, parameters = typed_graph_key(tables, options, typed), tables.parameters(options, typed)
    check_others(dataset, key, parameters, allowed=allow_others)
    with ArtifactWriter.begin(dataset.path, "graph", parameters, {}, cluster.scratch, TYPED_VERSION) as writer:
        if writer.is_complete:
            return TypedGraph(Artifact(writer.path))
        with discarding(writer):
            ids = tables.ids
            tables = _prepared(writer, tables, cluster)
            resources = Resources.at(writer.work, cluster.workers, cluster.memory)
            projection, _ = _project(tables, ids, options, resources, writer.work)
            # Threads, if that is faster than starting workers.
            cluster = for_work(cluster, projection.work)
            if isinstance(cluster, ThreadedCluster):
                projection = projection.in_one_process()
            started = time.perf_counter()
            collected = collect_keys(writer, tables, ids, cluster)
            spaces = number_spaces(writer, collected, tables, typed.unknown, cluster)
            # All vertices of one of several types may have another type too, which counts.
            having = (each for space in spaces.values() for each in space.types if each.count or len(space.types) == 1)
            types = sorted(having, key=lambda each: each.name)
            _check_types(types)
            found = number_relations(writer, collected, tables, spaces, cluster)
            matrices = [_sort(writer, each, options.sort, cluster) for each in found.relations]
            stored = _store_columns(writer, found.relations, matrices, options.codec, cluster)
            stored += [
                name
                for each in types
                for name in write_key_arrays(writer, each.table, options.codec, cluster, type_folder(each.name))
            ]
            literals = sum(getattr(each.edges, "literals", 0) or 0 for each in tables.relations)
            return _commit(writer, types, found, matrices, stored, literals, projection, started)


def _check_types(types: Sequence[NumberedType]) -> None:
    """Refuse vertices of two id spaces that have one type.

    Raises:
        InputError: there are some.
    """
    names = [each.name for each in types]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise InputError(
            f"type {repeated}: vertices of two tables have this type and ids of their own; rename one of them"
        )


def _prepared(writer: ArtifactWriter, tables: TypedTables, cluster: Cluster) -> TypedTables:
    """The same tables, which tasks can share."""
    names = [each.name for each in inputs_of(tables)]
    sources = [each.source for each in inputs_of(tables)]
    ready: list[EdgeSource] = [
        prepared_source(writer, source, cluster, f"{name}/") for name, source in zip(names, sources, strict=True)
    ]
    kinds = [
        None if each.kinds is None else prepared_source(writer, each.kinds, cluster, f"{each.name}/kinds/")
        for each in inputs_of(tables)
    ]
    lists = len(tables.vertices)
    of_lists, of_relations = zip(ready[:lists], kinds, strict=False), zip(ready[lists:], kinds[lists:], strict=True)
    vertices = [
        replace(each, rows=rows, kinds=own) for each, (rows, own) in zip(tables.vertices, of_lists, strict=True)
    ]
    relations = [
        replace(
            each,
            edges=edges,
            kinds=own,
            columns=prepared_source(writer, each.columns, cluster, f"{KeyInput.of_relation(each).name}/columns/"),
        )
        for each, (edges, own) in zip(tables.relations, of_relations, strict=True)
    ]
    return TypedTables(tuple(relations), tuple(vertices))


def _store_columns(
    writer: ArtifactWriter,
    relations: Sequence[NumberedRelation],
    matrices: Sequence[SortedMatrix],
    codec: str,
    cluster: Cluster,
) -> list[str]:
    """Store the columns next to the edges, table by table; returns the names of the tasks that write arrays."""
    tables: dict[str, tuple[TableRows, list[tuple[str, SortedMatrix]]]] = {}
    for each, matrix in zip(relations, matrices, strict=True):
        # A relation without edges has no values either.
        if each.columns is not None and matrix.facts(symmetric=False)["nnz"]:
            found = tables.setdefault(each.columns.name, (each.columns, []))
            found[1].append((relation_folder(each.name), matrix))
    return [name for found in tables.values() for name in store_columns(writer, *found, codec, cluster)]


def _sort(writer: ArtifactWriter, relation: NumberedRelation, options: SortOptions, cluster: Cluster) -> SortedMatrix:
    """Sort the edges of a relation into its row blocks."""
    # Numbers of different types may be equal by chance.
    drops_loops = options.self_loops == "remove" and relation.source is relation.target
    sorting = replace(
        options,
        self_loops="remove" if drops_loops else "keep",
        merge=options.merge or "sum",
        compares_directions=False,
        # Numbers of rows travel as times do.
        has_ticks=bool(relation.time_unit) or relation.columns is not None,
        values="row" if relation.columns is not None else "",
    )
    shape = relation.target.count, relation.source.count
    return sort_edges(writer, relation.edges, sorting, cluster, shape, relation_folder(relation.name))


def _commit(
    writer: ArtifactWriter,
    types: Sequence[NumberedType],
    numbered: NumberedRelations,
    matrices: Sequence[SortedMatrix],
    stored: Sequence[str],
    literals: int,
    projection: IngestProjection,
    started: float,
) -> TypedGraph:
    """Publish the graph.

    Args:
        types: in the order of their vertices.
        numbered: the relations.
        matrices: of the relations.
        stored: names of the tasks that wrote the ids of vertices.
        literals: statements of N-Triples with a literal, which are left out.
        started: when the work began (``time.perf_counter``).
    """
    relations, spill_bytes = [], 0
    for relation, matrix in zip(numbered.relations, matrices, strict=True):
        relations.append(_relation_facts(relation, matrix))
        spill_bytes += matrix.sizes.spill_bytes + relation.spill_bytes
    vertices, type_facts = 0, []
    for each in types:
        type_facts.append(each.to_facts(vertices))
        vertices += each.count
    outcome = {
        "edges": sum(each["edges_in"] for each in relations),
        "vertices": vertices,
        "entries": sum(matrix.sizes.entries for matrix in matrices),
        "ranges": sum(matrix.sizes.num_ranges for matrix in matrices),
        "blocks": sum(matrix.sizes.num_blocks for matrix in matrices),
        "peak_memory": max(record.peak_memory for record in writer.recorded().values()),
        "spill_bytes": spill_bytes,
        "output_bytes": tree_bytes(writer.path) - tree_bytes(writer.work),
        "seconds": round(time.perf_counter() - started, 4),
    }
    facts: dict[str, Any] = {
        "types": type_facts,
        "relations": relations,
        **{name: sum(each[name] for each in relations) for name in ("nnz", "edges_in", "self_loops", "duplicates")},
    }
    if numbered.left_out:
        facts |= {"left_out": numbered.left_out, "edges_in": facts["edges_in"] + numbered.left_out}
    facts |= {"literals": literals} if literals else {}
    measured = {
        "spill_bytes": outcome["spill_bytes"],
        "bytes_written": outcome["output_bytes"],
        "seconds": outcome["seconds"],
        "plan": projection.against(outcome),
    }
    names = [name for matrix in matrices for name in matrix.tasks]
    return TypedGraph(writer.commit([*names, *stored], {"vertex": vertices}, facts, measured))


def _relation_facts(relation: NumberedRelation, matrix: SortedMatrix) -> dict[str, Any]:
    """Facts about a relation for the manifest."""
    facts = matrix.facts(symmetric=False, time_unit=relation.time_unit)
    if relation.columns is not None and facts["nnz"]:
        facts = value_facts(facts, relation.columns)
    # Of a matrix whose rows and columns are the same vertices.
    for name in ("symmetric", "min_id"):
        facts.pop(name, None)
    if relation.source is not relation.target:
        facts["self_loops"] = 0
    left_out = relation.edges_in - facts["edges_in"]
    ends = {"name": relation.name, "source": relation.source.name, "target": relation.target.name}
    if relation.word not in {"", relation.name}:
        ends["word"] = relation.word
    return {**ends, **facts, "edges_in": relation.edges_in, **({"left_out": left_out} if left_out else {})}
