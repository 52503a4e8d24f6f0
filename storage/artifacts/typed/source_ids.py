"""The ids or names by which the source of a graph calls the vertices, of the whole graph or of one type."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.offsets import check_some_offsets
from gnnloom.storage.disk.files import parsing
from gnnloom.storage.format.artifact import MANIFEST, Artifact

#: Folder of the types in a graph with types.
TYPES: Final = "type"


class SourceIds:
    """Ids or names of the vertices of a graph without types, or of one type.

    Attributes:
        artifact: the artifact of the graph.
        prefix: beginning of the paths of the arrays: empty, or a folder and a slash.
        num_vertices: number of vertices.
    """

    def __init__(self, artifact: Artifact, prefix: str, num_vertices: int) -> None:
        self.artifact, self.prefix, self.num_vertices = artifact, prefix, num_vertices

    @classmethod
    def at(cls, folder: Path) -> SourceIds:
        """Open the ids in a folder: of a graph, or of one of its types; see :attr:`folder`."""
        if folder.parent.name != TYPES:
            artifact = Artifact(folder)
            return SourceIds(artifact, "", artifact.sizes["vertex"])
        artifact = Artifact(folder.parents[1])
        with parsing(artifact.path / MANIFEST, "the manifest of a graph with types"):
            counts: dict[str, int] = {each["name"]: each["count"] for each in artifact.facts["types"]}
            return SourceIds(artifact, f"{TYPES}/{folder.name}/", counts[folder.name])

    @property
    def folder(self) -> Path:
        """Folder of the arrays, by which another process opens them."""
        return self.artifact.path / self.prefix

    @property
    def type(self) -> str:
        """Name of the type of the vertices; empty in a graph without types."""
        return self.prefix.removeprefix(f"{TYPES}/").rstrip("/")

    @property
    def has_names(self) -> bool:
        """Whether the source identified these vertices by name."""
        return f"{self.prefix}original_name" in self.artifact

    @property
    def has_numbers(self) -> bool:
        """Whether the ids are numbers that differ from the numbers of the vertices."""
        return f"{self.prefix}original_id" in self.artifact

    def original_name(self, start: int = 0, stop: int | None = None) -> list[str]:
        """Names of the vertices ``start`` to ``stop`` in the source.

        Raises:
            NotFoundError: the source identified vertices by number.
        """
        offset, text = self.name_bytes(start, stop)
        found = text.tobytes()
        return [found[begin:end].decode() for begin, end in pairwise(offset.tolist())]

    def name_bytes(self, start: int = 0, stop: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """(stop - start + 1,) int64 offsets from 0, and (num_bytes,) UTF-8 text, of names; raises as above."""
        stop = self.num_vertices if stop is None else stop
        stored = self.artifact.array(f"{self.prefix}original_name_offset")
        names = self.artifact.array(f"{self.prefix}original_name")
        found = stored.read(start, stop + 1)
        check_some_offsets(stored.where, found, len(names))
        return found - found[0], names.read(int(found[0]), int(found[-1]))

    def original_id(self, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """(stop - start,) int64 ids of vertices in the source; the vertices' own numbers if none are stored."""
        if self.has_numbers:
            return self.artifact.array(f"{self.prefix}original_id").read(start, stop)
        return np.arange(start, self.num_vertices if stop is None else stop, dtype=np.int64)
