"""Native partitioners: hostile inputs and hostile programs end in the right answer or one clear error."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.partition.adjacency_graph import AdjacencyGraph
from gnnloom.pipeline.partition.balance import (
    asked_limit,
    fill_empty_parts,
    heaviest_allowed,
    native_imbalance,
    repair_balance,
)
from gnnloom.pipeline.partition.hypergraph import Hypergraph
from gnnloom.pipeline.partition.native import guard
from gnnloom.pipeline.partition.native import run as native
from gnnloom.pipeline.partition.native.budget import available_memory, check_native_memory
from gnnloom.pipeline.partition.native.guard import check_problem, native_weights
from gnnloom.pipeline.partition.native.hmetis import write_hmetis
from gnnloom.pipeline.partition.native.kahypar_program import KAHYPAR
from gnnloom.pipeline.partition.native.metis import METIS
from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.native.request import RESULT, PartitionRequest
from gnnloom.pipeline.partition.native.run import run_child
from gnnloom.pipeline.partition.streaming import block_partition, random_partition
from gnnloom.storage import Catalog
from gnnloom.storage.errors import BudgetError, InputError, PartitionerError
from support.graphs import random_adjacency, store_graph
from support.partitions import connectivity_minus_one

PROGRAMS = {program.name: program for program in (MT_KAHYPAR, KAHYPAR, METIS)}
NATIVE = pytest.mark.parametrize("method", ["mtkahypar", "kahypar"])
GRAPHS = pytest.mark.parametrize("method", ["metis", "mtkahypar"])
PRESETS = pytest.mark.parametrize(
    ("method", "preset"),
    [(program.name, preset.name) for program in (MT_KAHYPAR, KAHYPAR) for preset in program.presets],
)


def hypergraph_of(nets: Sequence[Sequence[int]], weight: Sequence[int]) -> Hypergraph:
    offset = np.concatenate([[0], np.cumsum([len(net) for net in nets])]).astype(np.int64)
    pin = np.concatenate([np.empty(0), *map(np.asarray, nets)]).astype(np.int32)
    return Hypergraph(np.asarray(weight, dtype=np.int64), offset, pin)


def partition(hypergraph: Hypergraph | AdjacencyGraph, method: str, request: PartitionRequest) -> np.ndarray:
    with tempfile.TemporaryDirectory() as scratch:
        part = native.native_partition(hypergraph, PROGRAMS[method], request, Path(scratch))
        assert list(Path(scratch).iterdir()) == []
        return part


def ring(num_vertices: int, width: int = 3) -> Hypergraph:
    nets = [[(start + step) % num_vertices for step in range(width)] for start in range(num_vertices)]
    return hypergraph_of(nets, [1] * num_vertices)


def as_graph(nets: Hypergraph) -> AdjacencyGraph:
    """The graph that joins the pins of every net."""
    joined = np.zeros((nets.num_vertices, nets.num_vertices), dtype=np.int8)
    for start, stop in pairwise(nets.net_offset):
        pins = nets.pin[start:stop]
        joined[np.ix_(pins, pins)] = 1
    np.fill_diagonal(joined, 0)
    matrix = scipy.sparse.csr_array(joined)
    return AdjacencyGraph(nets.vertex_weight, matrix.indptr.astype(np.int64), matrix.indices, matrix.data)


@PRESETS
def test_a_ring_is_cut_into_arcs_with_every_preset(method: str, preset: str) -> None:
    hypergraph = ring(200)
    part = partition(hypergraph, method, PartitionRequest(4, 0.03, 1, preset=preset))
    assert (part.dtype, part.shape) == (np.int32, (200,))
    assert np.bincount(part).max() <= 51
    assert connectivity_minus_one(hypergraph, part) <= 12


@NATIVE
def test_the_same_seed_gives_the_same_parts(method: str) -> None:
    rng = np.random.default_rng(0)
    hypergraph = hypergraph_of([rng.choice(400, 5, replace=False) for _ in range(800)], rng.integers(1, 9, 400))
    parts = [partition(hypergraph, method, PartitionRequest(7, 0.05, 3, threads)) for threads in (1, 2, 4)]
    np.testing.assert_array_equal(parts[0], parts[1])
    np.testing.assert_array_equal(parts[0], parts[2])


@pytest.mark.parametrize("method", ["mtkahypar", "kahypar", "metis"])
def test_no_part_is_heavier_than_asked_for_where_the_average_is_broken(method: str) -> None:
    """Partitioners measure from the average rounded up: here 82 instead of 81.2."""
    nets = ring(200)
    weight = np.full(200, 2)
    weight[:6] = 3
    hypergraph = Hypergraph(weight, nets.net_offset, nets.pin)
    problem = as_graph(hypergraph) if method == "metis" else hypergraph
    part = partition(problem, method, PartitionRequest(5, 0.03, 0))
    assert np.bincount(part, weights=weight).max() <= 1.03 * weight.sum() / 5


@settings(deadline=None)
@given(
    weight=st.lists(st.integers(1, 1 << 40), min_size=1, max_size=50),
    parts=st.integers(1, 50),
    imbalance=st.floats(0, 2),
)
def test_what_is_asked_of_a_native_partitioner_is_the_limit_of_every_part(
    weight: list[int], parts: int, imbalance: float
) -> None:
    weights = np.array(weight, dtype=np.int64)
    average = weights.sum() / parts
    native_limit = int((1 + native_imbalance(weights, parts, imbalance)) * np.ceil(average))
    assert native_limit == asked_limit(int(weights.sum()), parts, imbalance)
    assert average <= native_limit <= max((1 + imbalance) * average, np.ceil(average)) * (1 + 1e-12)


def test_given_parts_are_improved() -> None:
    hypergraph = ring(200)
    given = np.repeat(np.arange(4, dtype=np.int32), 50)
    given[np.arange(0, 200, 9)] = given[np.arange(0, 200, 9)[::-1]]
    with tempfile.TemporaryDirectory() as scratch:
        request = PartitionRequest(4, 0.03, 1, improve=1)
        part = native.native_partition(hypergraph, MT_KAHYPAR, request, Path(scratch), given=given)
    assert connectivity_minus_one(hypergraph, part) <= 12 < connectivity_minus_one(hypergraph, given)
    assert np.bincount(part).max() <= 51


@NATIVE
def test_two_components_are_not_cut(method: str) -> None:
    half = [[a, b] for a in range(20) for b in range(a)]
    hypergraph = hypergraph_of(half + [[a + 20, b + 20] for a, b in half], [1] * 40)
    part = partition(hypergraph, method, PartitionRequest(2, 0.03, 0))
    assert connectivity_minus_one(hypergraph, part) == 0


@NATIVE
@pytest.mark.parametrize("parts", [1, 2, 5, 29, 30])
def test_no_nets_at_all_still_gives_balanced_parts(method: str, parts: int) -> None:
    weight = np.arange(1, 31)
    part = partition(hypergraph_of([], weight), method, PartitionRequest(parts, 0.03, 0))
    load = np.bincount(part, weights=weight, minlength=parts)
    assert load.min() > 0
    assert load.max() <= weight.sum() / parts + weight.max()


@NATIVE
def test_without_nets_the_imbalance_is_held_where_the_weights_allow_it(method: str) -> None:
    weight = [100, *[1] * 100]
    part = partition(hypergraph_of([], weight), method, PartitionRequest(2, 0.01, 0))
    assert np.bincount(part, weights=weight).tolist() == [100, 100]


@pytest.mark.parametrize("method", ["mtkahypar", "kahypar", "metis"])
def test_an_imbalance_without_bounds_is_one_that_all_parts_keep(method: str) -> None:
    problem = as_graph(ring(40)) if method == "metis" else ring(40)
    part = partition(problem, method, PartitionRequest(4, 1e30, 0))
    assert set(part.tolist()) == set(range(4))


@NATIVE
def test_one_vertex_as_heavy_as_all_others(method: str) -> None:
    hypergraph = ring(40)
    heavy = Hypergraph(np.where(np.arange(40) == 7, 1000, 1), hypergraph.net_offset, hypergraph.pin)
    part = partition(heavy, method, PartitionRequest(8, 0.01, 0))
    assert set(part.tolist()) == set(range(8))


@NATIVE
def test_almost_as_many_parts_as_vertices(method: str) -> None:
    part = partition(ring(24), method, PartitionRequest(23, 0.01, 0))
    assert set(part.tolist()) == set(range(23))


@NATIVE
def test_isolated_vertices_get_parts_too(method: str) -> None:
    part = partition(hypergraph_of([[0, 1], [1, 2]], [1] * 50), method, PartitionRequest(5, 0.1, 0))
    assert np.bincount(part).tolist() == [10] * 5


@NATIVE
def test_weights_beyond_31_bits_are_scaled(method: str) -> None:
    hypergraph = ring(60)
    heavy = Hypergraph(np.full(60, 1 << 40), hypergraph.net_offset, hypergraph.pin)
    part = partition(heavy, method, PartitionRequest(3, 0.05, 0))
    assert np.bincount(part).max() <= 21


@NATIVE
def test_a_vertex_for_each_part_and_more_parts_than_vertices(method: str) -> None:
    assert sorted(partition(ring(9), method, PartitionRequest(9, 0.01, 0)).tolist()) == list(range(9))
    with pytest.raises(InputError, match="parts=10: the graph has 9 vertices"):
        partition(ring(9), method, PartitionRequest(10, 0.01, 0))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda g: Hypergraph(g.vertex_weight, g.net_offset[:-1], g.pin), "net_offset does not run"),
        (lambda g: Hypergraph(g.vertex_weight, g.net_offset, g.pin[:-1]), "net_offset does not run"),
        (lambda g: Hypergraph(g.vertex_weight[:-1], g.net_offset, g.pin), "pins from 0 to 9, expected 0..8"),
        (lambda g: Hypergraph(g.vertex_weight, g.net_offset, g.pin - 1), "pins from -1"),
        (lambda g: Hypergraph(g.vertex_weight * 0, g.net_offset, g.pin), "a vertex has weight 0"),
        (lambda g: Hypergraph(g.vertex_weight, np.array([0, 1, 30]), g.pin), "fewer than two pins"),
    ],
)
def test_broken_hypergraphs_never_reach_native_code(broken, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "run_child", lambda *_: pytest.fail("the child was started"))
    with pytest.raises(InputError, match=message):
        partition(broken(ring(10)), "mtkahypar", PartitionRequest(2, 0.01, 0))


def test_more_pins_than_native_code_counts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "NATIVE_LIMIT", 29)
    with pytest.raises(BudgetError, match="30 pins"):
        check_problem(ring(10))


def test_a_hypergraph_beyond_the_memory_is_refused_with_figures() -> None:
    check_native_memory(MT_KAHYPAR, "deterministic", 10**5, 10**4, 8, None)
    with pytest.raises(BudgetError, match=r"but only 1 MiB are available"):
        check_native_memory(MT_KAHYPAR, "deterministic", 10**5, 10**4, 8, 1 << 20)
    with pytest.raises(BudgetError, match=r"1,000,000,000,000 pins into 8 parts: needs about 131,\d\d\d.\d GiB"):
        check_native_memory(MT_KAHYPAR, "deterministic", 10**12, 10**9, 8, None)


def write_group(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content)


def test_memory_is_what_the_machine_and_the_control_groups_leave(tmp_path: Path) -> None:
    process = tmp_path / "proc/self"
    write_group(process.parent, {"meminfo": "MemTotal: 9000 kB\nMemAvailable: 5000 kB\n"})
    assert available_memory(tmp_path) == 5000 << 10
    groups = tmp_path / "sys/fs/cgroup"
    stat = {"memory.stat": "anon 1\ninactive_file 300\nactive_file 40\n"}
    write_group(groups / "user/one", {"memory.max": "max\n", "memory.current": "900\n"} | stat)
    write_group(groups / "user", {"memory.max": "3000\n", "memory.current": "900\n"} | stat)
    write_group(process, {"cgroup": "0::/user/one\n"})
    assert available_memory(tmp_path) == 3000 - 900 + 340
    old = {"memory.limit_in_bytes": "2000", "memory.usage_in_bytes": "1900", "memory.stat": "total_inactive_file 7"}
    write_group(groups / "memory", old)
    write_group(process, {"cgroup": "4:cpuset,memory:/elsewhere\n0::/user/one\n"})
    assert available_memory(tmp_path) == 107
    write_group(groups / "memory", {"memory.usage_in_bytes": "2500"})
    assert available_memory(tmp_path) == 0


def test_a_partitioner_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "find_spec", lambda _: None)
    with pytest.raises(PartitionerError, match="pip install kahypar"):
        partition(ring(10), "kahypar", PartitionRequest(2, 0.01, 0))


@settings(deadline=None)
@given(weight=st.lists(st.integers(1, 1 << 50), min_size=1, max_size=50), spare=st.integers(1, 1000))
def test_scaled_weights_stay_positive_and_in_proportion(weight: list[int], spare: int) -> None:
    weights = np.array(weight, dtype=np.int64)
    limit = len(weights) + spare
    scaled = native_weights(weights, limit)
    assert scaled.min() >= 1
    assert scaled.sum() <= limit
    assert (np.diff(scaled[np.argsort(weights)]) >= 0).all()


def test_more_vertices_than_weights_can_sum_to() -> None:
    with pytest.raises(BudgetError, match="5 vertices"):
        native_weights(np.full(5, 9), 5)


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=10, max_size=40))
def test_empty_parts_are_filled_and_no_other_emptied(given_parts: list[int]) -> None:
    part = np.array(given_parts, dtype=np.int32)
    weight = np.arange(len(part))[::-1].copy()
    before = part.copy()
    moved = fill_empty_parts(part, weight, 10)
    assert set(part.tolist()) == set(range(10))
    assert moved == (before != part).sum() == 10 - len(set(given_parts))


@settings(deadline=None)
@given(
    weight=st.lists(st.integers(1, 20), min_size=8, max_size=60),
    parts=st.integers(1, 6),
    imbalance=st.floats(0, 1),
    seed=st.integers(0, 10**6),
)
def test_balance_is_repaired_where_light_vertices_allow_it(
    weight: list[int], parts: int, imbalance: float, seed: int
) -> None:
    weights = np.array(weight, dtype=np.int64)
    part = np.random.default_rng(seed).integers(0, parts, len(weights)).astype(np.int32)
    before = part.copy()
    limit = heaviest_allowed(weights, parts, imbalance)
    load = np.bincount(part, weights=weights, minlength=parts)
    moved = repair_balance(part, weights, parts, imbalance)
    after = np.bincount(part, weights=weights, minlength=parts)
    assert limit >= max(weights.max(), weights.sum() / parts)
    assert moved == (before != part).sum() or moved > 0
    assert (after <= np.maximum(load, limit)).all()
    assert ((after > 0) >= (load > 0)).all()
    if imbalance >= 0.99:
        assert after.max() <= max(limit, weights.sum() / parts + weights.max())


@GRAPHS
def test_a_graph_is_cut_like_its_hypergraph(method: str) -> None:
    graph = as_graph(ring(200))
    parts = [partition(graph, method, PartitionRequest(4, 0.03, 1)) for _ in range(2)]
    np.testing.assert_array_equal(parts[0], parts[1])
    assert np.bincount(parts[0]).max() <= 51
    assert connectivity_minus_one(ring(200), parts[0]) <= 16


@GRAPHS
@pytest.mark.parametrize("parts", [1, 2, 23, 24])
def test_hostile_graphs(method: str, parts: int) -> None:
    heavy = as_graph(ring(24))
    heavy.vertex_weight[7] = 1 << 40
    isolated = as_graph(hypergraph_of([[0, 1], [1, 2]], [1] * 24))
    lonely = as_graph(hypergraph_of([], [1] * 24))
    for graph in (heavy, isolated, lonely):
        part = partition(graph, method, PartitionRequest(parts, 0.01, 0))
        assert set(part.tolist()) == set(range(parts))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda g: AdjacencyGraph(g.vertex_weight, g.offset[:-1], g.neighbor, g.edge_weight), "do not fit"),
        (lambda g: AdjacencyGraph(g.vertex_weight, g.offset, g.neighbor, g.edge_weight[1:]), "do not fit"),
        (
            lambda g: AdjacencyGraph(g.vertex_weight, g.offset, g.neighbor + 1, g.edge_weight),
            "neighbors from 1 to 10",
        ),
        (lambda g: AdjacencyGraph(g.vertex_weight, g.offset, g.neighbor, g.edge_weight * 0), "an edge has weight 0"),
        (lambda g: AdjacencyGraph(g.vertex_weight * 0, g.offset, g.neighbor, g.edge_weight), "a vertex has weight 0"),
    ],
)
def test_broken_graphs_never_reach_native_code(broken, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "run_child", lambda *_: pytest.fail("the child was started"))
    with pytest.raises(InputError, match=message):
        partition(broken(as_graph(ring(10))), "metis", PartitionRequest(2, 0.01, 0))


@NATIVE
def test_net_weights_decide_where_to_cut(method: str) -> None:
    """A ring with two nets that are cheap to cut is cut there."""
    cheap = ring(60, 2)
    weight = np.full(60, 50)
    weight[[9, 39]] = 1
    hypergraph = Hypergraph(cheap.vertex_weight, cheap.net_offset, cheap.pin, weight)
    part = partition(hypergraph, method, PartitionRequest(2, 0.03, 0))
    assert part[9] != part[10]
    assert part[39] != part[40]
    assert connectivity_minus_one(hypergraph, part) == 2


@pytest.mark.parametrize("weight", [np.zeros(40), np.ones(39), np.full(40, 1 << 30)])
def test_net_weights_out_of_range_are_refused(weight: np.ndarray) -> None:
    nets = ring(40)
    hypergraph = Hypergraph(nets.vertex_weight, nets.net_offset, nets.pin, weight.astype(np.int64))
    with pytest.raises((InputError, BudgetError), match="net"):
        partition(hypergraph, "mtkahypar", PartitionRequest(2, 0.01, 0))


@pytest.mark.parametrize("method", ["mtkahypar", "kahypar", "metis"])
def test_a_partitioner_beyond_its_memory_limit_fails_alone(method: str) -> None:
    problem = as_graph(ring(50)) if method == "metis" else ring(50)
    with pytest.raises(PartitionerError, match=f"method {method}: ended with status") as caught:
        partition(problem, method, PartitionRequest(2, 0.01, 0, memory_limit=1 << 20))
    assert "with memory limited to 1 MiB (--memory-limit)" in str(caught.value)
    assert "\n" not in str(caught.value)


def run_python(tmp_path: Path, code: str, time_limit: float | None = 20) -> np.ndarray:
    return run_child([sys.executable, "-c", code, str(tmp_path / RESULT)], tmp_path, "fake", time_limit)


@pytest.mark.parametrize("status", [0, 1, 137])
def test_no_result_is_a_failure_whatever_the_status(tmp_path: Path, status: int) -> None:
    code = f"import os, sys; print('last words', file=sys.stderr, flush=True); os._exit({status})"
    with pytest.raises(
        PartitionerError, match=f"(?s)fake: ended with status {status} and left no.*last line of its output: last words"
    ):
        run_python(tmp_path, code)


def test_a_partitioner_that_is_killed(tmp_path: Path) -> None:
    with pytest.raises(PartitionerError, match=r"ended with status -9 \(killed, usually because memory ran out\)"):
        run_python(tmp_path, "import os; os.kill(os.getpid(), 9)")


def test_out_of_memory_a_partitioner_goes_before_its_parent() -> None:
    code = (
        "from gnnloom.pipeline.partition.native.child import _die_first; _die_first();"
        "print(open('/proc/self/oom_score_adj').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "1000"


def test_a_partitioner_that_crashes(tmp_path: Path) -> None:
    with pytest.raises(PartitionerError, match="ended with status -11"):
        run_python(tmp_path, "import os; os.kill(os.getpid(), 11)")


def test_a_partitioner_that_hangs_dies_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time, pathlib;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "pathlib.Path(sys.argv[1]).with_name('pid').write_text(str(child.pid));"
        "time.sleep(600)"
    )
    started = time.perf_counter()
    with pytest.raises(PartitionerError, match="no result after 3 seconds"):
        run_python(tmp_path, code, 3)
    assert time.perf_counter() - started < 15
    grandchild = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_running(grandchild))


def is_running(pid: int) -> bool:
    """Whether a process exists and is more than a zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def test_half_a_result_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PartitionerError, match="its result cannot be read"):
        run_python(tmp_path, "import sys; open(sys.argv[1], 'wb').write(b'\\x93NUMPY')")


def test_a_result_is_never_unpickled(tmp_path: Path) -> None:
    # The child writes a pickle, as a damaged or hostile one could: the parent refuses to open it.
    code = "import sys, numpy; numpy.save(sys.argv[1], numpy.array([{}], dtype=object), allow_pickle=True)"
    with pytest.raises(PartitionerError, match="its result cannot be read"):
        run_python(tmp_path, code)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.zeros(9, np.int32), r"expected 10 parts as integers, found int32 of shape \(9,\)"),
        (np.zeros(10), "found float64"),
        (np.full(10, 2), "parts from 2 to 2, expected 0..1"),
        (np.full(10, -1), "parts from -1"),
    ],
)
def test_a_wrong_result_is_an_error(result: np.ndarray, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "run_child", lambda *_: result)
    with pytest.raises(PartitionerError, match=message):
        partition(ring(10), "mtkahypar", PartitionRequest(2, 0.01, 0))


def test_the_partitioner_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, numpy as np;"
        "from gnnloom.pipeline.partition.hypergraph import Hypergraph;"
        "from gnnloom.pipeline.partition.native import kahypar_program, run as native, request;"
        "pin = np.random.default_rng(0).permuted(np.tile(np.arange(20000), (10, 1)), axis=1).reshape(-1);"
        "graph = Hypergraph(np.ones(20000, np.int64), np.arange(0, 200001, 10), pin.astype(np.int32));"
        "asked = request.PartitionRequest(64, 0.01, 0);"
        "native.native_partition(graph, kahypar_program.KAHYPAR, asked, pathlib.Path(sys.argv[1]))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        wait_until(lambda: bool(list(tmp_path.glob("*/preset.ini"))))
        child = int(children.read_text().split()[0])
        assert is_running(child)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_until(lambda: not is_running(child))


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("waited a minute in vain")


def test_the_hmetis_file_says_what_the_hypergraph_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.pipeline.partition.native.hmetis._CHUNK_PINS", 4)
    nets = [[0, 1], [4, 2, 0, 3, 1], [3, 0], [99, 9, 10]]
    weight = [1, 12, 123, (1 << 31) - 1, *[7] * 96]
    write_hmetis(tmp_path / "file", hypergraph_of(nets, weight), np.array(weight))
    lines = (tmp_path / "file").read_text().splitlines()
    assert lines[0] == "4 100 10"
    assert [[int(pin) - 1 for pin in line.split(" ")] for line in lines[1:5]] == nets
    assert [int(line) for line in lines[5:]] == weight


def test_random_parts_are_even_and_change_with_the_seed() -> None:
    first, second = np.empty(100_000, np.int32), np.empty(100_000, np.int32)
    random_partition(first, 64, 0)
    random_partition(second, 64, 1)
    expected = 100_000 / 64
    for part in (first, second):
        size = np.bincount(part, minlength=64)
        chi_squared = ((size - expected) ** 2 / expected).sum()
        assert 20 < chi_squared < 130  # 63 degrees of freedom; outside once in a million
    assert (first == second).mean() == pytest.approx(1 / 64, abs=0.003)
    again = np.empty(50_000, np.int32)
    random_partition(again, 64, 0)
    np.testing.assert_array_equal(again, first[:50_000])


@settings(max_examples=30, deadline=None)
@given(num_vertices=st.integers(1, 60), nnz=st.integers(0, 300), seed=st.integers(0, 10**6), data=st.data())
def test_blocks_are_contiguous_nonempty_and_even(
    tmp_path_factory: pytest.TempPathFactory, num_vertices: int, nnz: int, seed: int, data: st.DataObject
) -> None:
    parts = data.draw(st.integers(1, num_vertices))
    adjacency = random_adjacency(num_vertices, nnz, seed, symmetric=False, loops=seed % 2 == 0)
    catalog = Catalog(tmp_path_factory.mktemp("catalog"))
    graph = store_graph(catalog.create("g"), adjacency, symmetric=True, num_blocks=4)
    part = np.full(num_vertices, -1, dtype=np.int32)
    block_partition(part, graph, parts)
    assert (np.diff(part) >= 0).all()
    assert set(part.tolist()) == set(range(parts))
    nonzeros = np.diff(adjacency.indptr)
    load = np.bincount(part, weights=nonzeros, minlength=parts)
    if nonzeros.min() > 0:
        # A boundary lies within half a row of the ideal, unless it was pushed to keep a part from being empty.
        assert load.max() <= max(nonzeros.sum() / parts, 1) + 2 * nonzeros.max()


def blocks_of(catalog: Catalog, adjacency: scipy.sparse.csr_array, parts: int, weights: str) -> list[int]:
    graph = store_graph(catalog.create("g"), adjacency, symmetric=True)
    part = np.empty(adjacency.shape[0], dtype=np.int32)
    block_partition(part, graph, parts, weights)
    return np.bincount(part, minlength=parts).tolist()


def test_blocks_of_rows_without_nonzeros_are_even(catalog: Catalog) -> None:
    few = scipy.sparse.csr_array((np.ones(4), ([0, 1, 5, 6], [1, 0, 6, 5])), shape=(1000, 1000))
    assert blocks_of(catalog, few, 2, "nonzeros") == [500, 500]


def test_blocks_of_unit_weights_are_equal_ranges_and_of_ones_too(catalog: Catalog) -> None:
    dense = np.eye(12)
    dense[3] = 1
    assert blocks_of(catalog, scipy.sparse.csr_array(dense), 4, "unit") == [3, 3, 3, 3]
    assert blocks_of(catalog, scipy.sparse.csr_array(np.eye(12)), 4, "nonzeros") == [3, 3, 3, 3]
