"""A request to stop: how it reaches a rank, and how the ranks leave after it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType

#: Environment variable that names a file. If it is set, ranks that have agreed on an exit code leave with code 0, and
#: the first rank writes the code into the file. Slurm needs this: ``srun --kill-on-bad-exit``, which ends a job whose
#: rank crashes, takes any other code for a crash, kills those that are still leaving, and returns the code of a killed
#: rank.
EXIT_CODE_FILE = "GNNLOOM_EXIT_CODE_FILE"


class StopRequest:
    """Remembers that a signal asked this rank to stop."""

    def __init__(self, *signals: signal.Signals) -> None:
        self.received = False
        self._heard: list[signal.Signals] = []
        self.hear(*signals)

    def hear(self, *signals: signal.Signals) -> None:
        """Remember these signals from now on, whatever happened on them before."""
        for number in signals:
            signal.signal(number, self._receive)
            self._heard.append(number)
        # Whoever started this process may have blocked them, so that none is lost while Python starts.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

    def release(self) -> None:
        """Let the signals end this process from now on; one that has come already ends it now."""
        for number in self._heard:
            signal.signal(number, signal.SIG_DFL)
        if self.received:
            signal.raise_signal(signal.SIGTERM)

    def _receive(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        # The handler only sets a flag: a checkpoint is collective, so ranks act on the signal together, after an epoch.
        self.received = True

    def __call__(self) -> bool:
        return self.received


def preparing_signals() -> tuple[signal.Signals, ...]:
    """The signals that ask ranks to stop while they prepare.

    Batch systems send SIGUSR1 before the time limit. A launcher sends SIGTERM to end its ranks at once, and waits for
    none of them; but a job with an :data:`EXIT_CODE_FILE` begins again after it was preempted, of which SIGTERM warns.
    """
    return (signal.SIGUSR1, signal.SIGTERM) if os.environ.get(EXIT_CODE_FILE) else (signal.SIGUSR1,)


def agreed_exit_code(code: int, *, is_first: bool) -> int:
    """Exit code of a rank that leaves with all others.

    Call it while MPI still keeps the ranks together: no rank may leave before the :data:`EXIT_CODE_FILE` is written.

    Args:
        code: the code on which all ranks agree.
        is_first: this is rank 0, which writes the file.
    """
    file = os.environ.get(EXIT_CODE_FILE)
    if not file or not code:
        return code
    if is_first:
        Path(file).write_text(f"{code}\n", encoding="utf-8")
    return 0
