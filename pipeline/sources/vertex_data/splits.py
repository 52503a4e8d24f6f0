"""Splits from boolean masks, one for each part or one column for each of several splits, or from files of ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray
from gnnloom.pipeline.sources.reading.files import SourceFile, find_table
from gnnloom.pipeline.sources.reading.text_columns import read_ids
from gnnloom.pipeline.sources.source import OneArray
from gnnloom.pipeline.sources.understood import Understood, of_vertices
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import SPLIT_NAMES, mark_split
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.option import Option

#: The option of every format with masks of several splits.
SPLIT_INDEX: Final = Option(
    "split_index", int, "Number of the split to store, from 0, if masks have one column per split.", least=0
)


@dataclass(frozen=True)
class Mask:
    """The vertices of one part of a split: elements ``first``, ``first + step``, ... of an array.

    Attributes:
        array: bool.
        num_rows: number of vertices.
    """

    array: StoredArray
    num_rows: int
    first: int = 0
    step: int = 1

    @classmethod
    def open(cls, array: StoredArray, index: int | None = None, *, by_columns: bool = True) -> Mask:
        """Check an array of masks, and choose one.

        Args:
            array: (n,); or (n, K) with a column for each of K splits.
            index: number of the split; None if there is only one.
            by_columns: False for masks of shape (K, n).

        Raises:
            InputError: the array is not bool, has another shape, or has several masks and none is chosen.
        """
        shape = array.shape if by_columns else array.shape[::-1]
        if array.dtype != np.dtype(bool) or len(shape) not in {1, 2}:
            raise InputError(
                f"{array}: expected bool of shape (n,) or (n, K), found {array.dtype} of shape {array.shape}"
            )
        if len(shape) == 1 or (shape[1] == 1 and index is None):
            if index:
                raise InputError(f"{array}: --split-index {index}: there is a single split")
            return cls(array, shape[0])
        if index is None:
            raise InputError(
                f"{array}: masks of {shape[1]} splits; choose one with --split-index, from 0 to {shape[1] - 1}"
            )
        if index >= shape[1]:
            raise InputError(f"{array}: --split-index {index}: expected a split from 0 to {shape[1] - 1}")
        # Columns of C order alternate, columns of Fortran order lie one after the other.
        alternate = by_columns != array.fortran_order
        return cls(array, shape[0], *((index, shape[1]) if alternate else (index * shape[0], 1)))

    def __str__(self) -> str:
        return str(self.array)

    @property
    def is_chosen(self) -> bool:
        """Whether the array also has masks of other splits."""
        return self.num_rows < self.array.size

    def read(self, start: int, stop: int, rows: int) -> Iterator[NDArray[np.bool_]]:
        """Read rows ``start`` to ``stop``, in blocks of ``rows``; the last may be shorter."""
        last = self.first + (stop - 1) * self.step
        blocks = self.array.read_flat(self.first + start * self.step, last + 1, rows * self.step)
        return (block[:: self.step] for block in blocks)


@dataclass(frozen=True)
class MaskSplit(OneArray):
    """A split from masks; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`.

    Attributes:
        masks: mask of each part of the split, by its name.
        index: number of the split, if the masks have several.
    """

    masks: tuple[tuple[str, Mask], ...]
    index: int | None = None

    array, width = "split", 1

    @classmethod
    def open(
        cls, arrays: Mapping[str, Sequence[StoredArray]], index: int | None, *, by_columns: bool = True
    ) -> MaskSplit:
        """Check the masks of each part of a split.

        Args:
            arrays: by the name of the part.
            index, by_columns: as for :meth:`Mask.open`.

        Raises:
            InputError: as :meth:`Mask.open`; or a part has several masks, or masks differ in their numbers of rows.
        """
        for found in arrays.values():
            if len(found) > 1:
                raise InputError(f"{found[0]} and {found[1]}: two masks of the same split; save only one")
        # Only masks of several splits are counted: test masks may be the same for all splits.
        masks = []
        for name, (array,) in arrays.items():
            is_single = len(array.shape) == 1
            masks.append((name, Mask.open(array, None if is_single else index, by_columns=by_columns)))
        if index is not None and not any(mask.is_chosen for _, mask in masks):
            raise InputError(f"{masks[0][1]}: --split-index {index}: there is a single split")
        rows = {str(mask): mask.num_rows for _, mask in masks}
        if len(set(rows.values())) > 1:
            found_rows = ", ".join(f"{name} has {count:,}" for name, count in rows.items())
            raise InputError(f"the masks have different numbers of rows: {found_rows}")
        return cls(tuple(masks), index)

    @property
    def random_access(self) -> bool:
        return all(mask.array.is_mapped for _, mask in self.masks)

    def identity(self) -> dict[str, Any]:
        chosen = {} if self.index is None else {"index": self.index}
        names = [name for name, _ in self.masks]
        return {"format": "masks", "file": self.masks[0][1].array.file.identity(), "masks": names, **chosen}

    def num_vertices(self) -> int:
        return self.masks[0][1].num_rows

    def understood(self) -> list[Understood]:
        """Describes how the masks are read."""
        _, mask = self.masks[0]
        which = "" if self.index is None else f", split {self.index}"
        names = ", ".join(str(mask.array.member or name) for name, mask in self.masks)
        return [of_vertices(mask.array.file.location, "npz", "NumPy", "split", f"masks {names}{which}")]

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:  # noqa: ARG002 - there is only one
        rows = min(max(1, mask.array.block_elements // mask.step) for _, mask in self.masks)
        first = start
        for blocks in zip(*(mask.read(start, stop, rows) for _, mask in self.masks), strict=True):
            yield self._codes(blocks, first)
            first += len(blocks[0])

    def _codes(self, blocks: Sequence[NDArray[Any]], first: int) -> NDArray[np.uint8]:
        codes = np.full(len(blocks[0]), SPLIT["none"], np.uint8)
        for (name, mask), chosen in zip(self.masks, blocks, strict=True):
            clash = chosen & (codes != SPLIT["none"])
            if clash.any():
                raise InputError(
                    f"{mask}, row {first + int(np.argmax(clash)):,}: the vertex is in another split already;"
                    " save masks that do not overlap"
                )
            codes[chosen] = SPLIT[name]
        return codes


def part_files(folder: str) -> tuple[SourceFile, ...]:
    """The files of a folder with the ids of train, valid and test, in this order.

    Raises:
        NotFoundError: one of the files does not exist.
    """
    found = {name: find_table(folder, name) for name in SPLIT_NAMES}
    if missing := [name for name, file in found.items() if file is None]:
        raise NotFoundError(
            f"{folder}/{missing[0]}.csv.gz: there is no such file; a split has files {', '.join(SPLIT_NAMES)}"
        )
    return tuple(file for file in found.values() if file is not None)


@dataclass(frozen=True)
class SplitFiles(OneArray):
    """A split from three files of ids; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`."""

    files: tuple[SourceFile, ...]
    stated_vertices: int

    array, width = "split", 1
    random_access = False

    def identity(self) -> dict[str, Any]:
        return {"format": "split", "files": [file.identity() for file in self.files]}

    def num_vertices(self) -> int:
        return self.stated_vertices

    def understood(self) -> list[Understood]:
        """Describes the files."""
        folder = self.files[0].location.rpartition("/")[0]
        return [of_vertices(folder, "split", "a folder of ids", "split", "the rows in train, valid and test")]

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:  # noqa: ARG002 - there is only one
        yield read_split(self.files, self.stated_vertices)[start:stop]


def read_split(files: Sequence[SourceFile], num_vertices: int) -> NDArray[np.uint8]:
    """Read the codes of a split from three files of vertex ids.

    Args:
        files: the ids of train, valid and test, in this order.

    Returns:
        (num_vertices,) uint8, codes of ``gnnloom.storage.format.vertex_arrays.SPLIT``.

    Raises:
        InputError: an id is not below ``num_vertices`` or is in two splits; the message names the file and line.
    """
    codes = np.zeros(num_vertices, np.uint8)
    for name, file in zip(SPLIT_NAMES, files, strict=True):
        for block in read_ids(file):
            if wrong := mark_split(codes, block.values, name):
                raise block.error(*wrong)
    return codes
