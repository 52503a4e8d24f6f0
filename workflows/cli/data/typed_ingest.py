"""`gnnloom ingest --relation ...`: from tables to a stored graph with types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.pipeline.ingest.notes import vertex_notes
from gnnloom.pipeline.ingest.projection import IngestProjection
from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.notes import typed_notes
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import project_typed_ingest
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.storage import TypedGraph, Vertices
from gnnloom.storage.option import Group, Option
from gnnloom.workflows.api.ingest import store_typed
from gnnloom.workflows.cli.data.shown_types import show_types, types_json
from gnnloom.workflows.cli.terminal.options import current_catalog
from gnnloom.workflows.cli.terminal.output import show
from gnnloom.workflows.cli.terminal.progress import shown_progress
from gnnloom.workflows.cli.terminal.screen import say

RELATION: Final = Option(
    "relation",
    str,
    "Table of the edges of a relation, instead of SOURCE; further columns are followed by ' as weight', ' as time',"
    " ' as feature', ' as float16 feature', ' as label' or, with the name *, ' as relation'; and by ' else VALUE' if"
    " cells may be empty. May be given several times.",
    group=Group.INPUT,
    metavar="TYPE,NAME,TYPE=FILE[:COLUMN,COLUMN[,COLUMN]]",
)
VERTICES: Final = Option(
    "vertices",
    str,
    "Table of the vertices of a type: checks the ids of edges, and adds vertices without edges. Further columns are"
    " followed by ' as feature', ' as label', ' as target', ' as split' or, with the type *, ' as type'. May be given"
    " several times.",
    group=Group.INPUT,
    metavar="TYPE=FILE[:COLUMN[,COLUMN]]",
)
#: Figures of a graph that `ingest` prints, of its facts and of its measurements.
_COUNTED: Final = ("edges_in", "nnz", "self_loops", "duplicates")
_MEASURED: Final = ("seconds", "peak_memory", "spill_bytes", "bytes_written")


def projected_tables(tables: TypedTables, options: IngestOptions, cluster: ClusterOptions) -> IngestProjection:
    """Projected needs of an ingest.

    Raises:
        BudgetError: it does not fit.
    """
    root = current_catalog().root.absolute()
    existing = next(path for path in (root, *root.parents) if path.is_dir())
    return project_typed_ingest(tables, options, existing, cluster.tasks_at_once, cluster.memory)


def store_typed_tables(
    name: str,
    tables: TypedTables,
    options: IngestOptions,
    cluster: ClusterOptions,
    typed: TypedOptions,
    storing: VertexOptions,
    *,
    add: bool,
    as_json: bool,
) -> None:
    """Store tables as a dataset and print a summary."""
    with shown_progress():
        how = options, typed, cluster
        graph, data = store_typed(current_catalog(), name, tables, *how, storing=storing, add=add)
    notes = [*typed_notes(graph), *(note for each in data for note in vertex_notes(each))]
    for note in notes:
        say(f"note: {note}", on_stderr=True)
    of_types = {each.artifact.parameters["type"]: [each] for each in data}
    result = typed_result(name, graph, of_types)
    if as_json:
        show(result | ({"notes": notes} if notes else {}), as_json=True, title="")
        return
    show_types(graph, of_types)
    brief = {name: result[name] for name in ("vertices", *_COUNTED, *_MEASURED)}
    show(brief, as_json=False, title=f"graph of {name}")


def typed_result(name: str, graph: TypedGraph, data: Mapping[str, Sequence[Vertices]]) -> dict[str, Any]:
    """Return what `ingest --json` prints about a graph with types."""
    artifact = graph.artifact
    return {
        "dataset": name,
        "key": artifact.key,
        "digest": artifact.digest,
        "vertices": graph.num_vertices,
        **types_json(graph, data),
        **{name: artifact.facts[name] for name in _COUNTED},
        **{name: artifact.measured[name] for name in _MEASURED},
        "plan": artifact.measured.get("plan", {}),
    }
