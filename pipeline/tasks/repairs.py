"""Stages make damaged temporary files again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from gnnloom.storage.errors import CorruptError, DamagedWorkError

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Damaged files that one command makes again: a disk that damages more is not worth waiting for.
_MOST_REPAIRS: Final = 16

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def repairing(stage: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a stage again, without the file, if a temporary file is damaged.

    A stage makes what it finds missing, so that a file that is removed is made again, and nothing else.

    Raises:
        CorruptError: files are damaged again and again.
    """

    @wraps(stage)
    def repaired(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        for _ in range(_MOST_REPAIRS):
            try:
                return stage(*args, **kwargs)
            except DamagedWorkError as error:
                LOGGER.warning("%s; the file is removed and made again", error)
                error.path.unlink(missing_ok=True)
                last = error
        raise CorruptError(
            f"{last.path.parent}: temporary files there are damaged again and again; check the disk, remove what is"
            " unfinished with `gnnloom catalog gc`, and run the command again"
        ) from last

    return repaired
