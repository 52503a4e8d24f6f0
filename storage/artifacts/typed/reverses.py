"""The reverses of the relations of a graph with types, stored for vertices that gather against the edges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph, positions, relation_folder
from gnnloom.storage.artifacts.typed.typed_names import reverse_name
from gnnloom.storage.disk.files import parsing
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import ArrayReader, ReadCounter
from gnnloom.storage.format.artifact import MANIFEST, Artifact


class Reverse(BlockMatrix):
    """The edges of a relation in the other direction: row i lists the targets of the edges from vertex i.

    Attributes:
        name: ``rev_`` and the name of the relation.
        relation: the relation.
    """

    def __init__(self, artifact: Artifact, name: str, relation: Relation, facts: dict[str, object]) -> None:
        shape = relation.num_columns, relation.num_rows
        super().__init__(artifact, relation_folder(name), shape, facts)
        self.name, self.relation = name, relation

    def positions(self, number: int) -> ArrayReader | None:
        """Open the positions of the edges of one block among the edges of the relation; None if there are no edges."""
        return positions(self, number, self.relation.whole.nnz)


def reverses_of(artifact: Artifact) -> Reverses:
    """Open reverses along with the graph that they were made from.

    Raises:
        NotFoundError: the graph is gone.
    """
    key = Path(str(artifact.inputs["graph"])).name
    return Reverses(artifact, TypedGraph(Artifact(artifact.path.parents[1] / "graph" / key)))


class Reverses:
    """The reverses of the relations that a graph stores (kind ``transpose``, of the version of graphs with types).

    Attributes:
        origin: the reverses of the graph that links hold edges out of; None for a graph that was made from tables.
    """

    def __init__(self, artifact: Artifact, graph: TypedGraph) -> None:
        """Read the facts from the manifest.

        Raises:
            CorruptError: the manifest does not fit the graph.
            NotFoundError: :attr:`origin` is gone.
        """
        self.artifact, self.graph = artifact, graph
        with parsing(artifact.path / MANIFEST, "the manifest of the reverses of relations"):
            self.origin: Reverses | None = None
            if graph.origin is not None:
                key = Path(str(artifact.inputs["transpose"])).name
                self.origin = Reverses(Artifact(artifact.path.parent / key), graph.origin)
            known = {each.name: each for each in graph.stored_relations}
            #: The reverses, in the order of the relations.
            self.relations = tuple(
                # The name follows from the name of the relation, which the graph has checked.
                Reverse(artifact, reverse_name(facts["of"]), known[facts["of"]], facts)
                for facts in artifact.facts["relations"]
            )
        for each in self.relations:
            if each.nnz != each.relation.nnz:
                raise CorruptError(
                    f"{each.where}: {each.nnz:,} edges, relation {each.relation.name} has {each.relation.nnz:,}"
                )
        if len(self.relations) != len(known):
            raise CorruptError(f"{artifact.path}: not a reverse for each relation")


class UnstoredReverses(Reverses):
    """The reverses of all relations of a graph before they are stored, for forecasts: their rows have even lengths."""

    def __init__(self, graph: TypedGraph) -> None:
        """Read nothing."""
        self.artifact, self.graph, self.origin = graph.artifact, graph, None
        self.relations = tuple(_EvenReverse(each) for each in graph.relations)


class _EvenReverse(Reverse):
    """A reverse whose edges are spread evenly over its rows."""

    def __init__(self, relation: Relation) -> None:
        facts = {"nnz": relation.nnz, "weighted": relation.weighted, "block_nnz": [relation.nnz]}
        facts |= {"block_rows": [0, relation.num_columns]}
        super().__init__(relation.artifact, reverse_name(relation.name), relation, facts)

    def stored_pointers(self, number: int, counter: ReadCounter | None = None) -> ArrayReader:  # noqa: ARG002
        """See :meth:`BlockMatrix.stored_pointers`: computed, not stored."""
        return cast("ArrayReader", _EvenPointers(self.num_rows, self.nnz))


@dataclass(frozen=True)
class _EvenPointers:
    """The row pointers of a matrix whose rows have even lengths."""

    num_rows: int
    nnz: int

    def __len__(self) -> int:
        return self.num_rows + 1

    def read(self, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """(stop - start,) int64 row pointers."""
        rows = np.arange(start, len(self) if stop is None else stop)
        # Whole and fractional parts, whose products stay below 2^63.
        whole, rest = divmod(self.nnz, max(1, self.num_rows))
        return rows * whole + rows * rest // max(1, self.num_rows)
