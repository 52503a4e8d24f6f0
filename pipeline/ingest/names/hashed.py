"""A source of named edges with hashes for ids: what a trial of an ingest reads, since any numbers will do for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.sources.names import NameChunk, NamedEdgeSource, Names
from gnnloom.pipeline.sources.reading.line_estimate import Estimate
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange

#: Offset basis and prime of the 64-bit FNV-1a hash (Fowler, Noll, Vo).
_START, _PRIME = 0xCBF29CE484222325, 0x100000001B3


@dataclass(frozen=True)
class HashedNames:
    """Implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`; two names almost never share an id."""

    source: NamedEdgeSource

    def identity(self) -> dict[str, Any]:
        return self.source.identity()

    def num_vertices(self) -> int | None:
        return None

    def estimate_edges(self) -> Estimate | None:
        estimate = getattr(self.source, "estimate_edges", None)
        return None if estimate is None else estimate()

    def ranges(self) -> Sequence[SourceRange]:
        return self.source.ranges()

    def read(self, source_range: SourceRange) -> Iterator[EdgeChunk]:
        for chunk in self.source.read_names(source_range):
            yield EdgeChunk(_hashes(chunk.source), _hashes(chunk.target), chunk.weight)

    def name_bytes(self) -> float:
        """Average bytes of a name in the first chunk; 0 if there is none."""
        ranges = self.ranges()
        chunk: NameChunk | None = next(self.source.read_names(ranges[0]), None) if ranges else None
        if chunk is None or not len(chunk.source):
            return 0.0
        return float(chunk.source.offset[-1] + chunk.target.offset[-1]) / (2 * len(chunk.source))


def _hashes(names: Names) -> NDArray[np.int64]:
    hashes = np.empty(len(names), np.int64)
    _hash(names.offset, names.text, hashes)
    return hashes


@njit(cache=True, nogil=True)
def _hash(offset: NDArray[np.int64], text: NDArray[np.uint8], hashes: NDArray[np.int64]) -> None:
    """FNV-1a; the upper 62 bits are kept, so that an id is never negative."""
    for k in range(hashes.size):
        # Products wrap around modulo 2^64, as the hash prescribes.
        value = np.uint64(_START)
        for at in range(offset[k], offset[k + 1]):
            value = (value ^ np.uint64(text[at])) * np.uint64(_PRIME)
        hashes[k] = np.int64(value >> np.uint64(2))
