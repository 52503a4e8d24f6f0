"""A cluster that runs the tasks of some phases again, some phases later."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage.disk.work_folder import BESIDE, Scratch

Item = TypeVar("Item")
Result = TypeVar("Result")


class LateCluster(InProcessCluster):
    """Runs the tasks of some phases again some phases later, as workers do that were taken for dead.

    Args:
        is_repeated: from the function of a phase to whether its tasks run again.
        repeated: earlier repeated phases whose tasks run again; -1 is the latest.
        after: whether they run after the tasks of a repeated phase, rather than before those of every phase.

    Attributes:
        late: tasks that ran again.
    """

    def __init__(
        self,
        is_repeated: Callable[[Callable[[Any], Any]], bool],
        repeated: slice,
        *,
        after: bool,
        scratch: Scratch = BESIDE,
    ) -> None:
        super().__init__(scratch=scratch)
        self._is_repeated, self._repeated, self._after = is_repeated, repeated, after
        self._earlier: list[tuple[Callable[[Any], Any], Sequence[Any]]] = []
        self.late = 0

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        if not self._after:
            self._run_late()
        yield from map(function, items)
        if self._is_repeated(function):
            self._earlier.append((function, items))
            if self._after:
                self._run_late()

    def _run_late(self) -> None:
        for function, tasks in self._earlier[self._repeated]:
            for task in tasks:
                self.late += 1
                # What a task would read may be gone.
                with contextlib.suppress(FileNotFoundError):
                    function(task)
