"""Features, labels and split from NumPy, Parquet or text files, one file per array and one row per vertex."""

from __future__ import annotations

from gnnloom.pipeline.sources.reading.compressed import SUFFIXES
from gnnloom.pipeline.sources.source import VertexSource
from gnnloom.pipeline.sources.vertex_data.joined_vertices import JoinedVertices
from gnnloom.pipeline.sources.vertex_data.kind import FILE_OPTIONS, VertexKind
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices
from gnnloom.pipeline.sources.vertex_data.parquet_vertices import ParquetVertices
from gnnloom.pipeline.sources.vertex_data.text_vertices import TextVertices

_NUMPY, _PARQUET = {"npy", "npz"}, {"parquet", "pq"}


def open_vertex_files(**files: str | None) -> VertexSource:
    """Open files whose suffixes determine their formats: NumPy, Parquet, and text for all others.

    Args:
        files: location of each file by the option that names it; None for no file.

    Raises:
        NotFoundError: a file does not exist.
        InputError: no file is given, a file has the wrong format or shape, or the numbers of rows differ.
    """
    given = {array: location for array, location in files.items() if location}
    numpy = {array: location for array, location in given.items() if _suffix(location) in _NUMPY}
    if numpy == given:
        return NumpyVertices.open(**numpy)
    sources: list[VertexSource] = [
        ParquetVertices.open(location, array) if _suffix(location) in _PARQUET else TextVertices.open(location, array)
        for array, location in given.items()
        if array not in numpy
    ]
    if numpy:
        sources.append(NumpyVertices.open(sources[0].num_vertices(), **numpy))
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
