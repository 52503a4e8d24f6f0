"""Edges from NumPy files: ``.npy`` pairs, and ``.npz`` with ``edge_index``, ``row`` and ``col``, or a SciPy matrix.

The files of gnn-benchmark have a CSR matrix as ``adj_data``, ``adj_indices``, ``adj_indptr`` and ``adj_shape``, and the
files of heterophilous-graphs have pairs as ``edges``. Both bring vertex data; see ``vertex_data.benchmark_vertices``.

Pairs are (2, m), with sources in the first row and targets in the second, or (m, 2), with an edge per row. An array of
shape (2, 2) is read as (2, m). In a SciPy matrix, and in ``row`` and ``col``, the row is the source of an edge and the
column its target, as in scipy.sparse.csgraph; every stored entry is an edge, including explicit zeros. A SciPy matrix
states the number of vertices. Otherwise ids may be any numbers, or text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.archive import listed
from gnnloom.pipeline.sources.binary.edge_columns import FlatColumn, IdColumn, MajorColumn, read_values
from gnnloom.pipeline.sources.binary.stored_arrays import (
    StoredArray,
    Unpacked,
    member_names,
    open_array,
    unpacked_array,
)
from gnnloom.pipeline.sources.format import TIMES, WEIGHTS, BundledVertices, Format, check_values
from gnnloom.pipeline.sources.names import NameChunk, Names
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.reading.name_ids import FIRST_ROWS, check_forms, check_present, judge_column
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange, even_ranges
from gnnloom.pipeline.sources.understood import SHOWN_ROWS, UNREAD, Understood
from gnnloom.pipeline.sources.vertex_data.benchmark_vertices import (
    benchmark_layout,
    has_npz_vertices,
    open_npz_vertices,
)
from gnnloom.pipeline.sources.vertex_data.splits import SPLIT_INDEX
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.ticks import WHOLE, datetime_unit, finest_unit, have_floats
from gnnloom.storage.wording import counted

#: Number of edges that one task reads from a memory-mapped file.
RANGE_EDGES = 1 << 23
#: NumPy's kinds of the dtypes of ids; text is allowed only if no number of vertices is stated.
_INTEGERS, _TEXT = "iu", "US"
#: Number of edges whose names are converted at a time.
_CHUNK_NAMES = 1 << 18
#: Members of an ``.npz`` that may contain weights; the first that exists is used.
WEIGHT_NAMES = ("data", "edge_weight", "weight")
#: Members that may contain times, in the same way; a SciPy matrix has its values in ``data``.
TIME_NAMES = ("edge_time", "time", "data")


@dataclass(frozen=True)
class EdgeArrays:
    """The columns of one file; ``num_vertices`` is None if the file does not state it.

    Attributes:
        value: weights or times, or None.
        contents: name, shape and dtype of each array in the file, for people, if its format knows them.
    """

    file: SourceFile
    num_edges: int
    source: IdColumn
    target: IdColumn
    value: StoredArray | None = None
    num_vertices: int | None = None
    contents: tuple[str, ...] = ()

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        """All arrays that are read."""
        return (self.source.array, self.target.array, *([self.value] if self.value else []))

    @property
    def is_mapped(self) -> bool:
        return all(array.is_mapped for array in self.stored_arrays())

    def replaced(self, unpacked: Unpacked) -> EdgeArrays:
        """The same edges, read from the files into which arrays were unpacked."""
        source, target = (
            replace(column, array=unpacked_array(column.array, unpacked)) for column in (self.source, self.target)
        )
        value = None if self.value is None else unpacked_array(self.value, unpacked)
        return replace(self, source=source, target=target, value=value)

    def _blocks(
        self, start: int, stop: int, *, names: bool, times: bool, unit: str
    ) -> Iterator[tuple[int, Any, Any, Any]]:
        """The first edge of each block of edges ``start`` to ``stop``, its sources, targets, and values or None."""
        columns = (self.source, self.target)
        ends = [column.read_any(start, stop) if names else column.read(start, stop) for column in columns]
        # ``repeat`` never ends, so the lengths are compared only if there are values.
        values = repeat(None) if self.value is None else read_values(self.value, start, stop, times=times, unit=unit)
        edge = start
        for source, target, value in zip(*ends, values, strict=self.value is not None):
            yield edge, source, target, value
            edge += len(source)

    def read(self, start: int, stop: int, *, times: bool = False, unit: str = "") -> Iterator[EdgeChunk]:
        """Read edges ``start`` to ``stop``; raises as the columns do."""
        for edge, source, target, value in self._blocks(start, stop, names=False, times=times, unit=unit):
            if self.num_vertices is not None:
                self._check_below(source, target, edge)
            yield EdgeChunk.valued(source, target, value, times=times)

    def read_names(
        self, start: int, stop: int, *, times: bool = False, unit: str = "", any_name: bool = False
    ) -> Iterator[NameChunk]:
        """Read edges ``start`` to ``stop``, with ids as names.

        Args:
            any_name: whether words such as NULL are names like others.
        """
        # A file that states its number of vertices uses numbers as ids, so `read` reports ids that are not.
        by_name = self.num_vertices is None
        for edge, source, target, value in self._blocks(start, stop, names=by_name, times=times, unit=unit):
            for first in range(0, len(source), _CHUNK_NAMES):
                some = slice(first, first + _CHUNK_NAMES)
                ends = [self._names(end[some], edge + first, any_name=any_name) for end in (source, target)]
                yield NameChunk.valued(ends[0], ends[1], None if value is None else value[some], times=times)

    def _names(self, values: NDArray[Any], first_edge: int, *, any_name: bool) -> Names:
        names = Names.of_values(values)
        edge, reason = names.first_wrong()
        if edge >= 0:
            raise self._error(first_edge + edge, reason)
        if not any_name and values.dtype.kind in _TEXT:
            check_present(names, lambda row, reason: self._error(first_edge + row, reason))
        return names

    def _error(self, edge: int, reason: str) -> InputError:
        return InputError(f"{self.file.location}, edge {edge:,}: {reason}")

    def understood(self, format_name: str) -> Understood:
        """Describe how the file is read, judging by the headers of its arrays and its first edges."""
        # Only the beginning of an array can be read at once if it is compressed.
        shown = min(self.num_edges, SHOWN_ROWS if self.is_mapped or self.num_edges < RANGE_EDGES else 0)
        ends = [next(column.read_any(0, shown)).tolist() for column in (self.source, self.target) if shown]
        contents = self.contents or tuple(_contents(self.file))
        question = ""
        are_names: bool | None = None
        try:
            are_names = self.num_vertices is None and self.begins_with_names()
        except InputError as error:
            question = str(error)
        names = [each.array.label or "pairs" for each in (self.source, self.target)]
        value = self.value.label if self.value is not None else ""
        stated = {} if self.num_vertices is None else {"vertices": self.num_vertices}
        counts = [counted(self.num_edges, "edge"), *(counted(number, "vertex") for number in stated.values())]
        has_weights = not value and self._has_weights()
        read = f"{', '.join(counts)}; ids in {' and '.join(dict.fromkeys(names))}" + (
            f", values in {value}" if value else ""
        )
        return Understood(
            self.file.location,
            Path(self.file.location).suffix[1:] if format_name == "numpy" else format_name,
            {
                "source": names[0],
                "target": names[1],
                **({"value": value} if value else {}),
                "edges": self.num_edges,
                **stated,
                **({} if are_names is None else {"ids": "names" if are_names else "numbers"}),
                **({"arrays": list(contents)} if contents else {}),
            },
            (
                read,
                f"arrays in the file: {', '.join(contents)}" if contents else "",
                UNREAD if has_weights else "",
                "" if are_names is None else f"ids are {'names' if are_names else 'numbers'}",
            ),
            question,
            ("source", "target"),
            tuple((str(source), str(target)) for source, target in zip(*ends, strict=True)),
            are_names,
            flags=("--weights",) if has_weights else (),
        )

    def _has_weights(self) -> bool:
        """Whether the file has weights of the edges that are not all 1, as far as its first ones show."""
        members = member_names(self.file) if self.file.location.endswith(".npz") else []
        for name in members:
            if name not in (*WEIGHT_NAMES, "adj_data"):
                continue
            with suppress(InputError):
                weights = open_array(self.file, name)
                if weights.dtype.kind in "iufb" and weights.shape == (self.num_edges,):
                    return bool((_first_values(weights) != 1).any())
        return False

    def begins_with_names(self) -> bool:
        """Whether the first ids of a column are names; raises as :func:`judge_column` does."""
        stop = min(self.num_edges, FIRST_ROWS)
        columns = [next(column.read_any(0, stop)) for column in (self.source, self.target) if stop]
        text = [Names.of_values(np.ascontiguousarray(ids)).beginning() for ids in columns if ids.dtype.kind in _TEXT]
        are_names = sum(judge_column(names, self._error).are_names for names in text) > 0
        if are_names:
            check_forms(text, self._error)
        return are_names

    def _check_below(self, source: Any, target: Any, first_edge: int) -> None:
        highest = np.maximum(source, target)
        edge = int(np.argmax(highest))
        if highest[edge] >= self.num_vertices:
            raise InputError(
                f"{self.file.location}, edge {first_edge + edge:,}: vertex {highest[edge]} is not below the"
                f" stated number of vertices, {self.num_vertices:,}"
            )


@dataclass(frozen=True)
class NumpyEdges:
    """Edges from NumPy arrays; implements :class:`~gnnloom.pipeline.sources.names.NamedEdgeSource`.

    Attributes:
        arrays: the columns of each file.
        weights: whether edges have weights.
        times: whether edges have times.
        format_name: name of the format, for the identity.
        any_name: whether all ids are names, whatever they look like.
        range_edges: number of edges in a range of a memory-mapped file.
        time_unit: unit in which times that are dates are stored; empty if there are none, or numbers.
        values: names and arrays of further values of the edges of the only file.
    """

    arrays: tuple[EdgeArrays, ...]
    weights: bool = False
    format_name: str = "numpy"
    times: bool = False
    any_name: bool = False
    range_edges: int = RANGE_EDGES
    time_unit: str = ""
    values: tuple[tuple[str, StoredArray], ...] = ()

    @classmethod
    def open(cls, locations: Sequence[str], *, weights: bool = False, times: bool = False) -> NumpyEdges:
        """Find the files and read their headers.

        Raises:
            NotFoundError: a file, or an array in it, does not exist.
            InputError: a file has no edges or an unknown layout, or contains floats or Python objects.
        """
        check_values(weights=weights, times=times)
        names = WEIGHT_NAMES if weights else TIME_NAMES if times else ()
        arrays = tuple(_open_edges(file, names) for file in open_files(locations))
        for pairs in arrays:
            if not pairs.num_edges:
                raise InputError(f"{pairs.file.location}: the file has no edges")
        return cls(arrays, weights, times=times, time_unit=unit_of_times(arrays))

    def identity(self) -> dict[str, Any]:
        files = [pairs.file.identity() for pairs in self.arrays]
        times = {"times": True} if self.times else {}
        return {"format": self.format_name, "weights": self.weights, **times, "files": files}

    @property
    def num_edges(self) -> int:
        return sum(pairs.num_edges for pairs in self.arrays)

    def num_vertices(self) -> int | None:
        stated = [pairs.num_vertices for pairs in self.arrays]
        return max((number for number in stated if number is not None), default=None) if all(stated) else None

    def ranges(self) -> Sequence[SourceRange]:
        return [
            span
            for number, pairs in enumerate(self.arrays)
            for span in even_ranges(number, pairs.num_edges, self.range_edges if pairs.is_mapped else pairs.num_edges)
        ]

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        return self.arrays[span.file].read(span.start, span.stop, times=self.times, unit=self.time_unit)

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        return tuple(array for pairs in self.arrays for array in pairs.stored_arrays())

    def with_unpacked(self, unpacked: Unpacked) -> NumpyEdges:
        return replace(self, arrays=tuple(pairs.replaced(unpacked) for pairs in self.arrays))

    def understood(self) -> list[Understood]:
        """Describes how each file is read."""
        return [pairs.understood(self.format_name) for pairs in self.arrays]

    def as_named(self) -> NumpyEdges:
        return replace(self, any_name=True)

    def begins_with_names(self) -> bool:
        # All are judged, because any file may have a fault.
        return self.any_name or sum(pairs.begins_with_names() for pairs in self.arrays) > 0

    def read_names(self, span: SourceRange) -> Iterator[NameChunk]:
        pairs = self.arrays[span.file]
        unit, any_name = self.time_unit, self.any_name
        return pairs.read_names(span.start, span.stop, times=self.times, unit=unit, any_name=any_name)


def _contents(file: SourceFile) -> Iterator[str]:
    """Name, shape and dtype of each array of an archive, for people; none of a single array."""
    for name in member_names(file) if file.location.endswith(".npz") else ():
        try:
            yield described(open_array(file, name))
        except InputError:
            # It is not an array of numbers, and nothing reads it.
            yield name


def described(array: StoredArray) -> str:
    """Name, shape and dtype of a member of a file, for people."""
    return f"{array.label} {array.shape} {array.dtype}"


def _open_edges(file: SourceFile, values: Sequence[str]) -> EdgeArrays:
    """Open the edges of a file.

    Args:
        values: members that may contain their weights or times; none if these are not read.
    """
    if not file.location.endswith(".npz"):
        if values:
            what, name = _called(values)
            raise InputError(f"{file.location}: an .npy file has no {what}; save an .npz with edge_index and {name}")
        return _open_pairs(file, None, None)
    names = member_names(file)
    layout = benchmark_layout(names)
    weight = _open_values(file, names, ("adj_data",) if layout == "adj_indptr" else values) if values else None
    if layout == "adj_indptr":
        return _open_matrix(file, weight, "adj_")
    if layout == "edges":
        rows = [open_array(file, name) for name in ("node_features", "node_labels") if name in names]
        return pair_columns(open_array(file, "edges"), weight, rows[0].shape[0] if rows and rows[0].shape else None)
    if "format" in names:
        return _open_matrix(file, weight)
    if "edge_index" in names:
        return _open_pairs(file, "edge_index", weight)
    if {"row", "col"} <= set(names):
        row, col = (_open_ids(file, name, _INTEGERS + _TEXT) for name in ("row", "col"))
        return _checked(EdgeArrays(file, row.size, FlatColumn(row), FlatColumn(col), weight), col.size)
    raise InputError(
        f"{file.location}: expected an array edge_index, arrays row and col, or a matrix of scipy.sparse.save_npz;"
        f" found {listed(names) or 'nothing'}; in Python, numpy.savez('edges.npz', edge_index=[sources, targets])"
        " writes one"
    )


def _open_pairs(file: SourceFile, member: str | None, weight: StoredArray | None) -> EdgeArrays:
    return pair_columns(open_array(file, member), weight)


def pair_columns(pairs: StoredArray, weight: StoredArray | None, num_vertices: int | None = None) -> EdgeArrays:
    """The columns of an array of shape (2, m) or (m, 2), in C or Fortran order.

    Args:
        weight: (m,) numbers, or None.
        num_vertices: number of vertices, if it is stated.

    Raises:
        InputError: the array has another shape or dtype, or the number of weights differs.
    """
    pairs, file = _checked_ids(pairs, _INTEGERS + _TEXT if num_vertices is None else _INTEGERS), pairs.file
    if len(pairs.shape) != 2 or 2 not in pairs.shape:
        raise InputError(f"{pairs}: expected shape (2, m) or (m, 2), found {pairs.shape}")
    num_edges = pairs.size // 2
    # In C order (2, m), and in Fortran order (m, 2), store all sources before all targets; the others alternate.
    by_row = (pairs.shape[0] == 2) != pairs.fortran_order
    source = FlatColumn(pairs) if by_row else FlatColumn(pairs, 0, 2)
    target = FlatColumn(pairs, num_edges) if by_row else FlatColumn(pairs, 1, 2)
    return _checked(EdgeArrays(file, num_edges, source, target, weight, num_vertices), num_edges)


def _open_matrix(file: SourceFile, weight: StoredArray | None, prefix: str = "") -> EdgeArrays:
    """Open a matrix that scipy.sparse.save_npz wrote, or a CSR matrix whose arrays have a prefix."""
    kind = "csr" if prefix else _matrix_kind(file)
    shape = _open_ids(file, f"{prefix}shape").read_all().reshape(-1).tolist()
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InputError(f"{file.location}: an adjacency must be square, found shape {tuple(shape)}")
    if kind == "coo":
        row, col = _open_ids(file, "row"), _open_ids(file, "col")
        return _checked(EdgeArrays(file, row.size, FlatColumn(row), FlatColumn(col), weight, shape[0]), col.size)
    if kind not in {"csr", "csc"}:
        raise InputError(
            f"{file.location}: a matrix of format {kind!r}; save it as csr, csc or coo, in Python with"
            f" scipy.sparse.save_npz('edges.npz', scipy.sparse.load_npz({file.location!r}).tocsr())"
        )
    indices, indptr = _open_ids(file, f"{prefix}indices"), _open_ids(file, f"{prefix}indptr")
    if indptr.size != shape[0] + 1:
        raise InputError(f"{indptr}: expected {counted(shape[0] + 1, 'offset')}, found {indptr.size:,}")
    minor, major = FlatColumn(indices), MajorColumn(indptr, indices.size)
    source, target = (major, minor) if kind == "csr" else (minor, major)
    return _checked(EdgeArrays(file, indices.size, source, target, weight, shape[0]), indices.size)


def _matrix_kind(file: SourceFile) -> str:
    """The name that SciPy gives the matrix's format, such as ``csr``."""
    array = open_array(file, "format")
    if array.dtype.kind not in _TEXT or array.size != 1:
        raise InputError(
            f"{array}: expected the name of a matrix's format, as scipy.sparse.save_npz writes it; found {array.dtype}"
            f" of shape {array.shape}"
        )
    name = array.read_all().reshape(-1)[0]
    return name.decode("latin-1") if isinstance(name, bytes) else str(name)


def _checked(edges: EdgeArrays, num_targets: int) -> EdgeArrays:
    num_weights = edges.num_edges if edges.value is None else edges.value.size
    if not edges.num_edges == num_targets == num_weights:
        raise InputError(
            f"{edges.file.location}: {counted(edges.num_edges, 'source')}, {counted(num_targets, 'target')} and"
            f" {counted(num_weights, 'weight')}; expected one of each per edge"
        )
    return edges


def unit_of_times(arrays: Sequence[EdgeArrays]) -> str:
    """The finest unit of the times of all files; empty if they are numbers that float64 holds.

    Raises:
        InputError: some files have dates and others have numbers, or dates have no unit.
    """
    given = [pairs.value for pairs in arrays if pairs.value is not None]
    dates = [value for value in given if value.dtype.kind == "M"]
    units = [datetime_unit(value.dtype) for value in dates]
    if wrong := [value for value, unit in zip(dates, units, strict=True) if not unit]:
        raise InputError(f"{wrong[0]}: expected datetime64 in s, ms, us or ns, found {wrong[0].dtype}")
    if dates and len(dates) < len(given):
        other = next(value for value in given if value.dtype.kind != "M")
        raise InputError(f"{other}: expected dates, as other files have, found {other.dtype}")
    integers = [value for value in given if value.dtype.kind in "iu"]
    if not dates and not all(have_floats(_first_values(value)).all() for value in integers):
        return WHOLE
    return finest_unit(units)


def _first_values(values: StoredArray) -> NDArray[Any]:
    """(at most ``FIRST_ROWS``,) numbers at the beginning of an array."""
    return next(values.read_flat(0, min(FIRST_ROWS, values.size)), np.empty(0))


def _open_ids(file: SourceFile, member: str | None, kinds: str = _INTEGERS) -> StoredArray:
    return _checked_ids(open_array(file, member), kinds)


def _checked_ids(array: StoredArray, kinds: str) -> StoredArray:
    if array.dtype.kind not in kinds:
        raise InputError(f"{array}: expected integers, found {array.dtype}; ids are never read from floats")
    return array


def _called(values: Sequence[str]) -> tuple[str, str]:
    """Description of some members, and the name of the member to save them as."""
    return ("times", "edge_time") if values == TIME_NAMES else ("weights", "edge_weight")


def _open_values(file: SourceFile, names: Sequence[str], values: Sequence[str]) -> StoredArray:
    for name in values:
        if name in names:
            array = open_array(file, name)
            if array.dtype.kind in ("iufbM" if values == TIME_NAMES else "iufb"):
                return array
            raise InputError(f"{array}: expected numbers, found {array.dtype}")
    raise InputError(f"{file.location}: the file has no {_called(values)[0]}; expected an array {' or '.join(values)}")


FORMAT = (
    Format(
        name="npy",
        order=30,
        help="NumPy pairs of ids",
        open_edges=NumpyEdges.open,
        options=(WEIGHTS,),
        begins=(b"\x93numpy",),
        suffixes=("npy",),
    ),
    Format(
        name="npz",
        order=40,
        help="NumPy edge_index, or row and col, or a SciPy matrix",
        open_edges=NumpyEdges.open,
        options=(WEIGHTS, TIMES, SPLIT_INDEX),
        suffixes=("npz",),
        vertices=BundledVertices(open_npz_vertices, has_npz_vertices, (SPLIT_INDEX,)),
    ),
)
