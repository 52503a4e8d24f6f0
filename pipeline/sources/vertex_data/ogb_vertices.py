"""Features, labels and split of OGB's raw layout, and of the splits of its binary layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.columns import (
    RowBlock,
    RowStart,
    count_columns,
    index_rows,
    read_count,
    read_ids,
)
from gnnloom.pipeline.sources.reading.files import SourceFile, is_local, open_files
from gnnloom.pipeline.sources.vertex_data.text_vertices import TextVertices
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.vertex_arrays import SPLIT, array_in_file

SPLIT_NAMES = ("train", "valid", "test")


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
            InputError: the file is empty, or the number of rows is not that of the vertices.
        """
        columns, index = count_columns(file), index_rows(file)
        if array == "feature" and not columns:
            raise InputError(f"{file.location}: the file is empty; expected a row of features per vertex")
        opened = cls(file, array_in_file(array, columns), columns, num_vertices, index)
        if index.num_rows is not None:
            opened._check_rows(index.num_rows)
        return opened

    def _blocks(self, array: str, begin: RowStart) -> Iterator[RowBlock]:
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
                f"{self.file.location}: {num_rows:,} rows, expected one for each of the {self.stated_vertices:,}"
                " vertices of num-node-list"
            )


@dataclass(frozen=True)
class SplitFiles:
    """A split from three files of ids; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`."""

    files: tuple[SourceFile, ...]
    stated_vertices: int

    arrays = ("split",)
    random_access = False
    in_graph_order = False

    def identity(self) -> dict[str, Any]:
        return {"format": "split", "files": [file.identity() for file in self.files]}

    def num_vertices(self) -> int:
        return self.stated_vertices

    def num_columns(self, array: str) -> int:
        return int(array == "split")

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        if array != "split":
            raise InputError(f"files of ids have no {array}")
        yield read_split(self.files, self.stated_vertices)[start:stop]


@dataclass(frozen=True)
class OgbVertices:
    """Vertex data of an OGB folder; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`.

    Every array has files of its own, so that one that must be read from its start slows no other.
    """

    stated_vertices: int
    feature: OgbRows | None
    label: OgbRows | None
    split: SplitFiles | None

    in_graph_order = False

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
        feature, label = find_file(root, "raw/node-feat"), find_file(root, "raw/node-label")
        files = find_split(root, split)
        if not (feature or label or files):
            raise NotFoundError(f"{folder}: found no raw/node-feat.csv.gz, raw/node-label.csv.gz or split/")
        return cls(
            num_vertices,
            OgbRows.of_file(feature, "feature", num_vertices) if feature else None,
            OgbRows.of_file(label, "label", num_vertices) if label else None,
            SplitFiles(files, num_vertices) if files else None,
        )

    @property
    def _sources(self) -> tuple[OgbRows | SplitFiles, ...]:
        return tuple(source for source in (self.feature, self.label, self.split) if source)

    @property
    def arrays(self) -> tuple[str, ...]:
        return tuple(array for source in self._sources for array in source.arrays)

    @property
    def random_access(self) -> bool:
        return all(source.random_access for source in self._sources)

    def identity(self) -> dict[str, Any]:
        files = [source.file for source in (self.feature, self.label) if source]
        split = self.split.files if self.split else ()
        return {
            "format": "ogb",
            "num_vertices": self.stated_vertices,
            "files": [file.identity() for file in (*files, *split)],
            "split": Path(split[0].location).parent.name if split else None,
        }

    def num_vertices(self) -> int:
        return self.stated_vertices

    def num_columns(self, array: str) -> int:
        return max(source.num_columns(array) for source in self._sources)

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        return self.source_of(array).read_rows(array, start, stop)

    def source_of(self, array: str) -> OgbRows | SplitFiles:
        """The source of one array.

        Raises:
            NotFoundError: the folder does not have it.
        """
        for source in self._sources:
            if array in source.arrays:
                return source
        raise NotFoundError(f"the OGB folder has no {array} file")


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
        folders = sorted(path.name for path in Path(root, "split").glob("*") if path.is_dir())
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
            beyond = block.values >= num_vertices
            if beyond.any():
                raise block.error(int(np.argmax(beyond)), f"expected a vertex below {num_vertices:,}")
            taken = codes[block.values]
            clash = (taken != SPLIT["none"]) & (taken != SPLIT[name])
            if clash.any():
                row = int(np.argmax(clash))
                raise block.error(row, f"the vertex is in the {SPLIT_NAMES[taken[row] - 1]} split already")
            codes[block.values] = SPLIT[name]
    return codes
