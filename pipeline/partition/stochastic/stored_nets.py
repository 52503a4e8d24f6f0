"""The merged nets of drawn batches in files, to which tasks write ranges and from which a hypergraph is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import Hypergraph


@dataclass(frozen=True)
class StoredNets:
    """Nets in the plain files ``offset``, ``pin`` and ``weight`` of a folder; small, so that tasks can hold it.

    Attributes:
        dtype: of the pins.
    """

    folder: Path
    num_nets: int
    num_pins: int
    dtype: str

    def create(self) -> None:
        """Create the files, full of zeros."""
        self.folder.mkdir(parents=True, exist_ok=True)
        sizes = {"offset": 8 * (self.num_nets + 1), "weight": 8 * self.num_nets}
        for name, size in (sizes | {"pin": np.dtype(self.dtype).itemsize * self.num_pins}).items():
            with (self.folder / name).open("wb") as file:
                file.truncate(size)

    @contextmanager
    def opened(self) -> Iterator[OpenNets]:
        """Open the files to write nets to their places."""
        with ExitStack() as stack:
            offset, pin, weight = (
                stack.enter_context((self.folder / name).open("r+b")) for name in ("offset", "pin", "weight")
            )
            yield OpenNets(offset, pin, weight, np.dtype(self.dtype))

    def load(self, vertex_weight: NDArray[np.int64]) -> Hypergraph:
        """Read the hypergraph into memory.

        Args:
            vertex_weight: (num_vertices,) int64.
        """
        offset = np.fromfile(self.folder / "offset", np.int64)
        pin = np.fromfile(self.folder / "pin", self.dtype)
        return Hypergraph(vertex_weight, offset, pin, np.fromfile(self.folder / "weight", np.int64))


@dataclass(frozen=True)
class OpenNets:
    """The open files of stored nets."""

    offset: BinaryIO
    pin: BinaryIO
    weight: BinaryIO
    dtype: np.dtype[Any]

    def write(
        self, first_net: int, first_pin: int, size: NDArray[np.int64], pin: NDArray[Any], weight: NDArray[np.int64]
    ) -> None:
        """Write consecutive nets to their place; every place has one writer.

        Args:
            first_net, first_pin: nets and pins before them.
            size: (num_nets,) int64 pins of each.
            pin: (num_pins,) of ``dtype``.
            weight: (num_nets,) int64.
        """
        # The offset of the first net of all is 0, as the file was created.
        _write(self.offset, 8 * (first_net + 1), first_pin + np.cumsum(size))
        _write(self.pin, self.dtype.itemsize * first_pin, pin)
        _write(self.weight, 8 * first_net, weight)


def _write(file: BinaryIO, position: int, values: NDArray[Any]) -> None:
    # Not through a map: workers on several machines would write back whole pages, with the values of others.
    file.seek(position)
    file.write(np.ascontiguousarray(values).data)
