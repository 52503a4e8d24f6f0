"""The format is a promise: a store of its first version stays readable, and any other format is refused by name.

``store-1.tar.gz`` was made by these commands, each with ``--workers 0`` as far as it has workers::

    gnnloom generate web rmat --scale 5 --edge-factor 4
    gnnloom features web random --dim 3 --classes 2
    gnnloom partition web --parts 2 --method random
    gnnloom shard web --parts 2
    gnnloom shard web --grid 2x1
    gnnloom sample web --fanout 2,2 --batch-size 8
    gnnloom train web/first --ranks 2 --hidden 4 --epochs 3 --threads 1
    gnnloom predict web/first

``store-development.tar.gz`` holds a dataset with one graph, as it was made before the format was released.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.samples import Samples
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.errors import FormatError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig

DATA = Path(__file__).parents[1] / "data"
REFUSED = "web.*: made by a development version of gnnloom.*remove the dataset's folder and make it again"


def unpacked(store: str, folder: Path) -> Path:
    with tarfile.open(DATA / store) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.fixture
def released(tmp_path: Path) -> Dataset:
    return Catalog(unpacked("store-1.tar.gz", tmp_path))["web"]


@pytest.fixture
def development(tmp_path: Path) -> Catalog:
    return Catalog(unpacked("store-development.tar.gz", tmp_path / "development"))


def test_everything_in_a_released_store_is_intact(released: Dataset) -> None:
    findings = released.verify()
    assert [finding.problem for finding in findings] == [None] * len(findings)
    kinds = sorted(finding.kind for finding in findings)
    assert kinds == ["graph", "partition", "runs", "samples", "shards", "shards", "vertices"]


def test_its_arrays_have_the_values_that_were_written(released: Dataset) -> None:
    graph = released.graph()
    assert (graph.num_vertices, graph.nnz) == (32, graph.to_scipy().nnz)
    assert np.array_equal(graph.degree(0, 32), np.diff(graph.to_scipy().indptr))
    assert released.vertices().artifact.array("feature").shape == (32, 3)
    assert set(released.partition(2).artifact.array("part").read().tolist()) == {0, 1}
    assert released.row_shards(2).num_parts == 2
    assert released.grid_shards().grid == (2, 1)
    assert Samples(released.find("samples")).fanouts == (2, 2)


def test_its_run_is_read_and_can_be_continued(released: Dataset) -> None:
    run = Run.open(released, "first")
    assert len(run.metrics()) == run.result()["epochs"] == 3
    assert TrainConfig.of_run(run).model.hidden == (4,)
    assert read_checkpoint(run.checkpoints).epoch == 3
    assert len(run.predictions().label()) == 32
    run.start(run.config(), 2, run.inputs())
    run.append_metrics({"epoch": 2, "loss": 1.0})
    assert [line["epoch"] for line in run.metrics()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("version", "said"), [(99, "format 99 is newer than 1"), (0, "0 is not a version"), ("1", "'1' is not a version")]
)
def test_another_version_is_refused_by_name(released: Dataset, version: object, said: str) -> None:
    path = released.path / "zarr.json"
    content = read_json(path, sealed=False)
    content["attributes"]["format_version"] = version
    write_json(path, content, sealed=False)
    with pytest.raises(FormatError, match=said):
        Catalog(released.path.parent)["web"]


def test_a_dataset_of_a_development_version_is_refused(development: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    for use in (development.dataset, development.create, development.remove):
        with pytest.raises(FormatError, match=REFUSED):
            use("web")
    assert list(development.datasets()) == []
    assert "left out: " in caplog.text


def test_an_artifact_of_a_development_version_is_refused(released: Dataset, development: Catalog) -> None:
    (graph,) = (development.root / "web" / "graph").glob("[!.]*/")
    copied = shutil.copytree(graph, released.path / "graph" / graph.name)
    with pytest.raises(FormatError, match=REFUSED):
        Artifact(copied)
    (problem,) = (finding.problem for finding in released.verify() if finding.key == graph.name)
    assert "made by a development version" in str(problem)
