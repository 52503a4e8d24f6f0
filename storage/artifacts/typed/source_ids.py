"""The ids or names by which the source of a graph calls the vertices, of the whole graph or of one type."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.offsets import check_some_offsets
from gnnloom.storage.format.artifact import Artifact


class SourceIds:
    """Ids or names of consecutive vertices.

    Attributes:
        artifact: the artifact of the graph.
        prefix: what the paths of the arrays begin with: empty, or a folder and a slash.
        count: number of vertices.
    """

    def __init__(self, artifact: Artifact, prefix: str, count: int) -> None:
        self.artifact, self.prefix, self.count = artifact, prefix, count

    @property
    def has_names(self) -> bool:
        """Whether the source identified these vertices by name."""
        return f"{self.prefix}original_name" in self.artifact

    def names(self, start: int = 0, stop: int | None = None) -> list[str]:
        """Names of the vertices ``start`` to ``stop`` in the source.

        Raises:
            NotFoundError: the source identified vertices by number.
        """
        stop = self.count if stop is None else stop
        stored = self.artifact.array(f"{self.prefix}original_name_offset")
        names = self.artifact.array(f"{self.prefix}original_name")
        found = stored.read(start, stop + 1)
        check_some_offsets(stored.where, found, len(names))
        offset = found.tolist()
        text = names.read(offset[0], offset[-1]).tobytes()
        return [text[begin - offset[0] : end - offset[0]].decode() for begin, end in pairwise(offset)]

    def ids(self, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """(stop - start,) int64 ids of vertices in the source; the vertices' own numbers if none are stored."""
        if f"{self.prefix}original_id" in self.artifact:
            return self.artifact.array(f"{self.prefix}original_id").read(start, stop)
        return np.arange(start, self.count if stop is None else stop, dtype=np.int64)
