"""PyG's layers in bench_epoch: the same graph, weights, loss and optimizer as gnnloom.

python tests/benchmarks/epoch_peers.py CATALOG DATASET MODEL edge_index|csr|sparse WIDTH EPOCHS RATE SEED
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import torch
from epoch_figures import Clock, report
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv
from torch_geometric.utils import to_torch_csr_tensor

from gnnloom.storage import Catalog
from gnnloom.trainer.models.networks.model import glorot
from gnnloom.trainer.place.place import Place
from gnnloom.workflows.interop.graph_libraries import to_pyg

HEADS = 4
#: Parameters that start at random, in the order in which gnnloom's models draw them, each for all layers.
DRAWN = {
    "gcn": ("lin.weight",),
    "sage": ("lin_l.weight", "lin_r.weight"),
    "gin": ("nn.0.weight", "nn.2.weight"),
    "gat": ("lin.weight", "att_src", "att_dst"),
    "gatv2": ("lin_l.weight", "lin_r.weight", "att"),
}


class Net(nn.Module):
    """Three layers, with ReLU between them, or ELU in a GAT."""

    def __init__(self, model: str, dims: list[int], seed: int) -> None:
        super().__init__()
        pairs = list(enumerate(pairwise(dims), start=2))
        self.layers = nn.ModuleList([_layer(model, *pair, last=end == len(dims)) for end, pair in pairs])
        self.activate = nn.functional.elu if "gat" in model else torch.relu
        _start_as_gnnloom(self.layers, model, seed)

    def forward(self, features: Tensor, edges: Any) -> Tensor:
        for number, layer in enumerate(self.layers):
            features = layer(self.activate(features) if number else features, edges)
        return features


def _layer(model: str, before: int, after: int, *, last: bool) -> nn.Module:
    # Loops are stored in the graph already. The normalized adjacency of a GCN is computed once.
    layer: nn.Module
    if model == "gcn":
        layer = GCNConv(before, after, cached=True, add_self_loops=False)
    elif model == "sage":
        layer = SAGEConv(before, after)
    elif model == "gin":
        width = before if last else after
        network = nn.Sequential(nn.Linear(before, width), nn.ReLU(), nn.Linear(width, after))
        layer = GINConv(network, train_eps=True)
    else:
        width = after if last else after // HEADS
        attention = GATv2Conv if model == "gatv2" else GATConv
        layer = attention(before, width, HEADS, concat=not last, add_self_loops=False)
    return layer


@torch.no_grad()
def _start_as_gnnloom(layers: nn.ModuleList, model: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    found = [dict(layer.named_parameters()) for layer in layers]
    for name in DRAWN[model]:
        for parameters in found:
            given = parameters[name]
            # PyG's linear layers store their weights transposed, and its attention vectors with a leading axis.
            target = given.T if name.endswith("weight") else given[0]
            target.copy_(glorot(target.shape, generator, Place()))
    for parameters in found:
        for name, parameter in parameters.items():
            if name not in DRAWN[model]:
                parameter.zero_()


def _adjacency(kind: str, edges: Tensor, num_vertices: int) -> Any:
    """The graph as PyG's layers take it: a matrix whose row i gathers from its sources, or the edges."""
    # The graph is undirected, so rows and columns may be swapped.
    if kind == "csr":
        return to_torch_csr_tensor(edges, size=(num_vertices, num_vertices))
    if kind == "sparse":
        from torch_sparse import SparseTensor

        return SparseTensor.from_edge_index(edges, sparse_sizes=(num_vertices, num_vertices))
    return edges


def main() -> None:
    catalog, name, model, kind, width, epochs, rate, seed = sys.argv[1:]
    data = to_pyg(Catalog(catalog).dataset(name))
    features, label, mask, given = data.x, data.y, data.train_mask, data.edge_index
    if not isinstance(features, Tensor) or not isinstance(label, Tensor) or not isinstance(given, Tensor):
        raise SystemExit("the dataset has no features or labels")
    edges = _adjacency(kind, given, len(label))
    net = Net(model, [features.shape[1], int(width), int(width), int(label.max()) + 1], int(seed))
    del data
    if kind != "edge_index":
        del given
    optimizer = torch.optim.Adam(net.parameters(), lr=float(rate))
    clock, losses = Clock(), []
    for _ in range(int(epochs)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(features, edges)[mask], label[mask])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
        clock.mark()
    figures = clock.figures()
    report({**figures, "total_peak": figures["peak"], "loss": losses})


if __name__ == "__main__":
    main()
