"""Pairs of the relations of :mod:`support.typed_papers`: the graph without some edges, and vectors on it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

#: Between two types, and within one.
RELATIONS = {"writes": ("author", "paper"), "cites": ("paper", "paper")}


def without(data: Any, relation: str, dropped: NDArray[np.int64]) -> Any:
    """A graph without edges of a relation at some positions, and without the same edges of its reverse."""
    source, target = RELATIONS[relation]
    kept = torch.ones(data[source, relation, target].num_edges, dtype=torch.bool)
    kept[torch.from_numpy(dropped)] = False
    found = copy.copy(data)
    for edge_type in ((source, relation, target), (target, f"rev_{relation}", source)):
        for name, value in list(data[edge_type].items()):
            found[edge_type][name] = value[:, kept] if name == "edge_index" else value[kept]
    return found


def of_pairs(data: Any, relation: str, pairs: Tensor) -> NDArray[np.int64]:
    """Positions of the edges between the ends of (2, num_pairs) pairs; within one type, in both directions."""
    source, target = RELATIONS[relation]
    ends = {tuple(each) for each in pairs.T.tolist()}
    ends |= {(b, a) for a, b in ends} if source == target else set()
    edges = data[source, relation, target].edge_index.T.tolist()
    return np.array([at for at, each in enumerate(edges) if tuple(each) in ends], np.int64)


def vectors(module: nn.Module, data: Any) -> dict[str, Tensor]:
    """The vectors of all vertices by a module on a whole graph."""
    names = list(data.collect("x"))
    edges = {each: data[each].edge_index for each in data.edge_types if {each[0], each[2]} <= set(names)}
    attributes = {each: value for each, value in data.collect("edge_attr", allow_empty=True).items() if each in edges}
    found: dict[str, Tensor] = module({name: data[name].x for name in names}, edges, attributes)
    return found
