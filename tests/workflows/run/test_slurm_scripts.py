"""Batch scripts: what a recipe puts into them, and what they do when their ranks finish, fail or were stopped."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from gnnloom.storage.errors import InputError
from gnnloom.workflows.recipe.read import read_recipe
from gnnloom.workflows.recipe.request import RecipeRequest
from gnnloom.workflows.run.slurm import Jobs, write_jobs

RECIPE = """\
[dataset]
name = "tiny"

[source]
format = "sbm"
vertices = 100
edges = 500

[train]
ranks = 2
hidden = [8]
"""
OF_RANKS = ("array.sh", "prepare.sh", "train.sh", "whole.sh")


def emit(folder: Path, *settings: str, name: str = "my recipe") -> Jobs:
    path = folder / f"{name}.toml"
    path.write_text(RECIPE)
    return write_jobs(RecipeRequest(path, folder / "store", settings), folder / "jobs")


def texts(jobs: Jobs) -> dict[str, str]:
    return {script.name: script.read_text() for script in jobs.scripts}


def test_scripts_have_the_sizes_of_the_recipe_and_are_valid_shell(tmp_path: Path) -> None:
    sizes = ("ranks_per_node=2", "prepare_ranks=5", "cpus_per_rank=4", "memory=8G", "seeds=3")
    jobs = emit(tmp_path, "train.ranks=6", "train.run=best", *(f"slurm.{size}" for size in sizes))
    found = texts(jobs)
    assert sorted(found) == sorted([*OF_RANKS, "submit.sh"])
    assert "--nodes=3\n#SBATCH --ntasks=6" in found["train.sh"]
    assert "--nodes=3\n#SBATCH --ntasks=5" in found["prepare.sh"]
    assert "--array=0-2" in found["array.sh"]
    assert 'train.run=best-$SLURM_ARRAY_TASK_ID"' in found["array.sh"]
    for name in OF_RANKS:
        assert "srun --mpi=pmi2 --cpus-per-task=4 --kill" in found[name]
        options = {line.removeprefix("#SBATCH ") for line in found[name].splitlines() if line.startswith("#SBATCH")}
        # Every job is warned in time, goes back to the queue, and then goes on with its log.
        assert options >= {"--ntasks-per-node=2", "--cpus-per-task=4", "--mem-per-cpu=2048M"}
        assert options >= {"--signal=USR1@300", "--requeue", "--open-mode=append"}
        assert "MALLOC_TRIM_THRESHOLD_=65536" in found[name]
    for script in jobs.scripts:
        assert not re.search(r"@[A-Z_]+@", found[script.name])
        assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_what_a_site_needs_is_in_every_job(tmp_path: Path) -> None:
    jobs = emit(
        tmp_path,
        "slurm.account=physics",
        "slurm.qos=long",
        "slurm.constraint=[rack1*2&rack2*4]",
        "slurm.mail=ada@example.org",
        "slurm.exclusive=true",
        'slurm.extra=["--gres=tmpdisk:200G", "--reservation=team"]',
        'slurm.setup=["module load mpich", "source \\"$HOME/my venv/bin/activate\\""]',
    )
    for name in OF_RANKS:
        text = texts(jobs)[name]
        for option in (
            "--account=physics",
            "--qos=long",
            "--constraint=[rack1*2&rack2*4]",
            "--mail-user=ada@example.org",
            "--mail-type=END,FAIL,REQUEUE",
            "--exclusive",
            "--gres=tmpdisk:200G",
            "--reservation=team",
        ):
            assert f"#SBATCH {option}\n" in text
        # Before `set -u`, which the scripts of modules and environments rarely survive.
        assert 'module load mpich\nsource "$HOME/my venv/bin/activate"\nset -u\n' in text


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("cluster.memory=9G", r"\[cluster\] memory = 9G, but a rank of the jobs gets \[slurm\] memory = 8G"),
        ("slurm.time=1 day; rm", "one word"),
        ("slurm.qos=a b", "one word"),
        ('slurm.extra=["exclusive"]', "expected an option of sbatch"),
        ("slurm.requeues=-1", "requeues -1: expected at least 0"),
    ],
)
def test_jobs_that_would_fail_are_not_written(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        emit(tmp_path, setting)
    assert not (tmp_path / "jobs").exists()


def test_jobs_on_several_nodes_need_no_network_interface_by_name(tmp_path: Path) -> None:
    assert "--nodes=2\n" in texts(emit(tmp_path, "train.ranks=32"))["train.sh"]


def test_a_file_in_the_way_of_the_folder_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    for folder in (path, path / "jobs"):
        with pytest.raises(InputError, match="a file is in the way"):
            write_jobs(RecipeRequest(path, tmp_path), folder)


def test_jobs_run_a_copy_of_the_recipe_that_later_changes_do_not_touch(tmp_path: Path) -> None:
    before = emit(tmp_path, "train.epochs=7")
    (tmp_path / "my recipe.toml").write_text("no recipe")
    again = read_recipe(before.recipe, tmp_path / "elsewhere")
    assert (again.training.optimization.epochs, again.training.algorithm.ranks, again.catalog) == (
        7,
        2,
        tmp_path / "store",
    )
    assert "--set train.epochs=7" in before.recipe.read_text().splitlines()[0]
    assert str(before.recipe) in texts(before)["whole.sh"]


# What a script does


class Site:
    """Stand-ins for Slurm's commands and for gnnloom, which note how they are called."""

    def __init__(self, folder: Path, ranks: str = "true") -> None:
        """Write them.

        Args:
            ranks: shell that runs in place of the ranks.
        """
        self.calls = folder / "calls"
        programs = folder / "bin"
        programs.mkdir()
        note = f'echo "$(basename "$0") $*" >> {self.calls}\n'
        shown = """echo '{"stages": [{"key": "a"}, {"key": "the-run"}]}'"""
        for name, body in {
            "srun": f'case "$*" in *"gnnloom run"*) {ranks};; esac',
            "scontrol": "true",
            "gnnloom": f'case "$*" in *--dry-run*) {shown};; esac',
        }.items():
            (programs / name).write_text(f"#!/bin/bash\n{note}{body}\n")
            (programs / name).chmod(0o755)
        self.environment = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "42"}

    def run(self, script: Path, **environment: str) -> tuple[int, list[str]]:
        """Run a script; returns its exit code and the calls, without options of srun."""
        done = subprocess.run(
            ["bash", str(script)],
            env={**self.environment, **environment},
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, self.calls.read_text().splitlines()


def script_of(folder: Path, name: str, *settings: str) -> Path:
    return next(script for script in emit(folder, *settings).scripts if script.name == name)


def test_a_job_that_finishes_examines_the_node_first_and_writes_a_report_last(tmp_path: Path) -> None:
    code, calls = Site(tmp_path).run(script_of(tmp_path, "whole.sh"))
    assert code == 0
    assert calls[0] == "gnnloom doctor"
    assert calls[1].startswith("srun --mpi=pmi2")
    assert calls[-1] == f"gnnloom report tiny/the-run --out {tmp_path}/jobs/report-the-run"
    assert not any(call.startswith("scontrol") for call in calls)


@pytest.mark.parametrize("name", OF_RANKS)
def test_a_job_whose_ranks_were_stopped_goes_back_to_the_queue(tmp_path: Path, name: str) -> None:
    site = Site(tmp_path, ranks='echo 75 > "$GNNLOOM_EXIT_CODE_FILE"')
    code, calls = site.run(script_of(tmp_path, name), SLURM_ARRAY_TASK_ID="1")
    assert (code, calls[-1]) == (0, "scontrol requeue 42")
    assert not list((tmp_path / "jobs").glob(".exit-code*"))


def test_every_attempt_has_a_step_of_its_own_and_the_last_one_gives_up(tmp_path: Path) -> None:
    site = Site(tmp_path, ranks='echo 75 > "$GNNLOOM_EXIT_CODE_FILE"')
    code, calls = site.run(script_of(tmp_path, "train.sh", "slurm.requeues=2"), SLURM_RESTART_COUNT="2")
    # Shared memory that killed ranks of steps 0 and 1 left behind is not that of step 2.
    assert [call.split()[-1] for call in calls[:2]] == ["true", "true"]
    assert "gnnloom run" in calls[2]
    assert (code, len(calls)) == (75, 3)


@pytest.mark.parametrize("ranks", ["exit 3", 'echo 3 > "$GNNLOOM_EXIT_CODE_FILE"'])
def test_a_job_whose_ranks_fail_ends_with_their_code(tmp_path: Path, ranks: str) -> None:
    # The file of an earlier attempt that was killed says nothing about this one.
    script = script_of(tmp_path, "whole.sh")
    (tmp_path / "jobs" / ".exit-code-42").write_text("75")
    code, calls = Site(tmp_path, ranks).run(script)
    assert code == 3
    assert not any(call.startswith(("scontrol", "gnnloom report")) for call in calls)


def test_names_with_shell_syntax_do_no_harm_in_a_script(tmp_path: Path) -> None:
    out = f'{tmp_path}/it\'s $(touch harm) "x" `touch harm`.npy'
    jobs = emit(tmp_path, f"predict.out={out}", name="recipe\n touch harm")
    script = tmp_path / "jobs" / "array.sh"
    script.write_text(script.read_text().replace(f"cd {Path.cwd()}", f"cd {tmp_path}"))
    code, calls = Site(tmp_path).run(script, SLURM_ARRAY_TASK_ID="3")
    assert code == 0
    assert f"predict.out={out.removesuffix('.npy')}-3.npy" in "\n".join(calls)
    assert jobs.recipe.name == "recipe--touch-harm.jobs.toml"
    assert not list(tmp_path.rglob("harm*"))


@pytest.mark.parametrize(
    ("settings", "prepared", "begins"),
    [
        ((), "shards", "train"),
        (("train.mode=neighbor", "train.fanout=3,3", "samples.epochs=2"), "samples", "train"),
        (("train.mode=rows", "train.model=sign", "propagate.steps=2"), "shards", "propagated"),
    ],
    ids=["plain", "samples", "propagated"],
)
def test_jobs_divide_the_stages_between_workers_and_ranks(
    tmp_path: Path, settings: tuple[str, ...], prepared: str, begins: str
) -> None:
    found = texts(emit(tmp_path, *settings))
    assert f"--until {prepared}\n" in found["prepare.sh"]
    for name in ("train.sh", "array.sh"):
        assert f"--from {begins}" in found[name]
