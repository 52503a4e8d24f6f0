"""``neighbor``: some neighbors of each vertex, layer by layer, from seeds on.

Hamilton, Ying, Leskovec (GraphSAGE, NeurIPS 2017), appendix A, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import copy_elements, count_below
from gnnloom.storage.matrix.csr import CSR, INT32_WIDTH
from gnnloom.storage.matrix.permutation import GOLDEN, mix
from gnnloom.storage.matrix.random_numbers import below
from gnnloom.storage.samplers.kind import ALL
from gnnloom.storage.sampling.sampler import Block, Sample, Sampler
from gnnloom.storage.sampling.vertex import members
from gnnloom.storage.sampling.vertex_table import build_table, find_slot, slot_bits


class NeighborSampler(Sampler):
    """Takes some seeds at a time of a random order of all, and draws neighbors for as many layers as fan-outs.

    A vertex gathers from the columns of its row. A self loop is one of them, drawn like any other. Every vertex of a
    layer draws anew, also one that drew before in another layer; with ``draw_once`` it keeps what it drew first, so
    that one graph serves all layers, as in PyG. What a vertex draws depends on the batch, the layer and the vertex
    only, so a process that owns the vertex can draw for others, and what is drawn with ``draw_once`` is a part of
    what is drawn without it.

    Args:
        seeds: (num_seeds,) int64 vertices whose outputs are wanted, ascending, such as the vertices of the training
            split.
        fanouts: neighbors to draw for each vertex, from the layer of the seeds on: ``ALL``, or 1 or more.
        batch_size: seeds in a batch.
        replace: draw with replacement; a row then has ``fanout`` nonzeros even if the vertex has fewer neighbors.
        draw_once: a layer draws for the vertices that it is the first to have, instead of for all of its vertices.

    Raises:
        InputError: an argument is out of its range, or the seeds are not ascending vertices of the graph.
    """

    kind = "neighbor"

    def __init__(
        self,
        graph: WholeGraph,
        seed: int,
        seeds: NDArray[np.int64],
        fanouts: Sequence[int],
        batch_size: int,
        *,
        replace: bool = False,
        draw_once: bool = False,
    ) -> None:
        super().__init__(graph, seed)
        if not fanouts or any(fanout != ALL and fanout < 1 for fanout in fanouts):
            raise InputError(f"fan-outs {list(fanouts)}: expected one per layer, each 1 or more, or {ALL} for all")
        if batch_size < 1:
            raise InputError(f"batches of {batch_size} seeds: expected 1 or more")
        if not len(seeds) or seeds[0] < 0 or seeds[-1] >= graph.num_vertices or not (seeds[1:] > seeds[:-1]).all():
            raise InputError(f"{len(seeds)} seeds: expected ascending vertices of a graph of {graph.num_vertices:,}")
        self.seeds, self.fanouts, self.batch_size = seeds, tuple(fanouts), batch_size
        self.replace, self.draw_once = replace, draw_once

    @property
    def num_batches(self) -> int:
        return -(-len(self.seeds) // self.batch_size)

    def draw(self, epoch: int, batch: int) -> NDArray[np.int64]:
        """See :meth:`Sampler.draw`.

        Raises:
            InputError: the epoch has fewer batches.
        """
        return self.seeds[members(len(self.seeds), self.batch_size, self.seed, epoch, batch)]

    def sample(self, epoch: int, batch: int) -> Sample:
        return self.sample_of(self.draw(epoch, batch), epoch, batch)

    def sample_of(
        self, seeds: NDArray[np.int64], epoch: int, batch: int, excluded: NDArray[np.int64] | None = None
    ) -> Sample:
        """Draw neighbors for a batch of given seeds, as if the graph lacked some entries.

        Args:
            seeds: (num_drawn,) int64, ascending.
            excluded: (num_excluded,) int64 positions of entries in the graph's matrix, ascending; see
                :func:`gnnloom.storage.sampling.layered.excluded_entries`. None for no entry.
        """
        vertices, key, blocks = seeds, self._key(epoch, batch), list[Block]()
        excluded = np.empty(0, np.int64) if excluded is None else excluded
        for layer, fanout in enumerate(self.fanouts):
            kept = blocks[-1] if blocks and self.draw_once else None
            stream = np.uint64(mix(key + np.uint64(layer + 1)))
            vertices, block = self._expand(stream, vertices, kept.matrix.num_rows if kept else 0, fanout, excluded)
            blocks.append(_joined(kept, block) if kept else block)
        return Sample(vertices, tuple(reversed(blocks)))

    def _expand(
        self, key: np.uint64, vertices: NDArray[np.int64], first: int, fanout: int, excluded: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Block]:
        """Draw neighbors of the vertices from the first on; return all with the new ones after them, and the rows."""
        matrix, count = self.graph.matrix, len(vertices)
        indptr, row_nnz, entry = _draw_entries(key, matrix.indptr, vertices[first:], fanout, self.replace, excluded)
        columns, found, slots = _number(matrix.indices, vertices, entry)
        if count + len(found) > INT32_WIDTH:
            raise InputError(f"a batch of {count + len(found):,} vertices: use smaller fan-outs or batches")
        ordered = np.sort(found)
        grown = np.concatenate([vertices, ordered])
        _order_rows(indptr, columns, entry, count, _ranks(slots, np.concatenate([vertices, found]), ordered, count))
        data = None if matrix.data is None else matrix.data[entry]
        return grown, Block(CSR(0, indptr, columns, data, len(grown)), entry, row_nnz)


def _joined(above: Block, below: Block) -> Block:
    """The rows of one block and then the rows of another block, numbered alike."""
    first, second = above.matrix, below.matrix
    data = None if first.data is None or second.data is None else np.concatenate([first.data, second.data])
    indptr = np.concatenate([first.indptr, first.nnz + second.indptr[1:]])
    matrix = CSR(0, indptr, np.concatenate([first.indices, second.indices]), data, second.num_columns)
    entry, row_nnz = (
        np.concatenate([getattr(block, name) for block in (above, below)]) for name in ("entry", "row_nnz")
    )
    return Block(matrix, entry, row_nnz)


@njit(cache=True, nogil=True)
def _draw_entries(
    key: np.uint64,
    indptr: NDArray[np.int64],
    vertices: NDArray[np.int64],
    fanout: int,
    replace: bool,
    excluded: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the row pointers of the drawn rows, the nonzeros of the whole rows, and the positions that are drawn.

    Rows are whole without what is excluded.
    """
    count = len(vertices)
    row_nnz, out_indptr = np.empty(count, np.int64), np.zeros(count + 1, np.int64)
    for row in range(count):
        size = indptr[vertices[row] + 1] - indptr[vertices[row]]
        if len(excluded):
            size -= len(_within(excluded, indptr[vertices[row]], indptr[vertices[row] + 1]))
        row_nnz[row] = size
        takes_all = fanout == ALL or size == 0 or (size <= fanout and not replace)
        out_indptr[row + 1] = out_indptr[row] + (size if takes_all else fanout)
    entry = np.empty(out_indptr[count], np.int64)
    for row in range(count):
        start, size = indptr[vertices[row]], row_nnz[row]
        drawn = entry[out_indptr[row] : out_indptr[row + 1]]
        # A stream of its own for every vertex: who draws for it, and for what others, does not matter.
        stream = mix(key + (np.uint64(vertices[row]) + np.uint64(1)) * GOLDEN)
        if fanout == ALL or (size <= fanout and not replace):
            for k in range(size):
                drawn[k] = start + k
        elif replace:
            for k in range(len(drawn)):
                drawn[k] = start + below(stream, k, size)
        else:
            _choose(stream, start, size, drawn)
        if len(excluded):
            _skip(_within(excluded, start, indptr[vertices[row] + 1]), drawn)
    return out_indptr, row_nnz, entry


@njit(cache=True, nogil=True)
def _within(excluded: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
    """The excluded positions from ``start`` to ``stop``."""
    return excluded[count_below(excluded, start) : count_below(excluded, stop)]


@njit(cache=True, nogil=True)
def _skip(excluded: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
    """Turn positions in a row without its excluded entries into positions in the whole row."""
    for k in range(len(drawn)):
        # As many excluded entries are before it as there are with a number of others before them that is not larger.
        low, high = 0, len(excluded)
        while low < high:
            middle = (low + high) // 2
            if excluded[middle] - middle <= drawn[k]:
                low = middle + 1
            else:
                high = middle
        drawn[k] += low


@njit(cache=True, nogil=True)
def _choose(stream: np.uint64, start: int, size: int, drawn: NDArray[np.int64]) -> None:
    """Fill ``drawn`` with different numbers of start..start+size-1, ascending; every set is equally likely.

    Floyd's algorithm (Bentley, Floyd, CACM 30(9), 1987), which takes one random number for each.
    """
    fanout = len(drawn)
    for k in range(fanout):
        last = start + size - fanout + k
        number = start + below(stream, k, size - fanout + k + 1)
        # The drawn numbers stay sorted, so one pass finds both whether a number is new and where it goes.
        place = k
        while place > 0 and drawn[place - 1] > number:
            place -= 1
        if place > 0 and drawn[place - 1] == number:
            # ``last`` is above all earlier ones, which were drawn from smaller ranges.
            drawn[k] = last
        else:
            for other in range(k, place, -1):
                drawn[other] = drawn[other - 1]
            drawn[place] = number


@njit(cache=True, nogil=True)
def _number(
    indices: NDArray[Any], vertices: NDArray[np.int64], entry: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Number the columns of drawn entries: vertices by their positions, new ones from there on as they come.

    Returns:
        The (num_entries,) int32 numbers, the new vertices, and the hash table of all.
    """
    count, total = len(vertices), len(vertices)
    bits = slot_bits(2 * count)
    known = np.empty(1 << bits, np.int64)
    copy_elements(vertices, known)
    slots = build_table(known, count, bits)
    columns = np.empty(len(entry), np.int32)
    # A loop of its own: the processor then waits for many of these scattered reads at the same time.
    drawn = np.empty(len(entry), indices.dtype)
    for k in range(len(entry)):
        drawn[k] = indices[entry[k]]
    for k in range(len(entry)):
        vertex = int(drawn[k])
        slot = find_slot(slots, bits, known, vertex)
        if slots[slot] < 0:
            if 2 * total >= len(slots):
                # Half full: twice the slots. The list has as many places as there are slots, so it never overflows.
                bits += 1
                larger = np.empty(1 << bits, np.int64)
                copy_elements(known[:total], larger)
                known = larger
                slots = build_table(known, total, bits)
                slot = find_slot(slots, bits, known, vertex)
            slots[slot] = total
            known[total] = vertex
            total += 1
        columns[k] = slots[slot]
    return columns, known[count:total].copy(), slots


@njit(cache=True, nogil=True)
def _ranks(
    slots: NDArray[np.int32], known: NDArray[np.int64], ordered: NDArray[np.int64], count: int
) -> NDArray[np.int32]:
    """The positions that new vertices have once they are sorted, by their present positions less ``count``."""
    bits = 0
    while (1 << bits) < len(slots):
        bits += 1
    rank = np.empty(len(ordered), np.int32)
    for k in range(len(ordered)):
        rank[slots[find_slot(slots, bits, known, int(ordered[k]))] - count] = count + k
    return rank


@njit(cache=True, nogil=True)
def _order_rows(
    indptr: NDArray[np.int64],
    columns: NDArray[np.int32],
    entry: NDArray[np.int64],
    count: int,
    rank: NDArray[np.int32],
) -> None:
    """Renumber new columns, and sort every row by column.

    Shell's sort with gaps 1, 4, 13, ... (Knuth, TAOCP 3, section 5.2.1): it sorts short rows by insertion, needs no
    memory for long ones, and compiles in a seventh of the time that NumPy's argsort takes.
    """
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        for k in range(start, stop):
            if columns[k] >= count:
                columns[k] = rank[columns[k] - count]
        gap = 1
        while 9 * gap < stop - start:
            gap = 3 * gap + 1
        while gap:
            for k in range(start + gap, stop):
                column, position, place = columns[k], entry[k], k
                while place >= start + gap and columns[place - gap] > column:
                    columns[place], entry[place] = columns[place - gap], entry[place - gap]
                    place -= gap
                columns[place], entry[place] = column, position
            gap //= 3
