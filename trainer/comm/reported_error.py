"""Reports the error with which a rank ends a job, in a file for the process that started the ranks.

The output of ranks reaches that process as well, but mixed with the output of other ranks, and only its last lines are
kept. A launcher whose ranks do not see its files has only the printed line.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.errors import CorruptError

#: Environment variable that names the folder for the files, one for each rank that reports an error.
ERROR_FOLDER: Final = "GNNLOOM_ERROR_FOLDER"


@dataclass(frozen=True)
class ReportedError:
    """The error that a rank reports.

    Attributes:
        message: all lines of the error.
        code: exit code.
    """

    message: str
    code: int

    def write(self, rank: int) -> None:
        """Write the error to the rank's file, which appears whole; without a folder for it, do nothing."""
        folder = os.environ.get(ERROR_FOLDER)
        # The folder may be on another machine. The job must end even if writing fails, and the error is printed as
        # well.
        if folder and Path(folder).is_dir():
            content = {"code": self.code, "message": self.message, "time": time.time_ns()}
            with suppress(OSError):
                write_json(Path(folder, f"{rank}.json"), content, durable=False)

    @classmethod
    def first(cls, folder: Path) -> ReportedError | None:
        """The error that was reported first, because later ones may be its consequence; None if there is none."""
        found = []
        for path in folder.glob("[!.]*.json"):
            with suppress(CorruptError):
                found.append(read_json(path))
        first = min(found, key=lambda content: content["time"], default=None)
        return None if first is None else cls(first["message"], first["code"])
