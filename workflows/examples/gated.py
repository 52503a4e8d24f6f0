"""A model as one writes it for PyG: layers of its own convolution. Nothing in it depends on gnnloom.

gnnloom train web --mode neighbor --fanout 10,5 --hidden 32 --model gnnloom.workflows.examples.gated:GatedNet
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing


class GatedConv(MessagePassing):  # type: ignore[misc]
    """The mean of the neighbors, with a gate per column that the vertex computes from its own features."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(aggr="mean")
        self.values, self.gates = nn.Linear(before, after), nn.Linear(before, after)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        mean: Tensor = self.propagate(edge_index, x=self.values(x))
        return torch.sigmoid(self.gates(x)) * mean

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


class GatedNet(nn.Module):
    """Network with one convolution per layer, and dropout between layers."""

    def __init__(
        self, in_channels: int, hidden_channels: int, num_layers: int, out_channels: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        dims = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.convs = nn.ModuleList([GatedConv(*pair) for pair in pairwise(dims)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = self.dropout(conv(x, edge_index).relu())
        scores: Tensor = self.convs[-1](x, edge_index)
        return scores
