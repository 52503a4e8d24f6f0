"""Files that several tasks write, each into a lane of its own, so that a task that reads all lanes opens few files.

A file consists of pages. Of ``n`` lanes, lane ``k`` has the pages k, k + n, k + 2 n and so on, and is written and read
as if it was a file of its own. So every lane can grow to any length, which need not be known beforehand. Pages that
were never written are holes, which take no disk space.

The tasks of a phase leave their results in the lanes of at most 16 files, and every task of the next phase opens only
these, however many tasks wrote them. A killed task is not recorded; it runs again, and writes the same bytes to the
same lane.

The data of a task is sealed: the lane begins with a *seal*, and ends with a table of the checksums (crc32c) of its
blocks of 16 KiB. The seal has the size of the data, the checksum of the table, and a checksum of itself together with
the names of the file and the lane. Every read compares the blocks that it touches. So a lane that was damaged, cut,
exchanged for another or partly written is never read as a whole one.

    seal    (16 bytes)            size of the data (int64), checksums (uint32) of the table and of the seal
    data (size,) uint8 data of the task; byte offsets of readers and writers count from here
    table   (num_blocks,) uint32  checksum of each block of the data; the last block may be shorter
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.raw_files import read_into, write_at
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.errors import CorruptError, DamagedWorkError, IncompleteError
from gnnloom.storage.system_errors import naming

#: Bytes per checksum. A reader of 64 KiB of a lane of 64 MiB then reads 16 KiB of checksums, and about 16 KiB of data
#: around the data that it wants; with blocks of half or twice the size, the sum is larger.
BLOCK_BYTES: Final = 16 << 10
#: Bytes of the seal, which the data follow.
SEAL_BYTES: Final = 16


@dataclass(frozen=True)
class Lane:
    """One task's part of a file; a whole file by default.

    Attributes:
        path: path of the file, relative to a folder that its users know.
        number: number of the lane.
        lanes: lanes of the file.
        page_bytes: bytes of a page of the file.
    """

    path: str
    number: int = 0
    lanes: int = 1
    page_bytes: int = BESIDE.page_bytes

    def pieces(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """Pieces of the file that hold the bytes ``offset`` to ``offset + size`` of the lane; the seal comes first.

        Yields:
            Where each piece begins, and its bytes.
        """
        stop = offset + size
        while offset < stop:
            count = size if self.lanes == 1 else min(stop - offset, self.page_bytes - offset % self.page_bytes)
            yield self.place(offset), count
            offset += count

    def place(self, offset: int) -> int:
        """The byte of the file with a byte of the lane."""
        if self.lanes == 1:
            return offset
        page, within = divmod(offset, self.page_bytes)
        return (page * self.lanes + self.number) * self.page_bytes + within

    def is_intact(self, folder: Path, size: int) -> bool:
        """Whether the file exists and is long enough for ``size`` bytes of data; reading them compares checksums."""
        try:
            length = (folder / self.path).stat().st_size
        except FileNotFoundError:
            return False
        return self.place(SEAL_BYTES + size + table_bytes(size) - 1) < length

    def to_json(self) -> list[Any]:
        return list(astuple(self))

    @classmethod
    def from_json(cls, content: Sequence[Any]) -> Lane:
        return cls(*content)


@dataclass(frozen=True)
class LaneSet:
    """The lanes of a phase's tasks, in at most ``scratch.files`` files.

    Attributes:
        prefix: of the paths of the files.
        count: number of lanes.
        scratch: number of files and bytes of their pages.
    """

    prefix: str
    count: int
    scratch: Scratch = BESIDE

    @classmethod
    def create(cls, folder: Path, prefix: str, count: int, scratch: Scratch = BESIDE) -> LaneSet:
        """Create the files, empty, under names that no other call gives.

        A record that names a lane is thus about the file that its task wrote, and never about one that was lost and
        made again. A task of an earlier command that is still running writes to files of its own.

        Args:
            folder: folder that the paths are relative to.
            prefix: of the paths; their folder need not exist.
            count: number of tasks.
            scratch: number of files and bytes of their pages.
        """
        lanes = cls.named(prefix, count, scratch)
        lanes.touch(folder)
        return lanes

    @classmethod
    def named(cls, prefix: str, count: int, scratch: Scratch = BESIDE) -> LaneSet:
        """Name files as :meth:`create` does; :meth:`touch` makes them."""
        return cls(f"{prefix}-{uuid.uuid4().hex}", count, scratch)

    def touch(self, folder: Path) -> None:
        """Make the files, empty."""
        (folder / self.prefix).parent.mkdir(parents=True, exist_ok=True)
        for path in self.paths:
            (folder / path).touch(exist_ok=False)

    @cached_property
    def num_files(self) -> int:
        return num_shared_files(self.count, self.scratch)

    @property
    def paths(self) -> list[str]:
        """Paths of the files."""
        return [f"{self.prefix}-{number:02d}" for number in range(self.num_files)]

    def lane(self, task: int) -> Lane:
        """The lane of a task."""
        # Consecutive tasks run at the same time, and writers of one file wait for each other.
        num_files = self.num_files
        number, file = divmod(task, num_files)
        return Lane(f"{self.prefix}-{file:02d}", number, -(-self.count // num_files), self.scratch.page_bytes)

    def remove(self, folder: Path) -> None:
        """Remove the files."""
        for path in self.paths:
            (folder / path).unlink(missing_ok=True)


def num_shared_files(tasks: int, scratch: Scratch = BESIDE) -> int:
    """Number of files in which ``tasks`` tasks write their lanes."""
    return min(tasks, scratch.files)


class LaneWriter:
    """A lane that is open to be written, in any order; :meth:`seal` ends it."""

    def __init__(self, lane: Lane, descriptor: int, path: Path) -> None:
        self._lane, self._descriptor, self._path = lane, descriptor, path
        self._size = 0
        #: For each block that is written from its begin on: where the next bytes belong, and the checksum so far.
        self._sums: dict[int, tuple[int, int]] = {}
        #: Blocks that were written in another order.
        self._mixed: set[int] = set()

    def write(self, offset: int, array: NDArray[Any]) -> int:
        """Write all of a contiguous array, of any shape and dtype, at a byte offset.

        Returns:
            The offset after the last byte.
        """
        data = array.reshape(-1).view(np.uint8)
        stop = offset + len(data)
        if not len(data):
            return stop
        self._put(SEAL_BYTES + offset, data)
        # The bytes are in the cache of the processor now.
        head = min(-offset % BLOCK_BYTES, len(data))
        tail = max(head, len(data) - stop % BLOCK_BYTES)
        self._extend(offset, data[:head])
        for block, checksum in enumerate(_block_sums(data[head:tail]), (offset + head) // BLOCK_BYTES):
            self._sums[block] = (block + 1) * BLOCK_BYTES, checksum
        self._extend(offset + tail, data[tail:])
        self._size = max(self._size, stop)
        return stop

    def _extend(self, offset: int, data: NDArray[np.uint8]) -> None:
        """Extend the checksum of a partly written block."""
        if not len(data):
            return
        block = offset // BLOCK_BYTES
        filled, checksum = self._sums.get(block, (block * BLOCK_BYTES, 0))
        if offset == filled:
            self._sums[block] = offset + len(data), google_crc32c.extend(checksum, data)
        else:
            self._mixed.add(block)

    def seal(self) -> None:
        """Write the table of checksums and the seal."""
        sums = {block: checksum for block, (_, checksum) in self._sums.items()}
        mixed = self._mixed | {block for block, (end, _) in self._sums.items() if end < self._end_of(block)}
        if mixed:
            with self._path.open("rb", buffering=0) as file:
                for block in mixed:
                    sums[block] = google_crc32c.value(self._stored(file.fileno(), block))
        table = np.zeros(_num_blocks(self._size), np.uint32)
        if sums:
            table[list(sums)] = list(sums.values())
        self._put(SEAL_BYTES + self._size, table.view(np.uint8))
        self._put(0, _seal(self._lane, self._size, google_crc32c.value(table.view(np.uint8))))

    def _end_of(self, block: int) -> int:
        return min((block + 1) * BLOCK_BYTES, self._size)

    def _stored(self, descriptor: int, block: int) -> NDArray[np.uint8]:
        """The bytes of a block; unwritten bytes are zero, also beyond the end of the file."""
        begin = block * BLOCK_BYTES
        data = np.zeros(self._end_of(block) - begin, np.uint8)
        rest = data.data
        for place, count in self._lane.pieces(SEAL_BYTES + begin, len(data)):
            os.preadv(descriptor, [rest[:count]], place)
            rest = rest[count:]
        return data

    def _put(self, offset: int, data: NDArray[np.uint8]) -> None:
        for begin, count in self._lane.pieces(offset, len(data)):
            write_at(self._descriptor, begin, data[:count])
            data = data[count:]


class OpenLane:
    """A sealed lane that is open to be read."""

    def __init__(self, lane: Lane, descriptor: int, path: Path) -> None:
        self._lane, self._descriptor, self.path = lane, descriptor, path
        #: Block that the first row of ``_spare`` has, compared with its checksum: the data of a small run in a lane are
        #: often in one block, and are read in many short pieces.
        self._kept = -1

    @cached_property
    def _spare(self) -> NDArray[np.uint8]:
        """Memory for a block, or for the unwanted bytes of the first and the last block."""
        return np.empty((2, BLOCK_BYTES), np.uint8)

    @property
    def size(self) -> int:
        """Bytes of the data.

        Raises:
            DamagedWorkError: the seal or the checksums are damaged.
        """
        return self._table[0]

    @property
    def checksum(self) -> int:
        """A checksum of the data, computed from the checksums of its blocks. Raises the errors of :attr:`size`."""
        return int(google_crc32c.value(self._table[1].view(np.uint8)))

    @cached_property
    def _table(self) -> tuple[int, NDArray[np.uint32]]:
        """Bytes of the data, and the checksum of each block."""
        seal = np.empty(SEAL_BYTES, np.uint8)
        self._fill(0, [seal])
        size, checksum = int(seal[:8].view(np.int64)[0]), int(seal[8:12].view(np.uint32)[0])
        if size < 0 or seal.tobytes() != _seal(self._lane, size, checksum).tobytes():
            raise self._damaged("its seal")
        table = np.empty(_num_blocks(size), np.uint32)
        self._fill(SEAL_BYTES + size, [table.view(np.uint8)])
        if google_crc32c.value(table.view(np.uint8)) != checksum:
            raise self._damaged("its checksums")
        return size, table

    def read(self, offset: int, out: NDArray[Any]) -> None:
        """Fill a contiguous array of any shape and dtype from a byte offset, and compare the blocks that it is in.

        Raises:
            DamagedWorkError: the bytes differ from the bytes that the writer sealed, or are fewer.
        """
        wanted = out.reshape(-1).view(np.uint8)
        if not len(wanted):
            return
        size, table = self._table
        stop = offset + len(wanted)
        if stop > size:
            raise self._damaged(f"bytes {offset} to {stop}, of {size}")
        first, last = offset // BLOCK_BYTES, -(-stop // BLOCK_BYTES)
        if last - first == 1 and len(wanted) < BLOCK_BYTES:
            begin = first * BLOCK_BYTES
            wanted[:] = self._block(first)[offset - begin : stop - begin]
            return
        self._kept = -1
        head = self._spare[0, : offset - first * BLOCK_BYTES]
        tail = self._spare[1, : min(last * BLOCK_BYTES, size) - stop]
        # Whole blocks are read, in one call: those at both ends are compared with the bytes around the wanted ones.
        self._fill(SEAL_BYTES + first * BLOCK_BYTES, [head, wanted, tail])
        begin, end = -offset % BLOCK_BYTES, len(wanted) - (stop % BLOCK_BYTES if len(tail) else 0)
        sums = _block_sums(wanted[begin:end])
        if begin:
            sums.insert(0, google_crc32c.extend(google_crc32c.value(head), wanted[:begin]))
        if len(tail):
            sums.append(google_crc32c.extend(google_crc32c.value(wanted[end:]), tail))
        for block in first + np.flatnonzero(table[first:last] != np.array(sums, np.uint32)):
            raise self._damaged(f"bytes {block * BLOCK_BYTES} to {min((block + 1) * BLOCK_BYTES, size)}")

    def _block(self, block: int) -> NDArray[np.uint8]:
        """The bytes of a block, compared; they change with the next read."""
        size, table = self._table
        begin, end = block * BLOCK_BYTES, min((block + 1) * BLOCK_BYTES, size)
        found = self._spare[0, : end - begin]
        if block != self._kept:
            self._kept = -1
            self._fill(SEAL_BYTES + begin, [found])
            if google_crc32c.value(found) != table[block]:
                raise self._damaged(f"bytes {begin} to {end}")
            self._kept = block
        return found

    def _fill(self, offset: int, buffers: Sequence[NDArray[np.uint8]]) -> None:
        """Read consecutive bytes of the lane, seal included, into several buffers."""
        views = [buffer.data for buffer in buffers if len(buffer)]
        try:
            for begin, count in self._lane.pieces(offset, sum(map(len, views))):
                views = read_into(self._descriptor, self.path, begin, views, count)
        except CorruptError as error:
            raise self._damaged("its end") from error

    def _damaged(self, what: str) -> DamagedWorkError:
        return DamagedWorkError(self.path, f"lane {self._lane.number} is damaged: {what}")


class OpenFiles:
    """The files with the lanes that a task reads: each is opened once, when it is first needed, and closed at the end.

    Use it in a ``with`` statement.
    """

    def __init__(self, folder: Path) -> None:
        """Open nothing yet.

        Args:
            folder: folder that the paths of lanes are relative to.
        """
        self._folder = folder
        self._opened: dict[str, tuple[int, Path]] = {}
        # Most reads are short, and reading the seal of a lane again would take as long as they do.
        self._lanes: dict[Lane, OpenLane] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor, _ in self._opened.values():
            os.close(descriptor)
        self._opened.clear()
        self._lanes.clear()

    def lane(self, lane: Lane) -> OpenLane:
        """Open a lane.

        Raises:
            IncompleteError: its file is missing.
        """
        if lane not in self._lanes:
            if lane.path not in self._opened:
                file = self._folder / lane.path
                self._opened[lane.path] = _open(file, os.O_RDONLY), file
            self._lanes[lane] = OpenLane(lane, *self._opened[lane.path])
        return self._lanes[lane]


@contextmanager
def writable(folder: Path, lane: Lane) -> Iterator[LaneWriter]:
    """Open a lane to write it, and seal it at the end of the block; its file exists already.

    Raises:
        IncompleteError: the file is missing.
    """
    # Not created here: a new file would lack the data that other tasks have written to a lost one.
    path = folder / lane.path
    descriptor = _open(path, os.O_WRONLY)
    try:
        writer = LaneWriter(lane, descriptor, path)
        with naming(path):
            yield writer
            writer.seal()
    finally:
        os.close(descriptor)


def write_arrays(folder: Path, lane: Lane, arrays: Sequence[NDArray[Any]]) -> int:
    """Write arrays one after another to a lane; returns the bytes of all."""
    end = 0
    with writable(folder, lane) as opened:
        for array in arrays:
            end = opened.write(end, np.ascontiguousarray(array))
    return end


def _block_sums(data: NDArray[np.uint8]) -> list[int]:
    """The checksum of each block of consecutive ones; only the last may be shorter."""
    return [google_crc32c.value(data[begin : begin + BLOCK_BYTES]) for begin in range(0, len(data), BLOCK_BYTES)]


def _num_blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES)


def table_bytes(size: int) -> int:
    """Size of the checksums of ``size`` bytes of data; a reader of a lane holds them in memory."""
    return 4 * _num_blocks(size)


def _seal(lane: Lane, size: int, checksum: int) -> NDArray[np.uint8]:
    """(16,) uint8 seal of a lane: the size of its data, the checksum of its table, and a checksum of both.

    Args:
        size: bytes of data.
        checksum: of the table.
    """
    content = np.array([size], np.int64).tobytes() + np.array([checksum], np.uint32).tobytes()
    # The last one covers the lane's name too, so that a lane in the place of another is refused.
    own = google_crc32c.value(content + f"{lane.path} {lane.number} {lane.lanes}".encode())
    return np.frombuffer(content + np.array([own], np.uint32).tobytes(), np.uint8)


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise IncompleteError(
            f"{path}: disappeared while it was in use; make sure that nothing else deletes files there, and run the"
            " same command again"
        ) from error
