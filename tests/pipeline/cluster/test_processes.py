"""A worker that takes far more than its budget is ended before the machine runs out of memory, and only then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dask
import numpy as np
import psutil
import pytest
from distributed import Client
from distributed.nanny import WorkerProcess

from gnnloom.pipeline.cluster import processes
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster, worker_settings
from gnnloom.pipeline.cluster.processes import Guard, own_memory
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, MINIMUM_MEMORY
from gnnloom.storage.errors import LaunchError
from gnnloom.trainer.comm.transports.mpi import find_mpiexec
from gnnloom.trainer.job.launch import rank_environment
from support.mpi import MPI_PYTHON

PROGRAM = Path(__file__).parent / "programs" / "guarded_ranks.py"

#: What a worker of the tests may use, so little that a small array is far beyond it.
BUDGET = 1 << 20
FAR_BEYOND, WITHIN = Guard.of(BUDGET).most_memory + (128 << 20), 64 << 20


def hold(num_bytes: int) -> int:
    """Hold so many bytes for some looks of the nanny."""
    held = np.ones(num_bytes, np.uint8)
    time.sleep(0.5)
    return int(held[-1])


def be_killed(_: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def process_of(_: int) -> int:
    return os.getpid()


def map_file(path: Path) -> int:
    """Read all pages of a mapped file of zeros, and keep them for some looks of the nanny; returns their number."""
    mapped = np.memmap(path, np.uint8, "r")
    pages = int((mapped[::4096] == 0).sum())
    time.sleep(0.5)
    return pages


@contextmanager
def workers_killed_while_they_start() -> Iterator[None]:
    """Kill every worker of this process as soon as it is there."""
    ended, me = threading.Event(), psutil.Process()

    def kill() -> None:
        while not ended.wait(0.01):
            for child in me.children():
                with suppress(psutil.Error):
                    if "--multiprocessing-fork" in child.cmdline():
                        child.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_worker_killed_while_it_starts_is_one_error() -> None:
    with (
        workers_killed_while_they_start(),
        pytest.raises(LaunchError, match=r"--workers 0"),
        open_cluster(ClusterOptions(workers=1)),
    ):
        pass


@pytest.fixture
def no_memory_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has a megabyte left, as far as the nannies know, which run in this process."""
    monkeypatch.setattr(processes, "available_memory", lambda: 1 << 20)


@pytest.fixture(
    scope="module",
    params=[pytest.param(0, id="once"), pytest.param(3, id="as often as by default", marks=pytest.mark.long)],
)
def guarded(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A worker with that budget, for tests that leave a worker.

    The parameter is how often a task is repeated at which a worker was killed; each time takes seconds.
    """
    # As on a busy machine, where a worker may take longer to start than Dask waits for one by default.
    settings = {**worker_settings(), "distributed.scheduler.allowed-failures": request.param}
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set({"distributed.deploy.lost-worker-timeout": "100ms"}),
    ):
        patch.setattr("gnnloom.pipeline.cluster.open_cluster.worker_settings", lambda: settings)
        with open_cluster(ClusterOptions(workers=1, memory=BUDGET)) as cluster:
            yield cluster


@pytest.mark.slow
@pytest.mark.usefixtures("no_memory_left")
def test_a_worker_far_beyond_its_budget_is_ended_with_one_error_that_names_the_option(guarded: Cluster) -> None:
    with pytest.raises(LaunchError, match=r"--memory, 1 MiB"):
        list(guarded.map(hold, [FAR_BEYOND]))
    # The worker was replaced.
    assert list(guarded.map(hold, [WITHIN])) == [1]
    # Only the kill of a worker that held too much is blamed on memory.
    with pytest.raises(LaunchError, match=r"worker processes .*same task"):
        list(guarded.map(be_killed, [0]))


@pytest.mark.long
def test_workers_on_mpi_ranks_are_ended_for_memory_of_their_own_and_not_for_mapped_files(tmp_path: Path) -> None:
    command = [find_mpiexec(), "-n", "3", *MPI_PYTHON, str(PROGRAM), str(tmp_path)]
    done = subprocess.run(command, env=rank_environment(3), capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads((tmp_path / "outcomes.json").read_text())
    assert outcomes["mapped"] == [-(-FAR_BEYOND // 4096)]
    assert outcomes["held"].startswith("a task took")
    assert outcomes["killed"].startswith("several worker processes in a row were killed")


def test_a_worker_is_ended_beyond_its_share_of_a_job_even_if_the_machine_has_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "available_memory", lambda: 1 << 40)
    guard = Guard.of(BUDGET, share=1 << 30)
    assert guard.ends((1 << 30) + 1)
    assert not guard.ends(1 << 30)
    assert not Guard.of(BUDGET).ends(1 << 50)


@pytest.mark.slow
@pytest.mark.usefixtures("no_memory_left")
def test_mapped_files_and_what_fits_the_budget_are_no_reason_to_end_a_worker(tmp_path: Path, guarded: Cluster) -> None:
    path = tmp_path / "mapped"
    path.touch()
    os.truncate(path, FAR_BEYOND)
    assert list(guarded.map(map_file, [path])) == [-(-FAR_BEYOND // 4096)]
    assert list(guarded.map(hold, [WITHIN])) == [1]


@pytest.mark.slow
def test_a_task_that_needs_more_than_the_budget_runs_where_the_machine_has_the_memory(
    monkeypatch: pytest.MonkeyPatch, guarded: Cluster
) -> None:
    monkeypatch.setattr(processes, "available_memory", lambda: 1 << 40)
    assert list(guarded.map(hold, [FAR_BEYOND])) == [1]


@pytest.mark.slow
def test_a_worker_that_the_scheduler_closes_need_not_wait_for_its_nanny(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_cluster(ClusterOptions(workers=1)) as cluster:
        (number,) = cluster.map(process_of, [0])
        worker, client = psutil.Process(number), Client.current()
        (nanny,) = client.cluster.workers.values()
        queue = nanny.process.child_stop_q
        monkeypatch.setattr(queue, "put", Mock(side_effect=queue.put))
        client.loop.add_callback(client.cluster.scheduler.close_worker, nanny.worker_address)
        worker.wait(timeout=60)
        queue.put.assert_called_once_with({"op": "stop"})


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_worker_that_is_killed_while_it_starts_is_started_again(monkeypatch: pytest.MonkeyPatch, kills: int) -> None:
    wait: Any = WorkerProcess._wait_until_connected
    left = list(range(kills))

    async def kill_and_wait(self: Any, *given: Any) -> Any:
        if left:
            left.pop()
            os.kill(self.process.pid, signal.SIGKILL)
        return await wait(self, *given)

    monkeypatch.setattr(WorkerProcess, "_wait_until_connected", kill_and_wait)
    refused = pytest.raises(LaunchError, match="worker processes could not be started") if kills > 1 else nullcontext()
    with refused, open_cluster(ClusterOptions(workers=1)) as cluster:
        assert list(cluster.map(abs, [-3])) == [3]
    assert not left


def test_no_worker_within_its_budget_is_ended() -> None:
    for memory in (MINIMUM_MEMORY, 1 << 30, 64 << 30):
        # What the process itself holds is part of the budget.
        assert Guard.of(memory).most_memory >= 2 * memory + BASE_MEMORY


def test_memory_in_swap_counts_and_that_of_mapped_files_does_not(tmp_path: Path) -> None:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    text = "Name:\tpython\nVmRSS:\t  900 kB\nRssAnon:\t  300 kB\nRssFile:\t  600 kB\nVmSwap:\t   50 kB\n"
    (tmp_path / "proc" / "7" / "status").write_text(text)
    assert own_memory(7, tmp_path) == 350 * 1024
    assert own_memory(8, tmp_path) == 0


@pytest.mark.slow
def test_an_interrupted_cluster_kills_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker closes in an orderly way, which would wait for its task."""
    killed: list[int] = []
    kill = os.kill

    def note(pid: int, number: int) -> None:
        killed.append(pid)
        kill(pid, number)

    monkeypatch.setattr("gnnloom.pipeline.cluster.processes.os.kill", note)

    def interrupted() -> None:
        with open_cluster(ClusterOptions(workers=1)) as cluster:
            assert next(cluster.map(time.sleep, [0, 60])) is None
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(killed) == 1
    assert not psutil.pid_exists(killed[0])
