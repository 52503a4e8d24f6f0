"""Trains PyG's GraphSAGE on batches of ``gnnloom.loader``, in one process or in several.

python -P -m gnnloom.workflows.examples.pyg_training web --catalog catalog
torchrun --nproc-per-node 2 -m gnnloom.workflows.examples.pyg_training web --catalog catalog
"""

import argparse
import os
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn.models.basic_gnn import GraphSAGE

import gnnloom

#: Number of features and of classes, as ``gnnloom generate web sbm --dim 16 --classes 4`` makes them.
FEATURES, CLASSES = 16, 4


def main() -> list[float]:
    """Train, and return the mean loss of this process's batches in every epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--catalog", default="catalog")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    # Variables that torchrun sets for this process.
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return train(options, rank, size)
    torch.distributed.init_process_group("gloo")
    try:
        return train(options, rank, size)
    finally:
        # The model has been freed by now: a model that outlives the process group may wait for it forever.
        torch.distributed.destroy_process_group()


def train(options: argparse.Namespace, rank: int, size: int) -> list[float]:
    """Train as one of several processes."""
    loader = gnnloom.loader(
        options.dataset,
        catalog=options.catalog,
        fanout=(10, 5),
        batch_size=options.batch_size,
        rank=rank,
        size=size,
        # All processes take the same number of steps, on batches of one size.
        drop_last=True,
    )
    torch.manual_seed(0)
    model: nn.Module = GraphSAGE(FEATURES, 32, num_layers=2, out_channels=CLASSES)
    if size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    # Every iteration over the loader is a new epoch.
    for _ in range(options.epochs):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = step_loss(model, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(loss.detach())
        losses.append(total / len(loader))
        if rank == 0:
            sys.stdout.write(f"loss {losses[-1]:.6f}\n")
    return losses


def step_loss(model: nn.Module, batch: Any) -> Tensor:
    """The mean loss of a batch's seeds; layers skip vertices that the seeds no longer need."""
    output = model(
        batch.x,
        batch.edge_index,
        num_sampled_nodes_per_hop=batch.num_sampled_nodes,
        num_sampled_edges_per_hop=batch.num_sampled_edges,
    )
    seeds = slice(batch.batch_size)
    loss: Tensor = nn.functional.cross_entropy(output[seeds], batch.y[seeds])
    return loss


if __name__ == "__main__":
    main()
