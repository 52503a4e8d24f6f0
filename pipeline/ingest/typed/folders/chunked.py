"""DGL's chunked graph format: a ``metadata.json`` that names the chunks of the edges of every relation.

Numbers of vertices by type, chunks of edges (CSV without a header, Parquet or NumPy), and features of vertices in one
NumPy file are read. Data of edges, and data of vertices in several chunks or under several names, are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gnnloom.pipeline.ingest.typed.declared import DeclaredTables
from gnnloom.pipeline.ingest.typed.folders.description import (
    Described,
    check_listed,
    description_path,
    pairs_table,
    parse_ends,
    read_json,
    sorted_relations,
)
from gnnloom.pipeline.ingest.typed.table import Ends, Table
from gnnloom.pipeline.ingest.typed.type_vertices import TypeVertices
from gnnloom.storage.artifacts.typed.typed_names import valid_name

_NAME: Final = "metadata.json"
#: Keys of a ``metadata.json`` that describes chunks.
_MARK: Final = "num_nodes_per_chunk"


def chunked_tables(location: str) -> DeclaredTables | None:
    """The tables of a graph in chunks, by its folder or its description; None for any other location.

    Raises:
        NotFoundError: a chunk does not exist.
        InputError: the description does not have what it should.
    """
    path = description_path(location, _NAME)
    if path is None:
        return None
    content = read_json(path)
    if not isinstance(content.value, dict) or not content.has(_MARK):
        return None
    types = [each.text() for each in content["node_type"].items()]
    numbers = [sum(each.count() for each in chunks.items()) for chunks in content[_MARK].items()]
    if len(types) != len(numbers):
        raise content[_MARK].error(f"numbers of {len(types)} types, as node_type has")
    given = _relations(content, types)
    relations = sorted_relations(given)
    return DeclaredTables(
        relations,
        [],
        sizes={valid_name(name): count for name, count in zip(types, numbers, strict=True)},
        data=_data(content["node_data"]) if content.has("node_data") else [],
    )


def _relations(content: Described, types: Sequence[str]) -> dict[Ends, Table]:
    """The table of each relation between the given types, with the numbers of its edges."""
    names = [each.text() for each in content["edge_type"].items()]
    numbers = list(content["num_edges_per_chunk"].items()) if content.has("num_edges_per_chunk") else None
    if numbers is not None and len(numbers) != len(names):
        raise content["num_edges_per_chunk"].error(f"numbers of {len(names)} relations, as edge_type has")
    found: dict[Ends, Table] = {}
    for number, name in enumerate(names):
        edges = content["edges"][name]
        chunks = [each.file() for each in edges["data"].items()]
        counts = () if numbers is None else tuple(each.count() for each in numbers[number].items())
        if numbers is not None and len(counts) != len(chunks):
            raise numbers[number].error(f"numbers of {len(chunks)} chunks, as edges.{name} has")
        how = edges["format"]
        between = how["delimiter"].of(str) if how.has("delimiter") else " "
        ends = parse_ends(edges, name)
        check_listed(edges, ends, types)
        found[ends] = pairs_table(chunks, how["name"], between, counts)
    return found


def _data(content: Described) -> list[TypeVertices]:
    """The features of vertices whose type has one file of features."""
    found = []
    for name, arrays in content.entries():
        data = [array for _, array in arrays.entries()]
        if len(data) == 1 and data[0]["format"]["name"].text() == "numpy" and len(data[0]["data"].of(list)) == 1:
            found.append(TypeVertices.of_files(valid_name(name), feature=next(data[0]["data"].items()).file()))
    return sorted(found, key=lambda each: each.type)
