"""Workers of a cluster of MPI ranks that hold much memory, or none of their own. The client prints what became of them.

As far as the nannies know, the machine has a megabyte left. A task is given up when the first worker was killed at it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from gnnloom.pipeline.cluster import mpi_cluster, processes
from gnnloom.pipeline.cluster.interfaces import loopback
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster, worker_settings
from gnnloom.pipeline.cluster.processes import Guard
from gnnloom.storage.errors import LaunchError

BUDGET = 1 << 20
FAR_BEYOND = Guard.of(BUDGET).most_memory + (128 << 20)


def map_file(path: Path) -> int:
    """Read all pages of a mapped file, and keep them for some looks of the nanny."""
    total = int(np.memmap(path, np.uint8, "r")[::4096].sum())
    time.sleep(0.5)
    return total


def hold(num_bytes: int) -> int:
    held = np.ones(num_bytes, np.uint8)
    time.sleep(2)
    return int(held[-1])


def be_killed(_: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def outcomes(folder: Path) -> dict[str, Any]:
    np.ones(FAR_BEYOND, np.uint8).tofile(folder / "mapped")
    found: dict[str, Any] = {}
    with open_cluster(ClusterOptions("mpi", workers=1, memory=BUDGET)) as cluster:
        found["mapped"] = list(cluster.map(map_file, [folder / "mapped"]))
        for name, function in (("held", hold), ("killed", be_killed)):
            try:
                list(cluster.map(function, [FAR_BEYOND]))
            except LaunchError as error:
                found[name] = str(error)
    return found


if __name__ == "__main__":
    # Workers, which are not ranks, import this file too.
    from mpi4py import MPI

    settings = {**worker_settings(), "distributed.scheduler.allowed-failures": 0}
    comm = MPI.COMM_WORLD.Dup()
    with (
        patch.object(mpi_cluster, "worker_settings", lambda: settings),
        patch.object(processes, "available_memory", lambda: 1 << 20),
    ):
        if mpi_cluster.serve_ranks(comm, comm.Get_size(), loopback(), BUDGET, dashboard=False):
            (Path(sys.argv[1]) / "outcomes.json").write_text(json.dumps(outcomes(Path(sys.argv[1]))))
    comm.Free()
