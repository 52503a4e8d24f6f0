"""Writes a folder in OGB's binary layout with the shape of ogbn-papers100M, or a fraction of it, in bounded memory.

    raw/data.npz            edge_index (2, m) int64, node_feat (n, 128) float32, num_nodes_list, num_edges_list
    raw/node-label.npz      node_label (n, 1) float32, NaN for none
    split/time/{train,valid,test}.csv.gz

Edges are R-MAT with the parameters of Graph500, whose ids are spread over n vertices. Every vertex has a class, which
its features show under noise; as many vertices are labeled as in papers100M.
"""

from __future__ import annotations

import gzip
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.generators.rmat import RmatEdges
from gnnloom.pipeline.sources.source import SourceRange

#: Vertices and directed edges of ogbn-papers100M, its features and classes.
VERTICES: Final = 111_059_956
EDGES: Final = 1_615_685_872
FEATURES: Final = 128
CLASSES: Final = 172
#: Labeled vertices of each split.
_SPLITS: Final = {"train": 1_207_179, "valid": 125_265, "test": 214_338}
#: Vertices that are written at a time: 32 MiB of features.
_BLOCK: Final = 1 << 16
#: Standard deviation of the noise, of features whose centers have 1.
_NOISE: Final = 1.0


@dataclass(frozen=True)
class Shape:
    """The sizes of a fraction of papers100M."""

    fraction: float

    @property
    def vertices(self) -> int:
        return round(VERTICES * self.fraction)

    @property
    def edges(self) -> int:
        return round(EDGES * self.fraction)

    @property
    def num_bytes(self) -> int:
        """Bytes of the folder, but for its splits and headers."""
        return 16 * self.edges + 4 * (FEATURES + 1) * self.vertices


def write_papers(folder: Path, shape: Shape, seed: int = 0) -> None:
    """Write the folder, and leave none of it in the page cache: whoever reads it first is charged for its pages."""
    for part in ("raw", "split/time"):
        (folder / part).mkdir(parents=True)
    with zipfile.ZipFile(folder / "raw/data.npz", "w") as data:
        _write_edges(data, shape, seed)
        for name, count in (("num_nodes_list", shape.vertices), ("num_edges_list", shape.edges)):
            _write(data, name, (1,), np.dtype(np.int64), iter([np.array([count])]))
        _write_vertices(folder, data, shape, seed)
    for path in folder.rglob("*"):
        if path.is_file():
            _drop_pages(path)


def _write_edges(archive: zipfile.ZipFile, shape: Shape, seed: int) -> None:
    scale = (shape.vertices - 1).bit_length()
    edges = RmatEdges(scale, -(-shape.edges >> scale), seed=seed)

    def ends() -> Iterator[NDArray[np.int64]]:
        # A row is whole before the next one begins, so all edges are drawn twice.
        for end in ("source", "target"):
            for chunk in edges.read(SourceRange(0, 0, shape.edges)):
                yield getattr(chunk, end) * shape.vertices >> scale

    _write(archive, "edge_index", (2, shape.edges), np.dtype(np.int64), ends())


def _write_vertices(folder: Path, data: zipfile.ZipFile, shape: Shape, seed: int) -> None:
    centers = np.random.default_rng(seed).standard_normal((CLASSES, FEATURES), np.float32)
    with ExitStack() as opened:
        labels = opened.enter_context(zipfile.ZipFile(folder / "raw/node-label.npz", "w"))
        label_file = opened.enter_context(labels.open("node_label.npy", "w", force_zip64=True))
        feature_file = opened.enter_context(data.open("node_feat.npy", "w", force_zip64=True))
        splits = [
            opened.enter_context(gzip.open(folder / f"split/time/{name}.csv.gz", "wt", compresslevel=1))
            for name in _SPLITS
        ]
        _write_header(label_file, (shape.vertices, 1), np.dtype(np.float32))
        _write_header(feature_file, (shape.vertices, FEATURES), np.dtype(np.float32))
        for start in range(0, shape.vertices, _BLOCK):
            count = min(_BLOCK, shape.vertices - start)
            random = np.random.default_rng([seed, start])
            label, split = random.integers(0, CLASSES, count), _draw_splits(random, count)
            feature = random.standard_normal((count, FEATURES), np.float32)
            feature *= np.float32(_NOISE)
            feature += centers[label]
            feature_file.write(feature.reshape(-1).view(np.uint8).data)
            label_file.write(np.where(split >= 0, label, np.nan).astype(np.float32).tobytes())
            for number, file in enumerate(splits):
                file.writelines(f"{vertex}\n" for vertex in (start + np.flatnonzero(split == number)).tolist())


def _draw_splits(random: np.random.Generator, count: int) -> NDArray[np.int64]:
    """(count,) int64 number of the split of some vertices; -1 for no label."""
    bounds = np.cumsum(list(_SPLITS.values())) / VERTICES
    found = np.searchsorted(bounds, random.random(count), side="right")
    return np.where(found < len(_SPLITS), found, -1)


def _write(
    archive: zipfile.ZipFile,
    name: str,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    blocks: Iterator[NDArray[Any]],
) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        _write_header(file, shape, dtype)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype).view(np.uint8).data)


def _write_header(file: IO[bytes], shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(cast("Any", file), described)


def _drop_pages(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
