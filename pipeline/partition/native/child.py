"""Runs one native partitioner: ``python -m gnnloom.pipeline.partition.native.child MODULE FOLDER PARENT``.

MODULE is a program's module.  FOLDER holds the request and the hypergraph or graph.  PARENT is the number of the
process that waits for the result; when it ends, this process ends as well.  The result gets its final name
only once it is complete, because native code may end this process at any moment, with any exit status.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

from gnnloom.pipeline.partition.native.program import RESULT, PartitionRequest


def main(module: str, folder: Path, parent: int) -> None:
    """Partition the problem in ``folder`` with the program in ``module``, and leave the result there."""
    # Before anything slow: from here on a killed parent takes this process with it.
    die_with_parent(parent)
    die_first()
    request = PartitionRequest.read(folder)
    # Set before the native library is loaded, so that its allocations count as well.
    _limit_memory(request.memory_limit)
    part = importlib.import_module(module).partition(request, folder)
    # The prefix changes and not the suffix, because ``np.save`` appends .npy to any other name.
    unfinished = folder / f"unfinished-{RESULT}"
    np.save(unfinished, part, allow_pickle=False)
    unfinished.replace(folder / RESULT)


def _limit_memory(limit: int | None) -> None:
    """Make allocations beyond the limit fail in this process, before the machine runs out of memory."""
    if limit is not None:
        # RLIMIT_DATA counts private writable memory; RLIMIT_AS would also count libraries and mapped files.
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))


def die_with_parent(parent: int) -> None:
    """Ask Linux to kill this process when its parent ends, for whatever reason.

    Raises:
        SystemExit: the parent has ended already.
    """
    if sys.platform == "linux":
        # PR_SET_PDEATHSIG of linux/prctl.h, which Python does not define.
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    # If the parent ended before this call, Linux sends no signal.
    if os.getppid() != parent:
        sys.exit("the process that waits for this partition has ended")


def die_first() -> None:
    """Ask Linux to kill this process rather than its parent when the machine runs out of memory."""
    with suppress(OSError):
        # The highest value there is; a process may always raise its own.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
