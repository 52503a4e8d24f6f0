"""Changes temporary files between a kill and the resumption: wrong bytes without an error are a failure.

``PYTHONPATH=tests python tests/support/work_changes.py --changes 300`` goes through the stages of the pipeline. Each
case begins a stage on a copy of a small dataset and kills it at a random moment, or stops it before a random task. It
then changes something in the work folder: a flipped bit, zeros, two exchanged files, a cut end or a deleted file. The
stage runs again, and must make the bytes of an undisturbed run or end with one error. After an error, ``catalog gc``
removes what is unfinished, as errors advise, and the stage must make the right bytes. ``--only N`` with the same
``--seed`` repeats one case. The catalogs of failures are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.artifact import WORK, Artifact
from gnnloom.storage.upkeep.garbage import collect_garbage
from support.commands import kept_if_bad, say
from support.small_stages import SMALL_FILES, STAGES, Stage, make_small
from support.stopping import StoppedError, StoppingCluster

#: Kinds of changes by weight.
_CHANGES: Final = {"flip": 35, "zeros": 15, "exchange": 20, "cut": 15, "delete": 15}
RIGHT, REFUSED, UNTOUCHED = "right", "refused", "untouched"
WRONG, TRACEBACK, STUCK, CRASH = "wrong", "traceback", "stuck", "crash"
_BAD: Final = (WRONG, TRACEBACK, STUCK, CRASH)


@dataclass(frozen=True)
class Undisturbed:
    """What a stage does if nothing disturbs it: the digest, the number of its tasks, and how long it takes."""

    digest: str
    tasks: int
    seconds: float


@dataclass
class WorkChanges:
    """Prepared datasets, and what undisturbed stages make of them.

    Attributes:
        apart: whether stages run in processes of their own, so that they can be killed at any moment, and a crash ends
            only one case.
    """

    folder: Path
    apart: bool
    stages: Mapping[str, Stage] = field(default_factory=lambda: STAGES)
    undisturbed: dict[str, Undisturbed] = field(default_factory=dict)

    def prepare(self) -> None:
        for name, stage in self.stages.items():
            stage.prepare(Catalog(self._prepared(name)).create("g"), self.folder)
            cluster, began = StoppingCluster(scratch=SMALL_FILES), time.monotonic()
            artifact = stage.run(self._copy(name), self.folder, cluster)
            artifact.verify()
            seconds = time.monotonic() - began
            self.undisturbed[name] = Undisturbed(artifact.digest, len(cluster.ran), seconds)

    def case(self, seed: int, number: int) -> dict[str, Any]:
        """Disturb one stage; returns what happened, as JSON."""
        chosen = random.Random(f"{seed} {number}")
        name = list(self.stages)[number % len(self.stages)]
        catalog = self._copy(name)
        stopped = self._disturb(chosen, name, catalog)
        changed = _change_work(chosen, catalog.root)
        answer, said = self._answer(name, catalog) if changed else (UNTOUCHED, "")
        if answer in _BAD:
            catalog.root.rename(self.folder / f"bad-{number}")
        return {"number": number, "stage": name, "what": f"{stopped}: {changed}", "answer": answer, "said": said}

    def _prepared(self, name: str) -> Path:
        return self.folder / "prepared" / name.replace(" ", "-")

    def _copy(self, name: str) -> Catalog:
        path = self.folder / "case"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self._prepared(name), path, symlinks=True)
        return Catalog(path)

    def _disturb(self, chosen: random.Random, name: str, catalog: Catalog) -> str:
        """Begin a stage, and end it early; returns where."""
        whole = self.undisturbed[name]
        if self.apart and chosen.random() < 0.5:
            seconds = chosen.uniform(0, whole.seconds)
            _apart(partial(self._begin, name, catalog, InProcessCluster(scratch=SMALL_FILES)), seconds)
            return f"killed after {seconds:.3f} s"
        tasks = chosen.randrange(1, whole.tasks + 1)
        self._call(partial(self._begin, name, catalog, StoppingCluster(tasks, SMALL_FILES)))
        return f"stopped after {tasks} of {whole.tasks} tasks"

    def _begin(self, name: str, catalog: Catalog, cluster: InProcessCluster) -> str:
        with contextlib.suppress(StoppedError):
            self.stages[name].run(catalog, self.folder, cluster)
        return ""

    def _answer(self, name: str, catalog: Catalog) -> tuple[str, str]:
        """Run a stage again, and once more after an error; returns the answer, and what was said."""
        finish, digest = partial(self._finish, name, catalog), self.undisturbed[name].digest
        answer, said = _judged(self._call(finish), digest)
        if answer != REFUSED:
            return answer, said
        for dataset in catalog:
            collect_garbage(catalog[dataset])
        again, more = _judged(self._call(finish), digest)
        return (REFUSED, said) if again == RIGHT else (STUCK if again == REFUSED else again, f"{said}\n{more}")

    def _call(self, function: Callable[[], str]) -> str:
        return _apart(function) if self.apart else function()

    def _finish(self, name: str, catalog: Catalog) -> str:
        """The digest of what a stage makes; or, after a space, what it said instead."""
        try:
            artifact = self.stages[name].run(catalog, self.folder, InProcessCluster(scratch=SMALL_FILES))
            Artifact(artifact.path).verify()
        except GnnloomError as error:
            return f"{REFUSED} {error}"
        except Exception:  # noqa: BLE001 - whatever is no error of gnnloom's own is printed with a traceback
            return f"{TRACEBACK} {traceback.format_exc()}"
        return artifact.digest


def _judged(found: str, digest: str) -> tuple[str, str]:
    kind, _, said = found.partition(" ")
    if kind in {REFUSED, TRACEBACK}:
        # One line, as the command line prints it.
        return (TRACEBACK if kind == REFUSED and "\n" in said.strip() else kind), said
    return (RIGHT if found == digest else CRASH if not found else WRONG), ""


def _apart(function: Callable[[], str], seconds: float | None = None) -> str:
    """What a function returns in a process of its own; empty if the process is killed, or crashes."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        # Its children, such as native partitioners, are killed with it.
        os.setsid()
        os.close(read)
        try:
            with os.fdopen(write, "w") as pipe:
                pipe.write(function())
        finally:
            os._exit(0)
    os.close(write)
    if seconds is not None:
        time.sleep(seconds)
        os.killpg(process, signal.SIGKILL) if _is_leader(process) else os.kill(process, signal.SIGKILL)
    with os.fdopen(read) as pipe:
        found = pipe.read()
    os.waitpid(process, 0)
    return found


def _is_leader(process: int) -> bool:
    try:
        return os.getpgid(process) == process
    except ProcessLookupError:
        return False


def _change_work(chosen: random.Random, catalog: Path) -> str:
    """Change something in the work folders of a catalog; returns what, or nothing if there is none."""
    files = sorted(path for path in catalog.rglob("*") if WORK in path.parts and path.is_file() and path.stat().st_size)
    if not files:
        return ""
    # Few of the files are lanes: half of the changes are about those.
    lanes = [path for path in files if path.suffix != ".json"]
    path = chosen.choice(lanes if lanes and chosen.random() < 0.7 else files)
    change = chosen.choices(list(_CHANGES), list(_CHANGES.values()))[0]
    where = str(path.relative_to(catalog)).partition(f"{WORK}/")[2]
    if change == "exchange":
        other = chosen.choice(files)
        first, second = path.read_bytes(), other.read_bytes()
        path.write_bytes(second)
        other.write_bytes(first)
        return "" if first == second else f"{where} exchanged with {other.name}"
    before = path.read_bytes()
    if change == "delete":
        path.unlink()
        return f"{where} deleted"
    path.write_bytes(_changed(chosen, before, change))
    return "" if path.read_bytes() == before else f"{where}: {change}"


def _changed(chosen: random.Random, content: bytes, change: str) -> bytes:
    changed, place = bytearray(content), chosen.randrange(len(content))
    if change == "flip":
        changed[place] ^= 1 << chosen.randrange(8)
    elif change == "zeros":
        stop = min(len(changed), place + chosen.choice([1, 8, 64, 4096]))
        changed[place:stop] = bytes(stop - place)
    else:
        del changed[place:]
    return bytes(changed)


def changed_cases(changes: WorkChanges, seed: int, count: int, first: int = 0) -> list[dict[str, Any]]:
    """Cases until so many of them changed something."""
    cases: list[dict[str, Any]] = []
    number = first
    while sum(case["answer"] != UNTOUCHED for case in cases) < count:
        cases.append(changes.case(seed, number))
        if cases[-1]["answer"] in _BAD:
            say(json.dumps(cases[-1], indent=1).replace("\\n", "\n"))
        elif cases[-1]["answer"] == REFUSED:
            say(f"{number}: {cases[-1]['stage']}, {cases[-1]['what']}: {cases[-1]['said']}")
        number += 1
    return cases


def main() -> None:
    """Change work files, one or two per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="repeat one case, and show what it says")
    parser.add_argument("--stage", choices=STAGES, help="only one of the stages")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    say(f"seed {given.seed}")
    # Damaged files that are made again are logged.
    logging.getLogger("gnnloom").setLevel(logging.CRITICAL)
    make_small(setattr)
    with kept_if_bad("changes") as folder:
        changes = WorkChanges(folder, apart=True)
        if given.stage:
            changes.stages = {given.stage: STAGES[given.stage]}
        changes.prepare()
        for name, whole in changes.undisturbed.items():
            say(f"{name}: {whole.tasks} tasks in {whole.seconds:.2f} s")
        if given.only is not None:
            say(json.dumps(changes.case(given.seed, given.only), indent=1).replace("\\n", "\n"))
            return
        cases = changed_cases(changes, given.seed, given.changes, given.first)
        counts = Counter(case["answer"] for case in cases)
        for name in changes.stages:
            own = Counter(case["answer"] for case in cases if case["stage"] == name)
            say(f"{name}: {', '.join(f'{count} {answer}' for answer, count in sorted(own.items()))}")
        say(f"RESULT work_changes {len(cases) - counts[UNTOUCHED]} changes")
        for answer in (RIGHT, REFUSED, *_BAD):
            say(f"RESULT work_changes_{answer} {counts[answer]} {answer}")
        if any(counts[answer] for answer in _BAD):
            sys.exit(1)


if __name__ == "__main__":
    main()
