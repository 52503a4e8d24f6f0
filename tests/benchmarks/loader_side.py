"""One side of bench_loader: batches of gnnloom's loader or of PyG's NeighborLoader, with or without a training step.

python tests/benchmarks/loader_side.py JSON

Both train the same model of PyG, whose layers leave out what the seeds no longer need (``trim_to_layer``). PyG gets the
edges in the order of their targets and is told so, which saves it a sort.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from epoch_figures import Clock, report
from torch import Tensor
from torch_geometric.nn.models.basic_gnn import GraphSAGE

import gnnloom

FANOUTS, BATCH, HIDDEN, CLASSES = (15, 10, 5), 1024, 64, 16


@dataclass(frozen=True)
class Side:
    """What a process does.

    Attributes:
        name: ``gnnloom`` or ``pyg``.
        catalog, inputs: folders of the catalog, and of the arrays that PyG reads.
        workers: threads or processes that prepare batches; None for gnnloom's default.
        pool: batches that gnnloom prepares ahead, at most; None for its default.
        epochs, steps: number of epochs, of which the first is not measured, and of batches of each.
        trains: take a training step on every batch.
        samples: key of stored samples to read, instead of drawing.
    """

    name: str
    catalog: str
    inputs: str
    workers: int | None
    epochs: int
    steps: int
    trains: bool = False
    samples: str | None = None
    pool: int | None = None

    @property
    def arguments(self) -> list[str]:
        """Of this program."""
        return [json.dumps(asdict(self))]


def main() -> None:
    side = Side(**json.loads(sys.argv[1]))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    batches = _gnnloom(side) if side.name == "gnnloom" else _pyg(side)
    step, clock, vertices, edges, count = None, Clock(), 0, 0, 0
    clock.mark()
    for _ in range(side.epochs):
        # Batches that are left over are not drawn: their number is a multiple of the steps, or they end here.
        for batch in islice(batches, side.steps):
            if side.trains:
                step = step or _Step(batch.x.shape[1])
                step(batch)
            vertices, edges, count = vertices + batch.num_nodes, edges + batch.edge_index.shape[1], count + 1
        clock.mark()
    report({**clock.figures(), "vertices": vertices / count, "edges": edges / count})


class _Step:
    """A step of training on a batch."""

    def __init__(self, num_features: int) -> None:
        self._model = GraphSAGE(num_features, HIDDEN, len(FANOUTS), CLASSES)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.01)

    def __call__(self, batch: Any) -> None:
        from neighbor_peer import hops_of

        self._optimizer.zero_grad()
        vertices, edges = hops_of(batch, batch.batch_size, FANOUTS)
        hops = {"num_sampled_nodes_per_hop": vertices, "num_sampled_edges_per_hop": edges}
        output: Tensor = self._model(batch.x, batch.edge_index, **hops)[: batch.batch_size]
        loss = torch.nn.functional.cross_entropy(output, batch.y[: batch.batch_size])
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


def _gnnloom(side: Side) -> Iterable[Any]:
    drawn: dict[str, Any] = {"fanout": FANOUTS, "batch_size": BATCH} if side.samples is None else {}
    drawn |= {"workers": side.workers, "pool": side.pool}
    return gnnloom.loader("web", catalog=side.catalog, samples=side.samples, **drawn)


def _pyg(side: Side) -> Iterable[Any]:
    from torch_geometric.data.data import Data
    from torch_geometric.loader.neighbor_loader import NeighborLoader

    arrays = {name: torch.from_numpy(np.load(Path(side.inputs) / f"{name}.npy")) for name in ("feature", "label")}
    edges = torch.from_numpy(np.load(Path(side.inputs) / "edges.npy"))
    data = Data(x=arrays["feature"], y=arrays["label"], edge_index=edges)
    seeds = torch.from_numpy(np.flatnonzero(np.load(Path(side.inputs) / "split.npy") == 1))
    del arrays, edges
    workers = side.workers or 0
    batches: Iterable[Any] = NeighborLoader(
        data,
        num_neighbors=list(FANOUTS),
        batch_size=BATCH,
        input_nodes=seeds,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        is_sorted=True,
    )
    return batches


if __name__ == "__main__":
    main()
