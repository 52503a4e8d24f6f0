"""Features, labels and split of OGB's raw layout, and of the splits of its binary layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnloom.pipeline.sources.reading.files import SourceFile, find_table, is_local
from gnnloom.pipeline.sources.reading.text_columns import (
    RowStart,
    TextRows,
    count_columns,
    index_rows,
    read_count,
)
from gnnloom.pipeline.sources.vertex_data.splits import SplitFiles, part_files
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


def required_file(root: str, name: str) -> SourceFile:
    """A file of the folder, named without its extension.

    Raises:
        NotFoundError: the file does not exist.
    """
    file = find_table(root, name)
    if file is None:
        raise NotFoundError(f"{root}/{name}.csv.gz: there is no such file; expected OGB's raw layout")
    return file


class OgbRows(TextVertices):
    """Features or labels of an OGB folder: text whose number of rows the folder states."""

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
class OgbVertices(JoinedVertices):
    """Vertex data of an OGB folder: every array has separate files."""

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
        found = {"feature": find_table(root, "raw/node-feat"), "label": find_table(root, "raw/node-label")}
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
    return bool(find_table(root, "raw/node-feat") or find_table(root, "raw/node-label") or find_split(root, None))


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
    return part_files(f"{root}/split/{name}")
