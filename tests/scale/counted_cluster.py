"""Clusters that count what their tasks do: the temporary files that they open, the bytes that they write and hold."""

from __future__ import annotations

import mmap
import os
import shutil
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.storage.disk import numpy_files
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.format.artifact import ArtifactWriter
from support.opened_files import hearing_of_files

#: Bytes of the header of a vector in NumPy's format.
_HEADER_BYTES = 128


def written_bytes(writer: ArtifactWriter, phase: Phase) -> int:
    """Bytes of the runs that the tasks of a phase recorded."""
    recorded = writer.recorded_of(task.name for task in phase.tasks).values()
    return sum(runs["bytes"] for record in recorded for runs in record.facts["runs"].values())


class OpenCounter(InProcessCluster):
    """Runs tasks one after another, and lists the temporary files that each opens to read.

    Attributes:
        opened: for each task, the name of its function and these files.
        modules: for each task, the module of its function.
    """

    def __init__(self, scratch: Scratch = BESIDE) -> None:
        super().__init__(scratch=scratch)
        self.opened: list[tuple[str, set[str]]] = []
        self.modules: list[str] = []
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._filled: set[str] = set()

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            self._read, self._written, self._filled = set(), set(), set()
            with hearing_of_files(self._note):
                yield function(item)
            # A file that was written is opened again to sync it.
            self.opened.append((function.__name__, (self._read - self._written) | self._filled))
            self.modules.append(function.__module__)

    def tasks(self, function: str) -> int:
        """Tasks that ran a function."""
        return sum(name == function for name, _ in self.opened)

    def opens(self, function: str) -> list[int]:
        """Files that each task of a function opened."""
        return [len(files) for name, files in self.opened if name == function]

    def _note(self, path: Any, mode: Any, flags: Any) -> None:
        # Records and plans are small files that every task may read; folders are opened to sync them.
        if (
            not isinstance(path, str)
            or "/.work/" not in path
            or "/records/" in path
            or path.endswith(".json")
            or Path(path).is_dir()
        ):
            return
        if not mode and flags & os.O_ACCMODE == os.O_RDWR:
            # Lanes that the task reads, and in which it fills what others left empty.
            self._filled.add(path)
            return
        # Files that are mapped to write are opened to read first.
        is_read = mode.startswith("r") and "+" not in mode if mode else flags & os.O_ACCMODE == os.O_RDONLY
        (self._read if is_read else self._written).add(path)


@dataclass(frozen=True)
class Metered:
    """What the tasks of one phase did.

    Attributes:
        where: module and name of their function.
        opens: temporary files that each opened to read.
        written: bytes that they wrote to files that were not mapped.
        mapped: bytes of all files that they mapped to write.
        changed: those of them that are not as they were.
        held: bytes that each allocated at once, without those of kernels.
    """

    where: tuple[str, str]
    opens: list[int]
    written: int
    mapped: int
    changed: int
    held: list[int]


class MeteredCluster(OpenCounter):
    """Measures what the tasks of each phase do.

    Attributes:
        phases: in the order in which they ran.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, workers: int = 1, scratch: Scratch = BESIDE) -> None:
        super().__init__(scratch)
        self.workers = workers
        self.phases: list[Metered] = []
        self._mapped: dict[Path, Path] = {}
        map_file = numpy_files._map_file

        def noting(path: Path, mode: Literal["r", "r+"]) -> mmap.mmap:
            if mode == "r+" and path not in self._mapped:
                # Not into memory, which is measured.
                self._mapped[path] = shutil.copyfile(path, path.with_name(f"{path.name}.{len(self._mapped)}"))
            return map_file(path, mode)

        monkeypatch.setattr(numpy_files, "_map_file", noting)

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        written, held, first = 0, list[int](), len(self.opened)
        self._mapped.clear()
        for item in items:
            before = _bytes_written()
            tracemalloc.start()
            (result,) = super().map(function, [item])
            held.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            written += _bytes_written() - before
            yield result
        opens = [len(files) for _, files in self.opened[first:]]
        contents = [(copy.read_bytes(), path.read_bytes()) for path, copy in self._mapped.items()]
        written -= sum(len(content) for content, _ in contents)
        for copy in self._mapped.values():
            copy.unlink()
        mapped = sum(len(now) - _HEADER_BYTES * now.startswith(np.lib.format.MAGIC_PREFIX) for _, now in contents)
        changed = sum(int((np.frombuffer(one, "u1") != np.frombuffer(now, "u1")).sum()) for one, now in contents)
        self.phases.append(Metered((function.__module__, function.__name__), opens, written, mapped, changed, held))


def _bytes_written() -> int:
    """Bytes that this process has written to files so far, without those of mapped files."""
    fields = Path("/proc/self/io").read_text().split()
    return int(fields[fields.index("wchar:") + 1])
