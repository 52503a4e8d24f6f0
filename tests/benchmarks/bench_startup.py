"""How long commands take before they do anything: processor seconds, and wall time from start to exit.

    python tests/benchmarks/bench_startup.py [--scale small|full]

Commands alternate; figures are medians over the rounds. For comparison, Python itself and the import of torch, which
every rank needs, are measured in the same rounds. ``train`` is one epoch on a graph of the size of Cora, which takes a
few milliseconds; the whole command includes the launcher and its processes.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Most seconds wanted: of processor time for a rank, of wall time for the others.
WANTED = {"import gnnloom": 0.05, "gnnloom --help": 0.3, "gnnloom catalog ls": 0.4, "a rank of one epoch": 2.0}
ROUNDS = {"small": 3, "full": 9}
#: Vertices, edges, features and classes of Cora.
GRAPH = "--vertices 2708 --edges 5278 --dim 1433 --classes 7"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=ROUNDS, default=os.environ.get("SCALE", "full"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-startup-") as folder:
        commands = _commands(folder)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        # The first round fills the system's caches of files.
        for number in range(ROUNDS[options.scale] + 1):
            for name, command in commands.items():
                times = _measure(command)
                if number:
                    found[name].append(times)
    for name, measured in found.items():
        wall, processor = (statistics.median(each) for each in zip(*measured, strict=True))
        wanted = f"   wanted {WANTED[name]:.2f}" if name in WANTED else ""
        sys.stdout.write(f"RESULT {name:26} wall {wall:6.3f} s   processor {processor:6.3f} s{wanted}\n")


def _commands(folder: str) -> dict[str, list[str]]:
    """The commands by name, once what they need is there."""
    program = str(Path(sys.executable).parent / "gnnloom")
    gnnloom = [program, "--catalog", folder]
    for step in (f"generate cora sbm {GRAPH}", "partition cora --parts 1 --method block", "shard cora --parts 1"):
        _measure([*gnnloom, *step.split(), "--workers", "0"])
    one_epoch = ["--hidden", "16", "--epochs", "1", "--threads", "1", "--restart", "--run", "r"]
    return {
        "python": [sys.executable, "-c", "pass"],
        "import gnnloom": [sys.executable, "-c", "import gnnloom"],
        "import torch": [sys.executable, "-c", "import torch"],
        "gnnloom --help": [program, "--help"],
        "gnnloom catalog ls": [*gnnloom, "catalog", "ls"],
        "a rank of one epoch": [
            sys.executable, "-m", "mpi4py", "-m", "gnnloom.trainer", "--catalog", folder, "cora", *one_epoch,
        ],
        "gnnloom train, one epoch": [*gnnloom, "train", "cora", *one_epoch],
    }  # fmt: skip


def _measure(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of a command and its processes."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
