"""OGB's layouts of a dataset: for node property prediction, a folder of (compressed) CSV files, or of NumPy archives.

    raw/edge.csv.gz   num-node-list.csv.gz   num-edge-list.csv.gz   node-feat.csv.gz   node-label.csv.gz
    split/NAME/{train,valid,test}.csv.gz

Each file may also be uncompressed, without ``.gz``. Features, labels and splits are optional. A single column of labels
contains classes; several columns contain zeros and ones, one column per class, as in ogbn-proteins.

The binary layout, which papers100M uses, has the same splits:

    raw/data.npz                    edge_index (2, m), node_feat (n, F), num_nodes_list, num_edges_list
    raw/node-label.npz              node_label (n, 1) classes or (n, C) zeros and ones, NaN for none

Links have a folder of their own, with mappings of arrays; years and weights of edges are left out:

    split/NAME/{train,valid,test}.pt
        edge (m, 2)                       pairs
        edge_neg (k, 2)                   negatives of the whole split
        source_node (m,), target_node (m,), target_node_neg (m, K)      pairs, and K negatives of each

Members are streamed, whether stored or deflated; the two rows of edge_index are two streams, read in step. The path of
``data.npz`` may stand for the folder. Hu et al., Open Graph Benchmark (NeurIPS 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnnloom.pipeline.sources.binary.edge_columns import FlatColumn
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray, member_names, open_array
from gnnloom.pipeline.sources.binary.torch_arrays import torch_arrays
from gnnloom.pipeline.sources.format import SPLIT_NAME, BundledVertices, Format
from gnnloom.pipeline.sources.numpy_edges import EdgeArrays, NumpyEdges
from gnnloom.pipeline.sources.reading.files import SourceFile, is_local, open_files
from gnnloom.pipeline.sources.reading.text_columns import read_count
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange, VertexSource
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.sources.understood import Understood
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices, checked_arrays
from gnnloom.pipeline.sources.vertex_data.ogb_vertices import (
    OgbVertices,
    find_split,
    has_vertices,
    ogb_root,
    required_file,
)
from gnnloom.pipeline.sources.vertex_data.splits import SplitFiles
from gnnloom.pipeline.sources.vertex_data.vertex_files import JoinedVertices
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.wording import counted

#: The archive of the binary layout.
_DATA = "raw/data.npz"


@dataclass(frozen=True)
class OgbEdges:
    """Edges of an OGB folder; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`."""

    edges: TextEdges
    num_edges: int
    is_counted: bool = False

    @classmethod
    def open(cls, folder: str) -> OgbEdges:
        """Find the files and read the stated numbers.

        Raises:
            NotFoundError: the folder, or one of its files, does not exist.
            InputError: a stated number is invalid, or the edge file is empty.
        """
        root = ogb_root(folder)
        num_vertices = read_count(required_file(root, "raw/num-node-list"))
        num_edges = read_count(required_file(root, "raw/num-edge-list"))
        edges = TextEdges.open([required_file(root, "raw/edge").location])
        return cls(edges.with_vertices(num_vertices), num_edges)

    def identity(self) -> dict[str, Any]:
        stated = {"num_vertices": self.num_vertices(), "num_edges": self.num_edges}
        return {**self.edges.identity(), "format": "ogb", **stated}

    def num_vertices(self) -> int | None:
        return self.edges.num_vertices()

    def understood(self) -> list[Understood]:
        """Describes how the folder is read, judging by its counts and the first edges."""
        found = self.edges.understood()
        stated = f"OGB's files, {counted(self.num_edges, 'edge')} of {counted(self.num_vertices() or 0, 'vertex')}"
        return [replace(each, format="ogb", sentences=(stated, *each.sentences[1:])) for each in found]

    def ranges(self) -> Sequence[SourceRange]:
        ranges = self.edges.ranges()
        # Comparing the number of edges with the stated one requires reading the whole file, or counting its lines.
        return ranges if len(ranges) > 1 else [SourceRange(0, 0, -1)]

    def surveys(self) -> Sequence[SourceRange]:
        ranges = self.ranges()
        return [] if self.is_counted or len(ranges) == 1 else ranges

    def survey(self, span: SourceRange) -> list[int]:
        return [self.edges.count_lines(span)]

    def with_surveys(self, found: Sequence[Sequence[int]]) -> OgbEdges:
        self._check_edges(sum(edges for (edges,) in found))
        return replace(self, is_counted=True)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        found = 0
        for chunk in self.edges.read(span):
            found += len(chunk.source)
            yield chunk
        if span.stop < 0:
            self._check_edges(found)

    def _check_edges(self, found: int) -> None:
        if found != self.num_edges:
            raise InputError(
                f"{self.edges.files[0].location}: {counted(found, 'edge')}, num-edge-list says {self.num_edges:,};"
                " the file is truncated or belongs to another graph"
            )


def open_binary_edges(folder: str) -> NumpyEdges:
    """Open the edges of a binary OGB folder.

    Raises:
        NotFoundError: the folder, or an array in its file, does not exist.
        InputError: the file is not an archive, or the stated numbers do not match one graph.
    """
    file = _file(folder, _DATA)
    num_vertices, num_edges = _count(file, "num_nodes_list"), _count(file, "num_edges_list")
    pairs = NumpyEdges.open([file.location]).arrays[0]
    if pairs.num_edges != num_edges:
        raise InputError(f"{file.location}: {counted(pairs.num_edges, 'edge')}, num_edges_list states {num_edges:,}")
    return NumpyEdges((replace(pairs, num_vertices=num_vertices),), format_name="ogb-binary")


def open_binary_vertices(folder: str, *, split: str | None = None) -> VertexSource:
    """Open the features, labels and split of a binary OGB folder.

    Args:
        split: folder below ``split/``; required if there are several.

    Raises:
        NotFoundError: the folder or the split does not exist, or the folder has no vertex data.
        InputError: an array has the wrong shape or dtype, or there are several splits and none is chosen.
    """
    sources = _vertex_sources(folder, split)
    if not sources:
        raise NotFoundError(f"{folder}: found no node_feat, raw/node-label.npz or split/")
    return JoinedVertices(sources)


def _vertex_sources(folder: str, split: str | None = None) -> tuple[VertexSource, ...]:
    data = _file(folder, _DATA)
    num_vertices = _count(data, "num_nodes_list")
    feature = open_array(data, "node_feat") if "node_feat" in member_names(data) else None
    found = {"feature": feature, "label": _label(folder)}
    given = checked_arrays({option: array for option, array in found.items() if array})
    for (array,) in given.values():
        if array.shape[0] != num_vertices:
            raise InputError(
                f"{array}: {counted(array.shape[0], 'row')}, num_nodes_list states {counted(num_vertices, 'vertex')}"
            )
    files = find_split(_root(folder), split)
    sources = (
        NumpyVertices(given, num_vertices) if given else None,
        SplitFiles(files, num_vertices) if files else None,
    )
    return tuple(source for source in sources if source is not None)


def _is_binary(folder: Path) -> bool:
    return (folder / _DATA).is_file()


def _root(folder: str) -> str:
    return folder.rstrip("/").removesuffix(f"/{_DATA}")


def _file(folder: str, name: str) -> SourceFile:
    return open_files([f"{_root(folder)}/{name}"])[0]


def _label(folder: str) -> StoredArray | None:
    try:
        file = _file(folder, "raw/node-label.npz")
    except NotFoundError:
        return None
    return open_array(file, "node_label")


def _count(file: SourceFile, member: str) -> int:
    array = open_array(file, member)
    if array.size != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{array}: expected one number for one graph, found {array.dtype} of shape {array.shape}")
    return int(array.read_all().reshape(-1)[0])


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
    return {part: _open_split(open_files([f"{root}/split/{name}/{part}.pt"])[0]) for part in ("train", "valid", "test")}


def _only_split(root: str) -> str:
    if not is_local(root):
        raise InputError(f"{root}/split: folders on a server cannot be listed; name the split")
    folders = sorted(path.parent.name for path in Path(root, "split").glob("*/train.pt"))
    if not folders:
        raise NotFoundError(f"{root}/split: no folder with a file train.pt")
    if len(folders) > 1:
        raise InputError(f"{root}/split: several splits ({', '.join(folders)}); choose one with --split")
    return folders[0]


def _open_split(file: SourceFile) -> OgbSplit:
    arrays = torch_arrays(file)
    pool = _pairs(arrays["edge_neg"]) if "edge_neg" in arrays else None
    if "edge" in arrays:
        return OgbSplit(_pairs(arrays["edge"]), pool, None, file.location)
    if {"source_node", "target_node"} <= arrays.keys():
        source, target = (arrays[name] for name in ("source_node", "target_node"))
        if source.size != target.size or {len(source.shape), len(target.shape)} != {1}:
            raise InputError(f"{file.location}: source_node {source.shape} and target_node {target.shape} do not fit")
        columns = EdgeArrays(file, source.size, FlatColumn(_checked_ids(source)), FlatColumn(_checked_ids(target)))
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
    pairs, count = _checked_ids(array), array.shape[0]
    ends = (FlatColumn(pairs), FlatColumn(pairs, count)) if pairs.fortran_order else _alternating(pairs)
    return NumpyEdges((EdgeArrays(array.file, count, *ends),), format_name="ogb-links")


def _alternating(pairs: StoredArray) -> tuple[FlatColumn, FlatColumn]:
    return FlatColumn(pairs, 0, 2), FlatColumn(pairs, 1, 2)


def _checked_ids(array: StoredArray) -> StoredArray:
    if array.dtype.kind not in "iu":
        raise InputError(f"{array}: expected ids of vertices, found {array.dtype}")
    return array


FORMAT = (
    Format(
        name="ogb",
        order=80,
        help="OGB's raw CSV layout",
        open_edges=OgbEdges.open,
        is_fallback=True,
        one_location=True,
        vertices=BundledVertices(OgbVertices.open, has_vertices, (SPLIT_NAME,)),
    ),
    Format(
        name="ogb-binary",
        order=90,
        help="OGB's binary layout of papers100M",
        open_edges=open_binary_edges,
        is_folder=_is_binary,
        one_location=True,
        vertices=BundledVertices(
            open_binary_vertices, lambda folder: bool(_vertex_sources(folder, None)), (SPLIT_NAME,)
        ),
    ),
)
