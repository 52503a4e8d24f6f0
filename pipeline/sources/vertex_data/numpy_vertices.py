"""Vertex data from NumPy files: ``.npy`` memory-mapped, or an array of an ``.npz`` streamed.

Features are (n, F) numbers. Labels are (n,) integers or floats without a fraction, with -1 or NaN for no label, or
(n, C) zeros and ones with one column per class. Targets are (n,) or (n, C) numbers, NaN for unknown. A split is (n,)
codes (0 none, 1 train, 2 valid, 3 test), or an ``.npz`` with arrays ``train``, ``valid`` and ``test`` of vertex ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.reading.label_values import EXPECTED_BINARY, EXPECTED_TARGET, binary_labels, targets
from gnnloom.pipeline.sources.reading.stored_arrays import (
    StoredArray,
    Unpacked,
    member_names,
    open_array,
    unpacked_array,
)
from gnnloom.storage.artifacts.vertices import NO_LABEL, SPLIT
from gnnloom.storage.errors import InputError

SPLIT_NAMES = ("train", "valid", "test")
_MAX_LABEL = np.iinfo(np.int32).max - 1


@dataclass(frozen=True)
class NumpyVertices:
    """Vertex data from NumPy files; implements :class:`~gnnloom.pipeline.sources.source.MultilabelSource`.

    Attributes:
        feature: (n, F) numbers, or None.
        label: one column of classes, or several columns of zeros and ones, or None.
        split: one array of codes, or three arrays of vertex ids in the order train, valid, test, or empty.
        stated_vertices: number of vertices.
        target: numbers to predict, or None.
    """

    feature: StoredArray | None
    label: StoredArray | None
    split: tuple[StoredArray, ...]
    stated_vertices: int
    target: StoredArray | None = None

    in_graph_order = False

    @classmethod
    def open(
        cls,
        *,
        feature: str | None = None,
        label: str | None = None,
        target: str | None = None,
        split: str | None = None,
        num_vertices: int | None = None,
    ) -> NumpyVertices:
        """Find the files and read their headers.

        Args:
            feature, label, target, split: locations of the files; None for no file.
            num_vertices: number of vertices; required if the only array is a split of vertex ids.

        Raises:
            NotFoundError: a file, or an array in it, does not exist.
            InputError: no file is given, a shape or dtype is wrong, or an array contains Python objects.
        """
        features = _open_feature(feature) if feature else None
        labels = checked_label(open_one_array(label, "label")) if label else None
        numbers = checked_target(open_one_array(target, "target")) if target else None
        splits = _open_split(split) if split else ()
        with_rows = [array for array in (features, labels, numbers, *(splits if len(splits) == 1 else ())) if array]
        if not with_rows and not (splits and num_vertices):
            raise InputError("no vertex data given: name a file of features, labels or split codes")
        for array in with_rows[1:]:
            if array.shape[0] != with_rows[0].shape[0]:
                raise InputError(f"{array}: {array.shape[0]:,} rows, {with_rows[0]} has {with_rows[0].shape[0]:,}")
        rows = with_rows[0].shape[0] if with_rows else num_vertices or 0
        return cls(features, labels, splits, rows, numbers)

    @property
    def arrays(self) -> tuple[str, ...]:
        labels = "multilabel" if self.num_labels() else "label"
        given = {"feature": self.feature, labels: self.label, "target": self.target, "split": self.split}
        return tuple(name for name, array in given.items() if array)

    @property
    def random_access(self) -> bool:
        # A split given as lists of ids says nothing about a range of vertices until all lists are read.
        return all(array.is_mapped for array in self._stored()) and len(self.split) < 2

    def source_of(self, array: str) -> NumpyVertices:
        """The source of one array alone: whether tasks can share it then depends on its own file.

        Raises:
            InputError: there is no such array.
        """
        if array not in self.arrays:
            raise InputError(f"no {array} was given")
        label = self.label if array in {"label", "multilabel"} else None
        return replace(
            self,
            feature=self.feature if array == "feature" else None,
            label=label,
            split=self.split if array == "split" else (),
            target=self.target if array == "target" else None,
        )

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        return tuple(self._stored())

    def with_unpacked(self, unpacked: Unpacked) -> NumpyVertices:
        feature, label, target = (
            None if array is None else unpacked_array(array, unpacked)
            for array in (self.feature, self.label, self.target)
        )
        split = tuple(unpacked_array(array, unpacked) for array in self.split)
        return replace(self, feature=feature, label=label, target=target, split=split)

    def _stored(self) -> list[StoredArray]:
        return [array for array in (self.feature, self.label, *self.split, self.target) if array]

    def identity(self) -> dict[str, Any]:
        named = {
            "feature": self.feature,
            "label": self.label,
            "target": self.target,
            "split": self.split[0] if self.split else None,
        }
        return {
            "format": "numpy",
            **{name: array.file.identity() for name, array in named.items() if array},
            "arrays": [array.member for array in self._stored()],
        }

    def num_vertices(self) -> int:
        return self.stated_vertices

    def num_features(self) -> int:
        return self.feature.shape[1] if self.feature else 0

    def num_labels(self) -> int:
        width = _width(self.label) if self.label else 0
        return width if width > 1 else 0

    def num_targets(self) -> int:
        return _width(self.target) if self.target else 0

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        if array == "split" and len(self.split) == 3:
            yield _codes_of(self.split, self.stated_vertices)[start:stop]
            return
        given = {"feature": self.feature, "label": self.label, "multilabel": self.label, "target": self.target}
        stored = given.get(array, self.split[0] if self.split else None)
        if stored is None:
            raise InputError(f"no {array} file was given")
        convert = _CONVERTERS[array]
        width = _width(stored)
        rows = max(1, stored.block_elements // max(1, width))
        for number, block in enumerate(stored.read_flat(start * width, stop * width, rows * width)):
            yield convert(stored, block.reshape(-1, width), start + number * rows)


def _features(stored: StoredArray, block: NDArray[Any], first: int) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        rows = block.astype(np.float32)
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise InputError(
            f"{stored}, row {first + row:,}: expected finite float32 features, found {block[row, column]} in column"
            f" {column}"
        )
    return rows


def _labels(stored: StoredArray, block: NDArray[Any], first: int) -> NDArray[np.int32]:
    values = block[:, 0]
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), NO_LABEL, values)
    low = values < NO_LABEL if values.dtype.kind != "u" else np.zeros(len(values), bool)
    wrong = low | (values > _MAX_LABEL) | (np.floor(values) != values if values.dtype.kind == "f" else False)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"{stored}, row {first + row:,}: expected a class from 0 to {_MAX_LABEL:,}, or -1 or NaN for no label,"
            f" found {block[row, 0]}; give numbers to predict as the target"
        )
    return values.astype(np.int32)


def _multilabels(stored: StoredArray, block: NDArray[Any], first: int) -> NDArray[np.int8]:
    rows, wrong = binary_labels(block)
    if wrong >= 0:
        raise InputError(f"{stored}, row {first + wrong:,}: {EXPECTED_BINARY}, found {block[wrong]}")
    return rows


def _targets(stored: StoredArray, block: NDArray[Any], first: int) -> NDArray[np.float32]:
    rows, wrong = targets(block)
    if wrong >= 0:
        raise InputError(f"{stored}, row {first + wrong:,}: {EXPECTED_TARGET}, found {block[wrong]}")
    return rows


def _codes(stored: StoredArray, block: NDArray[Any], first: int) -> NDArray[np.uint8]:
    values = block[:, 0]
    wrong = (values < 0) | (values > max(SPLIT.values()))
    if wrong.any():
        row = int(np.argmax(wrong))
        names = ", ".join(f"{code} {name}" for name, code in SPLIT.items())
        raise InputError(f"{stored}, row {first + row:,}: expected a split code ({names}), found {values[row]}")
    return values.astype(np.uint8)


def _codes_of(arrays: Sequence[StoredArray], num_vertices: int) -> NDArray[np.uint8]:
    codes = np.zeros(num_vertices, np.uint8)
    for name, stored in zip(SPLIT_NAMES, arrays, strict=True):
        first = 0
        for ids in stored.read_flat(0, stored.size):
            wrong = (ids < 0) | (ids >= num_vertices)
            if wrong.any():
                entry = int(np.argmax(wrong))
                raise InputError(
                    f"{stored}, entry {first + entry:,}: expected a vertex from 0 to {num_vertices - 1:,},"
                    f" found {ids[entry]}"
                )
            clash = (codes[ids] != SPLIT["none"]) & (codes[ids] != SPLIT[name])
            if clash.any():
                entry = int(np.argmax(clash))
                other = SPLIT_NAMES[codes[ids[entry]] - 1]
                raise InputError(
                    f"{stored}, entry {first + entry:,}: vertex {ids[entry]} is already in the {other} split"
                )
            codes[ids] = SPLIT[name]
            first += len(ids)
    return codes


_CONVERTERS: Mapping[str, Callable[[StoredArray, NDArray[Any], int], NDArray[Any]]] = {
    "feature": _features,
    "label": _labels,
    "multilabel": _multilabels,
    "target": _targets,
    "split": _codes,
}


def open_one_array(location: str, name: str) -> StoredArray:
    """Open the array of an ``.npy``; in an ``.npz``, the array called ``name`` or the only array.

    Raises:
        NotFoundError: the file, or the array in it, does not exist.
        InputError: the location names several files, or the array contains Python objects.
    """
    file = _only_file(location)
    if not location.endswith(".npz"):
        return open_array(file)
    names = member_names(file)
    return open_array(file, names[0] if len(names) == 1 else name)


def _only_file(location: str) -> SourceFile:
    files = open_files([location])
    if len(files) != 1:
        raise InputError(f"{location}: expected one file, found {len(files)}")
    return files[0]


def _width(array: StoredArray) -> int:
    return array.shape[1] if len(array.shape) == 2 else 1


def _open_feature(location: str) -> StoredArray:
    return checked_feature(open_one_array(location, "feature"))


def checked_label(array: StoredArray) -> StoredArray:
    """Check that an array is one column of classes, or a matrix of zeros and ones, as its shape decides.

    Raises:
        InputError: the array has the wrong shape, dtype or order.
    """
    return _checked_matrix(array, "(n, C)") if _width(array) > 1 else checked_column(array, "iuf")


def checked_target(array: StoredArray) -> StoredArray:
    """Check that an array is one column of numbers, or a matrix of them.

    Raises:
        InputError: the array has the wrong shape, dtype or order.
    """
    return _checked_matrix(array, "(n, C)") if _width(array) > 1 else checked_column(array, "iuf")


def checked_feature(array: StoredArray) -> StoredArray:
    """Check that an array is a matrix of numbers in C order.

    Raises:
        InputError: the array has the wrong shape, dtype or order.
    """
    return _checked_matrix(array, "(n, F)")


def _checked_matrix(array: StoredArray, shape: str) -> StoredArray:
    if len(array.shape) != 2 or array.dtype.kind not in "iufb":
        raise InputError(f"{array}: expected numbers of shape {shape}, found {array.dtype} of shape {array.shape}")
    if array.fortran_order and 1 not in array.shape:
        raise InputError(f"{array}: stored in Fortran order, column by column; save np.ascontiguousarray of it")
    return array


def _open_column(location: str, name: str, kinds: str) -> StoredArray:
    return checked_column(open_one_array(location, name), kinds)


def checked_column(array: StoredArray, kinds: str) -> StoredArray:
    """Check that an array is one column.

    Args:
        kinds: allowed kinds of dtypes, as NumPy abbreviates them.

    Raises:
        InputError: the array has the wrong shape or dtype.
    """
    is_column = len(array.shape) == 1 or (len(array.shape) == 2 and array.shape[1] == 1)
    if not is_column or array.dtype.kind not in kinds:
        what = "integers" if kinds == "iu" else "numbers"
        raise InputError(f"{array}: expected {what} of shape (n,), found {array.dtype} of shape {array.shape}")
    return array


def _open_split(location: str) -> tuple[StoredArray, ...]:
    if location.endswith(".npz"):
        file = _only_file(location)
        if set(SPLIT_NAMES) <= set(member_names(file)):
            return tuple(checked_column(open_array(file, name), "iu") for name in SPLIT_NAMES)
    return (_open_column(location, "split", "iu"),)
