"""Files that several tasks write, each into a lane of its own, so that a task that reads all lanes opens few files.

A file consists of pages. Of ``n`` lanes, lane ``k`` has the pages k, k + n, k + 2 n and so on, and is written and read
as if it was a file of its own. So every lane can become as long as it needs to be, and nobody has to know its length
beforehand. Pages that nothing was written to are holes, which take no room on the disk.

The tasks of a phase leave their results in the lanes of at most 16 files, and every task of the next phase opens only
these, however many tasks wrote them. A killed task is not recorded; it runs again, and writes the same bytes to the
same lane.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.raw_files import read_open_file, write_at
from gnnloom.storage.errors import IncompleteError

#: Files that the tasks of a phase write together, for each array.
MOST_FILES: Final = 16
#: Bytes of a page: long enough to be read at the speed of a long file, and a multiple of the usual stripes of parallel
#: file systems, on which nodes that write different stripes do not wait for each other.
PAGE_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class Lane:
    """One task's part of a file; a whole file by default.

    Attributes:
        path: path of the file, relative to a folder that its users know.
        number: number of the lane.
        lanes: lanes of the file.
    """

    path: str
    number: int = 0
    lanes: int = 1

    def pieces(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """The consecutive bytes ``offset`` to ``offset + size`` of the lane: where each piece begins, and its bytes."""
        stop = offset + size
        while offset < stop:
            count = size if self.lanes == 1 else min(stop - offset, PAGE_BYTES - offset % PAGE_BYTES)
            yield self.place(offset), count
            offset += count

    def place(self, offset: int) -> int:
        """The byte of the file with a byte of the lane."""
        if self.lanes == 1:
            return offset
        page, within = divmod(offset, PAGE_BYTES)
        return (page * self.lanes + self.number) * PAGE_BYTES + within

    def is_in_one_piece(self, offset: int, size: int) -> bool:
        """Whether consecutive bytes of the lane follow each other in the file."""
        return self.lanes == 1 or offset % PAGE_BYTES + size <= PAGE_BYTES

    def is_intact(self, folder: Path, size: int) -> bool:
        """Whether the file exists and is long enough for a lane of ``size`` bytes."""
        try:
            length = (folder / self.path).stat().st_size
        except FileNotFoundError:
            return False
        return all(begin + count <= length for begin, count in self.pieces(max(0, size - 1), min(size, 1)))

    def to_json(self) -> list[Any]:
        return list(astuple(self))

    @classmethod
    def from_json(cls, content: Sequence[Any]) -> Lane:
        return cls(*content)


@dataclass(frozen=True)
class LaneSet:
    """The lanes of a phase's tasks, in at most 16 files.

    Attributes:
        prefix: of the paths of the files.
        count: number of lanes.
    """

    prefix: str
    count: int

    @classmethod
    def create(cls, folder: Path, prefix: str, count: int) -> LaneSet:
        """Create the files, empty, under names that no other call gives.

        A record that names a lane is thus about the file that its task wrote, and never about one that was lost and
        made again. A task of an earlier command that is still running writes to files of its own.

        Args:
            folder: folder that the paths are relative to.
            prefix: of the paths; their folder need not exist.
            count: number of tasks.
        """
        lanes = cls(f"{prefix}-{uuid.uuid4().hex}", count)
        (folder / prefix).parent.mkdir(parents=True, exist_ok=True)
        for path in lanes.paths:
            (folder / path).touch(exist_ok=False)
        return lanes

    @property
    def num_files(self) -> int:
        return num_shared_files(self.count)

    @property
    def paths(self) -> list[str]:
        """Paths of the files."""
        return [f"{self.prefix}-{number:02d}" for number in range(self.num_files)]

    def lane(self, task: int) -> Lane:
        """The lane of a task."""
        # Consecutive tasks run at the same time, and writers of one file wait for each other.
        number, file = divmod(task, self.num_files)
        return Lane(f"{self.prefix}-{file:02d}", number, -(-self.count // self.num_files))

    def remove(self, folder: Path) -> None:
        """Remove the files."""
        for path in self.paths:
            (folder / path).unlink(missing_ok=True)


def num_shared_files(tasks: int) -> int:
    """Files in which so many tasks write their lanes."""
    return min(tasks, MOST_FILES)


class OpenLane:
    """A lane that is open: to be read, written, or both, as it was opened."""

    def __init__(self, lane: Lane, descriptor: int, path: Path) -> None:
        self._lane, self._descriptor, self.path = lane, descriptor, path

    def read(self, offset: int, out: NDArray[Any]) -> None:
        """Fill a contiguous array of any shape and dtype from a byte offset of the lane.

        Raises:
            CorruptError: the file is too short.
        """
        # Most reads are short, and there are many of them.
        if self._lane.is_in_one_piece(offset, out.nbytes):
            read_open_file(self._descriptor, self.path, self._lane.place(offset), out)
            return
        rest = out.reshape(-1).view(np.uint8)
        for begin, count in self._lane.pieces(offset, len(rest)):
            read_open_file(self._descriptor, self.path, begin, rest[:count])
            rest = rest[count:]

    def write(self, offset: int, array: NDArray[Any]) -> int:
        """Write all of a contiguous array, of any shape and dtype, at a byte offset of the lane.

        Returns:
            The offset after the last byte.
        """
        rest = array.reshape(-1).view(np.uint8)
        for begin, count in self._lane.pieces(offset, len(rest)):
            write_at(self._descriptor, begin, rest[:count])
            rest = rest[count:]
        return offset + array.nbytes

    def sync(self) -> None:
        """Wait until all that was written to the file is on disk."""
        os.fsync(self._descriptor)


class OpenFiles:
    """The files with the lanes that a task reads: each is opened once, when it is first needed, and closed at the end.

    Use it in a ``with`` statement.
    """

    def __init__(self, folder: Path, *, writable: bool = False) -> None:
        """Open nothing yet.

        Args:
            folder: folder that the paths of lanes are relative to.
            writable: whether the task also writes to the lanes that it reads.
        """
        self._folder = folder
        self._flags = os.O_RDWR if writable else os.O_RDONLY
        # Most reads are short, and joining paths would take longer than they do.
        self._opened: dict[str, tuple[int, Path]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor, _ in self._opened.values():
            os.close(descriptor)
        self._opened.clear()

    def lane(self, lane: Lane) -> OpenLane:
        """Open a lane.

        Raises:
            IncompleteError: its file is missing.
        """
        if lane.path not in self._opened:
            path = self._folder / lane.path
            self._opened[lane.path] = _open(path, self._flags), path
        return OpenLane(lane, *self._opened[lane.path])


@contextmanager
def writable(folder: Path, lane: Lane) -> Iterator[OpenLane]:
    """Open a lane to write it; its file exists already.

    Raises:
        IncompleteError: the file is missing.
    """
    path = folder / lane.path
    # Not created here: what other tasks have written to a lost file would be missing from the new one.
    descriptor = _open(path, os.O_WRONLY)
    try:
        yield OpenLane(lane, descriptor, path)
    finally:
        os.close(descriptor)


def write_arrays(folder: Path, lane: Lane, offset: int, arrays: Sequence[NDArray[Any]]) -> int:
    """Write arrays one after another, from a byte offset of a lane on; returns the offset after the last byte."""
    with writable(folder, lane) as opened:
        for array in arrays:
            offset = opened.write(offset, np.ascontiguousarray(array))
    return offset


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise IncompleteError(
            f"{path}: disappeared while it was in use; make sure that nothing else deletes files there, and run the"
            " same command again"
        ) from error
