"""A request to stop is remembered, even if it came while Python started, and decides how the ranks leave."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnloom.trainer.job import launch
from gnnloom.trainer.job.stop import (
    EXIT_CODE_FILE,
    EXIT_STOPPED,
    StoppedError,
    StopRequest,
    agreed_exit_code,
    preparing_signals,
)


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


def test_agreed_ranks_leave_with_their_code_or_leave_it_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(EXIT_CODE_FILE, raising=False)
    assert agreed_exit_code(75, is_first=True) == 75
    assert preparing_signals() == (signal.SIGUSR1,)
    file = tmp_path / "code"
    monkeypatch.setenv(EXIT_CODE_FILE, str(file))
    assert (agreed_exit_code(0, is_first=True), agreed_exit_code(3, is_first=False)) == (0, 0)
    assert not file.exists()
    assert agreed_exit_code(75, is_first=True) == 0
    assert file.read_text() == "75\n"
    # A preempted job begins again, so SIGTERM may end its preparation in order.
    assert preparing_signals() == (signal.SIGUSR1, signal.SIGTERM)


def test_ranks_that_a_command_starts_report_to_it_by_their_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments: list[dict[str, str]] = []

    def run(command: list[str], environment: dict[str, str], begun: object, unit: str) -> tuple[int, list[str]]:
        environments.append(environment)
        return EXIT_STOPPED, []

    monkeypatch.setattr(launch, "_run", run)
    monkeypatch.setenv(EXIT_CODE_FILE, str(tmp_path / "code"))
    with pytest.raises(StoppedError):
        launch._launch([], {}, 1, 1)
    assert EXIT_CODE_FILE not in environments[0]
