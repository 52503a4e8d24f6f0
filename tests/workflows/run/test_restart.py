"""A recipe's training is started over only if that is asked for, and what it had before is then gone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.recipes import GNNLOOM, TINY, LocalJob, MpiJob, run_arguments, run_here

pytestmark = pytest.mark.long

NAMED = (*TINY, "train.run=mine", "train.ranks=3")


@pytest.mark.parametrize("kind", ["here", "mpi"])
def test_a_run_of_another_training_is_refused_until_it_is_started_over(tmp_path: Path, kind: str) -> None:
    changed = (*NAMED, "train.lr=0.5")
    first = run_here(run_arguments("quick-start", tmp_path, *NAMED))
    fresh = run_here(run_arguments("quick-start", tmp_path, *changed, "train.run=fresh"))
    assert fresh["loss"] != first["loss"]

    def begin(*more: str) -> LocalJob | MpiJob:
        arguments = run_arguments("quick-start", tmp_path, *changed, more=more)
        return LocalJob(arguments) if kind == "here" else MpiJob(3, arguments)

    code, _, log = begin().finish()
    assert (code, log.count("error: ")) == (3, 1)
    assert all(part in log for part in ("lr 0.01 (now 0.5)", "--set train.run=", "--restart"))
    assert begin("--restart").finish()[0] == 0
    again = run_here(run_arguments("quick-start", tmp_path, *changed))
    assert (again["run"], again["loss"]) == ("mine", fresh["loss"])
    # The stages before the training were kept.
    assert (again["keys"]["shards"], again["digests"]) == (first["keys"]["shards"], first["digests"])


def test_a_restart_that_trains_nothing_is_refused(tmp_path: Path) -> None:
    arguments = run_arguments("quick-start", tmp_path, *NAMED, more=("--until", "shards", "--restart"))
    done = subprocess.run([GNNLOOM, *arguments], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: a restart ")
    assert line.endswith(" graph, vertices, partition, shards")
