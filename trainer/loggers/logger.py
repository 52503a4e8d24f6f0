"""The descriptor of a logger, and the context in which it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class MetricsLog(Protocol):
    """An open log of one run. Errors that it raises end the logging, never the run."""

    def write(self, epoch: int, figures: Mapping[str, float]) -> None:
        """Log the figures of one epoch, counted from 1."""

    def close(self, state: str) -> None:
        """End the log: the run is ``finished``, ``stopped`` after a checkpoint, or ``failed``."""


@dataclass(frozen=True)
class LogContext:
    """The run that is logged.

    Attributes:
        folder: the run's folder; a logger that writes files makes a folder with its name there.
        config: the resolved configuration, as JSON.
        first_epoch: 0 for a new run; otherwise the epoch at which it resumes.
    """

    dataset: str
    run: str
    folder: Path
    config: Mapping[str, Any]
    first_epoch: int


@dataclass(frozen=True, kw_only=True)
class Logger:
    """A program that shows metrics.

    The module that holds it must not import that program, except inside ``open``.

    Attributes:
        name: as given with ``--log``.
        order: position among the choices; loggers of equal order are sorted by name.
        help: one line of help text.
        package: module that ``open`` imports; empty if it needs none.
        install: requirement that installs the package, such as ``gnnloom[mlflow]``.
        open: opens the log of one run, on rank 0 only.
        stays_in_run: it writes only to the run's folder. Any other logger is used only if the command names it, not
            because the stored configuration of a run names it.
    """

    name: str
    order: int
    help: str
    open: Callable[[LogContext], MetricsLog]
    package: str = ""
    install: str = ""
    stays_in_run: bool = False
