"""Tables of papers and their authors, the graph with types that they make, and models of PyG on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import gnnloom
from gnnloom.storage import Dataset

COUNTS = {"author": 45, "paper": 60, "topic": 8, "venue": 4}
WRITES = ["a", "p", "weight as weight", "day as time", "share as feature", "rank as feature", "role as label"]


def tables(seed: int = 0) -> dict[str, pd.DataFrame]:
    """Tables with parallel edges, a relation without edges between listed vertices, and a type without relations."""
    rng = np.random.default_rng(seed)

    def of(name: str, count: int, **columns: Any) -> pd.DataFrame:
        ends = {"writes": "ap", "cites": "pq", "about": "pt", "knows": "ab", "near": "tp"}[name]
        types = {"a": "author", "b": "author", "p": "paper", "q": "paper", "t": "topic"}
        return pd.DataFrame({end: rng.integers(0, COUNTS[types[end]], count) for end in ends} | columns)

    writes = {
        "weight": rng.integers(1, 9, 220),
        "day": pd.to_datetime(rng.integers(0, 1 << 30, 220), unit="s").strftime("%Y-%m-%dT%H:%M:%S"),
        "share": rng.random(220).round(3),
        "rank": rng.integers(0, 5, 220),
        "role": rng.choice(["first", "last"], 220),
    }
    found = {
        "writes": of("writes", 220, **writes),
        "cites": of("cites", 150, w=rng.integers(1, 9, 150)),
        "about": of("about", 70),
        "knows": of("knows", 60, at=rng.integers(0, 99, 60)),
        "near": pd.DataFrame({"t": [900], "p": [901], "at": [1.5], "f": [2.5]}),
    }
    for name, width in (("author", 3), ("paper", 5)):
        rows = rng.permutation(COUNTS[name])
        columns = {f"x{at}": rng.normal(size=len(rows)).round(3) for at in range(width)}
        found[name] = pd.DataFrame({"id": rows, **columns})
    found["paper"]["y"] = rng.integers(0, 4, COUNTS["paper"])
    found["paper"]["split"] = rng.choice(["train", "valid", "test"], COUNTS["paper"])
    return found


def store(folder: Path, name: str, given: dict[str, pd.DataFrame]) -> Dataset:
    relations = {
        ("author", "writes", "paper"): (given["writes"], WRITES),
        ("paper", "cites", "paper"): (given["cites"], ["p", "q", "w as weight"]),
        ("paper", "about", "topic"): (given["about"], ["p", "t"]),
        ("author", "knows", "author"): (given["knows"], ["a", "b", "at as time"]),
        ("topic", "near", "paper"): (given["near"], ["t", "p", "at as time", "f as feature"]),
    }
    features = {each: [f"{c} as feature" for c in given[each] if c.startswith("x")] for each in ("author", "paper")}
    vertices = {
        "author": (given["author"], ["id", *features["author"]]),
        "paper": (given["paper"], ["id", *features["paper"], "y as label", "split as split"]),
        "topic": np.arange(COUNTS["topic"]),
        "venue": np.arange(COUNTS["venue"]),
    }
    return gnnloom.ingest(
        name, relations=relations, vertices=vertices, merge="keep", unknown="drop", workers=0, catalog=folder
    )


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


def whole_graph(dataset: Any, *, reverse: bool = False) -> Any:
    """``to_pyg()`` in float64, perhaps with the reverses of all relations."""
    data = dataset.to_pyg()
    for store in (*data.node_stores, *data.edge_stores):
        for name in ("x", "edge_attr", "edge_weight"):
            if name in store:
                store[name] = store[name].double()
    for source, name, target in list(data.edge_types) if reverse else ():
        for key, value in data[source, name, target].items():
            turned = value.flip(0) if key == "edge_index" else value
            data[target, f"rev_{name}", source][key] = turned
    return data


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


class Relational(nn.Module):
    """R-GCN over all relations: vertices of all types in one numbering."""

    def __init__(self, data: Any) -> None:
        from torch_geometric.nn import FastRGCNConv

        super().__init__()
        self.conv = FastRGCNConv(6, 6, len(data.edge_types))

    def forward(self, x: dict[str, Tensor], edges: dict[Any, Tensor]) -> dict[str, Tensor]:
        first, total = {}, 0
        for name, rows in x.items():
            first[name], total = total, total + len(rows)
        shifts = [torch.tensor([[first[source]], [first[target]]]) for source, _, target in edges]
        index = torch.cat([each + shift for each, shift in zip(edges.values(), shifts, strict=True)], dim=1)
        kind = torch.cat([torch.full((each.shape[1],), at) for at, each in enumerate(edges.values())])
        out = self.conv(torch.cat(list(x.values())), index, kind)
        return {name: out[first[name] :][: len(rows)] for name, rows in x.items()}


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
