"""The entries of some units of rows in one spill file."""

from __future__ import annotations

import numpy as np

from gnnloom.pipeline.external_sort.key_sorter import Encoding, Segment
from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.external_sort.spill import SpillFile


class FileRows:
    """The entries of units ``first_unit`` to ``last_unit`` in a spill file."""

    def __init__(
        self, files: OpenFiles, file: SpillFile, shift: int, column_bits: int, first_unit: int, last_unit: int
    ) -> None:
        """Read the offsets of the file.

        Args:
            files: files that stay open while the entries are read.
            file: the spill file.
            shift: log2 of the rows of a unit.
            column_bits: bits of the column in a key.
            first_unit: first unit.
            last_unit: unit after the last one.
        """
        self._file = file
        self._lane = files.lane(file.lane)
        self._column_bits = column_bits
        #: Buckets of the file per unit of the graph.
        self._per_unit = 1 << (shift - file.shift)
        self._offsets = file.offsets(files, first_unit * self._per_unit, last_unit * self._per_unit)
        bounds = np.arange(last_unit - first_unit + 1) * self._per_unit
        #: (num_units + 1) first entry of each unit.
        # The file ends with its last bucket that is not empty; the units after it have no entries in it.
        self._unit_offsets = self._offsets[np.minimum(bounds, len(self._offsets) - 1)]
        self.unit_entries = np.diff(self._unit_offsets)

    def segment(self, start: int, stop: int) -> Segment:
        """The entries of units ``start`` to ``stop``, counted from the first unit."""
        file = self._file
        bucket = min(start * self._per_unit, len(self._offsets) - 1)
        encoding = Encoding(
            file.high_at,
            file.high_dtype,
            self._offsets[bucket:],
            bucket << file.shift,
            file.shift,
            file.column_bits,
            self._column_bits,
        )
        first, last = int(self._unit_offsets[start]), int(self._unit_offsets[stop])
        return Segment(self._lane, first, last, file.low_at, file.weights_at, encoding)
