"""A source of edges for tests: arrays in .npy files, with ranges of any length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnnloom.pipeline.sources.source import CHUNK_EDGES, EdgeChunk, SourceRange


@dataclass(frozen=True)
class EdgeFiles:
    """Edges in ``source.npy``, ``target.npy`` and, if weighted, ``weight.npy`` of a folder."""

    folder: Path
    range_edges: int = 1 << 22
    vertices: int | None = None
    weighted: bool = False
    chunk_edges: int = CHUNK_EDGES

    def identity(self) -> dict[str, Any]:
        return {"format": "test", "folder": self.folder.name, "vertices": self.vertices}

    def num_vertices(self) -> int | None:
        return self.vertices

    def ranges(self) -> Sequence[SourceRange]:
        edges = len(np.load(self.folder / "source.npy", mmap_mode="r"))
        return [
            SourceRange(0, start, min(start + self.range_edges, edges)) for start in range(0, edges, self.range_edges)
        ]

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        names = ["source", "target", *(["weight"] if self.weighted else [])]
        for start in range(span.start, span.stop, self.chunk_edges):
            count = min(self.chunk_edges, span.stop - start)
            yield EdgeChunk(*(self._read(name, start, count) for name in names))

    def _read(self, name: str, start: int, count: int) -> np.ndarray:
        """Read rather than map, because the pages of a mapped file would count as memory of the process."""
        with (self.folder / f"{name}.npy").open("rb") as file:
            np.lib.format.read_magic(file)
            dtype = np.lib.format.read_array_header_1_0(file)[2]
            file.seek(start * dtype.itemsize, 1)
            return np.fromfile(file, dtype, count)


def write_edges(folder: Path, source: Any, target: Any, weight: Any = None, **options: Any) -> EdgeFiles:
    """Write edges to a folder and return their source."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "source.npy", np.asarray(source, dtype=np.int64))
    np.save(folder / "target.npy", np.asarray(target, dtype=np.int64))
    if weight is not None:
        np.save(folder / "weight.npy", np.asarray(weight, dtype=np.float32))
    return EdgeFiles(folder, weighted=weight is not None, **options)
