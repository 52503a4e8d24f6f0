"""How long commands take before they do anything: processor seconds, and wall time from start to exit.

    python tests/benchmarks/bench_startup.py [--rounds N] [--data FOLDER]

Commands alternate; figures are medians over the rounds. Python itself, and Python with torch, are measured beside them,
as no command that computes can take less. ``train`` is one epoch on Cora with one rank, processes of the launcher
included; it is left out where ``FOLDER/cora`` does not exist.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Longest wall time wanted, in seconds; of ``train``, processor time.
WANTED = {"import gnnloom": 0.05, "gnnloom --help": 0.3, "gnnloom catalog ls": 0.4, "gnnloom train, one epoch": 2.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-startup-") as folder:
        commands = _commands(Path(folder), options.data)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                found[name].append(_measure(command))
    for name, times in found.items():
        wall, processor = (statistics.median(each) for each in zip(*times, strict=True))
        wanted = f"   wanted {WANTED[name]:.2f}" if name in WANTED else ""
        sys.stdout.write(f"RESULT {name:26} wall {wall:6.3f} s   processor {processor:6.3f} s{wanted}\n")


def _commands(folder: Path, data: Path) -> dict[str, list[str]]:
    """The commands by name, once what they need is there."""
    gnnloom = [str(Path(sys.executable).parent / "gnnloom"), "--catalog", str(folder / "catalog")]
    (folder / "catalog").mkdir()
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "import gnnloom": [sys.executable, "-c", "import gnnloom"],
        "import torch": [sys.executable, "-c", "import torch"],
        "gnnloom --help": [gnnloom[0], "--help"],
        "gnnloom catalog ls": [*gnnloom, "catalog", "ls"],
    }
    if (data / "cora").is_dir():
        for step in (f"ingest cora {data / 'cora'} --undirected", "partition cora --parts 1", "shard cora --parts 1"):
            _measure([*gnnloom, *step.split()])
        train = "train cora --ranks 1 --threads 1 --hidden 16 --epochs 1 --restart"
        commands["gnnloom train, one epoch"] = [*gnnloom, *train.split()]
    return commands


def _measure(command: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of a command and its processes."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
