"""Random small pipelines and training runs with faults, kills and damage, for any duration.

``make soak`` (SOAK_MINUTES=10) repeats: draw a graph, a training and 0, 1 or 2 workers; run every command with a random
fault, or kill one of its processes after a random time, until it succeeds; compare every artifact and the losses with
those of a catalog that nothing disturbed; damage a file, let ``catalog verify`` find it, and ask the commands that read
the dataset (:mod:`support.consumers`), which must give the result of the undisturbed catalog or one error. It ends with
``RESULT`` lines; anything but zero differences, wrong results, unnoticed damage, tracebacks and leaks is a failure. A
leak is a process, or what ``gnnloom doctor --clean`` would leave. They are counted over the whole machine, so nothing
else should run meanwhile. The catalogs of a round are kept if anything was wrong in it.
"""

from __future__ import annotations

import argparse
import csv
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from gnnloom.storage import Catalog
from gnnloom.storage.faults import VARIABLE
from gnnloom.storage.shared_memory import SHARED_MEMORY
from gnnloom.trainer.job.leftovers import QUIET_SECONDS, find_leftovers, remove_leftovers
from support.commands import Command, catalog_facts, kept_if_bad, load_commands, say
from support.consumers import CONSUMERS, REFUSED, RIGHT, VERIFY, Answer, Consumer, ask
from support.stored_files import damage_file, stored_files
from support.strangers import HOSTILE_NAMES

_POINTS = (
    "json.write", "file.rename", "file.renamed", "chunk.write", "chunk.written", "folder.sync", "task.end.*",
    "manifest.write.*", "metrics.append", "checkpoint.publish", "predictions.publish", "send.*", "collective.*",
)  # fmt: skip
_ACTIONS = ("raise", "memory", "ENOSPC", "EIO", "short", "SIGKILL", "slow")
#: Options of the modes of training; neighbor mode reads samples from disk as well, which are drawn anew each time.
_MODES = ("full", "full --train-features --keep 3", "minibatch --batch-size 16", "full --embed 6",
          "minibatch --batch-size 16 --embed 6", "neighbor --fanout 3,2",
          "subgraph --sampler frontier --batch-size 16")  # fmt: skip
_METHODS = ("random", "mtkahypar", "kahypar", "metis", "multilevel")
#: Share of graphs whose vertices have names.
_NAMED = 0.3
#: Attempts with a fault before a command runs undisturbed.
_DISTURBED = 2
#: Damages of one dataset, and consumers that are asked about each.
_DAMAGES, _ASKED = 2, 4
_WORKERS = (0, 1, 2)
#: Roles of the processes that are killed.
_ROLES = {"client", "worker", "rank", "launcher", "partitioner", "all"}
#: What is still counted as wrong, each a failure.
_BAD = ("differences", "wrong", "unnoticed", "tracebacks", "crashes", "hung", "unfinished", "orphans", "leaks")


@dataclass
class Soak:
    """The state of one soak: where it works, what it draws from, and what it has counted."""

    folder: Path
    chosen: random.Random
    kill_share: float = 0.5
    counts: Counter[str] = field(default_factory=Counter)
    _bad_before: int = 0

    def round(self, number: int) -> None:
        """One pipeline, undisturbed and disturbed, and damage to it."""
        seed, scale = self.chosen.randrange(10**6), self.chosen.randint(5, 7)
        ranks, mode = self.chosen.choice([1, 2]), self.chosen.choice(_MODES)
        method, workers = self.chosen.choice(_METHODS), self.chosen.choice(_WORKERS)
        self.counts.update([f"mode {mode.split()[0]}", f"method {method}", f"workers {workers}"])
        train = f"train web/old --ranks {ranks} --hidden 4 --epochs 4 --threads 1 --checkpoint-every 2 --mode {mode}"
        graph = f"generate web rmat --scale {scale} --edge-factor 4 --seed {seed}"
        if self.chosen.random() < _NAMED:
            graph = f"ingest web {self._named_edges(number, scale)} --ids names --no-header --undirected"
            self.counts["names"] += 1
        stages = [
            f"{graph} --workers {workers}",
            f"features web random --dim 3 --workers {workers}",
            f"partition web --parts {ranks} --method {method} --workers {workers}",
            f"shard web --parts {ranks} --workers {workers}",
            train,
            "predict web/old",
        ]
        calm, wild = self.folder / f"{number}-calm", self.folder / f"{number}-wild"
        for stage in stages:
            began = time.monotonic()
            if self._run(calm, stage).code:
                sys.exit(f"an undisturbed command failed: {stage}")
            self._disturbed(wild, stage, time.monotonic() - began)
        # A run to be continued by a consumer.
        for catalog in (calm, wild):
            self._run(catalog, train.replace("web/old", "web/again"))
        self.counts["rounds"] += 1
        self.counts["differences"] += catalog_facts(calm, run="old") != catalog_facts(wild, run="old")
        self._damaged(calm, wild, ranks)
        bad = sum(self.counts[name] for name in _BAD)
        if bad == self._bad_before:
            shutil.rmtree(calm)
            shutil.rmtree(wild)
        self._bad_before = bad

    def _named_edges(self, number: int, scale: int) -> Path:
        """A file of edges between vertices with names that a terminal, a shell or a spreadsheet would obey."""
        names = [f"{name} {k}" for k in range(1 << (scale - 3)) for name in HOSTILE_NAMES if name.isprintable()]
        path = self.folder / f"{number}.csv"
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows(self.chosen.choices(names, k=2) for _ in range(4 << scale))
        return path

    def _disturbed(self, catalog: Path, stage: str, seconds: float) -> None:
        """Run a stage that takes so many seconds undisturbed."""
        for _ in range(_DISTURBED):
            if self.chosen.random() >= self.kill_share:
                fault = f"{self.chosen.choice(_POINTS)}:{self.chosen.choice(_ACTIONS)}:nth={self.chosen.randint(1, 12)}"
                self._run(catalog, stage, fault=fault)
            else:
                self._run(catalog, stage, kill_after=self.chosen.uniform(0.1, 1.0) * seconds)
        if self._run(catalog, stage).code:
            self.counts["unfinished"] += 1

    def _run(self, catalog: Path, stage: str, fault: str = "", kill_after: float | None = None) -> Command:
        """Run a command to its end, with a fault, or with a kill of one of its processes after some seconds."""
        words = [*stage.split(), "--json"]
        command = Command(self.folder, catalog, words, environment={VARIABLE: fault} if fault else {})
        self.counts["commands"] += 1
        if kill_after is not None and not command.ends_within(kill_after):
            role = self.chosen.choice(sorted(_ROLES & {*command.roles(), "all"}))
            if command.kill(role, self.chosen):
                self.counts.update({"killed": 1, f"killed {role}": 1})
        try:
            self.counts["failed"] += command.finish() != 0
        except TimeoutError as error:
            self.counts["hung"] += 1
            say(str(error))
        self.counts["orphans"] += len(command.orphans())
        # Only the fault that stands for a defect may show a traceback.
        if "Traceback" in command.log() and ":raise:" not in fault:
            self.counts["tracebacks"] += 1
            say(f"{fault} {command}\n{command.log()[-2000:]}")
        return command

    def _damaged(self, calm: Path, wild: Path, ranks: int) -> None:
        """Damage files of copies, and ask consumers."""
        stored = Catalog(calm)["web"]
        keys = {f"shards{ranks}": stored.find("shards").key, "graph": stored.graph().artifact.key}
        # The metrics of a run that was killed have the messages of all its processes.
        usable = [consumer for consumer in CONSUMERS if _fits(consumer, keys) and consumer.name != "export metrics"]
        asked = sorted(self.chosen.sample(usable, min(_ASKED, len(usable))), key=CONSUMERS.index)
        whole, copy = self.folder / "whole", self.folder / "damaged"
        shutil.copytree(calm, whole)
        expected = {consumer.name: ask(consumer, whole, "web", self.folder, keys) for consumer in (VERIFY, *asked)}
        shutil.rmtree(whole)
        for _ in range(_DAMAGES):
            shutil.copytree(wild, copy)
            file = self.chosen.choice(stored_files(copy))
            damage = damage_file(self.chosen, copy, file, calm)
            self.counts["damages"] += 1
            for consumer in (VERIFY, *asked):
                # Some consumers need what this dataset does not have.
                if not expected[consumer.name].code:
                    answer = ask(consumer, copy, "web", self.folder, keys)
                    self._judge(answer, expected[consumer.name], consumer, f"{file}: {damage}")
            shutil.rmtree(copy)

    def _judge(self, answer: Answer, expected: Answer, consumer: Consumer, what: str) -> None:
        judged = answer.judge(expected)
        self.counts["asked"] += 1
        if consumer is VERIFY:
            judged = REFUSED if judged == REFUSED else judged if answer.complaint else "unnoticed"
        if judged not in {RIGHT, REFUSED}:
            known = {"traceback": "tracebacks", "hung": "hung", "wrong": "wrong", "unnoticed": "unnoticed"}
            self.counts[known.get(judged, "crashes")] += 1
            say(f"{what}: {consumer.name} is {judged}\n{answer.command}\n{answer.log[-2000:]}")


def _fits(consumer: Consumer, keys: dict[str, str]) -> bool:
    """Whether all artifacts that a consumer names are there."""
    try:
        consumer.words.format(dataset="", out="", **keys)
    except KeyError:
        return False
    return True


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


def _processes_of(folder: str) -> list[str]:
    """Processes whose command line names the folder: state, parent and command line of each."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if any(folder in word for word in words):
            found.append(f"{process.name} ({state}, child of {parent}): {' '.join(words)}")
    return found


def main() -> None:
    """Soak for some minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kill-share", type=float, default=0.5, help="of the attempts that are disturbed")
    given = parser.parse_args()
    say(f"seed {given.seed}")
    load_commands()
    before = _outside()
    end = time.monotonic() + 60 * given.minutes
    with kept_if_bad("soak") as folder:
        soak = Soak(folder, random.Random(given.seed), given.kill_share)
        while time.monotonic() < end:
            soak.round(soak.counts["rounds"])
        # Ranks end with their launcher, and a folder must be quiet before it counts as left behind.
        time.sleep(QUIET_SECONDS + 5)
        counts = soak.counts
        _clean(before, counts)
        running = _processes_of(str(folder))
        counts["leaks"] += len(running)
        say("".join(f"still running: {process}\n" for process in running))
        say("\n".join(f"{name}: {counts[name]}" for name in sorted(counts) if " " in name))
        for name in ("rounds", "commands", "failed", "killed", "damages", "asked", "leftovers", *_BAD):
            say(f"RESULT soak_{name} {counts[name]} {name}")
        if any(counts[name] for name in _BAD):
            sys.exit(1)


if __name__ == "__main__":
    main()
