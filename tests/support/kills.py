"""Kills the commands of whole pipelines with SIGKILL at random moments, and compares what they finally leave.

``make kills`` (``PYTHONPATH=tests python tests/support/kills.py --kills 200``) goes through pipelines, from a generated
graph to predictions, whose partitioners and ways of training take turns. Every command runs once undisturbed in one
catalog, and in another one it is killed at random moments of its time, before it may finish: the command itself,
a process that it started (a rank, the launcher, a native partitioner), or all of them at once, as when a machine loses
power. Every byte of every array, the losses and the predictions must be those of the undisturbed catalog. Commands are
forked from a process that has imported everything, so that kills fall on what commands do rather than on imports.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import gnnloom.trainer.job.launch as launcher
from gnnloom.storage import Catalog
from gnnloom.workflows.cli import main as command_line
from support.mpi import rank_command, running_ranks

_METHODS = ("mtkahypar", "kahypar", "metis", "multilevel", "random", "auto")
#: Ranks, stages between the shards and the training, and options of each way of training.
_TRAININGS: tuple[tuple[int, str, str], ...] = (
    (2, "", "--mode full"),
    (2, "", "--mode full --train-features --keep 3"),
    (2, "", "--mode full --model gat --heads 1"),
    (4, "--grid 2x2", "--mode full --algorithm broadcast"),
    (4, "--grid 2x2", "--mode full --algorithm replicated --grid 2x2"),
    (4, "--grid 2x2", "--mode full --algorithm summa --grid 2x2"),
    (4, "--grid 2x2", "--mode full --algorithm split3d --grid 1x2x2"),
    (4, "--grid 2x2", "--mode full --algorithm tensor3d --grid 2x2x1"),
    (2, "", "--mode minibatch --batch-size 16 --norm batch"),
    (2, "", "--mode neighbor --fanout 3,2 --batch-size 16"),
    (2, "samples", "--mode neighbor --batch-size 16"),
    (2, "", "--mode subgraph --sampler frontier --batch-size 16"),
    (2, "", "--mode subgraph --sampler vertex --batch-size 16 --presamples 10"),
    (2, "", "--mode subgraph --sampler edge --batch-size 16"),
    (2, "", "--mode subgraph --sampler walk --batch-size 16"),
    (2, "", "--mode subgraph --sampler cluster"),
)
_TARGETS = ("command", "started", "all")
#: Kills of every command before it may finish; trainings do more than the others.
_KILLS_EACH = {"train": 4}
_LONGEST_SECONDS = 600.0
#: Time in which everything that a killed command started must be gone.
_GONE_SECONDS = 60.0


@dataclass
class Kills:
    """Where the catalogs are, what moments are drawn from, and what has been counted."""

    folder: Path
    chosen: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    def pipeline(self, number: int) -> None:
        """One pipeline, undisturbed and killed."""
        method, training = _METHODS[number % len(_METHODS)], _TRAININGS[number % len(_TRAININGS)]
        calm, wild = self.folder / f"{number}-calm", self.folder / f"{number}-wild"
        began, before = time.monotonic(), self.counts["kills"]
        for stage in _stages(self.chosen, method, training):
            words = [word.format(samples=_samples(calm)) for word in stage.split()]
            started = time.monotonic()
            self._finish(calm, words)
            self._killed(wild, words, time.monotonic() - started)
        expected, found = _facts(calm), _facts(wild)
        differing = sorted({name for name, _ in expected.items() ^ found.items()})
        self.counts.update({"pipelines": 1, "compared": len(expected), "differences": len(differing)})
        killed, seconds = self.counts["kills"] - before, time.monotonic() - began
        _say(f"{number}: {method}, {training[2]}: {killed} kills in {seconds:.0f} s, {len(expected)} facts compared")
        if differing:
            _say("\n".join(["these differ:", *differing]))

    def _killed(self, catalog: Path, words: Sequence[str], seconds: float) -> None:
        for _ in range(_KILLS_EACH.get(words[0], 2)):
            command = _Command(self.folder, catalog, words)
            if not command.ends_within(self.chosen.uniform(0.0, seconds)):
                target = self.chosen.choice(_TARGETS)
                killed = command.kill(target, self.chosen)
                self.counts.update({"kills": 1, f"kills of {killed}": 1, f"kills in {words[0]}": 1})
                self._end(command)
                self.counts["orphans"] += command.orphans()
        self._finish(catalog, words)

    def _finish(self, catalog: Path, words: Sequence[str]) -> None:
        command = _Command(self.folder, catalog, words)
        if self._end(command):
            sys.exit(f"ended with {command.code}: {' '.join(words)}\n{command.log()}")

    def _end(self, command: _Command) -> int:
        """Wait for the end of a command; returns its exit code."""
        if not command.ends_within(_LONGEST_SECONDS):
            self.counts["hung"] += 1
            command.kill("all", self.chosen)
            command.ends_within(_GONE_SECONDS)
        if "Traceback" in command.log():
            self.counts["tracebacks"] += 1
            _say(command.log())
        return command.code


class _Command:
    """A command in a process that is forked from this one."""

    def __init__(self, folder: Path, catalog: Path, words: Sequence[str]) -> None:
        self._output, self.code = folder / "output.txt", 0
        self._ended, self._started = False, set[psutil.Process]()
        self.number = os.fork()
        if self.number == 0:
            _become_command(self._output, ["--catalog", str(catalog), *words])

    def ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._ended:
            number, status = os.waitpid(self.number, os.WNOHANG)
            if number:
                self._ended, self.code = True, os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                return False
            else:
                time.sleep(0.002)
        return True

    def kill(self, target: str, chosen: random.Random) -> str:
        """Kill one process or all; returns which."""
        own = psutil.Process(self.number)
        self._started = {*own.children(recursive=True), *running_ranks()}
        if target != "command" and not self._started:
            target = "command"
        if target == "started":
            _kill([chosen.choice(sorted(self._started, key=lambda process: process.pid))])
        else:
            _kill([own, *(self._started if target == "all" else ())])
        return target

    def orphans(self) -> int:
        """Number of processes that the command started and that did not end with it."""
        _, alive = psutil.wait_procs(self._started, _GONE_SECONDS)
        if alive:
            _say(f"still there: {alive}")
            _kill(alive)
        return len(alive)

    def log(self) -> str:
        """What the command has printed."""
        return self._output.read_text(errors="replace")


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue


def _become_command(output: Path, words: list[str]) -> None:
    """Run the command in this process, and end it."""
    code: Any = 1
    try:
        os.setsid()
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.argv = ["gnnloom", *words]
        run = launcher._run
        launcher._run = lambda command, *rest: run(_forked(command), *rest)
        command_line.main()
        code = 0
    except SystemExit as error:
        code = error.code or 0
    except BaseException:  # noqa: BLE001 - nothing may reach the code that forked this process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def _forked(command: list[str]) -> list[str]:
    """The command for ranks, which are forked from a server instead of importing everything again."""
    at = command.index("mpi4py")
    return [*command[: at - 2], *rank_command(), *command[at + 1 :]]


def _stages(chosen: random.Random, method: str, training: tuple[int, str, str]) -> list[str]:
    ranks, extra, options = training
    seed, scale = chosen.randrange(10**6), chosen.randint(5, 7)
    shape = chosen.choice(["", " --directed"])
    grid = extra.startswith("--grid")
    samples = f"sample web --fanout 3,2 --batch-size 16 --epochs 3 --ranks {ranks} --workers 0"
    return [
        f"generate web rmat --scale {scale} --edge-factor 4 --seed {seed} --workers 0{shape}",
        "features web random --dim 3 --workers 0",
        f"partition web --parts {ranks} --method {method} --workers 0",
        f"shard web {f'{extra} --permutation double' if grid else f'--parts {ranks}'} --workers 0",
        *([samples] if extra == "samples" else ()),
        f"train web/run --ranks {ranks} --hidden 4 --epochs 6 --threads 1 --checkpoint-every 2 {options}"
        + (" --samples {samples}" if extra == "samples" else ""),
        "predict web/run",
    ]


def _samples(catalog: Path) -> str:
    """Key of the samples of a catalog, or nothing if it has none."""
    if not (catalog / "web" / "samples").exists():
        return ""
    return Catalog(catalog)["web"].samples().artifact.key


def _facts(catalog: Path) -> dict[str, Any]:
    """Digests of complete artifacts, of every chunk on disk and of the predictions, and the last loss of the run."""
    dataset = Catalog(catalog)["web"]
    facts: dict[str, Any] = {
        f"{info.kind} {info.key}": dataset.find(info.kind, info.key).digest for info in dataset.artifacts()
    }
    for path in dataset.path.rglob("c/**/*"):
        name = path.relative_to(catalog)
        # What a killed command was writing or removing has a name that begins with a dot.
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            facts[str(name)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return {**facts, "loss": str(json.loads((dataset.run_path("run") / "result.json").read_text())["loss"])}


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _load() -> None:
    """Import what commands import."""
    for name, _ in command_line._COMMANDS.values():
        importlib.import_module(f"gnnloom.workflows.cli.{name}")
    importlib.import_module("gnnloom.trainer.training.loop")


def main() -> None:
    """Kill commands until there were so many kills."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first pipeline")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    _say(f"seed {given.seed}")
    rank_command()
    _load()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        kills = Kills(Path(folder), random.Random(given.seed))
        number = given.first
        while kills.counts["kills"] < given.kills:
            kills.pipeline(number)
            number += 1
    counts = kills.counts
    _say("\n".join(f"{name}: {counts[name]}" for name in sorted(counts)))
    bad = ("differences", "hung", "tracebacks", "orphans")
    for name in ("kills", "pipelines", "compared", *bad):
        _say(f"RESULT kills_{name} {counts[name]} {name}")
    sys.exit(1 if any(counts[name] for name in bad) else 0)


if __name__ == "__main__":
    main()
