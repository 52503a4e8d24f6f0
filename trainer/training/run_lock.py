"""Keeps other processes from writing a run while the ranks of one job do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from gnnloom.storage.catalog import Dataset
from gnnloom.storage.runs.run import Run, sole_writer
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.watchdog import WAITING, Watch, clear_reports


@contextmanager
def writing(
    comm: Communicator, find: Callable[[], tuple[Dataset, Run]], wait_timeout: float = 0.0
) -> Iterator[tuple[Dataset, Run]]:
    """Keep other processes from writing a run inside the block: the first rank holds its lock. Collective.

    Args:
        find: opens the run's dataset and the run, on every rank.
        wait_timeout: seconds that a rank may wait for other ranks, here and inside the block; 0 for no limit.

    Yields:
        The result of ``find``.

    Raises:
        CollectiveError: another process writes the run, or ``find`` failed.
    """
    watch = Watch(wait_timeout, None, comm.rank, comm.size)
    with ExitStack() as held:
        held.callback(setattr, comm.traffic, "watch", comm.traffic.watch)
        comm.traffic.watch = watch

        def lock() -> tuple[Dataset, Run]:
            dataset, run = find()
            # One rank takes the lock for all, and if it cannot, no rank goes on. The system drops the lock of a killed
            # process.
            if comm.rank == 0:
                held.enter_context(sole_writer(run))
                clear_reports(run.path / WAITING)
            return dataset, run

        found = together(comm, lock)
        # Only now, so that reports of an earlier job are gone before a rank writes a report.
        watch.folder = found[1].path / WAITING
        yield found
