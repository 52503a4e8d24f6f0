"""Bytes and messages of an epoch by the papers' analyses of the algorithms, for rings, float64 and 32-bit column ids.

Every figure is a sum over all ranks.  With n vertices, P ranks and a product of width w:

* 1D: P broadcasts of a block of rows, (P - 1) n w words in all (CAGNET, IV-A).
* 1.5D: P / c blocks, each broadcast among the P / c ranks of one copy, then an all-reduce of c (IV-B).
* 2D: the features down the process columns, (p - 1) n w; the adjacency along the rows, q - 1 times (IV-C).
* 3D: the same in every layer, and a reduce-scatter of (c - 1) n w along the fibers (IV-D).
* Plexus, section 3: all-reduces of H over X, of Q over Y, of dH over X and of dF over Z, of which the first and the
  last layer of the input's are an all-gather and a reduce-scatter; W gathered and dW scattered over Z.
* What a layer adds to the product with A of its own rows: each rank is sent what it does not hold already.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

WORD = 8


@dataclass
class Epoch:
    """What decides the traffic of an epoch."""

    num_vertices: int
    nnz: int
    num_training: int
    dims: tuple[int, ...]
    propagates_first: tuple[bool, ...]
    input_kept: bool
    input_gradient: bool = False
    bytes: Counter = field(default_factory=Counter)
    messages: Counter = field(default_factory=Counter)

    @property
    def products(self) -> list[tuple[int, bool, int]]:
        """Layer, direction and width of every product with the adjacency."""
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
        """``count`` broadcasts among ``size`` ranks, of ``words`` together."""
        self.add(kind, (size - 1) * words * WORD, count * (size - 1))

    def gathers(self, kind: str, words: int, size: int, count: int) -> None:
        """All-gathers to, or reduce-scatters from, ``words`` together."""
        self.add(kind, (size - 1) * words * WORD, count * size * (size - 1))

    def reductions(self, kind: str, words: int, size: int, count: int) -> None:
        """All-reduces of ``words`` together."""
        self.add(kind, 2 * (size - 1) * words * WORD, count * 2 * size * (size - 1))

    def loss_and_gradients(self, ranks: int, groups: int, words: int, split: int, copies: int) -> None:
        """The sum of the gradients in ``groups`` of ranks, and a loss whose rows are split over ``split`` ranks."""
        self.reductions("gradient", groups * words, ranks // groups, groups)
        self.reductions("loss", 2, ranks, 1)
        self.reductions("loss", copies * 3 * self.num_training, split, 2 * ranks // split)

    def counted(self) -> tuple[dict[str, int], dict[str, int]]:
        """Bytes and messages by kind, where any are."""
        return ({kind: n for kind, n in counts.items() if n} for counts in (self.bytes, self.messages))


def _kind(what: str, backward: bool) -> str:
    return f"{what} {'backward' if backward else 'forward'}"


def _parameters(dims: tuple[int, ...]) -> int:
    return sum(before * after + after for before, after in pairwise(dims))


def row_blocks(epoch: Epoch, blocks: int, copies: int = 1) -> None:
    """1D, and 1.5D with ``copies``."""
    for _, backward, width in epoch.products:
        kind = _kind("propagate", backward)
        epoch.broadcasts(kind, epoch.num_vertices * width, blocks, blocks)
        epoch.reductions(kind, epoch.num_vertices * width, copies, blocks)
    epoch.loss_and_gradients(blocks * copies, copies, _parameters(epoch.dims), 1, 0)


def summa(epoch: Epoch, rows: int, columns: int, layers: int = 1, width: int = 0) -> None:
    """2D, and 3D with ``layers``."""
    n, ranks = epoch.num_vertices, rows * columns * layers
    stages = sum(_stages(n, rows, columns, layers, layer, width) for layer in range(layers))
    for _, backward, dim in epoch.products:
        kind = _kind("propagate", backward)
        epoch.broadcasts(kind, n * dim, rows, columns * stages)
        epoch.gathers(kind, n * dim, layers, rows * columns)
        entries = (columns - 1) * (4 * epoch.nnz + WORD * stages * (n + rows))
        epoch.add("adjacency", entries, (columns - 1) * 2 * rows * stages)
    for before, after in pairwise(epoch.dims):
        epoch.broadcasts("transform forward", n * before, columns, rows * layers * columns)
        epoch.broadcasts("transform backward", n * after, columns, rows * layers * columns)
    epoch.loss_and_gradients(ranks, 1, _parameters(epoch.dims), columns, 1)


def _stages(n: int, rows: int, columns: int, layers: int, layer: int, width: int) -> int:
    """Ranges of what a layer sums over, between changes of an owner and at most ``width`` long."""
    parts = rows * layers
    lengths = [(i * layers + layer + 1) * n // parts - (i * layers + layer) * n // parts for i in range(rows)]
    total = sum(lengths)
    cuts = {sum(lengths[:i]) for i in range(rows + 1)} | {j * total // columns for j in range(columns + 1)}
    return len(cuts | set(range(0, total, width or max(1, total)))) - 1


def tensor3d(epoch: Epoch, x: int, y: int, z: int, blocks: int = 1) -> None:
    """Plexus, and ours with A (H W)."""
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
        share = depth if first else outer
        epoch.gathers("weight", 2 * before * after, share, 2 * ranks // share)
        outer, inner, depth = (depth, outer, inner) if first else (inner, depth, outer)
    epoch.loss_and_gradients(ranks, 1, sum(epoch.dims[1:]), inner, depth)


@dataclass(frozen=True)
class Cut:
    """A matrix with its rows, in some order of the vertices, and its columns cut along axes of a grid, by number."""

    order: str
    rows: tuple[int, ...]
    columns: tuple[int, ...] = ()

    def block(self, shape: tuple[int, ...], rank: tuple[int, ...], vertices: dict, dim: int) -> tuple[set, set]:
        """Vertices and columns that a rank holds."""
        found = []
        for axes, items in ((self.rows, vertices[self.order].tolist()), (self.columns, range(dim))):
            parts, number = 1, 0
            for axis in axes:
                parts, number = parts * shape[axis], number * shape[axis] + rank[axis]
            found.append(set(items[number * len(items) // parts : (number + 1) * len(items) // parts]))
        return found[0], found[1]


def alignment(shape: tuple[int, ...], source: Cut, target: Cut, vertices: dict, dim: int) -> tuple[int, int]:
    """Bytes and messages that bring every rank what it lacks: one message from each part of the source.

    Args:
        vertices: order -> ids of the vertices in it.
    """
    ranks = list(np.ndindex(shape))
    sent = messages = 0
    for rank in ranks:
        wanted, mine = (cut.block(shape, rank, vertices, dim) for cut in (target, source))
        parts = {tuple(map(frozenset, source.block(shape, other, vertices, dim))) for other in ranks}
        for rows, columns in parts - {tuple(map(frozenset, mine))}:
            entries = len(rows & wanted[0]) * len(columns & wanted[1])
            sent, messages = sent + entries * WORD, messages + (entries > 0)
    return sent, messages


def plane_cuts(propagates_first: tuple[bool, ...], orders: tuple[str, str]) -> list[tuple[Cut, Cut, Cut, Cut]]:
    """Of every layer of tensor3d: what enters and leaves the product with A, and what enters and leaves the layer."""
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
