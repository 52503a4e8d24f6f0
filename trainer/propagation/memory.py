"""From a rank's memory to the number of columns that it multiplies at a time, and to the place of the adjacency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gnnloom.storage.artifacts.propagated import COLUMNS, num_blocks, stored_chunk_rows
from gnnloom.storage.artifacts.stored_csr import BLOCK_ENTRIES
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.format.arrays import CHUNK_BYTES, default_chunk_rows
from gnnloom.storage.machine_memory import memory_text
from gnnloom.storage.shards.row_shards import RowShard, RowShards
from gnnloom.storage.wording import counted
from gnnloom.trainer.place.threads import num_block_buffers

#: Choices of where the adjacency is while it is multiplied.
ADJACENCY: Final = ("auto", "memory", "disk")
#: Python, torch, MPI and their libraries.
BASE_BYTES: Final = 288 << 20
#: Number of columns from which the adjacency stays in memory, even if more columns would fit with the adjacency on
#: disk: with fewer columns, products wait for rows of the dense matrix rather than for entries.
_ENOUGH_COLUMNS: Final = 32
#: Bytes of a number of a dense matrix.
_FLOAT: Final = 4


@dataclass(frozen=True)
class _Entries:
    """An array with a number for each entry of the adjacency."""

    num_entries: int
    chunk_rows: int
    itemsize: int

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffer for a block of the adjacency, if the adjacency is on disk."""
        held = min(self.num_entries, BLOCK_ENTRIES) + 2 * self.chunk_rows
        return held * self.itemsize if self.num_entries else 0


@dataclass(frozen=True)
class RankSizes:
    """Sizes that decide the memory of one rank; read from the lists of its arrays.

    Attributes:
        num_rows, num_halo, num_sent: rows of the rank, rows that it receives, and rows that it sends.
        nnz: entries of its rows.
        adjacency_bytes: of columns and weights, in memory.
        block_bytes: of the buffers of a block that take their place if they are on disk.
        index_bytes: of everything else that has an entry for each row or halo row.
    """

    num_rows: int
    num_halo: int
    num_sent: int
    nnz: int
    adjacency_bytes: int
    block_bytes: int
    index_bytes: int

    def exchanged_bytes(self, item: int, sum_item: int) -> int:
        """Bytes that a product takes for every column, in addition to the column and its product.

        Args:
            item, sum_item: bytes of a number of a matrix, and of a sum.
        """
        # Sums of several summands are rounded afterwards.
        sums = self.num_rows * sum_item if self.num_halo and sum_item != item else 0
        return (self.num_halo + self.num_sent) * item + sums

    @classmethod
    def of(cls, shard: RowShard) -> RankSizes:
        """Sizes of a shard; reads none of its arrays."""
        own, halo = (shard.array(f"{name}/indices") for name in ("own", "halo"))
        entries = [own, halo]
        if shard.shards.weighted:
            entries += [shard.array(f"{name}/data") for name in ("own", "halo")]
        return cls._counted(
            num_rows=len(shard.array("vertex")),
            num_halo=len(shard.array("halo_vertex")),
            num_sent=len(shard.array("send_row")),
            nnz=len(own) + len(halo),
            entries=[_Entries(len(each), each.chunk_rows, each.dtype.itemsize) for each in entries],
            has_halo=len(halo) > 0,
            sent_bytes=shard.array("send_row").dtype.itemsize,
            is_sorted=shard.shards.reorder == "none",
            weighted=shard.shards.weighted,
        )

    @classmethod
    def expected(
        cls, *, num_rows: int, num_halo: int, num_sent: int, nnz: int, dtype: np.dtype[Any], is_sorted: bool,
        weighted: bool,
    ) -> RankSizes:  # fmt: skip
        """Sizes of a shard that need not exist: its counts, with all entries in one block.

        Args:
            dtype: of column ids.
            is_sorted: the rows are in the order of the ids.
        """
        kinds = [dtype, np.dtype(np.float32)] if weighted else [dtype]
        return cls._counted(
            num_rows=num_rows,
            num_halo=num_halo,
            num_sent=num_sent,
            nnz=nnz,
            entries=[_Entries(nnz, default_chunk_rows((nnz,), kind), kind.itemsize) for kind in kinds],
            has_halo=num_halo > 0,
            sent_bytes=dtype.itemsize,
            is_sorted=is_sorted,
            weighted=weighted,
        )

    @classmethod
    def _counted(
        cls, *, num_rows: int, num_halo: int, num_sent: int, nnz: int, entries: Sequence[_Entries], has_halo: bool,
        sent_bytes: int, is_sorted: bool, weighted: bool,
    ) -> RankSizes:  # fmt: skip
        # Row pointers of the blocks that have entries, ids and factors; sorted ids and their order if the rows are not
        # in the order of the ids; ids of the halo; rows sent, with their factors.
        per_row = 8 * (1 + has_halo) + 8 + _FLOAT + (0 if is_sorted else 16)
        return cls(
            num_rows=num_rows,
            num_halo=num_halo,
            num_sent=num_sent,
            nnz=nnz,
            # Weights are converted to float32 once, and row pointers added up once.
            adjacency_bytes=sum(each.num_entries * each.itemsize for each in entries)
            + 8 * num_rows
            + (_FLOAT * nnz if weighted else 0),
            block_bytes=sum(each.buffer_bytes for each in entries),
            index_bytes=num_rows * per_row + num_halo * 8 + num_sent * (sent_bytes + _FLOAT),
        )


@dataclass(frozen=True)
class MemoryPlan:
    """Number of columns that all ranks multiply per pass, and the place of the adjacency.

    Attributes:
        on_disk: whether the adjacency is read from disk for every product.
        width: blocks of :data:`COLUMNS` columns at a time.
        num_blocks: blocks of columns in all.
        peak_bytes: forecast for the rank that needs most.
    """

    on_disk: bool
    width: int
    num_blocks: int
    peak_bytes: int

    @property
    def num_passes(self) -> int:
        """Times that every step is multiplied, each for some of the columns."""
        return -(-self.num_blocks // self.width)


def peak_of(sizes: RankSizes, columns: int, num_vertices: int, *, on_disk: bool, matrices: int, threads: int) -> int:
    """Forecast of the memory of a rank.

    Args:
        columns: that are multiplied at a time.
        num_vertices: of the graph.
        on_disk: whether the adjacency is.
        matrices: dense matrices of the rank's rows at a time.
        threads: that multiply blocks and compress chunks.
    """
    adjacency = num_block_buffers(threads) * sizes.block_bytes if on_disk else sizes.adjacency_bytes
    rows = stored_chunk_rows(num_vertices)
    # Per column: the matrices, the halo and the rows sent, and a chunk as it is sent, arrives and is put in order.
    dense = columns * (_FLOAT * matrices * sizes.num_rows + sizes.exchanged_bytes(_FLOAT, _FLOAT))
    chunks = _FLOAT * columns * 4 * rows + 16 * rows + 3 * threads * CHUNK_BYTES
    return BASE_BYTES + sizes.index_bytes + adjacency + dense + chunks


def plan_memory(
    sizes: Sequence[RankSizes],
    num_vertices: int,
    num_columns: int,
    memory: int,
    *,
    adjacency: str,
    matrices: int,
    threads: int,
) -> MemoryPlan:
    """The widest blocks that fit.

    Args:
        sizes: of all ranks: they multiply the same columns.
        memory: bytes that each rank may use.
        adjacency: one of :data:`ADJACENCY`.
        matrices: dense matrices of a rank's rows at a time.
        threads: of each rank.

    Raises:
        BudgetError: not even one block of columns fits.
    """

    def peak(width: int, *, on_disk: bool) -> int:
        columns = min(width * COLUMNS, num_columns)
        return max(
            peak_of(each, columns, num_vertices, on_disk=on_disk, matrices=matrices, threads=threads) for each in sizes
        )

    def widest(*, on_disk: bool) -> int:
        total = num_blocks(num_columns)
        # The peak grows with the width, so the widths that fit are a range.
        return int(np.searchsorted([peak(width, on_disk=on_disk) for width in range(1, total + 1)], memory, "right"))

    places = {"memory": (False,), "disk": (True,)}.get(adjacency, (False, True))
    widths = {on_disk: widest(on_disk=on_disk) for on_disk in places}
    total = num_blocks(num_columns)
    enough = min(total, _ENOUGH_COLUMNS // COLUMNS)
    on_disk = places[0] if widths[places[0]] >= enough else max(places, key=lambda place: (widths[place], not place))
    if not widths[on_disk]:
        hint = "" if adjacency != "memory" else ", leave the adjacency on disk (--adjacency disk)"
        least = memory_text(min(peak(1, on_disk=place) for place in places))
        raise BudgetError(
            f"--memory {memory_text(memory)}: {COLUMNS} columns at a time need {least} per rank; give more memory"
            f"{hint}, or use more than {counted(len(sizes), 'rank')}"
        )
    # The number of passes that the widest blocks need, with blocks of even width.
    width = -(-total // -(-total // widths[on_disk]))
    return MemoryPlan(on_disk, width, total, peak(width, on_disk=on_disk))


def rank_sizes(shards: RowShards) -> list[RankSizes]:
    """Sizes of all ranks."""
    return [RankSizes.of(shards.shard(rank)) for rank in range(shards.num_parts)]
