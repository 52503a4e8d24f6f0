"""Models of PyG on graphs with types, and batches of a loader from tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import gnnloom
from support.typed_modules import OneNumbering


def load(dataset: Any, **options: Any) -> Any:
    """The loader, untyped: tests know what a batch has."""
    return gnnloom.loader(dataset, **options)


def contents(batch: Any) -> dict[Any, Any]:
    """All that a batch has, as lists."""
    return {
        (key, name): value.tolist() if torch.is_tensor(value) else value
        for key in (*batch.node_types, *batch.edge_types)
        for name, value in batch[key].items()
    }


def sage(data: Any) -> nn.Module:
    from torch_geometric.nn import HeteroConv, SAGEConv

    conv: nn.Module = HeteroConv({each: SAGEConv((-1, -1), 6) for each in data.edge_types}, aggr="sum")
    return conv


def attention(data: Any) -> nn.Module:
    from torch_geometric.nn import GATv2Conv, HeteroConv

    width = {each: data[each].edge_attr.shape[1] if "edge_attr" in data[each] else None for each in data.edge_types}
    convs = {each: GATv2Conv((-1, -1), 6, edge_dim=width[each], add_self_loops=False) for each in data.edge_types}
    conv: nn.Module = HeteroConv(convs, aggr="sum")
    return conv


def hgt(data: Any) -> nn.Module:
    from torch_geometric.nn import HGTConv

    conv: nn.Module = HGTConv(-1, 6, data.metadata(), heads=2)
    return conv


class Relational(OneNumbering):
    """R-GCN over all relations."""

    def __init__(self, data: Any) -> None:
        super().__init__(6, len(data.edge_types))


class TypedModel(nn.Module):
    """Features or an embedding of each type, and two layers; gives the vectors of each type."""

    def __init__(self, data: Any, layer: Callable[[Any], nn.Module], *, has_attributes: bool) -> None:
        super().__init__()
        self.has_attributes = has_attributes
        self.project = nn.ModuleDict(
            {
                name: nn.Linear(data[name].x.shape[1], 6)
                if "x" in data[name]
                else nn.Embedding(data[name].num_nodes, 6)
                for name in data.node_types
            }
        )
        self.layers = nn.ModuleList([layer(data), layer(data)])

    def forward(self, data: Any, numbers: Callable[[str], Tensor]) -> dict[str, Tensor]:
        x = {
            name: module(data[name].x if isinstance(module, nn.Linear) else numbers(name))
            for name, module in self.project.items()
        }
        edges = {each: data[each].edge_index for each in data.edge_types}
        more = {"edge_attr_dict": data.collect("edge_attr", allow_empty=True)} if self.has_attributes else {}
        for layer in self.layers:
            out = layer(x, edges, **more)
            x = {name: torch.tanh(out[name]) if out.get(name) is not None else rows for name, rows in x.items()}
        return x
