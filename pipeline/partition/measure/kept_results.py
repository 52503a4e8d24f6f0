"""Tasks whose results are files that stay until the stage ends, so an interrupted stage repeats only those missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks
from gnnloom.storage.format.files import written_aside
from gnnloom.storage.format.numpy_files import load_array


class KeepsResult(Protocol):
    """A task that writes its result to a file of its own."""

    @property
    def result_path(self) -> Path: ...


Task = TypeVar("Task", bound=KeepsResult)


def kept_results(function: Callable[[Task], None], tasks: Sequence[Task], cluster: Cluster) -> Iterator[NDArray[Any]]:
    """Run the tasks that have no result yet; then yield the arrays of all results, in order.

    Args:
        function: computes a task, and stores its result with :func:`keep_results`.
    """
    run_tasks(cluster, function, [task for task in tasks if not task.result_path.exists()])
    for task in tasks:
        yield from _arrays(task.result_path)


def keep_results(path: Path, arrays: Iterable[NDArray[Any]]) -> None:
    """Store the arrays that are the result of a task, one in memory at a time; the file appears whole."""
    with written_aside(path) as aside, aside.open("wb") as file:
        for array in arrays:
            np.save(file, array, allow_pickle=False)


def _arrays(path: Path) -> Iterator[NDArray[Any]]:
    size = path.stat().st_size
    with path.open("rb") as file:
        while file.tell() < size:
            yield load_array(file)
