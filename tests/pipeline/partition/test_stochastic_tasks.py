"""The tasks of the stochastic model: same bytes for any number of workers, after a stop, and little in the client."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.partition.measure.kept_results import keep_results
from gnnloom.pipeline.partition.native.problem import NativeProblem
from gnnloom.pipeline.partition.native.program import NativeProgram
from gnnloom.pipeline.partition.preset import Preset
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.partition.stochastic import batch_partition, merged_nets, restricted_nets
from gnnloom.pipeline.partition.stochastic.batch_bits import DrawnBatches
from gnnloom.pipeline.partition.stochastic.batch_drawer import BatchDrawer
from gnnloom.pipeline.partition.stochastic.fit_request import FULL, STOCHASTIC, FitRequest, fit_apart
from gnnloom.pipeline.partition.stochastic.stored_nets import StoredNets
from gnnloom.pipeline.tasks.cluster import Cluster, ClusterOptions, InProcessCluster, open_cluster
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.errors import BudgetError, PartitionerError
from support.graphs import random_adjacency, store_graph
from support.partitions import random_parts

WALK = PartitionOptions(4, model="stochastic", imbalance=0.05, batches="walk", batch_rate=0.3)


def fit_by_hash(problem: NativeProblem, nets: StoredNets | None, folder: Path) -> dict[str, Any]:
    """Parts that depend on every byte of the nets, found in no time."""
    folder.mkdir(parents=True, exist_ok=True)
    seed = problem.options.seed
    if nets is not None:
        for name in ("offset", "pin", "weight"):
            seed = zlib.crc32((nets.folder / name).read_bytes(), seed)
    n, parts = problem.graph.num_vertices, problem.options.parts
    np.save(folder / FULL, random_parts(n, parts, 0))
    np.save(folder / STOCHASTIC, random_parts(n, parts, seed))
    return {"seed": seed}


def partition(catalog: Catalog, name: str, cluster: Cluster, options: PartitionOptions = WALK) -> tuple[str, Any]:
    """Digest of the artifact and the facts about the parts of a graph that is the same for every name."""
    if name not in catalog:
        adjacency = random_adjacency(500, 4000, 1, symmetric=False)
        store_graph(catalog.create(name), adjacency, symmetric=False, num_blocks=3)
    found = partition_graph(catalog[name], catalog[name].graph(), options, cluster)
    return found.artifact.digest, found.quality


@pytest.fixture
def fast_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_partition, "fit_apart", fit_by_hash)
    # A few hundred hashes for each range, so that there are several.
    monkeypatch.setattr(merged_nets, "_BUCKET_BYTES", 10_000)
    monkeypatch.setattr(merged_nets, "_SLICE_BYTES", 1)


@pytest.mark.usefixtures("fast_fit")
@pytest.mark.parametrize("numbers", [(0, 2), pytest.param((1, 3), marks=pytest.mark.long)])
def test_any_number_of_workers_gives_the_same_bytes(catalog: Catalog, numbers: tuple[int, int]) -> None:
    found = []
    for workers in numbers:
        with open_cluster(ClusterOptions(workers=workers)) as cluster:
            found.append(partition(catalog, f"w{workers}", cluster))
    assert found[0] == found[1]


class _Stops(InProcessCluster):
    """Stops at some task, as a killed client does."""

    def __init__(self, stop: int) -> None:
        super().__init__()
        self._stop = stop
        self.ran: list[str] = []

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            if len(self.ran) == self._stop:
                raise KeyboardInterrupt
            self.ran.append(function.__name__)
            yield function(item)


@pytest.mark.usefixtures("fast_fit")
def test_a_run_that_was_stopped_in_any_phase_goes_on_and_gives_the_same_bytes(catalog: Catalog) -> None:
    whole = _Stops(-1)
    expected = partition(catalog, "whole", whole)
    for phase in ("restrict_nets", "_index_piece", "_merge_bucket", "_choose_nets", "_place_nets", "_count_batches"):
        name = f"stopped-{phase.strip('_')}"
        # After the first task of the phase.
        first, second = _Stops(whole.ran.index(phase) + 1), _Stops(-1)
        with pytest.raises(KeyboardInterrupt):
            partition(catalog, name, first)
        assert partition(catalog, name, second) == expected
        # What may run twice: drawing a group, and placing the nets.
        again = {"_draw_batches", "_place_nets"}
        once = [function for function in whole.ran if function not in again]
        assert [each for each in first.ran + second.ran if each not in again] == once


@pytest.mark.usefixtures("fast_fit")
@pytest.mark.parametrize(
    ("phase", "again", "lost"),
    [("_merge_bucket", "_index_piece", "index-*-00"), ("_choose_nets", "_merge_bucket", "kept-*-00")],
)
def test_lanes_that_were_lost_between_two_runs_are_written_again(
    catalog: Catalog, phase: str, again: str, lost: str
) -> None:
    whole = _Stops(-1)
    expected = partition(catalog, "whole", whole)
    first, second = _Stops(whole.ran.index(phase) + 1), _Stops(-1)
    with pytest.raises(KeyboardInterrupt):
        partition(catalog, "lost", first)
    (lane,) = catalog["lost"].path.rglob(lost)
    lane.unlink()
    assert partition(catalog, "lost", second) == expected
    assert first.ran.count(again) == second.ran.count(again) == whole.ran.count(again) > 1


def test_a_task_that_is_killed_while_it_appends_a_group_is_repeated(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_partition, "fit_apart", fit_by_hash)
    expected = partition(catalog, "whole", InProcessCluster())
    kept: list[Path] = []

    def killed_once(path: Path, arrays: Iterable[Any]) -> None:
        kept.append(path)
        # The nets and what the group met are written by then; the figures are not.
        if len(kept) == 5:
            raise KeyboardInterrupt
        keep_results(path, arrays)

    monkeypatch.setattr(restricted_nets, "keep_results", killed_once)
    with pytest.raises(KeyboardInterrupt):
        partition(catalog, "killed", InProcessCluster())
    assert partition(catalog, "killed", InProcessCluster()) == expected
    assert kept.count(kept[4]) == 2


class _Between(InProcessCluster):
    """Notes what this process allocates at most while no task runs."""

    peak = 0

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            self.note()
            result = function(item)
            tracemalloc.reset_peak()
            yield result

    def note(self) -> None:
        self.peak = max(self.peak, tracemalloc.get_traced_memory()[1])


def fit_at_random(problem: NativeProblem, _: StoredNets | None, folder: Path) -> dict[str, Any]:
    facts = fit_by_hash(problem, None, folder)
    # Another process would have done this.
    tracemalloc.reset_peak()
    return facts


@pytest.mark.parametrize("batches", ["walk", "vertex"])
def test_the_client_holds_nothing_of_the_size_of_the_pins(
    catalog: Catalog, batches: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_partition, "fit_apart", fit_at_random)
    options = replace(WALK, batches=batches)
    # Imports and compiles what is needed.
    partition(catalog, "first", InProcessCluster(), options)
    dataset, cluster = catalog.create("g"), _Between()
    graph = store_graph(dataset, random_adjacency(1000, 200_000, 0, symmetric=True), symmetric=True)
    tracemalloc.start()
    try:
        partition_graph(dataset, graph, options, cluster)
        cluster.note()
    finally:
        tracemalloc.stop()
    # A hypergraph has 4 bytes for each pin, and drawn nets have up to 4 times the pins.
    assert cluster.peak < 2 * graph.nnz


def program(package: str = "no_such_package", bytes_per_pin: int = 0) -> NativeProgram:
    return NativeProgram("none", package, "none", (Preset("deterministic", improves=True),), bytes_per_pin)


def problem_of(graph: Graph, folder: Path, chosen: NativeProgram, **options: Any) -> NativeProblem:
    settings = PartitionOptions(4, model="stochastic", **options)
    return NativeProblem(graph, graph, settings, folder, folder / "part.npy", InProcessCluster(), chosen)


@pytest.fixture
def graph(catalog: Catalog) -> Graph:
    return store_graph(catalog.create("g"), random_adjacency(200, 900, 0, symmetric=True), symmetric=True)


def test_errors_of_the_process_that_fits_are_raised_here(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(PartitionerError, match="no_such_package is not installed"):
        fit_apart(problem_of(graph, tmp_path, program()), None, tmp_path / "fit")
    with pytest.raises(BudgetError, match=r"counting the pins of 200 nets in 4 parts.*model hypergraph"):
        fit_apart(problem_of(graph, tmp_path, program(), memory_limit=1000), None, tmp_path / "other")


def test_a_process_that_ends_without_an_answer_is_an_error(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FitRequest, "write", lambda *_: None)
    with pytest.raises(PartitionerError, match=r"ended with status 1; last line.*FileNotFoundError"):
        fit_apart(problem_of(graph, tmp_path, program()), None, tmp_path / "fit")


def test_parts_that_an_earlier_process_found_are_kept_and_what_it_says_is_logged(
    graph: Graph, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "fit"
    folder.mkdir()
    nets = StoredNets(tmp_path / "nets", 0, 0, "int32")
    nets.create()
    given = random_parts(200, 4, 0)
    np.save(folder / FULL, given)
    # This program cannot run, which nothing without nets needs.
    assert fit_apart(problem_of(graph, tmp_path, program(), batches="walk"), nets, folder) == {}
    np.testing.assert_array_equal(np.load(folder / FULL), given)
    assert set(np.load(folder / STOCHASTIC).tolist()) == set(range(4))
    assert "batches exchange no rows" in caplog.text


def test_uniform_batches_are_drawn_without_the_graph(tmp_path: Path) -> None:
    drawer = BatchDrawer("vertex", tmp_path / "no-graph", 1000, 250, 7)
    drawn = DrawnBatches(tmp_path / "drawn", 3, 1000)
    drawer.draw(range(5, 8), drawn, InProcessCluster())
    bits = np.unpackbits(drawn.bits(), axis=1, bitorder="little")
    assert bits.sum(axis=1).tolist() == [250] * 3
    assert np.flatnonzero(bits[1]).tolist() == drawer.vertices()(6).tolist()
