"""Processor time from the command to the end of the first epoch on a graph of the size of Cora, against torch's import.

    python tests/benchmarks/bench_startup.py --scale full

Nearly all of it is start-up: the epoch itself takes a few milliseconds. Times of importing torch, which every rank has
to do, are measured in turn with those of the ranks.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

_GNNLOOM = (sys.executable, "-m", "gnnloom.workflows.cli")
#: Vertices, edges, features and classes of Cora.
_GRAPH = "--vertices 2708 --edges 5278 --dim 1433 --classes 7"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=("small", "full"), default="full")
    repetitions = 3 if parser.parse_args(arguments).scale == "small" else 9
    with tempfile.TemporaryDirectory() as catalog:
        for command in (
            f"generate cora sbm {_GRAPH}",
            "partition cora --parts 1 --method block",
            "shard cora --parts 1",
        ):
            _seconds([*_GNNLOOM, "--catalog", catalog, *command.split(), "--workers", "0"])
        options = ["--hidden", "16", "--epochs", "1", "--threads", "1", "--restart", "--run", "r"]
        rank = [sys.executable, "-m", "mpi4py", "-m", "gnnloom.trainer", "--catalog", catalog, "cora", *options]
        commands = {
            "rank": rank,
            "command": [*_GNNLOOM, "--catalog", catalog, "train", "cora", *options],
            "import_torch": [sys.executable, "-c", "import torch"],
        }
        found: dict[str, list[float]] = {name: [] for name in commands}
        # The first round fills the system's caches of files.
        for round_number in range(repetitions + 1):
            for name, measured in commands.items():
                seconds = _seconds(measured)
                if round_number:
                    found[name].append(seconds)
    for name, times in found.items():
        print(
            f"{name:14} {statistics.median(times):6.2f} s of processor time (from {min(times):.2f} to {max(times):.2f})"
        )
    for name, times in found.items():
        print(f"RESULT startup_{name} {statistics.median(times):.3f} s")
    ratio = statistics.median(found["rank"]) / statistics.median(found["import_torch"])
    print(f"RESULT startup_rank_over_torch {ratio:.2f} x")


def _seconds(command: Sequence[str]) -> float:
    """Processor seconds of a command and the processes that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
