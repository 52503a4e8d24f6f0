"""Notes for users about a stored graph and vertex data: likely mistakes, and options with another result."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.sources.reading.name_ids import find_joined
from gnnloom.pipeline.sources.source import EdgeSource
from gnnloom.pipeline.sources.understood import Understood
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.wording import counted

LOGGER = logging.getLogger("gnnloom.pipeline")


def log_notes(notes: Iterable[str]) -> None:
    """Log notes about the stored artifacts."""
    for note in notes:
        LOGGER.warning("%s", note)


def graph_notes(graph: Graph, source: EdgeSource, options: IngestOptions) -> list[str]:
    """Sentences about the edges of a graph that was made from a source."""
    # Otherwise the source says how many vertices there are.
    isolated = _isolated(graph) if options.ids == "keep" and source.num_vertices() is None else ""
    return [*filter(None, [isolated]), *_weights(graph, options), *_directions(graph, options)]


def id_notes(found: Sequence[Understood]) -> list[str]:
    """Point out files of numbers and files of names, which may be other tables, that are read as parts of one.

    Args:
        found: how each file is read.
    """
    names, numbers = ([each for each in found if each.are_names is are_names] for are_names in (True, False))
    if not (names and numbers):
        return []
    shown = names[0].facts.get("decided_by", {})
    why = f" ({shown['id']!r} in line {shown['line']})" if shown else ""
    note = f"ids are names in {names[0].location}{why} and numbers in {numbers[0].location}"
    return [f"{note}; do both files have edges of one graph?"]


def _isolated(graph: Graph) -> str:
    """Point out ids that no edge has, if they are most of the vertices: they are seldom meant to be vertices."""
    count = graph.num_vertices - 2 * graph.artifact.facts["edges_in"]
    if count > 0:
        return (
            f"at least {count:,} of the {graph.num_vertices:,} vertices have no edge; --ids compact leaves them out and"
            " keeps the ids of the others"
        )
    if first := graph.artifact.facts.get("min_id", 0):
        without = "vertex 0 has" if first == 1 else f"the vertices 0 to {first - 1:,} have"
        leaves_out = "it" if first == 1 else "them"
        return (
            f"ids begin at {first:,}, so {without} no edge; --ids compact leaves {leaves_out} out and keeps the ids of"
            " the others"
        )
    return ""


def _weights(graph: Graph, options: IngestOptions) -> list[str]:
    """Point out weights that were added up, and negative ones."""
    facts, notes = graph.artifact.facts, []
    # Both directions of an edge are one edge, unless they are merged like any equal edges.
    merged = facts["duplicates"] - facts.get("joined", 0)
    if graph.weighted and options.merge in {None, "sum"} and merged:
        entries = f"{merged:,} entries repeat others" if merged > 1 else "1 entry repeats another one"
        notes.append(f"{entries}, and their weights were added up; --merge max, min or first keeps one weight")
    if negative := facts.get("negative_weights", 0):
        do = (
            "is negative; models that normalize refuse it"
            if negative == 1
            else "are negative; models that normalize refuse them"
        )
        notes.append(f"{negative:,} of the {graph.nnz:,} stored weights {do}")
    return notes


def _directions(graph: Graph, options: IngestOptions) -> list[str]:
    """Point out that a directed graph could be stored as an undirected one."""
    if not graph.artifact.facts.get("reciprocal_edges"):
        return []
    values = " with the same time" if graph.has_times else " with the same weight" if graph.weighted else ""
    # That would add up the weights of both directions.
    same = "" if values and options.merge == "sum" else " --undirected stores the same graph, and"
    return [f"every edge is there in both directions{values}:{same} links hold both directions out together"]


def vertex_notes(vertices: Vertices, by_position: SourceIds | None = None) -> list[str]:
    """Sentences about vertex data: rows of no vertex, classes that no vertex has or that are alike, and odd labels.

    Args:
        by_position: the vertices, if row k of the files belongs to vertex k.
    """
    facts, notes = vertices.artifact.facts, []
    if by_position is not None and by_position.has_names:
        notes.append("the ids are names, and row k belongs to the k-th name in byte order; --by-id reads ids of rows")
    if count := facts.get("left_out", 0):
        rows = "this row is" if count == 1 else "these rows are"
        notes.append(
            f"the files have data for {counted(count, 'vertex')} without an edge, which the graph does not have;"
            f" {rows} left out"
        )
    if found := facts.get("classes_found", 0):
        lacking, highest = vertices.num_classes - found, facts.get("highest_class_apart")
        question = f'; if {highest:,} means "no label", write -1' if highest is not None else ""
        do = "does" if lacking == 1 else "do"
        notes.append(f"{lacking:,} of {counted(vertices.num_classes, 'class')} {do} not occur{question}")
    notes += _classes_alike(vertices.class_names)
    if facts.get("labels_are_split") and "split" in vertices.names:
        notes.append("the labels and the split are the same; is one of the two another column?")
    elif facts.get("labels_are_split"):
        parts = ", ".join(vertices.class_names)
        notes.append(f"the labels are the parts of a split ({parts}); does the column hold the split?")
    return notes


def _classes_alike(names: Sequence[str]) -> list[str]:
    """Point out classes whose names differ only in the case of letters, and a class that seems to be several."""
    forms: dict[str, str] = {}
    notes = []
    alike = [(other, name) for name in names if (other := forms.setdefault(name.casefold(), name)) != name]
    if alike:
        one, other = alike[0]
        notes.append(f"the classes {one!r} and {other!r} differ only in the case of letters; are they one class?")
    at, _ = find_joined(names)
    if at >= 0:
        notes.append(
            f"the class {names[at]!r} seems to be several classes; for vertices of several classes, write a column of 0"
            " and 1 for each class"
        )
    return notes
