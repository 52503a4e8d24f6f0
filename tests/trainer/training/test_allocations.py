"""After the first epoch, a training allocates nothing large: all large tensors are in the workspace, as planned."""

from __future__ import annotations

import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.format import open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.workspace import SMALL
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.allocations import EPOCHS, Allocations, Watched, watched_epochs
from support.covering import FEW_OR_EVERY
from support.edge_files import write_edges
from support.lone import LoneCommunicator
from support.mpi import run_program
from support.problems import problem

#: One number for each of these already takes more than a small tensor may, on one rank or on each of two.
NUM_VERTICES, NUM_VERTICES_OF_TWO = 17_000, 34_000
#: With ``summa``, blocks of the adjacency arrive in every epoch, and two lists with a number for each of their rows are
#: made anew for the kernel.
ARRIVING = {"columns", "bf16-columns"}
#: Columns of several labels per vertex, and of numbers to predict.
NUM_LABELS = 8

ONE_RANK: dict[str, dict[str, Any]] = {
    "p2p": {"dropout": 0.3, "weight_decay": 1e-3},
    "broadcast": {"algorithm": "broadcast"},
    "summa": {"algorithm": "summa"},
    "tensor3d": {"algorithm": "tensor3d"},
    "transform-first": {"product_order": "transform-first", "cache_input_product": False},
    "recomputed": {"recompute": True, "dropout": 0.3, "input_dropout": False, "hidden": (8, 16)},
    "bf16": {"precision": "bf16", "dropout": 0.3},
    "bf16-summa": {"algorithm": "summa", "precision": "bf16"},
    "sage": {"model": "sage", "dropout": 0.3},
    "mlp": {"model": "mlp", "dropout": 0.3, "hidden": (8, 8, 8), "residual": True},
    "gin": {"model": "gin"},
    "residual": {"hidden": (8, 8, 8), "residual": True, "dropout": 0.3},
    "learned": {"embed": 8, "dropout": 0.3},
    "bf16-learned": {"embed": 8, "precision": "bf16", "algorithm": "summa"},
    "class-weights": {"class_weights": "balanced", "optimizer": "sgd"},
    "batch-norm": {"norm": "batch", "dropout": 0.3},
    "bf16-batch-norm": {"norm": "batch", "precision": "bf16"},
    "layer-norm": {"norm": "layer", "algorithm": "summa"},
    "unit-rows": {"unit_embedding": True, "norm": "layer", "model": "sage"},
    "gat": {"model": "gat", "dropout": 0.3},
    "bf16-gat": {"model": "gat", "precision": "bf16", "norm": "layer"},
    "residual-gat": {"model": "gat", "hidden": (8, 8, 8), "residual": True, "bias": False},
    "gatv2": {"model": "gat", "attention": "v2", "dropout": 0.3},
    "bf16-gatv2": {"model": "gat", "attention": "v2", "precision": "bf16", "hidden": (8, 8, 8), "residual": True},
    "labels": {"dataset": "labels"},
    "bf16-labels": {"dataset": "labels", "precision": "bf16", "model": "gat"},
    "weighted-labels": {"dataset": "labels", "class_weights": "balanced"},
    "targets": {"dataset": "targets"},
    "bf16-targets": {"dataset": "targets", "precision": "bf16", "norm": "batch"},
}
TWO_RANKS: dict[str, dict[str, Any]] = {
    "p2p": {"dropout": 0.3, "norm": "batch"},
    "bf16": {"precision": "bf16", "norm": "layer"},
    "sage": {"model": "sage"},
    "gin": {"model": "gin"},
    "gat": {"model": "gat", "dropout": 0.3},
    "bf16-gat": {"model": "gat", "precision": "bf16", "hidden": (8, 8, 8), "residual": True},
    "gatv2": {"model": "gat", "attention": "v2", "dropout": 0.3},
    "rows": {"algorithm": "summa", "grid": (2, 1), "norm": "batch"},
    "columns": {"algorithm": "summa", "grid": (1, 2), "norm": "layer", "dropout": 0.3},
    "bf16-columns": {"algorithm": "summa", "grid": (1, 2), "precision": "bf16"},
    "tensor3d": {"algorithm": "tensor3d", "grid": (1, 1, 2), "model": "sage", "norm": "batch"},
}
#: Cases that, together, have every algorithm, model, precision, norm and kind of labels of all cases.
FEW_OF_ONE = (
    "p2p", "broadcast", "bf16-summa", "tensor3d", "transform-first", "recomputed", "gin", "unit-rows", "bf16-gat",
    "bf16-gatv2", "weighted-labels", "bf16-targets", "mlp",
)  # fmt: skip
FEW_OF_TWO = ("bf16-gat", "columns", "tensor3d")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("allocations")
    catalog = Catalog(folder / "catalog")
    for name, num_vertices, ranks in (("", NUM_VERTICES, 1), ("two-", NUM_VERTICES_OF_TWO, 2)):
        large = problem(f"{name}rows", num_vertices, 2 * num_vertices, symmetric=True)
        large.store(catalog, ranks)
        replace(large, name=f"{name}grid").store_grid(catalog, "double", grid=(2, 2))
    _store_columns(folder, catalog, "labels", "label", np.random.default_rng(1).integers(0, 2, _SHAPE))
    _store_columns(folder, catalog, "targets", "target", np.random.default_rng(2).standard_normal(_SHAPE))
    return catalog


_SHAPE = NUM_VERTICES, NUM_LABELS


def _store_columns(folder: Path, catalog: Catalog, name: str, kind: str, values: np.ndarray) -> None:
    """A dataset with several labels or targets per vertex, some of them unknown."""
    rng, cluster, dataset = np.random.default_rng(3), InProcessCluster(), catalog.create(name)
    values = np.where(rng.random(_SHAPE) < 0.1, np.nan, values).astype(np.float32)
    arrays = {"feature": rng.standard_normal((NUM_VERTICES, 5)).astype(np.float32), kind: values}
    arrays["split"] = rng.integers(0, 4, NUM_VERTICES).astype(np.uint8)
    files = {key: str(folder / f"{name}-{key}.npy") for key in arrays}
    for key, array in arrays.items():
        np.save(files[key], array)
    edges = rng.integers(0, NUM_VERTICES, (2, 2 * NUM_VERTICES))
    graph = ingest_graph(dataset, write_edges(folder / name, *edges, vertices=NUM_VERTICES), IngestOptions(), cluster)
    ingest_vertices(dataset, open_vertices("files", (), files), cluster)
    shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(1, "random"), cluster), cluster)


def _config(catalog: Catalog, case: str, options: dict[str, Any], ranks: int) -> TrainConfig:
    name = "rows" if options.get("algorithm", "p2p") == "p2p" else "grid"
    fixed: dict[str, Any] = {
        "dataset": name if ranks == 1 else f"two-{name}",
        "hidden": (8, 8),
        "heads": 2,
        "epochs": EPOCHS,
        "eval_every": 0,
        "threads": 1,
        "ranks": ranks,
        "run": case,
    }
    return TrainConfig.of(catalog=str(catalog.root), **{**fixed, **options})


def _check(case: str, watched: Watched) -> None:
    assert watched.found == [], case
    # No array with a number for each vertex.
    lists = 2 * NUM_VERTICES_OF_TWO * 8 if case in ARRIVING else 0
    assert watched.array_peak < NUM_VERTICES * 8 + lists, case
    assert len(set(watched.sizes[1:])) == 1, f"{case}: the workspace grows after the second epoch"
    assert watched.sizes[0] > NUM_VERTICES * 4 * np.dtype(np.float32).itemsize


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [*FEW_OF_ONE, *(pytest.param(case, marks=pytest.mark.long) for case in ONE_RANK if case not in FEW_OF_ONE)]
)
def test_an_epoch_allocates_nothing_large_after_the_first_and_no_more_than_planned(catalog: Catalog, case: str) -> None:
    config = _config(catalog, case, ONE_RANK[case], 1)
    planned = project_training(config).workspace_memory
    with watched_epochs() as watched:
        train(LoneCommunicator(), config)
    _check(case, watched)
    # Fewer pages than one number per vertex takes.
    assert watched.page_faults * mmap.PAGESIZE < NUM_VERTICES * 4
    assert planned == watched.sizes[-1]


@pytest.mark.slow
@pytest.mark.parametrize("every", FEW_OR_EVERY)
def test_two_ranks_allocate_nothing_large_after_the_first_epoch_and_no_more_than_planned(
    catalog: Catalog, tmp_path: Path, every: bool
) -> None:
    cases = list(TWO_RANKS) if every else FEW_OF_TWO
    configs = [_config(catalog, case, TWO_RANKS[case], 2) for case in cases]
    # Runs of the few cases may be there already.
    configs = [config.with_options(run=f"{config.run.name}-of-{len(cases)}") for config in configs]
    everyones = run_program(2, "watched", tmp_path, [config.to_json() for config in configs])
    for case, config, *each in zip(cases, configs, *everyones, strict=True):
        found = [Watched(**content) for content in each]
        for watched in found:
            _check(case, watched)
        plan = project_training(config)
        # The workspace of a plan is that of the rank that needs the most memory in all.
        taken = found[plan.peak_memory.index(max(plan.peak_memory))].sizes[-1]
        # How many nonzeros arrive is estimated, as the rehearsal reads none.
        assert plan.workspace_memory == (pytest.approx(taken, rel=0.01) if case in ARRIVING else taken), case


def test_the_watch_sees_what_torch_allocates() -> None:
    place = Place()
    given = place.zeros((SMALL,), torch.float32)
    with Allocations(place.workspace) as allocations:
        torch.relu(given)
        torch.mul(given, 2, out=place.like(given))
        given.view(2, -1).add_(1)
    assert len(allocations.found) == 1
    assert "relu" in allocations.found[0]
