"""Modules of many kinds that take ``(x, edge_index[, edge_weight])``, by the parts of a directed graph that they read.

Each is a stack of layers of one kind, chosen by name, with a ReLU between them. PyG's convolutions are imported only if
they are asked for, as that takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import scipy.sparse
import torch
from torch import Tensor, nn

from support.edge_modules import sums

#: (num_vertices, dim) messages from rows, edges and weights, by which the layers of the own kinds differ.
Reading = Callable[[Tensor, Tensor, Tensor], Tensor]


def _degree(index: Tensor, rows: Tensor) -> Tensor:
    """(num_vertices, 1) number of edges that have each vertex at one end."""
    ones = torch.ones(len(index), dtype=rows.dtype)
    return torch.zeros(len(rows), dtype=rows.dtype).index_add(0, index, ones)[:, None]


def _adjacency(rows: Tensor, edges: Tensor, weight: Tensor, *, loops: bool = True) -> Any:
    """(num_vertices, num_vertices) csr_array, targets by sources."""
    kept = (edges[0] != edges[1]) | loops
    source, target = edges[:, kept].numpy()
    return scipy.sparse.coo_array((weight[kept].numpy(), (target, source)), shape=(len(rows),) * 2).tocsr()


def _product(matrix: Any, rows: Tensor) -> Tensor:
    return torch.from_numpy(matrix @ rows.numpy())


def _triangles(rows: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
    """Sum over the edges that a path of two edges replaces, weighted by these paths."""
    matrix = _adjacency(rows, edges, weight, loops=False)
    return _product(matrix * (matrix @ matrix), rows)


def _cycles(length: int) -> Reading:
    """Sum over the edges that are part of a cycle of some edges, weighted by these cycles."""

    def read(rows: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
        matrix = _adjacency(rows, edges, weight, loops=False)
        others = matrix
        for _ in range(length - 2):
            others = others @ matrix
        return _product(matrix * others.T.tocsr(), rows)

    return read


def _softmax(scores: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    """(num_edges,) softmax of the scores of edges that have the same vertex at one end."""
    exponential = scores.exp()
    total = torch.zeros(len(rows), dtype=rows.dtype).index_add(0, index, exponential)
    return exponential / total[index]


def _edge_scores(rows: Tensor, edges: Tensor) -> Tensor:
    return (rows[edges[0]] * rows[edges[1]]).sum(1).tanh()


#: Own kinds that read in-edges only, at any distance.
INWARD: Final[dict[str, Reading]] = {
    "sum": sums,
    "degree-of-targets": lambda rows, edges, weight: sums(rows, edges, weight) / _degree(edges[1], rows).clamp_min(1),
    "degrees-of-both-ends": lambda rows, edges, weight: sums(
        rows * (_degree(edges[1], rows) + 1).rsqrt(), edges, weight
    ),
    "softmax-over-targets": lambda rows, edges, weight: sums(
        rows, edges, weight * _softmax(_edge_scores(rows, edges), edges[1], rows)
    ),
    "two-hops": lambda rows, edges, weight: sums(sums(rows, edges, weight), edges, weight),
    "transitive-triangles": _triangles,
    "cyclic-triangles": _cycles(3),
    "cyclic-squares": _cycles(4),
    "both-directions-only": _cycles(2),
}
#: Own kinds that read out-edges: exact on undirected graphs only.
OUTWARD: Final[dict[str, Reading]] = {
    "reversed": lambda rows, edges, weight: sums(rows, edges.flip(0), weight),
    "undirected": lambda rows, edges, weight: sums(rows, torch.cat([edges, edges.flip(0)], 1), weight.repeat(2)),
    "degree-of-sources": lambda rows, edges, weight: sums(rows / _degree(edges[0], rows).clamp_min(1), edges, weight),
    "out-degree-as-feature": lambda rows, edges, weight: sums(rows, edges, weight) + _degree(edges[0], rows).log1p(),
    "softmax-over-sources": lambda rows, edges, weight: sums(
        rows, edges, weight * _softmax(_edge_scores(rows, edges), edges[0], rows)
    ),
    "siblings": lambda rows, edges, weight: sums(sums(rows, edges.flip(0), weight), edges, weight),
    "co-cited": lambda rows, edges, weight: sums(sums(rows, edges, weight), edges.flip(0), weight),
    "outward-triangles": lambda rows, edges, weight: _triangles(rows, edges.flip(0), weight),
    "is-a-sink": lambda rows, edges, weight: sums(rows, edges, weight) + (_degree(edges[0], rows) <= 1),
}
#: Own kinds that read all vertices, or their numbers: exact on no graph.
GLOBAL: Final[dict[str, Reading]] = {
    "mean": lambda rows, edges, weight: sums(rows, edges, weight) + rows.mean(0),
    "maximum": lambda rows, edges, weight: sums(rows, edges, weight) + rows.max(0).values,
    "minimum": lambda rows, edges, weight: sums(rows, edges, weight) + rows.min(0).values,
    "number-of-vertices": lambda rows, edges, weight: sums(rows, edges, weight) / len(rows),
    "mean-degree": lambda rows, edges, weight: sums(rows, edges, weight) * len(rows) / edges.shape[1],
    "largest-degree": lambda rows, edges, weight: sums(rows, edges, weight) / _degree(edges[1], rows).max(),
    "first-vertex": lambda rows, edges, weight: sums(rows, edges, weight) + rows[:1],
    "last-vertex": lambda rows, edges, weight: sums(rows, edges, weight) + rows[-1:],
    "numbers": lambda rows, edges, weight: sums(rows, edges, weight) + torch.arange(len(rows))[:, None] % 2,
    "order": lambda rows, edges, weight: sums(rows, edges, weight * (edges[0] < edges[1])),
}


def _far_mean(rows: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
    """Seven times the mean over a vertex and its in-neighbors."""
    degree = 1 + sums(torch.ones_like(rows[:, :1]), edges, weight)
    for _ in range(7):
        rows = (rows + sums(rows, edges, weight)) / degree
    return rows


def _by_few_degrees(rows: Tensor, edges: Tensor, weight: Tensor) -> Tensor:
    """Knows in-degrees up to twelve, or raises IndexError."""
    known = torch.linspace(0, 1, 13, dtype=rows.dtype)
    return sums(rows, edges, weight) * known[_degree(edges[1], rows).long()]


#: Own kinds with other peculiarities.
PECULIAR: Final[dict[str, Reading]] = {
    "far-mean": _far_mean,
    "few-degrees": _by_few_degrees,
    "unclamped-mean": lambda rows, edges, weight: sums(rows, edges, weight) / _degree(edges[1], rows),
    "float32-only": lambda rows, edges, weight: sums(rows @ torch.eye(rows.shape[1]).float(), edges, weight),
    "float32-reversed": lambda rows, edges, weight: sums(
        rows @ torch.eye(rows.shape[1]).float(), edges.flip(0), weight
    ),
}
#: Convolutions of PyG that read in-edges only, and what they are constructed with.
PYG_INWARD: Final[dict[str, dict[str, Any]]] = {
    "GCNConv": {},
    "SAGEConv": {},
    "GATConv": {"heads": 2, "concat": False},
    "GATv2Conv": {"heads": 2, "concat": False},
    "GINConv": {},
    "GraphConv": {},
    "TAGConv": {"K": 2},
    "ARMAConv": {"num_stacks": 2, "num_layers": 2},
    "SGConv": {"K": 2},
    "TransformerConv": {"heads": 2, "concat": False},
    "PNAConv": {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"]},
    "ClusterGCNConv": {},
    "LEConv": {},
    "MFConv": {},
    "EdgeConv": {},
    "APPNP": {"K": 3, "alpha": 0.2},
    "ResGatedGraphConv": {},
    "SuperGATConv": {"heads": 2, "concat": False},
    "GENConv": {},
}
#: Convolutions of PyG that read out-edges.
PYG_OUTWARD: Final[dict[str, dict[str, Any]]] = {"DirGNNConv": {}, "HypergraphConv": {}, "ChebConv": {"K": 3}}
#: Convolutions of PyG whose third argument is weights of edges.
TAKES_WEIGHTS: Final = frozenset(
    {"GCNConv", "GraphConv", "TAGConv", "ChebConv", "ARMAConv", "SGConv", "LEConv", "APPNP"}
)

OWN: Final = {**INWARD, **OUTWARD, **GLOBAL, **PECULIAR}
_WITHOUT_SIZES: Final = frozenset({"APPNP", "LabelPropagation"})


class Zoo(nn.Module):
    """Layers of one kind.

    Args:
        kind: name of a convolution of PyG, or of one of :data:`OWN`.
        joins: the output is made from those of all layers, as with jumping knowledge.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        kind: str = "sum",
        joins: bool = False,
    ) -> None:
        super().__init__()
        dims = [in_channels, *[hidden_channels] * (num_layers - 1), hidden_channels if joins else out_channels]
        pairs = list(pairwise(dims))
        self.kind = kind
        self.lin = nn.ModuleList([nn.Linear(*pair) for pair in pairs])
        self.convs = nn.ModuleList([] if kind in OWN else [_convolution(kind, *pair) for pair in pairs])
        self.join = nn.Linear(hidden_channels * num_layers, out_channels) if joins else None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.run(x, edge_index, None)

    def run(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        outputs = list[Tensor]()
        for number, linear in enumerate(self.lin):
            x = self._layer(number, linear, x, edge_index, edge_weight)
            if number < len(self.lin) - 1 or self.join is not None:
                x = nn.functional.leaky_relu(x, 0.1)
            outputs.append(x)
        return x if self.join is None else self.join(torch.cat(outputs, 1))

    def _layer(self, number: int, linear: nn.Module, x: Tensor, edges: Tensor, weight: Tensor | None) -> Tensor:
        if self.kind in OWN:
            given = torch.ones(edges.shape[1], dtype=x.dtype) if weight is None else weight.to(x.dtype)
            rows: Tensor = linear(x)
            return rows + OWN[self.kind](rows, edges, given)
        if self.kind in _WITHOUT_SIZES:
            x = linear(x)
        result: Tensor = self.convs[number](x, edges, *(() if weight is None else (weight,)))
        return result


class WeightedZoo(Zoo):
    """Layers of one kind that take weights of edges."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.run(x, edge_index, edge_weight)


def _convolution(kind: str, before: int, after: int) -> nn.Module:
    import torch_geometric.nn as pyg

    options: dict[str, Any] = {**PYG_INWARD, **PYG_OUTWARD}[kind]
    found: Any = getattr(pyg, kind)
    if kind in _WITHOUT_SIZES:
        made = found(**options)
    elif kind == "GINConv":
        made = found(nn.Sequential(nn.Linear(before, after), nn.ReLU(), nn.Linear(after, after)))
    elif kind == "EdgeConv":
        made = found(nn.Linear(2 * before, after))
    elif kind == "DirGNNConv":
        made = found(pyg.SAGEConv(before, after))
    elif kind == "PNAConv":
        made = found(before, after, deg=torch.tensor([0, 3, 5, 2, 1]), **options)
    else:
        made = found(before, after, **options)
    result: nn.Module = made
    return result
