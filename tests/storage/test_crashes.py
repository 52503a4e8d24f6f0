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

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.faults import VARIABLE, InjectedError, forget_plans
from gnnloom.storage.runs.run import Run
from support.crashing import check_run, complete_seeds, end_well, store_partition, train


class Crashes(RuleBasedStateMachine):
    """Operations on one catalog, any of which may be cut short."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="crashes-"))
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
        if self._attempt(lambda: store_partition(self.dataset, seed), fault):
            self.finished.add(seed)

    @rule(epochs=st.integers(1, 4), fault=faults)
    def train(self, epochs: int, fault: tuple[str, int] | None) -> None:
        if self._attempt(lambda: train(self.dataset, epochs), fault):
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
        assert self.finished <= complete_seeds(self.dataset)
        check_run(self.dataset)

    def teardown(self) -> None:
        if hasattr(self, "catalog"):
            end_well(self.dataset)
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
