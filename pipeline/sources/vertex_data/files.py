"""Features, labels and split of vertices from files of any format, each array from a file of its own."""

from __future__ import annotations

from gnnloom.pipeline.sources.reading.compressed import SUFFIXES
from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.pipeline.sources.vertex_data.joined_vertices import JoinedVertices
from gnnloom.pipeline.sources.vertex_data.kind import FILE_OPTIONS, VertexKind
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices
from gnnloom.pipeline.sources.vertex_data.parquet_vertices import ParquetVertices
from gnnloom.pipeline.sources.vertex_data.text_vertices import TextVertices

_NUMPY, _PARQUET = {"npy", "npz"}, {"parquet", "pq"}


def open_vertex_files(
    *, feature: str | None = None, label: str | None = None, split: str | None = None
) -> VertexSource:
    """The source for files whose formats their names tell: NumPy, Parquet, and text for all others.

    Raises:
        NotFoundError: a file is not there.
        InputError: no file is named, one is of another format or shape, or their numbers of rows differ.
    """
    files = {"feature": feature, "label": label, "split": split}
    given = {array: location for array, location in files.items() if location}
    numpy = {array: location for array, location in given.items() if _suffix(location) in _NUMPY}
    if numpy == given:
        return NumpyVertices.open(feature=feature, label=label, split=split)
    sources: list[VertexSource] = [
        ParquetVertices.open(location, array) if _suffix(location) in _PARQUET else TextVertices.open(location, array)
        for array, location in given.items()
        if array not in numpy
    ]
    if numpy:
        rows = sources[0].num_vertices()
        names = (numpy.get("feature"), numpy.get("label"), numpy.get("split"))
        sources.append(NumpyVertices.open(feature=names[0], label=names[1], split=names[2], num_vertices=rows))
    return JoinedVertices(tuple(sources))


def _suffix(location: str) -> str:
    name = location.rpartition("/")[2]
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name.rpartition(".")[2]


VERTEX_KIND = VertexKind(
    name="files",
    order=10,
    help="one file per array, with one row per vertex",
    open=lambda _, **files: open_vertex_files(**files),
    options=FILE_OPTIONS,
    needs_graph=False,
)
