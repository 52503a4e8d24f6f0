"""PyTorch Geometric's ``Data``, a dict of tensors, or a saved InMemoryDataset, from a file of torch.save.

The tensors that are read are ``edge_index`` (2, m), ``edge_weight`` or ``edge_attr`` with one column, ``edge_time`` or
``time`` (m,), ``x`` (n, F), ``y``, and ``train_mask``, ``val_mask`` or ``valid_mask``, and ``test_mask``, each (n,), or
(n, K) for K splits. Labels are ``y`` (n,) of classes or (n, C) of zeros and ones; other floats are the target. Tensors
that are not read may have any type. Neither torch nor PyG is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from gnnloom.pipeline.sources.binary.archive import listed
from gnnloom.pipeline.sources.binary.pickled_arrays import ARRAY_NAMES
from gnnloom.pipeline.sources.binary.restricted_pickle import Record
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray
from gnnloom.pipeline.sources.binary.torch_file import TENSOR, TorchFile
from gnnloom.pipeline.sources.format import TIMES, WEIGHTS, BundledVertices, Format, check_values
from gnnloom.pipeline.sources.numpy_edges import NumpyEdges, described, pair_columns
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import (
    NumpyVertices,
    checked_arrays,
    checked_column,
    is_target,
)
from gnnloom.pipeline.sources.vertex_data.splits import SPLIT_INDEX, MaskSplit
from gnnloom.pipeline.sources.vertex_data.vertex_files import JoinedVertices
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.vertex_arrays import SPLIT, split_part

#: Names that the pickle of a graph without types uses.
ADMITTED: Final = frozenset(
    {
        *ARRAY_NAMES,
        "collections.defaultdict",
        "builtins.dict",
        "builtins.list",
        "torch_geometric.data.data.Data",
        "torch_geometric.data.data.DataEdgeAttr",
        "torch_geometric.data.data.DataTensorAttr",
        "torch_geometric.data.storage.GlobalStorage",
    }
)
#: How to save one graph of a dataset of PyG.
ONE_GRAPH: Final = "save one graph with torch.save(dataset[0].to_dict(), FILE)"
#: Advice about objects of PyG that are not read.
REMEDIES: Final[Mapping[str, str]] = {
    "torch_geometric.data.hetero_data.": (
        "A HeteroData has several types of vertices; give its local file as the only source, as in"
        " `gnnloom ingest NAME FILE`"
    ),
    "torch_geometric.data.batch.": "Save the graphs of a Batch as one with torch.save(batch.to_dict(), FILE)",
    "torch_geometric.data.dataset.": f"A dataset may have several graphs; {ONE_GRAPH}",
    "torch_geometric.data.in_memory_dataset.": f"A dataset may have several graphs; {ONE_GRAPH}",
    "torch_geometric.": "Save data.to_dict() with torch.save",
    "torch_sparse.": "Save data.edge_index instead: row, col, _ = data.adj_t.t().coo()",
    "networkx.": "Pass the graph to gnnloom.ingest in Python",
}
_X, _Y = "x", "y"
_WEIGHTS = ("edge_weight", "edge_attr")
_TIMES = ("edge_time", "time")


@dataclass(frozen=True)
class PygFile:
    """The attributes of a ``Data`` in a file; a tensor is looked at when it is asked for.

    Attributes:
        opened: the file.
        attributes: tensors and plain values by name.
    """

    opened: TorchFile
    attributes: Mapping[Any, Any]

    @classmethod
    def open(cls, locations: Sequence[str]) -> PygFile:
        """Open a file.

        Raises:
            NotFoundError: the file does not exist.
            InputError: the file has another format, asks to run code, or has several graphs.
        """
        files = open_files(locations)
        if len(files) != 1:
            raise InputError(f"format 'pyg': expected one file, found {len(files)}")
        opened = TorchFile(files[0], ADMITTED, remedies=REMEDIES)
        return cls(opened, _one_graph(files[0], opened.content))

    @property
    def file(self) -> SourceFile:
        return self.opened.file

    def __contains__(self, name: str) -> bool:
        value = self.attributes.get(name)
        return isinstance(value, Record) and value.name not in {"", "collections.OrderedDict"}

    @property
    def has_vertices(self) -> bool:
        """Whether there are features, labels or masks."""
        return _X in self or _Y in self or bool(self.masks())

    def tensors(self) -> list[str]:
        """Names of the tensors, in order."""
        return sorted(name for name in self.attributes if isinstance(name, str) and name in self)

    def described(self) -> Iterator[str]:
        """Name, shape and dtype of each tensor, for people; only the name of a tensor that cannot be read."""
        for name in self.tensors():
            try:
                yield described(self.tensor(name))
            except InputError:
                yield name

    def masks(self) -> dict[str, str]:
        """Names of the masks, and the part of the split that each mask holds; training first, testing last."""
        parts = {name: split_part(name) for name in self.tensors() if name.endswith("_mask")}
        return {name: part for each in SPLIT for name, part in parts.items() if part == each}

    def tensor(self, name: str, *, by_rows: bool = False) -> StoredArray:
        """Describe a tensor; raises as :meth:`TorchFile.tensor` does."""
        return self.opened.tensor(self.attributes[name], name, by_rows=by_rows)

    def num_vertices(self) -> int | None:
        """The number of vertices, if it is stated or there are vertex data."""
        stated = self.attributes.get("num_nodes")
        if isinstance(stated, list) and len(stated) == 1:
            (stated,) = stated
        if isinstance(stated, int):
            return stated
        for name in (_X, _Y, *self.masks()):
            # Values other than dense tensors are refused when the vertex data are opened.
            if name in self and self.attributes[name].name == TENSOR and (shape := self.tensor(name).shape):
                return shape[0]
        return None


def _one_graph(file: SourceFile, content: Any) -> Mapping[Any, Any]:
    """The attributes of the only graph in a file.

    Raises:
        InputError: there are several graphs, or none.
    """
    graphs = 1
    if isinstance(content, tuple) and content:
        # (data, slices, ...) of InMemoryDataset, or a tuple of graphs.
        others = sum(isinstance(each, Record) and isinstance(each.state, dict) for each in content[1:])
        slices = content[1] if len(content) > 1 and not others else None
        content, graphs = content[0], 1 + others if others else num_graphs(slices)
    elif isinstance(content, list) and content:
        content, graphs = content[0], len(content)
    attributes = _attributes(content)
    if attributes is None:
        raise InputError(f"{file.location}: expected a torch_geometric Data or a dict of tensors")
    stated = attributes.get("num_nodes")
    graphs = max(graphs, len(stated) if isinstance(stated, list) else 1)
    if graphs > 1:
        raise InputError(
            f"{file.location}: {graphs:,} graphs, whose vertices all begin with 0; {ONE_GRAPH}, or all as one graph of"
            " separate parts with torch.save(Batch.from_data_list(list(dataset)).to_dict(), FILE)"
        )
    return attributes


def num_graphs(slices: Any) -> int:
    """Number of graphs that the offsets of a collated dataset divide its tensors into."""
    if not isinstance(slices, dict):
        return 1
    counts = [1]
    for value in slices.values():
        if isinstance(value, list):
            counts.append(len(value) - 1)
        elif isinstance(value, Record) and value.name == TENSOR and len(value.args) > 2:
            size = value.args[2].args[0] if isinstance(value.args[2], Record) else value.args[2]
            counts.append(size[0] - 1 if isinstance(size, tuple) and len(size) == 1 else 1)
        elif isinstance(value, dict):
            counts.append(num_graphs(value))
    return max(counts)


def open_pyg_edges(locations: Sequence[str], *, weights: bool = False, times: bool = False) -> NumpyEdges:
    """Open the edges of a ``Data``.

    Raises:
        NotFoundError: the file does not exist.
        InputError: the file has another format, lacks edges, weights or times, or asks to run code.
    """
    check_values(weights=weights, times=times)
    file = PygFile.open(locations)
    if "edge_index" not in file:
        raise InputError(f"{file.file.location}: expected edge_index; found {listed(file.tensors()) or 'nothing'}")
    value = _value(file, _TIMES if times else _WEIGHTS) if weights or times else None
    pairs = pair_columns(file.tensor("edge_index"), value, file.num_vertices())
    pairs = replace(pairs, contents=tuple(file.described()))
    if not pairs.num_edges:
        raise InputError(f"{file.file.location}: the file has no edges")
    return NumpyEdges((pairs,), weights, format_name="pyg", times=times)


def open_pyg_vertices(locations: Sequence[str], *, split_index: int | None = None) -> VertexSource:
    """Open the features, labels or targets, and masks of a ``Data``.

    Args:
        split_index: number of the split, if masks have several columns.

    Raises:
        NotFoundError: the file does not exist, or has no vertex data.
        InputError: the file has another format, a tensor has the wrong shape or dtype, or ``split_index`` is missing.
    """
    return vertices_in(PygFile.open(locations), split_index)


def vertices_in(file: PygFile, split_index: int | None = None) -> VertexSource:
    """The features, labels or targets, and masks among some attributes; raises as :func:`open_pyg_vertices` does."""
    found = {"feature": file.tensor(_X, by_rows=True)} if _X in file else {}
    if _Y in file:
        label = file.tensor(_Y, by_rows=True)
        found["target" if is_target(label) else "label"] = label
    given = checked_arrays(found)
    arrays = [array for (array,) in given.values()]
    sources: list[VertexSource] = [NumpyVertices(given, arrays[0].shape[0])] if arrays else []
    rows = {str(array): array.shape[0] for array in arrays}
    masks: dict[str, list[StoredArray]] = {}
    for name, part in file.masks().items():
        masks.setdefault(part, []).append(file.tensor(name))
    if masks:
        split = MaskSplit.open(masks, split_index)
        sources.append(split)
        rows |= {str(mask): mask.num_rows for _, mask in split.masks}
    elif split_index is not None:
        raise InputError(f"{file.file.location}: --split-index {split_index}: the file has no masks")
    if not sources:
        raise NotFoundError(f"{file.file.location}: found no x, y or masks")
    if len(set(rows.values())) > 1:
        raise InputError(
            f"the tensors have different numbers of rows: {', '.join(f'{at}: {n:,}' for at, n in rows.items())}"
        )
    return JoinedVertices(tuple(sources))


def unread_tensors(locations: Sequence[str]) -> list[str]:
    """Names of the tensors that have a row per vertex, and that nothing reads; raises as :meth:`PygFile.open` does."""
    file = PygFile.open(locations)
    rows, known, found = file.num_vertices(), {_X, _Y, *file.masks(), "batch", "ptr"}, []
    for name in file.tensors():
        if name in known or name.startswith(("edge", "adj")):
            continue
        # Values that cannot be read are not needed.
        with suppress(InputError):
            if rows and file.tensor(name).shape[:1] == (rows,):
                found.append(name)
    return found


def has_vertices(locations: Sequence[str]) -> bool:
    """Whether the file has features, labels or masks."""
    return PygFile.open(locations).has_vertices


def _attributes(content: Any) -> Mapping[Any, Any] | None:
    """The attributes of a ``Data``, from its pickled state in any version of PyG."""
    if isinstance(content, Record) and isinstance(content.state, dict):
        store = content.state.get("_store")
        mapping = store.state.get("_mapping") if isinstance(store, Record) and isinstance(store.state, dict) else None
        return mapping if isinstance(mapping, dict) else content.state
    return content if isinstance(content, dict) else None


def _value(file: PygFile, names: Sequence[str]) -> StoredArray:
    for name in names:
        if name in file:
            return checked_column(file.tensor(name, by_rows=True), "iuf")
    what = "times" if names == _TIMES else "weights"
    raise InputError(f"{file.file.location}: the file has no {what}; expected {' or '.join(names)}")


FORMAT = Format(
    name="pyg",
    order=100,
    help="a torch_geometric Data",
    open_edges=open_pyg_edges,
    options=(WEIGHTS, TIMES, SPLIT_INDEX),
    suffixes=("pt",),
    vertices=BundledVertices(open_pyg_vertices, has_vertices, (SPLIT_INDEX,)),
)
