"""Links on disk: pairs of vertices in splits, their values, and their negatives, given or drawn.

In a graph with types, links are pairs of one relation, and both ends are numbered within their types.

The pair (source, target) is the edge source -> target, in the adjacency the entry A[target, source]. In a symmetric
graph a pair stands for both directions and is stored once, with source < target.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.files import parsing
from gnnloom.storage.errors import CorruptError, NotFoundError
from gnnloom.storage.format.arrays import ArrayReader, ReadCounter
from gnnloom.storage.format.artifact import MANIFEST, Artifact
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.wording import counted

#: The value of a pair: none, its class, or a number.
PAIR, CLASS, NUMBER = "pair", "class", "number"
#: dtype of the values of each kind.
VALUE_DTYPES: Final = MappingProxyType({CLASS: "int64", NUMBER: "float32"})


#: Scores of pairs that need no training, in their order: number of common neighbors, Adamic-Adar, resource allocation.
BASELINES: Final = ("common_neighbors", "adamic_adar", "resource_allocation")
#: Arrays of negatives of each pair, and the end that they replace, 0 for the source.
OWN_NEGATIVES: Final = MappingProxyType({"negative": 1, "negative_source": 0})


def baseline_path(scored: str) -> str:
    """The array with the scores of an array of pairs, a pool or negatives, such as ``test/pool``."""
    split, _, kind = scored.partition("/")
    return f"{split}/baseline" if kind == "pair" else f"{split}/{kind}_baseline"


@dataclass(frozen=True)
class LinkedRelation:
    """The relation of a graph with types that links are pairs of.

    Attributes:
        name: name of the relation.
        source, target: names of the types.
        num_sources, num_targets: number of vertices of the source type, and of the target type.
        num_edges: edges of the relation, with held-out edges.
    """

    name: str
    source: str
    target: str
    num_sources: int
    num_targets: int
    num_edges: int

    @property
    def edge_type(self) -> tuple[str, str, str]:
        """Source type, name and target type."""
        return self.source, self.name, self.target


class Links:
    """The pairs of all splits. A pair's number is its position in its split.

    Attributes:
        num_pairs: pairs of each split.
        graph: key of the graph that the pairs were drawn from.
        message_graph: key of the graph without the held-out edges, which models read; the key of ``graph`` if no edge
            is held out.
        symmetric: every pair stands for both directions.
        together: a held-out pair of a directed graph holds its reverse out, too.
        weighted: the pairs for training have the message graph's weights.
        kind: of the values: ``pair`` (there are none), ``class`` or ``number``.
        num_classes: number of classes; 0 if the values are no classes.
        class_names: words of the classes by number; empty if the classes are numbers.
        relation: the relation, in a graph with types; None in others.
    """

    def __init__(self, artifact: Artifact) -> None:
        """Read the facts from the manifest.

        Raises:
            CorruptError: the manifest does not describe links.
        """
        self.artifact = artifact
        with parsing(artifact.path / MANIFEST, "the manifest of links"):
            self._read_facts(artifact)

    def _read_facts(self, artifact: Artifact) -> None:
        facts = artifact.facts
        self.num_vertices: int = artifact.sizes["vertex"]
        self.relation = LinkedRelation(**facts["relation"]) if "relation" in facts else None
        self.num_pairs = MappingProxyType({split: int(facts["num_pairs"][split]) for split in LINK_SPLITS})
        self.graph: str = artifact.inputs["graph"]
        self.message_graph: str = facts["message_graph"]
        self.symmetric: bool = facts["symmetric"]
        self.together: bool = facts.get("together", False)
        self.kind: str = facts["kind"]
        self.num_classes: int = facts["num_classes"]
        self.class_names: tuple[str, ...] = tuple(facts.get("class_names", ()))
        self.weighted: bool = self.relation is None and artifact.record("train/weight").dtype != "uint8"
        for split, count in self.num_pairs.items():
            stored = artifact.record(f"{split}/pair").shape
            if stored != (count, 2):
                raise CorruptError(f"{artifact.path}/{split}/pair: shape {stored}, expected ({count}, 2)")

    @property
    def counts_reverses(self) -> bool:
        """Whether a pair is known if its reverse is: both are one pair, or are held out together."""
        return self.symmetric or self.together

    @property
    def trains_on_edges(self) -> bool:
        """Whether all training pairs are known to be edges of the message graph."""
        facts = self.artifact.facts
        # Pairs that were not given are edges of the message graph, unless they are held out.
        if facts["train_held_out"] or "train/pair" not in facts.get("edges", {}):
            return not facts["train_held_out"]
        # A given pair may be held out as a pair of another split.
        return not self.num_other_pairs("train") and not facts.get("shared")

    def num_other_pairs(self, split: str) -> int:
        """Pairs of a split that are not edges of ``graph``, nor their reverses if these count as well."""
        count = self.num_pairs[split]
        return count - int(self.artifact.facts.get("edges", {}).get(f"{split}/pair", count))

    @property
    def num_targets(self) -> int:
        """Number of known target values of a pair."""
        return int(self.kind == NUMBER)

    @property
    def value_bounds(self) -> tuple[int, int] | None:
        """The smallest value of a pair and one more than the largest; None for any."""
        return (0, self.num_classes) if self.kind == CLASS else None

    @property
    def source_vertices(self) -> int:
        """Number of vertices that may be sources of pairs."""
        return self.num_vertices if self.relation is None else self.relation.num_sources

    @property
    def target_vertices(self) -> int:
        """Number of vertices that may be targets of pairs."""
        return self.num_vertices if self.relation is None else self.relation.num_targets

    @property
    def first_target(self) -> int:
        """Place of the first possible target where both ends have one numbering: after all possible sources.

        0 if the ends of pairs are vertices of the same numbering already.
        """
        return 0 if self.relation is None or self.can_be_loops else self.relation.num_sources

    @property
    def num_ends(self) -> int:
        """Number of possible ends of pairs in one numbering; see :attr:`first_target`."""
        return self.first_target + self.target_vertices

    @property
    def can_be_loops(self) -> bool:
        """Whether a pair of equal numbers is a loop: both ends have one type."""
        return self.relation is None or self.relation.source == self.relation.target

    @property
    def vertex_bounds(self) -> tuple[int, int]:
        """The smallest end of a pair and one more than the largest; :meth:`check_ends` tells both ends apart."""
        return 0, max(self.source_vertices, self.target_vertices)

    def check_ends(self, pairs: NDArray[np.int64]) -> None:
        """Check that the ends of (num_pairs, 2) int64 stored pairs are vertices of their types.

        Raises:
            CorruptError: one is not.
        """
        if self.relation is not None and len(pairs) and (pairs >= (self.source_vertices, self.target_vertices)).any():
            raise CorruptError(f"{self.artifact.path}: a pair with an end that is not a vertex of its type")

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {split}" for split, count in self.num_pairs.items())
        of = counted(self.num_vertices, "vertex") if self.relation is None else " ".join(self.relation.edge_type)
        return f"Links({counts} pairs of {of})"

    def edge(self, split: str, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """(stop - start,) int64 positions of some pairs among the edges of their relation, ascending.

        ``dataset.typed_graph(links.graph).relation(links.relation.name).column(...)`` has the columns of the edges.

        Raises:
            NotFoundError: the pairs are not edges of one relation.
        """
        bounds = None if self.relation is None else (0, self.relation.num_edges)
        return self.artifact.array(f"{split}/edge", bounds=bounds).read(start, stop)

    def held_out(self, split: str) -> ArrayReader:
        """Open the positions of the edges of a relation that given pairs of a split hold out, ascending.

        Raises:
            NotFoundError: the pairs were not given, or hold nothing out.
        """
        bounds = None if self.relation is None else (0, self.relation.num_edges)
        return self.artifact.array(f"{split}/held_out", bounds=bounds)

    def pair(
        self, split: str, start: int = 0, stop: int | None = None, counter: ReadCounter | None = None
    ) -> NDArray[np.int64]:
        """(stop - start, 2) int64 source and target of some pairs; one that is not a vertex is an error."""
        found = self._read(f"{split}/pair", start, stop, counter, self.vertex_bounds)
        self.check_ends(found)
        return found

    def weight(self, start: int = 0, stop: int | None = None, counter: ReadCounter | None = None) -> NDArray[Any]:
        """(stop - start,) entries of the message graph of some pairs for training; 0 if it has none.

        Of the dtype of its weights, or uint8 if it is unweighted.
        """
        return self._read("train/weight", start, stop, counter, None if self.weighted else (0, 2))

    @property
    def excludes_reverse(self) -> bool:
        """Whether a step that excludes a pair for training excludes the entry of its reverse, too."""
        return "train/reverse_weight" in self.artifact or (self.relation is not None and self.together)

    @property
    def reverse_share(self) -> float:
        """Share of the pairs for training whose reverse a step excludes, too, as for edges of ``graph``."""
        facts = self.artifact.facts
        return float(facts["edges_with_reverse"]) / max(1, facts["edges_of_graph"]) if self.excludes_reverse else 0.0

    def reverse_weight(
        self, start: int = 0, stop: int | None = None, counter: ReadCounter | None = None
    ) -> NDArray[Any]:
        """(stop - start,) entries of the message graph of the reverses of some pairs for training, as :meth:`weight`.

        Raises:
            NotFoundError: the pairs exclude only themselves, or stand for both directions.
        """
        return self._read("train/reverse_weight", start, stop, counter, None if self.weighted else (0, 2))

    def value(
        self, split: str, start: int = 0, stop: int | None = None, counter: ReadCounter | None = None
    ) -> NDArray[Any]:
        """(stop - start,) int64 classes or float32 numbers of some pairs.

        Raises:
            NotFoundError: the pairs have no values.
        """
        return self._read(f"{split}/value", start, stop, counter, self.value_bounds)

    def negative(
        self, split: str, start: int = 0, stop: int | None = None, counter: ReadCounter | None = None
    ) -> NDArray[np.int64]:
        """(stop - start, num_negatives) int64 targets that were given as negatives of some pairs, for their sources.

        Raises:
            NotFoundError: none were given for the pairs of this split.
        """
        return self._read(f"{split}/negative", start, stop, counter, (0, self.target_vertices))

    def negative_source(
        self, split: str, start: int = 0, stop: int | None = None, counter: ReadCounter | None = None
    ) -> NDArray[np.int64]:
        """(stop - start, num_replaced) int64 sources that are negatives of some pairs, for their targets.

        Raises:
            NotFoundError: there are none for the pairs of this split.
        """
        return self._read(f"{split}/negative_source", start, stop, counter, (0, self.source_vertices))

    def pool(
        self, split: str, start: int = 0, stop: int | None = None, counter: ReadCounter | None = None
    ) -> NDArray[np.int64]:
        """(stop - start, 2) int64 source and target of pairs that are negatives of the whole split.

        Raises:
            NotFoundError: there are none for this split.
        """
        found = self._read(f"{split}/pool", start, stop, counter, self.vertex_bounds)
        self.check_ends(found)
        return found

    def _read(
        self,
        name: str,
        start: int,
        stop: int | None,
        counter: ReadCounter | None,
        bounds: tuple[int, int] | None,
    ) -> NDArray[Any]:
        """Some rows of an array of the pairs; whole numbers outside ``bounds`` are errors."""
        return self.artifact.array(name, counter, bounds).read(start, stop)

    def has_baselines(self, split: str) -> bool:
        """Whether the pairs of a split and their negatives have the scores of :meth:`baseline`."""
        return f"{split}/baseline" in self.artifact

    def baseline(
        self, scored: str, start: int = 0, stop: int | None = None, counter: ReadCounter | None = None
    ) -> NDArray[np.float64]:
        """Scores that need no training (``BASELINES``), of some rows of an array of pairs or negatives.

        Args:
            scored: the array, such as ``test/pair``, ``test/pool`` or ``test/negative``.

        Returns:
            (stop - start, 3) float64; (stop - start, num_negatives, 3) for negatives of each pair.

        Raises:
            NotFoundError: there are none for this array.
        """
        return self.artifact.array(baseline_path(scored), counter).read(start, stop)

    def num_negatives(self, split: str) -> int:
        """Negatives of each pair of a split that replace its target."""
        return self._size(f"{split}/negative", 1)

    def num_replaced(self, split: str) -> int:
        """Negatives of each pair of a split that replace its source."""
        return self._size(f"{split}/negative_source", 1)

    def num_pooled(self, split: str) -> int:
        """Pairs that are negatives of a whole split."""
        return self._size(f"{split}/pool", 0)

    def _size(self, name: str, dimension: int) -> int:
        try:
            return self.artifact.record(name).shape[dimension]
        except NotFoundError:
            return 0
