"""PyG's GCNConv in bench_epoch: the same graph, weights, loss and optimizer as gnnloom.

python tests/benchmarks/epoch_peers.py CATALOG DATASET edge_index|csr WIDTH EPOCHS SEED
"""

from __future__ import annotations

import sys
from itertools import pairwise

import torch
from epoch_figures import Clock, report
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_torch_csr_tensor

from gnnloom.storage import Catalog
from gnnloom.trainer.networks.model import glorot
from gnnloom.workflows.interop.pyg import to_pyg


class Net(nn.Module):
    """Three layers with ReLU between them; the normalized adjacency is computed once."""

    def __init__(self, dims: list[int], seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList()
        for before, after in pairwise(dims):
            # Loops are stored in the graph already.
            layer = GCNConv(before, after, cached=True, add_self_loops=False)  # type: ignore[abstract]
            with torch.no_grad():
                layer.lin.weight.copy_(glorot((before, after), generator, torch.float32).T)
            self.layers.append(layer)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            features = layer(torch.relu(features) if number else features, edges)
        return features


def main() -> None:
    catalog, name, kind, width, epochs, seed = sys.argv[1:]
    data = to_pyg(Catalog(catalog).dataset(name))
    features, label, mask, given = data.x, data.y, data.train_mask, data.edge_index
    if not isinstance(features, Tensor) or not isinstance(label, Tensor) or not isinstance(given, Tensor):
        raise SystemExit("the dataset has no features or labels")
    # Row i of the matrix gathers from its sources. The graph is undirected, so rows and columns may be swapped.
    edges = to_torch_csr_tensor(given, size=(len(label), len(label))) if kind == "csr" else given
    net = Net([features.shape[1], int(width), int(width), int(label.max()) + 1], int(seed))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    clock, losses = Clock(), []
    for _ in range(int(epochs)):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(features, edges)[mask], label[mask])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
        clock.mark()
    figures = clock.figures()
    report({**figures, "total_peak": figures["peak"], "loss": losses})


if __name__ == "__main__":
    main()
