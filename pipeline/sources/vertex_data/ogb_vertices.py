"""Features, labels and split of OGB's raw layout, and of the splits of its binary layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.files import SourceFile, is_local, open_files
from gnnloom.pipeline.sources.reading.text_columns import (
    RowStart,
    TextRows,
    count_columns,
    index_rows,
    read_count,
    read_ids,
)
from gnnloom.pipeline.sources.source import OneArray
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import SPLIT_NAMES, mark_split
from gnnloom.pipeline.sources.vertex_data.text_vertices import TextVertices
from gnnloom.pipeline.sources.vertex_data.vertex_files import JoinedVertices
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.vertex_arrays import array_in_file
from gnnloom.storage.wording import counted


def ogb_root(folder: str) -> str:
    """The folder without a slash at its end.

    Raises:
        NotFoundError: the folder does not exist.
    """
    if is_local(folder) and not Path(folder).is_dir():
        raise NotFoundError(f"{folder}: there is no such folder; expected one that contains raw/edge.csv.gz")
    return folder.rstrip("/")


def find_file(root: str, name: str) -> SourceFile | None:
    """A file of the folder, named without its extension; None if there is none."""
    for suffix in (".csv.gz", ".csv"):
        try:
            return open_files([f"{root}/{name}{suffix}"])[0]
        except NotFoundError:
            continue
    return None


def required_file(root: str, name: str) -> SourceFile:
    """A file of the folder, named without its extension.

    Raises:
        NotFoundError: the file does not exist.
    """
    file = find_file(root, name)
    if file is None:
        raise NotFoundError(f"{root}/{name}.csv.gz: there is no such file; expected OGB's raw layout")
    return file


class OgbRows(TextVertices):
    """Features or labels of an OGB folder: text with as many rows as the folder states."""

    @classmethod
    def of_file(cls, file: SourceFile, array: str, num_vertices: int) -> OgbRows:
        """Count the columns and, if the file is local and uncompressed, the rows.

        Raises:
            InputError: the file is empty, or the number of rows is not the number of vertices.
        """
        columns, index = count_columns(file), index_rows(file)
        if array == "feature" and not columns:
            raise InputError(f"{file.location}: the file is empty; expected a row of features per vertex")
        opened = cls(file, array_in_file(array, columns), columns, num_vertices, index)
        if index.num_rows is not None:
            opened._check_rows(index.num_rows)
        return opened

    def _blocks(self, array: str, begin: RowStart) -> Iterator[TextRows]:
        num_rows = 0
        for block in super()._blocks(array, begin):
            num_rows = block.first + len(block.values)
            if num_rows > self.stated_vertices:
                reason = f"more rows than the {self.stated_vertices:,} vertices of num-node-list"
                raise block.error(self.stated_vertices - block.first, reason)
            yield block
        # A compressed file was not counted before.
        self._check_rows(num_rows)

    def _check_rows(self, num_rows: int) -> None:
        if num_rows != self.stated_vertices:
            raise InputError(
                f"{self.file.location}: {counted(num_rows, 'row')}, expected one for each of the"
                f" {self.stated_vertices:,} vertices of num-node-list"
            )


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

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:  # noqa: ARG002 - there is only one
        yield read_split(self.files, self.stated_vertices)[start:stop]


@dataclass(frozen=True)
class OgbVertices(JoinedVertices):
    """Vertex data of an OGB folder: every array has files of its own."""

    @classmethod
    def open(cls, folder: str, *, split: str | None = None) -> OgbVertices:
        """Find the files.

        Args:
            split: folder below ``split/``; required if there are several.

        Raises:
            NotFoundError: the folder or the split does not exist, or the folder has no vertex data.
            InputError: there are several splits and none is chosen, or a file does not have a row for each vertex.
        """
        root = ogb_root(folder)
        num_vertices = read_count(required_file(root, "raw/num-node-list"))
        found = {"feature": find_file(root, "raw/node-feat"), "label": find_file(root, "raw/node-label")}
        files = find_split(root, split)
        rows = [OgbRows.of_file(file, array, num_vertices) for array, file in found.items() if file]
        if not (rows or files):
            raise NotFoundError(f"{folder}: found no raw/node-feat.csv.gz, raw/node-label.csv.gz or split/")
        return cls((*rows, SplitFiles(files, num_vertices)) if files else tuple(rows))

    def identity(self) -> dict[str, Any]:
        files = [source.file for source in self.sources if isinstance(source, OgbRows)]
        split = [file for source in self.sources if isinstance(source, SplitFiles) for file in source.files]
        return {
            "format": "ogb",
            "num_vertices": self.num_vertices(),
            "files": [file.identity() for file in (*files, *split)],
            "split": Path(split[0].location).parent.name if split else None,
        }


def has_vertices(folder: str) -> bool:
    """Whether the folder has features, labels or a split.

    Raises:
        InputError: there are several splits.
    """
    root = ogb_root(folder)
    return bool(find_file(root, "raw/node-feat") or find_file(root, "raw/node-label") or find_split(root, None))


def find_split(root: str, name: str | None) -> tuple[SourceFile, ...]:
    """The files with a split's train, valid and test ids; empty if there is no split.

    Args:
        name: folder below ``split/``; required if there are several.

    Raises:
        NotFoundError: the split, or one of its files, does not exist.
        InputError: there are several splits and none is chosen.
    """
    if name is None and not is_local(root):
        raise InputError(f"{root}/split: folders on a server cannot be listed; name the split")
    if name is None:
        # Splits of edges are in other files; `gnnloom links` reads them.
        found = (path for path in Path(root, "split").glob("*") if path.is_dir() and not (path / "train.pt").exists())
        folders = sorted(path.name for path in found)
        if len(folders) > 1:
            raise InputError(f"{root}/split: several splits ({', '.join(folders)}); choose one")
        if not folders:
            return ()
        name = folders[0]
    return tuple(required_file(root, f"split/{name}/{file}") for file in SPLIT_NAMES)


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
