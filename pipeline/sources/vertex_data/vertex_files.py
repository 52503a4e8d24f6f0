"""Vertex data from several sources: joined, or from NumPy, Parquet or text files with one row per vertex."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.stored_arrays import PackedSource, StoredArray, Unpacked
from gnnloom.pipeline.sources.reading.coding import without_suffix
from gnnloom.pipeline.sources.source import SeparableSource, VertexData, VertexSource
from gnnloom.pipeline.sources.vertex_data.kind import FILE_OPTIONS, HEADER, VertexKind
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices
from gnnloom.pipeline.sources.vertex_data.parquet_vertices import ParquetVertices
from gnnloom.pipeline.sources.vertex_data.text_vertices import TextVertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS


@dataclass(frozen=True)
class JoinedVertices:
    """Several sources of the same vertices; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`."""

    sources: tuple[VertexData, ...]

    def __post_init__(self) -> None:
        """Check that the sources belong together.

        Raises:
            InputError: there are no sources, or their numbers of rows differ.
        """
        if not self.sources:
            raise InputError("no vertex data given: name a file of features, labels or split codes")
        # Rows in the order of the graph and rows by id are counted apart: a graph need not have all ids.
        for by_vertex in (False, True):
            alike = [source for source in self.sources if source.in_graph_order is by_vertex]
            rows = {name: source.num_vertices() for source in alike for name in source.arrays}
            if len(set(rows.values())) > 1:
                found = ", ".join(f"{VERTEX_ARRAYS[name].option} has {number:,}" for name, number in rows.items())
                raise InputError(f"the vertex data have different numbers of rows: {found}")

    @property
    def arrays(self) -> tuple[str, ...]:
        return tuple(name for name in VERTEX_ARRAYS if any(name in source.arrays for source in self.sources))

    @property
    def in_graph_order(self) -> bool:
        return all(source.in_graph_order for source in self.sources)

    @property
    def random_access(self) -> bool:
        return all(isinstance(source, VertexSource) and source.random_access for source in self.sources)

    def identity(self) -> dict[str, Any]:
        return {"format": "joined", "sources": [source.identity() for source in self.sources]}

    def num_vertices(self) -> int:
        return self.sources[0].num_vertices()

    def num_columns(self, array: str) -> int:
        return max(source.num_columns(array) for source in self.sources)

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Read rows of an array that does not come from a table with ids, as a :class:`VertexSource` does.

        Raises:
            InputError: it does.
        """
        source = self.source_of(array)
        if not isinstance(source, VertexSource):
            raise InputError(
                f"{VERTEX_ARRAYS[array].option}: its rows are in the order of the table, not of the vertices"
            )
        return source.read_rows(array, start, stop)

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        sources = [source for source in self.sources if isinstance(source, PackedSource)]
        return tuple(array for source in sources for array in source.stored_arrays())

    def with_unpacked(self, unpacked: Unpacked) -> JoinedVertices:
        sources = (
            source.with_unpacked(unpacked) if isinstance(source, PackedSource) else source for source in self.sources
        )
        return replace(self, sources=tuple(sources))

    def source_of(self, array: str) -> VertexData:
        """The source of one array.

        Raises:
            InputError: no source has it.
        """
        for source in self.sources:
            if array in source.arrays:
                return source.source_of(array) if isinstance(source, SeparableSource) else source
        raise InputError(f"no {array} was given")


_NUMPY, _PARQUET = {"npy", "npz"}, {"parquet", "pq"}


def open_vertex_files(header: bool | None = None, **files: str | None) -> VertexSource:
    """Open files whose suffixes determine their formats: NumPy, Parquet, and text for all others.

    Args:
        header: whether the first line of text files names the columns; None if the user did not say.
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
        ParquetVertices.open(location, array)
        if _suffix(location) in _PARQUET
        else TextVertices.open(location, array, header)
        for array, location in given.items()
        if array not in numpy
    ]
    if numpy:
        sources.append(NumpyVertices.open(sources[0].num_vertices(), **numpy))
    return JoinedVertices(tuple(sources))


def _suffix(location: str) -> str:
    return without_suffix(location.rpartition("/")[2]).rpartition(".")[2].lower()


VERTEX_KIND = VertexKind(
    name="files",
    order=10,
    help="one file per array, with one row per vertex",
    open=lambda _, **given: open_vertex_files(**given),
    options=(*FILE_OPTIONS, HEADER),
    needs_graph=False,
)
