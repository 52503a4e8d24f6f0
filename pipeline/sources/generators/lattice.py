"""Two- and three-dimensional lattices with shortcuts: a stand-in for road networks.

An edge joins every vertex to the next one along each axis; shortcuts join pairs of vertices drawn at random (Newman,
Watts, Phys. Rev. E 60, 1999). Edge number ``vertex * axes + axis`` starts at ``vertex`` and follows ``axis``; it does
not exist at the end of the lattice. The shortcuts have the numbers that follow, so any worker can make any range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.generators.generator import SEED, Generator, check_size, scramble_ids
from gnnloom.pipeline.sources.source import CHUNK_EDGES, EdgeChunk, SourceRange, even_ranges
from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.random_numbers import stream_key, unit
from gnnloom.storage.option import Option

#: Number of edge numbers that one task handles.
RANGE_EDGES = 1 << 23
#: Largest number of shortcuts per edge.
_MOST_SHORTCUTS = 1 << 20


@dataclass(frozen=True)
class LatticeEdges:
    """Edges of a lattice; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Attributes:
        sizes: number of vertices along each of two or three axes; the last varies fastest.
        shortcuts: number of random edges per edge of the lattice.
        scramble: whether to scramble the ids, which otherwise follow the axes.
        seed: seed of the shortcuts and of the scrambling.
        range_edges: number of edge numbers in a range.
        chunk_edges: number of edge numbers that are read at a time.
    """

    sizes: tuple[int, ...]
    shortcuts: float = 0.0
    scramble: bool = False
    seed: int = 0
    range_edges: int = RANGE_EDGES
    chunk_edges: int = CHUNK_EDGES

    def __post_init__(self) -> None:
        if len(self.sizes) not in {2, 3} or min(self.sizes) < 1 or math.prod(self.sizes) < 2:
            shown = "x".join(str(size) for size in self.sizes)
            raise InputError(f"lattice {shown}: expected two or three sizes of at least 1, and two vertices")
        if not 0 <= self.shortcuts <= _MOST_SHORTCUTS:
            raise InputError(f"lattice: {self.shortcuts} shortcuts per edge, expected 0 to {_MOST_SHORTCUTS:,}")
        check_size("lattice", math.prod(self.sizes), self.num_edges)

    def identity(self) -> dict[str, Any]:
        return {
            "format": "lattice",
            "sizes": list(self.sizes),
            "shortcuts": self.shortcuts,
            "scramble": self.scramble,
            "seed": self.seed,
        }

    @property
    def num_grid_edges(self) -> int:
        vertices = math.prod(self.sizes)
        return sum(vertices // size * (size - 1) for size in self.sizes)

    @property
    def num_shortcuts(self) -> int:
        return round(self.shortcuts * self.num_grid_edges)

    @property
    def num_edges(self) -> int:
        return self.num_grid_edges + self.num_shortcuts

    def num_vertices(self) -> int | None:
        return math.prod(self.sizes)

    def ranges(self) -> Sequence[SourceRange]:
        total = math.prod(self.sizes) * len(self.sizes) + self.num_shortcuts
        return even_ranges(0, total, self.range_edges)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        sizes = np.array(self.sizes, np.int64)
        vertices = math.prod(self.sizes)
        scramble_key = stream_key(self.seed, "lattice-ids")
        for start in range(span.start, span.stop, self.chunk_edges):
            most = min(self.chunk_edges, span.stop - start)
            source, target = np.empty(most, np.int64), np.empty(most, np.int64)
            count = _make_edges(stream_key(self.seed, "shortcuts"), start, sizes, vertices, source, target)
            source, target = source[:count], target[:count]
            if self.scramble:
                scramble_ids(source, vertices, scramble_key)
                scramble_ids(target, vertices, scramble_key)
            yield EdgeChunk(source, target)


@kernel
def _make_edges(
    key: np.uint64,
    start: int,
    sizes: NDArray[np.int64],
    vertices: int,
    source: NDArray[np.int64],
    target: NDArray[np.int64],
) -> int:
    """Make the edges numbered ``start``, ``start + 1``, ...; returns the number of existing edges."""
    # Every draw depends only on the edge's number, so ranges can be made in any order.
    axes, count = len(sizes), 0
    first: Any = 0
    for number in range(start, start + len(source)):
        shortcut = number - vertices * axes
        if shortcut >= 0:
            draw = np.uint64(2 * shortcut)
            first = np.int64(unit(key, draw) * vertices)
            second = np.int64(unit(key, draw + np.uint64(1)) * vertices)
        else:
            first = number // axes
            stride = 1
            for axis in range(axes - 1, number % axes, -1):
                stride *= sizes[axis]
            size = sizes[number % axes]
            # The vertex at the end of an axis has no next one, so its number stands for no edge.
            if first // stride % size == size - 1:
                continue
            second = first + stride
        source[count], target[count] = first, second
        count += 1
    return count


def _open_edges(*, size: tuple[int, ...], **options: Any) -> LatticeEdges:
    return LatticeEdges(size, **options)


GENERATOR = Generator(
    name="lattice",
    order=30,
    help="a grid with random shortcuts, like a road network",
    open_edges=_open_edges,
    options=(
        Option(
            "size",
            tuple[int, ...],
            "Lengths of the axes, AxB or AxBxC.",
            (1000, 1000),
            separator="x",
            lengths=(2, 3),
            required=True,
        ),
        Option("shortcuts", float, "Number of random edges per edge of the grid.", 0.0, least=0, most=_MOST_SHORTCUTS),
        Option("scramble", bool, "Scramble the ids instead of numbering along the axes.", False),
        SEED,
    ),
)
