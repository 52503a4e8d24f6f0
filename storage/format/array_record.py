"""Record of an array in a manifest or a task's record: its shape, and the chunks that were written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

#: Hexadecimal digits of the checksum of one chunk.
CHECKSUM_DIGITS: Final = 8


class Piece(NamedTuple):
    """Rows ``start`` to ``stop`` of an array, which are whole chunks.

    Attributes:
        digest: of the rows' plain bytes, so that it does not depend on the codec.
        checksums: of the chunks' files in order, ``CHECKSUM_DIGITS`` hexadecimal digits for each: the crc32c with
            which a file ends. Empty for pieces without values.
    """

    start: int
    stop: int
    digest: str
    checksums: str


@dataclass(frozen=True)
class ArrayRecord:
    """The manifest's entry for one array; in a task's record, the pieces that the task wrote."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    pieces: tuple[Piece, ...]

    def content_json(self) -> dict[str, Any]:
        """Content of the array as JSON, without values that depend on the codec."""
        return {
            "shape": list(self.shape),
            "dtype": self.dtype,
            "dims": list(self.dims),
            "pieces": [piece[:3] for piece in self.pieces],
        }

    def to_json(self) -> dict[str, Any]:
        return {**self.content_json(), "checksums": [piece.checksums for piece in self.pieces]}

    @classmethod
    def from_json(cls, path: str, content: Mapping[str, Any]) -> ArrayRecord:
        if any(name[:1] in {"", "."} for name in path.split("/")):
            raise ValueError(f"{path!r} is not the path of an array below a folder")
        if any(not 0 <= int(size) < 1 << 63 for size in content["shape"]):
            raise ValueError(f"{content['shape']} is not the shape of an array")
        return cls(
            path=path,
            shape=tuple(int(size) for size in content["shape"]),
            dtype=str(content["dtype"]),
            dims=tuple(str(dim) for dim in content["dims"]),
            # A list, which takes less time than a generator: there may be millions.
            pieces=tuple(
                [
                    Piece(int(a), int(b), str(digest), str(each))
                    for (a, b, digest), each in zip(content["pieces"], content["checksums"], strict=True)
                ]
            ),
        )

    def checksum(self, number: int, chunk_rows: int) -> str:
        """The recorded checksum of a chunk; empty if there is none.

        Args:
            number: the chunk begins at row ``number * chunk_rows``.
        """
        starts, row = self._starts, number * chunk_rows
        place = bisect_right(starts, row) - 1
        if place < 0 or row >= self._sorted[place].stop:
            return ""
        first = (row - starts[place]) // chunk_rows * CHECKSUM_DIGITS
        return self._sorted[place].checksums[first : first + CHECKSUM_DIGITS]

    @cached_property
    def _sorted(self) -> list[Piece]:
        return sorted(self.pieces, key=lambda piece: piece.start)

    @cached_property
    def _starts(self) -> list[int]:
        return [piece.start for piece in self._sorted]
