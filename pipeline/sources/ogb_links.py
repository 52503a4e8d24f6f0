"""The pairs in OGB's folders for link prediction: ``split/NAME/{train,valid,test}.pt``, mappings of arrays.

    edge (m, 2)                       pairs
    edge_neg (k, 2)                   negatives of the whole split
    source_node (m,), target_node (m,), target_node_neg (m, K)      pairs, and K negatives of each

Years and weights of edges are left out. Hu et al., Open Graph Benchmark (NeurIPS 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnnloom.pipeline.sources.binary.edge_columns import FlatColumn
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray
from gnnloom.pipeline.sources.binary.torch_arrays import torch_arrays
from gnnloom.pipeline.sources.numpy_edges import EdgeArrays, NumpyEdges
from gnnloom.pipeline.sources.reading.files import SourceFile, is_local, open_files
from gnnloom.pipeline.sources.vertex_data.ogb_vertices import ogb_root
from gnnloom.storage.errors import InputError, NotFoundError


@dataclass(frozen=True)
class OgbSplit:
    """The pairs of one split.

    Attributes:
        pairs: the pairs.
        pool: negatives of all pairs; None if there are none.
        targets: (num_pairs, K) negatives of each pair; None if there are none.
        location: of the file.
    """

    pairs: NumpyEdges
    pool: NumpyEdges | None
    targets: StoredArray | None
    location: str


def open_ogb_splits(folder: str, split: str | None) -> dict[str, OgbSplit]:
    """Open the three splits of a folder.

    Args:
        split: folder below ``split/``; required if there are several.

    Raises:
        NotFoundError: the folder, the split or one of its files does not exist.
        InputError: there are several splits and none is chosen, or a file has other arrays.
    """
    root = ogb_root(folder)
    name = split or _only_split(root)
    return {part: _open(open_files([f"{root}/split/{name}/{part}.pt"])[0]) for part in ("train", "valid", "test")}


def _only_split(root: str) -> str:
    if not is_local(root):
        raise InputError(f"{root}/split: folders on a server cannot be listed; name the split")
    folders = sorted(path.parent.name for path in Path(root, "split").glob("*/train.pt"))
    if not folders:
        raise NotFoundError(f"{root}/split: no folder with a file train.pt")
    if len(folders) > 1:
        raise InputError(f"{root}/split: several splits ({', '.join(folders)}); choose one with --split")
    return folders[0]


def _open(file: SourceFile) -> OgbSplit:
    arrays = torch_arrays(file)
    pool = _pairs(arrays["edge_neg"]) if "edge_neg" in arrays else None
    if "edge" in arrays:
        return OgbSplit(_pairs(arrays["edge"]), pool, None, file.location)
    if {"source_node", "target_node"} <= arrays.keys():
        source, target = (arrays[name] for name in ("source_node", "target_node"))
        if source.size != target.size or {len(source.shape), len(target.shape)} != {1}:
            raise InputError(f"{file.location}: source_node {source.shape} and target_node {target.shape} do not fit")
        columns = EdgeArrays(file, source.size, FlatColumn(_ids(source)), FlatColumn(_ids(target)))
        pairs = NumpyEdges((columns,), format_name="ogb-links")
        return OgbSplit(pairs, pool, arrays.get("target_node_neg"), file.location)
    raise InputError(
        f"{file.location}: expected arrays edge, or source_node and target_node, found"
        f" {', '.join(sorted(arrays)) or 'none'}; edges of several types are not supported"
    )


def _pairs(array: StoredArray) -> NumpyEdges:
    """The edges in an array of shape (m, 2)."""
    if len(array.shape) != 2 or array.shape[1] != 2:
        raise InputError(f"{array}: expected shape (m, 2), found {array.shape}")
    pairs, count = _ids(array), array.shape[0]
    ends = (FlatColumn(pairs), FlatColumn(pairs, count)) if pairs.fortran_order else _alternating(pairs)
    return NumpyEdges((EdgeArrays(array.file, count, *ends),), format_name="ogb-links")


def _alternating(pairs: StoredArray) -> tuple[FlatColumn, FlatColumn]:
    return FlatColumn(pairs, 0, 2), FlatColumn(pairs, 1, 2)


def _ids(array: StoredArray) -> StoredArray:
    if array.dtype.kind not in "iu":
        raise InputError(f"{array}: expected ids of vertices, found {array.dtype}")
    return array
