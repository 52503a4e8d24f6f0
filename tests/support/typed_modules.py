"""Modules for graphs with types, as users write them with the layers of PyG, and some with other behavior."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

EdgeType = tuple[str, str, str]
Metadata = tuple[list[str], list[EdgeType]]


class Stacked(nn.Module):
    """A linear function of the features of each type, layers along the relations, and a linear function of the type.

    PyG is imported where a module is made: every process of a test run imports this file.
    """

    takes_attributes = False

    def __init__(
        self,
        metadata: Metadata,
        in_channels: dict[str, int],
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        edge_dim: dict[EdgeType, int],
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.metadata, self.width, self.edge_dim = metadata, hidden_channels, edge_dim
        self.inputs = nn.ModuleDict({name: nn.Linear(width, hidden_channels) for name, width in in_channels.items()})
        self.layers = nn.ModuleList([self.layer() for _ in range(num_layers)])
        self.outputs: nn.Module = nn.Linear(hidden_channels, out_channels)
        self.drop = nn.Dropout(dropout)

    def layer(self) -> nn.Module:
        """A layer, called with the features of all types, and edges."""
        raise NotImplementedError

    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[EdgeType, Tensor], edge_attr_dict: dict[EdgeType, Tensor]
    ) -> dict[str, Tensor]:
        x = {name: module(x_dict[name]) for name, module in self.inputs.items()}
        more = {"edge_attr_dict": edge_attr_dict} if self.takes_attributes else {}
        for layer in self.layers:
            out = layer(x, edge_index_dict, **more)
            x = {
                name: self.drop(torch.tanh(out[name])) if out.get(name) is not None else rows
                for name, rows in x.items()
            }
        return {name: self.outputs(rows) for name, rows in x.items()}


class Sage(Stacked):
    """HeteroConv of SAGEConv, whose widths are known at its first call only."""

    def layer(self) -> nn.Module:
        from torch_geometric.nn import HeteroConv, SAGEConv

        conv: nn.Module = HeteroConv({each: SAGEConv((-1, -1), self.width) for each in self.metadata[1]}, aggr="sum")
        return conv


class Attention(Stacked):
    """HeteroConv of GATv2Conv, with the features of the edges."""

    takes_attributes = True

    def layer(self) -> nn.Module:
        from torch_geometric.nn import GATv2Conv, HeteroConv

        convs = {
            each: GATv2Conv(self.width, self.width, edge_dim=self.edge_dim.get(each), add_self_loops=False)
            for each in self.metadata[1]
        }
        conv: nn.Module = HeteroConv(convs, aggr="sum")
        return conv


class Transformer(Stacked):
    """HGTConv."""

    def layer(self) -> nn.Module:
        from torch_geometric.nn import HGTConv

        conv: nn.Module = HGTConv(self.width, self.width, self.metadata, heads=2)
        return conv


class Relational(Stacked):
    """R-GCN over all relations."""

    def layer(self) -> nn.Module:
        return OneNumbering(self.width, len(self.metadata[1]))


class OneNumbering(nn.Module):
    """A layer of R-GCN over all relations: vertices of all types in one numbering."""

    def __init__(self, width: int, num_relations: int) -> None:
        from torch_geometric.nn import FastRGCNConv

        super().__init__()
        self.conv = FastRGCNConv(width, width, num_relations)

    def forward(self, x: dict[str, Tensor], edges: dict[EdgeType, Tensor]) -> dict[str, Tensor]:
        first, total = {}, 0
        for name, rows in x.items():
            first[name], total = total, total + len(rows)
        shifts = [torch.tensor([[first[source]], [first[target]]]) for source, _, target in edges]
        index = torch.cat([each + shift for each, shift in zip(edges.values(), shifts, strict=True)], dim=1)
        kind = torch.cat([torch.full((each.shape[1],), at) for at, each in enumerate(edges.values())])
        out = self.conv(torch.cat(list(x.values())), index, kind)
        return {name: out[first[name] :][: len(rows)] for name, rows in x.items()}


class Converted(nn.Module):
    """A module for graphs without types, converted by ``to_hetero``; returns the scores of papers only."""

    def __init__(self, metadata: Metadata, hidden_channels: int, num_layers: int, out_channels: int) -> None:
        from torch_geometric.nn import GraphSAGE, to_hetero

        super().__init__()
        module = GraphSAGE((-1, -1), hidden_channels, num_layers, out_channels)
        # A type that no relation leads to would have no output.
        self.module = to_hetero(module, metadata)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[EdgeType, Tensor]) -> Tensor:
        found: Tensor = self.module(x_dict, edge_index_dict)["paper"]
        return found


class Embedded(Sage):
    """Has vectors of its own for the vertices of types without features."""

    def __init__(self, num_nodes_dict: dict[str, int], hidden_channels: int, **others: Any) -> None:
        super().__init__(hidden_channels=hidden_channels, **others)
        without = [name for name in num_nodes_dict if name not in self.inputs]
        self.vectors = nn.ModuleDict({name: nn.Embedding(num_nodes_dict[name], hidden_channels) for name in without})

    def forward(  # type: ignore[override]
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[EdgeType, Tensor], n_id_dict: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        x = {name: module(x_dict[name]) for name, module in self.inputs.items()}
        x |= {name: module(n_id_dict[name]) for name, module in self.vectors.items()}
        for layer in self.layers:
            out = layer(x, edge_index_dict)
            x = {name: torch.tanh(out[name]) if name in out else rows for name, rows in x.items()}
        return {"paper": self.outputs(x["paper"])}


class Deeper(Sage):
    """Has one layer more than it is told to have."""

    def __init__(self, num_layers: int, **others: Any) -> None:
        super().__init__(num_layers=num_layers + 1, **others)


class Centered(Sage):
    """Subtracts the mean over all papers."""

    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[EdgeType, Tensor], edge_attr_dict: dict[EdgeType, Tensor]
    ) -> dict[str, Tensor]:
        paper = super().forward(x_dict, edge_index_dict, edge_attr_dict)["paper"]
        return {"paper": paper - paper.mean(0)}


class ByOutEdges(Sage):
    """Divides the rows of authors by the numbers of their papers, which edges from batches to others are among."""

    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[EdgeType, Tensor], edge_attr_dict: dict[EdgeType, Tensor]
    ) -> dict[str, Tensor]:
        authors = edge_index_dict["author", "writes", "paper"][0]
        count = torch.bincount(authors, minlength=len(x_dict["author"])).clamp_min(1)[:, None]
        return super().forward({**x_dict, "author": x_dict["author"] / count}, edge_index_dict, edge_attr_dict)


class WithoutTypes(nn.Module):
    """Takes no graph with types."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        found: Tensor = self.linear(x)
        return found


class Wanting(WithoutTypes):
    """Takes what no batch has."""

    def forward(self, x_dict: Any, edge_index_dict: Any, colors: Any) -> Tensor:  # type: ignore[override]
        raise NotImplementedError


class Normalized(Sage):
    """Normalizes the last rows of each type over the rows of a batch."""

    def __init__(self, hidden_channels: int, **others: Any) -> None:
        super().__init__(hidden_channels=hidden_channels, **others)
        self.outputs: nn.Module = nn.Sequential(nn.BatchNorm1d(hidden_channels), self.outputs)


class Averages(nn.Module):
    """Adds linear functions of the means along each relation to one of the vertex itself, in torch alone."""

    def __init__(
        self,
        metadata: Metadata,
        in_channels: dict[str, int],
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
    ) -> None:
        super().__init__()
        types, self.relations = metadata
        self.layers = nn.ModuleList()
        for layer in range(num_layers):
            width = out_channels if layer == num_layers - 1 else hidden_channels
            before = dict.fromkeys(types, hidden_channels) if layer else in_channels
            own = {name: nn.Linear(before[name], width) for name in types}
            others = {name: nn.Linear(before[source], width) for source, name, _ in self.relations}
            self.layers.append(nn.ModuleDict(own | others))

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[EdgeType, Tensor]) -> dict[str, Tensor]:
        x = x_dict
        for layer in self.layers:
            found = {name: layer[name](rows) for name, rows in x.items()}  # type: ignore[index]
            for each, (source, target) in edge_index_dict.items():
                message = layer[each[1]](x[each[0]])[source]  # type: ignore[index]
                count = torch.bincount(target, minlength=len(x[each[2]])).clamp_min(1)[:, None]
                total = torch.zeros_like(found[each[2]]).index_add(0, target, message)
                found[each[2]] = found[each[2]] + total / count
            x = {name: rows.relu() if layer is not self.layers[-1] else rows for name, rows in found.items()}
        return x
