"""Answers signals from the first moment of a command: before anything is open, it ends at once.

Imports nothing slow: imports are most of the time of a short command.
"""

import os
import signal
from typing import Final

#: Signals that end a command, with the line that it prints.
LINES: Final = {
    signal.SIGINT: "interrupted; finished work is kept, run the command again to continue",
    signal.SIGTERM: "ended by SIGTERM; finished work is kept, run the command again to continue",
}


def leave_on_signals() -> None:
    """End this process on a signal, until a command handles the signal itself."""
    for number in LINES:
        # A shell that starts a command in the background has Ctrl-C ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave_at_once)


def leave_at_once(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a signal handler
    """Signal handler: prints the line of the signal and ends this process, which has nothing to close."""
    os.write(2, f"{LINES[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)
