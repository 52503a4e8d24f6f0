"""PyTorch Geometric's ``Data``, a dict of tensors, or a saved InMemoryDataset, from a file of torch.save.

The tensors that are read are ``edge_index`` (2, m), ``edge_weight`` or ``edge_attr`` with one column, ``edge_time`` or
``time`` (m,), ``x`` (n, F), ``y`` (n,) or (n, C) of zeros and ones, and ``train_mask``, ``val_mask`` and ``test_mask``
(n,). Neither torch nor PyG is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.archive import listed
from gnnloom.pipeline.sources.binary.restricted_pickle import Record
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray
from gnnloom.pipeline.sources.binary.torch_file import TENSOR, TorchFile
from gnnloom.pipeline.sources.format import TIMES, WEIGHTS, BundledVertices, Format, check_values
from gnnloom.pipeline.sources.numpy_edges import NumpyEdges, pair_columns
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.source import OneArray, VertexSource
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices, checked_arrays, checked_column
from gnnloom.pipeline.sources.vertex_data.vertex_files import JoinedVertices
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.vertex_arrays import SPLIT

_ADMITTED = frozenset(
    {
        "torch_geometric.data.data.Data",
        "torch_geometric.data.data.DataEdgeAttr",
        "torch_geometric.data.data.DataTensorAttr",
        "torch_geometric.data.storage.GlobalStorage",
    }
)
_OPTIONS = {"x": "feature", "y": "label"}
_MASKS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}
_WEIGHTS = ("edge_weight", "edge_attr")
_TIMES = ("edge_time", "time")


def open_pyg_edges(locations: Sequence[str], *, weights: bool = False, times: bool = False) -> NumpyEdges:
    """Open the edges of a ``Data``.

    Raises:
        NotFoundError: the file does not exist.
        InputError: the file has another format, lacks edges, weights or times, or asks to run code.
    """
    check_values(weights=weights, times=times)
    file = _one_file(locations)
    tensors, stated = _open(file)
    if "edge_index" not in tensors:
        raise InputError(f"{file.location}: expected edge_index; found {listed(sorted(tensors)) or 'nothing'}")
    value = _value(file, tensors, _TIMES if times else _WEIGHTS) if weights or times else None
    pairs = pair_columns(tensors["edge_index"], value, stated)
    if not pairs.num_edges:
        raise InputError(f"{file.location}: the file has no edges")
    return NumpyEdges((pairs,), weights, format_name="pyg", times=times)


@dataclass(frozen=True)
class MaskSplit(OneArray):
    """A split from three masks; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`.

    Attributes:
        masks: name of each split, and its mask, (n,) bool.
    """

    masks: tuple[tuple[str, StoredArray], ...]

    array, width = "split", 1

    @property
    def random_access(self) -> bool:
        return all(mask.is_mapped for _, mask in self.masks)

    def identity(self) -> dict[str, Any]:
        return {"format": "masks", "file": self.masks[0][1].file.identity(), "masks": [name for name, _ in self.masks]}

    def num_vertices(self) -> int:
        return self.masks[0][1].shape[0]

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:  # noqa: ARG002 - there is only one
        first = start
        rows = self.masks[0][1].block_elements
        for blocks in zip(*(mask.read_flat(start, stop, rows) for _, mask in self.masks), strict=True):
            yield self._codes(blocks, first)
            first += len(blocks[0])

    def _codes(self, blocks: Sequence[NDArray[Any]], first: int) -> NDArray[np.uint8]:
        codes = np.full(len(blocks[0]), SPLIT["none"], np.uint8)
        for (name, mask), block in zip(self.masks, blocks, strict=True):
            chosen = block.astype(bool)
            clash = chosen & (codes != SPLIT["none"])
            if clash.any():
                raise InputError(
                    f"{mask}, row {first + int(np.argmax(clash)):,}: the vertex is in another split already"
                )
            codes[chosen] = SPLIT[name]
        return codes


def open_pyg_vertices(locations: Sequence[str]) -> VertexSource:
    """Open the features, labels and masks of a ``Data``.

    Raises:
        NotFoundError: the file does not exist, or has no vertex data.
        InputError: the file has another format, or a tensor has the wrong shape or dtype.
    """
    file = _one_file(locations)
    tensors, _ = _open(file)
    given = checked_arrays({option: tensors[name] for name, option in _OPTIONS.items() if name in tensors})
    arrays = [array for (array,) in given.values()]
    sources: list[VertexSource] = [NumpyVertices(given, arrays[0].shape[0])] if arrays else []
    if masks := [(split, _mask(tensors[name])) for name, split in _MASKS.items() if name in tensors]:
        sources.append(MaskSplit(tuple(masks)))
    if not sources:
        raise NotFoundError(f"{file.location}: found no x, y or masks")
    rows = {str(array): array.shape[0] for array in (*arrays, *(mask for _, mask in masks))}
    if len(set(rows.values())) > 1:
        raise InputError(
            f"the tensors have different numbers of rows: {', '.join(f'{at}: {n:,}' for at, n in rows.items())}"
        )
    return JoinedVertices(tuple(sources))


def has_vertices(locations: Sequence[str]) -> bool:
    """Whether the file has features, labels or masks."""
    return not {"x", "y", *_MASKS}.isdisjoint(_open(_one_file(locations))[0])


def _one_file(locations: Sequence[str]) -> SourceFile:
    files = open_files(locations)
    if len(files) != 1:
        raise InputError(f"format 'pyg': expected one file, found {len(files)}")
    return files[0]


def _open(file: SourceFile) -> tuple[dict[str, StoredArray], int | None]:
    """The tensors by name, and the number of vertices if it is stated."""
    opened = TorchFile(file, _ADMITTED)
    attributes = _attributes(opened.content)
    if attributes is None:
        raise InputError(f"{file.location}: expected a torch_geometric Data or a dict of tensors")
    tensors: dict[str, StoredArray] = {
        name: opened.tensor(value, name)
        for name, value in attributes.items()
        if isinstance(name, str) and isinstance(value, Record) and value.name == TENSOR
    }
    stated = attributes.get("num_nodes")
    if not isinstance(stated, int):
        rows = [tensors[name].shape[0] for name in ("x", "y", *_MASKS) if name in tensors and tensors[name].shape]
        stated = rows[0] if rows else None
    return tensors, stated


def _attributes(content: Any) -> Mapping[Any, Any] | None:
    """The attributes of a ``Data``, from its pickled state in any version of PyG."""
    if isinstance(content, tuple) and content:
        content = content[0]  # (data, slices, class) of InMemoryDataset
    if isinstance(content, Record) and isinstance(content.state, dict):
        store = content.state.get("_store")
        mapping = store.state.get("_mapping") if isinstance(store, Record) and isinstance(store.state, dict) else None
        return mapping if isinstance(mapping, dict) else content.state
    return content if isinstance(content, dict) else None


def _value(file: SourceFile, tensors: Mapping[str, StoredArray], names: Sequence[str]) -> StoredArray:
    for name in names:
        if name in tensors:
            return checked_column(tensors[name], "iuf")
    what = "times" if names == _TIMES else "weights"
    raise InputError(f"{file.location}: the file has no {what}; expected {' or '.join(names)}")


def _mask(tensor: StoredArray) -> StoredArray:
    if tensor.dtype != np.dtype(bool) or len(tensor.shape) != 1:
        raise InputError(f"{tensor}: expected bool of shape (n,), found {tensor.dtype} of shape {tensor.shape}")
    return tensor


FORMAT = Format(
    name="pyg",
    order=100,
    help="a torch_geometric Data",
    open_edges=open_pyg_edges,
    options=(WEIGHTS, TIMES),
    suffixes=("pt",),
    vertices=BundledVertices(open_pyg_vertices, has_vertices),
)
