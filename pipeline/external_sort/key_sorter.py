"""Sort any number of keys, however skewed, in a buffer of fixed size.

Keys come from segments of files. A range of keys that fits the buffer is read and sorted. A larger range is split: its
keys are scattered once more, by the highest bits in which they differ, into a file of their own, and its sub-ranges are
sorted one after another. The row of a hub, or even millions of copies of a single edge, need no more memory than any
other range.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles, OpenLane, writable
from gnnloom.pipeline.external_sort.radix import (
    MERGE_MODES,
    MOST_PARTIALS,
    Keys,
    Weights,
    join_directions,
    merge_equal_keys,
    merge_weight,
    merged_weight,
    sort_buckets,
    sort_few,
    sort_keys,
    unique_keys,
)
from gnnloom.pipeline.external_sort.spill import BUCKET_BITS, decode_entries, gather_units, value_dtype
from gnnloom.storage.kernels import kernel


@dataclass(frozen=True)
class Encoding:
    """Layout of the entries of a spill file, for :func:`gnnloom.pipeline.external_sort.spill.decode_entries`.

    Attributes:
        high_at: byte offset of the high bits of the file's entries.
        high_dtype: type of the high bits; None if there are none.
        offsets: (num_buckets + 1,) first entry of each bucket.
        first_row: first row of the first bucket, counted from the first row of the row block.
        shift: log2 of the rows of a bucket.
        entry_column_bits: bits of the column in an entry.
        column_bits: bits of the column in a key.
    """

    high_at: int
    high_dtype: np.dtype[Any] | None
    offsets: NDArray[np.int64]
    first_row: int
    shift: int
    entry_column_bits: int
    column_bits: int


@dataclass(frozen=True)
class Segment:
    """Entries ``start`` to ``stop`` of a file. Without an encoding, the entries are the keys.

    Attributes:
        file: the file, open.
        entries_at: byte offset of the file's keys, or of the low bits of its entries.
        weights_at: byte offset of its weights.
        encoding: layout of the entries; None for plain keys.
    """

    file: OpenLane
    start: int
    stop: int
    entries_at: int
    weights_at: int
    encoding: Encoding | None

    def __len__(self) -> int:
        return self.stop - self.start

    def read(self, keys: Keys, weights: Weights, scratch: Keys) -> None:
        """Fill ``keys``, (len(self),) uint64, and, unless it is empty, ``weights``, (len(self),) floats.

        ``scratch`` is at least as long as ``keys``.
        """
        if self.encoding is None:
            self.file.read(self.entries_at + 8 * self.start, keys)
        else:
            self._decode(self.encoding, keys, scratch.view(np.uint32))
        if len(weights):
            self.file.read(self.weights_at + weights.itemsize * self.start, weights)

    def gather(
        self,
        row_bits: int,
        position: NDArray[np.int64],
        keys: Keys,
        weights: Weights,
        scratch: tuple[Keys, Weights],
    ) -> None:
        """Append the keys and weights of each unit of 2^row_bits rows at its ``position``, and advance the position.

        Args:
            row_bits: log2 of the rows of a unit.
            position: (num_units,) int64, where the next key of each unit goes; advanced.
            keys: (num_keys,) uint64, receives the keys of all units.
            weights: (num_keys,) floats, receives the weights; or empty.
            scratch: keys and weights, each at least as long as the segment.

        Raises:
            ValueError: the segment has no encoding, so its keys are not grouped by unit.
        """
        form = self.encoding
        if form is None:
            raise ValueError(f"{self.file.path}: plain keys are not grouped by unit; use read() and sort them")
        low, high = self._read_entries(form, scratch[0].view(np.uint32))
        own_weights = scratch[1][: len(self)]
        if len(weights):
            self.file.read(self.weights_at + weights.itemsize * self.start, own_weights)
        gather_units(
            low,
            high,
            own_weights,
            form.offsets,
            form.first_row,
            form.shift,
            form.entry_column_bits,
            form.column_bits,
            row_bits,
            position,
            keys,
            weights,
        )

    def _read_entries(self, form: Encoding, scratch: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[Any]]:
        """Low and high bits of the entries, as views of ``scratch``: together at most 8 bytes per entry."""
        low = scratch[: len(self)]
        self.file.read(self.entries_at + 4 * self.start, low)
        high: NDArray[Any] = np.empty(0, dtype=np.uint8)
        if form.high_dtype is not None:
            high = scratch[len(self) : 2 * len(self)].view(form.high_dtype)[: len(self)]
            self.file.read(form.high_at + form.high_dtype.itemsize * self.start, high)
        return low, high

    def _decode(self, form: Encoding, keys: Keys, scratch: NDArray[np.uint32]) -> None:
        low, high = self._read_entries(form, scratch)
        decode_entries(
            low,
            high,
            self.start,
            form.offsets,
            form.first_row,
            form.shift,
            form.entry_column_bits,
            form.column_bits,
            keys,
        )


@dataclass(frozen=True)
class Units:
    """Existing groups of the entries of spill files: units of 2^row_bits rows.

    Attributes:
        row_bits: log2 of the rows of a unit.
        key_bits: low bits in which the keys of a unit differ: the bits of the row within the unit, and of the column.
        sizes: (num_units,) entries of each unit in all files.
    """

    row_bits: int
    key_bits: int
    sizes: NDArray[np.int64]


@dataclass(frozen=True)
class KeyRange:
    """All entries with keys from ``first_key`` to ``last_key`` (inclusive), in the order of the source.

    Attributes:
        units: units of the range, if every segment has an encoding and begins with the first unit.
    """

    first_key: int
    last_key: int
    segments: Sequence[Segment]
    units: Units | None = None

    @property
    def entries(self) -> int:
        return sum(map(len, self.segments))


@dataclass(frozen=True)
class SortedKeys:
    """The distinct keys of a range in ascending order, with merged weights; or all keys, if equal ones are kept.

    The arrays are views of the sorter's buffers, which are valid until the sorter makes the next ones.

    Attributes:
        first_key: first key of the range.
        last_key: last key of the range, inclusive.
        keys: (num_keys,) uint64.
        weights: (num_keys,) floats, or empty.
        entries: number of entries that were merged.
        joined: number of keys that both directions of an edge had, which were equal.
    """

    first_key: int
    last_key: int
    keys: Keys
    weights: Weights
    entries: int
    joined: int = 0


class UnequalDirectionsError(ValueError):
    """The two directions of an edge have different weights.

    Attributes:
        key: key of the edge, without its mark.
        weights: as the source gives the edge of the key, and its reverse.
    """

    def __init__(self, key: int, weights: tuple[np.floating[Any], np.floating[Any]]) -> None:
        super().__init__(key, weights)
        self.key, self.weights = key, weights


class KeySorter:
    """Sorts and merges ranges of keys in buffers of ``capacity`` entries."""

    def __init__(
        self,
        folder: Path,
        capacity: int,
        merge: str | None,
        scratch_bytes: int = 0,
        value_bytes: int = 0,
        *,
        marked: bool = False,
        keeps: bool = False,
    ) -> None:
        """Allocate the buffers: 16 bytes per entry, and twice the bytes of a weight.

        Args:
            folder: where ranges that exceed the buffer are split.
            capacity: entries that are in memory at a time.
            merge: how weights are merged, a name from ``MERGE_MODES``; None for entries without weights.
            scratch_bytes: least length of :attr:`scratch`.
            value_bytes: bytes of a weight; 0 for the bytes of float32.
            marked: keys of entries with weights whose lowest bit is a mark. Ranges then begin with an even key and end
                with an odd one; the results have keys without marks, and both directions of an edge are one key.
            keeps: equal keys, which are not marked, stay apart, in the order of the source.
        """
        self._folder = folder
        self._mark_bits, self._keeps = int(marked), keeps
        self._capacity = capacity
        self._mode = MERGE_MODES[merge or "sum"]
        self._keys = np.empty(capacity, dtype=np.uint64)
        self._spare_keys = np.empty(max(capacity, -(-scratch_bytes // 8)), dtype=np.uint64)
        weights, dtype = capacity if merge else 0, value_dtype(value_bytes)
        self._weights: Weights = np.empty(weights, dtype)
        self._spare_weights: Weights = np.empty(weights, dtype)

    @property
    def scratch(self) -> NDArray[np.uint8]:
        """(num_bytes,) uint8, memory for the caller's use until the next keys are sorted.

        It saves a buffer of the caller's own, whose fresh pages would be slow to touch.
        """
        return self._spare_keys.view(np.uint8)

    def sort(self, whole: KeyRange) -> Iterator[SortedKeys]:
        """Sort a range; the results cover it in ascending order.

        Raises:
            CorruptError: a file is shorter than its segments say.
            UnequalDirectionsError: keys are marked, and the two directions of an edge have different weights.
        """
        if whole.entries <= self._capacity:
            yield self._sort_at_once(whole)
        elif self._keeps and whole.first_key == whole.last_key:
            # Entries of a key arrive in the order of the source, so there is nothing to sort.
            for keys, weights in self._read_by_capacity(whole):
                yield SortedKeys(whole.first_key, whole.last_key, keys, weights, len(keys))
        elif whole.first_key >> self._mark_bits == whole.last_key >> self._mark_bits:
            yield self._merge_copies(whole)
        else:
            yield from self._split(whole)

    def _sort_at_once(self, fitting: KeyRange) -> SortedKeys:
        count = fitting.entries
        keys, weights = self._keys[:count], self._weights[:count]
        if fitting.units is None:
            start = 0
            for segment in fitting.segments:
                stop = start + len(segment)
                segment.read(keys[start:stop], weights[start:stop], self._spare_keys)
                start = stop
            # Between two keys, only the bits up to the highest one in which these two differ can vary.
            bits = (fitting.first_key ^ fitting.last_key).bit_length()
            if not sort_few(keys, weights):
                sort_keys(keys, weights, self._spare_keys[:count], self._spare_weights[:count], bits)
        else:
            # Pass 1 has grouped the entries by unit already; appending the files unit by unit keeps that grouping.
            units, scratch = fitting.units, (self._spare_keys, self._spare_weights)
            position = np.cumsum(units.sizes) - units.sizes
            for segment in fitting.segments:
                segment.gather(units.row_bits, position, keys, weights, scratch)
            if not sort_few(keys, weights):
                sort_buckets(keys, weights, *scratch, units.sizes, units.key_bits)
        if self._keeps:
            return SortedKeys(fitting.first_key, fitting.last_key, keys, weights, count)
        kept = merge_equal_keys(keys, weights, self._mode) if len(weights) else unique_keys(keys)
        return self._joined(fitting, keys[:kept], weights[:kept])

    def _joined(self, whole: KeyRange, keys: Keys, weights: Weights) -> SortedKeys:
        """The result of a range, from its distinct keys."""
        if not self._mark_bits:
            return SortedKeys(whole.first_key, whole.last_key, keys, weights, whole.entries)
        kept, unequal = join_directions(keys, weights)
        if unequal >= 0:
            raise UnequalDirectionsError(int(keys[unequal]) >> 1, (weights[unequal], weights[unequal + 1]))
        first_key, last_key, joined = whole.first_key >> 1, whole.last_key >> 1, len(keys) - kept
        return SortedKeys(first_key, last_key, keys[:kept], weights[:kept], whole.entries, joined)

    def _merge_copies(self, copies: KeyRange) -> SortedKeys:
        """Merge a single key, or both directions of a single edge, with more entries than the buffer holds."""
        # Entries of a key arrive in the order of the source, so there is nothing to sort.
        num_keys = copies.last_key - copies.first_key + 1
        partials, counts = np.zeros((num_keys, MOST_PARTIALS)), np.zeros(num_keys, np.int64)
        for keys, weights in self._read_by_capacity(copies):
            _merge_all(keys, weights, copies.first_key, partials, counts, self._mode)
        found = np.flatnonzero(counts).tolist()
        keys, weights = np.array(found, np.uint64) + np.uint64(copies.first_key), self._weights[:0]
        if len(self._weights):
            merged = [merged_weight(partials[number], counts[number]) for number in found]
            weights = np.array(merged).astype(self._weights.dtype)
        return self._joined(copies, keys, weights)

    def _read_by_capacity(self, whole: KeyRange) -> Iterator[tuple[Keys, Weights]]:
        """Read the entries of a range in order, one buffer at a time."""
        filled = 0
        for segment in whole.segments:
            start = segment.start
            while start < segment.stop:
                stop = min(segment.stop, start + self._capacity - filled)
                end = filled + stop - start
                piece = replace(segment, start=start, stop=stop)
                piece.read(self._keys[filled:end], self._weights[filled:end], self._spare_keys)
                start, filled = stop, end
                if filled == self._capacity:
                    yield self._keys, self._weights
                    filled = 0
        if filled:
            yield self._keys[:filled], self._weights[:filled]

    def _split(self, whole: KeyRange) -> Iterator[SortedKeys]:
        self._folder.mkdir(parents=True, exist_ok=True)
        # A random name, because tasks of several workers split ranges in the same folder.
        path = self._folder / f"split-{uuid.uuid4().hex}"
        # At most 2^BUCKET_BITS buckets, for the reason that ``BUCKET_BITS`` gives. Both directions of an edge stay
        # together.
        shift = max(self._mark_bits, (whole.last_key - whole.first_key).bit_length() - BUCKET_BITS)
        try:
            offsets = self._scatter_again(whole, shift, path)
            with OpenFiles(self._folder) as files:
                for narrower in self._sub_ranges(whole, shift, files.lane(Lane(path.name)), offsets):
                    # Each level removes BUCKET_BITS bits of the range, so this ends with single keys or edges.
                    yield from self.sort(narrower)
        finally:
            path.unlink(missing_ok=True)

    def _scatter_again(self, whole: KeyRange, shift: int, path: Path) -> NDArray[np.int64]:
        """Scatter a range into a file, a buffer at a time.

        Returns:
            (num_buffers, num_buckets + 1) first entry of each bucket of each buffer.
        """
        num_buckets = ((whole.last_key - whole.first_key) >> shift) + 1
        offsets: list[NDArray[np.int64]] = []
        written = 0
        path.touch()
        with writable(self._folder, Lane(path.name)) as out:
            for keys, weights in self._read_by_capacity(whole):
                count = len(keys)
                starts = np.zeros(num_buckets + 1, dtype=np.int64)
                _count_keys(keys, whole.first_key, shift, starts[1:])
                np.cumsum(starts, out=starts)
                spare = self._spare_keys[:count], self._spare_weights[: len(weights)]
                # The scatter advances the positions that it gets, and the starts are still needed as offsets.
                _scatter_keys(keys, weights, whole.first_key, shift, starts[:-1].copy(), *spare)
                # All keys come first, then all weights: the size of the range is known, so both have a fixed place
                # from the start.
                out.write(8 * written, spare[0])
                out.write(8 * whole.entries + weights.itemsize * written, spare[1])
                offsets.append(starts + written)
                written += count
        return np.stack(offsets)

    def _sub_ranges(
        self, whole: KeyRange, shift: int, file: OpenLane, offsets: NDArray[np.int64]
    ) -> Iterator[KeyRange]:
        """Consecutive buckets that fit the buffer together, and single buckets that do not."""
        sizes = np.diff(offsets, axis=1).sum(axis=0)
        for first, last in grouped(sizes, self._capacity):
            pairs = zip(offsets[:, first].tolist(), offsets[:, last].tolist(), strict=True)
            # One segment per buffer, in the order of the buffers: equal keys stay in the order of the source.
            segments = [Segment(file, a, b, 0, 8 * whole.entries, None) for a, b in pairs if a < b]
            first_key = whole.first_key + (first << shift)
            yield KeyRange(first_key, min(whole.last_key, whole.first_key + (last << shift) - 1), segments)


def grouped(sizes: NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
    """Cut 0..len(sizes) into consecutive ranges (start, stop), each as long as its sum stays within ``limit``.

    A single element above the limit is a range of its own.
    """
    start, total = 0, 0
    for number, size in enumerate(sizes.tolist()):
        if number > start and total + size > limit:
            yield start, number
            start, total = number, 0
        total += size
    if start < len(sizes):
        yield start, len(sizes)


@kernel
def _count_keys(keys: Keys, first_key: int, shift: int, counts: NDArray[np.int64]) -> None:
    # The bucket is the distance from the first key, so a range that begins anywhere has no empty buckets in front.
    for k in range(keys.size):
        counts[np.intp((keys[k] - np.uint64(first_key)) >> np.uint64(shift))] += 1


@kernel
def _scatter_keys(
    keys: Keys,
    weights: Weights,
    first_key: int,
    shift: int,
    position: NDArray[np.int64],
    out_keys: Keys,
    out_weights: Weights,
) -> None:
    # In the order of the keys, so that equal keys stay in the order of the source ("first" depends on it).
    for k in range(keys.size):
        bucket = np.intp((keys[k] - np.uint64(first_key)) >> np.uint64(shift))
        target = position[bucket]
        position[bucket] = target + 1
        out_keys[target] = keys[k]
        if weights.size:
            out_weights[target] = weights[k]


@kernel
def _merge_all(
    keys: Keys,
    weights: Weights,
    first_key: int,
    partials: NDArray[np.float64],
    counts: NDArray[np.int64],
    mode: int,
) -> None:
    """Merge the weights of each key from ``first_key`` on, in order, into the results of earlier calls."""
    for k in range(keys.size):
        number = np.intp(keys[k] - np.uint64(first_key))
        if weights.size:
            counts[number] = merge_weight(partials[number], counts[number], np.float64(weights[k]), mode)
        else:
            counts[number] = 1
