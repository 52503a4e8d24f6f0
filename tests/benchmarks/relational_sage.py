"""GraphSAGE with a weight matrix for each relation; types without features have a learned vector each.

Schlichtkrull et al., "Modeling Relational Data with Graph Convolutional Networks" (ESWC 2018), with the layers of
Hamilton et al., GraphSAGE (NeurIPS 2017): the R-GraphSAGE of OGB-LSC's baselines, without its features of authors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import HeteroConv, SAGEConv

EdgeType = tuple[str, str, str]


class RelationalSAGE(nn.Module):
    def __init__(
        self,
        metadata: tuple[list[str], list[EdgeType]],
        in_channels: dict[str, int],
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        types, relations = metadata
        self.first = nn.ModuleDict({name: nn.Linear(width, hidden_channels) for name, width in in_channels.items()})
        bare = [name for name in types if not in_channels.get(name)]
        self.vectors = nn.ParameterDict({name: torch.randn(hidden_channels) for name in bare})
        layers = ({each: SAGEConv(hidden_channels, hidden_channels) for each in relations} for _ in range(num_layers))
        self.convs = nn.ModuleList([HeteroConv(each, aggr="sum") for each in layers])
        self.drop, self.last = nn.Dropout(dropout), nn.Linear(hidden_channels, out_channels)

    def forward(
        self,
        x_dict: dict[str, Tensor],
        edge_index_dict: dict[EdgeType, Tensor],
        n_id_dict: dict[str, Tensor],
    ) -> dict[str, Tensor]:
        x = {name: self.first[name](rows) for name, rows in x_dict.items() if name in self.first}
        x |= {name: vector.expand(len(n_id_dict[name]), -1) for name, vector in self.vectors.items()}
        for conv in self.convs:
            found = conv(x, edge_index_dict)
            x = {name: self.drop(found[name].relu()) if name in found else rows for name, rows in x.items()}
        return {name: self.last(rows) for name, rows in x.items()}
