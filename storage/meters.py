"""Resources that this process and this thread have used so far."""

from __future__ import annotations

import resource


def peak_memory() -> int:
    """Peak resident memory of this process so far, in bytes."""
    # ru_maxrss would also count what the parent process held when it started this one.
    peak = next((line for line in _system_lines("self/status") if line.startswith("VmHWM:")), None)
    return (int(peak.split()[1]) if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


def bytes_from_device() -> int:
    """Bytes that this process has had read from storage devices so far, and not from the page cache; 0 if unknown."""
    return _counters("self").get("read_bytes", 0)


def bytes_moved() -> tuple[int, int]:
    """Bytes that this thread has read and written by system calls so far, without mapped files; (0, 0) if unknown."""
    # Of the thread, not of the process: other tasks run in other threads of the same worker.
    counters = _counters("thread-self")
    return counters.get("rchar", 0), counters.get("wchar", 0)


def _counters(whose: str) -> dict[str, int]:
    """The system's counters of what a process or thread has read and written; empty if there are none."""
    return {name: int(count) for name, count in (line.split(": ") for line in _system_lines(f"{whose}/io"))}


def _system_lines(name: str) -> list[str]:
    """The lines of a file below ``/proc``; none if it is not there."""
    try:
        # Read before and after every task, and pathlib takes as long as the system.
        with open(f"/proc/{name}", "rb", buffering=0) as file:
            return file.read().decode().splitlines()
    except OSError:
        return []
