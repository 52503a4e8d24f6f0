"""A ``HeteroData`` of PyTorch Geometric in a file of ``torch.save``, or the dict that its ``to_dict`` returns.

The tensors of a type that are read are ``x``, ``y`` and the masks, as in a ``Data`` (see ``pipeline.sources.pyg``), and
the tensors of a relation ``edge_index`` (2, m), ``edge_weight``, ``time`` or ``edge_time``, ``edge_attr`` and
``edge_label``. They are mapped where they lie in the file. Reverse relations, which ``ToUndirected`` adds, are left
out, as gnnloom derives them. Neither torch nor PyG is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gnnloom.pipeline.ingest.typed.declared import DeclaredTables
from gnnloom.pipeline.ingest.typed.folders.description import local_path
from gnnloom.pipeline.ingest.typed.table import FEATURE_TYPES, ROLES, Ends, Table, ValueColumn, named_relations
from gnnloom.pipeline.ingest.typed.type_vertices import TypeVertices
from gnnloom.pipeline.sources.binary.restricted_pickle import Record
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray
from gnnloom.pipeline.sources.binary.torch_file import TorchFile
from gnnloom.pipeline.sources.numpy_edges import NumpyEdges, pair_columns, unit_of_times
from gnnloom.pipeline.sources.pyg import ADMITTED, ONE_GRAPH, REMEDIES, PygFile, num_graphs, vertices_in
from gnnloom.pipeline.sources.reading.files import open_file
from gnnloom.storage.artifacts.typed.typed_names import reverse_name, valid_name
from gnnloom.storage.errors import InputError

_HETERO: Final = "torch_geometric.data.hetero_data.HeteroData"
#: Names that the pickle of a ``HeteroData`` uses in addition.
_ADMITTED: Final = ADMITTED | {
    _HETERO,
    *(f"torch_geometric.data.storage.{name}" for name in ("BaseStorage", "NodeStorage", "EdgeStorage")),
    "torch_geometric.data.graph_store.EdgeAttr",
    "torch_geometric.data.feature_store.TensorAttr",
}
_INDEX: Final = "edge_index"
#: Roles of the values of edges in gnnloom, and kinds of their dtypes, by their names in PyG.
_VALUES: Final[Mapping[str, tuple[str, str]]] = {
    "edge_weight": ("weight", "iufb"),
    "time": ("time", "iuf"),
    "edge_time": ("time", "iuf"),
    "edge_attr": ("feature", "iufb"),
    "edge_label": ("label", "iub"),
}


def hetero_tables(location: str, split_index: int | None = None) -> DeclaredTables | None:
    """The tables of a file with a ``HeteroData``; None for any other location.

    Args:
        split_index: number of the split, if masks have several columns.

    Raises:
        InputError: the file is not a file of torch.save, or asks to run code; a type has no number of vertices, or a
            tensor has another shape or dtype than it should.
    """
    path = local_path(location)
    if path is None or path.suffix != ".pt" or not path.is_file():
        return None
    stores = _stores(TorchFile(open_file(str(path)), _ADMITTED, remedies=REMEDIES))
    if stores is None:
        return None
    types = {name: each for name, each in stores.items() if isinstance(name, str)}
    edges = {name: _edges(each, name) for name, each in stores.items() if isinstance(name, tuple)}
    edges = {name: each for name, each in edges.items() if not _is_reverse(name, edges)}
    relations = [(ends, _table(stores[name], edges[name], name)) for name, ends in named_relations(list(edges)).items()]
    return DeclaredTables(
        sorted(relations, key=lambda each: each[0][1]),
        [],
        sizes={valid_name(name): _count(each, name) for name, each in types.items()},
        data=[
            TypeVertices.of_source(valid_name(name), vertices_in(each, split_index))
            for name, each in types.items()
            if each.has_vertices
        ],
    )


def _stores(opened: TorchFile) -> dict[str | Ends, PygFile] | None:
    """The attributes of each type and of each relation; None if the file has no ``HeteroData``.

    Raises:
        InputError: the file has several graphs, or a relation is not called by three texts.
    """
    content, graphs = opened.content, 1
    if isinstance(content, tuple) and content:
        # (data, slices, ...) of InMemoryDataset.
        graphs = num_graphs(content[1]) if len(content) > 1 else 1
        content = content[0]
    if isinstance(content, Record):
        state = content.state if content.name == _HETERO and isinstance(content.state, dict) else {}
        parts = [state.get(name) for name in ("_node_store_dict", "_edge_store_dict")]
        found = {key: each for part in parts if isinstance(part, dict) for key, each in part.items()}
    elif isinstance(content, dict) and any(isinstance(key, tuple) for key in content):
        found = {key: each for key, each in content.items() if key != "_global_store"}
    else:
        found = {}
    if not found:
        return None
    where = opened.file.location
    if graphs > 1:
        raise InputError(f"{where}: {graphs:,} graphs, whose vertices all begin with 0; {ONE_GRAPH}")
    stores = dict[str | Ends, PygFile]()
    for key, store in found.items():
        attributes = (
            store.state.get("_mapping") if isinstance(store, Record) and isinstance(store.state, dict) else store
        )
        if not isinstance(attributes, dict) or isinstance(key, int) or (isinstance(key, tuple) and len(key) != 3):
            raise InputError(f"{where}, {key!r}: expected the tensors of a type, or of a relation of three names")
        stores[key] = PygFile(opened, attributes)
    return stores


def _where(name: str | Ends) -> str:
    """A type or a relation, as it is called in Python."""
    return f"data[{', '.join(map(repr, [name] if isinstance(name, str) else name))}]"


def _count(store: PygFile, name: str) -> int:
    """The number of vertices of a type."""
    count = store.num_vertices()
    if type(count) is not int or count < 0:
        raise InputError(f"{store.file.location}: type {name!r} has no num_nodes; set {_where(name)}.num_nodes")
    return count


def _tensor(store: PygFile, name: str, of: str | Ends) -> StoredArray:
    """A tensor in C order, which messages call as it is called in Python."""
    return store.opened.tensor(store.attributes[name], f"{_where(of)}.{name}", by_rows=True)


def _edges(store: PygFile, name: Ends) -> NumpyEdges:
    """The edges of a relation, with their values."""
    where = f"{store.file.location}, {_where(name)}"
    if _INDEX not in store:
        raise InputError(f"{where}: expected edge_index of shape (2, m); convert an adj_t with its coo()")
    index = _tensor(store, _INDEX, name)
    if len(index.shape) != 2 or index.shape[0] != 2:
        raise InputError(f"{where}: expected edge_index of shape (2, m), found {index.shape}")
    values = [(each, _value(store, each, name, index.shape[1])) for each in _VALUES if each in store]
    pairs = replace(pair_columns(index, None), contents=tuple(store.described()))
    edges = NumpyEdges((pairs,), format_name="pyg", values=tuple(values))
    if len(values) == 1 and (role := _VALUES[values[0][0]][0]) in ROLES:
        # A single number is sorted with its edge.
        arrays = (replace(pairs, value=values[0][1]),)
        is_time = role == "time"
        unit = unit_of_times(arrays) if is_time else ""
        return replace(edges, arrays=arrays, values=(), time_unit=unit, weights=not is_time, times=is_time)
    return edges


def _value(store: PygFile, value: str, name: Ends, num_edges: int) -> StoredArray:
    """A value of each edge."""
    array, (role, kinds) = _tensor(store, value, name), _VALUES[value]
    shape = array.shape
    if len(shape) > 2 or not shape or shape[0] != num_edges:
        raise InputError(f"{array} of shape {shape}, expected a row for each of {num_edges:,} edges")
    if role != "feature" and array.size != num_edges:
        raise InputError(f"{array} of shape {shape}, expected one number for each edge")
    if array.dtype.kind not in kinds:
        raise InputError(f"{array}: expected {'whole ' if role == 'label' else ''}numbers, found {array.dtype}")
    return array


def _table(store: PygFile, edges: NumpyEdges, name: Ends) -> Table:
    """The table of a relation."""
    held = list[ValueColumn]()
    for value, array in edges.values:
        role, width = _VALUES[value][0], array.shape[1] if len(array.shape) > 1 else 1
        dtype = FEATURE_TYPES[role == "feature" and array.dtype.itemsize == 2 and array.dtype.kind == "f"]
        held += [ValueColumn(role, f"{value}_{at}" if width > 1 else value, None, dtype) for at in range(width)]
    table = Table((store.file.location,), shown=f"{store.file.location}, {_where(name)}", format="pyg", opened=edges)
    return replace(table.with_values(held, table.location), columns=(), role="") if held else table


def _is_reverse(name: Ends, edges: Mapping[Any, NumpyEdges]) -> bool:
    """Whether the edges of a relation are the edges of another one in the other direction, under its name."""
    head, word, tail = name
    forward = edges.get((tail, word.removeprefix("rev_"), head))
    own = edges[name]
    if not word.startswith("rev_") or forward is None or reverse_name(word[4:]) != word:
        return False
    if own.num_edges != forward.num_edges:
        return False
    spans = zip(own.ranges(), forward.ranges(), strict=True)
    chunks = (each for ours, theirs in spans for each in zip(own.read(ours), forward.read(theirs), strict=True))
    return all((one.source == other.target).all() and (one.target == other.source).all() for one, other in chunks)
