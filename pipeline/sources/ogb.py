"""OGB's raw layout of a dataset for node property prediction: a folder of (compressed) CSV files.

    raw/edge.csv.gz   num-node-list.csv.gz   num-edge-list.csv.gz   node-feat.csv.gz   node-label.csv.gz
    split/NAME/{train,valid,test}.csv.gz

Each file may also be uncompressed, without ``.gz``. Features, labels and splits are optional. A single column of labels
contains classes; several columns contain zeros and ones, one column per class, as in ogbn-proteins. Hu et al., Open
Graph Benchmark (NeurIPS 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.format import SPLIT_NAME, BundledVertices, Format
from gnnloom.pipeline.sources.reading.columns import (
    RowBlock,
    count_columns,
    read_count,
    read_ids,
    read_labels,
    read_multilabels,
    read_table,
)
from gnnloom.pipeline.sources.reading.files import SourceFile, is_local, open_files
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.storage.artifacts.vertices import SPLIT
from gnnloom.storage.errors import InputError, NotFoundError

SPLIT_NAMES = ("train", "valid", "test")


@dataclass(frozen=True)
class OgbEdges:
    """Edges of an OGB folder; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`."""

    edges: TextEdges
    num_edges: int
    is_counted: bool = False

    @classmethod
    def open(cls, folder: str) -> OgbEdges:
        """Find the files and read the stated numbers.

        Raises:
            NotFoundError: the folder, or one of its files, does not exist.
            InputError: a stated number is invalid, or the edge file is empty.
        """
        root = _root(folder)
        num_vertices = read_count(_require(root, "raw/num-node-list"))
        num_edges = read_count(_require(root, "raw/num-edge-list"))
        edges = TextEdges.open([_require(root, "raw/edge").location])
        return cls(edges.with_vertices(num_vertices), num_edges)

    def identity(self) -> dict[str, Any]:
        stated = {"num_vertices": self.num_vertices(), "num_edges": self.num_edges}
        return {**self.edges.identity(), "format": "ogb", **stated}

    def num_vertices(self) -> int | None:
        return self.edges.num_vertices()

    def ranges(self) -> Sequence[SourceRange]:
        ranges = self.edges.ranges()
        # Comparing the number of edges with the stated one requires reading the whole file, or counting its lines.
        return ranges if len(ranges) > 1 else [SourceRange(0, 0, -1)]

    def surveys(self) -> Sequence[SourceRange]:
        ranges = self.ranges()
        return [] if self.is_counted or len(ranges) == 1 else ranges

    def survey(self, span: SourceRange) -> list[int]:
        return [self.edges.count_lines(span)]

    def with_surveys(self, found: Sequence[Sequence[int]]) -> OgbEdges:
        self._check_edges(sum(edges for (edges,) in found))
        return replace(self, is_counted=True)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        found = 0
        for chunk in self.edges.read(span):
            found += len(chunk.source)
            yield chunk
        if span.stop < 0:
            self._check_edges(found)

    def _check_edges(self, found: int) -> None:
        if found != self.num_edges:
            raise InputError(
                f"{self.edges.files[0].location}: {found:,} edges, num-edge-list says {self.num_edges:,};"
                " the file is truncated or belongs to another graph"
            )


@dataclass(frozen=True)
class OgbVertices:
    """Vertex data of an OGB folder; implements :class:`~gnnloom.pipeline.sources.source.MultilabelSource`."""

    stated_vertices: int
    feature_columns: int
    label_columns: int
    feature: SourceFile | None
    label: SourceFile | None
    split: tuple[SourceFile, ...]

    random_access = False
    in_graph_order = False

    @classmethod
    def open(cls, folder: str, *, split: str | None = None) -> OgbVertices:
        """Find the files.

        Args:
            split: folder below ``split/``; required if there are several.

        Raises:
            NotFoundError: the folder or the split does not exist, or the folder has no vertex data.
            InputError: there are several splits and none is chosen.
        """
        root = _root(folder)
        num_vertices = read_count(_require(root, "raw/num-node-list"))
        feature, label = _find(root, "raw/node-feat"), _find(root, "raw/node-label")
        files = find_split(root, split)
        if not (feature or label or files):
            raise NotFoundError(f"{folder}: found no raw/node-feat.csv.gz, raw/node-label.csv.gz or split/")
        num_labels = count_columns(label) if label else 0
        num_features = count_columns(feature) if feature else 0
        if feature and not num_features:
            raise InputError(f"{feature.location}: the file is empty; expected a row of features per vertex")
        return cls(num_vertices, num_features, num_labels, feature, label, files)

    @property
    def arrays(self) -> tuple[str, ...]:
        labels = "multilabel" if self.num_labels() else "label"
        files = {"feature": self.feature, labels: self.label, "split": self.split}
        return tuple(name for name, file in files.items() if file)

    def identity(self) -> dict[str, Any]:
        files = [file for file in (self.feature, self.label, *self.split) if file]
        return {
            "format": "ogb",
            "num_vertices": self.stated_vertices,
            "files": [file.identity() for file in files],
            "split": Path(self.split[0].location).parent.name if self.split else None,
        }

    def num_vertices(self) -> int:
        return self.stated_vertices

    def num_features(self) -> int:
        return self.feature_columns

    def num_labels(self) -> int:
        return self.label_columns if self.label_columns > 1 else 0

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        if array == "split":
            yield read_split(self.split, self.stated_vertices)[start:stop]
            return
        for first, values in self._read_file(array):
            rows = values[max(0, start - first) : max(0, stop - first)]
            if len(rows):
                yield rows

    def _read_file(self, array: str) -> Iterator[tuple[int, NDArray[Any]]]:
        file = self.feature if array == "feature" else self.label
        if file is None:
            raise NotFoundError(f"the OGB folder has no {array} file")
        num_rows = 0
        for block in self._blocks(array, file):
            num_rows = block.first + len(block.values)
            if num_rows > self.stated_vertices:
                reason = f"more rows than the {self.stated_vertices:,} vertices of num-node-list"
                raise block.error(self.stated_vertices - block.first, reason)
            yield block.first, block.values
        if num_rows != self.stated_vertices:
            raise InputError(
                f"{file.location}: {num_rows:,} rows, expected one for each of the {self.stated_vertices:,} vertices"
                " of num-node-list"
            )

    def _blocks(self, array: str, file: SourceFile) -> Iterator[RowBlock]:
        if array == "feature":
            return read_table(file, self.feature_columns, np.float32)
        return read_multilabels(file, self.label_columns) if array == "multilabel" else read_labels(file)


def has_vertices(folder: str) -> bool:
    """Whether the folder has features, labels or a split.

    Raises:
        InputError: there are several splits.
    """
    root = _root(folder)
    return bool(_find(root, "raw/node-feat") or _find(root, "raw/node-label") or find_split(root, None))


def read_split(files: Sequence[SourceFile], num_vertices: int) -> NDArray[np.uint8]:
    """Read the codes of a split from three files of vertex ids.

    Args:
        files: the ids of train, valid and test, in this order.

    Returns:
        (num_vertices,) uint8, codes of ``gnnloom.storage.artifacts.vertices.SPLIT``.

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


def _root(folder: str) -> str:
    if is_local(folder) and not Path(folder).is_dir():
        raise NotFoundError(f"{folder}: there is no such folder; expected one that contains raw/edge.csv.gz")
    return folder.rstrip("/")


def _find(root: str, name: str) -> SourceFile | None:
    for suffix in (".csv.gz", ".csv"):
        try:
            return open_files([f"{root}/{name}{suffix}"])[0]
        except NotFoundError:
            continue
    return None


def _require(root: str, name: str) -> SourceFile:
    file = _find(root, name)
    if file is None:
        raise NotFoundError(f"{root}/{name}.csv.gz: there is no such file; expected OGB's raw layout")
    return file


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
    return tuple(_require(root, f"split/{name}/{file}") for file in SPLIT_NAMES)


FORMAT = Format(
    name="ogb",
    order=80,
    help="OGB's raw CSV layout",
    open_edges=OgbEdges.open,
    is_fallback=True,
    one_location=True,
    vertices=BundledVertices(OgbVertices.open, has_vertices, (SPLIT_NAME,)),
)
