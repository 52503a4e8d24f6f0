"""Vertex data from NumPy files: ``.npy`` memory-mapped, or an array of an ``.npz`` streamed.

Features are (n, F) numbers. Labels are (n,) integers or floats without a fraction, with -1 or NaN for no label, or
(n, C) zeros and ones with one column per class. Targets are (n,) or (n, C) numbers, NaN for unknown. A split is (n,)
codes (0 none, 1 train, 2 valid, 3 test) or words, or an ``.npz`` or ``.pt`` with arrays ``train``, ``valid`` and
``test`` (or ``val_mask`` and the like) of vertex ids, or (n,) masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.stored_arrays import (
    StoredArray,
    Unpacked,
    member_names,
    open_array,
    unpacked_array,
)
from gnnloom.pipeline.sources.binary.torch_arrays import torch_arrays
from gnnloom.pipeline.sources.reading.files import open_file, shown_location
from gnnloom.pipeline.sources.understood import Understood, of_vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT, VERTEX_ARRAYS, VertexArray, array_in_file, split_part
from gnnloom.storage.wording import counted

SPLIT_NAMES = ("train", "valid", "test")


@dataclass(frozen=True)
class NumpyVertices:
    """Vertex data from NumPy files; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`.

    Attributes:
        given: the stored array of each array by name; a split may have three arrays of vertex ids or masks, in the
            order train, valid, test.
        stated_vertices: number of vertices.
    """

    given: Mapping[str, tuple[StoredArray, ...]]
    stated_vertices: int

    in_graph_order = False

    @classmethod
    def open(cls, num_vertices: int | None = None, /, **files: str | None) -> NumpyVertices:
        """Find the files and read their headers.

        Args:
            num_vertices: number of vertices; required if the only array is a split of vertex ids.
            files: location of each file by the option that names it; None for no file.

        Raises:
            NotFoundError: a file, or an array in it, does not exist.
            InputError: no file is given, a shape or dtype is wrong, or an array contains Python objects.
        """
        lists = _open_lists(files.get("split"))
        locations = {option: location for option, location in files.items() if location}
        if lists:
            del locations["split"]
        given = checked_arrays({option: open_one_array(location, option) for option, location in locations.items()})
        masks = [array for array in lists if array.dtype.kind == "b"]
        if not given and not masks and not (lists and num_vertices):
            raise InputError("no vertex data given: name a file of features, labels or split codes")
        with_rows = [*(array for (array,) in given.values()), *masks]
        for array in with_rows[1:]:
            if array.shape[0] != with_rows[0].shape[0]:
                raise InputError(
                    f"{array}: {counted(array.shape[0], 'row')}, {with_rows[0]} has {with_rows[0].shape[0]:,}"
                )
        rows = with_rows[0].shape[0] if with_rows else num_vertices or 0
        return cls(given | ({"split": lists} if lists else {}), rows)

    @property
    def arrays(self) -> tuple[str, ...]:
        return tuple(name for name in VERTEX_ARRAYS if name in self.given)

    @property
    def random_access(self) -> bool:
        # A split given as lists of ids says nothing about a range of vertices until all lists are read.
        return all(len(arrays) == 1 and arrays[0].is_mapped for arrays in self.given.values())

    def source_of(self, array: str) -> NumpyVertices:
        """The source of one array alone, so that tasks can share this array whatever the files of the others are.

        Raises:
            InputError: there is no such array.
        """
        if array not in self.given:
            raise InputError(f"no {array} was given")
        return replace(self, given={array: self.given[array]})

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        # Keys of artifacts depend on this order, which is the order of the options.
        by_option = sorted(self.given, key=lambda name: VERTEX_ARRAYS[name].option)
        return tuple(array for name in by_option for array in self.given[name])

    def with_unpacked(self, unpacked: Unpacked) -> NumpyVertices:
        given = {
            name: tuple(unpacked_array(array, unpacked) for array in arrays) for name, arrays in self.given.items()
        }
        return replace(self, given=given)

    def identity(self) -> dict[str, Any]:
        return {
            "format": "numpy",
            **{VERTEX_ARRAYS[name].option: arrays[0].file.identity() for name, arrays in self.given.items()},
            "arrays": [array.member for array in self.stored_arrays()],
        }

    def num_vertices(self) -> int:
        return self.stated_vertices

    def num_columns(self, array: str) -> int:
        return _width(self.given[array][0]) if array in self.given else 0

    def understood(self) -> list[Understood]:
        """Describes how each file is read."""
        found = []
        for name, (stored, *others) in self.given.items():
            what = f"{stored.dtype} of shape {stored.shape}"
            if others:
                what = ", ".join(f"{each.member} ({each.dtype} of shape {each.shape})" for each in (stored, *others))
            kind = "pt" if stored.file.location.endswith(".pt") else "npz" if stored.member else "npy"
            found.append(of_vertices(stored.file.location, kind, "NumPy", VERTEX_ARRAYS[name].option, what))
        return found

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        if array not in self.given:
            raise InputError(f"no {array} file was given")
        stored, *others = self.given[array]
        if others:
            yield _codes_of((stored, *others), self.stated_vertices)[start:stop]
            return
        width = _width(stored)
        rows = max(1, stored.block_elements // max(1, width))
        for number, block in enumerate(stored.read_flat(start * width, stop * width, rows * width)):
            yield _converted(VERTEX_ARRAYS[array], stored, block.reshape(-1, width), start + number * rows)


def _converted(array: VertexArray, stored: StoredArray, block: NDArray[Any], first: int) -> NDArray[Any]:
    values, wrong = array.convert(block)
    if wrong is not None:
        at = f" in column {wrong[1]}" if block.shape[1] > 1 else ""
        raise InputError(f"{stored}, row {first + wrong[0]:,}: expected {array.expected}, found {block[wrong]}{at}")
    return values


def _codes_of(arrays: Sequence[StoredArray], num_vertices: int) -> NDArray[np.uint8]:
    codes = np.zeros(num_vertices, np.uint8)
    for name, stored in zip(SPLIT_NAMES, arrays, strict=True):
        first = 0
        for ids in stored.read_flat(0, stored.size):
            vertices = first + np.flatnonzero(ids) if ids.dtype.kind == "b" else ids
            if wrong := mark_split(codes, vertices, name):
                raise InputError(f"{stored}, entry {first + wrong[0]:,}: {wrong[1]}")
            first += len(ids)
    return codes


def mark_split(codes: NDArray[np.uint8], ids: NDArray[Any], name: str) -> tuple[int, str] | None:
    """Put vertices into a split.

    Args:
        codes: (num_vertices,) uint8, changed in place.
        ids: (num_ids,) integers.
        name: name of the part of the split.

    Returns:
        The position of an id that is no vertex, or is in another split already, and its fault; None if all are valid.
    """
    wrong = (ids < 0) | (ids >= len(codes))
    if wrong.any():
        at = int(np.argmax(wrong))
        return at, f"expected a vertex from 0 to {len(codes) - 1:,}, found {ids[at]}"
    taken = codes[ids]
    clash = (taken != SPLIT["none"]) & (taken != SPLIT[name])
    if clash.any():
        at = int(np.argmax(clash))
        return at, f"vertex {ids[at]} is already in the {SPLIT_NAMES[taken[at] - 1]} split"
    codes[ids] = SPLIT[name]
    return None


def open_one_array(location: str, name: str) -> StoredArray:
    """Open the array of an ``.npy``; in an ``.npz``, the array called ``name`` or the only array.

    Raises:
        NotFoundError: the file, or the array in it, does not exist.
        InputError: the location names several files, or the array contains Python objects.
    """
    file = open_file(location)
    if not shown_location(location).endswith(".npz"):
        return open_array(file)
    names = member_names(file)
    return open_array(file, names[0] if len(names) == 1 else name)


def _width(array: StoredArray) -> int:
    return array.shape[1] if len(array.shape) == 2 else 1


def checked_arrays(stored: Mapping[str, StoredArray]) -> dict[str, tuple[StoredArray, ...]]:
    """Check shapes and dtypes.

    Args:
        stored: arrays by the option that would name their file.

    Returns:
        The same arrays, by the name of the array.

    Raises:
        InputError: an array has the wrong shape, dtype or order.
    """
    named = {option: array_in_file(option, _width(array)) for option, array in stored.items()}
    return {named[option]: (_checked(array, VERTEX_ARRAYS[named[option]]),) for option, array in stored.items()}


def _checked(stored: StoredArray, array: VertexArray) -> StoredArray:
    # A vector of features is more likely another array.
    if array.dims and (_width(stored) > 1 or not array.is_label):
        return _checked_matrix(stored, f"(n, {array.dims[0][0].upper()})")
    return checked_column(stored, array.kinds + array.text_kinds)


def _checked_matrix(array: StoredArray, shape: str) -> StoredArray:
    if len(array.shape) != 2 or array.dtype.kind not in "iufb":
        raise InputError(f"{array}: expected numbers of shape {shape}, found {array.dtype} of shape {array.shape}")
    return by_rows(array)


def is_target(array: StoredArray) -> bool:
    """Whether an array of floats has numbers to predict, because one of its values is not valid as a label."""
    if array.dtype.kind != "f" or len(array.shape) not in {1, 2} or not array.size:
        return False
    label, width = VERTEX_ARRAYS[array_in_file("label", _width(array))], _width(array)
    rows = max(1, array.block_elements // width) * width
    blocks = array.read_flat(0, array.size, rows)
    return any(label.convert(block.reshape(-1, width))[1] is not None for block in blocks)


def by_rows(array: StoredArray) -> StoredArray:
    """Check that an array of one or two dimensions is stored row by row.

    Raises:
        InputError: it is stored in Fortran order.
    """
    if array.fortran_order and len(array.shape) == 2 and 1 not in array.shape:
        raise InputError(f"{array}: stored in Fortran order, column by column; save np.ascontiguousarray of it")
    return array


def checked_column(array: StoredArray, kinds: str) -> StoredArray:
    """Check that an array is one column.

    Args:
        kinds: allowed kinds of dtypes, as NumPy abbreviates them.

    Raises:
        InputError: the array has the wrong shape or dtype.
    """
    is_column = len(array.shape) == 1 or (len(array.shape) == 2 and array.shape[1] == 1)
    if not is_column or array.dtype.kind not in kinds:
        what = {"iu": "integers", "iub": "vertex ids, or a mask", "iuUS": "integers or words"}.get(kinds, "numbers")
        raise InputError(f"{array}: expected {what} of shape (n,), found {array.dtype} of shape {array.shape}")
    return array


def _open_lists(location: str | None) -> tuple[StoredArray, ...]:
    """The vertex ids of each split; empty if there is no file, or one with codes."""
    found = {split_part(name): array for name, (array,) in split_arrays(location or "").items()}
    if missing := [name for name in SPLIT_NAMES if name not in found]:
        # An .npz may hold codes instead.
        if (location or "").endswith(".pt"):
            raise InputError(
                f"{location}: no vertices of {' and '.join(missing)}; expected arrays train, valid and test, or their"
                " masks"
            )
        return ()
    for array in found.values():
        if array.dtype.kind == "b" and len(array.shape) == 2 and array.shape[1] > 1:
            raise InputError(
                f"{array}: masks of {array.shape[1]} splits; choose one with --split-index, from 0 to"
                f" {array.shape[1] - 1}"
            )
    return tuple(checked_column(found[name], "iub") for name in SPLIT_NAMES)


def split_arrays(location: str) -> dict[str, tuple[StoredArray]]:
    """The arrays of an ``.npz`` or ``.pt`` whose names stand for parts of a split; none for any other file.

    Raises:
        InputError: two names stand for the same part, or a ``.pt`` file has contents other than arrays.
    """
    if shown_location(location).endswith(".pt"):
        arrays = torch_arrays(open_file(location))
        # MAG240M lists the vertices of its test split as a whole, and divided into two.
        members = {name.removesuffix("-whole"): name for name in arrays}
        return {name: (arrays[member],) for name, member in _parts(location, members).items()}
    if not shown_location(location).endswith(".npz"):
        return {}
    file = open_file(location)
    members = {name: name for name in member_names(file)}
    return {name: (open_array(file, name),) for name in _parts(location, members)}


def _parts(location: str, members: Mapping[str, str]) -> dict[str, str]:
    """The members of a file that stand for parts of a split.

    Args:
        members: names in the file, by the names that say the part.
    """
    found: dict[str, str] = {}
    for name in members:
        part = split_part(name)
        if part in found:
            raise InputError(
                f"{shown_location(location)}: {found[part]} and {name} are the same part of a split; save only one"
            )
        if part is not None:
            found[part] = name
    return {name: members[name] for name in found.values()}
