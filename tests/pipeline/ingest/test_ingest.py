"""Ingest stores the matrix that SciPy builds, reports what it found, and refuses what it cannot use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.external_sort import key_sorter, radix
from gnnloom.pipeline.ingest import calibration
from gnnloom.pipeline.ingest.keys import key_types
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Graph
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import BudgetError, ExistsError, InputError
from gnnloom.storage.format.artifact import ArtifactWriter
from support.covering import examples
from support.edge_files import EdgeFiles, write_edges
from support.stopping import StoppingCluster

MIB = 1 << 20


def reference(u: np.ndarray, v: np.ndarray, w: np.ndarray | None, n: int, options: IngestOptions) -> Any:
    """The matrix, built from a dictionary of edges."""
    entries: dict[tuple[int, int], float] = {}
    weights = np.ones(len(u)) if w is None else w.astype(np.float64)
    merges: dict[str, Any] = {"sum": lambda a, b: a + b, "min": min, "max": max, "first": lambda a, b: a}
    merge = merges[options.merge or "sum"]
    for source, target, weight in zip(u.tolist(), v.tolist(), weights.tolist(), strict=True):
        if source == target and options.self_loops == "remove":
            continue
        positions = {(target, source), (source, target)} if options.undirected else {(target, source)}
        for position in positions:
            entries[position] = merge(entries[position], weight) if position in entries else weight
    if options.self_loops == "add":
        for vertex in range(n):
            entries.setdefault((vertex, vertex), 1.0)
    rows, columns = np.array(list(entries), dtype=np.int64).reshape(-1, 2).T
    values = np.array(list(entries.values())).astype(np.float32) if w is not None else np.ones(len(entries), np.float32)
    return scipy.sparse.csr_array((values, (rows, columns)), shape=(n, n))


def same_matrix(graph: Graph, expected: Any) -> None:
    found = graph.to_scipy()
    expected.sort_indices()
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.data, expected.data)
    np.testing.assert_array_equal(graph.degree(), np.diff(expected.indptr))


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    highest = draw(st.sampled_from([1, 9, 5000, 40_000]))
    edges = draw(st.lists(st.tuples(st.integers(0, highest), st.integers(0, highest)), min_size=1, max_size=60))
    u, v = np.array(edges, dtype=np.int64).T
    weights = None
    if draw(st.booleans()):
        weights = np.random.default_rng(len(edges)).random(len(edges)).astype(np.float32)
    return u, v, weights


@pytest.mark.slow
@given(
    edge_lists(),
    st.booleans(),
    st.sampled_from(["add", "keep", "remove"]),
    st.sampled_from(["sum", "min", "max", "first"]),
    st.integers(0, 2000),
    st.sampled_from([0, radix.NUMPY_KEYS]),
)
@settings(max_examples=examples(40), deadline=None)
def test_the_graph_is_the_matrix_that_scipy_builds(
    tmp_path_factory: pytest.TempPathFactory,
    edges: Any,
    undirected: bool,
    loops: str,
    merge: str,
    isolated: int,
    numpy_keys: int,
) -> None:
    u, v, w = edges
    folder = tmp_path_factory.mktemp("scipy")
    n = int(max(u.max(), v.max())) + 1 + isolated
    source = write_edges(folder / "edges", u, v, w, vertices=n if isolated else None, range_edges=25, chunk_edges=7)
    options = IngestOptions(undirected, loops, merge=merge)
    # Few keys are sorted by NumPy, or by the kernels that sort many.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(radix, "NUMPY_KEYS", numpy_keys)
        graph = ingest_graph(Catalog(folder).create("g"), source, options, InProcessCluster())
    same_matrix(graph, reference(u, v, w, n, options))
    facts = graph.artifact.facts
    directed = len(u) + (int((u != v).sum()) if undirected else 0) - (int((u == v).sum()) if loops == "remove" else 0)
    added = n - len(np.unique(u[u == v])) if loops == "add" else 0
    assert facts["edges_in"] == len(u)
    assert facts["self_loops"] == int((u == v).sum())
    assert facts["nnz"] == directed - facts["duplicates"] + added
    assert facts["weighted"] == (w is not None)
    assert facts["symmetric"] == undirected


@pytest.mark.parametrize("ids", ["keep", "compact"])
def test_a_small_graph_waits_for_no_kernel_that_sorts_many_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: str
) -> None:
    def compiled(*_: Any) -> None:
        raise AssertionError

    for module in (key_sorter, key_types, calibration):
        monkeypatch.setattr(module, "sort_keys", compiled)
    monkeypatch.setattr(key_sorter, "sort_buckets", compiled)
    u, v = np.random.default_rng(0).integers(0, 2000, (2, 9000))
    source = write_edges(tmp_path / "edges", u, v)
    options = IngestOptions(undirected=True, ids=ids)
    graph = ingest_graph(Catalog(tmp_path).create("g"), source, options, InProcessCluster())
    kept = np.unique([u, v]) if ids == "compact" else np.arange(max(u.max(), v.max()) + 1)
    same_matrix(graph, reference(np.searchsorted(kept, u), np.searchsorted(kept, v), None, len(kept), options))


@given(
    st.lists(st.tuples(*[st.integers(0, 50) | st.integers(0, (1 << 63) - 1)] * 2), min_size=1, max_size=60),
    st.booleans(),
)
@settings(max_examples=examples(15), deadline=None)
def test_compact_ids_rank_the_ids_that_occur(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], undirected: bool
) -> None:
    folder = tmp_path_factory.mktemp("compact")
    u, v = np.array(pairs, dtype=np.int64).T
    distinct, ranks = np.unique(np.concatenate([u, v]), return_inverse=True)
    source = write_edges(folder / "edges", u, v, range_edges=40, chunk_edges=11)
    options = IngestOptions(undirected, ids="compact")
    graph = ingest_graph(Catalog(folder).create("g"), source, options, InProcessCluster())
    same_matrix(graph, reference(ranks[: len(u)], ranks[len(u) :], None, len(distinct), options))
    np.testing.assert_array_equal(graph.original_id(), distinct)
    graph.artifact.verify()


#: Ranges of few ids.
FEW_IDS = Scratch(range_bytes=8000, slice_bytes=1)


def test_compact_ids_of_several_ranges_of_ids(catalog: Catalog, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pool = np.unique(np.concatenate([rng.integers(0, 3000, 2000), rng.integers(0, 1 << 62, 9000)]))
    u, v = pool[rng.integers(0, len(pool), (2, 20_000))]
    source = write_edges(tmp_path / "edges", u, v, range_edges=3000)
    cluster = InProcessCluster(scratch=replace(FEW_IDS, block_entries=5000))
    graph = ingest_graph(catalog.create("g"), source, IngestOptions(ids="compact"), cluster)
    distinct, ranks = np.unique(np.concatenate([u, v]), return_inverse=True)
    same_matrix(graph, reference(ranks[:20_000], ranks[20_000:], None, len(distinct), IngestOptions()))
    np.testing.assert_array_equal(graph.original_id(), distinct)
    np.testing.assert_array_equal(graph.original_id(4100, 4200), distinct[4100:4200])


def test_compact_ids_of_many_files_with_outliers(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As many ids are sorted.
    monkeypatch.setattr(radix, "NUMPY_KEYS", 0)
    rng = np.random.default_rng(8)
    u, v = rng.integers(0, 3000, (2, 20_000))
    u[:2], v[:2] = (1 << 63) - 1, (1 << 62) + 5
    weight = rng.random(20_000).astype(np.float32)
    source = write_edges(tmp_path / "edges", u, v, weight, range_edges=6000, chunk_edges=1111)
    options = IngestOptions(ids="compact")
    # 700 edges per file, which is not a multiple of the chunk size.
    cluster = InProcessCluster(scratch=replace(FEW_IDS, gathered_bytes=104 * 700))
    graph = ingest_graph(catalog.create("g"), source, options, cluster)
    distinct, ranks = np.unique(np.concatenate([u, v]), return_inverse=True)
    same_matrix(graph, reference(ranks[:20_000], ranks[20_000:], weight, len(distinct), options))
    np.testing.assert_array_equal(graph.original_id(), distinct)


def test_blocks_cover_the_rows_and_are_cut_by_entries(catalog: Catalog, tmp_path: Path) -> None:
    u, v = np.random.default_rng(6).integers(0, 40_000, (2, 30_000))
    source = write_edges(tmp_path / "edges", u, v, vertices=50_000)
    cluster = InProcessCluster(scratch=Scratch(block_entries=30_000, block_rows=8192))
    graph = ingest_graph(catalog.create("g"), source, IngestOptions(), cluster)
    assert graph.block_rows[0] == 0
    assert graph.block_rows[-1] == 50_000
    assert (np.diff(graph.block_rows) <= 8192).all()
    assert sum(graph.block_nnz) == graph.nnz
    same_matrix(graph, reference(u, v, None, 50_000, IngestOptions()))


def test_a_graph_without_edges_has_its_stated_vertices(catalog: Catalog, tmp_path: Path) -> None:
    source = write_edges(tmp_path / "edges", [], [], vertices=5000)
    graph = ingest_graph(catalog.create("g"), source, IngestOptions(), InProcessCluster())
    same_matrix(graph, scipy.sparse.eye_array(5000, dtype=np.float32).tocsr())
    bare = ingest_graph(catalog.create("bare"), source, IngestOptions(self_loops="keep"), InProcessCluster())
    assert bare.nnz == 0
    assert bare.num_blocks == 1
    bare.artifact.verify()


@pytest.mark.parametrize("ids", ["keep", "compact"])
def test_a_source_without_edges_is_an_error(catalog: Catalog, tmp_path: Path, ids: str) -> None:
    source = write_edges(tmp_path / "edges", [], [])
    with pytest.raises(InputError, match="no edges"):
        ingest_graph(catalog.create("g"), source, IngestOptions(ids=ids), InProcessCluster())


@pytest.mark.parametrize("ids", ["keep", "compact"])
def test_a_negative_id_is_an_error(catalog: Catalog, tmp_path: Path, ids: str) -> None:
    source = write_edges(tmp_path / "edges", [1, -7], [2, 3])
    with pytest.raises(InputError, match="vertex id -7"):
        ingest_graph(catalog.create("g"), source, IngestOptions(ids=ids), InProcessCluster())


@pytest.mark.parametrize("highest", [1 << 33, 1 << 62])
def test_kept_ids_that_are_too_large_are_refused_with_a_remedy(
    catalog: Catalog, tmp_path: Path, highest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_edges(tmp_path / "edges", [1, highest], [2, 3])
    # Room for a row of each id of the smaller graph, whatever the disk of this machine has.
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1 << 40))
    with pytest.raises(InputError, match="--ids compact"):
        ingest_graph(catalog.create("g"), source, IngestOptions(), InProcessCluster())


def test_an_id_beyond_the_stated_vertices_is_an_error(catalog: Catalog, tmp_path: Path) -> None:
    source = write_edges(tmp_path / "edges", [1, 2], [2, 30], vertices=30)
    with pytest.raises(InputError, match="30 vertices and has ids up to 30"):
        ingest_graph(catalog.create("g"), source, IngestOptions(), InProcessCluster())


@pytest.mark.parametrize("option", ["self_loops", "ids", "merge"])
def test_unknown_options_are_refused(option: str) -> None:
    with pytest.raises(InputError, match=f"{option} 'other': expected one of"):
        IngestOptions(**cast("Any", {option: "other"}))


def test_a_complete_graph_is_found_and_another_one_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    dataset = catalog.create("g")
    source = write_edges(tmp_path / "edges", [0, 1], [1, 2])
    first = ingest_graph(dataset, source, IngestOptions(), InProcessCluster())
    before = (first.artifact.path / "manifest.json").stat().st_mtime_ns
    again = ingest_graph(dataset, source, IngestOptions(), InProcessCluster())
    assert (again.artifact.path / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(ExistsError, match=r"complete \(undirected=False\).*undirected=True.*--add"):
        ingest_graph(dataset, source, IngestOptions(undirected=True), InProcessCluster())
    # Each of several graphs is found again, too.
    both = ingest_graph(dataset, source, IngestOptions(undirected=True), InProcessCluster(), allow_others=True)
    for options, graph in ((IngestOptions(), first), (IngestOptions(undirected=True), both)):
        found = ingest_graph(dataset, source, options, StoppingCluster(0))
        assert found.artifact.key == graph.artifact.key


def test_a_graph_that_was_begun_is_refused_for_other_options(catalog: Catalog, tmp_path: Path) -> None:
    dataset = catalog.create("g")
    source = write_edges(tmp_path / "edges", [0, 1], [1, 2])
    with ArtifactWriter.begin(dataset.path, "graph", IngestOptions().parameters(source), {}):
        pass
    with pytest.raises(ExistsError, match="incomplete"):
        ingest_graph(dataset, source, IngestOptions(undirected=True), InProcessCluster())
    assert ingest_graph(dataset, source, IngestOptions(), InProcessCluster()).nnz == 5


def test_a_budget_that_is_too_small_is_refused_with_the_figures(catalog: Catalog, tmp_path: Path) -> None:
    source = write_edges(tmp_path / "edges", [0, 1], [1, 2])
    with pytest.raises(BudgetError, match=r"memory of 100 MiB per worker: at least \d+ MiB"):
        ingest_graph(catalog.create("g"), source, IngestOptions(), InProcessCluster(100 * MIB))


def test_a_block_with_more_rows_than_fit_in_memory_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    source = write_edges(tmp_path / "edges", [0, 1], [1, 2], vertices=1 << 34)
    with pytest.raises(BudgetError, match="rows, too many for"):
        ingest_graph(catalog.create("g"), source, IngestOptions(self_loops="keep"), InProcessCluster(448 * MIB))


_MEASURED = """
import json, sys
from pathlib import Path
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.storage import Catalog
sys.path.insert(0, sys.argv[3])
from support.edge_files import EdgeFiles
folder, memory = Path(sys.argv[1]), int(sys.argv[2])
source = EdgeFiles(folder / "edges", weighted=True)
options = IngestOptions(undirected=True, merge="sum")
graph = ingest_graph(Catalog(folder).create(f"m{memory}"), source, options, InProcessCluster(memory))
print(json.dumps({"digest": graph.artifact.digest, "peak": graph.artifact.measured["peak_memory"]}))
"""


@pytest.mark.slow
def test_memory_stays_within_the_budget_whatever_the_skew(tmp_path: Path) -> None:
    """All edges are in one unit of rows, half of them at one vertex: far more than the smaller budget sorts at once."""
    rng = np.random.default_rng(8)
    u, v = rng.integers(0, 4000, (2, 5_000_000))
    u[::2] = 3
    write_edges(tmp_path / "edges", u, v, rng.random(len(u)))
    found = {}
    for memory in (512 * MIB, 1024 * MIB):
        command = [sys.executable, "-c", _MEASURED, str(tmp_path), str(memory), str(Path(__file__).parents[2])]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        found[memory] = json.loads(result.stdout)
        assert found[memory]["peak"] <= memory
    assert found[512 * MIB]["digest"] == found[1024 * MIB]["digest"]


class HalfWeighted(EdgeFiles):
    """Gives a weight to the edges of every other chunk."""

    def read(self, source_range: SourceRange) -> Iterator[EdgeChunk]:
        for number, chunk in enumerate(super().read(source_range)):
            yield chunk if number % 2 else EdgeChunk(chunk.source, chunk.target)


def test_weights_for_some_edges_only_are_an_error(catalog: Catalog, tmp_path: Path) -> None:
    write_edges(tmp_path / "edges", [0, 1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4])
    source = HalfWeighted(tmp_path / "edges", weighted=True, chunk_edges=1)
    with pytest.raises(InputError, match=r"some edges .* weight"):
        ingest_graph(catalog.create("g"), source, IngestOptions(), InProcessCluster())
