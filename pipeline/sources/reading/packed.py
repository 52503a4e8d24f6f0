"""Sources of NumPy arrays, some of which may be compressed members of archives."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

from gnnloom.pipeline.sources.reading.stored_arrays import StoredArray, Unpacked


@runtime_checkable
class PackedSource(Protocol):
    """A source whose arrays may be compressed."""

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        """The arrays that are read; one may occur more than once."""
        ...

    def with_unpacked(self, unpacked: Unpacked) -> Self:
        """The same source with the same identity, which reads some arrays from files into which they were unpacked."""
        ...
