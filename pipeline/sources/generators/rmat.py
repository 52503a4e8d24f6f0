"""R-MAT (Kronecker) graphs as a source of edges, from a seed, without a file.

An edge descends through ``scale`` levels of a 2 x 2 matrix of probabilities; each level determines one bit of both of
its ends (Chakrabarti, Zhan, Faloutsos, SDM 2004; the parameters are Graph500's, without noise). Four levels are drawn
at once, from an alias table of their 256 outcomes (Vose, IEEE Trans. Softw. Eng. 17(9), 1991). Every draw is a hash of
the seed and the edge's number, so any worker can make any range of edges. A keyed bijection scrambles the ids, as in
Graph500.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.generators.generator import MOST_VERTICES, SEED, Generator, check_size, scramble_ids
from gnnloom.pipeline.sources.source import CHUNK_EDGES, EdgeChunk, SourceRange, even_ranges
from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import mix
from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.storage.option import Option

#: Number of edges that one task makes.
RANGE_EDGES = 1 << 23
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: Levels drawn at once, the number of their outcomes, and the bits that are compared with an outcome's threshold.
_LEVELS = 4
_OUTCOMES = 1 << 2 * _LEVELS
_DRAW_BITS = 32 - 2 * _LEVELS
_MAX_SCALE = MOST_VERTICES.bit_length() - 1


@dataclass(frozen=True)
class RmatEdges:
    """Edges of an R-MAT graph; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Attributes:
        scale: binary logarithm of the number of vertices.
        edge_factor: number of edges per vertex, including loops and repeated edges.
        a, b, c: probabilities of the upper left, upper right and lower left quarters.
        scramble: whether to scramble the ids; otherwise low ids have the most edges.
        seed: seed of the edges and of the scrambling.
        range_edges: number of edges in a range.
        chunk_edges: number of edges that are read at a time.
    """

    scale: int
    edge_factor: int = 16
    a: float = 0.57
    b: float = 0.19
    c: float = 0.19
    scramble: bool = True
    seed: int = 0
    range_edges: int = RANGE_EDGES
    chunk_edges: int = CHUNK_EDGES

    def __post_init__(self) -> None:
        if not 1 <= self.scale <= _MAX_SCALE:
            raise InputError(f"R-MAT: scale {self.scale}, expected 1 to {_MAX_SCALE}")
        if self.edge_factor < 1:
            raise InputError(f"R-MAT: {self.edge_factor} edges per vertex, expected at least 1")
        check_size("R-MAT", 1 << self.scale, self.num_edges)
        if min(self.a, self.b, self.c) < 0 or self.a + self.b + self.c > 1 + 1e-9:
            raise InputError(f"R-MAT: probabilities {self.a}, {self.b} and {self.c}; expected a sum of at most 1")

    def identity(self) -> dict[str, Any]:
        given = asdict(self)
        del given["range_edges"], given["chunk_edges"]
        return {"format": "rmat", **given}

    @property
    def num_edges(self) -> int:
        return self.edge_factor << self.scale

    def num_vertices(self) -> int | None:
        return 1 << self.scale

    def ranges(self) -> Sequence[SourceRange]:
        return even_ranges(0, self.num_edges, self.range_edges)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        key, scramble_key = stream_key(self.seed, "rmat"), stream_key(self.seed, "rmat-ids")
        threshold, other = alias_table(_outcome_probabilities(self.a, self.b, self.c))
        for start in range(span.start, span.stop, self.chunk_edges):
            count = min(self.chunk_edges, span.stop - start)
            source, target = np.empty(count, np.int64), np.empty(count, np.int64)
            _descend(key, start, self.scale, threshold, other, source, target)
            if self.scramble:
                scramble_ids(source, 1 << self.scale, scramble_key)
                scramble_ids(target, 1 << self.scale, scramble_key)
            yield EdgeChunk(source, target)


def _outcome_probabilities(a: float, b: float, c: float) -> NDArray[np.float64]:
    """(256,) probability of outcome ``row * 16 + column``; row and column have one bit for each of four levels."""
    quarter = np.maximum([[a, b], [c, 1.0 - a - b - c]], 0.0)
    levels: NDArray[Any] = np.ones((1, 1))
    for _ in range(_LEVELS):
        levels = np.kron(levels, quarter)
    return levels.reshape(-1)


def alias_table(probability: NDArray[np.float64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Build an alias table: an outcome keeps draws below its threshold and passes the others to another outcome.

    Args:
        probability: (num_outcomes,) float64.

    Returns:
        (num_outcomes,) uint64 thresholds in units of 2^-24, and (num_outcomes,) uint64 other outcomes.
    """
    share = (probability * len(probability) / probability.sum()).tolist()
    other = list(range(len(share)))
    small = [outcome for outcome, width in enumerate(share) if width < 1]
    large = [outcome for outcome, width in enumerate(share) if width >= 1]
    # Vose's method: fill up an outcome that is too narrow from one that is too wide.
    while small and large:
        poor, rich = small.pop(), large[-1]
        other[poor] = rich
        share[rich] -= 1.0 - share[poor]
        if share[rich] < 1:
            small.append(large.pop())
    for outcome in (*small, *large):
        # Only rounding errors keep these from being exactly full.
        share[outcome] = 1.0
    return np.round(np.array(share) * (1 << _DRAW_BITS)).astype(np.uint64), np.array(other, np.uint64)


@kernel
def _descend(
    key: np.uint64,
    start: int,
    scale: int,
    threshold: NDArray[np.uint64],
    other: NDArray[np.uint64],
    source: NDArray[np.int64],
    target: NDArray[np.int64],
) -> None:
    """Draw the ends of edges ``start``, ``start + 1``, ...; a random word of 64 bits serves eight levels."""
    draws = (scale + _LEVELS - 1) // _LEVELS
    words = np.uint64((draws + 1) // 2)
    # Only the first levels of the last draw count; at most 40 bits are drawn, so no shift overflows.
    surplus = np.uint64(draws * _LEVELS - scale)
    for k in range(len(source)):
        counter = np.uint64(start + k) * words
        first, second, word = np.uint64(0), np.uint64(0), np.uint64(0)
        for number in range(draws):
            if number % 2 == 0:
                # SplitMix64 with the edge's counter for its state: a word depends on nothing that was drawn before.
                word = mix(key + counter * _GOLDEN)
                counter += np.uint64(1)
            outcome = word & np.uint64(_OUTCOMES - 1)
            draw = (word >> np.uint64(2 * _LEVELS)) & np.uint64((1 << _DRAW_BITS) - 1)
            word >>= np.uint64(32)
            outcome = outcome if draw < threshold[outcome] else other[outcome]
            first = (first << np.uint64(_LEVELS)) | (outcome >> np.uint64(_LEVELS))
            second = (second << np.uint64(_LEVELS)) | (outcome & np.uint64((1 << _LEVELS) - 1))
        source[k], target[k] = np.int64(first >> surplus), np.int64(second >> surplus)


GENERATOR = Generator(
    name="rmat",
    order=20,
    help="a Kronecker graph with Graph500's parameters",
    open_edges=RmatEdges,
    options=(
        Option("scale", int, "2^SCALE vertices.", 16, least=1, most=_MAX_SCALE, required=True),
        Option("edge_factor", int, "Number of edges to draw per vertex.", 16, least=1),
        Option("scramble", bool, "Keep the ids in order: low ids have the most edges.", True, flag_name="ordered"),
        SEED,
    ),
)
