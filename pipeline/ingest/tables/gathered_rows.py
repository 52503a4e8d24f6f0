"""Rows of a table that are gathered in memory, and then routed together."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import RunsWriter, Shuffle
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.tasks.memory import working_memory

#: Most bytes of the rows that a task gathers for a run, unless the memory of a worker is smaller.
RUN_BYTES = 512 << 20
#: Bytes of a row while it is gathered and sorted by bucket, in addition to its values and the text of its id: its
#: bucket, its place in the table, the length of its id, the offset of its id in both orders and in Arrow's, and the
#: order and its inverse.
GATHERED_ROW_BYTES: Final = 64


def run_bytes(memory: int) -> int:
    """Bytes of the rows that a task gathers, in the order of the table, before it routes them.

    Both orders are in memory at once; the rest is for the block being read.
    """
    return min(RUN_BYTES, working_memory(memory) // 4)


class GatheredRows:
    """Rows in the order of the table.

    Attributes:
        num_bytes: bytes of what was added; sorting it takes as many again.
    """

    def __init__(self, shuffle: Shuffle) -> None:
        self._shuffle = shuffle
        self._blocks: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any], Names]] = []
        self.num_bytes = 0

    def add(self, buckets: NDArray[np.int64], at: NDArray[np.int64], values: NDArray[Any], names: Names) -> None:
        """Add rows.

        Args:
            buckets: (num_rows,) int64; rows with -1 are left out.
            at: (num_rows,) int64 places in the table.
            values: (num_rows, ...) values.
            names: their ids.
        """
        kept = buckets >= 0
        if not kept.all():
            buckets, at, values, names = buckets[kept], at[kept], values[kept], _taken(names, np.flatnonzero(kept))
        # A copy of the text, which may be the beginning of a longer buffer.
        names = Names(names.offset, names.text[: names.offset[-1]].copy())
        self._blocks.append((buckets, at, values, names))
        self.num_bytes += values.nbytes + len(names.text) + GATHERED_ROW_BYTES * len(values)

    def route(self, out: RunsWriter) -> None:
        """Write the rows as a run, and forget them; some must have been added."""
        buckets, at, values, names = (list(column) for column in zip(*self._blocks, strict=True))
        self._blocks.clear()
        self.num_bytes = 0
        # Numbers of 16 bits are sorted much faster, and there are seldom more buckets.
        joined = np.concatenate(buckets).astype(np.min_scalar_type(self._shuffle.num_positions))
        # Stable: rows of a bucket keep their order.
        order = np.argsort(joined, kind="stable")
        ends = np.cumsum(np.bincount(joined, minlength=self._shuffle.num_positions))
        rows = {"at": np.concatenate(at)[order], "value": _sorted_values(values, order)}
        ids = _taken(_joined(names), order)
        out.add(Index.of_offsets(np.append(0, ends)), {**rows, "length": np.diff(ids.offset), "id": ids.text})


def _sorted_values(blocks: list[NDArray[Any]], order: NDArray[np.int64]) -> NDArray[Any]:
    """(num_rows, ...) values of consecutive rows in another order; ``blocks`` is emptied."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    values, first = np.empty((len(order), *blocks[0].shape[1:]), blocks[0].dtype), 0
    for block in blocks:
        values[place[first : first + len(block)]] = block
        first += len(block)
    blocks.clear()
    return values


def _joined(blocks: list[Names]) -> Names:
    """The names of consecutive rows; ``blocks`` is emptied, so that at most two copies of the text are in memory."""
    ends = np.cumsum(np.concatenate([np.diff(names.offset) for names in blocks]))
    text = np.concatenate([names.text for names in blocks])
    blocks.clear()
    return Names(np.append(0, ends), text)


def _taken(names: Names, order: NDArray[np.int64]) -> Names:
    """The names with these numbers, in this order."""
    return Names.from_arrow(names.to_arrow().take(order))
