"""Rows that the tasks of a phase write to their lanes, and that an interrupted run leaves for the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import LaneSet
from gnnloom.pipeline.partition.measure.kept_results import keep_results
from gnnloom.pipeline.partition.range_rows import RangeRows
from gnnloom.pipeline.tasks.cluster import Cluster, run_tasks
from gnnloom.storage.format.files import read_json, write_json


class NumberedTask(Protocol):
    """A task with a number within its phase, from 0 on."""

    @property
    def number(self) -> int: ...


Task = TypeVar("Task", bound=NumberedTask)


@dataclass(frozen=True)
class KeptRows:
    """The rows of a phase, and an empty file for each task that has written its own; small and picklable."""

    rows: RangeRows

    @classmethod
    def prepare(cls, folder: Path, name: str, tasks: int, width: int, num_ranges: int) -> Self:
        """Go on with the files of a run that was interrupted, or create new ones if there are none or one was lost.

        Args:
            folder: folder of the files.
            name: of the rows; a run that goes on gives the same sizes with it.
            tasks, width, num_ranges: see :class:`RangeRows`.
        """
        plan = folder / f"{name}.json"
        lanes = LaneSet(**read_json(plan)) if plan.exists() else None
        if lanes is None or not all((folder / path).exists() for path in lanes.paths):
            lanes = LaneSet.create(folder, name, tasks)
            write_json(plan, asdict(lanes))
        kept = cls(RangeRows(folder, lanes, width, num_ranges))
        kept._done_folder.mkdir(exist_ok=True)
        return kept

    @property
    def _done_folder(self) -> Path:
        # Named like the lanes: files that were made again are not those that an earlier task wrote.
        return self.rows.folder / f"{self.rows.lanes.prefix}-done"

    def _done(self, task: int) -> Path:
        return self._done_folder / f"{task:05d}"

    def run(self, function: Callable[[Task], None], tasks: Sequence[Task], cluster: Cluster) -> None:
        """Run the tasks that have not written their rows yet.

        Args:
            function: computes the rows of a task, and stores them with :meth:`keep`.
        """
        run_tasks(cluster, function, [task for task in tasks if not self._done(task.number).exists()])

    def keep(self, task: int, rows: NDArray[Any], begin: NDArray[np.int64]) -> None:
        """Store the rows of a task.

        Args:
            rows: (num_rows, width) int64 or uint64, grouped by range.
            begin: (num_ranges + 1,) int64 row at which each range begins, and their end.
        """
        self.rows.write(task, [(rows, begin)])
        keep_results(self._done(task), [])
