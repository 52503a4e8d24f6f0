"""Vertex data from several sources: joined, or from NumPy, Parquet or text files with one row per vertex."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.stored_arrays import PackedSource, StoredArray, Unpacked, open_array
from gnnloom.pipeline.sources.reading.files import is_folder, open_file, shown_location
from gnnloom.pipeline.sources.reading.text_layout import Stated, separator_of
from gnnloom.pipeline.sources.source import SeparableSource, SourceRange, Surveyed, VertexData, VertexSource
from gnnloom.pipeline.sources.understood import Legible, Understood, joined
from gnnloom.pipeline.sources.vertex_data.chosen.chosen_columns import ChosenColumns
from gnnloom.pipeline.sources.vertex_data.chosen.column_sources import ColumnVertices, only_column, reads_cells
from gnnloom.pipeline.sources.vertex_data.chosen.surveys import CATEGORIES, ERROR, Filling
from gnnloom.pipeline.sources.vertex_data.kind import DECIMAL, DELIMITER, FILE_OPTIONS, FILLING, HEADER, VertexKind
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices, split_arrays
from gnnloom.pipeline.sources.vertex_data.parquet_vertices import ParquetVertices
from gnnloom.pipeline.sources.vertex_data.splits import SPLIT_INDEX, MaskSplit, SplitFiles, part_files
from gnnloom.pipeline.sources.vertex_data.table_columns import is_numpy, is_parquet, split_location
from gnnloom.pipeline.sources.vertex_data.text_vertices import TextVertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT, VERTEX_ARRAYS, split_part


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

    def understood(self) -> list[Understood]:
        """Describes how each file is read."""
        return joined([each for one in self.sources if isinstance(one, Legible) for each in one.understood()])

    def surveys(self) -> Sequence[SourceRange]:
        """The ranges of all sources to survey, with the number of the source as the number of the file."""
        return [
            replace(span, file=number)
            for number, source in enumerate(self.sources)
            if isinstance(source, Surveyed)
            for span in source.surveys()
        ]

    def survey(self, span: SourceRange) -> list[Any]:
        source = self.sources[span.file]
        return source.survey(replace(span, file=0)) if isinstance(source, Surveyed) else []

    def with_surveys(self, found: Sequence[Sequence[Any]]) -> JoinedVertices:
        numbers, sources = [span.file for span in self.surveys()], list(self.sources)
        for number, source in enumerate(sources):
            own = [each for at, each in zip(numbers, found, strict=True) if at == number]
            if own and isinstance(source, Surveyed):
                sources[number] = source.with_surveys(own)
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


def open_vertex_files(
    header: bool | None = None,
    split_index: int | None = None,
    missing: str = ERROR,
    missing_indicator: bool = False,
    categories: int = CATEGORIES,
    decimal: str = ".",
    delimiter: str | None = None,
    **files: str | None,
) -> VertexSource:
    """Open files whose suffixes determine their formats: NumPy, Parquet, and text for all others.

    Args:
        header: whether the first line of text files names the columns; None if the user did not say.
        split_index: number of the split, if masks in an ``.npz`` have a column for each of several.
        missing, missing_indicator, categories: fields of
            :class:`~gnnloom.pipeline.sources.vertex_data.chosen.surveys.Filling`.
        decimal: the character before the decimals in text files.
        delimiter: one or more characters between the fields of text files, or ``tab``; None to detect them.
        files: location of each file by the option that names it, perhaps with columns; None for no file.

    Raises:
        NotFoundError: a file does not exist.
        InputError: no file is given, a file has the wrong format or shape, or the numbers of rows differ.
    """
    given = {array: location for array, location in files.items() if location}
    folder = given.pop("split") if "split" in given and is_folder(given["split"]) else None
    if not given:
        without = "no vertex data given" if folder is None else f"{folder}: a split of ids, and no rows next to it"
        raise InputError(f"{without}: name a file of features, labels or split codes")
    filling = Filling(missing, missing_indicator, categories)
    text = Stated(header, decimal=decimal, separator=separator_of(delimiter or ""))
    arrays = {array: location for array, location in given.items() if _holds_arrays(array, location)}
    sources = [_open_one(given[array], array, text, filling) for array in given if array not in arrays]
    sources += open_arrays(sources[0].num_vertices() if sources else None, arrays, split_index, filling)
    if folder is not None:
        sources.append(SplitFiles(part_files(folder), sources[0].num_vertices()))
    return sources[0] if len(sources) == 1 else JoinedVertices(tuple(sources))


def _holds_arrays(array: str, location: str) -> bool:
    table, _ = split_location(location)
    return is_numpy(table) or (array == "split" and shown_location(table).endswith(".pt"))


def _open_one(location: str, array: str, text: Stated, filling: Filling) -> VertexSource:
    """Open one file of text or Parquet."""
    table, columns = split_location(location)
    if columns or reads_cells(table, array, filling, by_id=False, text=text):
        if not columns and is_parquet(table):
            columns = only_column(table, array)
        chosen = ChosenColumns.open(table, columns, array, text=text, filling=filling)
        return ColumnVertices.of(chosen)
    return ParquetVertices.open(table, array) if is_parquet(table) else TextVertices.open(table, array, text.header)


def open_arrays(
    num_vertices: int | None, files: Mapping[str, str], split_index: int | None, filling: Filling
) -> list[VertexSource]:
    """Open files of NumPy with a row per vertex.

    Args:
        num_vertices: as for :meth:`NumpyVertices.open`.
        files: location of each file by the option that names it, perhaps with an array of an ``.npz``, or columns.
        split_index: number of the split, if masks have a column for each of several.
        filling: what becomes of missing features.

    Raises:
        NotFoundError, InputError: as :meth:`NumpyVertices.open`.
    """
    plain, sources = dict(files), list[VertexSource]()
    for array, location in files.items():
        table, columns = split_location(location)
        if columns or reads_cells(table, array, filling, by_id=False):
            del plain[array]
            if not (array == "split" and len(columns) > 1):
                chosen = ChosenColumns.open(table, columns, array, filling=filling)
                sources.append(ColumnVertices.of(chosen))
                continue
            found = {name: [open_array(open_file(table), name)] for name in columns}
            sources.append(MaskSplit.open(_by_part(table, found), split_index))
    if split_index is not None and not any(isinstance(source, MaskSplit) for source in sources):
        if "split" not in plain or not (masks := split_arrays(plain["split"])):
            raise InputError(f"--split-index {split_index}: the split has no masks of several splits")
        sources.append(MaskSplit.open(_by_part(plain.pop("split"), masks), split_index))
    if plain:
        rows = sources[0].num_vertices() if sources else num_vertices
        sources.append(NumpyVertices.open(rows, **plain))
    return sources


def _by_part(location: str, arrays: Mapping[str, Sequence[StoredArray]]) -> dict[str, Sequence[StoredArray]]:
    """Arrays by the part of the split that their names stand for."""
    parts = {split_part(name): found for name, found in arrays.items()}
    if None in parts or len(parts) < len(arrays):
        raise InputError(f"{location}: expected train_mask, val_mask and test_mask, found {', '.join(arrays)}")
    return {part: parts[part] for part in SPLIT if part in parts}


VERTEX_KIND = VertexKind(
    name="files",
    order=10,
    help="one file per array, with one row per vertex",
    open=lambda _, **given: open_vertex_files(**given),
    options=(*FILE_OPTIONS, HEADER, SPLIT_INDEX, *FILLING, DECIMAL, DELIMITER),
    needs_graph=False,
)
