"""Notes for users about a stored graph with types: likely mistakes, and data that was left out."""

from __future__ import annotations

from typing import Final

from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.artifacts.typed.typed_names import alike_names
from gnnloom.storage.wording import counted, did_you_mean

#: Types that are compared with each other.
_COMPARED: Final = 1000


def typed_notes(graph: TypedGraph) -> list[str]:
    """Sentences about the vertices and relations of a graph."""
    notes = []
    for each in graph.artifact.facts["types"]:
        if count := each.get("added"):
            notes.append(f"type {each['name']}: {counted(count, 'vertex')} that no table lists, added")
        if count := each.get("repeated"):
            notes.append(f"type {each['name']}: {counted(count, 'row')} with an id that an earlier row has")
    ends = {each for relation in graph.relations for each in (relation.source.name, relation.target.name)}
    for each in graph.types:
        if each.name not in ends:
            meant = did_you_mean(each.name, sorted(ends))
            notes.append(f"type {each.name}: no relation has its vertices{f'; {meant}' if meant else ''}")
    # Names of a user are refused if they look alike; rows of tables may have any words.
    counts = {each.name: each.count for each in graph.types[:_COMPARED]}
    for one, other in alike_names(list(counts)):
        vertices = " and ".join(counted(counts[each], "vertex") for each in (one, other))
        notes.append(f"types {one} and {other}, with {vertices}: if they are meant to be one, correct the tables")
    for relation in graph.relations:
        if count := relation.facts.get("left_out"):
            edges = counted(count, "edge")
            notes.append(f"relation {relation.name}: {edges} left out, with ends that no table of vertices lists")
        if relation.weighted and graph.artifact.parameters["merge"] == "sum" and relation.facts["duplicates"]:
            repeat = counted(relation.facts["duplicates"], "entry")
            notes.append(
                f"relation {relation.name}: {repeat} repeat others, and the weights were added up; --merge max, min or"
                " first keeps one weight"
            )
    if literals := graph.artifact.facts.get("literals"):
        notes.append(
            f"{counted(literals, 'statement')} with literals left out, as only edges between vertices are kept"
        )
    return notes
