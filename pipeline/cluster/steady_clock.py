"""Has Dask measure time by a clock that never jumps, unlike the clock of the day, which may be set at any moment.

Dask and tornado compute deadlines with ``time.time``. After the clock is set back by an hour, messages and heartbeats
wait for an hour; after it is set forward, all workers count as lost. Neither library has a setting for its clock.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

#: Difference of both clocks when this process began.
_DIFFERENCE: Final = time.time() - time.monotonic()


def steady_time() -> float:
    """Seconds since 1970, by the clock as it was set when this process began."""
    return _DIFFERENCE + time.monotonic()


def use_steady_clock() -> Callable[[], None]:
    """Have Dask and tornado use :func:`steady_time` in this process; returns a function that takes this back."""
    # Takes a second to import. Modules that these import later get the function from `metrics`.
    from distributed import metrics  # noqa: PLC0415
    from tornado.ioloop import IOLoop  # noqa: PLC0415

    usual, loop_time = metrics.time, IOLoop.time
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "distributed"]
    changed = [module for module in modules if _clock_of(module) is usual]

    def put(clock: Callable[[], float], of_loop: Any) -> None:
        for module in changed:
            setattr(module, "time", clock)  # noqa: B010 - modules have no declared attributes
        setattr(IOLoop, "time", of_loop)  # noqa: B010 - a method is not to be assigned to

    put(steady_time, lambda _: steady_time())
    return lambda: put(usual, loop_time)


def _clock_of(module: ModuleType) -> object:
    return vars(module).get("time")


@contextmanager
def steady_clock() -> Iterator[None]:
    """Have Dask and tornado use a steady clock in this process until the block ends."""
    take_back = use_steady_clock()
    try:
        yield
    finally:
        take_back()
