"""Random small pipelines and trainings with faults and kills, for as long as wanted.

``make soak`` (SOAK_MINUTES=10) repeats: draw a graph and a training; run every command with a random fault, or kill it
after a random time, until it succeeds; compare every artifact and the losses with those of a catalog that nothing
disturbed; flip a bit and look whether ``catalog verify`` finds it. It ends with ``RESULT`` lines; anything but zero
differences, unnoticed flips, tracebacks and leaks is a failure. A leak is a process, or what ``gnnloom doctor --clean``
would leave. They are counted over the whole machine, so nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnloom.storage import Catalog
from gnnloom.storage.faults import VARIABLE
from gnnloom.storage.shared_memory import SHARED_MEMORY
from gnnloom.trainer.job.leftovers import QUIET_SECONDS, find_leftovers, remove_leftovers

_POINTS = (
    "json.write", "file.rename", "file.renamed", "chunk.write", "chunk.written", "folder.sync", "task.end.*",
    "manifest.write.*", "metrics.append", "checkpoint.publish", "predictions.publish", "send.*", "collective.*",
)  # fmt: skip
_ACTIONS = ("raise", "memory", "ENOSPC", "EIO", "short", "SIGKILL", "slow")
#: Options of the modes of training; neighbor mode reads samples from disk as well, which are drawn anew each time.
_MODES = ("full", "full --train-features --keep 3", "minibatch --batch-size 16", "neighbor --fanout 3,2",
          "subgraph --sampler frontier --batch-size 16")  # fmt: skip
_METHODS = ("random", "mtkahypar", "kahypar", "metis", "multilevel")
#: Attempts with a fault before a command runs undisturbed.
_DISTURBED = 2
_LONGEST_SECONDS = 300.0


@dataclass
class Soak:
    """The state of one soak: where it works, what it draws from, and what it has counted."""

    folder: Path
    chosen: random.Random
    kill_share: float = 0.5
    counts: Counter[str] = field(default_factory=Counter)

    def round(self, number: int) -> None:
        """One pipeline, undisturbed and disturbed, and one flipped bit."""
        seed, scale = self.chosen.randrange(10**6), self.chosen.randint(5, 7)
        ranks, mode = self.chosen.choice([1, 2]), self.chosen.choice(_MODES)
        method = self.chosen.choice(_METHODS)
        self.counts.update([f"mode {mode.split()[0]}", f"method {method}"])
        stages = [
            f"generate web rmat --scale {scale} --edge-factor 4 --seed {seed} --workers 0",
            "features web random --dim 3 --workers 0",
            f"partition web --parts {ranks} --method {method} --workers 0",
            f"shard web --parts {ranks} --workers 0",
            f"train web/run --ranks {ranks} --hidden 4 --epochs 6 --threads 1 --checkpoint-every 2 --mode {mode}",
            "predict web/run",
        ]
        calm, wild = self.folder / f"{number}-calm", self.folder / f"{number}-wild"
        for stage in stages:
            began = time.monotonic()
            self._run(calm, stage, {})
            self._disturbed(wild, stage, time.monotonic() - began)
        self.counts["rounds"] += 1
        self.counts["differences"] += _facts(calm) != _facts(wild)
        self._flip(wild)

    def _disturbed(self, catalog: Path, stage: str, seconds: float) -> None:
        """Run a stage that takes so many seconds undisturbed."""
        for _ in range(_DISTURBED):
            if self.chosen.random() >= self.kill_share:
                fault = f"{self.chosen.choice(_POINTS)}:{self.chosen.choice(_ACTIONS)}:nth={self.chosen.randint(1, 12)}"
                self._run(catalog, stage, {VARIABLE: fault})
            else:
                self._run(catalog, stage, {}, kill_after=self.chosen.uniform(0.2, 1.0) * seconds)
        if self._run(catalog, stage, {}):
            self.counts["unfinished"] += 1

    def _run(self, catalog: Path, stage: str, environment: dict[str, str], kill_after: float | None = None) -> int:
        command = [str(Path(sys.executable).with_name("gnnloom")), "--catalog", str(catalog), *stage.split(), "--json"]
        self.counts["commands"] += 1
        with subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                _, errors = process.communicate(timeout=kill_after or _LONGEST_SECONDS)
            except subprocess.TimeoutExpired:
                self.counts["killed" if kill_after else "hung"] += 1
                process.send_signal(signal.SIGKILL)
                _, errors = process.communicate()
        self.counts["failed"] += process.returncode != 0
        # Only the fault that stands for a defect may show a traceback.
        if "Traceback" in errors and ":raise:" not in environment.get(VARIABLE, ""):
            self.counts["tracebacks"] += 1
            sys.stdout.write(f"{environment} {stage}\n{errors[-2000:]}\n")
        return process.returncode

    def _flip(self, catalog: Path) -> None:
        files = [path for path in catalog.rglob("*") if path.is_file() and path.stat().st_size]
        path = self.chosen.choice([path for path in files if ".locks" not in path.parts])
        content = bytearray(path.read_bytes())
        content[self.chosen.randrange(len(content))] ^= 1 << self.chosen.randrange(8)
        path.write_bytes(content)
        self.counts["flips"] += 1
        if not self._run(catalog, "catalog verify web", {}):
            self.counts["unnoticed_flips"] += 1
            sys.stdout.write(f"unnoticed: {path}\n")


def _facts(catalog: Path) -> dict[str, Any]:
    """Digests of all complete artifacts by key, and the losses of the run."""
    dataset = Catalog(catalog)["web"]
    digests = {info.key: dataset.find(info.kind, info.key).digest for info in dataset.artifacts()}
    result = json.loads((dataset.run_path("run") / "result.json").read_text())
    return {**digests, "loss": result["loss"]}


def _outside() -> set[Path]:
    """Everything in shared memory and in the temporary directory."""
    return {*SHARED_MEMORY.iterdir(), *Path(tempfile.gettempdir()).iterdir()}


def _left(before: set[Path], names: tuple[str, ...]) -> set[Path]:
    """What is new outside of the catalogs, and has one of the names that gnnloom and what it uses give to files."""
    return {path for path in _outside() - before if path.name.startswith(names)}


def _clean(before: set[Path], counts: Counter[str]) -> None:
    """Remove what is new, as `gnnloom doctor --clean` would; counts what there was, and what it leaves of it."""
    names = ("mpich_shm_", "sem.mp-", "gnnloom-", "tmp")
    found = _left(before, names)
    remove_leftovers(item for item in find_leftovers() if item.path not in before)
    leaked = _left(before, names)
    counts["leftovers"], counts["leaks"] = len(found), len(leaked)
    for path in sorted(found):
        sys.stdout.write(f"{'leaked' if path in leaked else 'left, and removed by doctor --clean'}: {path}\n")


def _processes_of(folder: str) -> list[int]:
    """Processes whose command line names the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if folder.encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def main() -> None:
    """Soak for some minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kill-share", type=float, default=0.5, help="of the attempts that are disturbed")
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    before = _outside()
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak = Soak(Path(folder), random.Random(given.seed), given.kill_share)
        while time.monotonic() < end:
            soak.round(soak.counts["rounds"])
        # Ranks end with their launcher, and a folder must be quiet before it counts as left behind.
        time.sleep(QUIET_SECONDS + 5)
        _clean(before, soak.counts)
        soak.counts["leaks"] += len(_processes_of(folder))
    counts = soak.counts
    sys.stdout.write("".join(f"{name}: {counts[name]} rounds\n" for name in sorted(counts) if " " in name))
    for name in ("rounds", "commands", "failed", "killed", "flips", "leftovers"):
        sys.stdout.write(f"RESULT soak_{name} {counts[name]} {name}\n")
    bad = ("differences", "unnoticed_flips", "tracebacks", "hung", "unfinished", "leaks")
    for name in bad:
        sys.stdout.write(f"RESULT soak_{name} {counts[name]} {name.replace('_', '-')}\n")
    sys.exit(1 if any(counts[name] for name in bad) else 0)


if __name__ == "__main__":
    main()
