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


def open_vertex_files(
    *, feature: str | None = None, label: str | None = None, target: str | None = None, split: str | None = None
) -> VertexSource:
    """Open files whose suffixes determine their formats: NumPy, Parquet, and text for all others.

    Args:
        feature: location of (n, F) numbers.
        label: location of (n,) classes, or of (n, C) zeros and ones.
        target: location of (n,) or (n, C) numbers to predict.
        split: location of (n,) codes, or of an ``.npz`` with arrays of vertex ids.

    Raises:
        NotFoundError: a file does not exist.
        InputError: no file is given, a file has the wrong format or shape, or the numbers of rows differ.
    """
    files = {"feature": feature, "label": label, "target": target, "split": split}
    given = {array: location for array, location in files.items() if location}
    numpy = {array: location for array, location in given.items() if _suffix(location) in _NUMPY}
    if numpy == given:
        return NumpyVertices.open(feature=feature, label=label, target=target, split=split)
    sources: list[VertexSource] = [
        ParquetVertices.open(location, array) if _suffix(location) in _PARQUET else TextVertices.open(location, array)
        for array, location in given.items()
        if array not in numpy
    ]
    if numpy:
        named: dict[str, str | None] = {array: numpy.get(array) for array in files}
        sources.append(NumpyVertices.open(num_vertices=sources[0].num_vertices(), **named))
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
