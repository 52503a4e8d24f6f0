"""A run that is stopped at any point, in any way, and restarted gives the same artifacts and losses."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.recipes import TINY, Job, LocalJob, MpiJob, run_arguments, run_here

pytestmark = pytest.mark.long

#: Log lines at which a run is stopped.
MOMENTS = (
    "graph: begins",
    "vertices: begins",
    "partition: begins",
    "shards: begins",
    "train: begins",
    "epoch 3 ",
    "predict: begins",
)
SETTINGS = (*TINY, "partition.method=mtkahypar", "cluster.workers=2", "train.epochs=30", "train.eval_every=1")
COMPARED = ("keys", "digests", "loss", "test_accuracy")
RANKS = 4


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the same run, never stopped."""
    return run_here(run_arguments("quick-start", tmp_path_factory.mktemp("straight"), *SETTINGS))


def begin(catalog: Path, kind: str) -> Job:
    arguments = run_arguments("quick-start", catalog, *SETTINGS)
    return LocalJob(arguments) if kind == "here" else MpiJob(RANKS, arguments)


def stop(job: Job, how: str) -> int:
    """Stop a job and wait until all its processes are gone; returns its exit code."""
    if how == "kill -9 of all":
        job.kill()
    elif how == "kill -9":
        job.process.kill()
    elif how == "Ctrl-C":
        job.signal_all(signal.SIGINT)
    else:
        job.process.terminate()
    if how != "kill -9 of all":
        _, _, log = job.finish(timeout=60)
        # Workers ignore Ctrl-C: the process that started them closes them.
        assert how != "Ctrl-C" or isinstance(job, MpiJob) or "Traceback" not in log
    job.wait_until_gone()
    return job.process.returncode


def check_end(job: Job, straight: dict[str, Any]) -> None:
    code, out, log = job.finish()
    assert code == 0, log
    result = json.loads(out)
    assert {name: result[name] for name in COMPARED} == {name: straight[name] for name in COMPARED}


@pytest.mark.parametrize("kind", ["here", "mpi"])
@pytest.mark.parametrize("how", ["kill -9 of all", "kill -9", "SIGTERM", "Ctrl-C"])
def test_a_run_stopped_in_every_stage_gives_the_same_result(
    tmp_path: Path, straight: dict[str, Any], how: str, kind: str
) -> None:
    codes = []
    for moment in MOMENTS:
        job = begin(tmp_path, kind)
        job.wait_until_logged(moment)
        codes.append(stop(job, how))
    # Ranks that predict ignore a request to stop, and finish.
    assert 0 not in codes[:-1]
    check_end(begin(tmp_path, kind), straight)


def test_a_run_killed_at_random_times_gives_the_same_result(tmp_path: Path, straight: dict[str, Any]) -> None:
    random = np.random.default_rng(1)
    for kills in range(100):
        job = begin(tmp_path, "here")
        try:
            # Kill later each time, so that a run finally finishes.
            job.finish(1.5 + 0.25 * kills + random.random())
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait_until_gone()
        else:
            break
    assert kills > 3
    check_end(begin(tmp_path, "here"), straight)


def test_a_stopped_run_exits_within_seconds(tmp_path: Path) -> None:
    job = begin(tmp_path, "here")
    job.wait_until_logged("partition: begins")
    began = time.monotonic()
    stop(job, "SIGTERM")
    assert time.monotonic() - began < 30
