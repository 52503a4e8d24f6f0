"""Rows of a table reach the vertices that their ids name, through few files, however the work is cut."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnloom.pipeline.external_sort import byte_ranges
from gnnloom.pipeline.external_sort.merge_levels import merge_levels
from gnnloom.pipeline.ingest import vertices as stage
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.tables import plan as table_plan
from gnnloom.pipeline.ingest.tables import routed_table, routing, row_file
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.formats import open_edges, open_vertices
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.reading import keyed_rows
from gnnloom.pipeline.sources.source import KeyedSource
from gnnloom.pipeline.sources.vertex_data.joined_vertices import JoinedVertices
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.format import arrays as stored_arrays
from support.stopping import run_in_steps

HERE = InProcessCluster()
NUM_VERTICES, WIDTH, UNKNOWN = 700, 3, 50
FAN_IN = 3


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


def ingest(dataset: Dataset, files: dict[str, str], cluster: InProcessCluster = HERE) -> Vertices:
    return ingest_vertices(dataset, open_vertices("keyed", (), files, dataset.graph()), cluster)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many chunks, buckets, ranges, files and merges for little data."""
    monkeypatch.setattr(stored_arrays, "CHUNK_BYTES", 512)
    monkeypatch.setattr(stage, "TASK_PIECES", 2)
    monkeypatch.setattr(table_plan, "BUCKET_BYTES", 1500)
    monkeypatch.setattr(table_plan, "BOUNDS_PER_TASK", 4)
    monkeypatch.setattr(routing, "BOUNDS_PER_TASK", 4)
    monkeypatch.setattr(table_plan, "FILE_BYTES", 1000)
    monkeypatch.setattr(keyed_rows, "_BLOCK_BYTES", 400)
    monkeypatch.setattr(keyed_rows, "_BLOCK_VALUES", 80)
    monkeypatch.setattr(row_file, "_BLOCK_BYTES", 200)
    monkeypatch.setattr(byte_ranges, "COPY_BYTES", 200)
    for name in ("_LEAST_BYTES", "_MOST_BYTES"):
        monkeypatch.setattr(keyed_rows, name, 1000)
    for module in (table_plan, routing):
        monkeypatch.setattr(module, "FAN_IN", FAN_IN)


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
    by_levels = ingest(other, files)
    np.testing.assert_array_equal(by_levels.feature(), at_once.feature())
    assert by_levels.artifact.facts == at_once.artifact.facts


def test_stopped_before_every_task_each_runs_once_and_the_bytes_are_the_same(
    catalog: Catalog, tmp_path: Path, small: None
) -> None:
    dataset = store(catalog, tmp_path, "numbers")
    files = write_table(tmp_path, "csv", *table_of("numbers"))
    stopped, ran = run_in_steps(lambda cluster: ingest(dataset, files, cluster), 7)
    assert {name.partition("/")[0] for _, name in ran} == {"cut", "route", "merge", "feature"}
    assert max(Counter(ran).values()) == 1
    whole = ingest(store(Catalog(tmp_path / "other"), tmp_path, "numbers"), files)
    assert stopped.artifact.digest == whole.artifact.digest
    assert stopped.artifact.manifest["arrays"] == whole.artifact.manifest["arrays"]


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
    ingest(dataset, write_table(tmp_path, "csv", *table_of("kept")), InProcessCluster(DEFAULT_MEMORY, scratch))
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(("bucket_bytes", "fewer_buckets"), [(1500, False), (1 << 20, True)])
def test_tasks_and_opens_are_those_of_the_plan(
    catalog: Catalog,
    tmp_path: Path,
    small: None,
    bucket_bytes: int,
    fewer_buckets: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_plan, "BUCKET_BYTES", bucket_bytes)
    opened: list[Path] = []
    at_a_time: list[int] = []

    class CountedFile(row_file.RowFile):
        def __init__(self, path: Path, *rest: Any) -> None:
            opened.append(path)
            super().__init__(path, *rest)

    @contextmanager
    def opened_and_counted(paths: Sequence[Path], *rest: Any) -> Iterator[list[row_file.RowFile]]:
        at_a_time.append(len(paths))
        with opened_together(paths, *rest) as files:
            yield files

    opened_together = row_file.opened
    for module in (row_file, routed_table):
        monkeypatch.setattr(module, "opened", opened_and_counted)
    monkeypatch.setattr(row_file, "RowFile", CountedFile)
    per_task: dict[str, int] = {}

    class CountingCluster(InProcessCluster):
        def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
            for item in items:
                before = len(opened)
                yield function(item)
                per_task[item.name] = len(opened) - before

    dataset = store(catalog, tmp_path, "kept")
    # One file for each range, so that the plan knows the number of files.
    monkeypatch.setattr(table_plan, "FILE_BYTES", 1 << 20)
    files = write_table(tmp_path, "csv", *table_of("kept"))
    source = open_vertices("keyed", (), files, dataset.graph())
    ingest(dataset, files, CountingCluster())
    shape = (NUM_VERTICES, WIDTH)
    plan = table_plan.TablePlan(NUM_VERTICES, stage._piece_rows("feature", shape) * stage.TASK_PIECES, 4 * WIDTH, 8)
    assert isinstance(source, JoinedVertices)
    table = source.source_of("feature")
    assert isinstance(table, KeyedSource)
    num_bytes, ranges = Path(files["feature"]).stat().st_size, len(table.ranges())
    levels = merge_levels(ranges, FAN_IN)
    assert len(levels) > 2
    # Spans without buckets are neither merged nor counted.
    assert (plan.num_buckets < levels[-1].spans) == fewer_buckets
    phases = plan.counts(NUM_VERTICES + UNKNOWN, num_bytes, ranges, DEFAULT_MEMORY)
    names = {"cut ids": "cut", "route rows": "route", "merge rows": "merge", "write rows": "feature"}
    for prefix in set(names.values()):
        counted = [count for name, count in per_task.items() if name.startswith(f"{prefix}/")]
        planned = [phase for phase in phases if names[phase.phase] == prefix]
        assert len(counted) == sum(phase.tasks for phase in planned)
        if prefix in {"merge", "feature"}:
            assert sum(counted) == sum(phase.opens for phase in planned)
    assert max(at_a_time) == max(phase.most_opens for phase in phases) == FAN_IN


def gathered(values: row_file.RowType, digits: int, limit: int) -> row_file.RowGroup:
    """Rows with ids of so many digits, as many as a task gathers."""
    group, rng, count, size = row_file.RowGroup(values, 1000), np.random.default_rng(0), 0, 4096
    offset = np.arange(size + 1, dtype=np.int64) * digits
    text = np.full(offset[-1], ord("1"), np.uint8)
    while group.num_bytes < limit:
        buckets, at = rng.integers(0, 1000, size), np.arange(count, count + size)
        group.add(buckets, Names(offset, text), at, values.empty(size))
        count += size
    return group


@pytest.mark.parametrize(
    ("dtype", "trailing", "digits"), [("int32", (), 8), ("float32", (16,), 8), ("uint8", (), 1), ("int32", (), 40)]
)
def test_gathering_and_sorting_rows_takes_twice_the_counted_bytes_at_most(
    tmp_path: Path, dtype: str, trailing: tuple[int, ...], digits: int
) -> None:
    values, limit = row_file.RowType(dtype, trailing), 16 << 20
    # What the first use imports is not of the rows.
    gathered(values, digits, 1).write(tmp_path / "first")
    pool, default = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        gathered(values, digits, limit).write(tmp_path / "rows")
        peak = tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(default)
    assert limit / 2 < peak <= 2 * limit
