"""Members of archives: stored ones are read in ranges where they lie, large deflated ones are unpacked once."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.ingest import preparation
from gnnloom.pipeline.ingest.preparation import (
    as_unpacked,
    packed_arrays,
    preparation_phases,
    prepared_source,
)
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph, project_ingest
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.sources.binary import stored_arrays
from gnnloom.pipeline.sources.binary.archive import combined_crc
from gnnloom.pipeline.sources.binary.stored_arrays import StoredArray, open_array
from gnnloom.pipeline.sources.numpy_edges import NumpyEdges
from gnnloom.pipeline.sources.reading.files import open_files
from gnnloom.pipeline.sources.source import SourceRange
from gnnloom.pipeline.sources.vertex_data.numpy_vertices import NumpyVertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import count
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter
from support.stopping import StoppingCluster

PAIRS = np.random.default_rng(3).integers(0, 50, (2, 400))
WEIGHTS = np.random.default_rng(4).random(400, dtype=np.float32)


def saved(folder: Path, *, deflated: bool) -> str:
    """An archive with edges, weights and features."""
    path, save = folder / f"{deflated}.npz", np.savez_compressed if deflated else np.savez
    features = np.arange(200, dtype=np.float32).reshape(50, 4)
    save(path, edge_index=PAIRS, edge_weight=WEIGHTS, feature=features, label=np.arange(50) % 3)
    return str(path)


def edges_of(source: NumpyEdges, spans: list[SourceRange]) -> np.ndarray:
    chunks = [chunk for span in spans for chunk in source.read(span)]
    return np.stack([np.concatenate([c.source for c in chunks]), np.concatenate([c.target for c in chunks])])


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every archive as a large one."""
    monkeypatch.setattr(stored_arrays, "LARGE_BYTES", 1)


@pytest.mark.parametrize(
    ("first", "second"), [(b"", b"x"), (b"abc", b""), (b"123456789", b"\0" * 1000), (b"\0", b"ab")]
)
def test_checksums_of_two_ranges_are_combined(first: bytes, second: bytes) -> None:
    combined = combined_crc(zlib.crc32(first), zlib.crc32(second), len(second))
    assert combined == zlib.crc32(first + second)


@pytest.mark.usefixtures("all_large")
def test_a_stored_member_of_a_large_archive_is_read_in_ranges_where_it_lies(tmp_path: Path) -> None:
    source = NumpyEdges.open([saved(tmp_path, deflated=False)], weights=True)
    source = NumpyEdges(source.arrays, True, range_edges=70)
    spans = list(source.ranges())
    assert len(spans) == 6
    np.testing.assert_array_equal(edges_of(source, spans), PAIRS)
    weights = [chunk.weight for chunk in source.read(spans[3])]
    np.testing.assert_array_equal(np.concatenate(weights), WEIGHTS[210:280])  # type: ignore[arg-type]
    assert not packed_arrays(source)


@pytest.mark.usefixtures("all_large")
def test_features_of_a_stored_member_are_shared_among_tasks(tmp_path: Path) -> None:
    for deflated in (False, True):
        vertices = NumpyVertices.open(feature=saved(tmp_path, deflated=deflated))
        assert vertices.random_access is not deflated
        rows = np.concatenate(list(vertices.read_rows("feature", 7, 9)))
        np.testing.assert_array_equal(rows, np.arange(28, 36, dtype=np.float32).reshape(2, 4))


def test_a_deflated_member_of_a_large_archive_is_one_range_until_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path, deflated=True)
    small = NumpyEdges.open([path])
    assert as_unpacked(small) is small
    monkeypatch.setattr(stored_arrays, "LARGE_BYTES", 1)
    source = NumpyEdges.open([path], weights=True)
    assert len(source.ranges()) == 1
    assert {array.member for array in packed_arrays(source)} == {"edge_index", "edge_weight"}
    shorter = NumpyEdges(source.arrays, True, range_edges=70)
    assert len(as_unpacked(shorter).ranges()) == 6
    assert as_unpacked(shorter).identity() == source.identity()


@pytest.mark.parametrize("weights", [False, True])
def test_a_graph_has_the_same_bytes_streamed_mapped_or_unpacked(
    catalog: Catalog, tmp_path: Path, weights: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, cluster = IngestOptions(undirected=True, merge="sum" if weights else None), InProcessCluster()
    paths = [saved(tmp_path, deflated=deflated) for deflated in (False, True)]
    streamed = ingest_graph(catalog.create("streamed"), NumpyEdges.open(paths[:1], weights=weights), options, cluster)
    monkeypatch.setattr(stored_arrays, "LARGE_BYTES", 1)
    monkeypatch.setattr(preparation, "CHECK_BYTES", 1000)
    for path, phase in zip(paths, ("check", "unpack"), strict=True):
        source, dataset = NumpyEdges.open([path], weights=weights), catalog.create(phase)
        graph = ingest_graph(dataset, NumpyEdges(source.arrays, weights, range_edges=33), options, cluster)
        assert graph.artifact.digest == streamed.artifact.digest
        assert {phase, "scatter"} <= graph.artifact.measured["task_seconds"].keys()
        vertices = ingest_vertices(dataset, NumpyVertices.open(feature=path), cluster)
        np.testing.assert_array_equal(vertices.artifact.array("feature").read(), np.arange(200).reshape(50, 4))


@pytest.mark.usefixtures("all_large")
def test_what_prepares_archives_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "CHECK_BYTES", 1000)
    for deflated, phase in ((False, "check archives"), (True, "unpack")):
        source = NumpyEdges.open([saved(tmp_path, deflated=deflated)], weights=True)
        writer, cluster = ArtifactWriter(tmp_path / phase, "graph", "key"), StoppingCluster()
        prepared_source(writer, source, cluster)
        (counted,) = count(preparation_phases(source))
        assert (counted.phase, counted.tasks) == (phase, len(cluster.ran))
        unpacked = sum(path.stat().st_size for path in (writer.work / "unpack").glob("*.npy"))
        assert counted.bytes_written == unpacked
        assert counted.bytes_read == PAIRS.nbytes + WEIGHTS.nbytes + 2 * 128


def test_a_plan_says_what_a_single_task_has_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [saved(tmp_path, deflated=deflated) for deflated in (True, False)]
    assert project_ingest(NumpyEdges.open(paths[:1]), IngestOptions(), tmp_path, 2, 1 << 30).compressed_bytes == 0
    monkeypatch.setattr(stored_arrays, "LARGE_BYTES", 1)
    packed, plain = (project_ingest(NumpyEdges.open([path]), IngestOptions(), tmp_path, 2, 1 << 30) for path in paths)
    assert (plain.compressed_bytes, packed.compressed_bytes) == (0, PAIRS.nbytes + 128)
    assert packed.spill_bytes == plain.spill_bytes + PAIRS.nbytes + 128


@pytest.mark.usefixtures("all_large")
@pytest.mark.parametrize("deflated", [False, True])
def test_a_damaged_member_of_a_large_archive_is_found(catalog: Catalog, tmp_path: Path, deflated: bool) -> None:
    path = Path(saved(tmp_path, deflated=deflated))
    content = bytearray(path.read_bytes())
    content[700] ^= 0x01
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"{path.name}.*damaged"):
        ingest_graph(catalog.create("web"), NumpyEdges.open([str(path)]), IngestOptions(), InProcessCluster())


@pytest.mark.usefixtures("all_large")
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_a_stored_matrix_is_read_in_ranges(tmp_path: Path, kind: str) -> None:
    rng, n = np.random.default_rng(0), 60
    # Empty rows at the start, in the middle and at the end.
    entries = (rng.random((n, n)) < 0.1) & np.isin(np.arange(n), (0, 1, 30, 59), invert=True)[:, None]
    stored: dict[str, Any] = {"csr": scipy.sparse.csr_array, "csc": scipy.sparse.csc_array}
    matrix = stored[kind](entries.astype(np.float64))
    scipy.sparse.save_npz(tmp_path / "m.npz", matrix, compressed=False)
    source = NumpyEdges.open([str(tmp_path / "m.npz")])
    whole = edges_of(source, [SourceRange(0, 0, source.num_edges)])
    for step in (1, 7, 50):
        parts = NumpyEdges(source.arrays, range_edges=step)
        assert len(parts.ranges()) == -(-source.num_edges // step)
        np.testing.assert_array_equal(edges_of(parts, list(parts.ranges())), whole)
    expected = scipy.sparse.coo_array(matrix)
    assert set(zip(*whole.tolist(), strict=True)) == set(zip(expected.row.tolist(), expected.col.tolist(), strict=True))


@pytest.mark.usefixtures("all_large")
def test_offsets_that_do_not_ascend_are_found_by_the_first_range(tmp_path: Path) -> None:
    indptr = np.array([0, 4, 2, 6, 8])
    np.savez(tmp_path / "m.npz", indptr=indptr, indices=np.zeros(8, np.int32), format=b"csr", shape=(4, 4))
    source = NumpyEdges(NumpyEdges.open([str(tmp_path / "m.npz")]).arrays, range_edges=2)
    with pytest.raises(InputError, match="do not ascend"):
        edges_of(source, list(source.ranges()))


@pytest.mark.usefixtures("all_large")
def test_a_stored_member_in_a_shortened_file_is_refused(tmp_path: Path) -> None:
    array: StoredArray = open_array(open_files([saved(tmp_path, deflated=False)])[0], "edge_index")
    assert array.is_mapped
    os.truncate(array.file.location, array.data_end // 2)
    with pytest.raises(InputError, match="ends before"):
        next(array.read_flat(0, 4))
