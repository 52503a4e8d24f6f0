"""Arrays in memory as files that the sources read, named by their contents so that equal arrays give equal keys."""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeGuard

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.typed.table import Ends, Table
from gnnloom.storage.disk.own_folder import own_folder
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT, split_part

#: Bytes of a file that are digested at a time.
_BLOCK = 1 << 24


def is_location(value: Any) -> TypeGuard[str | Path | Sequence[str | Path]]:
    """Whether a value names files, folders or URLs instead of being data."""
    if isinstance(value, list | tuple):
        return len(value) > 0 and all(isinstance(each, str | Path) for each in value)
    return isinstance(value, str | Path)


def as_texts(source: str | Path | Sequence[str | Path]) -> list[str]:
    """File names as strings."""
    return [str(source)] if isinstance(source, str | Path) else [str(each) for each in source]


@dataclass(frozen=True)
class EdgeFile:
    """A temporary file with edges that were in memory.

    Attributes:
        location: the file, whose name says in which format it is.
        undirected: whether each edge of an undirected graph is listed once.
    """

    location: str
    undirected: bool = False


@contextmanager
def stored_edges(edges: Any) -> Iterator[EdgeFile]:
    """Write edges, and vertex data that come along, to a temporary file for the time of the ``with`` block.

    Args:
        edges: a sparse matrix of SciPy or torch; a ``Data`` of PyG, or a dataset or list of one; a graph of networkx or
            igraph; a data frame of pandas, polars or Arrow; or (2, m) or (m, 2) ids in an array or a list.

    Raises:
        InputError: the value has an unknown type.
    """
    with own_folder() as folder:
        file, undirected = _write_edges(Path(folder), edges)
        yield EdgeFile(_named_by_content(file), undirected)


#: What to do about objects that are not read, by package and class.
_REFUSED: Final[Mapping[tuple[str, str], str]] = {
    ("torch_geometric", "HeteroData"): "it has several types of vertices; pass it to gnnloom.ingest as the only source",
    ("torch_geometric", "TemporalData"): "pass torch.stack([data.src, data.dst])",
    ("dgl", "DGLGraph"): "pass torch.stack(graph.edges()), and graph.ndata to gnnloom.features",
}
_SEVERAL: Final = (
    "pass one of them, dataset[0], or all as one graph of separate parts,"
    " torch_geometric.data.Batch.from_data_list(list(dataset))"
)


def _is(value: Any, package: str, *names: str) -> bool:
    """Whether a value is of a class of a library, which need not be installed."""
    return any(each.__module__.partition(".")[0] == package and each.__name__ in names for each in type(value).__mro__)


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


@contextmanager
def stored_tables(
    relations: Mapping[Ends, Any], vertices: Mapping[str, Any]
) -> Iterator[tuple[dict[Ends, Table], dict[str, list[Table]]]]:
    """Write tables that are in memory to temporary files for the time of the ``with`` block.

    Args:
        relations: table by source type, name and target type: the name of a file, perhaps with columns; edges, as for
            :func:`stored_edges`; or a tuple of a file or a frame and its columns.
        vertices: tables by type: the name of a file or several, perhaps with the column of ids; a frame; a tuple of a
            file or a frame and its column; or an array of ids.

    Raises:
        InputError: the value has an unknown type.
    """
    with ExitStack() as stack:
        found: dict[Ends, Table] = {}
        for ends, value in relations.items():
            if not (isinstance(ends, tuple) and len(ends) == 3 and all(isinstance(each, str) for each in ends)):
                raise InputError(f"relations: expected keys (source type, name, target type), found {ends!r}")
            found[ends] = _stored_table(stack, value, f"relation {ends[1]}")
        listed: dict[str, list[Table]] = {}
        for name, value in vertices.items():
            are_files = is_location(value)
            given: list[Any] = value if isinstance(value, list) and are_files else [value]
            listed[name] = [
                _stored_table(stack, _as_ids(each, name), f"vertices {name}", of_edges=False) for each in given
            ]
        yield found, listed


def _as_ids(value: Any, name: str) -> Any:
    """Convert an array of ids to a table; return other values unchanged."""
    if isinstance(value, str | Path | tuple) or _is_frame(value):
        return value
    from pyarrow import ArrowException, array, table

    ids = np.asarray(value)
    try:
        return table({"id": array(ids)})
    except (ArrowException, ValueError) as error:
        raise InputError(f"vertices {name}: expected a table or ids, found {_type_name(value)} ({error})") from error


def _stored_table(stack: ExitStack, value: Any, what: str, *, of_edges: bool = True) -> Table:
    table, columns = _chosen(value)
    names = [str(column) for column in columns]
    if isinstance(table, str | Path):
        if names:
            return Table.of_columns([str(table)], names, what, of_edges=of_edges)
        return Table.parse(str(table), what, of_edges=of_edges)
    file = stack.enter_context(stored_edges(table))
    return replace(Table.of_columns([file.location], names, what, of_edges=of_edges), shown=what)


def _write_edges(folder: Path, edges: Any) -> tuple[Path, bool]:
    """Write edges; returns the file, and whether it lists each edge of an undirected graph once."""
    for (package, name), remedy in _REFUSED.items():
        if _is(edges, package, name):
            raise InputError(f"source: {package}.{name}, which gnnloom does not read; {remedy}")
    if _is(edges, "networkx", "Graph"):
        return _write_table(folder, *_networkx_edges(edges)), not edges.is_directed()
    if _is(edges, "igraph", "Graph", "GraphBase"):
        return _write_table(folder, *_igraph_edges(edges)), not edges.is_directed()
    if _is(edges, "polars", "LazyFrame"):
        edges = edges.collect()
    if hasattr(edges, "__arrow_c_stream__"):
        return _write_frame("source", folder / "edges.parquet", edges), False
    if (data := _one_data(edges)) is not None:
        return _write_data(folder / "data.pt", data), False
    if (matrix := _as_coo(edges)) is not None:
        return _write_matrix(folder / "adjacency.npz", matrix), False
    if isinstance(edges, list | tuple) or hasattr(edges, "__array__") or hasattr(edges, "__dlpack__"):
        return _write_pairs(folder / "edges.npy", edges), False
    remedy = "a sparse matrix, a data frame, a graph of networkx or igraph, a Data of PyG, or the names of files"
    if isinstance(edges, Mapping):
        remedy = "networkx.from_dict_of_lists(edges) if it holds the neighbors of each vertex"
    elif isinstance(edges, Iterable) and not isinstance(edges, bytes | bytearray):
        remedy = f"{'sorted' if isinstance(edges, AbstractSet) else 'list'}(edges) if it holds pairs u, v"
    raise InputError(f"source: expected edges, found {_type_name(edges)}; pass {remedy}")


def _write_pairs(file: Path, edges: Any) -> Path:
    pairs = _array("source", edges)
    rows, columns = pairs.shape if pairs.ndim == 2 else (0, 0)
    are_triples = isinstance(edges, list | tuple) and columns == 3
    if (rows == columns > 2 and not are_triples) or (rows == columns == 2 and pairs.dtype.kind in "fb"):
        raise InputError(
            f"source: an array of shape {pairs.shape} looks like a dense adjacency matrix; pass"
            " scipy.sparse.coo_array(matrix), whose entry (u, v) is the edge u -> v"
        )
    if pairs.ndim != 2 or 2 not in pairs.shape:
        more = "; pass pandas.DataFrame(edges) if they are u, v, weight" if columns == 3 else ""
        raise InputError(f"source: expected pairs of shape (2, m) or (m, 2), found {pairs.shape}{more}")
    if pairs.dtype.kind not in "iuUS":
        raise InputError(f"source: expected ids that are integers or text, found {pairs.dtype}; pass edges.astype(int)")
    np.save(file, pairs)
    return file


def _write_matrix(file: Path, matrix: Any) -> Path:
    from scipy.sparse import save_npz

    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"source: an adjacency must be square, found shape {matrix.shape}")
    save_npz(file, matrix, compressed=False)
    return file


def _as_coo(matrix: Any) -> Any:
    """Convert a sparse matrix to SciPy's COO format, which keeps duplicate edges; None for other values."""
    from scipy import sparse

    # Its types know fewer arguments than it takes.
    coo_array: Any = sparse.coo_array
    if sparse.issparse(matrix):
        return coo_array(matrix)
    if _is(matrix, "torch_sparse", "SparseTensor"):
        entries: Any = [None if each is None else each.detach().cpu().numpy() for each in matrix.coo()]
        (row, col, value), shape = entries, tuple(matrix.sparse_sizes())
        return coo_array((np.ones(len(row), np.float32) if value is None else value, (row, col)), shape)
    if not _is_sparse(matrix):
        return None
    matrix = matrix.detach().cpu().to_sparse_coo()
    if matrix.dense_dim() or matrix.sparse_dim() != 2:
        raise InputError(f"source: expected a sparse matrix, found a tensor of shape {tuple(matrix.shape)}")
    # The methods without an underscore refuse tensors with equal edges that were not added up.
    row, col = matrix._indices().numpy()  # noqa: SLF001
    return coo_array((matrix._values().float().numpy(), (row, col)), tuple(matrix.shape))  # noqa: SLF001


def _is_sparse(value: Any) -> bool:
    return _is(value, "torch", "Tensor") and str(value.layout) != "torch.strided"


def _networkx_edges(graph: Any) -> tuple[list[Any], list[tuple[Any, Any]], list[Any] | None]:
    """Nodes, edges and weights of a graph."""
    found = list(graph.edges(data="weight"))
    weights = [1 if each[2] is None else each[2] for each in found]
    has_weights = any(each[2] is not None for each in found)
    return list(graph.nodes), [each[:2] for each in found], weights if has_weights else None


def _igraph_edges(graph: Any) -> tuple[list[Any], list[tuple[Any, Any]], list[Any] | None]:
    """Vertices, edges and weights of a graph; vertices are identified by their names if they have names."""
    names = list(graph.vs["name"]) if "name" in graph.vs.attributes() else list(range(graph.vcount()))
    edges = [(names[source], names[target]) for source, target in graph.get_edgelist()]
    return names, edges, list(graph.es["weight"]) if "weight" in graph.es.attributes() else None


def _write_table(folder: Path, nodes: list[Any], edges: list[tuple[Any, Any]], weights: list[Any] | None) -> Path:
    """Write the edges of a graph of Python objects.

    If the nodes are the numbers 0 to n - 1, they are the vertices of the graph, including nodes without edges.
    """
    from scipy.sparse import coo_array

    if not edges:
        raise InputError("source: the graph has no edges")
    is_number = [isinstance(node, int | np.integer) and not isinstance(node, bool) for node in nodes]
    if all(is_number):
        pairs = np.array(edges, np.int64).reshape(-1, 2)
        if sorted(map(int, nodes)) == list(range(len(nodes))):
            values = _weights(weights) if weights else np.ones(len(edges), np.float32)
            matrix = coo_array((values, (pairs[:, 0], pairs[:, 1])), (len(nodes), len(nodes)))
            return _write_matrix(folder / "adjacency.npz", matrix)
    else:
        names = {node: str(node) for node in nodes}
        if len(set(names.values())) < len(nodes):
            raise InputError("source: two nodes are different and have the same text; rename them to numbers or texts")
        pairs = np.array([(names[source], names[target]) for source, target in edges], str).reshape(-1, 2)
    if missing := len(nodes) - len(np.unique(pairs)):
        warnings.warn(
            f"{missing:,} of {len(nodes):,} nodes have no edge and are left out; number the nodes from 0 to keep them",
            stacklevel=2,
        )
    file = folder / "edges.npz"
    values_given: dict[str, Any] = {"edge_weight": _weights(weights)} if weights else {}
    np.savez(file, edge_index=pairs.T, **values_given)
    return file


def _weights(weights: list[Any]) -> NDArray[Any]:
    values = np.array(weights)
    if values.dtype.kind not in "iufb":
        raise InputError(f"source: expected numbers as the attribute weight of edges, found {values.dtype}")
    return values


def _one_data(value: Any) -> Any:
    """Return the ``Data`` of an object that is a ``Data`` or holds one; None if it holds none.

    Raises:
        InputError: the object holds several.
    """
    if _is(value, "torch_geometric", "Dataset") or (
        isinstance(value, list | tuple) and len(value) > 0 and all(_is_data(each) for each in value)
    ):
        if len(value) != 1:
            raise InputError(f"source: {_type_name(value)} of {len(value):,} graphs; {_SEVERAL}")
        return _one_data(value[0])
    if isinstance(value, tuple) and value and _is_data(value[0]):
        return _one_collated(value)
    return value if _is_data(value) else None


def _is_data(value: Any) -> bool:
    if isinstance(value, Mapping):
        # The offsets of collated graphs have the same names, but one axis.
        return getattr(value.get("edge_index"), "ndim", 0) == 2
    return hasattr(value, "edge_index") and hasattr(value, "to_dict")


def _one_collated(value: tuple[Any, ...]) -> Any:
    """The ``Data`` of a tuple ``(data, slices, ...)``, as ``InMemoryDataset.collate`` returns, of a single graph."""
    slices = value[1] if len(value) > 1 else None
    if slices is None:
        return value[0]
    if not isinstance(slices, Mapping):
        raise InputError(
            f"source: a graph and {_type_name(slices)}; pass the graph alone, and labels to gnnloom.features(label=...)"
        )
    graphs = max((len(each) - 1 for each in slices.values() if hasattr(each, "__len__")), default=1)
    if graphs > 1:
        raise InputError(f"source: collated data of {graphs:,} graphs; {_SEVERAL}")
    return value[0]


def _write_data(file: Path, data: Any) -> Path:
    """Write a ``Data``, or a mapping with its tensors, as the format ``pyg`` reads it."""
    import torch

    attributes = dict(data) if isinstance(data, Mapping) else data.to_dict()
    if "node_feat" in attributes and "x" not in attributes:
        attributes["x"] = attributes["node_feat"]  # as OGB calls it
    stated = attributes.get("num_nodes") if isinstance(data, Mapping) else data.num_nodes
    arrays = {name: torch.from_numpy(each) for name, each in attributes.items() if isinstance(each, np.ndarray)}
    given = {name: each for name, each in (attributes | arrays).items() if torch.is_tensor(each)}
    if given.get("edge_index") is None and attributes.get("adj_t") is not None:
        given |= _transposed(attributes["adj_t"])
    tensors = {name: _plain_tensor(each) for name, each in given.items() if not _is_sparse(each)}
    if sparse := [name for name in ("x", "y", "edge_index") if name in given and name not in tensors]:
        raise InputError(f"source: {sparse[0]} is a sparse tensor; set data.{sparse[0]} = data.{sparse[0]}.to_dense()")
    if "edge_index" not in tensors:
        raise InputError(f"source: expected edge_index; found {', '.join(sorted(map(str, attributes))) or 'nothing'}")
    # Vertices without edges and without data count as well.
    torch.save({**tensors, "num_nodes": stated}, file)
    return file


def is_hetero(value: Any) -> bool:
    """Whether a value is a ``HeteroData`` of PyG."""
    return _is(value, "torch_geometric", "HeteroData")


@contextmanager
def stored_hetero(data: Any) -> Iterator[str]:
    """Write a ``HeteroData`` to a temporary file, whose location this yields, for the time of the ``with`` block."""
    import torch

    stores = dict[Any, dict[str, Any]]()
    for name in data.node_types:
        stores[name] = _tensors_of(data[name]) | {"num_nodes": data[name].num_nodes}
    for triplet in data.edge_types:
        stores[triplet] = _tensors_of(data[triplet])
    with own_folder() as folder:
        file = Path(folder) / "data.pt"
        torch.save(stores, file)
        del stores
        yield _named_by_content(file)


def _tensors_of(store: Any) -> dict[str, Any]:
    """The dense tensors and arrays of a store, as tensors."""
    import torch

    given = {name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each for name, each in store.items()}
    dense = {name: each for name, each in given.items() if torch.is_tensor(each) and not _is_sparse(each)}
    return {name: _plain_tensor(each) for name, each in dense.items()}


def _transposed(adjacency: Any) -> dict[str, Any]:
    """The edges of ``adj_t``, whose entry (v, u) is the edge u -> v."""
    import torch

    if (matrix := _as_coo(adjacency)) is None:
        return {}
    edge_index = np.stack([matrix.col, matrix.row])
    return {"edge_index": torch.from_numpy(edge_index), "edge_weight": torch.from_numpy(matrix.data)}


def _plain_tensor(tensor: Any) -> Any:
    """A tensor as it is stored: contiguous, without a subclass, and of a type that NumPy has."""
    import torch

    plain = tensor.detach().cpu()
    if type(plain) is not torch.Tensor:
        plain = plain.as_subclass(torch.Tensor)
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).contiguous()


def _write_frame(name: str, file: Path, frame: Any) -> Path:
    from pyarrow import ArrowException, parquet, table

    try:
        parquet.write_table(table(frame), file, compression="none")
    except ArrowException as error:
        raise InputError(f"{name}: cannot be made an Arrow table ({error})") from error
    return file


@contextmanager
def stored_vertices(arrays: Mapping[str, Any], *, by_id: bool = False) -> Iterator[dict[str, str]]:
    """Write vertex data to temporary files for the time of the ``with`` block.

    Args:
        arrays: by name, the location of a file, or data: anything that NumPy makes an array of; a data frame, or a
            tuple of a file or frame and the columns to read; a split may also be a mapping with arrays ``train``,
            ``valid`` (or ``val``) and ``test`` of vertex ids or masks. None is left out.
        by_id: the index of a frame of pandas, if it is not 0, 1, 2, ..., has the ids of the rows.

    Yields:
        The location of the file of each array, perhaps with columns.

    Raises:
        InputError: a value is not an array.
    """
    with own_folder() as folder:
        given = {name: value for name, value in arrays.items() if value is not None}
        # One file for all columns of a frame.
        frames: dict[int, tuple[str, tuple[str, ...]]] = {}
        yield {name: _stored(Path(folder), name, value, frames, by_id=by_id) for name, value in given.items()}


def in_memory(value: Any) -> bool:
    """Whether vertex data are in memory rather than in a file."""
    table, _ = _chosen(value)
    return not isinstance(table, str | Path)


def _chosen(value: Any) -> tuple[Any, list[Any]]:
    """A table and the columns to read from it; none for all."""
    if not isinstance(value, tuple) or len(value) != 2 or not (_is_frame(value[0]) or isinstance(value[0], str | Path)):
        return value, []
    table, columns = value
    return table, [columns] if isinstance(columns, str | int) else list(columns)


def _is_frame(value: Any) -> bool:
    """Whether a value is a table with named columns, of pandas, polars or Arrow."""
    return _is(value, "polars", "LazyFrame") or (
        hasattr(value, "__arrow_c_stream__") and not hasattr(value, "to_frame") and hasattr(value, "columns")
    )


def _stored_frame(
    folder: Path, name: str, frame: Any, columns: list[Any], frames: dict[int, tuple[str, tuple[str, ...]]], by_id: bool
) -> str:
    """Write a frame to one file, even if several arrays use its columns; returns the file and the columns."""
    if id(frame) not in frames:
        from pyarrow import ArrowException, table

        given = frame.collect() if _is(frame, "polars", "LazyFrame") else frame
        if _is(given, "pandas", "DataFrame"):
            given = _without_index(name, given, columns, by_id=by_id)
        try:
            found = table(given)
        except (ArrowException, ValueError) as error:
            raise InputError(f"{name}: cannot be made an Arrow table ({error})") from error
        file = folder / f"{name}-{len(frames)}.parquet"
        _write_frame(name, file, found.replace_schema_metadata())
        frames[id(frame)] = _named_by_content(file), tuple(found.column_names)
    location, names = frames[id(frame)]
    wanted = [str(column) for column in columns]
    if missing := [column for column in wanted if column not in names]:
        raise InputError(f"{name}: no column {missing[0]}; the columns are {', '.join(names)}")
    return f"{location}:{_written(wanted)}" if wanted else location


def _without_index(name: str, frame: Any, columns: list[Any], *, by_id: bool) -> Any:
    """A pandas frame without its index; the index becomes a column if it has the ids or is one of the chosen columns.

    Raises:
        InputError: the index is not 0, 1, 2, ..., and the call does not say what the index holds.
    """
    index = frame.index
    if index.name in columns or (by_id and not index.equals(type(frame)(index=range(len(frame))).index)):
        return frame.reset_index()
    if not by_id and not index.equals(type(frame)(index=range(len(frame))).index):
        raise InputError(
            f"{name}: the index of the frame is not 0, 1, 2, ...; pass `--by-id` if it has the ids of the vertices, or"
            " frame.reset_index(drop=True) if row k belongs to vertex k"
        )
    return frame.reset_index(drop=True)


def _written(columns: Sequence[str]) -> str:
    """Column names in the notation that follows the name of a file."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(columns)
    return out.getvalue()


def _stored(folder: Path, name: str, value: Any, frames: dict[int, tuple[str, tuple[str, ...]]], *, by_id: bool) -> str:
    table, columns = _chosen(value)
    if isinstance(table, str | Path):
        return f"{table}:{_written([str(column) for column in columns])}" if columns else str(table)
    if _is_frame(table):
        return _stored_frame(folder, name, table, columns, frames, by_id)
    if isinstance(value, Mapping) and name != "split":
        raise InputError(f"{name}: expected an array or a frame, found {_type_name(value)}; pass a pandas.DataFrame")
    if isinstance(value, Mapping):
        file = folder / f"{name}.npz"
        parts = {key: split_part(key) if isinstance(key, str) else None for key in value}
        if set(parts.values()) != {"train", "valid", "test"} or len(parts) != 3:
            raise InputError(f"{name}: expected arrays train, valid and test, found {', '.join(map(str, value))}")
        arrays: dict[str, Any] = {
            part: _vertices(f"{name}, {key}", value[key])
            for part in SPLIT
            for key, each in parts.items()
            if each == part
        }
        np.savez(file, **arrays)
    else:
        file = folder / f"{name}.npy"
        np.save(file, _array(name, value))
    return _named_by_content(file)


def _vertices(name: str, value: Any) -> NDArray[Any]:
    """(num_ids,) integers, or masks (num_vertices,) or (num_vertices, num_splits)."""
    array = _array(name, value)
    return array if array.size else array.astype(np.int64)


def _array(name: str, value: Any) -> NDArray[Any]:
    try:
        array = np.ascontiguousarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name}: cannot be made a NumPy array ({error})") from error
    # Libraries of tables keep text as objects; None or NaN is a cell without one.
    if array.dtype.hasobject and array.ndim == 1 and name in {"label", "split"}:
        array = np.array(["" if each is None or each != each else each for each in array.tolist()])  # noqa: PLR0124
    if array.dtype.hasobject and all(isinstance(each, str) for each in array.reshape(-1).tolist()):
        array = array.astype(str)
    # NumPy would pickle them.
    if array.dtype.hasobject:
        raise InputError(f"{name}: expected numbers or text, found an array of Python objects")
    return array


def _named_by_content(file: Path) -> str:
    """Rename a file after its contents and set its time to 0: both enter the identity of a source."""
    state = xxhash.xxh3_128()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            state.update(block)
    named = file.with_name(f"{file.stem}-{state.hexdigest()}{file.suffix}")
    file.rename(named)
    os.utime(named, (0, 0))
    return str(named)
