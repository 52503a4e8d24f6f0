"""Processes that work on one catalog at the same time, and are killed between any two steps, leave it intact.

Each example forks processes that store, train, collect garbage and remove, some of which are killed or fail at a random
step, while another process reads. Whatever happens, the reader sees every artifact, checkpoint and prediction either
whole or not at all, nobody waits for a process that is gone, and only errors that say so are raised.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import ExistsError, InputError, NotFoundError
from gnnloom.storage.faults import VARIABLE, InjectedError, forget_plans
from support.covering import examples
from support.crashing import check_run, complete_seeds, end_well, store_partition, train

#: Longest that the processes of an example may take, on a busy machine.
_SECONDS = 120

#: An operation: its name, its number (a seed or epochs), and the fault that cuts it short.
Operation = tuple[str, int, tuple[str, int] | None]


def _remove(dataset: Dataset, seed: int) -> None:
    dataset.remove_artifact("partition", dataset.find("partition", seed=seed).key)


def _collect(dataset: Dataset, number: int) -> None:
    del number
    dataset.collect_garbage()


_OPERATIONS: dict[str, Callable[[Dataset, int], object]] = {
    "store": store_partition, "train": train, "collect": _collect, "remove": _remove,
}  # fmt: skip

_FAULTS = st.one_of(
    st.none(), st.tuples(st.sampled_from(["SIGKILL", "SIGKILL", "raise", "ENOSPC", "short"]), st.integers(1, 40))
)
_PROGRAMS = st.lists(
    st.lists(st.tuples(st.sampled_from(list(_OPERATIONS)), st.integers(1, 3), _FAULTS), min_size=1, max_size=4),
    min_size=2,
    max_size=3,
)


def _perform(dataset: Dataset, program: Sequence[Operation]) -> None:
    for name, number, fault in program:
        os.environ[VARIABLE] = f"*:{fault[0]}:nth={fault[1]}" if fault else ""
        forget_plans()
        try:
            _OPERATIONS[name](dataset, number)
        # The fault itself; another process writes it, or has just removed it.
        except (InjectedError, ExistsError, InputError, NotFoundError):
            continue
        except OSError:
            if fault is None:
                raise


def _read(dataset: Dataset, stop: Path) -> None:
    while not stop.exists():
        complete_seeds(dataset)
        check_run(dataset)
        damaged = [finding for finding in dataset.verify(quick=True) if finding.is_damaged]
        assert damaged == []


def _fork(folder: Path, action: Callable[[], None]) -> int:
    """Run an action in a new process; an error leaves a file in the folder."""
    child = os.fork()
    if child:
        return child
    try:
        action()
    # Nothing may reach the test's own code in this process.
    except BaseException:  # noqa: BLE001
        (folder / f"error-{os.getpid()}").write_text(traceback.format_exc())
    finally:
        os._exit(0)


def _wait(children: Sequence[int]) -> None:
    deadline = time.monotonic() + _SECONDS
    left = set(children)
    while left:
        left -= {child for child in left if os.waitpid(child, os.WNOHANG)[0]}
        if time.monotonic() > deadline:
            for child in left:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            pytest.fail(f"{len(left)} processes still wait after {_SECONDS} seconds")
        time.sleep(0.002)


def _crash_together(programs: list[list[Operation]]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="crashes-"))
    catalog = Catalog(folder / "catalog")
    dataset, stop = catalog.create("web"), folder / "stop"
    reader = _fork(folder, lambda: _read(dataset, stop))
    try:
        _wait([_fork(folder, lambda each=program: _perform(dataset, each)) for program in programs])  # type: ignore[misc]
    finally:
        stop.touch()
        _wait([reader])
    errors = [path.read_text() for path in folder.glob("error-*")]
    assert not errors, errors[0]
    assert [finding for finding in dataset.verify(quick=True) if finding.is_damaged] == []
    check_run(dataset)
    end_well(dataset)
    shutil.rmtree(folder)


#: Without shrinking: what happens also depends on the order in which the processes run.
_SETTINGS = settings(
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    report_multiple_bugs=False,
)


@pytest.mark.slow
@settings(_SETTINGS, max_examples=examples(5), derandomize=True)
@given(programs=_PROGRAMS)
def test_processes_that_crash_together_leave_a_catalog_intact(programs: list[list[Operation]]) -> None:
    _crash_together(programs)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(_SETTINGS, max_examples=300)
@given(programs=_PROGRAMS)
def test_many_processes_that_crash_together(programs: list[list[Operation]]) -> None:
    _crash_together(programs)
