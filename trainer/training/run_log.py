"""Passes a run's metrics to the chosen loggers; one that fails is left out from then on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from gnnloom.storage.runs.figures import shown_epoch, shown_figures
from gnnloom.trainer.loggers.logger import LogContext, MetricsLog
from gnnloom.trainer.loggers.registry import LOGGERS

logger = logging.getLogger(__name__)


class RunLog:
    """The open logs of one run, on rank 0; empty on all others."""

    def __init__(self) -> None:
        self._open: dict[str, MetricsLog] = {}

    @classmethod
    def open(cls, names: Iterable[str], context: LogContext) -> RunLog:
        """Open logs by the names of their loggers."""
        opened = cls()
        for name in names:
            opened._guarded(name, partial(opened._begin, name, context))
        return opened

    def _begin(self, name: str, context: LogContext) -> None:
        self._open[name] = LOGGERS[name].open(context)

    def write(self, line: Mapping[str, Any]) -> None:
        """Log a line of the metrics; tables in it become one figure per entry."""
        if self._open:
            epoch, figures = shown_epoch(line), _figures(line)
            for name, log in list(self._open.items()):
                self._guarded(name, partial(log.write, epoch, figures))

    def close(self, state: str) -> None:
        """End all logs; see :meth:`MetricsLog.close`."""
        for name, log in list(self._open.items()):
            self._guarded(name, partial(log.close, state))
        self._open.clear()

    def _guarded(self, name: str, act: Callable[[], None]) -> None:
        """Act with one logger, and drop it with a warning if it fails."""
        try:
            act()
        # Whatever another program raises: a lost connection must not end a run of a week.
        except Exception as error:  # noqa: BLE001
            self._open.pop(name, None)
            logger.warning("--log %s failed and is left out from now on: %s: %s", name, type(error).__name__, error)


def _figures(line: Mapping[str, Any]) -> dict[str, float]:
    figures = list(shown_figures(line))
    by_kind = {name for name, kind, _ in figures if kind}
    return {f"{name}/{kind or 'total'}" if name in by_kind else name: number for name, kind, number in figures}
