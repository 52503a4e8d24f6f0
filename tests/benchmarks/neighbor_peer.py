"""PyG's NeighborLoader and GraphSAGE in bench_sampling: the same graph, split, sizes and optimizer as gnnloom.

python tests/benchmarks/neighbor_peer.py CATALOG DATASET EPOCHS WORKERS
"""

from __future__ import annotations

import os
import sys

import torch
from epoch_figures import Clock, report
from torch import Tensor
from torch_geometric.loader.neighbor_loader import NeighborLoader
from torch_geometric.nn.models.basic_gnn import GraphSAGE

from gnnloom.storage import Catalog
from gnnloom.workflows.interop.pyg import to_pyg

FANOUTS, BATCH, HIDDEN, CLASSES = [15, 10, 5], 1024, 64, 16


def main() -> None:
    catalog, name, epochs, workers = sys.argv[1:]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    data = to_pyg(Catalog(catalog).dataset(name))
    loader = NeighborLoader(
        data,
        num_neighbors=FANOUTS,
        batch_size=BATCH,
        input_nodes=data.train_mask,
        shuffle=True,
        num_workers=int(workers),
        persistent_workers=int(workers) > 0,
    )
    model = GraphSAGE(data.num_features, HIDDEN, len(FANOUTS), CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    clock, losses = Clock(), []
    for _ in range(int(epochs)):
        total, count = 0.0, 0
        for batch in loader:
            optimizer.zero_grad()
            seeds: Tensor = batch.y[: batch.batch_size]
            loss = torch.nn.functional.cross_entropy(model(batch.x, batch.edge_index)[: len(seeds)], seeds)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total, count = total + float(loss.detach()) * len(seeds), count + len(seeds)
        losses.append(total / count)
        clock.mark()
    report({**clock.figures(), "loss": losses})


if __name__ == "__main__":
    main()
