"""Names workers that have not answered for some seconds: their processes are stopped or hang, or machines do.

Workers send a heartbeat to the scheduler every second or so, from a thread of its own. Dask compares clocks of the day,
which may jump, and only after minutes. Here a worker is silent while the time of its last heartbeat stays the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from distributed import Client, Scheduler

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Seconds after which a worker counts as silent, and between two looks.
SILENT_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 2.0


class Silence:
    """Seconds since each worker was last heard from.

    Args:
        silent: seconds after which a worker is named.
        most_passed: most seconds between two looks that count: this process may have been stopped meanwhile.
    """

    def __init__(self, silent: float = SILENT_SECONDS, most_passed: float = 2 * LOOK_SECONDS) -> None:
        self._silent, self._most_passed = silent, most_passed
        #: By address: the last heartbeat, and for how many seconds it has been the last.
        self._heard: dict[str, tuple[float, float]] = {}

    def look(self, seen: dict[str, float], passed: float) -> list[str]:
        """Addresses of the workers that have become silent since the last look.

        Args:
            seen: by address, the time of the last heartbeat, on any clock.
            passed: seconds since the last look.
        """
        passed, before, found = min(passed, self._most_passed), self._heard, []
        self._heard = {}
        for address, heartbeat in seen.items():
            last, silent = before.get(address, (heartbeat, 0.0))
            now = silent + passed if last == heartbeat and address in before else 0.0
            self._heard[address] = heartbeat, now
            if silent < self._silent <= now:
                found.append(address)
        return found


@contextmanager
def silence_named(client: Client) -> Iterator[None]:
    """Log a line about each worker of a cluster that becomes silent inside the block."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(client, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def _watch(client: Client, ended: threading.Event) -> None:
    silence, looked = Silence(), time.monotonic()
    while not ended.wait(LOOK_SECONDS):
        # The code that waits for tasks reports a scheduler that is gone.
        with suppress(Exception):
            workers = client.run_on_scheduler(_heartbeats)
            now, looked = looked, time.monotonic()
            for address in silence.look({each: seen for each, (seen, _, _) in workers.items()}, looked - now):
                _, pid, host = workers[address]
                LOGGER.warning(
                    "the worker %s (process %s on %s) has not answered for %.0f seconds: it is stopped or hangs, or its"
                    " machine does; a worker that stays stopped for a minute is killed, and its tasks run elsewhere",
                    address, pid, host, SILENT_SECONDS,
                )  # fmt: skip


def _heartbeats(dask_scheduler: Scheduler) -> dict[str, tuple[float, Any, Any]]:
    """By address: time of the last heartbeat, process and host; the argument's name asks Dask for the scheduler."""
    return {address: (worker.last_seen, worker.pid, worker.host) for address, worker in dask_scheduler.workers.items()}
