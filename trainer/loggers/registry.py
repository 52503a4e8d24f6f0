"""Finds all loggers: gnnloom's, and loggers of other installed packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec

import gnnloom.trainer.loggers
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.errors import InputError, MissingPackageError
from gnnloom.trainer.loggers.logger import Logger

#: Loggers by name, in the order of choices.
LOGGERS: Mapping[str, Logger] = load_descriptors(gnnloom.trainer.loggers, "LOGGER", "gnnloom.loggers", Logger)


def check_loggers(names: Iterable[str]) -> None:
    """Check that loggers exist and that their packages are installed.

    Raises:
        InputError: there is no logger of that name.
        MissingPackageError: the package of a logger is not installed.
    """
    for name in names:
        if name not in LOGGERS:
            raise InputError(f"log {name!r}: expected some of {', '.join(LOGGERS)}, separated by commas")
        logger = LOGGERS[name]
        if logger.package and find_spec(logger.package) is None:
            raise MissingPackageError(f"--log {name} needs {logger.package}: `pip install '{logger.install}'`")
