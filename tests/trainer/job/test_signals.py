"""A request to stop is not lost, whenever it arrives."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from gnnloom.trainer.job.stop import handling, raised_again


class Interrupted:
    """An object that receives Ctrl-C while it is freed."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)
        for _ in range(1000):  # the handler runs between two instructions of this function
            pass


def free_and_wait() -> None:
    Interrupted()
    threading.Event().wait(60)


def test_an_interrupt_that_is_lost_while_an_object_is_freed_is_sent_again() -> None:
    started = time.monotonic()
    with (
        handling(signal.SIGINT, signal.default_int_handler),
        pytest.raises(KeyboardInterrupt),
        raised_again({KeyboardInterrupt: signal.SIGINT}),
    ):
        free_and_wait()
    assert time.monotonic() - started < 30


def test_other_lost_exceptions_are_reported_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken")

    reported: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda lost: reported.append(str(lost.exc_value)))
    with raised_again({KeyboardInterrupt: signal.SIGINT}):
        Broken()
    assert reported == ["broken"]
