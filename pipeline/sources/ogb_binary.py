"""OGB's binary layout, which papers100M uses: NumPy archives instead of CSV files.

    raw/data.npz                    edge_index (2, m), node_feat (n, F), num_nodes_list, num_edges_list
    raw/node-label.npz              node_label (n, 1) classes or (n, C) zeros and ones, NaN for none
    split/NAME/{train,valid,test}.csv.gz

Members are streamed, whether stored or deflated; the two rows of edge_index are two streams, read in step. The path of
``data.npz`` may stand for the folder. Hu et al., Open Graph Benchmark (NeurIPS 2020).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray, member_names, open_array
from gnnloom.pipeline.sources.format import SPLIT_NAME, BundledVertices, Format
from gnnloom.pipeline.sources.numpy_edges import NumpyEdges
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.pipeline.sources.vertex_data.joined_vertices import JoinedVertices
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices, checked_arrays
from gnnloom.pipeline.sources.vertex_data.ogb_vertices import SplitFiles, find_split
from gnnloom.storage.errors import InputError, NotFoundError

_DATA = "raw/data.npz"


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
        raise InputError(f"{file.location}: {pairs.num_edges:,} edges, num_edges_list states {num_edges:,}")
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


def has_vertices(folder: str) -> bool:
    """Whether the folder has features, labels or a split."""
    return bool(_vertex_sources(folder, None))


def _vertex_sources(folder: str, split: str | None) -> tuple[VertexSource, ...]:
    data = _file(folder, _DATA)
    num_vertices = _count(data, "num_nodes_list")
    feature = open_array(data, "node_feat") if "node_feat" in member_names(data) else None
    found = {"feature": feature, "label": _label(folder)}
    given = checked_arrays({option: array for option, array in found.items() if array})
    for (array,) in given.values():
        if array.shape[0] != num_vertices:
            raise InputError(f"{array}: {array.shape[0]:,} rows, num_nodes_list states {num_vertices:,} vertices")
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


FORMAT = Format(
    name="ogb-binary",
    order=90,
    help="OGB's binary layout of papers100M",
    open_edges=open_binary_edges,
    is_folder=_is_binary,
    one_location=True,
    vertices=BundledVertices(open_binary_vertices, has_vertices, (SPLIT_NAME,)),
)
