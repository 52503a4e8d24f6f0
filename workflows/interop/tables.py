"""Writes tables to files for other programs, piece by piece: NumPy's .npy and .npz, Parquet, CSV; or makes frames."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.files import written_aside
from gnnloom.storage.errors import InputError, MissingPackageError
from gnnloom.storage.option import Group, Option

if TYPE_CHECKING:
    import pandas as pd

#: First characters of CSV cells that spreadsheets treat as formulas.
_OF_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
#: The option of commands that write tables.
SAFE_CSV: Final = Option(
    "safe_csv",
    bool,
    "Put an apostrophe before names in a .csv that a spreadsheet would read as formulas: names that begin with = + - @,"
    " a tab or a carriage return.",
    False,
    group=Group.OUTPUT,
)


@dataclass(frozen=True)
class ExportedColumn:
    """A column of a table.

    Attributes:
        dtype: None for text, which NumPy's files leave out.
        width: numbers per row; None if each row holds a single value.
        stands_for_text: only NumPy's files have the column, in place of a column of text with the same name.
    """

    name: str
    dtype: np.dtype[Any] | None
    width: int | None = None
    stands_for_text: bool = False


@dataclass(frozen=True)
class Table:
    """Rows that can be read piece by piece, as often as needed.

    Attributes:
        pieces: reads the rows in order; each piece has one array, or list of strings, per column.
        plain: columns that a ``.npy`` file holds: one column, or several with a single number per row.
    """

    columns: tuple[ExportedColumn, ...]
    length: int
    pieces: Callable[[], Iterator[tuple[Any, ...]]]
    plain: tuple[str, ...]

    def with_text(self) -> Table:
        """The same table without columns that stand for text."""
        kept = [number for number, column in enumerate(self.columns) if not column.stands_for_text]

        def pieces() -> Iterator[tuple[Any, ...]]:
            return (tuple(piece[number] for number in kept) for piece in self.pieces())

        return replace(self, columns=tuple(self.columns[number] for number in kept), pieces=pieces)

    def safe(self) -> Table:
        """The same rows, with an apostrophe before text that a spreadsheet would treat as a formula."""

        def pieces() -> Iterator[tuple[Any, ...]]:
            for piece in self.pieces():
                yield tuple(
                    _safe(values) if column.dtype is None else values
                    for column, values in zip(self.columns, piece, strict=True)
                )

        return replace(self, pieces=pieces)


def _safe(texts: Iterable[str]) -> list[str]:
    return [f"'{text}" if text.startswith(_OF_FORMULAS) else text for text in texts]


def first_rows(table: Table, count: int) -> list[dict[str, Any]]:
    """The first rows of a table as JSON values by column; None for values that are not finite numbers."""
    rows: list[dict[str, Any]] = []
    table = table.with_text()
    for piece in table.pieces():
        lists = [np.asarray(values[: count - len(rows)]).tolist() for values in piece]
        names = [column.name for column in table.columns]
        rows += [dict(zip(names, map(_json, row), strict=True)) for row in zip(*lists, strict=True)]
        if len(rows) == count:
            break
    return rows


def _json(value: Any) -> Any:
    if isinstance(value, list):
        return [_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_file(path: Path | None, *, safe_csv: bool = False) -> None:
    """Check an output file's name before anything is computed for it.

    Args:
        safe_csv: make the file safe for spreadsheets; see :func:`write_table`.

    Raises:
        InputError: its suffix is not in ``WRITERS``, it names a folder, or its folder does not exist; or ``safe_csv``
            is given for no file, or for another format.
    """
    if safe_csv and (path is None or path.suffix != ".csv"):
        found = "there is none" if path is None else f"found {path}"
        raise InputError(f"--safe-csv: expected a .csv file as --out, {found}")
    if path is None:
        return
    if path.suffix not in WRITERS:
        raise InputError(f"{path}: expected a name that ends in {', '.join(WRITERS)}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: the folder {path.absolute().parent} does not exist")
    if path.is_dir():
        raise InputError(f"{path}: this is a folder; choose another name for the file")


def write_table(table: Table, path: Path, *, safe_csv: bool = False) -> None:
    """Write a table in the format that the file's suffix names; the file appears only when it is complete.

    Args:
        safe_csv: put an apostrophe before text in a ``.csv`` that a spreadsheet would treat as a formula. Such names
            are then no longer the vertices' ids.

    Raises:
        InputError: as :func:`check_file`.
    """
    check_file(path, safe_csv=safe_csv)
    if safe_csv:
        table = table.safe()
    with written_aside(path, durable=True) as aside:
        WRITERS[path.suffix](table, aside)


def frame_of(table: Table) -> pd.DataFrame:
    """A whole table as a data frame, with the columns of its CSV file.

    Raises:
        MissingPackageError: pandas is not installed.
    """
    found = pandas()
    table = table.with_text()
    filled = [_empty(column, table.length) for column in table.columns]
    start = 0
    for piece in table.pieces():
        for whole, values in zip(filled, piece, strict=True):
            whole[start : start + len(values)] = values
        start += len(piece[0])
    columns: dict[str, NDArray[Any]] = {}
    for column, whole in zip(table.columns, filled, strict=True):
        columns |= dict(zip(_headers(column), whole.T if column.width is not None else [whole], strict=True))
    frame: pd.DataFrame = found.DataFrame(columns, copy=False)
    return frame


def pandas() -> Any:
    """The package pandas, which takes a while to import.

    Raises:
        MissingPackageError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise MissingPackageError("a data frame needs pandas: `pip install pandas`") from error
    return pd


def _empty(column: ExportedColumn, length: int) -> NDArray[Any]:
    shape = (length,) if column.width is None else (length, column.width)
    return np.empty(shape, object if column.dtype is None else column.dtype)


def _write_npy(table: Table, path: Path) -> None:
    with path.open("wb") as file:
        _write_array(table, table.plain, file)


def _write_npz(table: Table, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for column in table.columns:
            if column.dtype is not None:
                # An archive has one open file at a time, so each column takes its own pass over the rows. zip64 must
                # be chosen before the size is known, because the rows are streamed.
                with archive.open(f"{column.name}.npy", "w", force_zip64=True) as file:
                    _write_array(table, (column.name,), file)


def _write_array(table: Table, names: tuple[str, ...], file: IO[bytes]) -> None:
    """Write columns side by side as one array in NumPy's format."""
    positions = [
        number for number, column in enumerate(table.columns) if column.name in names and column.dtype is not None
    ]
    first = table.columns[positions[0]]
    dtype = np.dtype(first.dtype)
    width = (len(positions),) if len(positions) > 1 else () if first.width is None else (first.width,)
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (table.length, *width)}
    # The header, then the rows as they come: `np.save` would need the whole array in memory.
    np.lib.format.write_array_header_1_0(file, header)
    for piece in table.pieces():
        arrays = [np.asarray(piece[position], dtype) for position in positions]
        file.write((np.column_stack(arrays) if len(arrays) > 1 else arrays[0]).tobytes())


def _write_parquet(table: Table, path: Path) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    table = table.with_text()
    schema = pa.schema([(column.name, _arrow_type(column)) for column in table.columns])
    with ParquetWriter(path, schema) as writer:
        for piece in table.pieces():
            arrays = [_arrow_array(column, values) for column, values in zip(table.columns, piece, strict=True)]
            # Row groups never span two pieces, so only one piece is in memory at a time.
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def _arrow_type(column: ExportedColumn) -> Any:
    import pyarrow as pa

    if column.dtype is None:
        return pa.string()
    number = pa.from_numpy_dtype(column.dtype)
    return number if column.width is None else pa.list_(number, column.width)


def _arrow_array(column: ExportedColumn, values: Any) -> Any:
    import pyarrow as pa

    if column.width is None:
        return pa.array(values, _arrow_type(column))
    # `pa.array` takes one dimension only; the list type restores the rows.
    flat: NDArray[Any] = np.ascontiguousarray(values).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), column.width)


def _write_csv(table: Table, path: Path) -> None:
    """Write one CSV column for every number of a row."""
    import pyarrow as pa
    from pyarrow.csv import WriteOptions, write_csv

    table = table.with_text()
    headers = [_headers(column) for column in table.columns]
    options = WriteOptions(include_header=False, quoting_style="needed")
    with path.open("wb") as file:
        file.write((",".join(name for names in headers for name in names) + "\n").encode())
        for piece in table.pieces():
            columns: list[Any] = []
            for column, values in zip(table.columns, piece, strict=True):
                columns += [values] if column.width is None else [values[:, number] for number in range(column.width)]
            # Arrow wants a name per column, which the header above already holds.
            names = [str(number) for number in range(len(columns))]
            write_csv(pa.table([pa.array(each) for each in columns], names), file, options)


def _headers(column: ExportedColumn) -> list[str]:
    return [column.name] if column.width is None else [f"{column.name}_{number}" for number in range(column.width)]


#: Writers by file suffix.
WRITERS: Mapping[str, Callable[[Table, Path], None]] = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
}
