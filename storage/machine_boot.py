"""Names this machine and its current boot."""

from __future__ import annotations

import platform
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def this_boot() -> dict[str, str]:
    """This machine and its current boot: a crash cannot have lost data that was seen earlier in the same boot."""
    return {"host": platform.node(), "boot": _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""}
