"""Training on features stored as float16 has the bits of training on float32 features that were rounded before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnnloom
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.format import open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset, Graph, Partition
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.trainer.training.propagate import propagate
from support.edge_files import write_edges
from support.lone import LoneCommunicator
from support.partitions import store_partition

N, WIDTH, HERE = 300, 6, InProcessCluster()
FANOUT: dict[str, Any] = {"mode": "neighbor", "fanout": (4, 4), "batch_size": 40}
#: Trainings by what reads the features.
TRAININGS: dict[str, dict[str, Any]] = {
    "rows of shards": {},
    "rows of shards, rounded again": {"precision": "bf16"},
    "grid": {"algorithm": "summa", "grid": (1, 1)},
    "mapped": {"mode": "subgraph", "sampler": "vertex", "batch_size": 50},
    "rows of others": FANOUT,
    "packed in samples": {**FANOUT, "samples": ""},
    "propagated": {"mode": "rows", "model": "sign", "hidden": ()},
}


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Catalog]:
    """Equal datasets whose features are float16, and float32 that were rounded before."""
    folder, rng = tmp_path_factory.mktemp("narrow"), np.random.default_rng(5)
    ends, feature = rng.integers(0, N, (2, 900)), rng.normal(size=(N, WIDTH)).astype(np.float32)
    np.save(folder / "y.npy", rng.integers(0, 4, N))
    np.save(folder / "s.npy", rng.integers(1, 4, N).astype(np.uint8))
    np.save(folder / "float16.npy", feature)
    np.save(folder / "float32.npy", feature.astype(np.float16).astype(np.float32))
    made = {}
    for store in ("float16", "float32"):
        catalog = made[store] = Catalog(folder / f"in-{store}")
        dataset, edges = catalog.create("g"), write_edges(folder / f"e-{store}", *ends, vertices=N)
        graph = ingest_graph(dataset, edges, IngestOptions(undirected=True), HERE)
        files = {"feature": f"{store}.npy", "label": "y.npy", "split": "s.npy"}
        given = open_vertices("files", (), {name: str(folder / file) for name, file in files.items()})
        ingest_vertices(dataset, given, HERE, options=VertexOptions(store))
        prepare(dataset, graph, store_partition(dataset, graph, np.zeros(N, np.int32), 1))
    return made


def prepare(dataset: Dataset, graph: Graph, partition: Partition) -> None:
    shard_rows(dataset, partition, HERE)
    shard_grid(dataset, graph, GridOptions((1, 1)), HERE)
    write_samples(dataset, graph, None, SampleOptions(fanout=(4, 4), batch_size=40, epochs=2), HERE)
    config = PropagateConfig.of(catalog=str(dataset.path.parent), dataset="g", steps=2, ranks=1)
    propagate(LoneCommunicator(), config, lambda: False)


def run(catalog: Catalog, **options: Any) -> dict[str, Any]:
    if "samples" in options:
        (found,) = catalog["g"].artifacts("samples")
        options["samples"] = found.key
    fixed: dict[str, Any] = {"hidden": (8,), "epochs": 2, "threads": 1, "run": "r", "ranks": 1}
    config = TrainConfig.of(catalog=str(catalog.root), dataset="g", **{**fixed, **options})
    return train(LoneCommunicator(), config, restart=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", TRAININGS.values(), ids=TRAININGS)
def test_losses_and_metrics_have_the_same_bits(catalogs: dict[str, Catalog], options: dict[str, Any]) -> None:
    half, whole = (run(catalogs[store], **options) for store in ("float16", "float32"))
    assert half["loss"] == whole["loss"]
    assert half["test_accuracy"] == whole["test_accuracy"]


def test_predictions_have_the_same_bits(catalogs: dict[str, Catalog]) -> None:
    scores = []
    for catalog in catalogs.values():
        run(catalog)
        predict(LoneCommunicator(), PredictConfig.of(catalog=str(catalog.root), dataset="g", run="r"))
        scores.append(Run(catalog["g"].run_path("r")).predictions().array("score").read())
    half, whole = scores
    assert np.array_equal(half, whole)


def test_every_copy_has_the_stored_type_and_passes_the_checks(catalogs: dict[str, Catalog]) -> None:
    dataset = catalogs["float16"]["g"]
    for kind in ("vertices", "shards", "samples"):
        for info in dataset.artifacts(kind):
            artifact = Artifact(info.path)
            check_artifact(dataset, artifact)
            copies = [record for path, record in artifact.records.items() if path.split("/")[-1].endswith("feature")]
            assert {record.dtype for record in copies} == {"float16"}


@pytest.mark.parametrize("features", ["float32", "bf16"])
def test_the_loader_gives_the_same_batches(catalogs: dict[str, Catalog], features: str) -> None:
    pytest.importorskip("torch_geometric.nn")
    found = []
    for catalog in catalogs.values():
        loader: Any = gnnloom.loader("g", catalog=catalog.root, fanout=(4, 4), batch_size=40, features=features)
        found.append([(batch.n_id.tolist(), batch.x.dtype, batch.x.tolist()) for batch in loader])
    half, whole = found
    assert half == whole
    assert half
