"""Forecasts the time of a streamed evaluation from samples of its work on this machine, within a second or two."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gnnloom.storage.artifacts.stored_csr import StoredCSR
from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.kernels.dispatch import sparse_product
from gnnloom.trainer.passes.column_blocks import even_width
from gnnloom.trainer.passes.program import FEATURES, Program, RunLayers
from gnnloom.trainer.passes.shard_features import ShardFeatures
from gnnloom.trainer.passes.streamed_layers import StreamedLayers
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.propagation.adjacency_product import AdjacencyProduct

#: Number of blocks of the stored adjacency that are multiplied, spread over all blocks.
_SAMPLED_BLOCKS: Final = 4
#: Bytes that are written and read again, in total and per call.
_SAMPLED_BYTES, _CALL_BYTES = 128 << 20, 8 << 20


@dataclass(frozen=True)
class DiskRates:
    """Seconds per written byte, and per read byte."""

    write: float
    read: float

    @classmethod
    def measured(cls, folder: Path, most: int, *, cached: bool) -> DiskRates:
        """Write and read a temporary file.

        Args:
            most: maximum number of bytes to write.
            cached: the pages of the file stay in memory.
        """
        total, content = min(max(1, most), _SAMPLED_BYTES), memoryview(bytearray(b"1") * _CALL_BYTES)
        with tempfile.TemporaryFile(dir=folder) as file:
            descriptor = file.fileno()
            os.posix_fallocate(descriptor, 0, total)
            started = time.perf_counter()
            _move(content, total, lambda part, offset: os.pwrite(descriptor, part, offset))
            if not cached:
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            written = time.perf_counter()
            _move(content, total, lambda part, offset: os.preadv(descriptor, [part], offset))
            return cls((written - started) / total, (time.perf_counter() - written) / total)


def _move(buffer: memoryview, total: int, call: Callable[[memoryview, int], int]) -> None:
    """Write or read a file from start to end."""
    offset = 0
    while offset < total:
        offset += call(buffer[: total - offset], offset)


class Samples:
    """Samples of the work of a rank; each takes a fraction of a second."""

    def __init__(
        self, layers: StreamedLayers, product: AdjacencyProduct, feature: ShardFeatures, rates: DiskRates
    ) -> None:
        self._layers, self._product, self._feature, self._rates = layers, product, feature, rates
        self._place: Place = product.place
        self._entry_seconds = dict[int, float]()

    def seconds(self, program: Program, width: int) -> float:
        """The time of a program on this rank. Communicates nothing, so messages are not part of it.

        Args:
            width: maximum number of columns of a block.
        """
        total, item = 0.0, self._place.feature_dtype.itemsize
        num_rows = self._product.matrix.own.num_rows
        for step in program.steps:
            read = sum(program.matrices[number].dim for number in step.read if number != FEATURES)
            written = sum(program.matrices[number].dim for number in step.written)
            total += num_rows * item * (read * self._rates.read + written * self._rates.write)
            if isinstance(step, RunLayers):
                total += num_rows * self._row_seconds(step, program)
                continue
            dim = program.matrices[step.operand].dim
            each = even_width(dim, width)
            for start in range(0, dim, each):
                total += self._product_seconds(min(each, dim - start))
        return total

    def _row_seconds(self, step: RunLayers, program: Program) -> float:
        """Time per row of a pass, without the time of the disk."""
        ranges = self._layers.ranges()
        if not ranges:
            return 0.0
        # The first run is left out, because it touches its memory for the first time.
        start, stop = ranges[len(ranges) // 2]
        count, place = stop - start, self._place
        found = []
        for _ in range(2):
            started = time.perf_counter()
            dim = self._layers.input_dim(step.layer)
            is_read = step.input == FEATURES
            given = self._feature.rows(start, stop) if is_read else place.zeros((count, dim), place.feature_dtype)
            known = [
                place.zeros((count, stored.dim), stored.dtype(place))
                for stored in (program.matrices[number] for number in step.known)
            ]
            self._layers.run_range(step, start, given, known)
            found.append(time.perf_counter() - started)
        return min(found) / count

    def _product_seconds(self, columns: int) -> float:
        """Time of a product with ``columns`` columns, from some blocks of the adjacency."""
        if columns not in self._entry_seconds:
            matrix = self._product.matrix
            self._entry_seconds[columns] = sum(
                self._block_seconds(block, columns) for block in (matrix.own, matrix.halo) if block.nnz
            )
        return self._entry_seconds[columns]

    def _block_seconds(self, matrix: CSR | StoredCSR, columns: int) -> float:
        if not isinstance(matrix, StoredCSR):
            return 0.0
        place = self._place
        dense = place.zeros((matrix.num_columns, columns), place.feature_dtype)
        count, sweep = len(matrix.bounds) - 1, matrix.sweep()
        entries, read, multiplied = 0, 0.0, 0.0
        for number in sorted({round(part * (count - 1) / (_SAMPLED_BLOCKS - 1)) for part in range(_SAMPLED_BLOCKS)}):
            started = time.perf_counter()
            block = sweep.read(number).rows
            begun = time.perf_counter()
            out = place.empty((block.num_rows, columns), place.sum_dtype)
            sparse_product(block, place).multiply(dense, out, place.lasting((0,), place.sum_dtype))
            entries, read, multiplied = (
                entries + block.nnz,
                read + begun - started,
                multiplied + time.perf_counter() - begun,
            )
        # All threads multiply while another thread decodes, so its time counts only if it takes a core from them.
        share = read / max(1, place.threads.num_threads)
        return (max(read, multiplied + share) if place.threads.num_threads > 1 else max(read, multiplied)) * (
            matrix.nnz / max(1, entries)
        )
