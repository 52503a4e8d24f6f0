"""Any number of ranks stores the steps that SciPy computes; interrupted anywhere, the same bytes."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.propagated import COLUMNS
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.disk.files import read_json
from gnnloom.storage.format.artifact import MANIFEST, WORK
from gnnloom.storage.upkeep.removal import remove_artifact
from gnnloom.trainer.propagation.memory import BASE_BYTES, peak_of, rank_sizes
from support.covering import FEW_OR_EVERY
from support.graphs import random_adjacency
from support.in_process import run_command
from support.mpi import TESTS, run_program, run_ranks, start_command
from support.problems import Problem
from support.propagated import reference_steps

#: Two blocks of columns and a narrower one.
WIDTH = 2 * COLUMNS + 5
RANKS = (1, 2, 3, 4, 7)
STEPS = 3
FLOAT32 = float(np.finfo(np.float32).eps)


def problem(name: str, num_vertices: int, nnz: int, *, symmetric: bool, **options: bool) -> Problem:
    rng = np.random.default_rng(11)
    adjacency = random_adjacency(num_vertices, nnz, 4, symmetric=symmetric, loops=options.pop("loops", True))
    if options.get("weighted"):
        adjacency.data = rng.uniform(0.1, 2.0, adjacency.nnz).astype(np.float32).astype(np.float64)
    feature = rng.standard_normal((num_vertices, WIDTH)).astype(np.float32)
    label, split = rng.integers(-1, 3, num_vertices), rng.integers(0, 4, num_vertices)
    label[0], split[0] = 2, 1
    return Problem(name, adjacency, symmetric, feature, label, split, **options)


PROBLEMS = [
    problem("directed", 300, 3000, symmetric=False),
    problem("undirected", 301, 1500, symmetric=True),
    problem("weighted", 200, 1000, symmetric=False, weighted=True),
    problem("few", 5, 9, symmetric=False),
    problem("isolated", 80, 60, symmetric=False, loops=False),
    problem("crowded", 90, 400, symmetric=True, crowded=True),
]


def config(dataset: Dataset, ranks: int, **options: Any) -> dict[str, Any]:
    """A job of the program; without a memory of its own, all columns fit."""
    chosen = {"steps": STEPS, "memory": 1 << 40, **options}
    return {"catalog": str(dataset.path.parent), "dataset": dataset.name, "ranks": ranks, "threads": 1, **chosen}


def check(dataset: Dataset, given: Problem, result: dict[str, Any]) -> None:
    """Compare the steps that a job stored with those of SciPy."""
    found = dataset.propagated(result["key"])
    matrix = given.feature
    if found.of == "label":
        matrix = np.zeros((len(given.label), 3))
        matrix[given.training, given.label[given.training]] = 1
    asked = (STEPS, found.normalization, found.ppr)
    expected = reference_steps(given.adjacency, matrix, *asked)
    # A float32 sum is exact relative to the sum of the absolute values.
    scales = reference_steps(given.adjacency, np.abs(matrix), *asked)
    most = int(np.diff(given.adjacency.indptr).max())
    for step in found.steps:
        limit = 4 * step * FLOAT32 * np.sqrt(most) * scales[step - 1]
        assert (np.abs(found.read(step) - expected[step - 1]) <= limit).all(), (result, step)
    check_artifact(dataset, found.artifact)


#: Numbers of ranks of every graph's jobs: more than it has vertices, and ranks without any, among them.
FEW: dict[str, tuple[int, ...]] = {
    "directed": (1, 4), "undirected": (2,), "weighted": (3,), "few": (7,), "isolated": (2,), "crowded": (3, 1)
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("every", FEW_OR_EVERY)
def test_any_number_of_ranks_stores_the_steps_of_scipy(tmp_path: Path, every: bool) -> None:
    catalog = Catalog(tmp_path / "catalog")
    jobs, problems = list[dict[str, Any]](), []
    ways: list[dict[str, Any]] = [
        {"normalization": "symmetric"},
        {"normalization": "mean", "adjacency": "disk"},
        {"normalization": "symmetric", "ppr": 0.15},
        {"of": "label", "normalization": "mean"},
    ]
    for number, given in enumerate(PROBLEMS):
        chosen = RANKS if every else FEW[given.name]
        dataset = given.store(catalog, *chosen)
        for place, ranks in enumerate(chosen):
            # Every graph in every way, and every number of ranks too; of the few, all of these, but not of each other.
            way = number + place if every else len(jobs)
            jobs.append(config(dataset, ranks, **ways[way % len(ways)]))
            problems.append(given)
    results = run_program(max(RANKS), "propagate_all", tmp_path, jobs)
    for job, given, result in zip(jobs, problems, results, strict=True):
        assert result.get("state") == "finished", (job, result)
        assert not result["reused"]
        assert len(result["bytes_read"]) == len(result["peak_memory"]) == job["ranks"]
        assert result["nonzeros"] == given.adjacency.nnz
        check(catalog[given.name], given, result)


def least_memory(dataset: Dataset, ranks: int) -> int:
    """Memory in which one block of columns fits, but not two."""
    sizes = rank_sizes(dataset.row_shards(ranks))
    needs = [
        [peak_of(each, columns, 301, on_disk=True, matrices=2, threads=1) for each in sizes]
        for columns in (COLUMNS, 2 * COLUMNS)
    ]
    assert max(needs[0]) < max(needs[1])
    return max(needs[0])


def stored(dataset: Dataset, key: str) -> dict[str, bytes]:
    """Every file of the arrays of an artifact."""
    path = dataset.path / "propagated" / key
    files = (file for file in (path / "step").rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


#: Where a rank is killed, and when for the so-manieth time.
POINTS = ("columns.write", "chunk.written", "task.end.propagated", "manifest.write.propagated")
#: The manifest is written once.
KILLS = (*itertools.product(POINTS[:-1], (1, 2, 4)), (POINTS[-1], 1))
FEW_KILLS = tuple(zip(POINTS, (4, 2, 1, 1), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "kills"),
    [
        pytest.param(1, KILLS, marks=pytest.mark.long, id="1"),
        pytest.param(3, FEW_KILLS, id="3"),
        pytest.param(3, KILLS, marks=pytest.mark.long, id="3-every"),
    ],
)
def test_the_bytes_are_the_same_in_less_memory_and_after_interruptions_anywhere(
    tmp_path: Path, ranks: int, kills: tuple[tuple[str, int], ...]
) -> None:
    given = PROBLEMS[1]
    dataset = given.store(Catalog(tmp_path / "calm"), ranks)
    job = config(dataset, ranks)
    (result,) = run_program(ranks, "propagate_all", tmp_path, [job])
    expected, key = stored(dataset, result["key"]), result["key"]
    assert result["passes"] == 1

    def compare(where: str, done: dict[str, Any]) -> None:
        other = Catalog(tmp_path / where)[given.name]
        assert done["key"] == key
        assert stored(other, key) == expected
        assert other.propagated().artifact.digest == dataset.propagated().artifact.digest
        assert not (other.path / "propagated" / key / WORK).exists()

    # Block by block, with the adjacency on disk.
    other = given.store(Catalog(tmp_path / "less"), ranks)
    least = least_memory(other, ranks)
    less = config(other, ranks, memory=least, adjacency="disk")
    stopped, done = run_program(ranks, "propagate_all", tmp_path, [{**less, "stops": [ranks - 1, 2]}, less])
    assert stopped["state"] == "stopped"
    assert done["state"] == "finished"
    assert done["passes"] == 3
    compare("less", done)

    # Killed at several moments, each time a bit later, with more or less memory.
    other = given.store(Catalog(tmp_path / "killed"), ranks)
    path, program = tmp_path / "killed.json", TESTS / "trainer" / "programs" / "propagate_all.py"
    for number, (point, nth) in enumerate(kills):
        memory = least if number % 2 or point == "columns.write" else 1 << 40
        rank = 0 if point.startswith(("task", "manifest")) else number % ranks
        fault = f"{point}:SIGKILL:nth={nth}:rank={rank}"
        path.write_text(json.dumps([{**config(other, ranks, memory=memory, adjacency="disk"), "fault": fault}]))
        run_ranks(ranks, str(program), str(path), str(tmp_path / "ignored.json"))
    again = config(other, ranks)
    (done,) = run_program(ranks, "propagate_all", tmp_path, [again])
    compare("killed", done)


def test_steps_that_are_stored_are_found_and_other_bytes_are_never_mixed_in(tmp_path: Path) -> None:
    given = PROBLEMS[0]
    dataset = given.store(Catalog(tmp_path / "catalog"), 1, 2)
    jobs = [config(dataset, 1), config(dataset, 1, memory=1 << 30, adjacency="disk"), config(dataset, 2)]
    first, again, other = run_program(2, "propagate_all", tmp_path, jobs)
    assert (first["reused"], again["reused"], other["reused"]) == (False, True, False)
    assert first["key"] == again["key"] != other["key"]
    # Sums of other shards are rounded in another order.
    of_one, of_two = (dataset.propagated(result["key"]).read(3) for result in (first, other))
    np.testing.assert_allclose(of_one, of_two, rtol=0, atol=1e-5 * float(np.abs(of_one).max()))
    manifest = read_json(dataset.path / "propagated" / first["key"] / MANIFEST)
    assert set(manifest["inputs"]) >= {"graph", "shards"}
    assert manifest["inputs"]["shards"] == dataset.row_shards(1).artifact.key


@pytest.mark.slow
def test_errors_are_the_same_on_all_ranks_and_name_what_is_wrong(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    dataset = PROBLEMS[0].store(catalog, 2)
    bare = problem("bare", 30, 90, symmetric=True, bare=True).store(catalog, 2)
    growing = PROBLEMS[1].store(catalog, 2)
    jobs = [
        config(dataset, 1),
        config(bare, 2),
        config(dataset, 2, memory=1 << 20),
        {**config(dataset, 2), "dataset": "missing"},
    ]
    messages = [result["error"] for result in run_program(2, "propagate_all", tmp_path, jobs)]
    assert "has no shards with layout=row, parts=1" in messages[0]
    assert "`gnnloom features bare ...`" in messages[1]
    assert "--memory 1 MiB: 8 columns at a time need" in messages[2]
    assert "there is no such dataset" in messages[3]
    assert not (dataset.path / "propagated").exists()
    # Numbers that overflow are found where they are written, which ends the job.
    path, program = tmp_path / "growing.json", TESTS / "trainer" / "programs" / "propagate_all.py"
    path.write_text(json.dumps([config(growing, 2, normalization="none", steps=60)]))
    done = run_ranks(2, str(program), str(path), str(tmp_path / "ignored.json"))
    assert done.returncode != 0
    assert "not a finite number" in done.stdout + done.stderr


@pytest.mark.slow
def test_the_features_are_not_in_memory_if_it_does_not_suffice(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    num_vertices, width = 20_000, 512
    adjacency = random_adjacency(num_vertices, 50_000, 1, symmetric=True)
    feature = rng.integers(0, 3, (num_vertices, width)).astype(np.float32)
    label = np.zeros(num_vertices, np.int64)
    given = Problem("wide", adjacency, True, feature, label, label)
    dataset = given.store(Catalog(tmp_path / "catalog"), 1)
    peaks, digests = [], []
    least = BASE_BYTES + (50 << 20)
    for memory in (1 << 40, least):
        # In a process of its own each: peaks are those of a process.
        (result,) = run_program(1, "propagate_all", tmp_path, [config(dataset, 1, memory=memory, steps=1)])
        planned = result["columns_at_a_time"] < width
        assert planned == (memory < 1 << 40)
        peaks.append(result["peak_memory"][0])
        digests.append(dataset.propagated(result["key"]).artifact.digest)
        remove_artifact(dataset, "propagated", result["key"])
    assert digests[0] == digests[1]
    assert peaks[1] < least
    # Two matrices of all columns are 82 MB.
    assert peaks[0] - peaks[1] > feature.nbytes


@pytest.mark.slow
def test_a_command_that_is_asked_to_stop_keeps_what_is_done(tmp_path: Path) -> None:
    given = PROBLEMS[1]
    given = replace(given, feature=np.tile(given.feature, (1, 6)))
    blocks = -(-given.feature.shape[1] // COLUMNS)
    dataset = given.store(Catalog(tmp_path / "catalog"), 2)
    least = least_memory(dataset, 2)
    words = ["--catalog", str(tmp_path / "catalog"), "propagate", given.name, "--ranks", "2", "--steps", str(STEPS)]
    words += ["--threads", "1", "--adjacency", "disk", "--memory", str(least), "--json"]
    # After the first record, the next one takes a second longer, so that the request comes before the last columns.
    slow = {**os.environ, "GNNLOOM_FAULT": "task.begin.propagated:slow:nth=2"}
    with start_command(*words, env=slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        ends = time.monotonic() + 120
        while not list(dataset.path.glob("propagated/*/.work/records/[!.]*.json")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < ends
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 75, said
    assert "finished columns are kept" in said
    records = [path.name for path in dataset.path.glob("propagated/*/.work/records/[!.]*.json")]
    assert 1 < len(records) < blocks
    # In this process, which is quicker.
    done = run_command(*words)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["state"], result["reused"]) == ("finished", False)
    check(dataset, given, result)


@pytest.mark.slow
def test_two_commands_at_the_same_time_make_the_steps_once(tmp_path: Path) -> None:
    given = PROBLEMS[0]
    dataset = given.store(Catalog(tmp_path / "catalog"), 1)
    words = ["--catalog", str(tmp_path / "catalog"), "propagate", given.name, "--threads", "1", "--json"]
    # So that the second one comes while the first one works.
    slow = {**os.environ, "GNNLOOM_FAULT": "task.begin.propagated:slow:nth=1"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": slow}
    processes = [start_command(*words, **pipes) for _ in range(2)]
    results = []
    for process in processes:
        printed, said = process.communicate(timeout=240)
        assert process.returncode == 0, said
        results.append(json.loads(printed))
    assert sorted(result["reused"] for result in results) == [False, True]
    assert results[0]["key"] == results[1]["key"]
    check(dataset, given, results[0])
