"""Measures the memory of NumPy's arrays, and nothing that other threads or the collection of garbage add by chance."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from gnnloom.trainer.kernels.unperformed import trace_arrays


class ArrayMemory:
    """Bytes of the arrays that were made since tracing started, without those that are gone."""

    def __init__(self) -> None:
        self._before = tracemalloc.get_traced_memory()[0]

    def now(self) -> int:
        return tracemalloc.get_traced_memory()[0] - self._before

    def peak(self) -> int:
        """The most there were at once."""
        return tracemalloc.get_traced_memory()[1] - self._before


@contextmanager
def tracing_arrays() -> Iterator[ArrayMemory]:
    """Trace the arrays that the block makes; figures can be had inside the block only."""
    # When garbage is collected next depends on what there was before, and with it the peak.
    gc.disable()
    trace_arrays()
    try:
        yield ArrayMemory()
    finally:
        tracemalloc.stop()
        gc.enable()
