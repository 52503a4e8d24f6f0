"""Draws the layers of a batch, over relations between types of vertices.

Hamilton, Ying, Leskovec (GraphSAGE, NeurIPS 2017), appendix A, algorithm 2, with a fan-out for each relation as in
Schlichtkrull et al. (R-GCN, ESWC 2018): each vertex of a layer draws from its row of every relation that leads to its
type. Joint relations share one fan-out: a vertex draws from the union of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.neighbor_samplers.registry import NEIGHBOR_SAMPLERS
from gnnloom.storage.sampling.layers.graph_view import Draw, GraphView, MatrixView, Rows, divided
from gnnloom.storage.sampling.layers.numbering import number_columns
from gnnloom.storage.sampling.sampler import Block


@dataclass(frozen=True)
class SampledRelation:
    """A relation that a batch gathers along.

    Attributes:
        view: its rows, which are vertices of the target type; columns are vertices of the source type.
        source, target: numbers of the types.
    """

    view: GraphView
    source: int
    target: int


@dataclass(frozen=True)
class Layers:
    """The layers of a batch.

    Attributes:
        vertices: (num_vertices,) int64 vertices of each type: the seeds, then the vertices that each hop adds,
            ascending.
        blocks: blocks of all relations for each layer, the first layer first. Block k of a relation gathers the leading
            ``num_columns`` vertices of the source type into the leading ``num_rows`` vertices of the target type.
        sizes: number of vertices of each type before the first hop, and after each hop.
    """

    vertices: list[NDArray[np.int64]]
    blocks: tuple[tuple[Block, ...], ...]
    sizes: list[list[int]]


class OversizedBatchError(Exception):
    """A batch would have more entries than it may have."""


def drawn_view(matrix: CSR, neighbor_sampler: str) -> MatrixView:
    """The rows of a matrix, from which vertices draw as a neighbor sampler says.

    Args:
        neighbor_sampler: one of :data:`~gnnloom.storage.neighbor_samplers.registry.NEIGHBOR_SAMPLERS`.
    """
    view: MatrixView = NEIGHBOR_SAMPLERS[neighbor_sampler].load()(matrix)
    return view


def draw_layers(
    relations: Sequence[SampledRelation],
    seeds: Sequence[NDArray[np.int64]],
    draws: Sequence[Sequence[Draw]],
    *,
    draw_once: bool,
    most: int | None = None,
) -> Layers:
    """Draw all layers of a batch.

    Args:
        seeds: (num_seeds,) int64 vertices of each type whose outputs are wanted, ascending.
        draws: what each relation draws, for each hop, the hop of the seeds first.
        draw_once: a hop draws for the vertices that the hop before added, instead of for all vertices.
        most: number of entries that the batch may have; the entries of a hop are counted before they are drawn.

    Raises:
        OversizedBatchError: the batch would have more than ``most`` entries.
        InputError: the batch has more than 2^31 - 1 vertices of a type.
    """
    vertices, sizes = list(seeds), [[len(each) for each in seeds]]
    blocks = list[tuple[Block, ...]]()
    for of_relations in draws:
        last = sizes[-2] if draw_once and len(sizes) > 1 else [0] * len(seeds)
        new = [each[start:] for each, start in zip(vertices, last, strict=True)]
        hop = _divided(relations, of_relations, new)
        if most is not None:
            most -= sum(
                _num_drawn(relation.view, new[relation.target], draw)
                for relation, draw in zip(relations, hop, strict=True)
            )
            if most < 0:
                raise OversizedBatchError
        found = [relation.view.rows(new[relation.target], draw) for relation, draw in zip(relations, hop, strict=True)]
        columns = [rows.column for rows in found]
        for number in range(len(seeds)):
            own = [at for at, relation in enumerate(relations) if relation.source == number]
            if not own:
                continue
            vertices[number], numbered = number_columns(vertices[number], [found[at] for at in own])
            for at, column in zip(own, numbered, strict=True):
                columns[at] = column
        sizes.append([len(each) for each in vertices])
        drawn = [
            _block(relation, rows, column, len(vertices[relation.source]))
            for relation, rows, column in zip(relations, found, columns, strict=True)
        ]
        joins = draw_once and bool(blocks)
        blocks.append(tuple(map(_joined, blocks[-1], drawn)) if joins else tuple(drawn))
    return Layers(vertices, tuple(reversed(blocks)), sizes)


def _divided(
    relations: Sequence[SampledRelation], hop: Sequence[Draw], vertices: Sequence[NDArray[np.int64]]
) -> list[Draw]:
    """The draws of a hop, in which joint relations have the number of entries that falls to them in each row."""
    found, groups = list(hop), dict[tuple[int, np.uint64, int, bool], list[int]]()
    for at, (relation, draw) in enumerate(zip(relations, hop, strict=True)):
        if draw.joint is not None and isinstance(draw.fanout, int) and draw.fanout != ALL:
            groups.setdefault((relation.target, draw.joint, draw.fanout, draw.replace), []).append(at)
    for (target, stream, fanout, with_replacement), group in groups.items():
        rows = vertices[target]
        lengths = np.stack([relations[at].view.lengths(rows, hop[at].excluded) for at in group])
        counts = divided(stream, rows, lengths, fanout, with_replacement)
        for at, count in zip(group, counts, strict=True):
            found[at] = replace(hop[at], fanout=count)
    return found


def _num_drawn(view: GraphView, vertices: NDArray[np.int64], draw: Draw) -> int:
    """Number of entries that some vertices draw, at most."""
    return int(view.lengths(vertices).sum() if draw.takes_all else np.broadcast_to(draw.fanouts, len(vertices)).sum())


def _block(relation: SampledRelation, rows: Rows, column: NDArray[np.int32], num_columns: int) -> Block:
    matrix = CSR(0, rows.indptr, column, relation.view.weights(rows.entry), num_columns)
    return Block(matrix, rows.entry, rows.row_nnz)


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
