"""Graph500's binary edge lists: little-endian 64-bit pairs, or the packed form of 48 bits per id.

A packed edge consists of three 32-bit words: the low 32 bits of both ids, and a word with the high 16 bits of both ids,
the first id in the lower half (``packed_edge`` of the Graph500 reference implementation).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray
from gnnloom.pipeline.sources.format import Format
from gnnloom.pipeline.sources.reading.coding import coding_of
from gnnloom.pipeline.sources.reading.files import open_files
from gnnloom.pipeline.sources.source import CHUNK_EDGES, EdgeChunk, SourceRange, even_ranges
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option

#: Number of edges that one task reads.
RANGE_EDGES = 1 << 23
_PAIR, _PACKED = np.dtype("<i8"), np.dtype("<u4")


@dataclass(frozen=True)
class Graph500Edges:
    """Edges from Graph500 files; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Attributes:
        arrays: (num_edges, 2) int64 pairs, or (num_edges, 3) uint32 packed words, one array per file.
        packed: whether the files use the packed form.
        range_edges: number of edges in a range.
    """

    arrays: tuple[StoredArray, ...]
    packed: bool = False
    range_edges: int = RANGE_EDGES

    @classmethod
    def open(cls, locations: Sequence[str], *, packed: bool = False) -> Graph500Edges:
        """Find the files.

        Raises:
            NotFoundError: a file does not exist.
            InputError: the size of a file is not a multiple of 16 bytes per edge (12 if packed), or a file is
                compressed.
        """
        width, dtype = (3, _PACKED) if packed else (2, _PAIR)
        arrays = []
        for given in open_files(locations):
            edge_bytes = width * dtype.itemsize
            # Numbers may look like the first bytes of a compressed file, so its name decides.
            file = replace(given, coding=coding_of(given.location, None))
            if file.is_compressed or file.size is None:
                raise InputError(f"{file.location}: expected an uncompressed file of known size; decompress it first")
            if not file.size or file.size % edge_bytes:
                raise InputError(
                    f"{file.location}: {file.size:,} bytes; expected a multiple of {edge_bytes}, the bytes of an edge"
                    f" {'in the packed form' if packed else '(12 in the packed form, `--packed`)'}"
                )
            arrays.append(StoredArray(file, None, (file.size // edge_bytes, width), dtype, False, 0))
        return cls(tuple(arrays), packed)

    def identity(self) -> dict[str, Any]:
        files = [array.file.identity() for array in self.arrays]
        return {"format": "graph500", "packed": self.packed, "files": files}

    @property
    def num_edges(self) -> int:
        return sum(array.shape[0] for array in self.arrays)

    def num_vertices(self) -> int | None:
        return None

    def ranges(self) -> Sequence[SourceRange]:
        return [
            span
            for number, array in enumerate(self.arrays)
            for span in even_ranges(number, array.shape[0], self.range_edges if array.is_mapped else array.shape[0])
        ]

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        array, width = self.arrays[span.file], 3 if self.packed else 2
        first = span.start
        for block in array.read_flat(span.start * width, span.stop * width, CHUNK_EDGES * width):
            words = block.reshape(-1, width)
            pairs = _unpacked(words) if self.packed else words
            if pairs.min(initial=0) < 0:
                edge = int(np.argmax(pairs.min(axis=1) < 0))
                raise InputError(
                    f"{array}, edge {first + edge:,}: expected vertex ids, found {pairs[edge].tolist()};"
                    f" {'does it contain 64-bit pairs?' if self.packed else 'is it the packed form (`--packed`)?'}"
                )
            yield EdgeChunk(np.ascontiguousarray(pairs[:, 0], np.int64), np.ascontiguousarray(pairs[:, 1], np.int64))
            first += len(pairs)


def _unpacked(words: NDArray[Any]) -> NDArray[np.int64]:
    """(num_edges, 2) ids from (num_edges, 3) words; the high 16 bits include the sign."""
    low = words[:, :2].astype(np.int64)
    high = words[:, 2].astype(np.int64)
    # Through int16, so that bit 47 becomes the sign: a file in the wrong form shows up as negative ids.
    highs = np.stack([high & 0xFFFF, high >> 16], axis=1).astype(np.uint16).view(np.int16)
    return low | (highs.astype(np.int64) << 32)


FORMAT = Format(
    name="graph500",
    order=70,
    help="binary pairs",
    open_edges=Graph500Edges.open,
    options=(Option("packed", bool, "48 bits per id instead of 64."),),
)
