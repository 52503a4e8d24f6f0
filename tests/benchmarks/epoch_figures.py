"""What a side of bench_epoch measures in each of its epochs, and prints as JSON."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from itertools import pairwise
from typing import Any


class Clock:
    """Wall and processor seconds of every epoch of this process."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, float, int]] = []

    def mark(self) -> None:
        """Note the beginning of an epoch, or the end of the last one."""
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        self._marks.append((time.perf_counter(), time.process_time(), faults))

    def figures(self) -> dict[str, float]:
        """Medians over the epochs after the first, which loads code and memory, and the peak memory in bytes."""
        spans = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(self._marks[1:])]
        wall, processor, faults = (statistics.median(column) for column in zip(*spans, strict=True))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"wall": wall, "processor": processor, "faults": faults, "peak": peak}


def report(figures: dict[str, Any]) -> None:
    """Print figures for the benchmark, which reads the last line."""
    sys.stdout.write(json.dumps(figures) + "\n")
