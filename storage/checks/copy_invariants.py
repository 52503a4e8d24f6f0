"""Checks an uncompressed copy against the artifact that it was made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.mapped_links import links_contents
from gnnloom.storage.artifacts.mapped_vertices import vertices_contents
from gnnloom.storage.artifacts.part_members import partition_contents
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.typed.mapped_graph import relation_contents, reverse_contents
from gnnloom.storage.artifacts.typed.reverses import reverses_of
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.artifacts.whole_graph import graph_contents
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.mapped_copy import Contents, artifact_path, verify_copy
from gnnloom.storage.format.schema import TYPED_VERSION


def _graph_contents(artifact: Artifact) -> Contents:
    if artifact.version == TYPED_VERSION:
        return relation_contents(TypedGraph(artifact))
    return graph_contents(Graph(artifact))


def _transpose_contents(artifact: Artifact) -> Contents:
    if artifact.version == TYPED_VERSION:
        return reverse_contents(reverses_of(artifact))
    return graph_contents(Graph(artifact))


#: The arrays in the copies of each kind of artifact.
_CONTENTS: Final[Mapping[str, Callable[[Artifact], Contents]]] = MappingProxyType(
    {
        "graph": _graph_contents,
        "transpose": _transpose_contents,
        "vertices": lambda artifact: vertices_contents(Vertices(artifact)),
        "partition": lambda artifact: partition_contents(Partition(artifact)),
        "links": lambda artifact: links_contents(Links(artifact)),
    }
)


def check_copy(path: Path) -> int:
    """Compare a copy with its artifact, byte by byte.

    Returns:
        The number of arrays.

    Raises:
        CorruptError: a byte differs, or the folder is not a copy of an artifact.
        NotFoundError: the artifact is gone.
    """
    kind = path.name.partition("-")[0]
    if kind not in _CONTENTS:
        raise CorruptError(f"{path}: not a copy of an artifact; remove the folder")
    return verify_copy(path, _CONTENTS[kind](Artifact(artifact_path(path))))
