"""PyG's NeighborLoader and GraphSAGE in bench_sampling: the same graph, split, sizes and optimizer as gnnloom.

python tests/benchmarks/neighbor_peer.py CATALOG DATASET EPOCHS WORKERS

Layers leave out what the seeds no longer need (``trim_to_layer``), as gnnloom's do, and the loader samples with pyg-lib
where it is installed, else with torch-sparse. The latter does not say how many vertices and edges each hop added, which
trimming has to know, so they are found from the order of a batch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from epoch_figures import Clock, report
from torch import Tensor
from torch_geometric.loader.neighbor_loader import NeighborLoader
from torch_geometric.nn.models.basic_gnn import GraphSAGE

from gnnloom.storage import Catalog
from gnnloom.workflows.interop.graph_libraries import to_pyg

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
            vertices, edges = hops_of(batch, batch.batch_size, FANOUTS)
            output = model(
                batch.x, batch.edge_index, num_sampled_nodes_per_hop=vertices, num_sampled_edges_per_hop=edges
            )
            loss = torch.nn.functional.cross_entropy(output[: len(seeds)], seeds)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total, count = total + float(loss.detach()) * len(seeds), count + len(seeds)
        losses.append(total / count)
        clock.mark()
    report({**clock.figures(), "loss": losses})


def hops_of(batch: Any, num_seeds: int, fanouts: Sequence[int]) -> tuple[list[int], list[int]]:
    """How many vertices a batch's seeds and each hop add, and how many edges each hop adds."""
    if batch.get("num_sampled_nodes") is not None:
        return list(batch.num_sampled_nodes), list(batch.num_sampled_edges)
    # Edges are in the order of their targets, and vertices in the order in which edges lead to them.
    source, target = batch.edge_index.numpy()
    vertices, edges = [num_seeds], [0]
    for _ in fanouts:
        edges.append(int(np.searchsorted(target, vertices[-1])))
        vertices.append(max(vertices[-1], 1 + int(source[edges[-2] : edges[-1]].max(initial=-1))))
    return np.diff(vertices, prepend=0).tolist(), np.diff(edges).tolist()


if __name__ == "__main__":
    main()
