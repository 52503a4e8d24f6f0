"""A cluster that counts the temporary files that its tasks open to read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.storage.format.artifact import ArtifactWriter


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

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[tuple[str, set[str]]] = []
        self.modules: list[str] = []
        self._read: set[str] | None = None
        self._written: set[str] = set()
        self._filled: set[str] = set()
        # A hook cannot be removed, so it looks whether a task runs.
        sys.addaudithook(self._note)

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            self._read, self._written, self._filled = set(), set(), set()
            yield function(item)
            # A file that was written is opened again to sync it.
            self.opened.append((function.__name__, (self._read - self._written) | self._filled))
            self.modules.append(function.__module__)
            self._read = None

    def tasks(self, function: str) -> int:
        """Tasks that ran a function."""
        return sum(name == function for name, _ in self.opened)

    def opens(self, function: str) -> list[int]:
        """Files that each task of a function opened."""
        return [len(files) for name, files in self.opened if name == function]

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or self._read is None or not isinstance(arguments[0], str):
            return
        path, mode, flags = arguments
        # Records and plans are small files that every task may read; folders are opened to sync them.
        if "/.work/" not in path or "/records/" in path or path.endswith(".json") or Path(path).is_dir():
            return
        if not mode and flags & os.O_ACCMODE == os.O_RDWR:
            # Lanes that the task reads, and in which it fills what others left empty.
            self._filled.add(path)
            return
        # Files that are mapped to write are opened to read first.
        is_read = mode.startswith("r") and "+" not in mode if mode else flags & os.O_ACCMODE == os.O_RDONLY
        (self._read if is_read else self._written).add(path)
