"""A stochastic block model as a source: communities that a GNN can learn, from a seed, without a file.

Vertices have a slot, which determines the community; a keyed permutation maps slots to ids. An edge draws its source
from all vertices. With probability ``homophily`` it draws its target from the same community, otherwise from all
vertices. The j-th vertex of a community is drawn with a probability proportional to j^-skew, so degrees follow a power
law with exponent 1 + 1/skew (Chung, Lu 2002). Features are the community's centroid plus Gaussian noise, scaled to unit
variance; labels are the communities. Every number is a hash of the seed and its position, so any worker can make any
range of edges or rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.generators.generator import SEED, Generator, check_size
from gnnloom.pipeline.sources.source import CHUNK_EDGES, MOST_COLUMNS, EdgeChunk, SourceRange, even_ranges
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import KeyedPermutation
from gnnloom.storage.matrix.random_numbers import normal, stream_key, uniform, unit
from gnnloom.storage.option import Option

#: Number of edges that one task makes.
RANGE_EDGES = 1 << 23
#: Number of feature values made at a time.
_BLOCK_VALUES = 1 << 21
_DRAWS = 4  # random numbers per edge


@dataclass(frozen=True)
class StochasticBlockModel:
    """The model that an edge source and a vertex source share.

    Attributes:
        num_vertices: number of vertices.
        num_edges: number of edges drawn, including loops and repeated edges.
        num_blocks: number of communities, which are the classes.
        homophily: probability that the target of an edge is drawn from the community of its source.
        skew: 0 for even degrees; larger hubs as it approaches 1.
        num_features: number of features.
        noise: standard deviation of the features' noise, relative to the deviation of the centroids.
        train, valid: fractions of the vertices for training and validation; the others are for testing.
        seed: seed of all random numbers.
    """

    num_vertices: int
    num_edges: int
    num_blocks: int = 16
    homophily: float = 0.8
    skew: float = 0.3
    num_features: int = 64
    noise: float = 6.0
    train: float = 0.1
    valid: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        _require(1 <= self.num_blocks <= self.num_vertices, f"{self.num_blocks} blocks of {self.num_vertices} vertices")
        _require(self.num_edges >= 1, f"{self.num_edges} edges")
        check_size("stochastic block model", self.num_vertices, self.num_edges)
        _require(0 <= self.homophily <= 1, f"homophily {self.homophily}, expected 0 to 1")
        _require(0 <= self.skew < 1, f"skew {self.skew}, expected at least 0 and below 1")
        _require(self.num_features >= 1, f"{self.num_features} features")
        _require(self.noise >= 0, f"noise {self.noise}")
        _require(
            self.train >= 0 <= self.valid and self.train + self.valid <= 1,
            f"fractions {self.train} to train and {self.valid} to validate",
        )

    def identity(self) -> dict[str, Any]:
        """JSON with all parameters."""
        return {"format": "sbm", **asdict(self)}

    def scatter(self) -> KeyedPermutation:
        """The permutation from slots (community + num_blocks * j) to ids."""
        return KeyedPermutation(self.num_vertices, int(stream_key(self.seed, "scatter")))

    def edges(self) -> BlockModelEdges:
        return BlockModelEdges(self)

    def vertices(self) -> BlockModelVertices:
        return BlockModelVertices(self)


@dataclass(frozen=True)
class BlockModelEdges:
    """Edges of the model; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`."""

    model: StochasticBlockModel
    range_edges: int = RANGE_EDGES

    def identity(self) -> dict[str, Any]:
        return self.model.identity()

    def num_vertices(self) -> int | None:
        return self.model.num_vertices

    def ranges(self) -> Sequence[SourceRange]:
        return even_ranges(0, self.model.num_edges, self.range_edges)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        model, scatter = self.model, self.model.scatter()
        key = stream_key(model.seed, "edges")
        for start in range(span.start, span.stop, CHUNK_EDGES):
            count = min(CHUNK_EDGES, span.stop - start)
            source, target = np.empty(count, np.int64), np.empty(count, np.int64)
            power = 1.0 / (1.0 - model.skew)
            _draw_slots(key, start, model.num_vertices, model.num_blocks, model.homophily, power, source, target)
            yield EdgeChunk(scatter.forward(source), scatter.forward(target))


@dataclass(frozen=True)
class BlockModelVertices:
    """Features, labels and split of the model; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`."""

    model: StochasticBlockModel

    arrays = ("feature", "label", "split")
    random_access = True
    in_graph_order = False

    def identity(self) -> dict[str, Any]:
        return self.model.identity()

    def num_vertices(self) -> int:
        return self.model.num_vertices

    def num_columns(self, array: str) -> int:
        return self.model.num_features if array == "feature" else int(array in self.arrays)

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        makers: Mapping[str, Callable[[int, int], NDArray[Any]]]
        makers = {"feature": self._features, "label": self._labels, "split": self._split}
        rows = max(1, _BLOCK_VALUES // self.num_columns(array))
        for first in range(start, stop, rows):
            yield makers[array](first, min(first + rows, stop))

    def _labels(self, start: int, stop: int) -> NDArray[np.int32]:
        slots = self.model.scatter().inverse(np.arange(start, stop))
        return (slots % self.model.num_blocks).astype(np.int32)

    def _features(self, start: int, stop: int) -> NDArray[np.float32]:
        model, width = self.model, self.model.num_features
        centroid = normal(stream_key(model.seed, "centroid"), 0, model.num_blocks * width).reshape(-1, width)
        rows = normal(stream_key(model.seed, "noise"), start * width, stop * width).reshape(-1, width)
        rows *= np.float32(model.noise)
        rows += centroid[self._labels(start, stop)]
        rows /= np.float32(np.sqrt(1.0 + model.noise**2))
        return rows

    def _split(self, start: int, stop: int) -> NDArray[np.uint8]:
        draw = uniform(stream_key(self.model.seed, "split"), start, stop)
        return split_codes(draw, self.model.train, self.model.valid)


def split_codes(draw: NDArray[np.float64], train: float, valid: float) -> NDArray[np.uint8]:
    """Split codes for uniform draws: the lowest are for training, the next for validation, the others for testing.

    Args:
        draw: (num_vertices,) float64 in [0, 1).
        train, valid: fractions for training and validation.

    Returns:
        (num_vertices,) uint8, codes of ``gnnloom.storage.artifacts.vertices.SPLIT``.
    """
    codes = np.full(len(draw), SPLIT["test"], np.uint8)
    codes[draw < train + valid] = SPLIT["valid"]
    codes[draw < train] = SPLIT["train"]
    return codes


@kernel
def _draw_slots(
    key: np.uint64,
    start: int,
    num_vertices: int,
    num_blocks: int,
    homophily: float,
    power: float,
    source: NDArray[np.int64],
    target: NDArray[np.int64],
) -> None:
    """Draw the slots of the ends of edges ``start``, ``start + 1``, ..."""
    for k in range(len(source)):
        counter = np.uint64(start + k) * np.uint64(_DRAWS)
        first = _slot(unit(key, counter), unit(key, counter + np.uint64(1)), num_vertices, num_blocks, power)
        draw = unit(key, counter + np.uint64(2))
        if draw < homophily:
            # The middle of the community's interval, so that rounding in ``_slot`` cannot leave the community.
            block_draw = (first % num_blocks + 0.5) / num_blocks
        else:
            # Given that it is not below homophily, the draw is uniform between homophily and 1.
            block_draw = (draw - homophily) / (1.0 - homophily)
        source[k] = first
        target[k] = _slot(block_draw, unit(key, counter + np.uint64(3)), num_vertices, num_blocks, power)


@kernel
def _slot(block_draw: float, draw: float, num_vertices: int, num_blocks: int, power: float) -> Any:
    """A slot: one draw determines the community, the other the vertex in it."""
    block: Any = min(np.int64(block_draw * num_blocks), num_blocks - 1)
    # Slots of a community are ``num_blocks`` apart; the first communities have one more if the division has a
    # remainder.
    size = (num_vertices - block + num_blocks - 1) // num_blocks
    # The density x^-skew on (0, 1) has the distribution function x^(1 - skew), whose inverse is this power.
    if power != 1.0:
        draw = draw**power
    # The product may round up to ``size``, although the draw is below 1.
    return block + num_blocks * min(np.int64(draw * size), size - 1)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InputError(f"stochastic block model: {what}")


#: The model's field for each option whose name differs.
_FIELDS = {"vertices": "num_vertices", "edges": "num_edges", "classes": "num_blocks", "dim": "num_features"}


def _model(**options: Any) -> StochasticBlockModel:
    return StochasticBlockModel(**{_FIELDS.get(name, name): value for name, value in options.items()})


GENERATOR = Generator(
    name="sbm",
    order=10,
    help="a stochastic block model, with features, labels (the communities) and a split",
    open_edges=lambda **options: _model(**options).edges(),
    options=(
        Option("vertices", int, "Number of vertices.", 10_000, least=1, required=True),
        Option("edges", int, "Number of edges to draw.", 200_000, least=1, required=True),
        Option("classes", int, "Number of communities.", 16, least=1, most=MOST_COLUMNS),
        Option("homophily", float, "Fraction of edges drawn within a community.", 0.8, least=0, most=1),
        Option("skew", float, "Skew of the degrees.", 0.3, least=0, below=1),
        Option("dim", int, "Number of features.", 64, least=1, most=MOST_COLUMNS),
        Option("noise", float, "Standard deviation of the features' noise.", 6.0, least=0),
        SEED,
    ),
    open_vertices=lambda **options: _model(**options).vertices(),
)
