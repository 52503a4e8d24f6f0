"""`gnnloom propagate`, as users call it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.errors import BudgetError, InputError, NotFoundError
from gnnloom.trainer.job.stop import STOPPED_PROPAGATION, StoppedError
from gnnloom.workflows.cli.main import cli
from support.in_process import answer
from support.lone_training import LoneLauncher, install
from support.problems import problem
from support.propagated import reference_steps

GIVEN = problem("web", 60, 240, symmetric=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    GIVEN.store(Catalog(tmp_path), 1)
    return tmp_path


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> LoneLauncher:
    return install(monkeypatch)


def run(root: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--catalog", str(root), "propagate", *words], catch_exceptions=False)


def propagated(root: Path, *words: str) -> dict[str, Any]:
    return answer(root, "propagate", *words)


def test_steps_are_planned_made_and_found_again(root: Path, launcher: LoneLauncher) -> None:
    words = ("web", "--steps", "2", "--normalization", "mean")
    planned = propagated(root, *words, "--plan")
    assert (planned["adjacency"], planned["columns"], planned["passes"]) == ("memory", 5, 1)
    assert planned["nonzeros"] == GIVEN.adjacency.nnz
    assert planned["bytes_written"] == 2 * 4 * 60 * 5
    assert not (root / "web" / "propagated").exists()
    made = propagated(root, *words, "--memory", "1G")
    assert (made["key"], made["reused"], made["stored_steps"]) == (planned["key"], False, [1, 2])
    assert {"seconds", "bytes_read", "peak_memory", "nonzeros", "columns_at_a_time"} <= made.keys()
    found = propagated(root, *words, "--adjacency", "disk")
    assert (found["key"], found["reused"], found["ranks"]) == (made["key"], True, 1)
    assert launcher.jobs == 1
    expected = reference_steps(GIVEN.adjacency, GIVEN.feature, 2, "mean")
    values = gnnloom.Catalog(root)["web"].propagated(steps=2).read(2)
    np.testing.assert_allclose(values, expected[1], rtol=1e-5, atol=1e-6)
    assert "propagated feature of web" in run(root, *words).output


def test_the_function_has_the_options_of_the_command(root: Path, launcher: LoneLauncher) -> None:
    made = gnnloom.propagate("web", steps=4, ppr=0.25, memory="1G", scratch=str(root / "scratch"), catalog=root)
    assert (made.num_steps, made.steps, made.ppr) == (4, (4,), 0.25)
    expected = reference_steps(GIVEN.adjacency, GIVEN.feature, 4, "symmetric", 0.25)
    np.testing.assert_allclose(made.read(4), expected[3], rtol=1e-5, atol=1e-5)
    assert propagated(root, "web", "--steps", "4", "--ppr", "0.25")["key"] == made.artifact.key
    assert not list((root / "scratch").iterdir())
    labels = gnnloom.propagate(gnnloom.Catalog(root)["web"], of="label", steps=1, normalization="none")
    assert (labels.of, labels.num_features) == ("label", 3)
    assert launcher.jobs == 2
    with pytest.raises(InputError, match=r"step.* steps"):
        gnnloom.propagate("web", catalog=root, step=3)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="memory: 'much' "):
        gnnloom.propagate("web", catalog=root, memory="much")


@pytest.mark.usefixtures("launcher")
def test_what_cannot_be_is_refused_before_ranks_are_started(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.trainer.job.launch._launch", None)
    for words, error, message in (
        (["other"], NotFoundError, "there is no such dataset"),
        (["web", "--ranks", "2"], NotFoundError, "gnnloom shard web --parts 2"),
        (["web", "--memory", "1M"], BudgetError, "--memory 1 MiB: 8 columns at a time need"),
    ):
        with pytest.raises(error, match=message):
            run(root, *words)
    for words, message in (
        (["web", "--steps", "0"], "at least 1"),
        (["web", "--ppr", "0"], "more than 0.0"),
        (["web", "--ppr", "1.5"], "at most 1.0"),
        (["web", "--normalization", "max"], "is not one of"),
        (["web", "--of", "split"], "is not one of"),
        (["web", "--memory", "much"], "a size such as"),
    ):
        done = run(root, *words)
        assert done.exit_code == 2
        assert message in done.output
    bare = problem("bare", 20, 40, symmetric=True, bare=True)
    bare.store(Catalog(root), 1)
    with pytest.raises(InputError, match="`gnnloom features bare"):
        run(root, "bare")


def test_one_that_was_stopped_says_how_to_continue(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise StoppedError("of a training")

    monkeypatch.setattr("gnnloom.trainer.job.launch._launch", stopped)
    with pytest.raises(StoppedError, match=STOPPED_PROPAGATION):
        run(root, "web")
