"""`gnnloom sample` and `gnnloom train --samples`, as users call them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.workflows.cli.main import cli
from support.in_process import answer
from support.lone_training import install
from support.problems import problem
from support.sampled import store_for_sampling

DRAWN = ("--fanout", "4,-1", "--batch-size", "8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    catalog = tmp_path / "catalog"
    store_for_sampling(Catalog(catalog), problem("web", 80, 300, symmetric=True), 1, 2)
    return catalog


def run(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--catalog", str(root), *arguments], catch_exceptions=False)


def test_samples_are_planned_made_found_again_and_trained_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    plan = answer(root, "sample", "web", *DRAWN, "--epochs", "2", "--plan")
    assert not plan["is_done"]
    made = answer(root, "sample", "web", *DRAWN, "--epochs", "2", "--workers", "0")
    assert (made["key"], made["ranks"], made["epochs"]) == (plan["key"], 1, 2)
    assert 0 < made["batches"] <= plan["batches"]
    assert answer(root, "sample", "web", *DRAWN, "--epochs", "2", "--workers", "0")["digest"] == made["digest"]
    again = answer(root, "sample", "web", *DRAWN, "--epochs", "2", "--plan")
    assert (again["is_done"], again["tasks"], again["output_bytes"]) == (True, 0, 0)

    options = ("--mode", "neighbor", "--hidden", "8", "--epochs", "2", "--threads", "1")
    stored = answer(root, "train", "web", *options, "--samples", made["key"][:6])
    drawn = answer(root, "train", "web", *options, *DRAWN, "--cache-memory", "1M")
    assert stored["loss"] == drawn["loss"]
    assert stored["mode"] == "neighbor"


def test_samples_for_several_ranks_follow_their_partition(root: Path) -> None:
    made = answer(root, "sample", "web", *DRAWN, "--epochs", "1", "--ranks", "2", "--workers", "0")
    samples = Catalog(root)["web"].samples(made["key"])
    assert samples.artifact.inputs["partition"] == Catalog(root)["web"].partition(parts=2).artifact.key
    plan = answer(root, "sample", "web", *DRAWN, "--epochs", "1", "--ranks", "2", "--plan")
    assert plan["is_done"]
    with pytest.raises(gnnloom.GnnloomError, match="gnnloom partition web --parts 3"):
        run(root, "sample", "web", "--ranks", "3", "--plan")


def test_the_python_function_does_what_the_command_does(root: Path) -> None:
    made = answer(root, "sample", "web", *DRAWN, "--epochs", "1", "--workers", "0")
    samples = gnnloom.sample("web", fanout=(4, -1), batch_size=8, epochs=1, catalog=root, workers=0)
    assert samples.artifact.key == made["key"]
    with pytest.raises(gnnloom.GnnloomError, match="did you mean fanout"):
        gnnloom.sample("web", fanouts=(4, 4), catalog=root, workers=0)  # type: ignore[call-arg]


@pytest.mark.parametrize("fanout", ["0", "3,x", "-2"])
def test_wrong_fanouts_are_refused(root: Path, fanout: str) -> None:
    done = run(root, "sample", "web", f"--fanout={fanout}")
    assert done.exit_code == 2
    assert "such as 15,10,5" in done.output
    done = run(root, "train", "web", "--mode", "neighbor", f"--fanout={fanout}")
    assert done.exit_code == 2
