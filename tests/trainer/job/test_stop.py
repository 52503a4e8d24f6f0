"""A request to stop is remembered, even if it came while Python started, and decides how the ranks leave."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnloom.trainer.job.exit_codes import EXIT_STOPPED
from gnnloom.trainer.job.stop import STOPPED_FILE, StopRequest, code_of_stopped_rank, preparing_signals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_that_was_blocked_while_python_started_is_remembered() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    signal.raise_signal(signal.SIGUSR1)
    stop = StopRequest(signal.SIGUSR1)
    assert stop()
    assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_request_is_heard_again_after_its_signal_was_ignored() -> None:
    stop = StopRequest(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.raise_signal(signal.SIGUSR1)
    assert not stop()
    stop.hear(signal.SIGUSR1, signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert stop()


def test_stopped_ranks_leave_with_75_or_leave_a_file_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STOPPED_FILE, raising=False)
    assert code_of_stopped_rank(is_first=True) == EXIT_STOPPED
    assert preparing_signals() == (signal.SIGUSR1,)
    file = tmp_path / "stopped"
    monkeypatch.setenv(STOPPED_FILE, str(file))
    assert code_of_stopped_rank(is_first=False) == 0
    assert not file.exists()
    assert code_of_stopped_rank(is_first=True) == 0
    assert file.exists()
    assert preparing_signals() == (signal.SIGUSR1, signal.SIGTERM)
