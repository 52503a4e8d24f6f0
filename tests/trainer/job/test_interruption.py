"""A request to stop ends the preparation at once, and is not forgotten."""

from __future__ import annotations

import signal

import pytest

from gnnloom.trainer.job.stop import StoppedError, StopRequest, interrupted_by


def test_a_signal_interrupts_the_block_and_is_only_remembered_after_it() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    try:
        stop = StopRequest(signal.SIGUSR1)
        with pytest.raises(StoppedError), interrupted_by(stop, [signal.SIGUSR1]):
            signal.raise_signal(signal.SIGUSR1)
        assert stop()
        # The cluster that is being closed now must not be interrupted.
        signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(StoppedError), interrupted_by(stop, [signal.SIGUSR1]):
            pytest.fail("a request that came before did not interrupt the block")
    finally:
        signal.signal(signal.SIGUSR1, before)
