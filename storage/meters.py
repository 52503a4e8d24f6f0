"""Resources that this process and this thread have used so far."""

from __future__ import annotations

import resource
from pathlib import Path


def peak_memory() -> int:
    """Peak resident memory of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # ru_maxrss would also count what the parent process held when it started this one.
        peak = next((line for line in status.read_text().splitlines() if line.startswith("VmHWM:")), None)
        if peak is not None:
            return int(peak.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def bytes_moved() -> tuple[int, int]:
    """Bytes that this thread has read and written by system calls so far, without mapped files; (0, 0) if unknown."""
    try:
        # Of the thread, not of the process: other tasks run in other threads of the same worker.
        lines = dict(line.split(": ") for line in Path("/proc/thread-self/io").read_text().splitlines())
    except OSError:
        return 0, 0
    return int(lines["rchar"]), int(lines["wchar"])
