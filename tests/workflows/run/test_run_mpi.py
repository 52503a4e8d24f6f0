"""A recipe runs in one MPI job: its ranks are a Dask cluster that prepares, and then train."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from gnnloom.storage.runs.run import SAVED_RECIPE
from gnnloom.workflows.recipe.read import read_recipe
from support.recipes import GNNLOOM, TINY, MpiJob, forked_program, run_arguments, run_here
from support.slurm import write_slurm

COMPARED = ("keys", "digests", "loss", "test_accuracy")
#: Ranks of a job: Dask's scheduler, the client and a worker.
RANKS = 3
SMALL = (*TINY, f"train.ranks={RANKS}")


def succeed(job: MpiJob) -> dict[str, Any]:
    code, out, log = job.finish()
    assert code == 0, log
    assert "Traceback" not in log
    # Python's warning about what a killed worker leaves behind.
    assert "resource_tracker" not in log
    content = json.loads(out)
    assert isinstance(content, dict)
    return content


def compared(result: dict[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in COMPARED}


def installed() -> list[str]:
    return [GNNLOOM]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of a small quick start, run by one command on this machine."""
    return run_here(run_arguments("quick-start", tmp_path_factory.mktemp("here"), *SMALL, "cluster.workers=0"))


#: The program that is installed takes several seconds to start on every rank.
PROGRAMS = [
    pytest.param(forked_program, id="forked"),
    pytest.param(installed, id="installed", marks=pytest.mark.long),
]


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_mpi_job_gives_the_bytes_and_losses_of_a_run_on_this_machine(
    tmp_path: Path, here: dict[str, Any], program: Callable[[], list[str]]
) -> None:
    out = tmp_path / "classes.npy"
    arguments = run_arguments("quick-start", tmp_path, *SMALL, f"predict.out={out}")
    assert compared(succeed(MpiJob(RANKS, arguments, program()))) == compared(here)
    predicted = out.read_bytes()
    folder = tmp_path / "quick-start" / "runs" / here["run"]
    assert read_recipe(folder / SAVED_RECIPE, tmp_path / "elsewhere").training.optimization.epochs == 4
    out.write_bytes(b"of another run")
    again = MpiJob(RANKS, arguments, forked_program())
    assert compared(succeed(again)) == compared(here)
    assert "begins" not in again.log
    assert out.read_bytes() == predicted


@pytest.mark.long
def test_a_killed_worker_is_replaced_and_nothing_listens_on_the_network(tmp_path: Path, here: dict[str, Any]) -> None:
    job = MpiJob(RANKS, run_arguments("quick-start", tmp_path, *SMALL, more=("--until", "shards")))
    job.wait_until_logged("graph: begins")
    (worker,) = job.workers()
    ports = {entry.laddr.port for process in job.family() for entry in listening(process)}
    worker.kill()
    assert succeed(job)["digests"] == here["digests"]
    # All ranks inherit the MPI launcher's own port; Dask's scheduler and workers would add theirs.
    assert len(ports) <= 1


def listening(process: psutil.Process) -> list[Any]:
    """Return the sockets of a rank or worker that listen on all networks."""
    if process.name().startswith(("hydra", "mpi")):
        return []
    connections = process.net_connections("inet")
    return [entry for entry in connections if entry.status == "LISTEN" and entry.laddr.ip in {"0.0.0.0", "::"}]


@pytest.mark.long
def test_the_emitted_scripts_run_two_dependent_jobs_of_different_sizes(tmp_path: Path, here: dict[str, Any]) -> None:
    settings = (*SMALL, "slurm.prepare_ranks=2")
    emitted = run_arguments("quick-start", tmp_path / "store", *settings, more=("--emit", "slurm", "--out"))
    scripts = run_here([*emitted, str(tmp_path / "jobs")])["scripts"]
    assert len(scripts) == 5
    bin_folder = write_slurm(tmp_path / "bin")
    done = subprocess.run(
        ["bash", str(tmp_path / "jobs" / "submit.sh")],
        env={**os.environ, "PATH": f"{bin_folder}:{Path(GNNLOOM).parent}:{os.environ['PATH']}"},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    result = run_here(run_arguments("quick-start", tmp_path / "store", *SMALL))
    assert compared(result) == compared(here)


@pytest.mark.long
def test_a_job_asked_to_stop_keeps_what_is_done_and_reports_it_once(tmp_path: Path) -> None:
    settings = (*TINY, "train.epochs=200", "train.eval_every=1")
    for moment, message in (("vertices: begins", "asked to stop"), ("epoch", "stopped after a checkpoint")):
        job = MpiJob(4, run_arguments("quick-start", tmp_path / "stopped", *settings))
        job.wait_until_logged(moment)
        job.process.send_signal(signal.SIGUSR1)
        code, out, log = job.finish()
        assert (code, out) == (75, "")
        assert log.count(message) == 1
    assert "graph: already done" in log
    resumed = succeed(MpiJob(4, run_arguments("quick-start", tmp_path / "stopped", *settings)))
    straight = succeed(MpiJob(4, run_arguments("quick-start", tmp_path / "straight", *settings)))
    assert compared(resumed) == compared(straight)


@pytest.mark.long
@pytest.mark.parametrize("recipe", ["quick-start", "snap"])
def test_a_bundled_recipe_gives_the_same_on_this_machine_and_in_one_mpi_job(
    tmp_path: Path, shared_data: Path, recipe: str
) -> None:
    """Uses the default partitioner and worker processes."""
    settings: tuple[str, ...] = ("train.epochs=10",)
    if recipe == "snap":
        settings += (f"source.path={shared_data / 'soc-Epinions1.txt.gz'}", "vertices.dim=32", "train.hidden=32,32")
    alone = run_here(run_arguments(recipe, tmp_path / "here", *settings))
    assert compared(succeed(MpiJob(4, run_arguments(recipe, tmp_path / "mpi", *settings)))) == compared(alone)
    assert alone["digests"].keys() == {"graph", "vertices", "partition", "shards"}
