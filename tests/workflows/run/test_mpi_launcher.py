"""Under an MPI launcher, a recipe runs once and prints once."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.transports.mpi import find_mpiexec
from gnnloom.trainer.comm.transports.registry import LaunchedRank
from gnnloom.workflows.cli.main import cli
from support.recipes import TINY, forked_program, run_arguments

LAUNCHERS = [
    {"PMI_RANK": "1", "PMI_SIZE": "2"},
    {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
    {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"},
]
ALONE = [
    {},
    {"PMI_RANK": "0", "PMI_SIZE": "1"},
    # A batch script of a job of two tasks.
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"},
    {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "2"},
]


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {name for launcher in LAUNCHERS for name in launcher}:
        monkeypatch.delenv(name, raising=False)


def run(folder: Path, *more: str) -> Result:
    return CliRunner().invoke(cli, run_arguments("quick-start", folder, *TINY, more=more))


@pytest.mark.parametrize("environment", LAUNCHERS)
def test_a_recipe_is_not_run_once_per_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert LaunchedRank.from_environment() == LaunchedRank(1, 2)
    # A rank that left with another code could end the job before rank 0 has printed its message.
    for options in ((), ("--cluster", "mpi", "--dry-run"), ("--emit", "slurm", "--out", str(tmp_path / "jobs"))):
        silent = run(tmp_path, *options)
        assert (silent.exit_code, silent.output) == (0, "")
    monkeypatch.setenv(next(iter(environment)), "0")
    done = run(tmp_path)
    assert isinstance(done.exception, InputError)
    assert re.search("2 ranks .*--cluster mpi", str(done.exception))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("environment", LAUNCHERS)
def test_what_needs_no_rank_is_shown_and_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for options in (("--list",), ("--show", "quick-start"), ("--new", str(tmp_path / "new.toml"))):
        silent = CliRunner().invoke(cli, ["run", *options])
        assert (silent.exit_code, silent.output) == (0, "")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("environment", ALONE)
def test_a_process_without_a_launcher_is_not_a_rank(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert LaunchedRank.from_environment() == LaunchedRank(0, 1)


@pytest.mark.slow
def test_a_dry_run_is_printed_by_rank_0_only(tmp_path: Path) -> None:
    arguments = run_arguments("quick-start", tmp_path, *TINY, more=("--dry-run", "--json", "--cluster", "mpi"))
    command = [find_mpiexec(), "-n", "2", *forked_program(), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.count("stages") == 1


@pytest.mark.parametrize("option", [("--dry-run",), ("--until", "graph"), ("--from", "train"), ("--restart",)])
def test_options_that_do_not_apply_to_scripts_are_refused(tmp_path: Path, option: tuple[str, ...]) -> None:
    done = run(tmp_path, "--emit", "slurm", "--out", str(tmp_path / "jobs"), *option)
    assert done.exit_code == 2
    assert "--emit runs no stage" in done.output
