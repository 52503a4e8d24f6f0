"""A request to stop: how it reaches a rank, and how the ranks leave after it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType

from gnnloom.trainer.job.exit_codes import EXIT_STOPPED

#: Environment variable that names a file. If it is set, ranks that were asked to stop leave with code 0, and the first
#: rank creates the file to say so. Slurm needs this: `srun --kill-on-bad-exit` takes any other code for a failure of
#: one rank, kills those that are still leaving, and returns the code of a killed rank.
STOPPED_FILE = "GNNLOOM_STOPPED_FILE"


class StopRequest:
    """Remembers that a signal asked this rank to stop."""

    def __init__(self, *signals: signal.Signals) -> None:
        self.received = False
        self.hear(*signals)

    def hear(self, *signals: signal.Signals) -> None:
        """Remember these signals from now on, whatever happened on them before."""
        for number in signals:
            signal.signal(number, self._receive)
        # Whoever started this process may have blocked them, so that none is lost while Python starts.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

    def _receive(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        # The handler only sets a flag: a checkpoint is collective, so ranks act on the signal together, after an epoch.
        self.received = True

    def __call__(self) -> bool:
        return self.received


def preparing_signals() -> tuple[signal.Signals, ...]:
    """The signals that ask ranks to stop while they prepare.

    Batch systems send SIGUSR1 before the time limit. A launcher sends SIGTERM to end its ranks at once, and waits for
    none of them; but a job with a :data:`STOPPED_FILE` begins again after it was preempted, of which SIGTERM warns.
    """
    return (signal.SIGUSR1, signal.SIGTERM) if os.environ.get(STOPPED_FILE) else (signal.SIGUSR1,)


def code_of_stopped_rank(*, is_first: bool) -> int:
    """Exit code of a rank that was asked to stop. Call it before the rank leaves: it creates the :data:`STOPPED_FILE`.

    Args:
        is_first: this is rank 0, which creates the file.
    """
    file = os.environ.get(STOPPED_FILE)
    if not file:
        return EXIT_STOPPED
    if is_first:
        Path(file).touch()
    return 0
