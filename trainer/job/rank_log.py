"""The log of a rank: notes, which every command shows, and progress, which a verbose one shows."""

from __future__ import annotations

import logging
import sys
from typing import Final

from gnnloom.storage.wording import printable

#: Prefix of a rank's warnings, by which the process that started the rank recognizes them.
_NOTE: Final = "note: "


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # A note may quote files and their names.
        text = printable(super().format(record), keep="\n")
        # What libraries warn of is for those who look at the progress.
        is_note = record.levelno >= logging.WARNING and record.name.partition(".")[0] == "gnnloom"
        return f"{_NOTE}{text}" if is_note else text


def log_to_stderr(level: int) -> None:
    """Write what this process logs to standard error, a line for each message."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def log_again(logger: logging.Logger, line: str) -> None:
    """Log a line that a rank printed: a note as a warning, everything else as progress."""
    logger.log(logging.WARNING if line.startswith(_NOTE) else logging.INFO, "%s", line.removeprefix(_NOTE))
