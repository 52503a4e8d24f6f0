"""A projection states before an ingest what the ingest will need, and refuses what does not fit."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.ingest.calibration import Calibration, calibrate
from gnnloom.pipeline.ingest.projection import Resources, extrapolate
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph, project_ingest
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.sources.generators.rmat import RmatEdges
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import BudgetError
from support.edge_files import write_edges

MIB = 1 << 20
GIB = 1 << 30
RESOURCES = Resources(workers=2, memory=GIB, disk_free=1000 * GIB, cache_free=8 * GIB)

FOUND = Calibration(
    files=1,
    ranges=100,
    edges=100_000_000,
    vertices=4_000_000,
    distinct_ids=0,
    value_bytes=0,
    scatter_seconds=20e-9,
    sort_seconds=20e-9,
    output_bytes=2.5,
    row_ratio=0.2,
    disk_rate=200e6,
)


def _times(found: Calibration, factor: int) -> Calibration:
    return replace(found, edges=found.edges * factor, ranges=found.ranges * factor, vertices=found.vertices * factor)


@pytest.mark.slow
def test_memory_stays_flat_while_disk_and_time_grow_with_the_edges() -> None:
    projections = [extrapolate(_times(FOUND, factor), True, RESOURCES) for factor in (1, 10, 100)]
    assert max(each.peak_memory for each in projections) < min(
        GIB, 1.25 * min(each.peak_memory for each in projections)
    )
    assert [each.edges for each in projections] == [10**8, 10**9, 10**10]
    assert [round(each.blocks / projections[0].blocks) for each in projections[:2]] == [1, 10]
    # Ids of more bits need a byte or two more in the spill files.
    assert 1000 * GIB > projections[2].spill_bytes >= 100 * projections[0].spill_bytes
    assert projections[1].seconds >= 10 * projections[0].seconds


def test_the_disk_sets_the_pace_once_its_cache_is_full() -> None:
    fast = extrapolate(FOUND, True, RESOURCES)
    slow = extrapolate(FOUND, True, replace(RESOURCES, cache_free=0))
    assert fast.seconds == pytest.approx(FOUND.edges * (20e-9 + 2 * 20e-9) / 2)
    assert slow.seconds == pytest.approx((slow.spill_bytes + slow.output_bytes) / FOUND.disk_rate, abs=0.01)


def test_a_disk_too_small_is_refused_with_the_figures() -> None:
    projection = extrapolate(FOUND, True, replace(RESOURCES, disk_free=GIB))
    with pytest.raises(BudgetError, match=r"100,000,000 edges need about 954 MiB of spill and 489 MiB .* 1\.0 GiB"):
        projection.check()


def test_blocks_with_too_many_rows_for_the_memory_are_refused() -> None:
    with pytest.raises(BudgetError, match="rows, too many for 1024 MiB per worker"):
        extrapolate(replace(FOUND, vertices=1 << 35, edges=10), True, RESOURCES)


def test_memory_that_leaves_no_room_for_buffers_is_refused() -> None:
    with pytest.raises(BudgetError, match="at least 448 MiB"):
        extrapolate(FOUND, True, replace(RESOURCES, memory=100 * MIB))


def test_an_ingest_that_does_not_fit_is_refused_before_it_begins(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_edges(tmp_path / "edges", *np.random.default_rng(0).integers(0, 9000, (2, 200_000)))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=MIB // 2))
        with pytest.raises(BudgetError, match="choose a catalog on a larger disk"):
            ingest_graph(catalog.create("g"), source, IngestOptions(), InProcessCluster())
    # Nothing was begun, so nothing is left.
    assert catalog["g"].artifacts() == []
    assert ingest_graph(catalog.create("g"), source, IngestOptions(), InProcessCluster()).nnz > 0


@pytest.mark.parametrize("undirected", [False, True])
def test_an_ingest_stores_projected_and_measured_figures(catalog: Catalog, undirected: bool) -> None:
    source = RmatEdges(16, 24)
    graph = ingest_graph(catalog.create("g"), source, IngestOptions(undirected), InProcessCluster())
    plan = graph.artifact.measured["plan"]
    for name in ("edges", "vertices", "ranges"):
        assert plan[name]["planned"] == plan[name]["measured"], name
    for name, tolerance in (("entries", 0.01), ("spill_bytes", 0.01), ("output_bytes", 0.3)):
        assert plan[name]["planned"] == pytest.approx(plan[name]["measured"], rel=tolerance), name
    assert abs(plan["blocks"]["planned"] - plan["blocks"]["measured"]) <= 1
    assert plan["seconds"]["planned"] > 0
    assert plan["edges"]["measured"] == graph.artifact.facts["edges_in"] == 24 << 16


def test_an_ingest_stores_the_sums_over_all_tasks(catalog: Catalog) -> None:
    graph = ingest_graph(catalog.create("g"), RmatEdges(14, 16), IngestOptions(), InProcessCluster())
    measured = graph.artifact.measured
    phases = {"scatter", "block", "vertex"}
    assert set(measured["task_seconds"]) == phases
    assert measured["task_bytes_written"]["scatter"] >= measured["spill_bytes"]
    assert measured["task_bytes_read"]["block"] >= measured["spill_bytes"]
    written = sum(measured["task_bytes_written"][name] for name in ("block", "vertex"))
    assert written >= measured["bytes_written"] * 0.5
    assert measured["peak_memory"] > 0


def _text(path: Path, edges: int) -> Path:
    u, v = np.random.default_rng(1).integers(0, 50_000, (2, edges))
    lines = "".join(f"{a}\t{b}\n" for a, b in zip(u.tolist(), v.tolist(), strict=True))
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return path


@pytest.mark.parametrize("name", ["edges.txt", "edges.txt.gz", "edges.npy"])
def test_edges_are_estimated_for_every_kind_of_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if path.suffix == ".npy":
        np.save(path, np.random.default_rng(1).integers(0, 50_000, (2, 90_000)))
    else:
        _text(path, 90_000)
    source = open_edges(None, (str(path),), {})
    projection = project_ingest(source, IngestOptions(True), tmp_path, 2, GIB)
    assert (projection.files, projection.edges) == (1, 90_000)
    assert 49_900 <= projection.vertices <= 50_000
    assert sorted(found.name for found in tmp_path.iterdir()) == [name]


def test_edges_of_a_long_stream_are_estimated_from_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.pipeline.ingest.calibration.READ_SECONDS", 0.0)
    source = TextEdges.open([str(_text(tmp_path / "edges.txt.gz", 300_000))])
    found = calibrate(replace(source, block_bytes=1 << 18), True, "keep", "fast", tmp_path)
    assert found.edges == pytest.approx(300_000, rel=0.3)


def test_compact_ids_are_counted_from_the_sample(tmp_path: Path) -> None:
    ids = np.random.default_rng(2).integers(0, 1 << 60, 3000)
    source = write_edges(tmp_path / "edges", *ids[np.random.default_rng(3).integers(0, 3000, (2, 100_000))])
    projection = project_ingest(source, IngestOptions(ids="compact"), tmp_path, 1, GIB)
    assert projection.vertices == 3000
    assert projection.spill_bytes < 10 * MIB


@pytest.mark.parametrize("weighted", [False, True])
def test_wide_graphs_get_the_same_matrix_with_64_bit_ids(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    """Stands for a graph of more than 2^31 vertices: the width from which ids are int64 is lowered."""
    monkeypatch.setattr("gnnloom.storage.matrix.csr.INT32_WIDTH", 1000)
    u, v = np.random.default_rng(4).integers(0, 20_000, (2, 60_000))
    weights = np.ones(60_000) if weighted else None
    source = write_edges(tmp_path / "edges", u, v, weights, vertices=20_000)
    cluster = InProcessCluster(scratch=Scratch(block_entries=30_000))
    graph = ingest_graph(catalog.create("g"), source, IngestOptions(self_loops="keep"), cluster)
    expected = scipy.sparse.coo_array((np.ones(60_000, np.float32), (v, u)), shape=(20_000, 20_000)).tocsr()
    found = graph.to_scipy()
    assert {block.indices.dtype for block in graph.blocks()} == {np.dtype(np.int64)}
    assert {block.indptr.dtype for block in graph.blocks()} == {np.dtype(np.int64)}
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.indices, expected.indices)
    if weighted:
        np.testing.assert_array_equal(found.data, expected.data)
    graph.artifact.verify()


@pytest.mark.parametrize("codec", ["none", "small"])
def test_a_codec_changes_the_files_and_not_the_digest(catalog: Catalog, codec: str) -> None:
    source = RmatEdges(13, 8)
    fast = ingest_graph(catalog.create("fast"), source, IngestOptions(), InProcessCluster())
    other = ingest_graph(catalog.create(codec), source, IngestOptions(codec=codec), InProcessCluster())
    assert other.artifact.digest == fast.artifact.digest
    assert other.artifact.parameters["codec"] == codec
    assert fast.artifact.parameters["codec"] == "fast"
    assert (other.artifact.stored_bytes() > fast.artifact.stored_bytes()) == (codec == "none")
    other.artifact.verify()


_CAPPED = """
import json, resource, sys
from pathlib import Path
memory, scale, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.sources.generators.rmat import RmatEdges
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.storage import Catalog
cluster = InProcessCluster(memory)
graph = ingest_graph(Catalog(folder).create("g"), RmatEdges(scale, 16), IngestOptions(True), cluster)
print(json.dumps([graph.nnz, graph.artifact.measured["peak_memory"]]))
"""


def _capped(memory: int, scale: int, folder: Path) -> int:
    """Ingest an R-MAT graph in a process with a memory limit; returns its peak."""
    command = [sys.executable, "-c", _CAPPED, str(memory), str(scale), str(folder)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    peak: int = json.loads(result.stdout)[1]
    return peak


# With little memory and many edges, an ingest holds what it holds in any case and what it plans.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory", "scale"),
    [(448 * MIB, 18), *(pytest.param(*case, marks=pytest.mark.long) for case in ((448 * MIB, 12), (GIB, 18)))],
)
def test_memory_stays_within_a_cap_on_the_process(tmp_path: Path, memory: int, scale: int) -> None:
    assert _capped(memory, scale, tmp_path) <= memory


@pytest.mark.long
@pytest.mark.parametrize("memory", [448 * MIB, 768 * MIB, GIB])
@pytest.mark.parametrize("scale", [20, 22])
def test_memory_stays_within_a_cap_on_the_process_at_any_size(tmp_path: Path, memory: int, scale: int) -> None:
    assert _capped(memory, scale, tmp_path) <= memory
