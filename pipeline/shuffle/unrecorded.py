"""Shuffles of short steps: their tasks return the content of a record, because they can soon run again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from gnnloom.pipeline.external_sort.lanes import LaneSet, OpenFiles
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.run_list import LaneRuns, save_unmerged
from gnnloom.pipeline.shuffle.shuffle import RunsWriter, Shuffle, ShuffledRows
from gnnloom.storage.disk.work_folder import BESIDE, Scratch


@dataclass(frozen=True)
class UnrecordedShuffle:
    """A shuffle with the lanes of the tasks that route; small and picklable.

    Attributes:
        work: folder that the paths of the lanes are relative to.
    """

    work: Path
    shuffle: Shuffle
    lanes: LaneSet

    @classmethod
    def named(
        cls,
        work: Path,
        name: str,
        tasks: int,
        columns: Sequence[Column],
        num_positions: int = 1,
        scratch: Scratch = BESIDE,
    ) -> UnrecordedShuffle:
        """Name the lanes of at most ``tasks`` tasks; :meth:`create` makes their files."""
        # Not in folders of its own: for rounds of milliseconds, making and removing these takes longer than all else.
        lanes = LaneSet.named(name, tasks, scratch)
        return cls(work, Shuffle(name, num_positions, tuple(columns), num_positions), lanes)

    def create(self) -> None:
        """Make the files, empty, before the first task runs."""
        self.lanes.touch(self.work)

    @property
    def _list(self) -> Path:
        return self.work / f"{self.shuffle.name}.json"

    def routed(self, task: int) -> AbstractContextManager[RunsWriter]:
        """Write the runs of a task; the task returns the list of runs."""
        return self.shuffle.unrecorded(self.work, self.lanes.lane(task))

    def list_runs(self, found: Iterable[tuple[int, LaneRuns]]) -> int:
        """List the runs, before any task reads them.

        Args:
            found: number of each task, and its runs; in any order.

        Returns:
            The number of rows.
        """
        ordered = [runs for _, runs in sorted(found, key=lambda each: each[0])]
        save_unmerged(self._list, ordered)
        return sum(runs.num_rows for runs in ordered)

    def rows(self, files: OpenFiles) -> ShuffledRows:
        """Open the rows, after :meth:`list_runs`."""
        return ShuffledRows(self.shuffle, self._list, files)

    def remove(self) -> None:
        """Remove the files."""
        self.lanes.remove(self.work)
        self._list.unlink(missing_ok=True)
