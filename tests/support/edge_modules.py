"""Modules that take features and edges, as users write them in plain torch, and some with other behavior."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn


def sums(rows: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    """The sum over the sources of every target's edges."""
    source, target = edge_index
    messages = rows[source] if edge_weight is None else rows[source] * edge_weight[:, None]
    return torch.zeros_like(rows).index_add(0, target, messages)


class Sums(nn.Module):
    """Adds a linear function of the neighbors' sum to one of the vertex itself.

    Attributes:
        trimmed: calls with numbers of hops.
    """

    trimmed = 0

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        dropout: float = 0.0,
        slope: float = 0.1,
        shared: bool = False,
    ) -> None:
        super().__init__()
        dims = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        pairs = list(pairwise(dims))
        self.own = nn.ModuleList([nn.Linear(*pair) for pair in pairs])
        self.others = self.own if shared else nn.ModuleList([nn.Linear(*pair) for pair in pairs])
        self.drop, self.slope = nn.Dropout(dropout), slope

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        for layer, (own, other) in enumerate(zip(self.own, self.others, strict=True)):
            x = own(x) + other(sums(x, edge_index, edge_weight))
            if layer < len(self.own) - 1:
                x = self.drop(nn.functional.leaky_relu(self.between(x), self.slope))
        return x

    def between(self, x: Tensor) -> Tensor:
        return x


class ByDegrees(Sums):
    """Divides by the degrees of both ends of an edge, which it counts among the edges."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        degree = sums(torch.ones_like(x[:, :1]), edge_index)[:, 0].clamp_min(1)
        weight = (degree[edge_index[0]] * degree[edge_index[1]]).rsqrt()
        return super().forward(x, edge_index, weight)


class Listed(Sums):
    """Gives every vertex exactly one loop, sorts the edges by target, and sums them for each target."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
        loops = torch.arange(int(edge_index.max()) + 1).repeat(2, 1)
        edge_index = torch.cat([edge_index, loops], 1)
        edge_index = edge_index[:, edge_index[1].argsort(stable=True)]
        targets, counts = torch.unique(edge_index[1], return_counts=True)
        return super().forward(x, torch.stack([edge_index[0], targets.repeat_interleave(counts)]))


class Normalized(Sums):
    """Has a batch normalization, and parameters whose sizes the first features decide."""

    def __init__(self, hidden_channels: int, out_channels: int, **others: Any) -> None:
        others.pop("in_channels")
        super().__init__(5, hidden_channels, others.pop("num_layers"), out_channels, **others)
        self.first = nn.LazyLinear(5)
        self.norm = nn.BatchNorm1d(hidden_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(self.first(x), edge_index)

    def between(self, x: Tensor) -> Tensor:
        normalized: Tensor = self.norm(x)
        return normalized


class Trimmed(Sums):
    """Takes the numbers of hops, and leaves out what the last layers do not need."""

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        edge_index: Tensor,
        num_sampled_nodes_per_hop: list[int] | None = None,
        num_sampled_edges_per_hop: list[int] | None = None,
    ) -> Tensor:
        for layer, (own, other) in enumerate(zip(self.own, self.others, strict=True)):
            if layer and num_sampled_nodes_per_hop is not None and num_sampled_edges_per_hop is not None:
                type(self).trimmed += 1
                x = x[: sum(num_sampled_nodes_per_hop[: -layer or None])]
                edge_index = edge_index[:, : sum(num_sampled_edges_per_hop[: -layer or None])]
            x = own(x) + other(sums(x, edge_index))
            x = x if layer == len(self.own) - 1 else x.relu()
        return x


class Centered(Sums):
    """Subtracts the mean over all vertices that it sees: no batch gives the scores of the whole graph."""

    def between(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Few(nn.Module):
    """Returns fewer rows, or other columns, than asked for."""

    def __init__(self, in_channels: int, out_channels: int, columns: int = 0, rows: int = 0) -> None:
        super().__init__()
        self.linear, self.rows = nn.Linear(in_channels, out_channels + columns), rows

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        del edge_index
        result: Tensor = self.linear(x)
        return result[self.rows :]


class OtherForward(nn.Module):
    """Takes attributes of edges."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        del edge_index, edge_attr
        return x


class OtherNames(nn.Module):
    """Its constructor calls the width otherwise."""

    def __init__(self, in_channels: int, width: int, out_channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels + 0 * width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        del edge_index
        result: Tensor = self.linear(x)
        return result


class Failing(Sums):
    """Its constructor or its forward fails."""

    def __init__(self, in_channels: int, when: str = "forward", **others: Any) -> None:
        super().__init__(in_channels, **others)
        if when == "constructor":
            raise ValueError("no luck")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        raise IndexError("out of luck")


class Remembering(Sums):
    """Adds over the edges of its first call, as a convolution of PyG with cached=True does."""

    edges: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        self.edges = edge_index if self.edges is None else self.edges
        return super().forward(x, self.edges)
