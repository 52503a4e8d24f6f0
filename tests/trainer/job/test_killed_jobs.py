"""Whatever kills ranks or the process that started them: one sentence says so, and the next command cleans up."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import LaunchError
from gnnloom.storage.faults import VARIABLE
from gnnloom.storage.shared_memory import SEGMENTS, SHARED_MEMORY
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch
from gnnloom.trainer.training.loop import train
from support.lone import LoneCommunicator
from support.mpi import rank_command, run_different, running_ranks
from support.problems import problem

PROBLEM = problem("web", 60, 240, symmetric=False)
ENDLESS = 10**6

_CLIENT = """
import json, sys
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job import launch
launch.rank_python = lambda: json.loads(sys.argv[1])
launch.launch(TrainConfig.of(**json.loads(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("killed") / "catalog")
    PROBLEM.store(catalog, 1, 2)
    return catalog


def _config(catalog: Catalog, run: str, epochs: int) -> TrainConfig:
    return TrainConfig.of(
        catalog=str(catalog.root), dataset="web", run=run, ranks=2, hidden=(4,), epochs=epochs, threads=1,
        checkpoint_every=1, eval_every=0,
    )  # fmt: skip


def _shared_by_ranks() -> set[Path]:
    """The files in shared memory that the running ranks of this process's server have mapped."""
    mapped = {file.path for rank in running_ranks() for file in rank.memory_maps()}
    return {Path(path) for path in mapped if path.startswith(f"{SHARED_MEMORY}/{SEGMENTS[0]}")}


def _wait(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_killed_rank_is_one_sentence(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "send.halo forward:SIGKILL:rank=1:nth=7")
    with pytest.raises(LaunchError, match=r"^a rank \(process \d+ on \S+\) was killed \(signal 9, SIGKILL\)") as raised:
        launch(_config(catalog, "rank", 6))
    assert str(raised.value).endswith("finished work is kept, run the command again to continue")
    assert "\n" not in str(raised.value)
    monkeypatch.delenv(VARIABLE)
    # Goes on in this process, which is quicker.
    assert len(train(LoneCommunicator(), _config(catalog, "rank", 6).with_options(ranks=1))["loss"]) == 6


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["run.finished:SIGKILL", "run.finished:raise"])
def test_a_result_that_is_stored_counts_however_the_ranks_end(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    config = _config(catalog, fault.replace(":", "-").lower(), 2)
    monkeypatch.setenv(VARIABLE, fault)
    assert len(launch(config)["loss"]) == 2
    assert "The result was already complete" in caplog.text
    # What an earlier command stored is not the result of a run that is started over.
    monkeypatch.setenv(VARIABLE, "collective.*:SIGKILL:rank=1:nth=1")
    with pytest.raises(LaunchError, match="killed"):
        launch(config, restart=True)


@pytest.mark.slow
def test_a_result_counts_if_the_launcher_is_killed_after_it(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config, begun = _config(catalog, "proxy", 2), time.time()
    monkeypatch.setenv(VARIABLE, "run.finished:slow")

    def kill_proxy() -> None:
        _wait((catalog["web"].run_path("proxy") / "result.json").exists)
        below = psutil.Process().children(recursive=True)
        proxy = [each for each in below if each.name() == "hydra_pmi_proxy" and each.create_time() >= begun - 1]
        proxy[0].kill()

    thread = threading.Thread(target=kill_proxy)
    thread.start()
    assert len(launch(config)["loss"]) == 2
    thread.join()
    assert "The result was already complete" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "killed", ["client", *(pytest.param(each, marks=pytest.mark.long) for each in ("launcher", "all"))]
)
def test_the_next_command_removes_what_killed_jobs_left(catalog: Catalog, killed: str) -> None:
    given = json.dumps(rank_command()), json.dumps(_config(catalog, killed, ENDLESS).to_json())
    with subprocess.Popen([sys.executable, "-c", _CLIENT, *given], stderr=subprocess.DEVNULL) as client:
        metrics = catalog["web"].run_path(killed) / "metrics.jsonl"
        try:
            _wait(lambda: metrics.exists() and metrics.stat().st_size)
            shared = _shared_by_ranks()
            below = psutil.Process(client.pid).children(recursive=True)
            victims = {"client": [client.pid], "launcher": [below[0].pid]}
            for victim in victims.get(killed, [client.pid, *(process.pid for process in below)]):
                os.kill(victim, signal.SIGKILL)
            assert client.wait(60) != 0
        finally:
            client.kill()
    _wait(lambda: not running_ranks())
    # The files of a job that has just ended may still count as those of one that begins.
    time.sleep(1.1)
    launch(_config(catalog, f"after-{killed}", 1))
    assert shared
    assert [path for path in shared if path.exists()] == []


@pytest.mark.slow
def test_ranks_of_a_batch_system_remove_it_too(catalog: Catalog) -> None:
    left = SHARED_MEMORY / f"{SEGMENTS[0]}of-a-killed-job-{os.getpid()}"
    left.touch()
    time.sleep(1.1)
    given = ("-m", "gnnloom.trainer", "--catalog", str(catalog.root), "web", "--run", "batch")
    rank = (*given, "--ranks", "2", "--hidden", "4", "--epochs", "1", "--threads", "1")
    done = run_different(rank, rank)
    assert done.returncode == 0, done.stderr
    assert not left.exists()


def _limited(catalog: Catalog, limit: str, run: str) -> subprocess.CompletedProcess[str]:
    """Train in a shell of its own after some shell commands."""
    train = [sys.executable, "-m", "gnnloom", "--catalog", str(catalog.root), "train", "web", "--run", run]
    options = ["--ranks", "2", "--hidden", "4", "--epochs", "2", "--threads", "1", "--json"]
    command = ["unshare", "-m", "sh", "-c", f'{limit}; exec "$@"', "sh", *train, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def _can_unshare() -> bool:
    return (
        shutil.which("unshare") is not None
        and not subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode
    )


@pytest.mark.long
@pytest.mark.skipif(not _can_unshare(), reason="mounts need the rights of root")
@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("ulimit -n 16", ["open only 16 files (ulimit -n); raise the limit"]),
        ("ulimit -n 25", ["open only 25 files (ulimit -n); raise the limit"]),
        ("ulimit -f 1000", ["(ulimit -f); raise the limit"]),
        ("ulimit -v 450000", ["out of memory", "439 MiB of address space (ulimit -v)"]),
        ("ulimit -v 600000", ["out of memory", "585 MiB of address space (ulimit -v)"]),
        ("mount -t tmpfs -o size=64k tmpfs /dev/shm", ["shared memory: /dev/shm has 64 KiB free", "--shm-size"]),
    ],
)
def test_a_limit_that_is_too_low_is_one_sentence(catalog: Catalog, limit: str, says: Sequence[str]) -> None:
    done = _limited(catalog, limit, f"run-{abs(hash(limit))}")
    assert done.returncode == 1, done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.endswith("epochs")]
    assert len(errors) == 1, done.stderr
    for text in says:
        assert text in errors[0]
