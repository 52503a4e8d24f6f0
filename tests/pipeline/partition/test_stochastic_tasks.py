"""The tasks of the stochastic model: same bytes for any number of workers, after a stop, and little in the client."""

from __future__ import annotations

import gc
import itertools
import shutil
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.partition.native.program import NativeProgram
from gnnloom.pipeline.partition.native.run import NativeProblem
from gnnloom.pipeline.partition.partitioner import LEVEL_STEPS, Preset
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.partition.stochastic import batch_drawer, batch_partition, fit, restricted_nets
from gnnloom.pipeline.partition.stochastic.batch_drawer import BatchDrawer, draw_phase
from gnnloom.pipeline.partition.stochastic.batch_partition import FULL, STOCHASTIC, FitRequest, fit_apart
from gnnloom.pipeline.partition.stochastic.merged_nets import MergedNets
from gnnloom.pipeline.shuffle.mapped_vectors import map_vector, write_vector
from gnnloom.pipeline.shuffle.run_list import save_unmerged
from gnnloom.pipeline.tasks.cluster import Cluster, InProcessCluster
from gnnloom.pipeline.tasks.phase import repairing, run
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import BudgetError, PartitionerError
from gnnloom.storage.format.artifact import ArtifactWriter
from support.fits import fit_by_hash
from support.graphs import random_adjacency, store_graph
from support.partitions import random_parts

WALK = PartitionOptions(4, model="stochastic", imbalance=0.05, batches="walk", batch_rate=0.3)

#: A few hundred hashes for each range, so that there are several.
SMALL_RANGES = Scratch(range_bytes=20_000, slice_bytes=1)


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


class _Stops(InProcessCluster):
    """Stops at some task, as a killed client does."""

    def __init__(self, stop: int) -> None:
        super().__init__(scratch=SMALL_RANGES)
        self._stop = stop
        self.ran: list[str] = []

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            if len(self.ran) == self._stop:
                raise KeyboardInterrupt
            self.ran.append(function.__name__)
            yield function(item)


PHASES = (
    "draw_batches",
    "restrict_nets",
    "_index_piece",
    "_merge_bucket",
    "_choose_nets",
    "count_batches",
    "_store_rows",
    "count_block",
)


@pytest.mark.slow
@pytest.mark.usefixtures("fast_fit")
@pytest.mark.parametrize("often", [len(PHASES), pytest.param(1, marks=pytest.mark.long)])
def test_a_run_that_was_stopped_in_any_phase_goes_on_and_gives_the_same_bytes(catalog: Catalog, often: int) -> None:
    """By default, one run is stopped in all phases; a run for each phase is long."""
    whole = _Stops(-1)
    expected = partition(catalog, "whole", whole)
    for start in range(0, len(PHASES), often):
        phases = PHASES[start : start + often]
        name, ran = f"stopped-{phases[0].strip('_')}", list[str]()
        for phase in phases:
            # After the first task of the phase.
            cluster = _Stops(whole.ran.index(phase) + 1 - len(ran))
            with pytest.raises(KeyboardInterrupt):
                partition(catalog, name, cluster)
            ran += cluster.ran
        last = _Stops(-1)
        assert partition(catalog, name, last) == expected
        assert ran + last.ran == whole.ran


@pytest.mark.slow
@pytest.mark.usefixtures("fast_fit")
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.long)])
def test_what_was_damaged_or_lost_between_two_runs_is_made_again(catalog: Catalog, every: int) -> None:
    """By default, the files of one phase are damaged, those of the next are lost, and so on; all files are long."""
    whole = _Stops(-1)
    expected = partition(catalog, "whole", whole)
    phases = [phase for phase in PHASES if phase != "_store_rows"]
    changes: dict[str, Callable[[Path], None]] = {"damaged": _flip_a_byte, "lost": Path.unlink}
    cases, ran = itertools.product(enumerate(phases), enumerate(changes.items())), 0
    for phase, how, change in ((phase, *case) for (at, phase), (kind, case) in cases if (at + kind) % every == 0):
        name, stop = f"{how}-{phase.strip('_')}", whole.ran.index(phase) + 1
        # One run goes on from phase to phase, and each change is made to a copy of what it has left.
        if stop > ran:
            with pytest.raises(KeyboardInterrupt):
                partition(catalog, "begun", _Stops(stop - ran))
            ran = stop
        shutil.copytree(catalog["begun"].path, catalog.root / name)
        # One file of each of the last shuffles that are there, and what is mapped.
        (work,) = catalog[name].path.glob("partition/*/.work")
        files = sorted(work.glob("shuffle/**/*-00"), key=lambda path: path.stat().st_mtime)
        mapped = [*work.glob("batches/??????"), *work.glob("fit/*"), *work.glob("parts")]
        for path in (*files[-6:], *mapped):
            change(path)
        assert partition(catalog, name, InProcessCluster(scratch=SMALL_RANGES)) == expected, name


def _flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) // 3] ^= 1
        path.write_bytes(content)


@pytest.mark.slow
def test_a_task_that_is_killed_within_a_group_is_repeated(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_partition, "fit_apart", fit_by_hash)
    expected = partition(catalog, "whole", InProcessCluster())
    calls, restricted = 0, restricted_nets._restricted

    def killed_once(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        # Some batches of the group are written by then.
        if calls == 30:
            raise KeyboardInterrupt
        return restricted(*args)

    monkeypatch.setattr(restricted_nets, "_restricted", killed_once)
    with pytest.raises(KeyboardInterrupt):
        partition(catalog, "killed", InProcessCluster())
    assert partition(catalog, "killed", InProcessCluster()) == expected
    assert calls > 30


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


def fit_at_random(problem: NativeProblem, _: MergedNets | None, folder: Path) -> dict[str, Any]:
    facts = fit_by_hash(problem, None, folder)
    # Another process would have done this.
    tracemalloc.reset_peak()
    return facts


#: Batches of vertices are drawn without the graph, and all that follows is the same.
@pytest.mark.slow
@pytest.mark.parametrize("batches", ["walk", pytest.param("vertex", marks=pytest.mark.long)])
def test_the_client_holds_nothing_of_the_size_of_the_pins(
    catalog: Catalog, batches: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_partition, "fit_apart", fit_at_random)
    options, cluster = replace(WALK, batches=batches), _Between()
    first, dataset = catalog.create("first"), catalog.create("g")
    # Imports and compiles what is needed.
    small = store_graph(first, random_adjacency(100, 2000, 0, symmetric=True), symmetric=True)
    partition_graph(first, small, options, InProcessCluster())
    graph = store_graph(dataset, random_adjacency(1000, 400_000, 0, symmetric=True), symmetric=True)
    # What earlier tests left: a cache of a fixed size, which grows while it forgets theirs, and garbage.
    batch_drawer._row_checksum.cache_clear()
    gc.collect()
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
    cluster, writer = InProcessCluster(), ArtifactWriter(folder, "partition", "0" * 16)
    return NativeProblem(graph, graph, settings, folder, folder / "part.npy", cluster, writer, LEVEL_STEPS, chosen)


@pytest.fixture
def graph(catalog: Catalog) -> Graph:
    return store_graph(catalog.create("g"), random_adjacency(200, 900, 0, symmetric=True), symmetric=True)


@pytest.mark.slow
def test_errors_of_the_process_that_fits_are_raised_here(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(PartitionerError, match="no_such_package"):
        fit_apart(problem_of(graph, tmp_path, program()), None, tmp_path / "fit")
    with pytest.raises(BudgetError, match=r"200 nets in 4 parts"):
        fit_apart(problem_of(graph, tmp_path, program(), memory_limit=1000), None, tmp_path / "other")


def test_a_process_that_ends_without_an_answer_is_an_error(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FitRequest, "write", lambda *_: None)
    with pytest.raises(PartitionerError, match=r"ended with status 1; last line.*FileNotFoundError"):
        fit_apart(problem_of(graph, tmp_path, program()), None, tmp_path / "fit")


@pytest.mark.slow
def test_parts_that_an_earlier_process_found_are_kept_and_what_it_says_is_logged(
    graph: Graph, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "fit"
    folder.mkdir()
    problem = problem_of(graph, tmp_path, program(), batches="walk")
    nets = MergedNets.of(problem.writer.work, 1, "int32", 0, 0)
    save_unmerged(problem.writer.work / nets.nets.list_path, [])
    given = random_parts(200, 4, 0)
    write_vector(folder / FULL, [given])
    with problem.writer.task("fit/hypergraph"):
        pass
    # This program cannot run, which nothing without nets needs.
    assert fit_apart(problem, nets, folder) == {}
    np.testing.assert_array_equal(map_vector(folder / FULL), given)
    assert set(map_vector(folder / STOCHASTIC).tolist()) == set(range(4))
    assert "batches exchange no rows" in caplog.text


def test_parts_that_were_damaged_are_found_again(tmp_path: Path) -> None:
    writer, path = ArtifactWriter(tmp_path, "partition", "0" * 16), tmp_path / "part"
    found: list[int] = []

    def find() -> tuple[Any, dict[str, Any]]:
        found.append(len(found))
        return random_parts(50, 4, 0), {"volume": 1.5}

    for times in (1, 1, 2):
        if times == 2:
            _flip_a_byte(path)
        part, facts = repairing(fit._kept)(writer, path, find)
        np.testing.assert_array_equal(part, random_parts(50, 4, 0))
        assert (facts, len(found)) == ({"volume": 1.5}, times)


def test_uniform_batches_are_drawn_without_the_graph(tmp_path: Path) -> None:
    drawer, writer = BatchDrawer("vertex", tmp_path / "no-graph", 1000, 250, 7), ArtifactWriter(tmp_path, "", "")
    phase, drawn = draw_phase(writer, drawer, range(5, 8))
    run([phase], InProcessCluster(), writer)
    bits = np.unpackbits(drawn.read(0, 3), axis=1, bitorder="little")
    assert bits.sum(axis=1).tolist() == [250] * 3
    assert np.flatnonzero(bits[1]).tolist() == drawer.vertices()(6).tolist()
