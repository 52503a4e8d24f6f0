"""Rows of a table reach the vertices that their ids name, through few files, however the work is cut."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scale.counted_cluster import OpenCounter

from gnnloom.pipeline.external_sort import lanes, merge_levels
from gnnloom.pipeline.external_sort.lanes import LaneSet
from gnnloom.pipeline.ingest import vertex_rows
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.tables import routed_table, routing
from gnnloom.pipeline.ingest.tables.lookup import VertexBuckets
from gnnloom.pipeline.ingest.tables.routing import GatheredRows, TablePlan
from gnnloom.pipeline.ingest.vertex_rows import ArrayPlan, vertex_phases
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.shuffle import merges
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.shuffle import RunsWriter
from gnnloom.pipeline.sources.format import open_edges, open_vertices
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.source import KeyedSource
from gnnloom.pipeline.sources.vertex_data import keyed_rows
from gnnloom.pipeline.sources.vertex_data.vertex_files import JoinedVertices
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, Cluster, InProcessCluster, ThreadedCluster
from gnnloom.pipeline.tasks.phase import count
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter
from support.array_memory import tracing_arrays
from support.covering import few_of
from support.lanes import flip_bit
from support.scratch import merging, small_chunks
from support.stopping import StoppedError, StoppingCluster
from support.twice import TwiceCluster

HERE = InProcessCluster()
NUM_VERTICES, WIDTH, UNKNOWN = 700, 3, 50
FAN_IN = 3
SMALL = replace(merging(FAN_IN), task_pieces=2, bucket_bytes=1500, routed_bytes=1000)


def ids_of(kind: str) -> list[str]:
    """Distinct ids, in the order of their vertices: names that begin alike, sparse numbers, or the vertices."""
    if kind == "names":
        # Some names are beginnings of others, and UTF-8 has bytes above all of ASCII.
        names = {f"{'user ' * (k % 3)}{'é' * (k % 2)}{k // 2}" for k in range(2 * NUM_VERTICES)}
        return sorted(names, key=str.encode)[:NUM_VERTICES]
    return [str(k * k + k if kind == "numbers" else k) for k in range(NUM_VERTICES)]


def store(catalog: Catalog, folder: Path, kind: str) -> Dataset:
    """Store a ring through the ids."""
    ids, dataset = ids_of(kind), catalog.create(kind)
    (folder / "edges.csv").write_text("".join(f"{a},{b}\n" for a, b in zip(ids, ids[1:] + ids[:1], strict=True)))
    options = IngestOptions(ids="keep" if kind == "kept" else "compact")
    ingest_graph(dataset, open_edges(None, [str(folder / "edges.csv")]), options, HERE)
    return dataset


def table_of(kind: str) -> tuple[list[str], np.ndarray]:
    """Ids in another order, some of which no vertex has, and values for them."""
    rng = np.random.default_rng(0)
    ids = [*ids_of(kind), *(f"{10**9 + k}" for k in range(UNKNOWN))]
    order = rng.permutation(len(ids))
    return [ids[place] for place in order], rng.integers(-99, 99, (len(ids), WIDTH)).astype(np.float32)


def write_table(folder: Path, form: str, ids: list[str], values: np.ndarray) -> dict[str, str]:
    """Write the table; returns the files by option."""
    if form == "csv":
        lines = (",".join([name, *map(str, row)]) for name, row in zip(ids, values.tolist(), strict=True))
        (folder / "x.csv").write_text("\n".join(lines))
        return {"feature": str(folder / "x.csv")}
    if form == "parquet":
        columns = {f"c{number}": column for number, column in enumerate(values.T)}
        pq.write_table(pa.table({"id": ids, **columns}), folder / "x.parquet", row_group_size=40)
        return {"feature": str(folder / "x.parquet")}
    np.save(folder / "x.npy", values)
    np.save(folder / "ids.npy", np.array(ids))
    return {"feature": str(folder / "x.npy"), "ids_file": str(folder / "ids.npy")}


def ingest(dataset: Dataset, files: dict[str, str], cluster: Cluster = HERE) -> Vertices:
    return ingest_vertices(dataset, open_vertices("keyed", (), files, dataset.graph()), cluster)


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make many chunks and ranges of little data; ``SMALL`` makes many buckets, runs and merges."""
    small_chunks(monkeypatch, 512)
    monkeypatch.setattr(routing, "BOUNDS_PER_TASK", 4)
    monkeypatch.setattr(keyed_rows, "_BLOCK_BYTES", 400)
    monkeypatch.setattr(keyed_rows, "_BLOCK_VALUES", 80)
    monkeypatch.setattr(routed_table, "BLOCK_BYTES", 200)
    monkeypatch.setattr(merges, "_STEP_BYTES", 2000)
    for name in ("_LEAST_BYTES", "_MOST_BYTES"):
        monkeypatch.setattr(keyed_rows, name, 1000)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


@dataclass(frozen=True)
class Undisturbed:
    """A run of small tasks that nothing interrupts: the digest, and the names of its tasks in their order."""

    digest: str
    tasks: list[str]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder, cluster = tmp_path_factory.mktemp("undisturbed"), StoppingCluster(scratch=SMALL)
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        dataset = store(Catalog(folder), folder, "numbers")
        stored = ingest(dataset, write_table(folder, "csv", *table_of("numbers")), cluster)
    return Undisturbed(stored.artifact.digest, [name for _, name in cluster.ran])


@pytest.mark.parametrize(("kind", "form"), [("names", "csv"), ("numbers", "parquet"), ("kept", "npy")])
def test_rows_reach_their_vertices_through_levels_of_files(
    catalog: Catalog, tmp_path: Path, kind: str, form: str, request: pytest.FixtureRequest
) -> None:
    dataset = store(catalog, tmp_path, kind)
    ids, values = table_of(kind)
    files = write_table(tmp_path, form, ids, values)
    at_once = ingest(dataset, files)
    row = {name: number for number, name in enumerate(ids)}
    np.testing.assert_array_equal(at_once.feature(), values[[row[name] for name in ids_of(kind)]])
    assert at_once.artifact.facts["left_out"] == UNKNOWN
    other = store(Catalog(tmp_path / "other"), tmp_path, kind)
    request.getfixturevalue("small")
    by_levels = ingest(other, files, InProcessCluster(scratch=SMALL))
    np.testing.assert_array_equal(by_levels.feature(), at_once.feature())
    assert by_levels.artifact.facts == at_once.artifact.facts


@pytest.mark.slow
def test_tasks_that_run_twice_give_the_same_bytes(
    catalog: Catalog, tmp_path: Path, small: None, undisturbed: Undisturbed
) -> None:
    dataset = store(catalog, tmp_path, "numbers")
    files = write_table(tmp_path, "csv", *table_of("numbers"))
    assert ingest(dataset, files, TwiceCluster(scratch=SMALL)).artifact.digest == undisturbed.digest


def damage_file(path: Path, damage: str) -> None:
    size = path.stat().st_size
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        os.truncate(path, size // 2)
    else:
        flip_bit(path, size // 3)


@pytest.mark.parametrize(
    ("phase", "damage"),
    few_of(["route/", "merge/table/feature/", "feature/"], ["missing", "cut", "flipped"], together=1),
)
def test_files_that_are_damaged_between_a_kill_and_the_next_run_are_made_again(
    catalog: Catalog, tmp_path: Path, small: None, undisturbed: Undisturbed, phase: str, damage: str
) -> None:
    dataset = store(catalog, tmp_path, "numbers")
    files = write_table(tmp_path, "csv", *table_of("numbers"))
    numbers = [number for number, name in enumerate(undisturbed.tasks) if name.startswith(phase)]
    # In the middle of a phase.
    with pytest.raises(StoppedError):
        ingest(dataset, files, StoppingCluster(numbers[len(numbers) // 2], SMALL))
    (info,) = dataset.artifacts("vertices")
    found = sorted((info.path / ".work" / "shuffle").rglob("lanes-*"), key=lambda path: path.stat().st_size)
    chosen = [path for path in found if path.stat().st_size][-3:]
    assert chosen
    for path in chosen:
        damage_file(path, damage)
    assert ingest(dataset, files, InProcessCluster(scratch=SMALL)).artifact.digest == undisturbed.digest


def test_the_number_of_workers_and_their_memory_may_change_after_a_kill(
    catalog: Catalog, tmp_path: Path, small: None, undisturbed: Undisturbed
) -> None:
    dataset = store(catalog, tmp_path, "numbers")
    files = write_table(tmp_path, "csv", *table_of("numbers"))
    for tasks, run_bytes in ((12, 400), (12, 3000), (6, 500)):
        with pytest.raises(StoppedError):
            ingest(dataset, files, StoppingCluster(tasks, replace(SMALL, routed_bytes=run_bytes)))
    assert ingest(dataset, files, ThreadedCluster(3, DEFAULT_MEMORY, SMALL)).artifact.digest == undisturbed.digest


def test_a_vertex_with_rows_in_two_ranges_is_refused_by_the_later_line(
    catalog: Catalog, tmp_path: Path, small: None
) -> None:
    dataset = store(catalog, tmp_path, "names")
    ids, values = table_of("names")
    ids[-1] = next(name for name in ids if name in ids_of("names"))
    files = write_table(tmp_path, "csv", ids, values)
    with pytest.raises(InputError, match=rf"x\.csv, line {len(ids)}: the vertex already has a row"):
        ingest(dataset, files)


def test_rows_stay_in_the_dataset_and_its_scratch(
    catalog: Catalog, tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> NoReturn:
        pytest.fail("used the system's temporary folder")

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    monkeypatch.setattr(tempfile, "mkstemp", refused)
    dataset = store(catalog, tmp_path, "kept")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ingest(
        dataset,
        write_table(tmp_path, "csv", *table_of("kept")),
        InProcessCluster(scratch=replace(SMALL, folder=scratch)),
    )
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(("bucket_bytes", "fewer_buckets"), [(1500, False), (1 << 20, True)])
def test_tasks_and_opens_are_those_that_are_counted(
    catalog: Catalog,
    tmp_path: Path,
    small: None,
    bucket_bytes: int,
    fewer_buckets: bool,
) -> None:
    # One run for each range, so that their number is known.
    scratch = replace(SMALL, bucket_bytes=bucket_bytes, routed_bytes=1 << 20)
    dataset, cluster = store(catalog, tmp_path, "kept"), OpenCounter(scratch)
    files = write_table(tmp_path, "csv", *table_of("kept"))
    source = open_vertices("keyed", (), files, dataset.graph())
    ingest(dataset, files, cluster)
    shape = (NUM_VERTICES, WIDTH)
    rows = vertex_rows.task_rows(shape, np.dtype(np.float32), scratch)
    cut = VertexBuckets(NUM_VERTICES, rows, Column("value", "float32", (WIDTH,)), 8, bucket_bytes)
    assert isinstance(source, JoinedVertices)
    table = source.source_of("feature")
    assert isinstance(table, KeyedSource)
    num_bytes, ranges = Path(files["feature"]).stat().st_size, table.ranges()
    levels = merge_levels.merge_levels(len(ranges), FAN_IN)
    assert len(levels) > 2
    # Spans without buckets are neither merged nor counted.
    assert (cut.num_buckets < levels[-1].spans) == fewer_buckets
    writer = ArtifactWriter(Path(), "vertices", "", scratch=scratch)
    plan = TablePlan("feature", cut, ranges, NUM_VERTICES + UNKNOWN, num_bytes, DEFAULT_MEMORY, writer)
    phases = count(vertex_phases([ArrayPlan("feature", shape, np.dtype(np.float32), plan, writer)]))
    functions = {
        "cut ids": "cut_ids",
        "route rows": "route_rows",
        "merge rows": "merge_runs",
        "write rows": "write_vertex_rows",
    }
    assert {phase.phase for phase in phases} == functions.keys()
    for name, function in functions.items():
        planned = [phase for phase in phases if phase.phase == name]
        assert cluster.tasks(function) == sum(phase.tasks for phase in planned)
        opens = sum(phase.opens for phase in planned)
        # Runs without rows are not opened.
        assert 0 <= opens - sum(cluster.opens(function)) <= 2, name
        assert max(cluster.opens(function)) == max(phase.most_opens for phase in planned) * bool(opens)


def gathered(values: Column, digits: int, limit: int) -> GatheredRows:
    """Rows with ids of so many digits, as many as a task gathers."""
    shuffle = VertexBuckets(1000, 1, values, digits).shuffle("array")
    rows, rng, count, size = GatheredRows(shuffle), np.random.default_rng(0), 0, 4096
    offset = np.arange(size + 1, dtype=np.int64) * digits
    text = np.full(offset[-1], ord("1"), np.uint8)
    while rows.num_bytes < limit:
        chosen, at = rng.integers(0, 1000, size), np.arange(count, count + size)
        rows.add(chosen, at, values.empty(size), Names(offset, text))
        count += size
    return rows


def route(folder: Path, values: Column, digits: int, limit: int) -> None:
    """Gather rows, and write them as a run."""
    lane = LaneSet.create(folder, "lanes", 1).lane(0)
    with lanes.writable(folder, lane) as opened:
        gathered(values, digits, limit).route(
            RunsWriter(VertexBuckets(1000, 1, values, digits).shuffle("array"), lane, opened)
        )


@pytest.mark.parametrize(
    ("dtype", "trailing", "digits"), [("int32", (), 8), ("float32", (16,), 8), ("uint8", (), 1), ("int32", (), 40)]
)
def test_gathering_and_sorting_rows_takes_twice_the_counted_bytes_at_most(
    tmp_path: Path, dtype: str, trailing: tuple[int, ...], digits: int
) -> None:
    values, limit = Column("value", dtype, trailing), 16 << 20
    # What the first use imports is not of the rows.
    route(tmp_path, values, digits, 1)
    pool, default = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        with tracing_arrays() as arrays:
            route(tmp_path, values, digits, limit)
            peak = arrays.peak() + pool.max_memory()
    finally:
        pa.set_memory_pool(default)
    assert limit / 2 < peak <= 2 * limit
