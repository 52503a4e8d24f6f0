"""Features are stored as float16 if asked for: rounded once, refused beyond its range, and counted with its bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertex_options import VertexOptions
from gnnloom.pipeline.ingest.vertex_rows import ArrayPlan
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.links.hard_negatives import by_rows, cosines, lengths
from gnnloom.pipeline.sources.format import open_edges, open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.sizes import VertexSizes
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import CorruptError, ExistsError, InputError
from gnnloom.workflows.interop.export import vertices_table
from gnnloom.workflows.interop.graph_libraries import vertex_arrays
from support.damage import replace_array
from support.scratch import small_chunks
from support.stopping import StoppingCluster

SCRATCH, N, WIDTH = Scratch(task_pieces=2), 700, 5
HERE = InProcessCluster(scratch=SCRATCH)
HALF = VertexOptions("float16")


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 1000)


def feature() -> np.ndarray:
    """Numbers of all sizes: some become 0, or lose digits, below the smallest that float16 holds in full."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=(N, WIDTH)) * 10.0 ** rng.integers(-9, 4, (N, WIDTH))).astype(np.float32)


def make(catalog: Catalog, folder: Path, *, ids: str = "keep") -> Dataset:
    """A graph of all even ids, or of all ids."""
    dataset, ends = catalog.create("web"), np.arange(0, N, 1 if ids == "keep" else 2)
    lines = "".join(f"{u} {v}\n" for u, v in zip(ends, np.roll(ends, 1), strict=True))
    (folder / "edges.txt").write_text(lines, encoding="ascii")
    ingest_graph(dataset, open_edges(None, [str(folder / "edges.txt")]), IngestOptions(ids=ids), HERE)
    return dataset


def source(folder: Path, given: np.ndarray, *, by_id: bool = False) -> Any:
    path = folder / "x.npy"
    np.save(path, given)
    if not by_id:
        return open_vertices("files", (), {"feature": str(path)})
    np.save(folder / "ids.npy", np.arange(len(given)))
    return {"feature": str(path), "ids_file": str(folder / "ids.npy")}


@pytest.mark.parametrize("by_id", [False, True])
def test_features_are_rounded_to_the_nearest_float16(catalog: Catalog, tmp_path: Path, by_id: bool) -> None:
    dataset, given = make(catalog, tmp_path), feature()
    rows = source(tmp_path, given, by_id=by_id)
    if by_id:
        rows = open_vertices("keyed", (), rows, dataset.graph())
    found = ingest_vertices(dataset, rows, HERE, options=HALF)
    stored = found.feature()
    assert stored.dtype == np.float16
    assert np.array_equal(stored, given.astype(np.float16))
    assert found.artifact.verify() == 1
    check_artifact(dataset, found.artifact)
    # Others get float32: few programs read float16.
    assert vertex_arrays(dataset)["x"].dtype == np.float32
    (_, exported), *_ = vertices_table(dataset, "features").pieces()
    assert (exported.dtype, np.array_equal(exported, stored)) == (np.float32, True)


def test_the_type_is_part_of_the_key_and_the_default_is_not(catalog: Catalog, tmp_path: Path) -> None:
    dataset, rows = make(catalog, tmp_path), source(tmp_path, feature())
    whole = ingest_vertices(dataset, rows, HERE)
    assert whole.artifact.parameters.keys() == {"source"}
    assert whole.feature().dtype == np.float32
    with pytest.raises(ExistsError, match="store=float16"):
        ingest_vertices(dataset, rows, HERE, options=HALF)
    half = ingest_vertices(dataset, rows, HERE, options=HALF, allow_others=True)
    assert half.artifact.key != whole.artifact.key
    # Each of them is found again.
    for options, stored in ((VertexOptions(), whole), (HALF, half)):
        found = ingest_vertices(dataset, rows, StoppingCluster(0, SCRATCH), options=options)
        assert found.artifact.key == stored.artifact.key


@pytest.mark.parametrize(("ids", "by_id"), [("keep", False), ("compact", False), ("compact", True)])
def test_a_number_beyond_the_range_names_the_vertex_and_the_option(
    catalog: Catalog, tmp_path: Path, ids: str, by_id: bool
) -> None:
    dataset, given = make(catalog, tmp_path, ids=ids), np.ones((N, WIDTH), np.float32)
    # Rounded down to the largest one, which is in range.
    given[8, 1] = 65519
    given[600, 3] = -65520
    rows = source(tmp_path, given, by_id=by_id)
    if by_id:
        rows = open_vertices("keyed", (), rows, dataset.graph())
    with pytest.raises(InputError, match=r"feature: vertex 600 has -65520, .* 65504; .*`--store float32`"):
        ingest_vertices(dataset, rows, HERE, options=HALF)
    assert [info.state for info in dataset.artifacts("vertices")] == []


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(InputError, match="store 'bfloat16'"):
        VertexOptions("bfloat16")


def test_plans_count_the_bytes_of_the_type() -> None:
    whole, half = (VertexSizes.plain(1000, 64, 3, store) for store in ("float32", "float16"))
    assert whole.raw_bytes - half.raw_bytes == 1000 * 64 * 2
    written, read = [], []
    for name in ("float32", "float16"):
        needs = [task.needs for task in ArrayPlan("feature", (N, WIDTH), np.dtype(name)).tasks()]
        written.append(sum(each.writes for each in needs))
        read.append(sum(each.reads for each in needs))
    assert written == [4 * N * WIDTH, 2 * N * WIDTH]
    assert read == [4 * N * WIDTH] * 2


def test_an_infinite_float16_is_found_by_the_checks(catalog: Catalog, tmp_path: Path) -> None:
    dataset = make(catalog, tmp_path)
    found = ingest_vertices(dataset, source(tmp_path, feature()), HERE, options=HALF)

    def change(stored: np.ndarray) -> np.ndarray:
        stored[17, 2] = np.inf
        return stored

    changed = replace_array(found.artifact, "feature", change)
    with pytest.raises(CorruptError, match="feature: vertex 17 has"):
        check_artifact(dataset, changed)


def test_cosines_of_float16_are_those_of_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.pipeline.links.hard_negatives._WIDENED", 64)
    half = feature().astype(np.float16)
    whole = half.astype(np.float32)
    norm, own = lengths(whole), whole[3].astype(np.float64)
    assert np.array_equal(by_rows(lengths, half), norm)
    assert np.array_equal(by_rows(cosines, half, norm, own, norm[3]), cosines(whole, norm, own, norm[3]))
