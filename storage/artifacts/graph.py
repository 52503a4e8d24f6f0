"""A stored graph: its adjacency as CSR blocks of rows.

A[i, j] is the edge j -> i, so row i lists the vertices that vertex i gathers from.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.disk.files import parsing
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.storage.format.schema import TYPED_VERSION
from gnnloom.storage.wording import counted


def refuse_types(path: Path) -> InputError:
    """The error for a graph with types where a graph without types is needed."""
    return InputError(
        f"{path}: a graph with types; a model of your own trains on it (`gnnloom train NAME --mode neighbor --of-type"
        " TYPE --model mymodule:Model`, or with --relation NAME instead of --of-type); `gnnloom catalog`, `gnnloom"
        " partition`, `gnnloom shard`, `gnnloom features` and `gnnloom sample` with --of-type, and `gnnloom"
        " links NAME random`, `file` and `hard` with --relation read it too, and in Python Dataset.typed_graph(),"
        " to_scipy(relation=NAME), to_pyg() and gnnloom.loader(); the edges of one relation alone can be stored as a"
        " graph without types"
    )


class Graph(BlockMatrix, SourceIds):
    """The adjacency of a dataset (kind ``graph``), or of its transpose (kind ``transpose``)."""

    def __init__(self, artifact: Artifact) -> None:
        """Read the graph's facts from the manifest.

        Raises:
            CorruptError: the manifest does not describe a graph.
            InputError: the graph has types.
        """
        if artifact.version == TYPED_VERSION:
            raise refuse_types(artifact.path)
        with parsing(artifact.path / MANIFEST, f"the manifest of a {artifact.kind}"):
            n, facts = artifact.sizes["vertex"], artifact.facts
            BlockMatrix.__init__(self, artifact, "", (n, n), facts)
            self.num_vertices = n
            #: Whether the matrix equals its transpose (the input was made undirected).
            self.symmetric: bool = facts["symmetric"]
            #: First and last (exclusive) vertex of each type, for a union of the relations of a graph with types.
            self.type_spans: dict[str, tuple[int, int]] = {
                each["name"]: (each["first"], each["first"] + each["count"]) for each in facts.get("types", ())
            }

    @property
    def entries(self) -> int:
        """Nonzeros, or the edges of all relations for a union of relations."""
        return int(self.artifact.facts.get("entries", self.nnz))

    def row_entries(self, first: int, nonzeros: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_rows,) int64 work for some rows: the number of their nonzeros, or of the edges of all relations.

        Args:
            first: number of the first row.
            nonzeros: (num_rows,) int64 nonzeros of the rows.
        """
        if "entries" not in self.artifact:
            return nonzeros
        found: NDArray[np.int64] = self.artifact.array("entries").read(first, first + len(nonzeros))
        return found

    def __repr__(self) -> str:
        kind = "symmetric" if self.symmetric else "directed"
        return (
            f"Graph({counted(self.num_vertices, 'vertex')}, {counted(self.nnz, 'nonzero')}, {kind},"
            f" {counted(self.num_blocks, 'row block')})"
        )
