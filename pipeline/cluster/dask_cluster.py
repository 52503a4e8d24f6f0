"""Tasks on the workers of a Dask client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from gnnloom.pipeline.cluster.dask_tasks import SentItems, prepare, run_task, sent_once
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.errors import LaunchError
from gnnloom.storage.machine_memory import memory_text

if TYPE_CHECKING:
    from distributed import Client, Future, Worker
    from distributed.scheduler import WorkerState

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Longest wait for tasks that run when another one fails, and seconds between looks. A task takes seconds.
_STOP_SECONDS, _STOP_POLL_SECONDS = 300.0, 0.05


class LostClusterError(LaunchError):
    """The scheduler is gone, and the state of its tasks is unknown."""

    def __init__(self) -> None:
        super().__init__(
            "the connection to the Dask scheduler was lost: start it again if it has ended, and run the command again;"
            " finished tasks are kept"
        )


class DaskCluster:
    """Tasks on the workers of a Dask client."""

    def __init__(self, client: Client, workers: int, memory: int, scratch: Scratch = BESIDE) -> None:
        self._client = client
        self.workers = workers
        self.memory, self.scratch = memory, scratch

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        prepared = prepare(function, items)
        with sent_once(self._client, prepared):
            yield from self._run(function, prepared)

    def _run(self, function: Callable[[Item], Result], prepared: SentItems) -> Iterator[Result]:
        from distributed import KilledWorker  # noqa: PLC0415 - takes a second to import

        futures = self._client.map(
            run_task, prepared.items, function=function, key=prepared.keys, pure=False, batch_size=1000
        )
        try:
            yield from _completed(futures)
        except KilledWorker as error:
            self._stop(futures)
            raise self._killed(error.last_worker) from error
        except LostClusterError:
            # The scheduler is gone, so the tasks cannot be canceled.
            raise
        # Running tasks write into folders that the caller is about to remove.
        except Exception:
            self._stop(futures)
            raise
        # This includes a caller that stops iterating: tasks that nobody waits for must not go on writing.
        except BaseException:
            self._client.cancel(futures)
            raise

    def _killed(self, last: WorkerState) -> LaunchError:
        """The error if workers were killed, by their nannies or by others; ``last`` is the last killed worker."""
        from gnnloom.pipeline.cluster.processes import ended_workers  # noqa: PLC0415 - imports Dask

        held = 0
        # A scheduler that is gone cannot say which workers were ended.
        with suppress(OSError, TimeoutError):
            held = ended_workers(self._client).get((last.nanny, last.pid), 0)
        if held:
            return LaunchError(
                f"a task took {memory_text(held)}, far more than a worker may use (--memory,"
                f" {memory_text(self.memory)}), and the machine or the job ran out of memory, so the worker was ended,"
                " several times in a row: use fewer --workers, or a machine with more memory; finished tasks are kept"
            )
        return LaunchError(
            "several worker processes in a row were killed at the same task, most often because memory ran out:"
            " lower --memory (the limit of each worker) or --workers (their number), and run the command again;"
            " finished tasks are kept"
        )

    def _stop(self, futures: Sequence[Future[Result]]) -> None:
        """Cancel all tasks, and wait for running tasks: a thread in a worker cannot be stopped."""
        self._client.cancel(futures)
        deadline = time.monotonic() + _STOP_SECONDS
        # Workers that are gone, or whose scheduler is, run nothing.
        with suppress(OSError, TimeoutError, ValueError):
            while any(self._client.run(_running).values()) and time.monotonic() < deadline:
                time.sleep(_STOP_POLL_SECONDS)


def _running(dask_worker: Worker) -> int:
    """Number of tasks that a worker is running, canceled ones included; the argument's name asks Dask for it."""
    return len(dask_worker.state.executing)


def _completed(futures: Sequence[Future[Result]]) -> Iterator[Result]:
    """Yield results in order of completion."""
    from distributed import as_completed as dask_completed  # noqa: PLC0415 - takes a second to import

    for future, result in dask_completed(futures, with_results=True):
        # Dask returns the error that belongs to this state instead of raising it.
        if future.cancelled():
            raise LostClusterError
        yield result
