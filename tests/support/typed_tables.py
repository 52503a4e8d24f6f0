"""Random tables of graphs with types, and the graph that NumPy makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from gnnloom.pipeline.ingest.stage import IngestOptions
from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.stage import ingest_typed_graph
from gnnloom.pipeline.ingest.typed.table import Ends, parse_relations, parse_vertices
from gnnloom.pipeline.ingest.typed.tables import TypedTables
from gnnloom.pipeline.tasks.cluster import Cluster, InProcessCluster
from gnnloom.storage import Dataset, TypedGraph
from support.scratch import SMALL_LANES

#: Many ranges of few keys, in short lanes.
FEW_KEYS: Final = replace(SMALL_LANES, range_bytes=600, slice_bytes=1)

#: Tiny tables make many blocks; and many files of keys as well.
MANY_BLOCKS: Final = replace(FEW_KEYS, block_entries=60)
MANY_FILES: Final = replace(MANY_BLOCKS, merged_bytes=8000, gathered_bytes=5000)


@dataclass(frozen=True)
class TypedProblem:
    """Tables: pairs of ids, and perhaps a weight, by relation; and ids by type.

    Attributes:
        relations: rows (source, target) or (source, target, weight).
        vertices: ids of the types that are listed.
        unknown: the option.
    """

    relations: Mapping[Ends, Sequence[tuple[Any, ...]]]
    vertices: Mapping[str, Sequence[Any]]
    unknown: str = "add"

    def write(self, folder: Path) -> TypedTables:
        """Write the tables as CSV files with headers, and open them."""
        relations, vertices = [], []
        for (source, name, target), rows in self.relations.items():
            file, has_weights = folder / f"{name}.csv", any(len(row) > 2 for row in rows)
            lines = [",".join(map(str, row)) for row in rows]
            _put(file, "\n".join(["from,to" + (",w" if has_weights else ""), *lines]) + "\n")
            columns = "from,to" + (",w as weight" if has_weights else "")
            relations.append(f"{source},{name},{target}={file}:{columns}")
        for name, ids in self.vertices.items():
            file = folder / f"{name}-vertices.csv"
            _put(file, "\n".join(["id,more", *(f"{each},x" for each in ids)]) + "\n")
            vertices.append(f"{name}={file}:id")
        return TypedTables.open(parse_relations(relations), parse_vertices(vertices), {})

    def ingest(
        self, dataset: Dataset, folder: Path, cluster: Cluster | None = None, options: IngestOptions | None = None
    ) -> TypedGraph:
        """Write the tables, and store them."""
        folder.mkdir(parents=True, exist_ok=True)
        how = options or IngestOptions(), TypedOptions(self.unknown)
        return ingest_typed_graph(dataset, self.write(folder), *how, cluster or InProcessCluster(scratch=FEW_KEYS))

    @property
    def types(self) -> list[str]:
        return sorted({each for source, _, target in self.relations for each in (source, target)} | set(self.vertices))

    def expected_ids(self, name: str) -> list[Any]:
        """The ids of the vertices of a type, in their order."""
        mentioned = {
            row[end]
            for (source, _, target), rows in self.relations.items()
            for row in rows
            for end, each in enumerate((source, target))
            if each == name
        }
        listed = set(self.vertices.get(name, ()))
        ids = listed if name in self.vertices and self.unknown != "add" else listed | mentioned
        return sorted(ids, key=lambda each: each if isinstance(each, int) else str(each).encode())

    def expected_matrix(self, ends: Ends) -> np.ndarray:
        """(num_targets, num_sources) sums of the weights, or counts of the edges, of a relation."""
        source, _, target = ends
        number = {each: {key: at for at, key in enumerate(self.expected_ids(each))} for each in (source, target)}
        matrix = np.zeros((len(number[target]), len(number[source])))
        for row in self.relations[ends]:
            if row[0] in number[source] and row[1] in number[target]:
                matrix[number[target][row[1]], number[source][row[0]]] += row[2] if len(row) > 2 else 1
        return matrix


def _put(file: Path, text: str) -> None:
    """Write a file unless it has the text: the time of its last change is a part of what the graph is made from."""
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


def check(graph: TypedGraph, problem: TypedProblem) -> None:
    """Check a graph against what NumPy makes of the tables."""
    assert [each.name for each in graph.types] == problem.types
    for each in graph.types:
        ids = problem.expected_ids(each.name)
        if graph.ids(each.name).has_names:
            assert graph.original_name(each.name) == [str(key) for key in ids]
        else:
            assert graph.original_id(each.name).tolist() == ids
    assert [each.name for each in graph.relations] == sorted(name for _, name, _ in problem.relations)
    for ends, rows in problem.relations.items():
        relation, wanted = graph.relation(ends[1]), problem.expected_matrix(ends)
        assert relation.edge_type == ends
        found = relation.to_scipy().toarray()
        assert found.shape == wanted.shape
        has_weights = any(len(row) > 2 for row in rows)
        np.testing.assert_array_equal(found, wanted if has_weights else wanted > 0)
        assert relation.degree().tolist() == np.count_nonzero(wanted, axis=1).tolist()
        assert graph.reverse(f"rev_{ends[1]}").to_scipy().shape == wanted.T.shape


def random_problem(seed: int, edges: int = 400, unknown: str = "add") -> TypedProblem:
    """Three types, one with names, one of them listed, and four relations, two of which are within a type."""
    rng = np.random.default_rng(seed)
    user = (rng.integers(0, 90, 5 * edges) ** 2).tolist()
    item = [f"i{each}é" for each in rng.integers(0, 60, 3 * edges).tolist()]
    country = rng.integers(0, 3, edges).tolist()
    weight = rng.integers(1, 9, edges).tolist()
    relations: dict[Ends, Sequence[tuple[Any, ...]]] = {
        ("user", "buys", "item"): list(zip(user[:edges], item[:edges], weight, strict=True)),
        ("user", "knows", "user"): list(zip(user[edges : 2 * edges], user[2 * edges : 3 * edges], strict=True)),
        ("item", "made_in", "country"): list(zip(item[edges : 2 * edges], country, strict=True)),
        ("item", "like", "item"): list(zip(item[edges : 2 * edges], item[2 * edges :], weight, strict=True)),
    }
    return TypedProblem(relations, {"user": [each**2 for each in range(50)], "shop": [7, 5]}, unknown)
