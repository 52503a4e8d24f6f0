"""Measures the memory of NumPy's arrays, but not of Python's objects, which any thread may create at any time."""

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
    """Trace the arrays that are made in the block; read the figures before it ends."""
    # When garbage is collected next depends on what there was before, and with it the peak.
    gc.disable()
    trace_arrays()
    try:
        yield ArrayMemory()
    finally:
        tracemalloc.stop()
        gc.enable()
