"""A model's output on several ranks, and the known targets of its vertices, for tests that score all vertices."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.links.bilinear import DistMult
from gnnloom.trainer.links.decoder import Decoder
from gnnloom.trainer.links.pair_rows import PairRows
from gnnloom.trainer.links.scoring import AllTargets, BlockSizes
from gnnloom.trainer.place.place import Place

DIM, NUM_VERTICES = 6, 300
#: Blocks that do not divide what they are made of.
SMALL = BlockSizes(sources=7, listed=20, targets=32)


def made(kind: type[Decoder]) -> Decoder:
    decoder = kind(DIM, Place(), 1)
    if kind is DistMult:
        with torch.no_grad():
            decoder.get_parameter("weight").copy_(torch.arange(-2.0, 4.0))
    return decoder


def whole(kind: str) -> Tensor:
    """Rows of small integers, whose scores tie often; or rows of which each occurs twice."""
    rng = np.random.default_rng(0)
    if kind == "integers":
        return torch.from_numpy(rng.integers(-2, 3, (NUM_VERTICES, DIM)).astype(np.float32))
    rows = rng.standard_normal((NUM_VERTICES // 2, DIM)).astype(np.float32)
    return torch.from_numpy(np.concatenate([rows, rows[::-1]]))


def known_of(source: int) -> np.ndarray:
    """Known targets of a vertex; of some very many, of others none."""
    count = (0, 3, 11, 250)[source % 4]
    return np.random.default_rng(source).permutation(NUM_VERTICES)[:count]


def part_of(ranks: int) -> np.ndarray:
    """Owners; of several ranks the last one has no vertex."""
    return np.random.default_rng(2).integers(0, max(1, ranks - 1), NUM_VERTICES).astype(np.int32)


def targets_of(comm: Communicator, rows: Tensor, decoder: Decoder, sizes: BlockSizes | None = None) -> AllTargets:
    """On row shards."""
    part = part_of(comm.size)
    grid = ProcessGrid(comm, {"row": comm.size}, Place(rows.dtype))
    # In no order of their ids, as in shards of another order.
    vertex = np.random.default_rng(3).permutation(np.flatnonzero(part == comm.rank))
    layout = Layout(grid, vertex, ("row",))
    pair_rows = PairRows(layout, DIM, NUM_VERTICES, part if comm.size > 1 else None)
    return AllTargets(pair_rows, rows[vertex], decoder, sizes)
