"""Chooses the types whose rows every rank holds: few vertices, which nearly every part refers to.

The rows of such hubs (countries, categories) would be in nearly every halo, whatever the partition. If every rank holds
them, they are in no halo and on no send list, and their nets cannot hide the cut that a partition can lower.

``auto`` considers the types from the smallest on. A type is replicated if its vertices, and the vertices of the types
before it, are at most a quarter of the vertices that a rank has on average, and if random parts would put at least half
of the rows on other ranks into halos. A vertex with e edges that leave it is expected in (P - 1) (1 - (1 - 1/P)^e)
halos. So replication at most doubles the rows of the type that a rank holds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from gnnloom.pipeline.partition.settings import AUTO
from gnnloom.storage.artifacts.typed.reverses import Reverses
from gnnloom.storage.artifacts.typed.typed_graph import TypedGraph, VertexType
from gnnloom.storage.artifacts.typed.union import TypedMatrices, UnionSpec, row_entries

#: Share of a rank's vertices, on average, that the vertices of all types that ``auto`` replicates may have.
_LARGEST_SHARE: Final = 0.25
#: Least share of the rows on other ranks that halos would have anyway.
_LEAST_IN_HALOS: Final = 0.5
#: Vertices per step of counting edges.
_COUNTED: Final = 1 << 20


@dataclass(frozen=True)
class ConsideredType:
    """A type that ``auto`` considered.

    Attributes:
        type: name of the type.
        vertices: number of its vertices.
        copies: rows that other ranks hold if the type is replicated: vertices times P - 1.
        halo_rows: rows that are expected in the halos of random parts; None if the type is too large to be counted.
        replicated: whether every rank holds the rows.
    """

    type: str
    vertices: int
    copies: int
    halo_rows: int | None
    replicated: bool


@dataclass(frozen=True)
class Replication:
    """The types whose rows every rank holds.

    Attributes:
        types: names of the types, in the order of the types of the graph.
        considered: the types of the graph from the smallest on, with the figures that ``auto`` chose by; empty if
            types were named.
    """

    types: tuple[str, ...] = ()
    considered: tuple[ConsideredType, ...] = ()

    def facts(self, graph: TypedGraph) -> dict[str, Any]:
        """Figures of the partition; none if replication was not asked for."""
        rows = sum(graph.type(name).count for name in self.types)
        found: dict[str, Any] = {"replicated_types": list(self.types), "replicated_rows": rows} if self.types else {}
        return found | ({"replication": [asdict(each) for each in self.considered]} if self.considered else {})


def choose_replicated(
    graph: TypedGraph, asked: tuple[str, ...], parts: int, direction: str, reverses: Reverses | None
) -> Replication:
    """The types whose rows every rank holds.

    Args:
        asked: names of types, or ``auto`` alone.
        parts: number of parts P.
        direction: of the union that is partitioned.
        reverses: reverses of the relations; only ``auto`` reads them.

    Raises:
        NotFoundError: the graph has no type of this name.
    """
    if asked != (AUTO,):
        named = {graph.type(name).name for name in asked}
        return Replication(tuple(each.name for each in graph.types if each.count and each.name in named))
    leaving = TypedMatrices.of(graph, reverses, UnionSpec(direction).transposed)
    considered, most = list[ConsideredType](), _LARGEST_SHARE * graph.num_vertices / parts
    total = 0
    for each in sorted(graph.types, key=lambda one: (one.count, one.name)):
        copies, halo_rows = each.count * (parts - 1), None
        if total + each.count <= most:
            halo_rows = _expected_halo_rows(leaving, each, parts)
        chosen = halo_rows is not None and copies > 0 and halo_rows >= _LEAST_IN_HALOS * copies
        total += each.count if chosen else 0
        considered.append(ConsideredType(each.name, each.count, copies, halo_rows, chosen))
    names = {each.type for each in considered if each.replicated}
    return Replication(tuple(each.name for each in graph.types if each.name in names), tuple(considered))


def _expected_halo_rows(leaving: TypedMatrices, each: VertexType, parts: int) -> int:
    """Rows of a type in the halos of random parts, by the edges that leave each vertex."""
    matrices, total = leaving.opened(), 0.0
    for start in range(each.first, each.first + each.count, _COUNTED):
        edges = row_entries(matrices, start, min(start + _COUNTED, each.first + each.count))
        # Few numbers of edges differ, so few powers are computed.
        distinct, count = np.unique(edges, return_counts=True)
        total += float(((parts - 1) * (1 - (1 - 1 / parts) ** distinct) * count).sum())
    return round(total)
