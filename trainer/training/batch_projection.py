"""Sizes of a rank's share of a batch before anything is drawn, and the memory of batches that are prepared ahead.

Estimates from the sizes of the graph, for vertices drawn uniformly. Draws that prefer some vertices find fewer
different ones, so batches of sampled neighbors are at most as large, unless a fan-out is unlimited: these rows, and
those of induced subgraphs, count with the mean degree. Of samplers that prefer vertices with many neighbors, all
nonzeros of the rows count, although a subgraph has some of them only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnnloom.storage.sampling.fanouts import ALL
from gnnloom.trainer.algorithms.footprint import Footprint
from gnnloom.trainer.config.train_config import TrainConfig

#: Bytes per vertex of a batch: its id, the nonzeros of its row and its degree; in the table that numbers them while a
#: batch is drawn; and in the division of an epoch into batches, of which two are kept.
_VERTEX, _NUMBERED, _DIVIDED = 24, 24, 48
#: Bytes per nonzero while a batch is drawn: its position in the graph.
_DRAWN = 8


@dataclass(frozen=True)
class RankRows:
    """The rows of one rank.

    Attributes:
        own, halo: vertices that it owns, and others that its rows refer to.
        num_vertices, nnz: of the whole graph; without the graph, estimated from the rank's rows.
    """

    own: int
    halo: int
    num_vertices: int
    nnz: int

    @property
    def mean_degree(self) -> float:
        return self.nnz / max(1, self.num_vertices)


@dataclass(frozen=True)
class BatchSizes:
    """One rank's share of a batch.

    Attributes:
        rows: of the input of every layer, and of the last layer's output.
        received: rows of other ranks that arrive for a product.
        nonzeros: of every layer's block; a batch with one matrix for all layers stores it once.
        one_matrix: all layers have the same matrix.
    """

    rows: list[float]
    received: float
    nonzeros: list[float]
    one_matrix: bool

    def footprints(self, num_vertices: int) -> list[Footprint]:
        """What each layer holds, as shares of the whole graph's rows; and of the output."""
        found = []
        for layer, rows in enumerate(self.rows):
            output = self.rows[min(layer + 1, len(self.rows) - 1)]
            shares = [each / num_vertices for each in (rows, output, self.received)]
            found.append(
                Footprint(
                    rows=shares[0], held=shares[0], product=shares[1], received=shares[2], adjacency=0.0, pointers=0.0
                )
            )
        return found

    def stored_bytes(self, entry_bytes: int) -> float:
        """Bytes of the structure of a batch that waits for its turn."""
        nonzeros = self.nonzeros[0] if self.one_matrix else sum(self.nonzeros)
        return _VERTEX * (self.rows[0] + self.received) + entry_bytes * nonzeros

    def drawing_bytes(self) -> float:
        """Bytes that drawing one takes for the moment."""
        return _NUMBERED * self.rows[0] + _DRAWN * max(self.nonzeros)


def batch_sizes(config: TrainConfig, rank: RankRows, num_layers: int) -> BatchSizes | None:
    """The sizes of a rank's share of a batch of the configured mode; None if they are those of the whole graph."""
    sizes = _SIZES.get(config.mode)
    return sizes(config, rank, num_layers) if sizes else None


def _subgraph(config: TrainConfig, rank: RankRows, num_layers: int) -> BatchSizes:
    n, size = rank.num_vertices, config.batch_size
    if config.sampler == "cluster":
        # A partition that a recipe has yet to make: the size of its parts is not known.
        size = -(-n * config.parts_per_batch // config.cluster_parts) if config.cluster_parts else n
    rows = float(min(size, n))
    if config.sampler == "vertex":
        nonzeros = rank.nnz * (rows / max(1, n)) ** 2 + rows
    else:
        nonzeros = min(rows * rows, rows * rank.mean_degree)
    return BatchSizes([rows] * (num_layers + 1), 0.0, [nonzeros] * num_layers, one_matrix=True)


def _minibatch(config: TrainConfig, rank: RankRows, num_layers: int) -> BatchSizes:
    rate = min(1.0, config.batch_size / max(1, rank.num_vertices))
    rows = rate * rank.own
    # Rows of mean degree among a share of all columns, and their own loops.
    nonzeros = rate * rows * rank.mean_degree + rows
    received = min(rate * rank.halo, nonzeros)
    return BatchSizes([rows] * (num_layers + 1), received, [nonzeros] * num_layers, one_matrix=True)


def _neighbor(config: TrainConfig, rank: RankRows, num_layers: int) -> BatchSizes:
    n = max(1, rank.num_vertices)
    rows, nonzeros = [float(min(config.batch_size, rank.own))], list[float]()
    for fanout in config.fanouts(num_layers):
        # Vertices that are reached by edges have more than the mean degree, so a fan-out above the mean counts in full.
        drawn = rows[0] * (rank.mean_degree if fanout == ALL else fanout)
        drawn = drawn if config.replace else min(drawn, float(rank.nnz))
        nonzeros.insert(0, drawn)
        # Different vertices among draws: most if all are equally likely.
        rows.insert(0, min(n, rows[0] + n * -math.expm1(-drawn / n)))
    return BatchSizes(rows, 0.0, nonzeros, one_matrix=False)


_SIZES = {"subgraph": _subgraph, "minibatch": _minibatch, "neighbor": _neighbor}


def prepared_bytes(config: TrainConfig, rank: RankRows, batch: BatchSizes, entry_bytes: int, row_bytes: int) -> int:
    """Bytes of the batches that are prepared, those that are being drawn, and the structure of the one in use.

    Args:
        entry_bytes: of a column id, and the weight of an edge if it has one.
        row_bytes: of the features of a vertex.
    """
    stored = batch.stored_bytes(entry_bytes)
    if config.mode == "subgraph":
        stored += batch.rows[0] * row_bytes
    # The batch in use has its transpose as well.
    total = (config.pool + 2) * stored + max(1, config.sampler_threads) * batch.drawing_bytes()
    if config.mode == "neighbor":
        total += batch.rows[0] * row_bytes + min(config.cache_memory, (rank.num_vertices - rank.own) * row_bytes)
    if config.mode == "minibatch":
        total += batch.rows[0] * row_bytes + _DIVIDED * (rank.own + rank.halo)
    return int(total)
