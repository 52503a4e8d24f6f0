"""All stages on real graphs: accuracy, exactness, and counted bytes."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.format import open_edges, open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset, Partition
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch
from support.dense import from_arrays, normalized, train_dense
from support.mpi import train_all
from support.tolerance import assert_close

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

CLUSTER = InProcessCluster()
RANKS = (1, 2, 3, 4, 7)
#: Epochs and learning rate of the curves that are compared.
EPOCHS, LR = 8, 0.02


def store_cora(catalog: Catalog, shared_data: Path) -> Dataset:
    dataset = catalog.create("cora")
    folder = [str(shared_data / "cora")]
    ingest_graph(dataset, open_edges("ogb", folder), IngestOptions(undirected=True), CLUSTER)
    ingest_vertices(dataset, open_vertices("ogb", folder), CLUSTER)
    return dataset


def shard(dataset: Dataset, parts: int, method: str) -> Partition:
    partition = partition_graph(dataset, dataset.graph(), PartitionOptions(parts, method), CLUSTER)
    shard_rows(dataset, partition, CLUSTER)
    return partition


@pytest.fixture(scope="module")
def cora(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Dataset:
    return store_cora(Catalog(tmp_path_factory.mktemp("cora")), shared_data)


def usual(dataset: Dataset, ranks: int, seed: int) -> TrainConfig:
    """The settings of Kipf and Welling (ICLR 2017) for citation graphs."""
    return TrainConfig.of(
        catalog=str(dataset.path.parent),
        dataset=dataset.name,
        ranks=ranks,
        hidden=(16,),
        dropout=0.5,
        weight_decay=5e-4,
        lr=0.01,
        epochs=200,
        eval_every=0,
        seed=seed,
    )


def test_cora_has_the_published_sizes(cora: Dataset) -> None:
    graph, vertices = cora.graph(), cora.vertices()
    assert (graph.num_vertices, graph.nnz) == (2708, 2 * 5278 + 2708)
    assert (vertices.num_features, vertices.num_classes) == (1433, 7)
    assert np.bincount(vertices.split(), minlength=4).tolist() == [1068, 140, 500, 1000]


@pytest.mark.long
def test_cora_trains_to_the_usual_accuracy(cora: Dataset) -> None:
    shard(cora, 2, "mtkahypar")
    assert statistics.mean(launch(usual(cora, 2, seed))["test_accuracy"] for seed in (0, 1)) >= 0.80


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_cora_trains_to_the_usual_accuracy_over_five_seeds(cora: Dataset, ranks: int) -> None:
    shard(cora, ranks, "mtkahypar")
    accuracies = [launch(usual(cora, ranks, seed))["test_accuracy"] for seed in range(5)]
    assert statistics.mean(accuracies) >= 0.80


@pytest.mark.long
@pytest.mark.parametrize("model", ["GCN", "GraphSAGE"])
def test_cora_trains_models_of_pyg_to_the_usual_accuracy(cora: Dataset, model: str) -> None:
    """On sampled neighbors, whose numbers are the degrees that PyG's convolutions see."""
    pytest.importorskip("torch_geometric")
    shard(cora, 2, "mtkahypar")
    batches: dict[str, Any] = {"mode": "neighbor", "fanout": (10, 10), "batch_size": 32, "epochs": 40}
    batches |= {"model": f"torch_geometric.nn:{model}", "normalization": "none"}
    runs = [replace(usual(cora, 2, seed), **batches) for seed in range(3)]
    assert statistics.mean(launch(run)["test_accuracy"] for run in runs) >= 0.77


@pytest.mark.long
def test_cora_in_bf16_has_the_accuracy_of_float32_over_ten_seeds(cora: Dataset) -> None:
    shard(cora, 2, "mtkahypar")
    found = {}
    for precision in ("float32", "bf16"):
        runs = [usual(cora, 2, seed).with_options(precision=precision) for seed in range(10)]
        found[precision] = [launch(run)["test_accuracy"] for run in runs]
    difference = statistics.mean(found["bf16"]) - statistics.mean(found["float32"])
    # Two standard errors of a difference of two means of ten.
    noise = 2 * (sum(statistics.variance(each) for each in found.values()) / 10) ** 0.5
    assert abs(difference) < noise, found


def exact(dataset: Dataset, ranks: int, run: str, **options: Any) -> TrainConfig:
    """Return a training in float64 without dropout, on a random partition."""
    given: dict[str, Any] = {"hidden": (16,), "epochs": EPOCHS, "lr": LR, "feature_norm": "none", **options}
    return TrainConfig.of(
        catalog=str(dataset.path.parent),
        dataset=dataset.name,
        ranks=ranks,
        method="random",
        precision="float64",
        run=run,
        eval_every=0,
        **given,
    )


@pytest.fixture(scope="module", params=[(1, 3), pytest.param(RANKS, marks=pytest.mark.long)], ids=["few", "all"])
def exact_results(
    request: pytest.FixtureRequest, cora: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, dict[str, Any]]:
    """The results of trainings on several numbers of ranks."""
    for ranks in request.param:
        shard(cora, ranks, "random")
    # At learning rate 0 nothing changes: this run's checkpoint holds the initial weights.
    configs = [exact(cora, 1, "start", lr=0.0, epochs=1)]
    configs += [exact(cora, ranks, f"exact-{len(request.param)}-{ranks}") for ranks in request.param]
    results = train_all(tmp_path_factory.mktemp("exact"), configs)
    return dict(zip(request.param, results[1:], strict=True))


def test_cora_has_the_loss_curve_of_a_dense_reference_on_any_number_of_ranks(
    cora: Dataset, exact_results: dict[int, dict[str, Any]]
) -> None:
    vertices = cora.vertices()
    # SciPy's products with the few nonzeros take a tenth of the time of dense ones.
    adjacency: Any = scipy.sparse.csr_array(
        normalized(cora.graph().to_scipy().toarray().astype(np.float64), "symmetric")
    )
    start = read_checkpoint(cora.run_path("start") / "checkpoint").arrays
    model = from_arrays(adjacency, dict(start), num_layers=2)
    feature, training = vertices.feature().astype(np.float64), vertices.split() == 1
    expected = train_dense(model, feature, vertices.label(), training, epochs=EPOCHS, lr=LR, optimizer="adam")
    assert expected[-1] < 0.9 * expected[0]
    for result in exact_results.values():
        assert_close(result["loss"], expected, steps=EPOCHS * 2)


def test_bytes_of_an_epoch_are_what_the_partition_predicts(
    cora: Dataset, exact_results: dict[int, dict[str, Any]]
) -> None:
    for ranks, result in exact_results.items():
        rows = cora.partition(ranks, method="random").quality["km1"]
        # The first layer's A X is cached; the second layer multiplies 7 columns of scores, forward and backward.
        for kind in ("halo forward", "halo backward"):
            assert result["bytes_by_kind"].get(kind, 0) == rows * 7 * 8


def store_snap(catalog: Catalog, file: Path) -> Dataset:
    dataset = catalog.create(file.name.partition(".")[0].lower())
    graph = ingest_graph(dataset, open_edges("snap", [str(file)]), IngestOptions(ids="compact"), CLUSTER)
    ingest_vertices(dataset, open_vertices("random", (), {"dim": 16, "classes": 8}, graph), CLUSTER)
    return dataset


def train_briefly(dataset: Dataset, ranks: int, method: str) -> dict[str, Any]:
    return launch(
        TrainConfig.of(
            catalog=str(dataset.path.parent),
            dataset=dataset.name,
            ranks=ranks,
            method=method,
            hidden=(16, 16),
            epochs=5,
            dropout=0.1,
        )
    )


@pytest.mark.long
def test_epinions_with_gaps_and_crlf_trains_on_eight_ranks(catalog: Catalog, shared_data: Path) -> None:
    dataset = store_snap(catalog, shared_data / "soc-Epinions1.txt.gz")
    facts = dataset.graph().artifact.facts
    assert (dataset.graph().num_vertices, facts["edges_in"]) == (75_879, 508_837)
    partition = shard(dataset, 8, "random")
    result = train_briefly(dataset, 8, "random")
    assert result["loss"][-1] < result["loss"][0]
    # Directed: forward by the columns of the adjacency, backward by its rows; widths 16, 16 and 8.
    # With dropout on the inputs, A X cannot be cached; fixed inputs need no gradient.
    quality = partition.quality
    assert result["bytes_by_kind"]["halo forward"] == quality["km1"] * (16 + 16 + 8) * 4
    assert result["bytes_by_kind"]["halo backward"] % (quality["volume_backward_total"] * 4) == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "vertices", "edges", "loops"),
    [("soc-Slashdot0902.txt.gz", 82_168, 948_464, 78_303), ("soc-Epinions1.txt.gz", 75_879, 508_837, 0)],
)
def test_real_directed_graphs_partition_at_eight_parts_and_train(
    catalog: Catalog, shared_data: Path, name: str, vertices: int, edges: int, loops: int
) -> None:
    dataset = store_snap(catalog, shared_data / name)
    graph, facts = dataset.graph(), dataset.graph().artifact.facts
    assert (graph.num_vertices, facts["edges_in"], facts["self_loops"]) == (vertices, edges, loops)
    quality = shard(dataset, 8, "mtkahypar").quality
    shard(dataset, 8, "random")
    assert quality["km1"] < 0.6 * dataset.partition(8, method="random").quality["km1"]
    assert quality["imbalance"] <= quality["imbalance_bound"] + 1e-9
    result = train_briefly(dataset, 8, "mtkahypar")
    assert result["loss"][-1] < result["loss"][0]
    assert result["bytes_by_kind"]["halo forward"] == quality["km1"] * (16 + 16 + 8) * 4
