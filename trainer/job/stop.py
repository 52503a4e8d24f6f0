"""Handles signals during a block, passes requests to stop to ranks, and lets ranks leave after a request."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gnnloom.storage.errors import LaunchError

if TYPE_CHECKING:
    from gnnloom.trainer.comm.communicator import Communicator

#: Delay before a lost signal is sent again; long enough for the interpreter to leave the destructor that lost it.
_SECONDS_AGAIN = 0.05


@contextmanager
def handling(number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call ``handler`` on a signal while inside. Does nothing outside the main thread, the only one to get signals."""
    try:
        before = signal.signal(number, handler)
    # Python raises this outside the main thread.
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(number, before)


#: Bit that is added to the number of a signal to mark that :func:`answering` has answered it.
ANSWERED: Final = 0x80


@contextmanager
def answering(number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle a signal like :func:`handling`, but do not end the command soon after it.

    Another thread ends a command whose main thread does not answer a signal. That thread learns of the signal through
    the wakeup file, perhaps when this block has already ended, so this writes to the same file that the signal was
    answered.
    """

    def answer(number: int, frame: FrameType | None) -> None:
        wakeup = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        if wakeup >= 0:
            with suppress(BlockingIOError):
                os.write(wakeup, bytes([number | ANSWERED]))
        handler(number, frame)

    with handling(number, answer):
        yield


@contextmanager
def raised_again(signals: Mapping[type[BaseException], signal.Signals]) -> Iterator[None]:
    """Send a signal again if the exception that its handler raised was lost.

    Python drops exceptions that are raised while it frees an object or returns to C code. Without this, the work would
    continue as if there had been no request.

    Args:
        signals: type of the exception to the signal whose handler raises it.
    """
    before, main = sys.unraisablehook, threading.main_thread().ident

    def resend(lost: Any) -> None:
        number = signals.get(lost.exc_type)
        if number is None or main is None:
            before(lost)
        else:
            # In another thread and later: raised here, the exception would be lost again.
            threading.Timer(_SECONDS_AGAIN, signal.pthread_kill, (main, number)).start()

    sys.unraisablehook = resend
    try:
        yield
    finally:
        sys.unraisablehook = before


#: Exit code of a command that was asked to stop and can be resumed (EX_TEMPFAIL).
EXIT_STOPPED = 75
#: Message of a propagation that was asked to stop.
STOPPED_PROPAGATION: Final = "stopped: finished columns are kept; run the same command again to continue"

#: Environment variable that names a file. If it is set, ranks that have agreed on an exit code leave with code 0, and
#: the first rank writes the code into the file. Slurm needs this: ``srun --kill-on-bad-exit``, which ends a job whose
#: rank crashes, takes any other code for a crash, kills ranks that are still leaving, and returns the code of a killed
#: rank.
EXIT_CODE_FILE = "GNNLOOM_EXIT_CODE_FILE"


class StoppedError(LaunchError):
    """The work was asked to stop and can be resumed."""

    exit_code = EXIT_STOPPED


class StopRequest:
    """Remembers that a signal asked this rank to stop."""

    def __init__(self, *signals: signal.Signals) -> None:
        self.received = False
        self._heard: list[signal.Signals] = []
        self.hear(*signals)

    def hear(self, *signals: signal.Signals) -> None:
        """Remember these signals from now on, and replace earlier handlers."""
        for number in signals:
            signal.signal(number, self._receive)
            self._heard.append(number)
        # The parent process may have blocked the signals, so that no signal is lost while Python starts.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

    def release(self) -> None:
        """Let the signals end this process from now on; a signal that has already arrived ends it now."""
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

    Batch systems send SIGUSR1 before the time limit. A launcher sends SIGTERM to end its ranks at once, and does not
    wait; but in a job with an :data:`EXIT_CODE_FILE`, SIGTERM announces a preemption, after which the job begins again.
    """
    return (signal.SIGUSR1, signal.SIGTERM) if os.environ.get(EXIT_CODE_FILE) else (signal.SIGUSR1,)


class _Interrupted(SystemExit):
    """The process was asked to stop while it prepared.

    A SystemExit passes through every ``except Exception``.
    """


@contextmanager
def interrupted_by(stop: StopRequest, signals: Sequence[signal.Signals]) -> Iterator[None]:
    """End the block as soon as the process is asked to stop.

    Args:
        stop: the request, which may already have arrived; it also remembers signals that arrive in the block.
        signals: signals that request a stop.

    Raises:
        StoppedError: the process was asked to stop.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        stop.received = True
        raise _Interrupted

    try:
        with ExitStack() as handlers:
            for number in signals:
                handlers.enter_context(answering(number, interrupt))
            handlers.enter_context(raised_again({_Interrupted: signals[0]}))
            if stop.received:
                interrupt(signals[0], None)
            yield
    except _Interrupted as error:
        raise StoppedError("asked to stop: finished tasks are kept; run the same command again to continue") from error


def agreed_exit_code(code: int, *, is_first: bool) -> int:
    """Exit code of a rank that leaves together with all others.

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


def leave(comm: Communicator, code: int) -> NoReturn:
    """End this rank with an exit code, as all others do. Collective."""
    left_with = agreed_exit_code(code, is_first=comm.rank == 0)
    # The results are stored: from now on, a signal must not turn the run into a failure. Python, while it ends, would
    # give signals that it handles their default effect again, but leaves ignored ones.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    comm.close()
    sys.exit(left_with)
