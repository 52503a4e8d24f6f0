"""A state machine over the public operations of a whole dataset, with a model of what must hold after each.

``PYTHONPATH=tests python tests/support/dataset_machine.py --least 2000`` draws operations in any order: stages from a
graph whose vertices have hostile names to samples, training, resumption, prediction, export, kills of commands at
random moments, two commands at once, flipped bits, garbage collection, removals, and archives. Every operation runs
once on a calm catalog first, so the model knows what each gives. Commands are forked from this process, which must have
no threads.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, Phase, assume, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.runs.run import Run
from support.commands import Command, load_commands, say
from support.consumers import REFUSED, RIGHT, Answer, Consumer, ask
from support.stored_files import stored_files
from support.strangers import HOSTILE_NAMES

#: Operations that make something, in an order in which each finds what it needs.
STAGES = (
    "ingest web {source} --ids names --undirected --no-header --workers 0",
    "features web random --dim 3 --classes 3 --workers 0",
    "partition web --parts 1 --method random --workers 0",
    "partition web --parts 2 --method block --workers 0",
    "shard web --parts 1 --workers 0",
    "shard web --parts 2 --workers 0",
    "shard web --grid 2x2 --permutation double --workers 0",
    "sample web --fanout 3,2 --batch-size 16 --epochs 1 --workers 0",
    "links web random --valid 0.1 --disjoint 0.3 --workers 0",
    "propagate web --steps 2 --ranks 1 --threads 1",
    "train web/full --ranks 1 --hidden 4 --epochs 4 --threads 1 --checkpoint-every 1",
    "train web/grid --ranks 1 --hidden 4 --epochs 2 --threads 1 --algorithm summa",
    "train web/near --ranks 1 --hidden 4 --epochs 2 --threads 1 --mode neighbor --fanout 3,2 --batch-size 16",
)
#: Those that make the graph and its vertices.
_SOURCE = STAGES[:2]
#: Operations that read. Predictions are kept with their run, which the model does not follow further.
READERS = tuple(
    Consumer(name, words)
    for name, words in {
        "predict": "predict web/full --out {out}/a.npy",
        "export edges": "export web edges --out {out}/a.npy",
        "export features": "export web features --out {out}/a.npy",
        "export partition": "export web partition --parts 2 --out {out}/a.csv",
        "export metrics": "export web/full metrics --out {out}/a.npz",
    }.items()
)
_LONGEST = 0.4
Rule = TypeVar("Rule", bound=Callable[..., Any])
_LISTS_OF_RUN = re.compile(r"web/runs/[^/]+/((checkpoint(/best)?|predictions)/)?zarr\.json")


@dataclass
class Known:
    """What a calm catalog has after every operation: digests and inputs of artifacts, losses, answers of readers."""

    catalog: Path
    digests: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, set[str]] = field(default_factory=dict)
    losses: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        """The file with the graph, next to the catalog."""
        return self.catalog.with_name("source.csv")

    @classmethod
    def of_calm_catalog(cls, folder: Path) -> Known:
        known = cls(folder / "calm")
        _write_source(known.source)
        for stage in STAGES:
            command = Command(folder, known.catalog, stage.format(source=known.source).split())
            if command.finish():
                raise AssertionError(f"{command} ended with {command.code}\n{command.log()}")
        dataset = Catalog(known.catalog)["web"]
        known.digests = complete(dataset)
        known.inputs = {f"{info.kind}/{info.key}": inputs_of(info.inputs) for info in dataset.artifacts()}
        known.losses = {run: Run.open(dataset, run).result()["loss"] for run in dataset.runs()}
        known.answers = {reader.name: ask(reader, known.catalog, "web", folder, {}) for reader in READERS}
        return known


def _write_source(file: Path) -> None:
    """Write edges between vertices with hostile names."""
    chosen, short = random.Random(5), [name[:50] for name in HOSTILE_NAMES if "\n" not in name]
    names = [f"{name} {number}" for number in range(4) for name in short]
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows(chosen.choices(names, k=2) for _ in range(200))


def inputs_of(inputs: dict[str, str]) -> set[str]:
    """Names of the inputs of an artifact that are artifacts themselves."""
    kinds = {"graph", "vertices", "partition", "transpose", "links", "shards"}
    return {f"{kind}/{key}" for kind, key in inputs.items() if kind in kinds}


def complete(dataset: Dataset) -> dict[str, str]:
    """Digest of every complete artifact, empty if it cannot be read."""
    found = {}
    for info in dataset.artifacts():
        if info.state == "complete":
            try:
                found[f"{info.kind}/{info.key}"] = dataset.find(info.kind, info.key).digest
            except GnnloomError:
                found[f"{info.kind}/{info.key}"] = ""
    return found


@dataclass
class Model:
    """What must be in the catalog.

    Attributes:
        there: complete artifacts, by kind and key.
        damaged: artifacts and runs (``runs/NAME``) of which a byte was changed.
        finished: runs that ended.
    """

    there: set[str] = field(default_factory=set)
    damaged: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)

    def useless(self, known: Known) -> set[str]:
        """Artifacts with an input that is not there, or that is itself useless."""
        useless: set[str] = set()
        while more := {name for name in self.there - useless if known.inputs[name] - (self.there - useless)}:
            useless |= more
        return useless

    def remove(self, names: Iterable[str]) -> None:
        """Artifacts or runs are gone, and damage with them."""
        gone = set(names)
        for each in (self.there, self.damaged, self.finished):
            each.difference_update(gone)

    @property
    def state(self) -> tuple[frozenset[str], ...]:
        """All of it, to compare with."""
        return frozenset(self.there), frozenset(self.damaged), frozenset(self.finished)


def _if_changed(operation: str) -> Callable[[Rule], Rule]:
    """Precondition of an operation that need not be done twice in a state.

    Examples begin with one that has the first of all operations wherever it may be, so it would be done twenty times.
    """
    return precondition(lambda machine: machine.last.get(operation) != machine.model.state)


class DatasetMachine(RuleBasedStateMachine):
    """Operations on one dataset."""

    known: ClassVar[Known]
    steps: ClassVar[int] = 0
    #: State in which some operations were done last.
    last: dict[str, tuple[frozenset[str], ...]]

    @initialize(is_whole=st.booleans())
    def begin(self, is_whole: bool) -> None:
        """Begin with a graph, or with everything that there can be, from which there is more to lose."""
        self.folder = Path(tempfile.mkdtemp(prefix="machine-"))
        self.catalog, self.model = self.folder / "catalog", Model()
        self.last = {}
        if is_whole:
            shutil.copytree(self.known.catalog, self.catalog)
            self.model.there, self.model.finished = set(self.known.digests), set(self.known.losses)
        else:
            for stage in _SOURCE:
                self.run_to_end(stage)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.verify_finds_exactly_what_is_damaged()
            shutil.rmtree(self.folder)

    @property
    def dataset(self) -> Dataset:
        return Catalog(self.catalog)["web"]

    def command(self, words: str, name: str = "first") -> Command:
        """Begin a command."""
        DatasetMachine.steps += 1
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return Command(folder, self.catalog, [*words.format(source=self.known.source).split(), "--json"])

    def run_to_end(self, words: str) -> Command:
        """Run a command, which succeeds or ends with one error."""
        return self.ended(self.command(words))

    def ended(self, command: Command) -> Command:
        command.finish()
        assert not command.complaint(), f"{command}: {command.complaint()}\n{command.log()}{command.output()}"
        self.look()
        if command.code == 0 and command.words[0] == "train":
            run = command.words[1].split("/")[1]
            self.model.finished.add(run)
            assert Run.open(self.dataset, run).result()["loss"] == self.known.losses[run] or self.is_damaged(run)
        return command

    def succeed(self, words: str) -> None:
        """Run a command that must succeed."""
        command = self.run_to_end(words)
        assert command.code == 0, f"{command}\n{command.log()}"

    def is_damaged(self, run: str) -> bool:
        return f"runs/{run}" in self.model.damaged

    def look(self) -> None:
        """Add what has become complete."""
        self.model.there |= set(complete(self.dataset)) if self.dataset_exists() else set()

    def dataset_exists(self) -> bool:
        return (self.catalog / "web" / "zarr.json").exists()

    def with_source(self) -> None:
        """Make the graph and its vertices again if one is gone: without vertices, stages make other shards."""
        # A graph without held-out links is made from another one.
        sources = {name for name in self.model.there if not name.startswith("graph") or not self.known.inputs[name]}
        if not {"graph", "vertices"} <= {name.partition("/")[0] for name in sources}:
            for stage in _SOURCE:
                assert self.run_to_end(stage).code == 0 or self.model.damaged

    # Operations that make something.

    @rule(stage=st.sampled_from(STAGES))
    def make(self, stage: str) -> None:
        self.with_source()
        self.run_to_end(stage)

    @rule(stage=st.sampled_from(STAGES))
    def make_twice(self, stage: str) -> None:
        self.with_source()
        if self.run_to_end(stage).code == 0:
            before = self.files()
            self.succeed(stage)
            assert self.files() == before

    @rule(stage=st.sampled_from(STAGES), after=st.floats(0, _LONGEST))
    def kill(self, stage: str, after: float) -> None:
        self.with_source()
        command = self.command(stage)
        if not command.ends_within(after):
            command.kill("all", random.Random(0))
            command.finish()
            assert command.orphans() == []
            self.look()
        else:
            self.ended(command)

    @rule(first=st.sampled_from(STAGES), second=st.sampled_from((*STAGES, "catalog gc web", "catalog verify web")))
    def make_at_once(self, first: str, second: str) -> None:
        self.with_source()
        begun = [self.command(first, "first"), self.command(second, "second")]
        lost = self.model.useless(self.known) if "gc" in second else set()
        for command in begun:
            command.finish()
        self.model.remove(name for name in lost if name not in complete(self.dataset))
        for command in begun:
            self.ended(command)

    # Operations that read.

    @rule(reader=st.sampled_from(READERS))
    def read(self, reader: Consumer) -> None:
        DatasetMachine.steps += 1
        answer = ask(reader, self.catalog, "web", self.folder, {})
        judged = answer.judge(self.known.answers[reader.name])
        assert judged in {RIGHT, REFUSED}, f"{answer.command}: {judged}\n{answer.log}"

    @_if_changed("verify")
    @rule()
    def verify(self) -> None:
        self.last["verify"] = self.model.state
        DatasetMachine.steps += 1
        self.verify_finds_exactly_what_is_damaged()

    def verify_finds_exactly_what_is_damaged(self) -> None:
        """Every damaged artifact and run is found, and nothing else but what is made from them."""
        findings = self.dataset.verify()
        found = {f"{finding.kind}/{finding.key}" for finding in findings if finding.is_damaged}
        assert self.model.damaged <= found, f"unnoticed: {self.model.damaged - found}"
        if not self.model.damaged:
            assert not found, [finding.problem for finding in findings if finding.is_damaged]

    # Operations that damage, remove and move.

    @precondition(lambda self: len(self.model.damaged) < 2)
    @rule(seed=st.integers(0, 10**6))
    def flip(self, seed: int) -> None:
        DatasetMachine.steps += 1
        chosen, names = random.Random(seed), {*self.model.there, *(f"runs/{run}" for run in self.model.finished)}
        files = [file for file in stored_files(self.catalog) if "/".join(file.split("/")[1:3]) in names]
        # Whatever is written to a run puts its lists right again, before which they are called outdated.
        files = [file for file in files if not _LISTS_OF_RUN.fullmatch(file)]
        assume(files)
        path = self.catalog / chosen.choice(files)
        content = bytearray(path.read_bytes())
        content[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)
        path.write_bytes(content)
        self.model.damaged.add("/".join(path.relative_to(self.catalog).parts[1:3]))

    @rule(seed=st.integers(0, 10**6), force=st.booleans())
    def remove(self, seed: int, force: bool) -> None:
        names = sorted({*self.model.there, *self.model.damaged, *(f"runs/{run}" for run in self.model.finished)})
        assume(names)
        name = random.Random(seed).choice(names)
        removed = self.run_to_end(f"catalog rm web --artifact {name}{' --force' if force else ''}")
        needed = [other for other in self.model.there if name in self.known.inputs.get(other, ())]
        if removed.code == 0:
            assert force or not needed or self.model.damaged
            assert not (self.catalog / "web" / name).exists()
            self.model.remove([name, name.removeprefix("runs/")])
        else:
            assert not force

    @precondition(lambda self: self.model.damaged)
    @rule()
    def remove_damaged(self) -> None:
        for name in sorted(self.model.damaged):
            self.succeed(f"catalog rm web --artifact {name} --force")
            self.model.remove([name, name.removeprefix("runs/")])

    @_if_changed("collect_garbage")
    @rule()
    def collect_garbage(self) -> None:
        self.last["collect_garbage"] = self.model.state
        useless = self.model.useless(self.known)
        self.succeed("catalog gc web")
        there = set(complete(self.dataset))
        # What cannot be read says of no input that it is missing.
        assert self.model.there - there <= useless
        assert self.model.damaged or self.model.there - there == useless
        self.model.remove(self.model.there - there)

    @_if_changed("archive")
    @rule()
    def archive(self) -> None:
        self.last["archive"] = self.model.state
        file = self.folder / "web.tar"
        file.unlink(missing_ok=True)
        exported = self.run_to_end(f"catalog export web {file}").code == 0
        assert exported != bool(self.model.damaged)
        assert exported == file.exists()
        if exported:
            self.succeed(f"catalog import {file} --as copy")
            copy = Catalog(self.catalog)["copy"]
            assert complete(copy) == complete(self.dataset)
            assert not [finding for finding in copy.verify(quick=True) if finding.is_damaged]
            self.succeed("catalog rm copy --yes")

    @invariant()
    def what_is_complete_is_what_it_was(self) -> None:
        if not hasattr(self, "model"):
            return
        found = complete(self.dataset)
        assert set(found) == self.model.there, f"{set(found) ^ self.model.there}"
        for name, digest in found.items():
            assert name in self.model.damaged or digest == self.known.digests[name], name

    def files(self) -> dict[str, tuple[int, int]]:
        """Size and time of change of every file."""
        stats = {file: (self.catalog / file).stat() for file in stored_files(self.catalog)}
        return {file: (stat.st_size, stat.st_mtime_ns) for file, stat in stats.items()}


def run(examples: int, steps: int, least: int, drawn: int | None) -> int:
    """Run the machine, again if there were too few steps; returns the number of commands and other steps.

    Args:
        drawn: the same number draws the same operations.
    """
    load_commands(ranks=False)
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        # Without shrinking, which takes minutes: a failure names its operations anyway.
        phases=(Phase.explicit, Phase.generate),
        print_blob=False,
    )
    with tempfile.TemporaryDirectory(prefix="machine-") as folder:
        DatasetMachine.known = Known.of_calm_catalog(Path(folder))
        machine = DatasetMachine if drawn is None else seed(drawn)(DatasetMachine)
        while True:
            run_state_machine_as_test(machine, settings=chosen)
            if DatasetMachine.steps >= least:
                return DatasetMachine.steps


def main() -> None:
    """Run examples of some steps each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=10)
    parser.add_argument("--steps", type=int, default=50, help="of an example, at most")
    parser.add_argument("--least", type=int, default=0, help="steps of all examples, at least")
    parser.add_argument("--seed", type=int, help="draw the same operations every time")
    given = parser.parse_args()
    say(f"RESULT machine_steps {run(given.examples, given.steps, given.least, given.seed)} steps")


if __name__ == "__main__":
    main()
