"""A crash between any two steps on the file system leaves a catalog in which everything complete is intact.

A state machine runs the public operations of a catalog in any order, some of which are cut short at a random step by an
injected fault: as a kill would end them, or as a full disk would. Whatever happens, readers see every artifact and run
either whole or not at all, with the bytes that an operation that was never cut short gives.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.faults import VARIABLE, InjectedError, forget_plans
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.runs.checkpoint import Checkpoint, checkpoint_epochs, read_checkpoint, write_checkpoint
from gnnloom.storage.runs.run import Run, sole_writer

ROWS = np.arange(50, dtype=np.int32) % 3


def _store_partition(dataset: Dataset, seed: int) -> None:
    """Make an artifact of two tasks, as a stage does."""
    with ArtifactWriter.begin(
        dataset.path, "partition", {"parts": 3, "seed": seed, "method": "given"}, {"file": "g"}
    ) as writer:
        if writer.is_complete:
            return
        if "part/0" not in writer.recorded():
            with writer.task("part/0") as output:
                output.add(write_array(writer.path, "part", ROWS + 0 * seed, ("vertex",), chunk_rows=20))
        writer.commit(["part/0"], {"vertex": 50, "part": 3}, {"quality": {}})


def _train(dataset: Dataset, epochs: int) -> None:
    """Train a run from its last checkpoint on, to so many epochs."""
    run = Run(dataset.run_path("run"))
    with sole_writer(run):
        done = checkpoint_epochs(run.checkpoints)
        first = done[-1] if done and run.exists else 0
        # The trainer refuses to train for fewer epochs than there are.
        epochs = max(epochs, first)
        run.start({"epochs": epochs}, first, {"file": "g"})
        for epoch in range(first, epochs):
            run.append_metrics({"epoch": epoch, "loss": 1.0 / (epoch + 1)})
            write_checkpoint(run.checkpoints, Checkpoint(epoch + 1, {"w": np.full(4, epoch + 1.0)}, {"step": epoch}))
        aside = run.predictions_aside()
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        record = write_array(aside, "label", np.full(50, epochs, np.int32), ("vertex",))
        run.publish_predictions([record], {"epoch": epochs})
        run.finish({"epochs": epochs, "loss": [1.0 / (epoch + 1) for epoch in range(epochs)]})


class Crashes(RuleBasedStateMachine):
    """Operations on one catalog, any of which may be cut short."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="crashes-"))
        self.patch = pytest.MonkeyPatch()
        # Durability against a crash of the machine is not what is tested here.
        self.patch.setattr("os.fsync", lambda _: None)
        self.finished: set[int] = set()

    @initialize()
    def create(self) -> None:
        self.catalog = Catalog(self.folder)
        self.catalog.create("web")

    @property
    def dataset(self) -> Dataset:
        return self.catalog["web"]

    def _attempt(self, operation: Callable[[], object], fault: tuple[str, int] | None) -> bool:
        """Run an operation, cut short by a fault at the N-th step; whether it came to its end."""
        if fault is not None:
            os.environ[VARIABLE] = f"*:{fault[0]}:nth={fault[1]}"
        forget_plans()
        try:
            operation()
        except (InjectedError, OSError):
            return False
        finally:
            os.environ.pop(VARIABLE, None)
            forget_plans()
        return True

    faults = st.one_of(st.none(), st.tuples(st.sampled_from(["raise", "ENOSPC", "short"]), st.integers(1, 40)))

    @rule(seed=st.integers(0, 2), fault=faults)
    def store(self, seed: int, fault: tuple[str, int] | None) -> None:
        if self._attempt(lambda: _store_partition(self.dataset, seed), fault):
            self.finished.add(seed)

    @rule(epochs=st.integers(1, 4), fault=faults)
    def train(self, epochs: int, fault: tuple[str, int] | None) -> None:
        if self._attempt(lambda: _train(self.dataset, epochs), fault):
            assert Run.open(self.dataset, "run").result()["epochs"] >= epochs

    @rule(fault=faults)
    def collect(self, fault: tuple[str, int] | None) -> None:
        self._attempt(self.dataset.collect_garbage, fault)

    @rule(seed=st.integers(0, 2), fault=faults)
    def remove(self, seed: int, fault: tuple[str, int] | None) -> None:
        def operation() -> None:
            self.dataset.remove_artifact("partition", self.dataset.find("partition", seed=seed).key)

        if seed in self.finished:
            done = self._attempt(operation, fault)
            gone = all(info.parameters.get("seed") != seed for info in self.dataset.artifacts("partition"))
            assert gone or not done
            if gone:
                self.finished.discard(seed)

    @invariant()
    def everything_complete_is_intact(self) -> None:
        if not hasattr(self, "catalog"):
            return
        damaged = [finding for finding in self.dataset.verify(quick=True) if finding.is_damaged]
        assert damaged == []
        complete = [info for info in self.dataset.artifacts("partition") if info.state == "complete"]
        for info in complete:
            assert np.array_equal(Artifact(info.path).array("part").read(), ROWS)
        assert self.finished <= {info.parameters["seed"] for info in complete}
        self._check_run()

    def _check_run(self) -> None:
        run = Run(self.dataset.run_path("run"))
        for epoch in checkpoint_epochs(run.checkpoints):
            assert read_checkpoint(run.checkpoints, epoch).arrays["w"].tolist() == [float(epoch)] * 4
        assert [line["epoch"] for line in run.metrics()] == list(range(len(run.metrics())))
        try:
            label = run.predictions().label()
        except GnnloomError:
            return
        assert len(set(label.tolist())) == 1

    def teardown(self) -> None:
        # Whatever was cut short, the same operations come to their end now.
        if hasattr(self, "catalog"):
            _store_partition(self.dataset, 1)
            _train(self.dataset, 2)
            self.dataset.collect_garbage()
            problems = [finding.problem for finding in self.dataset.verify() if finding.problem]
            assert not [problem for problem in problems if "not finished" not in problem], problems
        self.patch.undo()
        shutil.rmtree(self.folder)


#: Without shrinking, which takes minutes: a failure names its operations and faults anyway.
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
_CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much]
TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(
    max_examples=8,
    stateful_step_count=10,
    deadline=None,
    derandomize=True,
    report_multiple_bugs=False,
    suppress_health_check=_CHECKS,
    phases=_PHASES,
)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_crashes() -> None:
    run_state_machine_as_test(
        Crashes,
        settings=settings(
            max_examples=150, stateful_step_count=25, deadline=None, suppress_health_check=_CHECKS, phases=_PHASES
        ),
    )
