"""The result of one check of the doctor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

OK, WARNING, FAILED = "ok", "warning", "failed"


@dataclass(frozen=True)
class Verdict:
    """Result of a check: its name, its state (``ok``, ``warning`` or ``failed``), the finding, and how to fix it."""

    check: str
    state: str
    found: str
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_check(name: str, check: Callable[[], Verdict]) -> Verdict:
    """Run a check; an exception becomes a failed finding."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - whatever is broken is the finding
        return Verdict(name, FAILED, f"{type(error).__name__}: {error}", "reinstall gnnloom: `pip install gnnloom`")
