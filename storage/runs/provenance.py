"""Records where and how a run was made: one entry per session, from the start of a trainer to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnloom.storage.disk.files import JsonObject, read_json, write_json
from gnnloom.storage.errors import CorruptError

#: File of the sessions.
PROVENANCE = "provenance.json"


def read_sessions(run: Path) -> list[dict[str, Any]]:
    """Sessions that trained a run, oldest first; empty if they were not recorded.

    A session has at least ``started`` (UTC), ``host``, ``version`` and ``command``; once it has ended in an orderly
    way, also ``seconds`` and ``state``.

    Raises:
        CorruptError: the file is damaged.
    """
    path = run / PROVENANCE
    if not path.exists():
        return []
    sessions = read_json(path).get("sessions")
    if not (isinstance(sessions, list) and all(isinstance(session, dict) for session in sessions)):
        raise CorruptError(f"{path}: expected a list of sessions")
    return sessions


def begin_session(run: Path, facts: JsonObject, first_epoch: int) -> None:
    """Record that a session has begun; called by one process.

    Args:
        first_epoch: 0 for a new run, which drops what is known of an earlier run of that name.
    """
    before = read_sessions(run) if first_epoch else []
    write_json(run / PROVENANCE, {"sessions": [*before, dict(facts)]})


def end_session(run: Path, facts: JsonObject) -> None:
    """Add facts to the session that began last; called by one process."""
    *before, last = read_sessions(run)
    write_json(run / PROVENANCE, {"sessions": [*before, {**last, **facts}]})
