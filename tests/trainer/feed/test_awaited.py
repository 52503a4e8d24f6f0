"""Batches that are prepared ahead are freed as soon as a mode has dropped them."""

from __future__ import annotations

import time
from weakref import ref

import numpy as np
import pytest

from gnnloom.storage.sampling.ahead import prepare_ahead
from gnnloom.trainer.comm.traffic import Traffic
from gnnloom.trainer.modes.epochs.prepared import awaited


@pytest.mark.parametrize("threads", [0, 1])
def test_a_used_batch_is_freed_before_the_next_one_is_asked_for(threads: int) -> None:
    batches = awaited(prepare_ahead(lambda number: np.full(3, number), range(4), threads, 2), Traffic())
    for number in range(4):
        batch = next(batches)
        assert batch.tolist() == [number] * 3
        dropped, end = ref(batch), time.monotonic() + 30
        del batch
        # The thread that has prepared the batch may still have to return from its function.
        while dropped() is not None and time.monotonic() < end:
            time.sleep(0.001)
        assert dropped() is None
    assert next(batches, None) is None
