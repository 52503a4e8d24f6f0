"""A long training takes no more memory than a short one, and many stages leave no objects, files or threads."""

from __future__ import annotations

import gc
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.lone import LoneCommunicator
from support.mpi import train_all
from support.problems import problem

#: Growth of the resident memory that counts as none: what the interpreter's allocator may keep.
NOISE = 8 << 20
PROBLEM = problem("graph", 60, 240, symmetric=True)


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _config(catalog: Catalog, run: str, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"hidden": (9,), "threads": 1, "eval_every": 10, "checkpoint_every": 20, "dropout": 0.3}
    return TrainConfig.of(catalog=str(catalog.root), dataset="graph", run=run, **{**fixed, **options})


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("trained", [False, True])
def test_the_memory_of_two_thousand_epochs_is_that_of_two_hundred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: bool
) -> None:
    catalog = Catalog(tmp_path)
    PROBLEM.store(catalog, 1)
    seen: dict[int, int] = {}
    append = Run.append_metrics

    def watch(self: Run, line: dict[str, Any]) -> None:
        append(self, line)
        if line["epoch"] in {200, 1999}:
            seen[line["epoch"]] = _resident()

    monkeypatch.setattr(Run, "append_metrics", watch)
    result = train(LoneCommunicator(), _config(catalog, "long", epochs=2000, train_features=trained, keep_best="auto"))
    assert result["epochs"] == 2000
    print(f"resident after 200 epochs {seen[200]:,}, after 2000 {seen[1999]:,}")
    assert seen[1999] - seen[200] < NOISE
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint-")]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_two_hundred_stages_in_one_process_leave_no_objects_files_or_threads(tmp_path: Path) -> None:
    catalog, cluster = Catalog(tmp_path), InProcessCluster()
    dataset = PROBLEM.store_grid(catalog)
    graph = dataset.graph()
    seen = {}
    for number in range(100):
        partition = partition_graph(dataset, graph, PartitionOptions(1 + number % 2, "random", seed=number), cluster)
        shards = shard_rows(dataset, partition, cluster)
        if number % 2 == 0:
            config = _config(catalog, f"run-{number}", epochs=3, shards=shards.artifact.key)
            train(LoneCommunicator(), config)
            shutil.rmtree(dataset.run_path(f"run-{number}"))
        # Every stage writes the dataset's list anew, in memory that grows with the number of artifacts.
        dataset.remove_artifact("shards", shards.artifact.key)
        dataset.remove_artifact("partition", partition.artifact.key)
        if number in {9, 99}:
            seen[number] = (_resident(), len(list(Path("/proc/self/fd").iterdir())), threading.active_count())
    print(f"resident, files and threads after 20 and 200 stages: {seen[9]}, {seen[99]}")
    assert seen[99][0] - seen[9][0] < NOISE
    assert seen[99][1:] == seen[9][1:]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ranks", [4, 8])
def test_thousands_of_epochs_on_many_ranks_end(tmp_path: Path, ranks: int) -> None:
    catalog = Catalog(tmp_path / "catalog")
    PROBLEM.store(catalog, ranks)
    epochs = int(os.environ.get("ENDURANCE_EPOCHS", "500"))
    configs = [_config(catalog, f"run-{seed}", epochs=epochs, ranks=ranks, seed=seed) for seed in range(2)]
    assert [result["epochs"] for result in train_all(tmp_path, configs, timeout=3500)] == [epochs] * 2
