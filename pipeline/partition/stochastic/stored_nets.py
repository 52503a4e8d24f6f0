"""The merged nets of drawn batches in files, to which tasks write ranges and from which a hypergraph is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.hypergraph import Hypergraph


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

    def write(
        self, first_net: int, first_pin: int, size: NDArray[np.int64], pin: NDArray[np.int64], weight: NDArray[np.int64]
    ) -> None:
        """Write consecutive nets to their place; every place has one writer.

        Args:
            first_net, first_pin: nets and pins before them.
            size: (num_nets,) int64 pins of each.
            pin: (num_pins,) of ``dtype``.
            weight: (num_nets,) int64.
        """
        # The offset of the first net of all is 0, as the file was created.
        self._write("offset", 8 * (first_net + 1), first_pin + np.cumsum(size))
        self._write("pin", np.dtype(self.dtype).itemsize * first_pin, pin)
        self._write("weight", 8 * first_net, weight)

    def load(self, vertex_weight: NDArray[np.int64]) -> Hypergraph:
        """Read the hypergraph into memory.

        Args:
            vertex_weight: (num_vertices,) int64.
        """
        offset = np.fromfile(self.folder / "offset", np.int64)
        pin = np.fromfile(self.folder / "pin", self.dtype)
        return Hypergraph(vertex_weight, offset, pin, np.fromfile(self.folder / "weight", np.int64))

    def _write(self, name: str, position: int, values: NDArray[np.int64]) -> None:
        # Not through a map: workers on several machines would write back whole pages, with the values of others.
        with (self.folder / name).open("r+b") as file:
            file.seek(position)
            file.write(np.ascontiguousarray(values).data)
