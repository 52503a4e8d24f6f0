"""Expected size of a batch of a graph with types, from the numbers of its vertices and edges alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, expm1, log1p

from gnnloom.storage.neighbor_samplers.kind import ALL

#: Rows of more entries on average have practically never less than any fan-out.
_MANY = 500


@dataclass(frozen=True)
class SampledRelation:
    """A relation along which neighbors are drawn.

    Attributes:
        source, target: names of its types.
        nnz: number of its edges.
        fanouts: entries to draw from each row, for each hop: ``ALL``, or 0 or more.
        replace: draw with replacement.
        joint: the fan-outs are for the rows of all joint relations to the target type together.
    """

    source: str
    target: str
    nnz: int
    fanouts: Sequence[int]
    replace: bool = False
    joint: bool = False

    def drawn(self, hop: int, row: float) -> float:
        """Expected number of entries that are drawn in a hop from a row with a mean length."""
        fanout = self.fanouts[hop]
        if fanout == ALL or row > _MANY:
            return row if fanout == ALL else min(row, float(fanout))
        if self.replace:
            return -expm1(-row) * fanout
        # E[min(X, k)] is the sum of P(X > j) for j < k, where the length X of a row has a Poisson distribution.
        found, probability, below = 0.0, exp(-row), 0.0
        for j in range(fanout):
            below += probability
            found += max(0.0, 1 - below)
            probability *= row / (j + 1)
        return found


@dataclass(frozen=True)
class TypedSize:
    """Expected numbers of vertices of each type and of edges of each relation in a batch."""

    vertices: Mapping[str, float]
    edges: Mapping[str, float]

    def __str__(self) -> str:
        """The size in words."""
        vertices, edges = (
            ", ".join(f"{round(count):,} of {name}" for name, count in counts.items() if round(count))
            for counts in (self.vertices, self.edges)
        )
        return f"{vertices}; edges: {edges or 'none'}"

    @classmethod
    def of(
        cls, seeds: Mapping[str, int], types: Mapping[str, int], relations: Mapping[str, SampledRelation]
    ) -> TypedSize:
        """The size of a batch with some seeds.

        The ends of edges count as uniform: lengths of rows have a Poisson distribution, and m draws hit
        n (1 - (1 - 1/n)^m) of n vertices. Where degrees differ much, a batch is smaller, as few vertices are hit often
        and long rows are cut at the fan-out.

        Args:
            seeds: number of seeds of each type that has some.
            types: number of vertices by type.
        """
        found, new = dict.fromkeys(types, 0.0), {name: float(seeds.get(name, 0)) for name in types}
        edges, union = dict.fromkeys(relations, 0.0), dict.fromkeys(types, 0.0)
        length = {name: each.nnz / max(1, types[each.target]) for name, each in relations.items()}
        for name, each in relations.items():
            union[each.target] += length[name] * each.joint
        for hop in range(max((len(each.fanouts) for each in relations.values()), default=0)):
            draws = dict.fromkeys(types, 0.0)
            for name, each in relations.items():
                whole = union[each.target] if each.joint else length[name]
                drawn = new[each.target] * each.drawn(hop, whole) * (length[name] / whole if whole else 0)
                edges[name] += drawn
                draws[each.source] += drawn
            found = {name: found[name] + new[name] for name in types}
            new = {name: _hit(types[name], draws[name]) * (1 - found[name] / max(1, types[name])) for name in types}
        return cls({name: found[name] + new[name] for name in types}, edges)


def _hit(count: int, draws: float) -> float:
    """Expected number of different vertices among ``draws`` uniform draws of ``count`` vertices."""
    return -count * expm1(draws * log1p(-1 / count)) if count > 1 else min(float(count), draws)
