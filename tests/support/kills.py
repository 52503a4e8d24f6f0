"""Kills the commands of whole pipelines with SIGKILL at random moments, and compares what they finally leave.

``make kills`` (``PYTHONPATH=tests python tests/support/kills.py --kills 200``) goes through pipelines, from a generated
graph to predictions, whose partitioners and ways of training take turns. Every command runs once undisturbed in one
catalog, and in another one it is killed at random moments of its time before it may finish. What is killed is chosen by
its role: the client (the command itself), a worker, a rank, MPI's launcher, a native partitioner, or all processes at
once, as when a machine loses power. Most pipelines have two workers per stage. Every fourth one is a recipe in an MPI
job, in which ranks are the nannies of workers.

Every byte of every array, the losses and the predictions must be those of the undisturbed catalog. No command may print
a traceback, hang, or leave processes behind. The next command that starts workers or ranks must remove what a killed
one left in shared memory; in a container with processes of its own, commands remove nothing, so this is not checked.
Commands are forked from a process that has imported everything, so that kills fall on what commands do rather than on
imports. The catalogs are kept if anything was wrong.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gnnloom.storage import Catalog
from gnnloom.storage.shared_memory import _sees_all_processes
from support.commands import Command, JobCommand, catalog_facts, kept_if_bad, load_commands, say, unused_shared_memory

_METHODS = ("mtkahypar", "kahypar", "metis", "multilevel", "random", "auto")
#: Ranks, stages between the shards and the training, and options of each way of training.
_TRAININGS: tuple[tuple[int, str, str], ...] = (
    (2, "", "--mode full"),
    (2, "", "--mode full --train-features --keep 3"),
    (2, "", "--mode full --embed 6"),
    (2, "", "--mode full --model gat --heads 1"),
    (4, "--grid 2x2", "--mode full --algorithm broadcast"),
    (4, "--grid 2x2", "--mode full --algorithm replicated --grid 2x2"),
    (4, "--grid 2x2", "--mode full --algorithm summa --grid 2x2"),
    (4, "--grid 2x2", "--mode full --algorithm split3d --grid 1x2x2"),
    (4, "--grid 2x2", "--mode full --algorithm tensor3d --grid 2x2x1"),
    (2, "", "--mode minibatch --batch-size 16 --norm batch"),
    (2, "", "--mode neighbor --fanout 3,2 --batch-size 16"),
    (2, "", "--mode neighbor --fanout 3,2 --batch-size 16 --embed 6"),
    (2, "samples", "--mode neighbor --batch-size 16"),
    (2, "", "--mode subgraph --sampler frontier --batch-size 16"),
    (2, "", "--mode subgraph --sampler vertex --batch-size 16 --presamples 10"),
    (2, "", "--mode subgraph --sampler edge --batch-size 16"),
    (2, "", "--mode subgraph --sampler walk --batch-size 16"),
    (2, "", "--mode subgraph --sampler cluster"),
)
#: Kills of every command before it may finish; trainings and recipes do more than the others.
_KILLS_EACH = {"train": 4, "run": 8}
#: Every so many pipelines, one is a recipe in an MPI job.
_JOB_EVERY = 4
#: Share of the pipelines whose stages have workers.
_WITH_WORKERS = 0.7
#: Names of relations and labels in a table.
_WORDS = ("knows", "likes", "is in")
#: Parts of the split of the vertices of a table.
_PARTS = ("train", "train", "valid", "test")
#: A model for graphs with types, which needs torch alone.
_OWN_MODEL = "--model support.typed_modules:Averages"
#: Roles that have to be killed in a long session.
_ROLES = ("client", "worker", "nanny", "rank", "launcher", "partitioner", "all")
#: Roles of processes before whose start a command removes what is left in shared memory.
_SHARING = {"worker", "nanny", "rank"}
#: Share of the time of a role in which its processes are killed; later ones mostly have ended.
_EARLY = 0.7
#: Seconds after which files in shared memory that nobody uses count as left behind by gnnloom.
_SETTLED_SECONDS = 1.2
_RECIPE = """\
[dataset]
name = "web"
undirected = true

[source]
format = "sbm"
vertices = {vertices}
edges = {edges}
classes = 4
dim = 4
seed = {seed}

[partition]
method = "{method}"

[cluster]
workers = 2

[train]
run = "run"
ranks = {ranks}
hidden = [4]
epochs = 6
threads = 1
checkpoint_every = 2

[predict]
"""


@dataclass
class Kills:
    """Where the catalogs are, what moments are drawn from, and what has been counted.

    Attributes:
        left: files in shared memory that killed commands left, and that the next one with workers or ranks removes.
        removes: whether commands remove what others left.
    """

    folder: Path
    chosen: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    left: set[Path] = field(default_factory=set)
    removes: bool = field(default_factory=_sees_all_processes)

    def pipeline(self, number: int) -> None:
        """One pipeline, undisturbed and killed."""
        calm, wild = self.folder / f"{number}-calm", self.folder / f"{number}-wild"
        began, before = time.monotonic(), self.counts["kills"]
        kind, stages, about = self._drawn(number)
        for stage in stages:
            words = [word.format(samples=_samples(calm)) for word in shlex.split(stage)]
            seconds = self._undisturbed(kind(self.folder, calm, words))
            self._killed(partial(kind, self.folder, wild, words), seconds, words[0])
        expected, found = catalog_facts(calm), catalog_facts(wild)
        differing = sorted({name for name, _ in expected.items() ^ found.items()})
        self.counts.update({"pipelines": 1, "compared": len(expected), "differences": len(differing)})
        killed, took = self.counts["kills"] - before, time.monotonic() - began
        say(f"{number}: {about}: {killed} kills in {took:.0f} s, {len(expected)} facts compared")
        if differing:
            say("\n".join(["these differ:", *differing]))

    def _drawn(self, number: int) -> tuple[type[Command], list[str], str]:
        """The kind of the commands of a pipeline, the commands, and what to call them."""
        method = _METHODS[number % len(_METHODS)]
        if number % _JOB_EVERY == _JOB_EVERY - 1:
            recipe = self.folder / f"{number}.toml"
            vertices = self.chosen.randint(40, 120)
            seed, ranks = self.chosen.randrange(10**6), JobCommand.ranks
            recipe.write_text(
                _RECIPE.format(vertices=vertices, edges=6 * vertices, seed=seed, ranks=ranks, method=method)
            )
            return JobCommand, [f"run {recipe}"], f"{method}, a recipe in an MPI job"
        training = _TRAININGS[number % len(_TRAININGS)]
        workers = 2 if self.chosen.random() < _WITH_WORKERS else 0
        stages = [*_stages(self.chosen, method, training, workers), *self._typed(number, method, workers)]
        return Command, stages, f"{method}, {training[2]}, --workers {workers}"

    def _typed(self, number: int, method: str, workers: int) -> list[str]:
        """The commands for a table of several relations with columns of edges, and for vertices of several types."""
        table, vertices = self.folder / f"{number}-facts.csv", self.folder / f"{number}-vertices.csv"
        kinds = [self.chosen.choice(("person", "city")) for _ in range(200)]
        lines = [f"v{at},{kind},{at % 7},{at % 3},{_PARTS[at % len(_PARTS)]}\n" for at, kind in enumerate(kinds)]
        vertices.write_text("id,kind,age,group,part\n" + "".join(lines))
        rows = [
            f"v{self.chosen.randrange(200)},v{self.chosen.randrange(200)},{self.chosen.choice(_WORDS)},"
            f"{self.chosen.choice(('', self.chosen.randrange(9)))},{self.chosen.choice(_WORDS)}\n"
            for _ in range(self.chosen.randrange(2000, 20000))
        ]
        table.write_text("from,to,word,fee,kind\n" + "".join(rows))
        columns = "from,to,word as relation,fee as feature else 0,kind as label"
        listed = "id,kind as type,age as feature,group as label,part as split"
        tables = ["--relation", f"*,*,*={table}:{columns}", "--vertices", f"*={vertices}:{listed}"]
        training = "--mode neighbor --of-type person --reverse --fanout 3,2 --batch-size 16 --hidden 4 --threads 1"
        stages = [
            shlex.join(["ingest", "typed", "--merge", "keep", *tables]),
            f"partition typed --parts 2 --method {method} --reverse --replicate auto",
            "shard typed --parts 2",
            "shard typed --grid 2x2 --permutation double",
            "sample typed --of-type person --reverse --fanout 3,2 --batch-size 16 --epochs 2 --ranks 2",
            # The name that the rows of this word get between people and cities. Last, as it adds another graph.
            "links typed random --relation person_knows_city --disjoint 0.2",
        ]
        trained = [
            f"train typed/run --ranks 2 {_OWN_MODEL} {training} --epochs 6 --checkpoint-every 2",
            f"predict typed/run {_OWN_MODEL}",
        ]
        prepared = [f"{stage} --workers {workers}" for stage in stages]
        return [*prepared[:-1], *trained, prepared[-1]]

    def _undisturbed(self, command: Command) -> dict[str, float]:
        """Finish a command; returns for how many seconds there were processes of each role."""
        seconds = self._check_end(command, finished=True)
        return {role: time for role, time in seconds.items() if role in _ROLES} | {"all": max(seconds.values())}

    def _killed(self, start: Callable[[], Command], seconds: dict[str, float], name: str) -> None:
        for _ in range(_KILLS_EACH.get(name, 2)):
            # The one that was killed least often, of the roles that the command has.
            role = min(seconds, key=lambda role: (self.counts[f"kills of {role}"], self.chosen.random()))
            command = start()
            present = role == "all" or command.waits_for(role)
            early = present and not command.ends_within(self.chosen.uniform(0.0, _EARLY * seconds[role]))
            if early and command.kill(role, self.chosen):
                self.counts.update({"kills": 1, f"kills of {role}": 1, f"kills in {name}": 1})
            self._check_end(command, finished=False)
            self._note_left(command)
            # It came to its end before it was killed: nothing is left to do for the next one.
            if command.code == 0:
                break
        self._check_end(start(), finished=True)

    def _check_end(self, command: Command, *, finished: bool) -> dict[str, float]:
        """Wait for the end of a command, and look at what it printed and left; returns the seconds of each role."""
        seconds: dict[str, float] = {}
        try:
            seconds = command.watch()
        except TimeoutError as error:
            self.counts["hung"] += 1
            say(str(error))
        if "Traceback" in command.log():
            self.counts["tracebacks"] += 1
            say(f"{command}\n{command.log()}")
        if orphans := command.orphans():
            self.counts["orphans"] += len(orphans)
            say(f"still there after {command}: {orphans}")
        if finished and command.code:
            sys.exit(f"ended with {command.code}: {command}\n{command.log()}")
        if finished and _SHARING & seconds.keys():
            leaks = {path for path in self.left if path.exists()}
            if leaks and self.removes:
                self.counts["leaks"] += len(leaks)
                say(f"left by a killed command, and still there after {command}: {sorted(map(str, leaks))}")
            self.left = set()
        return seconds

    def _note_left(self, command: Command) -> None:
        """Note what a killed command left in shared memory, which a later command has to remove."""
        if any(path.exists() for path in command.shared_memory):
            # A file of a process that begins is not in use for a moment, so a command spares new ones.
            time.sleep(_SETTLED_SECONDS)
            left = command.shared_memory & unused_shared_memory()
            self.counts["left in shared memory"] += len(left)
            self.left |= left


def _stages(chosen: random.Random, method: str, training: tuple[int, str, str], workers: int) -> list[str]:
    ranks, extra, options = training
    seed, scale = chosen.randrange(10**6), chosen.randint(5, 7)
    shape = chosen.choice(["", " --directed"])
    grid = extra.startswith("--grid")
    samples = f"sample web --fanout 3,2 --batch-size 16 --epochs 3 --ranks {ranks} --workers {workers}"
    return [
        f"generate web rmat --scale {scale} --edge-factor 4 --seed {seed} --workers {workers}{shape}",
        f"features web random --dim 3 --workers {workers}",
        f"partition web --parts {ranks} --method {method} --workers {workers}",
        f"shard web {f'{extra} --permutation double' if grid else f'--parts {ranks}'} --workers {workers}",
        *([samples] if extra == "samples" else ()),
        *(() if grid else [f"propagate web --ranks {ranks} --threads 1 --steps {chosen.randint(1, 3)}"]),
        f"train web/run --ranks {ranks} --hidden 4 --epochs 6 --threads 1 --checkpoint-every 2 {options}"
        + (" --samples {samples}" if extra == "samples" else ""),
        "predict web/run",
        # Last, as it adds another graph to the dataset.
        f"links web random --valid 0.1 --disjoint {chosen.choice(['0', '0.3'])} --seed {seed} --workers {workers}",
    ]


def _samples(catalog: Path) -> str:
    """Key of the samples of a catalog, or nothing if it has none."""
    if not (catalog / "web" / "samples").exists():
        return ""
    return Catalog(catalog)["web"].samples().artifact.key


def main() -> None:
    """Kill commands until there were so many kills."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first pipeline")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    say(f"seed {given.seed}")
    load_commands()
    with kept_if_bad("kills") as folder:
        kills = Kills(folder, random.Random(given.seed))
        number = given.first
        while kills.counts["kills"] < given.kills:
            kills.pipeline(number)
            number += 1
        counts = kills.counts
        say("\n".join(f"{name}: {counts[name]}" for name in sorted(counts)))
        for role in _ROLES:
            if not counts[f"kills of {role}"]:
                say(f"no {role} was killed")
        bad = ("differences", "hung", "tracebacks", "orphans", "leaks")
        for name in ("kills", "pipelines", "compared", *bad):
            say(f"RESULT kills_{name} {counts[name]} {name}")
        if any(counts[name] for name in bad):
            sys.exit(1)


if __name__ == "__main__":
    main()
