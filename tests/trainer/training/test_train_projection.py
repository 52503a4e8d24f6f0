"""The memory and the bytes that a training is projected to take are near those that it takes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.format import open_vertices
from gnnloom.pipeline.sources.generators.rmat import RmatEdges
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset, Graph
from gnnloom.storage.artifacts.links import CLASS, NUMBER, Links
from gnnloom.storage.disk.files import tree_bytes
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch
from gnnloom.trainer.kernels.dispatch import Unperformed
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.modes.epochs.mode import Mode
from gnnloom.trainer.modes.epochs.neighbor import NeighborMode
from gnnloom.trainer.modes.epochs.prepared import PreparedMode
from gnnloom.trainer.place.threads import num_block_buffers
from gnnloom.trainer.training.rehearsal.projection import TrainProjection, project_training
from support.covering import few_of
from support.edge_files import write_edges
from support.links import store_links
from support.mpi import MPI_PYTHON, TESTS
from support.pair_problems import store_pair_links, store_pairs
from support.partitions import store_partition
from support.problems import problem
from support.projections import parts_of

#: A decoder as a user writes it.
OWN_DECODER = "support.own_decoder:Between"
CASES: dict[str, dict[str, Any]] = {
    "gcn": {"hidden": (96, 32), "precision": "float64"},
    "directed": {"dataset": "directed", "hidden": (64, 64, 64), "norm": "batch", "dropout": 0.3},
    "sage": {"model": "sage", "hidden": (96,), "save_embeddings": True},
    "cover": {"dataset": "directed", "hidden": (64, 64), "exchange": "cover"},
    "gat": {"model": "gat", "hidden": (32, 32), "heads": 2},
    "gatv2": {"model": "gat", "attention": "v2", "hidden": (32, 32), "heads": 2},
    "summa": {"algorithm": "summa", "grid": (2, 1), "hidden": (100, 50)},
    "tensor3d": {"algorithm": "tensor3d", "grid": (1, 1, 2), "hidden": (64, 128), "model": "sage"},
    "columns": {"algorithm": "tensor3d", "grid": (1, 2, 1), "hidden": (64, 128)},
    # The second checkpoint waits for the first, so that both are kept, and only one copy is in memory.
    "learned": {"embed": 96, "hidden": (64,), "checkpoint_every": 1},
    "learned-columns": {
        "algorithm": "tensor3d",
        "grid": (1, 2, 1),
        "hidden": (64, 128),
        "embed": 96,
        "checkpoint_every": 1,
    },
}


@pytest.fixture(autouse=True)
def ranks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the ranks anew: what a forked one shares with the process that it comes from is not measured as its own."""
    monkeypatch.setattr("gnnloom.trainer.job.launch.rank_python", lambda: [*MPI_PYTHON])
    # Their own decoder and models are here.
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog, cluster = Catalog(tmp_path_factory.mktemp("projected") / "catalog"), InProcessCluster()
    model = StochasticBlockModel(num_vertices=150_000, num_edges=900_000, num_blocks=12, num_features=48, seed=2)
    for name, undirected in (("web", True), ("directed", False)):
        dataset = catalog.create(name)
        graph = ingest_graph(dataset, model.edges(), IngestOptions(undirected=undirected), cluster)
        ingest_vertices(dataset, model.vertices(), cluster)
        shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(2, "random"), cluster), cluster)
        if undirected:
            shard_grid(dataset, graph, GridOptions((4, 4), "double"), cluster)
    return catalog


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A graph with row shards for two ranks, of which the first holds more, and with grid shards."""
    catalog = Catalog(tmp_path_factory.mktemp("small") / "catalog")
    uneven = problem("web", 2000, 10_000, symmetric=True, gathered=True)
    uneven.store_grid(catalog, "double", grid=(4, 4))
    uneven.store(catalog, 2)
    return catalog


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_memory_and_bytes_are_near_the_measured_ones(catalog: Catalog, case: str) -> None:
    options = {"dataset": "web", "ranks": 2, "epochs": 2, "threads": 1, **CASES[case]}
    config = TrainConfig.of(catalog=str(catalog.root), run=case, **options)
    planned = project_training(config)
    measured = launch(config)
    assert (planned.seconds, planned.grid) == (None, measured["grid"])
    for expected, found in zip(planned.peak_memory, measured["peak_memory"], strict=True):
        assert found <= expected <= 1.1 * found, f"{case}: {expected / found:.3f}"
    assert planned.read_bytes == pytest.approx(max(measured["bytes_read"]), rel=0.25)
    # Besides the arrays there are small files: the configuration, the result, and metadata.
    written = tree_bytes(Run.open(catalog[config.data.dataset], case).path)
    assert planned.written_bytes < written * 2 + 50_000
    assert planned.written_bytes > written / 2 - 50_000
    known = project_training(TrainConfig.of(**{**config.to_json(), "epochs": 5}))
    assert (known.first_epoch, known.seconds_from) == (2, case)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A skewed graph in four parts of equal work, and so of few hubs or of many other vertices."""
    catalog, cluster = Catalog(tmp_path_factory.mktemp("uneven") / "catalog"), InProcessCluster()
    dataset = catalog.create("skewed")
    graph = ingest_graph(dataset, RmatEdges(17, 30), IngestOptions(undirected=True), cluster)
    ingest_vertices(dataset, open_vertices("random", (), {"dim": 100, "classes": 47}, graph), cluster)
    degree = graph.degree()
    order, part = np.argsort(-degree), np.empty(len(degree), np.int32)
    part[order] = 4 * (np.cumsum(degree[order]) - degree[order]) // degree.sum()
    shard_rows(dataset, store_partition(dataset, graph, part, 4), cluster)
    return catalog


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_ranks_of_uneven_parts_take_what_is_projected_for_each(uneven: Catalog, precision: str) -> None:
    config = TrainConfig.of(
        catalog=str(uneven.root), dataset="skewed", ranks=4, hidden=(128, 128), epochs=2, threads=1,
        precision=precision, run=precision,
    )  # fmt: skip
    planned, measured = project_training(config), launch(config)["peak_memory"]
    assert max(measured) > 1.15 * min(measured)
    for expected, found in zip(planned.peak_memory, measured, strict=True):
        assert found <= expected <= 1.1 * found, f"{expected / found:.3f}"


#: What a batch of sampled neighbors has.
DRAWN: dict[str, Any] = {"batch_size": 4096, "fanout": (10, 10, 5)}
SAMPLED: dict[str, dict[str, Any]] = {
    "subgraph": {"mode": "subgraph", "sampler": "edge", "batch_size": 30_000, "batches": 4},
    "frontier": {"mode": "subgraph", "sampler": "frontier", "batch_size": 30_000, "batches": 4},
    "vertex": {"mode": "subgraph", "sampler": "vertex", "batch_size": 60_000, "batches": 4},
    "walk": {"mode": "subgraph", "sampler": "walk", "batch_size": 30_000, "batches": 4},
    "cluster": {"mode": "subgraph", "sampler": "cluster", "cluster_parts": 10, "parts_per_batch": 3},
    "minibatch": {"mode": "minibatch", "batch_size": 40_000},
    "neighbor": {"mode": "neighbor", "model": "sage", **DRAWN},
    "samples": {"mode": "neighbor", "model": "sage", "samples": ""},
    "rows": {"mode": "rows", "model": "mlp", "steps": (0,), "batch_size": 20_000, "hidden": (256, 256)},
    # Batches are small, so that the evaluation decides.
    "from-disk": {"mode": "neighbor", "model": "sage", "inputs": "disk", "batch_size": 256, "fanout": (4, 4, 4)},
    "in-blocks": {
        "mode": "neighbor",
        "model": "sage",
        "inputs": "disk",
        "batch_size": 256,
        "fanout": (4, 4, 4),
        "evaluation_memory": 80 << 20,
    },
    # Layers of attention, and of a module that takes edges, over all neighbors.
    "layers-from-disk": {"mode": "neighbor", "model": "gat", "inputs": "disk", "batch_size": 256, "fanout": (4, 4, 4)},
    "learned-edge": {"mode": "subgraph", "sampler": "edge", "batch_size": 30_000, "batches": 4, "embed": 96},
    "learned-minibatch": {"mode": "minibatch", "batch_size": 40_000, "embed": 96},
    "learned-neighbor": {"mode": "neighbor", "model": "sage", "embed": 96, **DRAWN},
    "pyg-sage": {"mode": "neighbor", "model": "torch_geometric.nn:GraphSAGE", **DRAWN},
    "pyg-gcn": {"mode": "neighbor", "model": "torch_geometric.nn:GCN", **DRAWN},
    "pyg-gat": {"mode": "neighbor", "model": "torch_geometric.nn:GAT", **DRAWN},
    "pyg-gat-subgraph": {
        "mode": "subgraph",
        "model": "torch_geometric.nn:GAT",
        "sampler": "vertex",
        "batch_size": 30_000,
    },
    # Its evaluation would take minutes: every batch has almost the whole graph around it.
    "edges-read": {"mode": "neighbor", "model": "support.edge_modules:Listed", "final_eval": False, **DRAWN},
}


@pytest.fixture(scope="module")
def drawn(catalog: Catalog) -> Catalog:
    """The same graphs, with clusters and samples on disk."""
    dataset, cluster = catalog["web"], InProcessCluster()
    write_samples(dataset, dataset.graph(), dataset.partition(2), SampleOptions(**DRAWN, epochs=2, ranks=2), cluster)
    partition_graph(dataset, dataset.graph(), PartitionOptions(10, "random"), cluster)
    return catalog


@pytest.mark.long
@pytest.mark.parametrize("case", SAMPLED)
def test_memory_of_sampled_modes_is_near_the_measured_one(
    drawn: Catalog, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"dataset": "web", "ranks": 2, "epochs": 2, "threads": 1, "hidden": (64, 64), **SAMPLED[case]}
    if case.startswith("pyg"):
        pytest.importorskip("torch_geometric")
    else:
        # A plan assumes that ranks load PyG if this process has.
        monkeypatch.delitem(sys.modules, "torch_geometric", raising=False)
    if "samples" in options:
        options["samples"] = drawn["web"].find("samples").key
    config = TrainConfig.of(catalog=str(drawn.root), run=f"sampled-{case}", **options)
    planned = project_training(config)
    assert planned.batch_memory > 0
    for expected, found in zip(planned.peak_memory, launch(config)["peak_memory"], strict=True):
        # Measured memory includes the mapped pages that were touched, which the system would take back.
        assert found - planned.mapped_bytes <= expected <= 1.1 * found, f"{case}: {expected / found:.3f}"


#: Tasks on pairs: an epoch in ten steps, each without the edges of its pairs, or in one step, or in batches.
ON_PAIRS: dict[str, dict[str, Any]] = {
    "alone": {"ranks": 1},
    "two": {},
    "not-excluding": {"exclude_targets": False},
    "perceptron": {"decoder": "mlp"},
    "weighted": {"decoder": "distmult"},
    "negatives": {"negatives": 5},
    "joint": {"negative_sampler": "joint"},
    "large-steps": {"link_batch": 300_000},
    "neighbor": {"mode": "neighbor", "model": "sage", "fanout": (10, 5), "link_batch": 4096},
    "classes": {"task": "edge-class"},
    "numbers": {"task": "edge-number"},
    "weighted-classes": {"task": "edge-class", "decoder": "distmult"},
    "filtered": {"filtered_ranks": True},
    "filtered-perceptron": {"filtered_ranks": True, "decoder": "mlp"},
    "filtered-neighbor": {"filtered_ranks": True, "mode": "neighbor", "model": "sage", "fanout": (10, 5)},
    "learned-neighbor": {"mode": "neighbor", "model": "sage", "fanout": (10, 5), "embed": 96},
    "own-decoder": {"decoder": OWN_DECODER},
    "neighbor-classes": {"mode": "neighbor", "model": "sage", "fanout": (10, 5), "task": "edge-class"},
    "neighbor-numbers": {"mode": "neighbor", "model": "sage", "fanout": (10, 5), "task": "edge-number"},
    "summa": {"algorithm": "summa", "grid": (2, 1)},
    "planes": {"algorithm": "tensor3d", "grid": (1, 1, 2)},
    "columns": {"algorithm": "tensor3d", "grid": (1, 2, 1)},
}


@pytest.mark.long
@pytest.mark.parametrize("case", ON_PAIRS)
def test_memory_of_tasks_on_pairs_is_near_the_measured_one(catalog: Catalog, case: str) -> None:
    dataset, cluster = catalog["web"], InProcessCluster()
    options = {"task": "link", "ranks": 2, "epochs": 2, "threads": 1, "hidden": (96,), **ON_PAIRS[case]}
    # Ranks among all vertices take long.
    drawn = DrawOptions(valid=0.0005, test=0.0002) if "filtered_ranks" in options else DrawOptions()
    links = draw_links(dataset, dataset.graph(dataset.ingested_graphs()[0].key), drawn, cluster)
    graph = dataset.graph(links.message_graph)
    if "grid" in options:
        options["shards"] = shard_grid(dataset, graph, GridOptions((4, 4), "double"), cluster).artifact.key
    else:
        partition = partition_graph(dataset, graph, PartitionOptions(options["ranks"], "random"), cluster)
        options["shards"] = shard_rows(dataset, partition, cluster).artifact.key
    if options["task"] != "link":
        links = with_values(dataset, links, graph, options["task"], list(ON_PAIRS).index(case))
    options["links"] = links.artifact.key
    config = TrainConfig.of(catalog=str(catalog.root), dataset="web", run=f"pairs-{case}", **options)
    planned, measured = project_training(config), launch(config)["peak_memory"]
    for expected, found in zip(planned.peak_memory, measured, strict=True):
        # Batches are drawn from a mapped graph, as in sampled modes of other tasks.
        assert found - planned.mapped_bytes <= expected <= 1.1 * found, f"{case}: {expected / found:.3f}"


def with_values(dataset: Dataset, links: Links, graph: Graph, task: str, number: int) -> Links:
    """The same pairs with a class or a number each; the key depends on their order, and so on the number."""
    rng, kind = np.random.default_rng(6), {"edge-class": CLASS, "edge-number": NUMBER}[task]
    arrays: dict[str, NDArray[Any]] = {}
    for split, count in links.num_pairs.items():
        arrays[f"{split}/pair"] = np.roll(links.pair(split), number, axis=0)
        is_class = kind == CLASS
        arrays[f"{split}/value"] = (
            rng.integers(0, 5, count) if is_class else rng.standard_normal(count).astype(np.float32)
        )
    facts: dict[str, Any] = {"kind": kind, "num_classes": 5 if kind == CLASS else 0, "held_out_entries": 0}
    return store_links(dataset, graph, arrays, **facts, edges={"train/pair": links.num_pairs["train"]})


class Paired(NamedTuple):
    """A graph with row shards for two ranks and grid shards, and the keys of its links by their kind."""

    catalog: Catalog
    links: dict[str, str]


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory) -> Paired:
    catalog = Catalog(tmp_path_factory.mktemp("paired") / "catalog")
    given = problem("web", 6000, 40_000, symmetric=True)
    dataset, links = store_pairs(catalog, given, 2, grid=(2, 2))
    of_kinds = {kind: store_pair_links(dataset, given, kind).artifact.key for kind in (CLASS, NUMBER)}
    return Paired(catalog, {"pair": links.artifact.key, **of_kinds})


@pytest.mark.slow
def test_more_pairs_in_a_step_and_their_exclusion_need_more(paired: Paired) -> None:
    catalog = paired.catalog
    fixed: dict[str, Any] = {"task": "link", "links": paired.links["pair"], "link_batch": 20_000, "negatives": 4}
    projected = project(catalog, **fixed)
    usual = projected.peak_memory[0]
    for less in ({"link_batch": 1000}, {"exclude_targets": False}, {"output_dim": 16}):
        assert project(catalog, **{**fixed, **less}).peak_memory[0] < usual, less
    assert project(catalog, **fixed, decoder="mlp").peak_memory[0] > projected.process_memory
    batches = {**fixed, "mode": "neighbor", "model": "sage", "fanout": (5, 5, 5), "link_batch": 100, "negatives": 1}
    usual, *others = (
        project(catalog, **{**batches, **more}).batch_memory
        for more in ({}, {"link_batch": 1000}, {"negatives": 9}, {"negatives": 9, "negative_sampler": "joint"})
    )
    # Joint negatives are few vertices for many pairs.
    assert others[2] < usual < others[1]
    assert usual < others[0]


@pytest.mark.slow
def test_ranks_among_all_vertices_decoders_of_users_and_exclusion_on_grids_are_in_the_plan(paired: Paired) -> None:
    fixed: dict[str, Any] = {"task": "link", "links": paired.links["pair"], "link_batch": 1000}
    own, among_all = {"decoder": OWN_DECODER}, {"filtered_ranks": True}
    grid = {"algorithm": "summa", "grid": (2, 1), "permutation": "double"}
    of_steps = {"exclude_targets": False}
    for more, less in (
        (among_all, {}),
        ({**among_all, **own}, own),
        ({**among_all, "mode": "neighbor", "model": "sage", "fanout": (2, 2, 2)}, {}),
        ({**grid, "link_batch": 20_000}, {**grid, **of_steps, "link_batch": 20_000}),
    ):
        found, usual = (project(paired.catalog, **{**fixed, **each}) for each in (more, less))
        for each in (found, usual):
            assert max(each.peak_memory) == each.process_memory + sum(parts_of(each)), more
        assert max(found.peak_memory) > max(usual.peak_memory), more


def test_batches_of_pairs_with_classes_and_numbers_are_in_the_plan(paired: Paired) -> None:
    for kind, task in ((CLASS, "edge-class"), (NUMBER, "edge-number")):
        given: dict[str, Any] = {"mode": "neighbor", "model": "sage", "task": task, "fanout": (5, 5, 5)}
        few, many = (
            project(paired.catalog, **given, links=paired.links[kind], link_batch=size) for size in (100, 1000)
        )
        assert few.batch_memory < many.batch_memory
        for each in (few, many):
            assert max(each.peak_memory) == each.process_memory + sum(parts_of(each))


def project(catalog: Catalog, rehearsed: int = 1, **options: Any) -> TrainProjection:
    """Project a training; of the ranks of row shards, only so many are rehearsed, those with most rows first."""
    fixed: dict[str, Any] = {"dataset": "web", "ranks": 2, "hidden": (64, 64)}
    with patch("gnnloom.trainer.training.rehearsal.projection._MOST_RANKS", rehearsed):
        return project_training(TrainConfig.of(catalog=str(catalog.root), **{**fixed, **options}))


def test_ranks_that_hold_more_are_projected_to_take_more(small: Catalog) -> None:
    found = project(small, rehearsed=2)
    assert len(found.peak_memory) == 2
    assert found.peak_memory[0] > found.peak_memory[1] > found.process_memory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "model"), few_of([name for name in ALGORITHMS if name != "p2p"], ("gcn", "sage"), together=1)
)
def test_more_ranks_need_less_memory_each(small: Catalog, algorithm: str, model: str) -> None:
    num_axes = len(ALGORITHMS[algorithm].axes)
    found = [project(small, algorithm=algorithm, ranks=each**num_axes, model=model) for each in (1, 2, 3)]
    assert [len(each.peak_memory) for each in found] == [each**num_axes for each in (1, 2, 3)]
    totals = [each.peak_memory[0] for each in found]
    assert totals[0] > totals[1] > totals[2] > found[0].process_memory


#: Models whose memory is forecast by default: without attention, with it, and without the adjacency.
FEW_MODELS = ("gcn", "gat", "mlp")


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(name, marks=() if name in FEW_MODELS else pytest.mark.long)
        for name, kind in MODELS.items()
        if not kind.takes_steps
    ],
)
def test_wider_layers_and_trained_features_need_more(small: Catalog, model: str) -> None:
    usual = project(small, model=model)
    # Five features of a thousand vertices take less than the workspace of a model: only their checkpoints show.
    assert project(small, model=model, train_features=True).written_bytes > usual.written_bytes + 3 * 2000 * 4
    for more in ({"hidden": (128, 128)}, {"precision": "float64"}):
        assert project(small, model=model, **more).peak_memory[0] > usual.peak_memory[0]
    assert project(small, model=model, dropout=0.5).workspace_memory >= usual.workspace_memory
    # Attention widens the rows that it reads; of a perceptron, so few rows are widened all at once.
    if model not in {"gat", "mlp"}:
        assert project(small, model=model, precision="bf16").workspace_memory < usual.workspace_memory


@pytest.mark.slow
def test_larger_batches_and_more_of_them_need_more(small: Catalog) -> None:
    changes: dict[str, list[dict[str, Any]]] = {
        "subgraph": [{"batch_size": 1900}, {"pool": 40}, {"sampler_threads": 9}],
        "minibatch": [{"batch_size": 1900}, {"pool": 40}],
        "neighbor": [{"batch_size": 150}, {"fanout": (30, 30, 30)}, {"pool": 40}, {"cache_memory": 0}],
    }
    for mode, changed in changes.items():
        usual = project(small, mode=mode, batch_size=50)
        for each in changed:
            found = project(small, **{"mode": mode, "batch_size": 50, **each}).batch_memory
            assert found < usual.batch_memory if "cache_memory" in each else found > usual.batch_memory, (mode, each)
        assert (usual.mapped_bytes > 0) == (mode != "minibatch")
    assert project(small).batch_memory == project(small).mapped_bytes == 0


@pytest.mark.parametrize("model", ["gat", "support.edge_modules:Sums"])
def test_an_evaluation_over_all_neighbors_from_disk_is_in_the_plan(small: Catalog, model: str) -> None:
    drawn: dict[str, Any] = {"mode": "neighbor", "inputs": "disk", "model": model, "batch_size": 2, "fanout": (1, 1, 1)}
    drawn["eval_every"] = 0
    with_it, without = (max(project(small, **drawn, final_eval=each).peak_memory) for each in (True, False))
    # All rows of a rank fit in one range, with their neighbors: each has a row of 64 hidden features.
    assert with_it > without + 1000 * 64 * 4


def test_rows_need_memory_for_their_batches_and_none_for_the_adjacency(small: Catalog) -> None:
    fixed: dict[str, Any] = {"mode": "rows", "model": "mlp", "steps": (0,), "batch_size": 50}
    usual, whole = project(small, **fixed), project(small)
    for more in ({"batch_size": 1900}, {"pool": 40}):
        assert project(small, **{**fixed, **more}).batch_memory > usual.batch_memory
    assert usual.mapped_bytes > 0
    # What is left are the ids of the vertices: no columns and values of entries.
    shards = small["web"].row_shards(2).artifact
    nonzeros = sum(shards.record(f"row/00000/{side}/indices").shape[0] for side in ("own", "halo"))
    for found in (usual, project(small, model="mlp")):
        assert found.adjacency_memory < whole.adjacency_memory - 4 * nonzeros


@pytest.mark.parametrize(
    ("mode", "kind", "step"),
    [
        ({"mode": "neighbor", "fanout": (2, 2, 2)}, NeighborMode, "_step"),
        ({"mode": "subgraph", "sampler": "vertex"}, PreparedMode, "_train_batch"),
        ({"mode": "minibatch"}, PreparedMode, "_train_batch"),
        ({"mode": "rows", "model": "mlp", "steps": (0,)}, PreparedMode, "_train_batch"),
    ],
    ids=("neighbor", "subgraph", "minibatch", "rows"),
)
def test_a_plan_takes_the_steps_of_the_mode(
    small: Catalog, mode: dict[str, Any], kind: type[Mode], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed: dict[str, Any] = {"batch_size": 50, "final_eval": False, "eval_every": 0, **mode}
    usual, own, kept = project(small, **fixed), getattr(kind, step), 8 << 20

    def larger(*given: Any) -> Any:
        beside = np.empty(kept, np.uint8)
        return own(*given), len(beside)

    monkeypatch.setattr(kind, step, lambda *given: larger(*given)[0])
    assert project(small, **fixed).peak_memory[0] > usual.peak_memory[0] + kept // 2


@pytest.mark.slow
def test_no_more_batches_are_prepared_than_an_epoch_has(small: Catalog) -> None:
    drawn: dict[str, Any] = {"mode": "neighbor", "batch_size": 100, "sampler_threads": 2}
    few, many = (project(small, **drawn, pool=pool).batch_memory for pool in (10, 1000))
    assert project(small, **drawn, pool=1).batch_memory < few == many
    # Batches of subgraphs follow each other over the epochs.
    drawn["mode"] = "subgraph"
    few, many = (project(small, **drawn, pool=pool).batch_memory for pool in (10, 1000))
    assert few < many


def test_buffers_of_rows_on_disk_are_there_from_the_first_evaluation_on(small: Catalog) -> None:
    # The batches have all vertices, so a step needs more than an evaluation.
    drawn: dict[str, Any] = {"mode": "neighbor", "batch_size": 2000, "fanout": (10, 10, 10), "epochs": 3}
    between, at_the_end = (project(small, **drawn, eval_every=every) for every in (1, 0))
    assert between.workspace_memory == at_the_end.workspace_memory
    shards = small["web"].row_shards(2).artifact
    nonzeros = sum(shards.record(f"row/00000/{side}/indices").shape[0] for side in ("own", "halo"))
    buffers = between.feature_memory - at_the_end.feature_memory
    # Blocks of column ids, each with all of a small matrix.
    assert buffers == pytest.approx(num_block_buffers(1) * 4 * nonzeros, rel=0.1)


@pytest.mark.parametrize("options", [{"model": "gat"}, {"mode": "neighbor", "batch_size": 100}])
def test_a_plan_has_the_same_bytes_whatever_this_process_has_loaded(small: Catalog, options: dict[str, Any]) -> None:
    assert project(small, **options) == project(small, **options)


#: Runs with loops over rows, of which a forecast takes the first turn: products, sums of columns, losses, passes.
LOOPS: dict[str, dict[str, Any]] = {
    "half": {"precision": "bf16", "recompute": True, "hidden": (256, 256), "inputs": "disk"},
    "kept-of-features-too": {"precision": "bf16", "model": "sage", "hidden": (256,), "dropout": 0.3},
    "narrow": {"hidden": (8, 8), "norm": "batch"},
    "attention": {"precision": "bf16", "model": "gat", "hidden": (64, 64)},
    "elements": {"precision": "bf16", "model": "sage", "task": "multilabel"},
}


def _counting(seen: list[int], usual: Any) -> Any:
    def dispatch(*given: Any) -> Any:
        seen.append(1)
        return usual(*given)

    return dispatch


@pytest.mark.slow
def test_a_forecast_of_more_rows_takes_no_longer(tmp_path: Path) -> None:
    """If the loops ran for all rows, the forecast of a hundred million rows would take half an hour."""
    operations, cluster = dict[str, list[int]](), InProcessCluster()
    for num_rows in (40_000, 160_000):
        catalog, rng = Catalog(tmp_path / str(num_rows)), np.random.default_rng(0)
        arrays: dict[str, NDArray[Any]] = {
            "feature": rng.random((num_rows, 16), np.float32),
            "label": rng.integers(0, 2, (num_rows, 5)),
            "split": rng.integers(0, 4, num_rows).astype(np.uint8),
        }
        files = {name: str(tmp_path / f"{name}.npy") for name in arrays}
        for name, array in arrays.items():
            np.save(files[name], array)
        edges = write_edges(tmp_path / "edges", *rng.integers(0, num_rows, (2, num_rows)), vertices=num_rows)
        for name, label in (("class", arrays["label"][:, 0]), ("multilabel", arrays["label"])):
            np.save(files["label"], label)
            dataset = catalog.create(name)
            graph = ingest_graph(dataset, edges, IngestOptions(undirected=True), cluster)
            ingest_vertices(dataset, open_vertices("files", (), files), cluster)
            shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(1, "block"), cluster), cluster)
        for case, options in LOOPS.items():
            given = {"dataset": options.get("task", "class"), "run": "plan", "threads": 1, **options}
            seen = list[int]()
            with patch.object(Unperformed, "__torch_dispatch__", _counting(seen, Unperformed.__torch_dispatch__)):
                project_training(TrainConfig.of(catalog=str(catalog.root), **given))
            operations.setdefault(case, []).append(len(seen))
    for case, (few, many) in operations.items():
        # Some operations on few numbers depend on how many there are.
        assert 0 < many < 1.1 * few, case
