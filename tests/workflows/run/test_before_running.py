"""What a run needs of its machine is looked for before it runs: the MPI launcher, and scratch space."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gnnloom.pipeline.cluster.open_cluster import open_cluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError, LaunchError
from gnnloom.workflows.api.cluster import choose_cluster
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.recipe.request import RecipeRequest
from gnnloom.workflows.recipe.stages.all_stages import RecipeStages
from gnnloom.workflows.run.run_recipe import prepare
from support.recipes import TINY, run_arguments


def check(folder: Path, *settings: str) -> RecipeStages:
    assignment = RecipeRequest(Path("quick-start"), folder, (*TINY, *settings), last="shards").check()
    found = assignment.found
    return dataclasses.replace(
        assignment, found=dataclasses.replace(found, cluster=dataclasses.replace(found.cluster, workers=0))
    )


def digests(assignment: RecipeStages) -> list[str]:
    with open_cluster(assignment.found.cluster) as cluster:
        prepare(assignment, cluster)
    dataset = Catalog(assignment.found.recipe.catalog)["quick-start"]
    return [dataset.find(info.kind, info.key).digest for info in dataset.artifacts()]


def test_a_missing_launcher_is_found_before_anything_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(cli, run_arguments("quick-start", tmp_path / "catalog", *TINY))
    assert isinstance(done.exception, LaunchError)
    assert "no mpiexec" in str(done.exception)
    assert not (tmp_path / "catalog").exists()


def test_a_run_with_scratch_space_makes_the_same_bytes_and_leaves_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_JOB", str(tmp_path / "scratch"))
    plain, aside = check(tmp_path / "plain"), check(tmp_path / "aside", "cluster.scratch=$OF_THE_JOB/spills")
    assert aside.found.cluster.scratch == tmp_path / "scratch" / "spills"
    assert digests(aside) == digests(plain)
    assert (tmp_path / "scratch" / "spills").is_dir()
    assert not list((tmp_path / "scratch" / "spills").iterdir())


def test_scratch_space_in_an_unknown_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OF_THE_JOB", raising=False)
    with pytest.raises(InputError, match=r"\[cluster\] scratch = \$OF_THE_JOB: "):
        check(tmp_path, "cluster.scratch=$OF_THE_JOB")


def test_a_command_takes_scratch_space_from_an_option_or_the_environment(tmp_path: Path) -> None:
    arguments = ["--catalog", str(tmp_path / "c"), "generate", "g", "sbm", "--vertices", "64", "--edges", "400"]
    for number, (more, environment) in enumerate(
        (((), {"GNNLOOM_SCRATCH": str(tmp_path / "s0")}), (("--scratch", str(tmp_path / "s1")), {}))
    ):
        arguments[3] = f"g{number}"
        done = CliRunner().invoke(cli, [*arguments, "--workers", "0", *more], env=environment)
        assert done.exit_code == 0, done.output
        assert (tmp_path / f"s{number}").is_dir()


def test_an_empty_text_is_no_scratch_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GNNLOOM_SCRATCH", raising=False)
    assert choose_cluster({"scratch": ""})[0].scratch is None
    assert choose_cluster({"scratch": str(tmp_path)})[0].scratch == tmp_path
    monkeypatch.setenv("GNNLOOM_SCRATCH", str(tmp_path))
    assert choose_cluster({"scratch": ""})[0].scratch == tmp_path
