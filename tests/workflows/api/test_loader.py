"""The loader gives the batches of a training, in any process; with all neighbors, PyG's layers see the whole graph."""

from __future__ import annotations

import copy
import importlib
import shutil
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import gnnloom
from gnnloom.pipeline.samples.options import SampleOptions
from gnnloom.pipeline.samples.stage import write_samples
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.disk.row_buffers import RowBuffers
from gnnloom.storage.disk.row_windows import RowWindow, RowWindows
from gnnloom.storage.errors import GnnloomError, InputError, MissingPackageError, NotFoundError
from gnnloom.storage.format.mapped_copy import copies
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.links.choices import NEGATIVE_SAMPLERS
from gnnloom.trainer.loader.epochs import EpochCounter
from gnnloom.trainer.loader.loader import Loader
from gnnloom.trainer.modes.epochs.neighbor import NeighborMode
from gnnloom.trainer.modes.epochs.subgraph import SubgraphMode
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.state.checkpoint import module_state
from support.covering import few_of
from support.lone import LoneCommunicator
from support.lone_training import lone_session
from support.pair_problems import NUM_CLASSES, edges_of, pair_config, store_pair_links, store_pairs
from support.problems import problem
from support.sampled import sampled_config, store_for_sampling
from support.tolerance import assert_close

N, SEED = 120, 3
PROBLEMS = {
    given.name: given
    for given in (
        problem("directed", N, 500, symmetric=False),
        problem("undirected", N, 400, symmetric=True),
        problem("weighted", N, 500, symmetric=False, weighted=True),
    )
}
SAMPLED: dict[str, Any] = {"fanout": (3, 2), "batch_size": 8, "seed": SEED}


@pytest.fixture(autouse=True, scope="module")
def _pyg() -> None:
    # Not while tests are collected, which every process does: it takes seconds.
    pytest.importorskip("torch_geometric.nn")


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    made = Catalog(tmp_path_factory.mktemp("loader"))
    for given in PROBLEMS.values():
        store_for_sampling(made, given, 1)
    for name, kind in (("pairs", "pair"), ("classes", "class")):
        store_pairs(made, problem(name, N, 500, symmetric=name == "pairs"), 1, kind=kind)
    return made


def load(*given: Any, **options: Any) -> Any:
    """The loader, untyped: tests know what a batch has."""
    return gnnloom.loader(*given, **options)


def contents(batches: Iterable[Any]) -> list[dict[str, Any]]:
    """All that batches have, as lists."""
    return [
        {name: value.tolist() if torch.is_tensor(value) else value for name, value in batch.to_dict().items()}
        for batch in batches
    ]


def trained(catalog: Catalog, mode: type, name: str, run: str, kind: str, **options: Any) -> list[Any]:
    """What a training on one rank passes to a method of its mode, in order."""
    seen: list[Any] = []
    whole = getattr(mode, name)

    def recorded(self: Any, given: Any, *others: Any) -> Any:
        seen.append(given)
        return whole(self, given, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mode, name, recorded)
        train(LoneCommunicator(), sampled_config(catalog, run, kind, f"{kind}-{len(options)}", **options))
    return seen


@pytest.mark.parametrize("name", PROBLEMS)
def test_batches_are_those_of_training(catalog: Catalog, name: str) -> None:
    options = {**SAMPLED, "draw_once": True, "feature_norm": "none", "epochs": 2}
    steps = trained(catalog, NeighborMode, "_step", name, "neighbor", **options)
    given, loader = PROBLEMS[name], load(catalog.dataset(name), features="float64", **SAMPLED)
    found = [batch for _ in range(2) for batch in loader]
    assert len(found) == len(steps) == 2 * len(loader) > 4
    for batch, drawn in zip(found, steps, strict=True):
        matrix, vertices = drawn.rows.blocks[0], drawn.rows.vertices
        np.testing.assert_array_equal(batch.n_id, vertices)
        np.testing.assert_array_equal(batch.edge_index[0], matrix.indices)
        np.testing.assert_array_equal(
            batch.edge_index[1], np.repeat(np.arange(matrix.num_rows), np.diff(matrix.indptr))
        )
        assert batch.batch_size == drawn.rows.num_seeds
        np.testing.assert_array_equal(batch.x, given.feature[vertices])
        np.testing.assert_array_equal(batch.y, given.label[vertices])
        np.testing.assert_array_equal(batch.y[: batch.batch_size], drawn.examples)
        if given.weighted:
            np.testing.assert_array_equal(batch.edge_weight, matrix.data)
        else:
            assert "edge_weight" not in batch


def test_every_iteration_has_the_next_epoch_and_any_batch_can_be_asked_for(catalog: Catalog) -> None:
    loader = load("undirected", catalog=catalog, **SAMPLED)
    first, second = contents(loader), contents(loader)
    assert first != second
    assert (loader.epoch, len(first)) == (2, len(loader))
    loader.set_epoch(0)
    assert contents(loader) == first
    assert contents(loader) == second
    assert contents(load("undirected", catalog=catalog, epoch=1, **SAMPLED)) == second
    assert contents([loader.batch(1, epoch=0)]) == [first[1]]
    assert contents(load("undirected", catalog=catalog, workers=0, **SAMPLED)) == first
    assert contents(copy.deepcopy(load("undirected", catalog=catalog, **SAMPLED))) == first
    with pytest.raises(InputError, match="batch 99 of an epoch of"):
        loader.batch(99)


def test_an_iterator_that_is_never_used_takes_no_epoch(catalog: Catalog) -> None:
    loader = load("undirected", catalog=catalog, **SAMPLED)
    expected = contents(loader)
    loader.set_epoch(0)
    iter(loader)
    assert contents(loader) == expected
    assert loader.epoch == 1


def test_an_iteration_that_stops_early_uses_up_its_epoch_and_leaves_no_threads(catalog: Catalog) -> None:
    loader = load("undirected", catalog=catalog, **SAMPLED)
    second = contents(load("undirected", catalog=catalog, epoch=1, **SAMPLED))
    for _ in loader:
        break
    assert contents(loader) == second
    before = held()
    for _ in range(50):
        next(iter(loader))
    with pytest.raises(ZeroDivisionError):
        [1 / 0 for _ in loader]
    assert held() == before


@pytest.mark.parametrize("memory", [24_000, 1 << 20])
@pytest.mark.parametrize("name", ["undirected", "pairs"])
def test_windows_of_batches_give_the_same_batches(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, name: str, memory: int
) -> None:
    options = {**SAMPLED, "catalog": catalog, **({"links": True} if name == "pairs" else {})}
    expected = [contents(load(name, cache_memory=0, epoch=epoch, **options)) for epoch in range(2)]
    monkeypatch.setattr("gnnloom.trainer.feed.feature_view.fit_in_pages", lambda _: False)
    read, of_window = list[int](), RowWindows.read

    def counted(windows: RowWindows, rows: np.ndarray) -> RowWindow:
        read.append(len(rows))
        return of_window(windows, rows)

    monkeypatch.setattr(RowWindows, "read", counted)
    for threads in (0, 2):
        loader = load(name, workers=threads, cache_memory=memory, **options)
        assert [contents(loader) for _ in range(2)] == expected
        next(iter(loader))
        with pytest.raises(ZeroDivisionError):
            [1 / 0 for _ in loader]
        assert not [each for each in threading.enumerate() if each.name.startswith("sampler")]
    assert any(read)


def held() -> tuple[int, int]:
    """Threads and open files of this process."""
    return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))


def test_iterations_of_one_loader_that_take_turns_have_epochs_of_their_own(catalog: Catalog) -> None:
    loader = load("undirected", catalog=catalog, **SAMPLED)
    first, second = contents(loader), contents(loader)
    loader.set_epoch(0)
    both = list(zip(loader, loader, strict=True))
    assert contents(one for one, _ in both) == first
    assert contents(other for _, other in both) == second


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "vertices": ("weighted", {**SAMPLED, "shuffle": False}),
    "matrix": ("weighted", {**SAMPLED, "adj_t": True, "features": "float64"}),
    "weights": ("weighted", {**SAMPLED, "normalization": "symmetric", "features": "float64"}),
    "subgraphs": ("undirected", {"sampler": "edge", "batch_size": 30, "presamples": 20, "features": "float64"}),
    "pairs": ("pairs", {"links": True, "fanout": (2,), "batch_size": 16, "shuffle": False}),
    "classes": ("classes", {"links": True, "fanout": (2,), "batch_size": 16, "shuffle": False}),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_user_overwrites_in_a_batch_changes_no_other_batch_and_nothing_stored(
    catalog: Catalog, kind: str
) -> None:
    name, options = KINDS[kind]
    expected = [tensors(batch) for batch in load(name, catalog=catalog, workers=0, **options)]
    loader = load(name, catalog=catalog, **options)
    for _ in range(2):
        loader.set_epoch(0)
        for batch, wanted in zip(loader, expected, strict=True):
            found = tensors(batch)
            assert found.keys() == wanted.keys()
            assert all(torch.equal(found[key], wanted[key]) for key in wanted)
            for value in batch.to_dict().values():
                if torch.is_tensor(value):
                    for part in parts(value):
                        part.fill_(1)
    assert not [finding for finding in catalog.dataset(name).verify() if finding.is_damaged]


def parts(tensor: Tensor) -> list[Tensor]:
    """The dense tensors that a tensor consists of."""
    if tensor.layout == torch.sparse_csr:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor]


def tensors(batch: Any) -> dict[tuple[str, int], Tensor]:
    """Copies of all tensors of a batch."""
    return {
        (name, number): part.clone()
        for name, value in batch.to_dict().items()
        if torch.is_tensor(value)
        for number, part in enumerate(parts(value))
    }


def test_batches_outlive_their_loader_and_its_dataset(tmp_path: Path) -> None:
    made, given = Catalog(tmp_path), PROBLEMS["directed"]
    store_for_sampling(made, given, 1)
    loader = load("directed", catalog=made, **SAMPLED)
    expected = contents(loader)
    loader.set_epoch(0)
    iteration = iter(loader)
    kept = [next(iteration)]
    shutil.rmtree(tmp_path / "directed")
    kept += iteration
    del loader, iteration
    assert contents(kept) == expected


def test_the_batches_of_two_processes_are_together_those_of_one(catalog: Catalog) -> None:
    whole = contents(load("directed", catalog=catalog, **SAMPLED))
    shares = [contents(load("directed", catalog=catalog, rank=rank, size=2, **SAMPLED)) for rank in (0, 1)]
    assert shares == [whole[0::2], whole[1::2]]
    assert len(whole[-1]["y"]) > 0


def test_without_the_last_batch_all_processes_have_equally_many_whole_ones(catalog: Catalog) -> None:
    whole = contents(load("directed", catalog=catalog, **SAMPLED))
    assert whole[-1]["batch_size"] < 8
    for size in (1, 2, 3):
        options = {**SAMPLED, "size": size, "drop_last": True}
        loaders = [load("directed", catalog=catalog, rank=rank, **options) for rank in range(size)]
        kept = (len(whole) - 1) // size
        assert [len(loader) for loader in loaders] == [kept] * size
        assert all(batch.batch_size == 8 for loader in loaders for batch in loader)
    with pytest.raises(InputError, match="batches for 50 ranks"):
        load("directed", catalog=catalog, size=50, drop_last=True, **SAMPLED)


@pytest.mark.parametrize(
    ("start", "num_workers", "keeps"),
    [
        (None, 0, False),
        ("fork", 1, False),
        ("fork", 2, True),
        # Each of its processes imports torch.
        pytest.param("spawn", 2, True, marks=pytest.mark.long),
    ],
)
def test_workers_of_torch_give_the_batches_of_the_loader_alone(
    catalog: Catalog, start: str | None, num_workers: int, keeps: bool
) -> None:
    expected = contents(batch for loader in [load("directed", catalog=catalog, **SAMPLED)] for batch in loader)
    loader = load("directed", catalog=catalog, **SAMPLED)
    second = contents(load("directed", catalog=catalog, epoch=1, **SAMPLED))
    batches = DataLoader(
        loader, batch_size=None, num_workers=num_workers, multiprocessing_context=start, persistent_workers=keeps
    )
    assert len(batches) == len(loader)
    assert contents(batches) == expected
    # The process that iterates learns nothing of it, and still every iteration has its own epoch.
    assert contents(batches) == second
    loader.set_epoch(0)
    assert contents(batches) == expected
    assert loader.epoch == 1


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_of_torch_have_the_next_epoch_also_if_torch_is_seeded_alike(catalog: Catalog, num_workers: int) -> None:
    loader = load("directed", catalog=catalog, **SAMPLED)
    for epoch in range(3):
        torch.manual_seed(0)
        batches = DataLoader(loader, batch_size=None, num_workers=num_workers)
        assert contents(batches) == contents(load("directed", catalog=catalog, epoch=epoch, **SAMPLED))


def test_threads_never_claim_the_same_epoch() -> None:
    counter, interval = EpochCounter(0), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            claimed = list(threads.map(lambda _: counter.claim(), range(4000)))
    finally:
        sys.setswitchinterval(interval)
    assert sorted(claimed) == list(range(4000))


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", 2**63])
def test_what_is_no_epoch_is_refused(catalog: Catalog, epoch: Any) -> None:
    loader = load("directed", catalog=catalog, **SAMPLED)
    with pytest.raises(InputError, match="expected an integer from 0"):
        loader.set_epoch(epoch)
    with pytest.raises(InputError, match="expected an integer from 0"):
        loader.batch(0, epoch=epoch)
    with pytest.raises(InputError, match=r"batch 1\.5 of an epoch"):
        loader.batch(1.5)
    assert loader.epoch == 0


def test_features_stay_as_they_are_while_used_and_their_memory_is_used_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[RowBuffers]()

    class Noted(RowBuffers):
        def __init__(self, most: int | None = None) -> None:
            super().__init__(most)
            made.append(self)

    monkeypatch.setattr("gnnloom.trainer.loader.vertices.RowBuffers", Noted)
    loader = load("directed", catalog=catalog, workers=0, **SAMPLED)
    feature = torch.from_numpy(PROBLEMS["directed"].feature)
    kept = [batch for _ in range(3) for batch in loader]
    assert all(torch.equal(batch.x, feature[batch.n_id]) for batch in kept)
    (buffers,) = made
    unused = buffers._free
    assert unused.qsize() == 0
    # A view alone keeps the memory, too.
    views = [(batch.x[1:, :2], batch.n_id[1:]) for batch in kept]
    del kept
    for _ in loader:
        assert all(torch.equal(view, feature[vertices, :2]) for view, vertices in views)
    assert unused.qsize() == 1
    # As many as the loader keeps, and no more.
    del views
    assert unused.qsize() == loader.source.kept < len(loader) * 3


def test_types_and_scales_of_features(catalog: Catalog) -> None:
    feature = torch.from_numpy(PROBLEMS["directed"].feature)

    def first(**options: Any) -> Any:
        return load("directed", catalog=catalog, **SAMPLED, **options).batch(0)

    plain = first()
    assert plain.x.dtype == torch.float32
    assert plain.y.dtype == torch.int64
    assert torch.equal(first(features="bf16").x, feature[plain.n_id].to(torch.bfloat16))
    rows = feature[plain.n_id].double()
    assert_close(first(features="float64", feature_norm="row").x, rows / rows.abs().sum(1, keepdim=True))
    assert "x" not in first(features="none")
    assert first(features="none").num_nodes == len(plain.n_id)
    assert "y" not in first(labels=False)


def test_seeds_are_the_labeled_vertices_of_a_split_or_those_that_are_given(catalog: Catalog) -> None:
    given = PROBLEMS["directed"]

    def seeds(**options: Any) -> list[int]:
        options = {"fanout": 2, "batch_size": 7, **options}
        return [
            int(vertex)
            for batch in load("directed", catalog=catalog, **options)
            for vertex in batch.n_id[: batch.batch_size]
        ]

    training = np.flatnonzero(given.training).tolist()
    assert sorted(seeds()) == training
    assert seeds() != training
    assert seeds(shuffle=False) == training
    labeled = (given.split == 2) & (given.label >= 0)
    assert seeds(split="valid", shuffle=False) == np.flatnonzero(labeled).tolist()
    assert seeds(split="valid", shuffle=False, labels=False) == np.flatnonzero(given.split == 2).tolist()
    assert seeds(split="all", shuffle=False) == list(range(N))
    assert seeds(vertices=[9, 3, 77], shuffle=False) == [3, 9, 77]
    assert seeds(vertices=torch.tensor(given.split == 2), shuffle=False) == np.flatnonzero(given.split == 2).tolist()


def layers(kind: str, **options: Any) -> list[nn.Module]:
    """Two layers of PyG with PyG's defaults."""
    pyg = importlib.import_module("torch_geometric.nn")
    widths = [(5, 6), (6, 3)]
    match kind:
        case "gcn":
            return [pyg.GCNConv(*width, **options) for width in widths]
        case "sage":
            return [pyg.SAGEConv(*width) for width in widths]
        case "gat":
            return [pyg.GATConv(*width) for width in widths]
        case _:
            return [pyg.GINConv(nn.Linear(*width), train_eps=True) for width in widths]


def gradients(modules: list[nn.Module], loss: Tensor) -> list[Tensor]:
    parameters = [each for module in modules for each in module.parameters()]
    return list(torch.autograd.grad(loss, parameters))


def loss_of(modules: list[nn.Module], x: Tensor, y: Tensor, seeds: Tensor | slice, *edges: Tensor) -> Tensor:
    hidden = modules[1](modules[0](x, *edges).relu(), *edges)
    return torch.nn.functional.cross_entropy(hidden[seeds], y[seeds], reduction="sum")


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(
    ("kind", "hops", "normalization"),
    [("gcn", 2, "symmetric"), ("gcn", 3, "stored"), ("sage", 2, "stored"), ("gat", 2, "stored"), ("gin", 2, "stored")],
)
def test_with_all_neighbors_loss_and_gradients_are_those_on_the_whole_graph(
    catalog: Catalog, name: str, kind: str, hops: int, normalization: str
) -> None:
    """GCN scales by degrees: those of the whole graph, or with one more hop those of the batch, which are equal."""
    torch.manual_seed(1)
    given = PROBLEMS[name]
    modules = [module.double() for module in layers(kind)]
    matrix = given.adjacency.tocoo()
    edges = torch.from_numpy(np.stack([matrix.col, matrix.row]).astype(np.int64))
    weight = [torch.from_numpy(matrix.data)] if given.weighted and kind == "gcn" else []
    seeds = torch.from_numpy(np.flatnonzero(given.training))
    x, y = torch.from_numpy(given.feature).double(), torch.from_numpy(given.label)
    whole = loss_of(modules, x, y, seeds, edges, *weight)
    expected = gradients(modules, whole)
    options = {"fanout": (-1,) * hops, "features": "float64", "normalization": normalization, "batch_size": 8}
    sampled = modules
    if normalization == "symmetric":
        sampled = layers("gcn", normalize=False)
        for mine, theirs in zip(sampled, modules, strict=True):
            mine.double().load_state_dict(theirs.state_dict())
    total, sums = 0.0, [torch.zeros_like(each) for each in expected]
    for batch in load(name, catalog=catalog, **options):
        weights = [batch.edge_weight] if kind == "gcn" and "edge_weight" in batch else []
        loss = loss_of(sampled, batch.x, batch.y, slice(batch.batch_size), batch.edge_index, *weights)
        total += float(loss.detach())
        sums = [one + other for one, other in zip(sums, gradients(sampled, loss), strict=True)]
    assert_close(total, whole.detach(), steps=20)
    for found, wanted in zip(sums, expected, strict=True):
        assert_close(found, wanted, steps=20)


def test_trimming_to_the_hops_changes_no_output(catalog: Catalog) -> None:
    model = importlib.import_module("torch_geometric.nn").GraphSAGE(5, 6, 3, 3).double()
    for batch in load("directed", catalog=catalog, **{**SAMPLED, "fanout": (4, 3, 2)}, features="float64"):
        hops = {
            "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
            "num_sampled_edges_per_hop": batch.num_sampled_edges,
        }
        trimmed, whole = model(batch.x, batch.edge_index, **hops), model(batch.x, batch.edge_index)
        assert_close(trimmed.detach()[: batch.batch_size], whole.detach()[: batch.batch_size])


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state:UserWarning")
def test_a_sparse_matrix_gives_the_output_of_pairs(catalog: Catalog) -> None:
    options = {**SAMPLED, "normalization": "mean", "features": "float64"}
    conv = importlib.import_module("torch_geometric.nn").GraphConv(5, 3).double()
    sparse = load("weighted", catalog=catalog, adj_t=True, **options)
    for one, other in zip(load("weighted", catalog=catalog, **options), sparse, strict=True):
        assert "edge_index" not in other
        found = conv(other.x, other.adj_t)
        assert_close(found.detach(), conv(one.x, one.edge_index, one.edge_weight).detach())


def test_edges_have_their_positions_in_the_graph(catalog: Catalog) -> None:
    matrix = PROBLEMS["weighted"].adjacency
    for batch in load("weighted", catalog=catalog, **SAMPLED):
        np.testing.assert_array_equal(batch.n_id[batch.edge_index[0]], matrix.indices[batch.e_id])
        np.testing.assert_array_equal(batch.edge_weight, matrix.data[batch.e_id].astype(np.float32))


def test_stored_samples_give_the_batches_that_are_drawn(catalog: Catalog) -> None:
    dataset = catalog.dataset("weighted")
    options = SampleOptions(fanout=(3, 2), batch_size=8, epochs=2, seed=SEED, draw_once=True)
    stored = write_samples(dataset, dataset.graph(), None, options, InProcessCluster())
    drawn = load(dataset, normalization="symmetric", **SAMPLED)
    packed = load(dataset, normalization="symmetric", samples=stored.artifact.key)
    assert len(packed) == len(drawn)
    for _ in range(2):
        for one, other in zip(contents(drawn), contents(packed), strict=True):
            one.pop("e_id")
            one["y"] = one["y"][: one["batch_size"]]
            assert one == other
    workers = DataLoader(load(dataset, samples=stored.artifact.key), batch_size=None, num_workers=2)
    packed = load(dataset, samples=stored.artifact.key)
    assert contents(workers) == contents(packed)
    # A third epoch has the batches of the first.
    assert contents([packed.batch(1, epoch=2)]) == contents([packed.batch(1, epoch=0)])
    whole = len(packed) - (len(PROBLEMS["weighted"].training.nonzero()[0]) % 8 > 0)
    assert len(load(dataset, samples=stored.artifact.key, drop_last=True)) == whole
    with pytest.raises(InputError, match="samples for 1 rank, but size is 2"):
        load(dataset, samples=stored.artifact.key, size=2)
    anew = SampleOptions(fanout=(3, 2), batch_size=8, epochs=1, seed=SEED)
    key = write_samples(dataset, dataset.graph(), None, anew, InProcessCluster()).artifact.key
    with pytest.raises(InputError, match="draw neighbors anew"):
        load(dataset, samples=key)


@pytest.mark.parametrize("sampler", ["frontier", "edge", "vertex"])
@pytest.mark.parametrize("presamples", [0, 20])
def test_subgraphs_are_those_of_training(catalog: Catalog, sampler: str, presamples: int) -> None:
    options: dict[str, Any] = {"sampler": sampler, "batch_size": 30, "presamples": presamples, "seed": SEED}
    given = PROBLEMS["undirected"]
    seen: list[Any] = []
    whole = SubgraphMode._train_batch

    def recorded(self: Any, batch: Any, terms: float) -> float:
        seen.append((batch.vertices, batch.feature.clone(), batch.operator.products(0)[0]))
        return whole(self, batch, terms)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SubgraphMode, "_train_batch", recorded)
        config = sampled_config(catalog, "undirected", "subgraph", f"{sampler}-{presamples}", **options, epochs=2)
        train(LoneCommunicator(), config)
    loader = load("undirected", catalog=catalog, features="float64", normalization="symmetric", **options)
    found = [batch for _ in range(2) for batch in loader]
    # Without weights, a subgraph without training vertices is left out.
    trained_on = [batch for batch in found if presamples or (batch.train_mask & (batch.y >= 0)).any()]
    assert len(trained_on) == len(seen) > 4
    for batch, (vertices, _, product) in zip(trained_on, seen, strict=True):
        np.testing.assert_array_equal(batch.n_id, vertices)
        np.testing.assert_array_equal(batch.x, given.feature[vertices])
        expected = product.multiply(batch.x)
        wanted = torch.zeros_like(batch.x).index_add_(
            0, batch.edge_index[1], batch.edge_weight[:, None] * batch.x[batch.edge_index[0]]
        )
        assert_close(expected, wanted)
        if presamples:
            assert (batch.node_norm > 0).all()
    if presamples:
        stored = load("undirected", catalog=catalog, **options).batch(0)
        assert len(stored.edge_norm) == stored.edge_index.shape[1]
    else:
        assert "node_norm" not in found[0]


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "strict"), few_of(NEGATIVE_SAMPLERS, [False, True], together=1))
def test_pairs_are_those_of_training(catalog: Catalog, sampler: str, strict: bool) -> None:
    options: dict[str, Any] = {
        "fanout": (3, 2),
        "negatives": 2,
        "negative_sampler": sampler,
        "strict_negatives": strict,
    }
    seen: list[Any] = []
    whole = NeighborMode._loss

    def recorded(self: Any, drawn: Any) -> Any:
        seen.append(drawn)
        return whole(self, drawn)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NeighborMode, "_loss", recorded)
        more = {"mode": "neighbor", "draw_once": True, "link_batch": 16}
        train(LoneCommunicator(), pair_config(catalog, "pairs", f"{sampler}-{int(strict)}", **more, **options))
    loader = load("pairs", catalog=catalog, links=True, batch_size=16, seed=SEED, **options)
    found = [batch for _ in range(2) for batch in loader]
    assert len(found) == len(seen) > 6
    for batch, drawn in zip(found, seen, strict=True):
        matrix, pairs = drawn.rows.blocks[0], drawn.examples
        np.testing.assert_array_equal(batch.n_id, drawn.rows.vertices)
        np.testing.assert_array_equal(batch.edge_index[0], matrix.indices)
        np.testing.assert_array_equal(batch.input_id, pairs.number)
        source, target = batch.n_id[batch.edge_label_index]
        count = len(pairs)
        assert batch.batch_size == count
        np.testing.assert_array_equal(source[:count], pairs.source)
        np.testing.assert_array_equal(target[:count], pairs.target)
        np.testing.assert_array_equal(target[count:], pairs.negative.ravel())
        sources = np.repeat(pairs.source, 2) if pairs.drawn_source is None else pairs.drawn_source.ravel()
        np.testing.assert_array_equal(source[count:], sources)
        assert batch.edge_label.tolist() == [1.0] * count + [0.0] * 2 * count
        edges = set(
            zip(batch.n_id[batch.edge_index[0]].tolist(), batch.n_id[batch.edge_index[1]].tolist(), strict=True)
        )
        assert not edges & set(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True))


def test_pairs_with_values_have_them_as_labels_and_their_copies_are_checked(catalog: Catalog) -> None:
    dataset = catalog.dataset("classes")
    links = dataset.links()
    loader = load(dataset, links=links, split="valid", shuffle=False, fanout=(2,), batch_size=10)
    labels = torch.cat([batch.edge_label for batch in loader])
    assert labels.tolist() == links.value("valid").tolist()
    assert set(labels.tolist()) <= set(range(NUM_CLASSES))
    assert all(len(batch.edge_label) == batch.edge_label_index.shape[1] for batch in loader)
    compared = load(dataset, links=links.artifact.key, negatives=3, fanout=(2,), batch_size=10).batch(0)
    assert compared.edge_label.tolist() == [1.0] * 10 + [0.0] * 30
    (path,) = [path for path in copies(dataset.path) if path.name.startswith("links-")]
    assert not [finding for finding in dataset.verify() if finding.is_damaged]
    damaged = path / "train-pair.npy"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    assert [finding.key for finding in dataset.verify() if finding.is_damaged] == [path.name]


def test_pairs_of_two_processes_are_together_those_of_one(catalog: Catalog) -> None:
    options: dict[str, Any] = {"links": True, "catalog": catalog, "fanout": (2,), "batch_size": 16}
    whole = contents(load("pairs", **options))
    assert [contents(load("pairs", **options, rank=rank, size=2)) for rank in (0, 1)] == [
        whole[0::2],
        whole[1::2],
    ]


HELD_OUT, MODEL = 25, "torch_geometric.nn:GraphSAGE"


def negatives_of(kind: str, seed: int = 9) -> dict[str, np.ndarray]:
    """Arrays of links with one kind of negatives, and pairs to judge by."""
    rng, given = np.random.default_rng(seed), PROBLEMS["undirected"]
    found: dict[str, np.ndarray] = {}
    for split in ("valid", "test"):
        if kind in {"lists", "hard"}:
            found[f"{split}/negative"] = rng.integers(0, N, (HELD_OUT, 7))
        if kind == "hard":
            found[f"{split}/negative_source"] = rng.integers(0, N, (HELD_OUT, 6))
        if kind in {"pool", "kept"}:
            found[f"{split}/pool"] = rng.integers(0, N, (83, 2))
    if kind == "kept":
        # Pairs that are edges of the message graph, and stay in it when they are judged.
        found["valid/pair"], found["test/pair"] = edges_of(given)[:30], edges_of(given)[30:60]
    return found


def scored(loader: Loader, module: nn.Module) -> tuple[np.ndarray, list[np.ndarray]]:
    """Scores of all pairs, and those of the negatives, batch by batch."""
    positive, negative = [], []
    for batch in loader:
        vector = module(batch.x, batch.edge_index)
        source, target = batch.edge_label_index
        scores = (vector[source] * vector[target]).sum(1).detach().numpy()
        assert batch.edge_label.tolist() == [1.0] * batch.batch_size + [0.0] * (len(scores) - batch.batch_size)
        positive.append(scores[: batch.batch_size])
        negative.append(scores[batch.batch_size :])
    return np.concatenate(positive), negative


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pool", "drawn", "lists", "hard", "kept"])
def test_figures_of_a_module_from_the_loader_are_those_of_its_run(catalog: Catalog, kind: str) -> None:
    given, dataset = PROBLEMS["undirected"], catalog.dataset("undirected")
    links = store_pair_links(dataset, given, more=negatives_of(kind)).artifact.key
    fixed: dict[str, Any] = {"mode": "neighbor", "fanout": (3, 2), "feature_norm": "none", "output_dim": 6, "lr": 0.1}
    more: dict[str, Any] = {"patience": 9, "monitor": "val_loss", "eval_every": 1}
    config = pair_config(catalog, given.name, f"judged-{kind}", model=MODEL, links=links, **fixed, **more)
    result = train(LoneCommunicator(), config)
    module: Any = lone_session(config).model.module
    run = Run.open(dataset, config.run_name)
    module.load_state_dict(module_state(read_checkpoint(run.checkpoints), "module"))
    module.double().eval()
    for split, prefix in (("valid", "val"), ("test", "test")):
        options: dict[str, Any] = {"links": links, "split": split, "fanout": (-1, -1), "batch_size": 8}
        loader = load(dataset, **options, features="float64", labels=False)
        positive, negative = scored(loader, module)
        count = dataset.links(links).num_pairs[split]
        assert len(positive) == count
        if kind in {"lists", "hard"}:
            lists = np.concatenate([each.reshape(-1, 7 if kind == "lists" else 13) for each in negative])
            rank = ((lists > positive[:, None]).sum(1) + (lists >= positive[:, None]).sum(1)) / 2 + 1
            assert result[f"{prefix}_mrr"] == pytest.approx((1 / rank).mean(), rel=1e-12)
            assert result[f"{prefix}_hits_20"] == (rank <= 20).mean()
        else:
            pool = np.concatenate(negative)
            assert len(pool) == (count if kind == "drawn" else 83)
            above = (positive[:, None] > pool).mean() + (positive[:, None] == pool).mean() / 2
            assert result[f"{prefix}_auc"] == pytest.approx(above, rel=1e-12)
            assert result[f"{prefix}_hits_20"] == (positive > np.sort(pool)[-20]).mean()
        # Without negatives of their own, the loss of pairs is that of negatives that are drawn as in training.
        if kind in {"lists", "hard"} and split == "valid":
            terms = np.concatenate([np.log1p(np.exp(-positive)), np.log1p(np.exp(lists)).ravel()])
            assert run.metrics()[-1]["val_loss"] == pytest.approx(terms.mean(), rel=1e-9)


def test_a_pool_is_divided_among_the_batches_of_all_processes(catalog: Catalog) -> None:
    dataset = catalog.dataset("undirected")
    links = store_pair_links(dataset, PROBLEMS["undirected"], more=negatives_of("pool", seed=8))
    options: dict[str, Any] = {"links": links, "split": "test", "fanout": (2,), "batch_size": 8, "labels": False}
    found = [batch for rank in (0, 1, 2) for batch in load(dataset, **options, rank=rank, size=3)]
    ends = [batch.n_id[batch.edge_label_index][:, batch.batch_size :] for batch in found]
    assert {each.shape[1] for each in ends} == {20, 21}
    pool = torch.from_numpy(links.pool("test"))
    assert sorted(torch.cat(ends, 1).T.tolist()) == sorted(pool.tolist())
    assert all(batch.edge_label.all() for batch in load(dataset, **options, negatives=0))
    assert load(dataset, **options, negatives=5).batch(0).edge_label_index.shape[1] == 8 + 20


def bare(tmp_path: Path) -> Dataset:
    """A dataset of a graph alone."""
    made = Catalog(tmp_path).create("bare")
    from support.graphs import store_graph

    store_graph(made, PROBLEMS["directed"].adjacency, symmetric=False)
    return made


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "trian"}, "split 'trian': expected one of train, valid, test, all"),
        ({"rank": 2, "size": 2}, "rank 2 of 2: expected a rank from 0 to 1"),
        ({"fanout": ()}, "one per layer"),
        ({"fanout": (3, 0)}, "fanout 0: expected at least 1, or -1"),
        ({"batch_size": 0}, "batch_size 0: expected at least 1"),
        ({"fanuot": 3}, "no option fanuot; did you mean fanout?"),
        ({"frontier": 3}, "frontier is not an option of batches of sampled neighbors; batches of subgraphs have it"),
        ({"sampler": "frontier", "split": "train"}, "split is not an option of batches of subgraphs"),
        ({"samples": "1", "fanout": 3}, "fanout is not an option of batches of stored samples"),
        ({"samples": "1", "links": True}, "choose one"),
        ({"vertices": [0, 0]}, "different numbers from 0 to 119"),
        ({"vertices": [120]}, "different numbers from 0 to 119"),
        ({"vertices": [0.5]}, "found float64 of shape"),
        ({"links": True}, "no links"),
        ({"features": "int8"}, "features 'int8': expected one of float32, bf16, float64, none"),
        ({"graph": "nothing"}, "no graph with key nothing"),
    ],
)
def test_what_cannot_be_is_one_clear_error(catalog: Catalog, options: dict[str, Any], message: str) -> None:
    with pytest.raises(GnnloomError) as raised:
        load("directed", catalog=catalog, **options)
    assert isinstance(raised.value, (InputError, NotFoundError))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_features_labels_and_splits_are_named_with_what_to_pass(tmp_path: Path) -> None:
    dataset = bare(tmp_path)
    with pytest.raises(InputError, match=r"no features.*features='none'"):
        load(dataset)
    with pytest.raises(InputError, match=r"no labels.*labels=False"):
        load(dataset, features="none")
    with pytest.raises(InputError, match="split train:"):
        load(dataset, features="none", labels=False)
    loader = load(dataset, features="none", labels=False, split="all", fanout=(2,))
    assert sum(batch.batch_size for batch in loader) == N


def test_a_missing_pyg_is_named_before_anything_is_opened(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Callable[[str], Any] = lambda _: None  # noqa: E731
    monkeypatch.setattr("gnnloom.trainer.loader.data.importlib.util.find_spec", found)
    with pytest.raises(MissingPackageError, match=r"pip install 'gnnloom\[interop\]'"):
        load("directed", catalog=catalog)


def test_the_loader_tells_its_size_and_its_next_epoch(catalog: Catalog) -> None:
    loader = load("directed", catalog=catalog, epoch=4, **SAMPLED)
    assert isinstance(loader, Loader)
    assert repr(loader) == f"Loader({len(loader)} batches per epoch, the next epoch is 4)"
