"""Training on reordered shards gives the same losses, and results in the order of the vertices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from support.covering import FEW_OR_EVERY
from support.graphs import store_graph, store_vertices
from support.mpi import train_all
from support.partitions import store_partition
from support.problems import problem
from support.tolerance import ADAM_BITS, assert_close

RANKS = (1, 2, 4)
EPOCHS = 2
#: Numbers of ranks of the quick tests, by mode.
FEW = {"full": (1, 2), "minibatch": (2,), "neighbor": (4,)}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("reordered") / "catalog")
    given = problem("rows", 70, 260, symmetric=False)
    dataset = catalog.create("rows")
    graph = store_graph(dataset, given.adjacency, symmetric=False)
    store_vertices(dataset, given.feature, given.label, given.split)
    for parts in RANKS:
        partition = store_partition(dataset, graph, given.part(parts).astype(np.int32), parts)
        for reorder in ("none", "degree"):
            shard_rows(dataset, partition, InProcessCluster(), reorder=reorder)
    return catalog


def _config(
    catalog: Catalog, ranks: int, reorder: str, mode: str = "full", *, every: bool = False, **options: Any
) -> TrainConfig:
    keys = {
        shards.parameters.get("reorder", "none"): shards.key
        for shards in catalog["rows"].artifacts("shards")
        if shards.parameters["parts"] == ranks
    }
    return TrainConfig.of(
        catalog=str(catalog.root),
        dataset="rows",
        ranks=ranks,
        shards=keys[reorder],
        # Quick and long tests do not share runs.
        run=f"{mode}-{reorder}-{ranks}-of-{'every' if every else 'few'}",
        mode=mode,
        hidden=(9, 8),
        precision="float64",
        dropout=0.3,
        epochs=EPOCHS,
        threads=1,
        **{"save_embeddings": True, **options},
    )


@pytest.mark.slow
@pytest.mark.parametrize("every", FEW_OR_EVERY)
def test_losses_predictions_and_embeddings_are_those_without_reordering(
    catalog: Catalog, tmp_path: Path, every: bool
) -> None:
    cases = [(ranks, reorder) for ranks in (RANKS if every else FEW["full"]) for reorder in ("none", "degree")]
    configs = [_config(catalog, ranks, reorder, every=every) for ranks, reorder in cases]
    results = train_all(tmp_path, configs)
    runs = [Run.open(catalog["rows"], config.run_name) for config in configs]
    plain = runs[0].predictions()
    for (ranks, reorder), result, run in zip(cases, results, runs, strict=True):
        where = f"{reorder} on {ranks} ranks"
        assert_close(result["loss"], results[0]["loss"], steps=3 * EPOCHS, message=where)
        assert result["val_accuracy"] == results[0]["val_accuracy"]
        found = run.predictions()
        np.testing.assert_array_equal(found.label(), plain.label(), where)
        assert_close(found.embedding(), plain.embedding(), steps=3 * EPOCHS, bits=ADAM_BITS, message=where)


#: Options of the modes whose batches refer to rows by the ids of their vertices.
SAMPLED: dict[str, dict[str, Any]] = {
    "minibatch": {"batch_size": 20},
    "neighbor": {"batch_size": 5, "fanout": (3, 3, 2), "cache_memory": 400},
}


@pytest.mark.slow
@pytest.mark.parametrize("every", FEW_OR_EVERY)
def test_sampled_modes_have_the_losses_and_scores_without_reordering(
    catalog: Catalog, tmp_path: Path, every: bool
) -> None:
    cases = [(mode, ranks) for mode in SAMPLED for ranks in (RANKS if every else FEW[mode])]
    configs = [
        _config(catalog, ranks, reorder, mode, every=every, eval_every=1, **SAMPLED[mode])
        for mode, ranks in cases
        for reorder in ("none", "degree")
    ]
    results = train_all(tmp_path, configs)
    labels = [Run.open(catalog["rows"], config.run_name).predictions().label() for config in configs]
    for number, (mode, ranks) in enumerate(cases):
        plain, ordered = results[2 * number : 2 * number + 2]
        expected, found = labels[2 * number : 2 * number + 2]
        where = f"{mode} on {ranks} ranks"
        assert_close(ordered["loss"], plain["loss"], steps=30 * EPOCHS, bits=ADAM_BITS, message=where)
        assert ordered["test_accuracy"] == plain["test_accuracy"], where
        np.testing.assert_array_equal(found, expected, where)


@pytest.mark.slow
def test_samples_on_disk_train_and_evaluate_with_reordered_shards(catalog: Catalog, tmp_path: Path) -> None:
    dataset, ranks = catalog["rows"], 2
    options = SampleOptions(fanout=(3, 3, 2), batch_size=5, epochs=EPOCHS, ranks=ranks)
    partition = dataset.partition(parts=ranks)
    samples = write_samples(dataset, dataset.graph(), partition, options, InProcessCluster()).artifact.key
    given: dict[str, Any] = {"samples": samples, "eval_every": 1, "save_embeddings": False}
    configs = [
        _config(catalog, ranks, each, "neighbor", **given).with_options(run=f"disk-{each}")
        for each in ("none", "degree")
    ]
    plain, ordered = train_all(tmp_path, configs)
    assert ordered["loss"] == plain["loss"]
    assert ordered["val_accuracy"] == plain["val_accuracy"]
