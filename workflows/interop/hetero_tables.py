"""Takes a ``HeteroData`` of PyTorch Geometric apart, into the tables of a graph with types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from gnnloom.pipeline.ingest.typed.table import Ends, named_relations
from gnnloom.storage.artifacts.typed.typed_names import reverse_name, valid_name
from gnnloom.storage.errors import InputError

#: What the values of edges are in gnnloom, by their name in PyG.
_ROLES: Final[Mapping[str, str]] = {
    "edge_weight": "weight",
    "time": "time",
    "edge_time": "time",
    "edge_attr": "feature",
    "edge_label": "label",
}


def hetero_tables(source: Any) -> tuple[dict[Ends, Any], dict[str, Any]] | None:
    """Relations and vertices of a ``HeteroData``, as ``gnnloom.ingest`` takes them; None for any other object.

    Values of edges become columns. Reverse relations, which ``ToUndirected`` adds, are left out, as gnnloom derives
    them. Values of vertices are left out.

    Raises:
        InputError: a type has no number of vertices, or the edges of a relation are not pairs of ids.
    """
    names = {(each.__module__.partition(".")[0], each.__name__) for each in type(source).__mro__}
    if ("torch_geometric", "HeteroData") not in names:
        return None
    triplets = [each for each in source.edge_types if not _is_reverse(source, each)]
    relations = {ends: _table(source[each], each) for each, ends in named_relations(triplets).items()}
    vertices = {}
    for name in source.node_types:
        count = source[name].num_nodes
        if count is None:
            raise InputError(f"source: type {name!r} has no num_nodes; set data[{name!r}].num_nodes")
        if count:
            vertices[valid_name(name)] = np.arange(count)
    return relations, vertices


def _is_reverse(source: Any, triplet: Ends) -> bool:
    """Whether the edges of a relation are the edges of another one in the other direction, under its name."""
    head, word, tail = triplet
    forward = tail, reverse_name(word), head
    if not word.startswith("rev_") or forward not in source.edge_types:
        return False
    own, other = source[triplet].get("edge_index"), source[forward].get("edge_index")
    if own is None or other is None or own.shape != other.shape:
        return False
    return bool((np.flip(_array(other), 0) == _array(own)).all())


def _array(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def _table(store: Any, triplet: Ends) -> tuple[Any, list[str]]:
    """The edges of a relation as a frame of Arrow, and its columns with what they hold."""
    from pyarrow import table

    where = f"source, data[{', '.join(map(repr, triplet))}]"
    index = store.get("edge_index")
    if index is None or index.ndim != 2 or len(index) != 2:
        raise InputError(f"{where}: expected edge_index of shape (2, m); convert an adj_t with its coo()")
    source, target = _array(index)
    columns, held = {"source": source, "target": target}, ["source", "target"]
    for name, role in _ROLES.items():
        if name not in store or store[name] is None:
            continue
        values = _array(store[name])
        if len(values) != len(source) or values.ndim > 2:
            raise InputError(
                f"{where}: {name} of shape {values.shape}, expected a row for each of {len(source):,} edges"
            )
        flat = values.reshape(len(source), -1)
        if role != "feature" and flat.shape[1] != 1:
            raise InputError(f"{where}: {name} of shape {values.shape}, expected one number for each edge")
        kind = "float16 feature" if role == "feature" and values.dtype == np.float16 else role
        for number in range(flat.shape[1]):
            column = f"{name}_{number}" if flat.shape[1] > 1 else name
            # Arrow's files have no half floats that all readers know.
            columns[column] = flat[:, number].astype(np.float32) if flat.dtype == np.float16 else flat[:, number]
            held.append(f"{column} as {kind}")
    return table({name: np.ascontiguousarray(values) for name, values in columns.items()}), held
