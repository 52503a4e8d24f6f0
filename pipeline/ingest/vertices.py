"""The stage that stores features, labels and the split of a graph's vertices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gnnloom.pipeline.ingest.preparation import prepared_source
from gnnloom.pipeline.ingest.stage import discarding
from gnnloom.pipeline.ingest.tables.lookup import VertexBuckets, id_bytes
from gnnloom.pipeline.ingest.tables.routed_table import RowCounts
from gnnloom.pipeline.ingest.tables.routing import TablePlan
from gnnloom.pipeline.ingest.vertex_notes import TASK_FACTS, noted
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.ingest.vertex_rows import ArrayPlan, add_facts, task_rows, vertex_phases
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.sources.source import KeyedSource, SeparableSource, VertexData, VertexSource
from gnnloom.pipeline.sources.vertex_data.class_names import names_of
from gnnloom.pipeline.tasks.cluster import Cluster, for_few
from gnnloom.pipeline.tasks.phase import repairing, run
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.differences import differences, in_words, is_of_content
from gnnloom.storage.disk.files import JsonObject
from gnnloom.storage.errors import ExistsError, InputError
from gnnloom.storage.format.arrays import create_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter, TaskRecord, artifact_key
from gnnloom.storage.format.vertex_arrays import LABELS, VERTEX_ARRAYS
from gnnloom.storage.wording import counted, shell_command

_DEFAULTS: Final = VertexOptions()


@repairing
def ingest_vertices(
    dataset: Dataset,
    source: VertexSource,
    cluster: Cluster,
    graph: SourceIds | None = None,
    *,
    options: VertexOptions = _DEFAULTS,
    allow_others: bool | None = None,
    has_other_rows: bool = False,
) -> Vertices:
    """Store features, labels and split for the vertices of the dataset's graph.

    If ingest compacted the ids, row k of the source belongs to the vertex whose original id is k. There are two
    exceptions: a source that is in the order of the stored graph, and ids that were names. Row k then belongs to vertex
    k (of the k-th name).

    Args:
        dataset: dataset of the graph.
        source: the rows.
        cluster: where the tasks run.
        graph: one of several graphs of the dataset, or the ids of one type of a graph with types; by default, the
            dataset's only graph.
        options: how they are stored.
        allow_others: allow the graph to have other vertex data; readers must then pass a key. By default, if ``graph``
            is given.
        has_other_rows: the source also has rows of other vertices, which are not counted as left out.

    Raises:
        InputError: the number of rows does not match the graph, or something in the source cannot be used; the message
            names file or array, and line or row.
        ExistsError: the dataset has vertex data made from something else, and others are not allowed.
        NotFoundError: the dataset has no graph.
    """
    owner = graph or dataset.graph()
    for array in source.arrays:
        one = _source_of(source, array)
        if VERTEX_ARRAYS[array].dims and not source.num_columns(array):
            raise InputError(f"{_location(one, array)}: no column of {array}s; expected at least one number per vertex")
        _check_rows(owner, one)
    if len({*LABELS} & {*source.arrays}) > 1:
        raise InputError("the vertex data has labels (classes) and targets (numbers to predict); give only one of them")
    parameters = _parameters(source.identity(), options, owner.type)
    inputs = {"graph": owner.artifact.key}
    if not (graph is not None if allow_others is None else allow_others):
        _check_others(dataset, inputs["graph"], parameters)
    with ArtifactWriter.begin(dataset.path, "vertices", parameters, inputs, cluster.scratch) as writer:
        if not writer.is_complete:
            with discarding(writer):
                ready = prepared_source(writer, source, cluster)
                _write(writer, ready, options, owner, cluster, has_other_rows=has_other_rows)
    return Vertices(Artifact(writer.path))


def vertices_key(identity: JsonObject, graph_key: str, options: VertexOptions = _DEFAULTS, of_type: str = "") -> str:
    """The key of the artifact that :func:`ingest_vertices` makes or finds.

    Args:
        identity: identity of the source.
        graph_key: key of the graph that the vertices belong to.
        options: how they are stored.
        of_type: name of their type; empty in a graph without types.
    """
    return artifact_key("vertices", _parameters(identity, options, of_type), {"graph": graph_key})


def _parameters(identity: JsonObject, options: VertexOptions, of_type: str) -> dict[str, Any]:
    return {"source": identity, **options.parameters, **({"type": of_type} if of_type else {})}


def _check_rows(graph: SourceIds, source: VertexData) -> None:
    rows = source.num_vertices()
    if _selects(graph, source):
        last = int(graph.original_id(graph.num_vertices - 1)[0]) if graph.num_vertices else -1
        if rows <= last:
            is_from_one = rows == last and not graph.has_names and int(graph.original_id(0, 1)[0]) == 1
            remedy = "; if row 0 belongs to vertex 1, write the ids before the rows, and add `--by-id`"
            raise InputError(
                f"the vertex data has {counted(rows, 'row')}, but vertex ids of the graph's source go up to {last:,};"
                f" row k must belong to the vertex that the source of the edges calls k{remedy if is_from_one else ''}"
            )
    elif rows != graph.num_vertices:
        raise InputError(
            f"the vertex data has {counted(rows, 'row')}, the graph {counted(graph.num_vertices, 'vertex')}; expected"
            " one row per vertex, or ids of the rows (`--by-id` or `--ids-file`)"
        )


def _selects(graph: SourceIds, source: VertexData) -> bool:
    return graph.has_numbers and not source.in_graph_order


def _check_others(dataset: Dataset, graph_key: str, parameters: Mapping[str, Any]) -> None:
    key, stored = artifact_key("vertices", parameters, {"graph": graph_key}), dataset.artifacts("vertices")
    if any(info.key == key and info.state == "complete" for info in stored):
        return
    for info in stored:
        alike = info.inputs.get("graph") == graph_key and info.parameters.get("type") == parameters.get("type")
        if info.state == "complete" and info.key != key and alike:
            found, new = differences([info.parameters, parameters])
            of_type = parameters.get("type")
            choose = "`--vertices KEY` when sharding" if of_type is None else f"--vertex-data {of_type}=KEY in training"
            there = f"from another source: {info.key} ({in_words(found)}), not {in_words(new)}"
            if is_of_content(new):
                words = "catalog", "rm", dataset.name, "--artifact", f"vertices/{info.key}"
                there = (
                    "from these files already, and the files have changed since; remove it with"
                    f" `{shell_command('gnnloom', *words)}`"
                )
            raise ExistsError(
                f"dataset {dataset.name} has vertex data {there}; to keep both, repeat the command with `--add`, and"
                f" choose with {choose}"
            )


def _write(
    writer: ArtifactWriter,
    source: VertexSource,
    options: VertexOptions,
    graph: SourceIds,
    cluster: Cluster,
    *,
    has_other_rows: bool,
) -> None:
    widths = {dim: source.num_columns(array) for array in source.arrays for dim in VERTEX_ARRAYS[array].dims}
    sizes = {"vertex": graph.num_vertices, "feature": 0} | widths
    chosen = for_few(cluster, sizes["vertex"] * sum(map(source.num_columns, source.arrays)))
    arrays: list[ArrayPlan] = []
    for array in source.arrays:
        dims = ("vertex", *VERTEX_ARRAYS[array].dims)
        shape = tuple(sizes[dim] for dim in dims)
        create_array(writer.path, array, shape, options.dtype(array), dims)
        arrays.append(_array_plan(writer, _source_of(source, array), array, shape, options, graph, chosen.memory))
    names = run(vertex_phases(arrays), chosen, writer)
    found = writer.recorded_of(names)
    of_tables = {each.array: _table_facts(each, found) for each in arrays if each.table is not None}
    _check_placed(source, graph, of_tables)
    total, known = {"num_classes": 0}, {*RowCounts().to_facts(), *TASK_FACTS}
    for name in names:
        total = add_facts(total, {fact: count for fact, count in found[name].facts.items() if fact not in known})
    facts: dict[str, Any] = {**total, **({} if has_other_rows else _left_out(graph, source, of_tables))}
    each = [_source_of(source, array) for array in source.arrays]
    if class_names := names_of(each):
        facts |= {"class_names": list(class_names)}
    if layout := next((layout for one in each if (layout := getattr(one, "feature_columns", ()))), ()):
        facts |= {"feature_columns": list(layout)}
    facts |= noted({name: found[name].facts for name in names}, total["num_classes"], class_names)
    writer.commit(names, sizes, facts)


def _source_of(source: VertexSource, array: str) -> VertexData:
    """The source of one array: arrays from different files may be in different orders."""
    return source.source_of(array) if isinstance(source, SeparableSource) else source


def _location(one: VertexData, array: str) -> str:
    """Name of an array's source in errors: its file, if the array has a file of its own."""
    return one.location if isinstance(one, KeyedSource) else array


def _array_plan(
    writer: ArtifactWriter,
    one: VertexData,
    array: str,
    shape: tuple[int, ...],
    options: VertexOptions,
    graph: SourceIds,
    memory: int,
) -> ArrayPlan:
    """Plan that brings the rows of one array to their vertices.

    Args:
        one: the source of the array.
    """
    dtype = options.dtype(array)
    if isinstance(one, KeyedSource):
        values = Column("value", VERTEX_ARRAYS[array].dtype.name, shape[1:])
        scratch = writer.scratch
        rows_of_task = task_rows(shape, dtype, scratch)
        buckets = VertexBuckets(graph.num_vertices, rows_of_task, values, id_bytes(graph), scratch.bucket_bytes)
        rows = one.num_vertices()
        num_bytes = rows * (values.num_bytes + buckets.id_bytes)
        where = (writer, graph.folder, one)
        return ArrayPlan(
            array, shape, dtype, TablePlan(array, buckets, one.ranges(), rows, num_bytes, memory, *where), writer
        )
    if isinstance(one, VertexSource):
        compacted = graph.folder if _selects(graph, one) else None
        return ArrayPlan(array, shape, dtype, None, writer, one, compacted, one.random_access)
    raise InputError(f"{array}: the rows of the source have neither ids nor the order of the vertices")


def _check_placed(source: VertexSource, graph: SourceIds, of_tables: Mapping[str, Mapping[str, int]]) -> None:
    """Refuse tables without any row of the graph's vertices, or with few if every vertex needs a row."""
    for array, facts in of_tables.items():
        where = _location(_source_of(source, array), array)
        if not facts["placed"]:
            raise InputError(f"{where}: none of the ids is a vertex of the graph")
        if VERTEX_ARRAYS[array].fill is None and facts["missing"] >= 0:
            first, count = facts["missing"], graph.num_vertices - facts["placed"]
            name = graph.original_name(first, first + 1) if graph.has_names else graph.original_id(first, first + 1)
            smallest = graph.artifact.facts.get("min_id", 0)
            others = "" if graph.type else ", or store a graph with types, so that each type has its own features"
            do = f"add a row for every vertex{others}"
            if first < smallest:
                do = f"ids of edges begin at {smallest:,}, and `--ids compact` stores no others"
            raise InputError(f"{where}: {counted(count, 'vertex')} without {array}s; the first is {name[0]}; {do}")


def _table_facts(plan: ArrayPlan, recorded: Mapping[str, TaskRecord]) -> dict[str, int]:
    """Counts of a table's rows: placed, left out, and the first vertex without a row (-1 if every vertex has one)."""
    found = [recorded[task.name].facts for task in plan.tasks()]
    return {
        "placed": sum(facts["placed"] for facts in found),
        "left_out": sum(facts["left_out"] for facts in found) + (plan.table.num_unknown() if plan.table else 0),
        # Tasks are in the order of the vertices.
        "missing": next((facts["missing"] for facts in found if facts["missing"] >= 0), -1),
    }


def _left_out(graph: SourceIds, source: VertexSource, of_tables: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Number of rows of vertices that the graph does not have, as they have no edge; empty if there are none."""
    by_row = [
        one.num_vertices() - graph.num_vertices
        for one in (_source_of(source, array) for array in source.arrays)
        if _selects(graph, one)
    ]
    most = max([*by_row, *(facts["left_out"] for facts in of_tables.values())], default=0)
    return {"left_out": most} if most else {}
