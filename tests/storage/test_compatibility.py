"""Stores of earlier versions stay readable: one that version 0.1.0 wrote is kept as it was.

It holds what these commands made, of an R-MAT graph: generate (scale 5), features, partition (2 random parts), shard
(in rows, and as a grid of 2 x 1), train (2 ranks, 3 epochs) and predict.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import FormatError
from gnnloom.storage.format.files import read_json, write_json
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig

STORE = Path(__file__).parents[1] / "data" / "store-0.1.0.tar.gz"


@pytest.fixture
def old(tmp_path: Path) -> Dataset:
    with tarfile.open(STORE) as tar:
        tar.extractall(tmp_path, filter="data")
    return Catalog(tmp_path)["web"]


def test_everything_in_it_is_intact(old: Dataset) -> None:
    findings = old.verify()
    assert [finding.problem for finding in findings] == [None] * len(findings)
    kinds = sorted(finding.kind for finding in findings)
    assert kinds == ["graph", "partition", "runs", "shards", "shards", "vertices"]


def test_its_arrays_have_the_values_that_were_written(old: Dataset) -> None:
    graph = old.graph()
    assert (graph.num_vertices, graph.nnz) == (32, graph.to_scipy().nnz)
    assert np.array_equal(graph.degree(0, 32), np.diff(graph.to_scipy().indptr))
    assert old.vertices().artifact.array("feature").shape == (32, 3)
    assert set(old.partition(2).artifact.array("part").read().tolist()) == {0, 1}
    assert old.row_shards(2).artifact.facts
    assert old.grid_shards().artifact.facts


def test_its_run_is_read_and_can_be_continued(old: Dataset) -> None:
    run = Run.open(old, "old")
    assert len(run.metrics()) == run.result()["epochs"] == 3
    assert TrainConfig.of_run(run).hidden == (4,)
    assert read_checkpoint(run.checkpoints).epoch == 3
    assert len(run.predictions().label()) == 32
    run.start(run.config(), 2, run.inputs())
    run.append_metrics({"epoch": 2, "loss": 1.0})
    # Old lines without checksums and new ones with them are one file.
    assert [line["epoch"] for line in run.metrics()] == [0, 1, 2]


def test_a_newer_store_is_refused_by_its_version(old: Dataset) -> None:
    path = old.path / "zarr.json"
    content = read_json(path)
    content["attributes"]["encoding-version"] = "99"
    write_json(path, content, sealed=False)
    with pytest.raises(FormatError, match="format 99 is newer than 1"):
        Catalog(old.path.parent)["web"]
