"""One log line every few seconds while tasks run."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Seconds between lines.
INTERVAL = 5.0


def logged(phase: str, results: Iterable[int], parts: int, unit: str = "edges") -> Iterator[int]:
    """Pass on the tasks' results (numbers of edges), logging how many parts are done and how fast it goes."""
    started = said = time.monotonic()
    total = 0
    for done, count in enumerate(results, start=1):
        total += count
        now = time.monotonic()
        if now - said >= INTERVAL or done == parts:
            rate = total / max(now - started, 1e-9)
            LOGGER.info("%s: %d of %d parts, %s %s, %s/s", phase, done, parts, f"{total:,}", unit, f"{rate:,.0f}")
            said = now
        yield count
