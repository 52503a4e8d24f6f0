"""The log of a rank: notes, which every command shows, and progress, which verbose commands show."""

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
import time
from contextlib import suppress
from dataclasses import astuple
from typing import TYPE_CHECKING, Final

from gnnloom.storage.disk.locks import JOB
from gnnloom.storage.meters import PROGRESS, Progress
from gnnloom.storage.wording import printable

if TYPE_CHECKING:
    from gnnloom.trainer.comm.communicator import Communicator

#: Prefix of a line with the progress of a phase, and seconds between such lines.
_STATE, _SECONDS = "gnnloom progress: ", 0.5
#: Prefix of a rank's warnings, which identifies them to the process that started the rank.
_NOTE: Final = "note: "


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # A note may quote files and their names.
        text = printable(super().format(record), keep="\n")
        # Warnings of libraries are shown only with the progress.
        is_note = record.levelno >= logging.WARNING and record.name.partition(".")[0] == "gnnloom"
        return f"{_NOTE}{text}" if is_note else text


def log_to_stderr(level: int) -> None:
    """Write log messages of this process to standard error, one line per message."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def name_job(comm: Communicator) -> None:
    """Give the ranks of a job a common random name, which silences their waits for each other's files. Collective."""
    # At most 48 bits, which are exact in a float64.
    names = comm.gather_numbers([secrets.randbits(48)])
    os.environ[JOB] = f"{int(names[0, 0]):012x}"


class _StateLines(logging.Handler):
    """Prints the progress of phases for the process that started the rank."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._printed = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        state, now = record.args[0] if isinstance(record.args, tuple) and record.args else None, time.monotonic()
        if isinstance(state, Progress) and (state.done in {0, state.tasks} or now - self._printed >= _SECONDS):
            self._printed = now
            sys.stderr.write(f"{_STATE}{json.dumps([record.levelno, astuple(state)])}\n")


def report_progress() -> None:
    """Report the progress of phases to the process that started this rank, which shows it; called by one rank."""
    PROGRESS.setLevel(logging.DEBUG)
    PROGRESS.propagate = False
    PROGRESS.addHandler(_StateLines())


def is_state(line: str) -> bool:
    """Whether a rank printed a line to report its progress."""
    return line.startswith(_STATE)


def log_again(logger: logging.Logger, line: str) -> None:
    """Log a line that a rank printed: a note as a warning, everything else as progress."""
    if is_state(line):
        with suppress(ValueError, TypeError):
            level, state = json.loads(line.removeprefix(_STATE))
            PROGRESS.log(level, "%s", Progress(*state))
            return
    logger.log(logging.WARNING if line.startswith(_NOTE) else logging.INFO, "%s", line.removeprefix(_NOTE))
