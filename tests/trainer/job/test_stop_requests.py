"""Ctrl-C asks the ranks for a checkpoint; a second one ends them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from gnnloom.trainer.job.launch import _run

#: Stands for the ranks: says when it listens, and exits or goes on when it is asked to stop.
PROGRAM = """
import signal, sys, time
def stop(number, frame):
    print("asked", flush=True)
    if sys.argv[1] == "obeys":
        sys.exit(75)
signal.signal(signal.SIGUSR1, stop)
print("listens", flush=True)
while True:
    time.sleep(0.01)
"""


def interrupt_when_logged(caplog: pytest.LogCaptureFixture, *texts: str) -> threading.Thread:
    """Press Ctrl-C each time when one of these lines has appeared."""

    def press() -> None:
        for text in texts:
            deadline = time.monotonic() + 60
            while text not in caplog.messages and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


@pytest.mark.parametrize(("ranks", "moments"), [("obeys", ("listens",)), ("goes on", ("listens", "asked"))])
def test_ctrl_c_waits_for_the_checkpoint_unless_it_is_pressed_again(
    caplog: pytest.LogCaptureFixture, ranks: str, moments: tuple[str, ...]
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with caplog.at_level("INFO", "gnnloom.trainer.job.launch"):
        thread = interrupt_when_logged(caplog, *moments)
        with pytest.raises(KeyboardInterrupt):
            _run([sys.executable, "-S", "-c", PROGRAM, ranks], dict(os.environ), lambda _: True)
        thread.join()
    assert "asked" in caplog.messages
    assert caplog.text.count("press Ctrl-C again to stop at once") == 1
    assert signal.getsignal(signal.SIGINT) is before
