"""Every stage, stopped again and again or run by several workers at once, makes the bytes of an undisturbed run."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, ThreadedCluster
from gnnloom.storage import Catalog
from support.small_stages import SMALL_FILES, STAGES, make_small
from support.stopping import StoppingCluster, run_in_steps

#: Tasks after which a stage is stopped, where that is not 7: few steps of what begins slowly.
STEPS = {"ingest of tables with types": 23, "ingest of rows with types": 23, "stochastic": 31, "hard negatives": 19}
#: Functions that have to be among the tasks of a stage, several times: merges of temporary files, and what only some
#: options need.
RUNS = {
    **dict.fromkeys(["ingest of numbers", "ingest of compact ids", "ingest of names", "transpose"], ("merge_spilled",)),
    **dict.fromkeys(["table", "row shards", "grid shards"], ("merge_runs",)),
    "links": ("merge_runs", "draw_pools", "write_baseline"),
    "directed links": ("draw_pools", "count_neighbors", "write_baseline"),
}
#: The rounds of the multilevel method leave no records, so that it begins again: ``test_multilevel_resume.py``.
RECORDED = [name for name in STAGES if name != "multilevel"]


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_a_stage_that_is_stopped_runs_every_task_once_and_makes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_small(monkeypatch.setattr)
    stage, undisturbed = STAGES[name], StoppingCluster(scratch=SMALL_FILES)
    catalogs = [Catalog(tmp_path / each) for each in ("whole", "stopped", "shared")]
    stage.prepare(catalogs[0].create("g"), tmp_path)
    for other in catalogs[1:]:
        shutil.copytree(catalogs[0].root, other.root, symlinks=True)
    expected = stage.run(catalogs[0], tmp_path, undisturbed)
    tasks = STEPS.get(name, 7)
    stopped, ran = run_in_steps(lambda cluster: stage.run(catalogs[1], tmp_path, cluster), tasks, scratch=SMALL_FILES)
    assert stopped.digest == expected.digest
    assert recorded(ran) == recorded(undisturbed.ran)
    assert len(ran) > tasks
    times = Counter(function for function, _ in ran)
    assert all(times[function] > 1 for function in RUNS.get(name, ()))
    stopped.verify()
    shared = stage.run(catalogs[2], tmp_path, ThreadedCluster(3, DEFAULT_MEMORY, SMALL_FILES))
    assert shared.digest == expected.digest


def recorded(ran: Iterable[tuple[str, str]]) -> Counter[str]:
    """How many tasks of each function ran that leave records, whose names may have the digests of random files."""
    return Counter(function for function, name in ran if name)
