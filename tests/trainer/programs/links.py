"""A step of training on pairs, and the figures of an evaluation, on all ranks of this job."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.mpi import world
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.feed.negatives import JointNegatives, NegativeSampler, UniformNegatives
from gnnloom.trainer.feed.pair_seeds import PairSet
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.links.all_targets import filtered_ranks, top_targets
from gnnloom.trainer.links.bilinear import Dot
from gnnloom.trainer.links.losses import LOSSES
from gnnloom.trainer.links.pair_rows import PairRows
from gnnloom.trainer.links.pair_sums import pair_loss
from gnnloom.trainer.links.ranking import ListRanks, PoolRanks
from gnnloom.trainer.links.scoring import AllTargets, BlockSizes, Lists
from gnnloom.trainer.place.place import Place

NUM_VERTICES, DIM, NUM_PAIRS = 200, 5, 300


def output() -> torch.Tensor:
    """The model's output."""
    return torch.from_numpy(np.random.default_rng(0).standard_normal((NUM_VERTICES, DIM)))


def found_on(comm: Communicator, ranks: int) -> dict[str, Any]:
    """The results of some ranks, in the order of the pairs or vertices."""
    owner = np.random.default_rng(1).integers(0, ranks, NUM_VERTICES).astype(np.int32)
    pairs = np.random.default_rng(2).integers(0, NUM_VERTICES, (NUM_PAIRS, 2))
    number = np.flatnonzero(owner[pairs[:, 0]] == comm.rank)
    grid = ProcessGrid(comm, {"row": ranks}, Place(torch.float64))
    layout = Layout(grid, np.flatnonzero(owner == comm.rank), ("row",))
    pair_rows = PairRows(layout, DIM, NUM_VERTICES, owner if ranks > 1 else None)
    rows = output()[layout.vertex].requires_grad_()
    positives = PairSet(number, pairs[number, 0], pairs[number, 1], group=number // 16)
    decoder, result = Dot(DIM, grid.place, 0), dict[str, Any]()
    with comm.traffic.recording() as counts:
        sampler: NegativeSampler = UniformNegatives(3, 2, NUM_VERTICES)
        given = positives.source, positives.target, sampler.draw(1, positives)
        loss = pair_loss(decoder, LOSSES["bpr"], *pair_rows.numbered(rows, *given), NUM_PAIRS * 2)
        loss.backward()  # type: ignore[no-untyped-call]
        result["uniform loss"] = comm.gather_numbers([float(loss.detach())]).sum()
        sampler = JointNegatives(3, 2, NUM_VERTICES)
        given = positives.source, positives.target, sampler.draw(1, positives)
        source, target, negatives = pair_rows.ends(rows, *given)
        scores = decoder(source, target), decoder(source.repeat_interleave(2, 0), negatives.flatten(0, 1)).view(-1, 2)
        loss = LOSSES["bce"](*scores, LOSSES["bce"].num_terms(NUM_PAIRS, 2))
        loss.backward()  # type: ignore[no-untyped-call]
        result["joint loss"] = comm.gather_numbers([float(loss.detach())]).sum()
    assert rows.grad is not None
    positive, negative = (each.detach() for each in scores)
    sent = [counts.bytes[kind] for kind in (Kind.ROWS, Kind.ROW_GRADIENTS)]
    result["bytes"] = comm.gather_numbers(sent).sum(0).tolist()
    whole = grid.place.zeros((NUM_VERTICES, DIM), torch.float64)
    whole[torch.from_numpy(layout.vertex)] = rows.grad
    comm.all_reduce(whole, Kind.METRICS)
    result["gradient"] = whole.tolist()
    pool = PoolRanks.of(comm, grid.place, positive, negative.flatten(), block=64)
    result["pool"] = [pool.auc(), pool.average_precision(), pool.hits(20)]
    known = Lists.of([np.arange(source % 7) * 11 for source in positives.source])
    targets = AllTargets(pair_rows, rows, decoder, BlockSizes(16, 100, 64))
    lists = ListRanks.of(comm, grid.place, filtered_ranks(targets, pairs[number], known))
    result["filtered"] = [lists.mean_reciprocal_rank(), lists.hits(10)]
    vertex, score = top_targets(targets, positives.source, 3, known)
    best = grid.place.zeros((NUM_PAIRS, 6), torch.float64)
    best[torch.from_numpy(number)] = torch.cat([vertex, score], 1).to(torch.float64)
    comm.all_reduce(best, Kind.METRICS)
    result["top"] = best.tolist()
    return result


def main(given: str, result: str) -> None:
    comm = world()
    found = found_on(comm, json.loads(Path(given).read_text()))
    if comm.rank == 0:
        Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
