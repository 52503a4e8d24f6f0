"""Reports ranks that wait for each other without end: which operation, which layer, which ranks.

A rank that has waited for half of the limit writes where it stands into ``.waiting/RANK.json`` in the folder of the
run, and removes the file if the wait ends after all. The first rank whose wait exceeds the limit collects these files,
and raises an error with one table of the first ranks and its own; its entry point ends the job. The files stay until
the run continues.
"""

from __future__ import annotations

import math
import os
import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.errors import CorruptError, GnnloomError
from gnnloom.storage.wording import counted

#: Folder of the files in the folder of a run; hidden, so that nothing takes it for a part of the run.
WAITING: Final = ".waiting"
#: Most seconds for which the reporting rank gives the others time to write where they stand.
_GRACE_SECONDS: Final = 5.0
#: Maximum number of ranks in one table; the other ranks wait as well, and have files of their own.
_MOST_ROWS: Final = 64
#: Transfers of one rank that the table names.
_MOST_TRANSFERS: Final = 4


def clear_reports(folder: Path) -> None:
    """Remove the files of an earlier job; called by one rank, before any waits."""
    shutil.rmtree(folder, ignore_errors=True)


class StandstillError(GnnloomError):
    """Ranks have waited for each other longer than allowed."""


class MismatchError(GnnloomError):
    """Ranks exchange messages that do not fit each other."""


@dataclass(frozen=True)
class Transfer:
    """One end of a transfer that is not complete.

    Attributes:
        operation: ``send``, ``receive`` or the name of a collective.
        kind: what it is for; empty if only the other end knows.
        ranks: world ranks at the other end, or of all others in the collective.
    """

    operation: str
    kind: str
    ranks: tuple[int, ...]

    @property
    def is_collective(self) -> bool:
        return self.operation not in {"send", "receive"}

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.ranks[:8])) + (", ..." if len(self.ranks) > 8 else "")
        to = {"send": "to", "receive": "from"}.get(self.operation, "with")
        kind = f"{self.kind} " if self.kind else ""
        return f"{kind}{self.operation} {to} {shown}" if shown else f"{kind}{self.operation}"


@dataclass
class Watch:
    """This rank's part of the watchdog; without a limit it does nothing.

    Attributes:
        seconds: longest wait; 0 for no limit.
        folder: where ranks write where they stand; None if nothing is to be written.
        rank, size: this rank and the number of all.
        epoch: number of the epoch, from 1; 0 outside of epochs.
        step: the layer and the direction, or what else the rank is doing.
    """

    seconds: float = 0.0
    folder: Path | None = None
    rank: int = 0
    size: int = 1
    epoch: int = 0
    step: str = ""
    _noted: bool = field(default=False, init=False)

    @property
    def notes_after(self) -> float:
        """Seconds of waiting after which :meth:`overdue` is to be called."""
        return self.seconds / 2 if self.seconds else math.inf

    @property
    def place(self) -> str:
        """Place of this rank."""
        epoch = f"epoch {self.epoch}" if self.epoch else ""
        return ", ".join(part for part in (epoch, self.step) if part) or "before the first epoch"

    def overdue(self, waited: float, transfers: Sequence[Transfer]) -> None:
        """Note where this rank stands, after it has waited for ``notes_after`` seconds.

        Raises:
            StandstillError: the wait has exceeded the limit.
        """
        if not self._noted:
            self._noted = True
            self._note(waited, transfers)
        if waited > self.seconds:
            self._give_up(waited, transfers)

    def moved(self) -> None:
        """Forget the note: the wait has ended."""
        if self._noted:
            self._noted = False
            if self.folder is not None:
                self._file(self.folder).unlink(missing_ok=True)

    def mismatch(self, transfers: Sequence[Transfer]) -> str:
        """Error text if a transfer cannot be completed."""
        named = "; ".join(str(transfer) for transfer in transfers[:_MOST_TRANSFERS])
        return (
            f"{self.place}: messages do not match ({named}); every rank must make the same calls in the same"
            " order, so a model must not branch on values that differ between ranks"
        )

    def _file(self, folder: Path, rank: int | None = None) -> Path:
        return folder / f"{self.rank if rank is None else rank:05d}.json"

    def _note(self, waited: float, transfers: Sequence[Transfer]) -> None:
        """Write this rank's file; a disk that cannot be written must not hide the standstill."""
        if self.folder is None:
            return
        try:
            write_json(self._file(self.folder), self._standing(waited, transfers), durable=False)
        except OSError:
            self.folder = None

    def _standing(self, waited: float, transfers: Sequence[Transfer]) -> dict[str, Any]:
        named = [str(transfer) for transfer in transfers[:_MOST_TRANSFERS]]
        more = [f"{len(transfers) - _MOST_TRANSFERS} more"] if len(transfers) > _MOST_TRANSFERS else []
        process = f"{platform.node()}:{os.getpid()}"
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - waited))
        return {"waits_for": "; ".join(named + more), "place": self.place, "process": process, "since": since}

    def _give_up(self, waited: float, transfers: Sequence[Transfer]) -> None:
        self._note(waited, transfers)
        standing = {self.rank: self._standing(waited, transfers)}
        if self.folder is not None:
            if not self._reports(self.folder):
                # The rank that reports ends this one; if it cannot, this one reports as well.
                time.sleep(3 * _GRACE_SECONDS)
            # Waits begin at almost the same time everywhere, so by now every rank that waits has written its file.
            time.sleep(min(_GRACE_SECONDS, self.seconds / 4))
            standing |= self._others(self.folder)
        headline = (
            f"waited longer than {self.seconds:g} s for other ranks (--wait-timeout); checkpoints are kept, and the"
            " same command continues from the last one"
        )
        raise StandstillError("\n".join([headline, *self._table(standing)]))

    def _reports(self, folder: Path) -> bool:
        """Whether this rank is the first one to give up."""
        try:
            os.close(os.open(folder / "reported", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        except OSError:
            return True
        return True

    def _others(self, folder: Path) -> dict[int, dict[str, Any]]:
        found = {}
        for rank in range(min(self.size, _MOST_ROWS)):
            try:
                found[rank] = read_json(self._file(folder, rank))
            except (OSError, CorruptError):
                continue
        return found

    def _table(self, standing: dict[int, dict[str, Any]]) -> list[str]:
        silent = {"waits_for": "-", "place": "no report: the rank is computing, stopped or gone", "process": "-"}
        rows: list[tuple[str, ...]] = [("rank", "waits for", "in", "process")]
        shown = sorted({*range(min(self.size, _MOST_ROWS)), self.rank})
        for rank in shown:
            found = standing.get(rank, silent)
            rows.append((str(rank), *(str(found.get(name, "?")) for name in ("waits_for", "place", "process"))))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  " + "  ".join((*map(str.ljust, row[:3], widths), row[3])) for row in rows]
        hidden = self.size - len(shown)
        return lines if not hidden else [*lines, f"  {counted(hidden, 'more rank')}: {self.folder}"]
