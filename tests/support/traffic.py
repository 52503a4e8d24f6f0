"""Bytes and messages of an epoch by the papers' analyses, for ring collectives, float64 and 32-bit column ids.

Every figure is a sum over all ranks.  With n vertices, P ranks and a product of width w:

* 1D: P broadcasts of a block of rows, (P - 1) n w words in all (CAGNET, IV-A).
* 1.5D: P / c blocks, each broadcast among the P / c ranks of one copy (IV-B). The paper's ranks hold whole blocks, and
  all-reduce them; ours hold 1 / c of a block each: they send it to the copy that broadcasts, (1 - 1 / c) n w words in
  all, and a reduce-scatter over c copies sends (c - 1) n w.
* 2D: the features down the process columns, (p - 1) n w; the adjacency along the rows, q - 1 times (IV-C).
* 3D: the same in every layer, and a reduce-scatter of (c - 1) n w words along the fibers (IV-D).
* Plexus, section 3: all-reduces of H over X, of Q over Y, of dH over X and of dF over Z; for the model's input, an
  all-gather and a reduce-scatter instead. W is gathered and dW scattered over Z.
* Realignment of a layer's own rows: each rank receives the entries that it does not hold.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

#: Bytes of a float64.
WORD = 8

#: Vertex order to the ids of the vertices in that order.
Vertices = dict[str, NDArray[np.int64]]


@dataclass
class Epoch:
    """What determines the traffic of an epoch; the functions below add to its counts."""

    num_vertices: int
    nnz: int
    num_training: int
    dims: tuple[int, ...]
    propagates_first: tuple[bool, ...]
    input_kept: bool
    input_gradient: bool = False
    bytes: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)

    @property
    def products(self) -> list[tuple[int, bool, int]]:
        """Layer, direction (True: backward) and width of every product with the adjacency."""
        found = []
        for layer, first in enumerate(self.propagates_first):
            width = self.dims[layer] if first else self.dims[layer + 1]
            if layer > 0 or not self.input_kept:
                found.append((layer, False, width))
            if layer > 0 or self.input_gradient or not first:
                found.append((layer, True, width))
        return found

    def add(self, kind: str, num_bytes: int, num_messages: int) -> None:
        self.bytes[kind] += num_bytes
        self.messages[kind] += num_messages

    def broadcasts(self, kind: str, words: int, size: int, count: int) -> None:
        """``count`` broadcasts, each among ``size`` ranks, of ``words`` words in total."""
        self.add(kind, (size - 1) * words * WORD, count * (size - 1))

    def gathers(self, kind: str, words: int, size: int, count: int) -> None:
        """``count`` all-gathers or reduce-scatters, each among ``size`` ranks, of ``words`` words in total."""
        self.add(kind, (size - 1) * words * WORD, count * size * (size - 1))

    def reductions(self, kind: str, words: int, size: int, count: int) -> None:
        """``count`` all-reduces, each among ``size`` ranks, of ``words`` words in total."""
        self.add(kind, 2 * (size - 1) * words * WORD, count * 2 * size * (size - 1))

    def loss_and_gradients(self, ranks: int, groups: int, words: int, split: int, copies: int) -> None:
        """The sum of the gradients in ``groups`` of ranks, and a loss whose rows are split over ``split`` ranks."""
        self.reductions("gradient", groups * words, ranks // groups, groups)
        self.reductions("loss", 2, ranks, 1)
        self.reductions("loss", copies * 3 * self.num_training, split, 2 * ranks // split)

    def counted(self) -> tuple[dict[str, int], dict[str, int]]:
        """Bytes and messages by kind, without zeros."""
        num_bytes, messages = ({kind: n for kind, n in one.items() if n} for one in (self.bytes, self.messages))
        return num_bytes, messages


def _kind(what: str, backward: bool) -> str:
    return f"{what} {'backward' if backward else 'forward'}"


def _parameters(dims: tuple[int, ...]) -> int:
    return sum(before * after + after for before, after in pairwise(dims))


def row_blocks(epoch: Epoch, blocks: int, copies: int = 1) -> None:
    """1D, and 1.5D with ``copies``."""
    n, ranks = epoch.num_vertices, blocks * copies
    collected = []
    for rank in range(ranks):
        block, copy = divmod(rank, copies)
        held = (rank + 1) * n // ranks - rank * n // ranks
        if not copy * blocks // copies <= block < (copy + 1) * blocks // copies and held:
            collected.append(held)
    for _, backward, width in epoch.products:
        kind = _kind("propagate", backward)
        epoch.add(kind, sum(collected) * width * WORD, len(collected))
        epoch.broadcasts(kind, n * width, blocks, blocks)
        epoch.gathers(kind, n * width, copies, blocks)
    epoch.loss_and_gradients(ranks, 1, _parameters(epoch.dims), 1, 0)


def summa(epoch: Epoch, rows: int, columns: int, layers: int = 1, width: int = 0) -> None:
    """2D, and 3D with ``layers``."""
    n, ranks = epoch.num_vertices, rows * columns * layers
    stages = sum(_stages(n, rows, columns, layers, layer, width) for layer in range(layers))
    for _, backward, dim in epoch.products:
        kind = _kind("propagate", backward)
        epoch.broadcasts(kind, n * dim, rows, columns * stages)
        epoch.gathers(kind, n * dim, layers, rows * columns)
        # With the column ids, the entries of every row of every block, or, if there are fewer, the row of every entry.
        numbers = epoch.nnz + min(epoch.nnz, n * stages)
        epoch.add("adjacency", (columns - 1) * 4 * numbers, (columns - 1) * 2 * rows * stages)
    for before, after in pairwise(epoch.dims):
        epoch.broadcasts("transform forward", n * before, columns, rows * layers * columns)
        epoch.broadcasts("transform backward", n * after, columns, rows * layers * columns)
    epoch.loss_and_gradients(ranks, 1, _parameters(epoch.dims), columns, 1)


def _stages(n: int, rows: int, columns: int, layers: int, layer: int, width: int) -> int:
    """Number of vertex ranges that a layer sums over: cut where an owner changes, at most ``width`` long."""
    parts = rows * layers
    lengths = [(i * layers + layer + 1) * n // parts - (i * layers + layer) * n // parts for i in range(rows)]
    total = sum(lengths)
    cuts = {sum(lengths[:i]) for i in range(rows + 1)} | {j * total // columns for j in range(columns + 1)}
    return len(cuts | set(range(0, total, width or max(1, total)))) - 1


def tensor3d(epoch: Epoch, x: int, y: int, z: int, blocks: int = 1) -> None:
    """Plexus, and our variant with A (H W)."""
    n, ranks = epoch.num_vertices, x * y * z
    outer, inner, depth = x, y, z
    for layer, (before, after) in enumerate(pairwise(epoch.dims)):
        first = epoch.propagates_first[layer]
        size = {"outer": outer, "inner": inner, "depth": depth}
        back = "depth" if first else "inner"
        for at, backward, width in epoch.products:
            if at != layer:
                continue
            over, kind = size[back if backward else "outer"], _kind("propagate", backward)
            if backward and layer == 0 and first:
                epoch.gathers(kind, n * width, over, ranks // over)
            else:
                epoch.reductions(kind, n * width, over, blocks * ranks // over)
            if not backward and layer == 0 and first:
                epoch.gathers(kind, n * width, depth, ranks // depth)
        epoch.reductions("transform forward", n * after, inner, ranks // inner)
        if layer == 0 and not first:
            epoch.gathers("transform forward", n * before, depth, ranks // depth)
        if layer > 0 or epoch.input_gradient:
            over = outer if first else depth
            count = epoch.gathers if layer == 0 and not first else epoch.reductions
            count("transform backward", n * before, over, ranks // over)
        split = depth if first else outer
        epoch.gathers("weight", 2 * before * after, split, 2 * ranks // split)
        outer, inner, depth = (depth, outer, inner) if first else (inner, depth, outer)
    epoch.loss_and_gradients(ranks, 1, sum(epoch.dims[1:]), inner, depth)


@dataclass(frozen=True)
class Cut:
    """How a matrix is cut along axes of a grid, given by number.

    Attributes:
        order: vertex order of the rows.
        rows, columns: axes that cut the rows and the columns.
    """

    order: str
    rows: tuple[int, ...]
    columns: tuple[int, ...] = ()

    def block(
        self, shape: tuple[int, ...], rank: tuple[int, ...], vertices: Vertices, dim: int
    ) -> tuple[set[int], set[int]]:
        """Vertices and columns that a rank holds."""
        found: list[set[int]] = []
        for axes, items in ((self.rows, vertices[self.order].tolist()), (self.columns, range(dim))):
            count, number = 1, 0
            for axis in axes:
                count, number = count * shape[axis], number * shape[axis] + rank[axis]
            found.append(set(items[number * len(items) // count : (number + 1) * len(items) // count]))
        return found[0], found[1]


def _frozen(block: tuple[set[int], set[int]]) -> tuple[frozenset[int], frozenset[int]]:
    rows, columns = block
    return frozenset(rows), frozenset(columns)


def alignment(shape: tuple[int, ...], source: Cut, target: Cut, vertices: Vertices, dim: int) -> tuple[int, int]:
    """Bytes and messages that bring every rank the entries it lacks: one message from each block of the source.

    Args:
        shape: ranks along each axis of the grid.
        vertices: vertex order to the ids of the vertices in that order.
        dim: width of the matrix.
    """
    ranks = list(np.ndindex(shape))
    sent = messages = 0
    for rank in ranks:
        wanted, mine = (cut.block(shape, rank, vertices, dim) for cut in (target, source))
        blocks = {_frozen(source.block(shape, other, vertices, dim)) for other in ranks}
        for rows, columns in blocks - {_frozen(mine)}:
            entries = len(rows & wanted[0]) * len(columns & wanted[1])
            sent, messages = sent + entries * WORD, messages + (entries > 0)
    return sent, messages


def plane_cuts(propagates_first: tuple[bool, ...], orders: tuple[str, str]) -> list[tuple[Cut, Cut, Cut, Cut]]:
    """For every layer of tensor3d, the cuts of the product's input and output, and of the layer's input and output."""
    found, (outer, inner, depth) = [], (0, 1, 2)
    for layer, first in enumerate(propagates_first):
        here, there = orders[layer % 2], orders[(layer + 1) % 2]
        enters = Cut(here, (outer,), (inner,))
        if first:
            product, leaves = (enters, Cut(there, (depth,), (inner,))), Cut(there, (depth,), (outer,))
            outer, inner, depth = depth, outer, inner
        else:
            leaves = Cut(there, (inner,), (depth,))
            product = (Cut(here, (outer,), (depth,)), leaves)
            outer, inner, depth = inner, depth, outer
        found.append((*product, enters, leaves))
    return found
