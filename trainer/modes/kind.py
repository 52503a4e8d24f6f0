"""The descriptor of a mode of training, and the sizes of batches that it states for the forecast of memory.

Sizes of a rank's share of a batch are estimated before anything is drawn, from the sizes of the graph, for vertices
drawn uniformly. Draws that prefer some vertices find fewer different ones, so batches of sampled neighbors are at most
as large, unless a fan-out is unlimited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from gnnloom.storage.descriptors import LazyClass
from gnnloom.storage.option import Option
from gnnloom.trainer.algorithms.algorithm import STREAMS


class RowDraws(NamedTuple):
    """Draws from the row of one vertex.

    Attributes:
        mean, variance: mean and variance of the number of neighbors.
        likely: probability that a given neighbor is drawn.
    """

    mean: float
    variance: float = 0.0
    likely: float = 0.0


@dataclass(frozen=True)
class RankRows:
    """The rows of one rank.

    Attributes:
        own, halo: number of vertices that the rank owns, and of other vertices that its rows refer to.
        num_vertices, nnz: vertices and nonzeros of the whole graph; without the graph, estimated from the rank's rows.
        row_bytes: bytes of the features of a vertex; 0 if they are learned, because rows that change are not cached.
        training: maximum number of its vertices in the training split.
        lengths: histogram of row lengths: number of sampled vertices by nonzeros of their rows; empty if unknown, or if
            the matrix is not symmetric, so that long rows are not referred to more often than short rows.
        has_loops: every vertex is a neighbor of itself.
    """

    own: int
    halo: int
    num_vertices: int
    nnz: int
    row_bytes: int
    training: int
    lengths: Mapping[int, int] = field(default_factory=dict)
    has_loops: bool = False

    @property
    def mean_degree(self) -> float:
        return self.nnz / max(1, self.num_vertices)

    @property
    def others(self) -> float:
        """Nonzeros of the whole graph without loops."""
        return self.nnz - self.has_loops * self.num_vertices

    def drawn_of(self, fanout: float, share: float) -> RowDraws:
        """Draws for a vertex that a draw has found, by the known lengths.

        If the known rows have fewer entries than the mean, the missing entries count as rows of the largest known
        length.

        Args:
            share: share of drawn entries among all entries except loops; 0 for any vertex, found or not.
        """
        longest = max(self.mean_degree, *self.lengths)
        lacking = self.mean_degree * sum(self.lengths.values()) - sum(
            each * count for each, count in self.lengths.items()
        )
        rows = [*self.lengths.items(), (longest, max(0.0, lacking) / max(1.0, longest))]
        mean = square = likely = total = open_total = open_mean = 0.0
        for length, count in rows:
            missed = (1 - share) ** (length - self.has_loops)
            found, drawn = count * (1 - missed if share else 1.0), min(fanout, length)
            total, mean, likely = total + found, mean + found * drawn, likely + found * drawn / max(1, length)
            # A hub that every draw finds does not make one batch differ from another.
            open_total += found * missed
            open_mean += found * missed * drawn
            square += found * missed * drawn**2
        variance = square - open_mean**2 / (open_total or 1.0)
        return RowDraws(*(each / (total or 1.0) for each in (mean, variance, likely)))

    def missed_by(self, share: float) -> float:
        """Lower bound of the share of vertices to which no entry of a given share of all non-loop entries refers."""
        if not self.lengths:
            # Columns of equal lengths are missed least.
            return float((1 - share) ** (self.mean_degree - self.has_loops))
        missed = sum(count * (1 - share) ** (length - self.has_loops) for length, count in self.lengths.items())
        return float(missed / sum(self.lengths.values()))


@dataclass(frozen=True, kw_only=True)
class BatchSizes:
    """One rank's share of a batch, and the mode's memory in addition to batches.

    Attributes:
        rows: rows of the input of every layer, and of the last layer's output.
        nonzeros: nonzeros of every layer's block, or of the one matrix of all layers.
        loops: nonzeros of the first block that are loops.
        is_layered: every layer has its own block.
        received: rows of other ranks that arrive for a product.
        has_features: batches that are prepared ahead have their input features, unless these are learned.
        fetches: in each step, features come from the ranks that have them, and gradients of learned features go back.
        asked: rows of a batch that other ranks send in a step, if the rows are not learned.
        copied: rows of a batch that are copied from rows of the rank, if the rows are not learned.
        num_batches: maximum number of batches of a rank in an epoch, if no batch is prepared before its epoch begins;
            None if batches of the next epoch are also prepared.
        kept_bytes: bytes of other data that the mode keeps.
        maps_features: the features of all vertices are mapped from disk, in addition to the graph.
        maps_graph: the graph is mapped from disk.
    """

    rows: Sequence[float]
    nonzeros: Sequence[float]
    loops: float = 0.0
    is_layered: bool = False
    received: float = 0.0
    has_features: bool = False
    fetches: bool = False
    asked: float = 0.0
    copied: float = 0.0
    num_batches: int | None = None
    kept_bytes: float = 0.0
    maps_features: bool = False
    maps_graph: bool = True

    def most_others(self, pool: int, threads: int) -> int:
        """Batches in memory in addition to the one in use: batches prepared ahead, and the previous batch.

        Args:
            pool, threads: see :func:`gnnloom.storage.sampling.ahead.prepare_ahead`.
        """
        others = 1 + (pool if threads else 0)
        # The last batch of an epoch is gone when the batches of the next epoch are prepared.
        return others if self.num_batches is None else min(others, max(0, self.num_batches - 1))


class Adjacency(Enum):
    """The adjacency by which the steps of a mode multiply."""

    #: The whole graph, as the algorithm distributes it.
    WHOLE = auto()
    #: The rows of a rank, in memory and restricted to a batch.
    RESTRICTED = auto()
    #: Rows drawn from the graph, which all processes of a machine map.
    DRAWN = auto()
    #: No adjacency: batches have only rows of features, and the model must be rowwise.
    NONE = auto()


#: Capabilities of modes, in the words of messages about modes that lack them.
PAIRS: Final = "train on pairs of vertices"
#: Batches have edges, for models that take them.
EDGES: Final = "give a model the edges of batches"
#: A mode with batches gives the parameter of learned features a
#: :class:`~gnnloom.trainer.layout.partial_parameters.RowGradient` in every step.
LEARNED: Final = "learn input features"
INPUT_GRADIENT: Final = "form the gradient of the input features"
#: The batches depend on the number of ranks, and so do the losses.
RANKS_DECIDE: Final = "draw batches for each rank"
#: Models that use no edges train on all vertices at once, or on batches of rows.
WITHOUT_EDGES: Final = "train models that use no edges"
#: Batches have only rows of features, and the model must treat rows one by one.
ROWS: Final = "read rows alone"
#: The rows of the shards are used only for evaluation, and stay on disk during training.
ROWS_ON_DISK: Final = "leave the rows of the shards on disk"


#: Capabilities that follow from the adjacency by which a mode multiplies.
_OF_ADJACENCY: Final = {
    Adjacency.WHOLE: frozenset({WITHOUT_EDGES, STREAMS}),
    Adjacency.RESTRICTED: frozenset[str](),
    Adjacency.DRAWN: frozenset({STREAMS}),
    Adjacency.NONE: frozenset({WITHOUT_EDGES, STREAMS, ROWS}),
}


@dataclass(frozen=True, kw_only=True)
class ModeKind(LazyClass):
    """A mode that can be chosen, which defines the computation of an epoch.

    Attributes:
        name: as given with ``--mode``.
        order: position among the choices; modes of equal order are sorted by name.
        help: one line of help text.
        source: paper and section.
        place: module and class, a subclass of :class:`gnnloom.trainer.modes.epochs.mode.Mode`. Named instead of
            imported: the class needs torch.
        place_of_types: the same for graphs with types; None for a mode that does not offer ``TYPES``.
        adjacency: the adjacency by which its steps multiply.
        offers: capabilities of the mode, such as ``PAIRS``.
        needs: capabilities that an algorithm must have.
        batch: sizes of a rank's share of a batch, from the mode's own options, the number of layers and the rank's
            rows; None for the whole graph, or if the sizes, and so the memory, are unknown.
        check: refuses (InputError) options of the mode that do not fit each other, or a model with this number of
            layers, which is None if unknown. None if all options fit.
        options: the mode's own options by name. Modes that share a name share the option.
    """

    name: str
    order: int
    help: str
    source: str
    adjacency: Adjacency
    offers: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    place_of_types: tuple[str, str] | None = None
    batch: Callable[[Mapping[str, Any], int, RankRows], BatchSizes] | None = None
    check: Callable[[Mapping[str, Any], int | None], object] | None = None
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def of_types(self) -> ModeKind:
        """The mode on graphs with types."""
        return replace(self, place=self.place_of_types or self.place)

    @property
    def is_sampled(self) -> bool:
        """An epoch consists of batches. Features and their gradients are then not kept from one batch to the next."""
        return self.adjacency is not Adjacency.WHOLE

    @property
    def capabilities(self) -> frozenset[str]:
        """Capabilities that the mode offers, including capabilities that follow from its adjacency."""
        return self.offers | _OF_ADJACENCY[self.adjacency]

    @property
    def reads_rows(self) -> bool:
        """Batches have only rows of features."""
        return self.adjacency is Adjacency.NONE
