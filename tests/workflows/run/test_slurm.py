"""On a real Slurm of two nodes, jobs that are preempted go back to the queue, resume, and give the same result."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnloom.workflows.recipe.request import RecipeRequest
from gnnloom.workflows.run.slurm import write_jobs
from support.slurm_cluster import SlurmCluster, missing

pytestmark = [pytest.mark.long, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

#: How many trainings are preempted, each at another epoch.
ROUNDS = 10
EPOCHS = 150
SIZES = (
    "source.vertices=2000",
    "source.edges=20000",
    "source.dim=8",
    "partition.method=random",
    "train.hidden=8",
    f"train.epochs={EPOCHS}",
    "train.eval_every=1",
    "slurm.ranks_per_node=2",
    "slurm.cpus_per_rank=1",
    "slurm.memory=2G",
)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.close()


def emit(folder: Path, *settings: str) -> Path:
    """Write the jobs of a small quick start, without their first step, which takes longer than all others."""
    path = folder / "jobs"
    for script in write_jobs(RecipeRequest(Path("quick-start"), folder / "catalog", (*SIZES, *settings)), path).scripts:
        script.write_text(script.read_text().replace("HYDRA_LAUNCHER=fork gnnloom doctor", "true"))
    return path


class SubmittedJob:
    """A script in Slurm's hands."""

    def __init__(self, slurm: SlurmCluster, script: Path, *options: str) -> None:
        self.slurm, self.number = slurm, slurm.submit(script, *options)
        self._folder = script.parent

    @property
    def log(self) -> str:
        return "".join(path.read_text() for path in self._folder.glob(f"*-{self.number}.log"))

    def wait_for(self, text: str) -> None:
        """Wait until the log has a text."""
        self.slurm.wait_until(lambda: text in self.log or self.slurm.has_ended(self.number), 300)
        assert text in self.log, self.log

    def signal(self, name: str) -> None:
        """Send a signal to the ranks, as Slurm does before the time limit (USR1) and before a preemption (TERM)."""
        assert self.slurm.run("scancel", "--signal", name, str(self.number)).returncode == 0

    def finish(self) -> dict[str, str]:
        """Wait for the end; returns what Slurm knows about the job."""
        self.slurm.wait_until(lambda: self.slurm.has_ended(self.number), 600)
        return self.slurm.facts(self.number)

    def check_end(self, restarts: int) -> None:
        facts = self.finish()
        assert (facts["JobState"], facts["Restarts"]) == ("COMPLETED", str(restarts)), self.log


def losses(catalog: Path) -> list[float]:
    """The loss of every epoch of the only run."""
    (result,) = catalog.glob("quick-start/runs/*/result.json")
    loss: list[float] = json.loads(result.read_text())["loss"]
    assert len(loss) == EPOCHS
    return loss


@pytest.fixture(scope="module")
def straight(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run, prepared and trained in one job on two nodes."""
    folder = tmp_path_factory.mktemp("straight")
    job = SubmittedJob(slurm, emit(folder) / "whole.sh")
    job.check_end(restarts=0)
    assert slurm.facts(job.number)["NumNodes"] == "2"
    return folder


def test_a_run_ends_with_a_report_beside_its_jobs(straight: Path) -> None:
    assert list(straight.glob("jobs/report-*/index.html"))


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_training_that_is_preempted_at_any_time_resumes_and_gives_the_same_losses(
    slurm: SlurmCluster, straight: Path, tmp_path: Path, number: int
) -> None:
    shutil.copytree(straight / "catalog", tmp_path / "catalog", ignore=shutil.ignore_patterns("runs"))
    script = emit(tmp_path) / "train.sh"
    script.write_text(script.read_text().replace("write_report ||", "true ||"))
    job = SubmittedJob(slurm, script)
    job.wait_for(f"epoch {1 + random.Random(number).randrange(EPOCHS // 3)} ")
    job.signal(("USR1", "TERM")[number % 2])
    job.check_end(restarts=1)
    assert "resuming at epoch" in job.log
    assert losses(tmp_path / "catalog") == losses(straight / "catalog")


def test_a_training_that_is_preempted_before_its_first_epoch_gives_the_same_losses(
    slurm: SlurmCluster, straight: Path, tmp_path: Path
) -> None:
    shutil.copytree(straight / "catalog", tmp_path / "catalog", ignore=shutil.ignore_patterns("runs"))
    job = SubmittedJob(slurm, emit(tmp_path) / "train.sh")
    job.wait_for("train: begins")
    job.signal("TERM")
    job.check_end(restarts=1)
    assert losses(tmp_path / "catalog") == losses(straight / "catalog")


@pytest.mark.parametrize("name", ["USR1", "TERM"])
def test_a_preparation_that_is_preempted_goes_on_and_the_job_after_it_starts_once_it_is_done(
    slurm: SlurmCluster, straight: Path, tmp_path: Path, name: str
) -> None:
    jobs = emit(tmp_path)
    first = SubmittedJob(slurm, jobs / "prepare.sh")
    second = SubmittedJob(slurm, jobs / "train.sh", f"--dependency=afterok:{first.number}", "--kill-on-invalid-dep=yes")
    first.wait_for("vertices: begins")
    first.signal(name)
    first.wait_for("asked to stop")
    first.check_end(restarts=1)
    assert "graph: already done" in first.log
    second.check_end(restarts=0)
    assert losses(tmp_path / "catalog") == losses(straight / "catalog")


def test_a_job_that_slurm_preempts_for_another_one_resumes(slurm: SlurmCluster, straight: Path, tmp_path: Path) -> None:
    shutil.copytree(straight / "catalog", tmp_path / "catalog", ignore=shutil.ignore_patterns("runs"))
    job = SubmittedJob(slurm, emit(tmp_path) / "train.sh")
    job.wait_for("epoch 1 ")
    urgent = tmp_path / "jobs" / "urgent.sh"
    urgent.write_text("#!/bin/bash\n#SBATCH --partition=urgent --nodes=2 --exclusive\nsleep 1\n")
    SubmittedJob(slurm, urgent).check_end(restarts=0)
    job.check_end(restarts=1)
    assert losses(tmp_path / "catalog") == losses(straight / "catalog")


def test_ranks_that_are_killed_leave_no_memory_behind_that_the_next_attempt_takes_for_its_own(
    slurm: SlurmCluster, straight: Path, tmp_path: Path
) -> None:
    shutil.copytree(straight / "catalog", tmp_path / "catalog", ignore=shutil.ignore_patterns("runs"))
    job = SubmittedJob(slurm, emit(tmp_path) / "train.sh")
    job.wait_for("epoch 1 ")
    # Without a warning: a node that fails, or a preemption without a grace time.
    job.signal("KILL")
    # Refused for a moment while Slurm ends the job.
    slurm.wait_until(lambda: slurm.run("scontrol", "requeue", str(job.number)).returncode == 0, 60)
    job.check_end(restarts=1)
    assert losses(tmp_path / "catalog") == losses(straight / "catalog")


def test_an_error_before_the_ranks_split_up_is_one_line_and_its_exit_code(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = SubmittedJob(slurm, emit(tmp_path, "cluster.interface=ib7") / "prepare.sh")
    assert job.finish()["ExitCode"] == "3:0"
    (line,) = job.log.splitlines()
    assert line.startswith("error: network interface 'ib7': not on ")
